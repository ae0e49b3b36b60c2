"""Where the servers' persistent memory lies, and whether there is space: files, or parts of one file or device."""

import os
import pathlib
import shlex
import shutil
import stat

from . import settings
from .failure import Failure

MAKE_ONE = (
    "ndctl list --namespaces shows which there are, and ndctl create-namespace --mode devdax makes one"
)


def bytes_text(count):
    for unit, size in (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if count % size == 0 and count:
            return f"{count // size}{unit}"
    return str(count)


def places(options):
    """(PATH, offset) of each server's PM."""
    path = os.path.abspath(options.pm or options.directory)
    if os.path.isdir(path):
        return [(os.path.join(path, f"s{n}.pm"), 0) for n in settings.numbers(options)]
    return [(path, options.pm_offset + (n - 1) * options.pm_bytes) for n in settings.numbers(options)]


def is_of_devices(path):
    """Is it, or should it be, a device? /dev/shm is a place for files."""
    return os.path.dirname(os.path.abspath(path)) == "/dev"


def device_numbers(path):
    """(bytes, alignment) of a devdax device; None: the path is none."""
    about = os.stat(path)
    if not stat.S_ISCHR(about.st_mode):
        return None
    folder = f"/sys/dev/char/{os.major(about.st_rdev)}:{os.minor(about.st_rdev)}"
    try:
        return [int(pathlib.Path(folder, name).read_text("ascii")) for name in ("size", "align")]
    except (OSError, ValueError):
        raise Failure(f"{path} is no DAX device; {MAKE_ONE}") from None


def check_device(options, path):
    """What the kernel refuses later in fewer words."""
    numbers = device_numbers(path)
    if not numbers:
        return
    size, align = numbers
    for flag, value in (("the offset of --pm", options.pm_offset), ("--pm-bytes", options.pm_bytes)):
        if value % align:
            raise Failure(
                f"{flag}, {bytes_text(value)}, is not a multiple of {bytes_text(align)}, the alignment of "
                f"{path}; give one that is"
            )
    needed = options.pm_offset + options.servers * options.pm_bytes
    if needed > size:
        raise Failure(
            f"{path} has {size >> 20} MiB, and {options.servers} servers with --pm-bytes "
            f"{bytes_text(options.pm_bytes)} from {bytes_text(options.pm_offset)} on need {needed >> 20} MiB; "
            "give a smaller --pm-bytes"
        )


def check_file(options, path, needed):
    """One that all servers share: whoever made it would give it the size of its own part."""
    if os.path.isdir(options.pm or options.directory) or is_of_devices(path):
        return
    if not os.path.exists(path) or (os.path.isfile(path) and os.path.getsize(path) < needed):
        raise Failure(
            f"{path} is to hold the memory of all servers, and has to be there with {needed} bytes before: truncate -s "
            f"{needed} {shlex.quote(path)}"
        )


def check_space(options, where):
    path, offset = where[-1]
    if offset > 0 or len(where) > 1:
        check_file(options, path, offset + options.pm_bytes)
    made = [path for path, _ in where if not os.path.exists(path)]
    if not made:
        check_device(options, where[0][0])
        return
    if is_of_devices(made[0]):
        raise Failure(f"there is no device {made[0]}; {MAKE_ONE}")
    free = shutil.disk_usage(os.path.dirname(made[0])).free
    needed = options.pm_bytes * len(made)
    if free < needed:
        raise Failure(
            f"{os.path.dirname(made[0])} has {free >> 20} MiB free, and {len(made)} servers with "
            f"--pm-bytes {bytes_text(options.pm_bytes)} need {needed >> 20} MiB; give a smaller "
            "--pm-bytes, or another place with --dir or --pm"
        )
