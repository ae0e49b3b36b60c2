"""What a cluster was started with: D/cluster.json, the defaults, and what may change between runs."""

import json
import os
import shlex

from .failure import Failure

# What the data on disk is made of. A cluster that is started again keeps it.
OF_THE_DATA = ("servers", "replicas", "shards", "coord", "zookeepers", "pm_bytes", "pm", "pm_offset", "lease_ms")
# All else each run may choose anew; left out, it stays as it was.

DEFAULTS = {
    "servers": 3,  # the highest number
    "removed": [],  # those of them that were taken out
    "replicas": 3,
    "shards": 0,
    "coord": "file",
    "zookeepers": 1,  # with coord zookeeper
    "managers": 1,
    "lease_ms": 500,
    "pm_bytes": 2 << 30,
    "pm": "",  # the cluster's directory
    "pm_offset": 0,
    "fabric": "shm",
    "durability": "none",
    "workers": None,  # the server's own defaults
    "digests": None,
    "reactors": None,
    "landing_segments": None,
    "clean_below": None,
    "checkpoints": None,
    "metrics": "no",
    "wear_model": None,
    "port": 0,  # over tcp and verbs: the CM's in the last run, where its clients connect again
    "verbs_device": None,  # found by the programs themselves
    "verbs_receive": None,
}
ADDED_LATER = ("verbs_device", "verbs_receive", "clean_below", "checkpoints", "wear_model", "zookeepers", "managers", "lease_ms", "removed", "metrics")  # cluster.json of an earlier version lacks them
FORMATS = range(1, 2)  # of cluster.json, that this version reads; it writes the last

WORDS = {
    "coord": ("file", "zookeeper"),
    "fabric": ("shm", "tcp", "verbs"),
    "durability": ("fence", "async", "none"),
    "verbs_receive": (None, "auto", "multi-packet", "shared"),
    "checkpoints": (None, "yes", "no"),
    "metrics": ("yes", "no"),
    "wear_model": (None, "off", "on", "log-per-sender"),
}
NO_LONGER = {"verbs_receive": "connection"}  # words that cluster.json of an earlier version may have
RECEIVE_NO_LONGER = (
    'verbs_receive "connection" is gone, for every RDMA NIC has shared receive queues: give '
    "--verbs-receive auto"
)


def numbers(options):
    """Of the servers."""
    return [number for number in range(1, options.servers + 1) if number not in options.removed]


def flag(name):
    return "--" + name.replace("_", "-")


def has_ports(fabric):
    """Verbs connections are set up over tcp."""
    return fabric in ("tcp", "verbs")


def path_of(directory):
    return os.path.join(directory, "cluster.json")


def read(directory):
    """The settings that cluster.json tells; None: there is none."""
    path = path_of(directory)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        found = {}
    elif found.pop("format", 1) not in FORMATS:
        raise Failure(
            f"{path} was written by another version of rowan-local, in a format that this one does not "
            "read: use that version, or name another directory with --dir (nothing was touched)"
        )
    else:
        found = {name: DEFAULTS[name] for name in ADDED_LATER} | {"lease_ms": 0} | found
    missing = sorted(set(DEFAULTS) - set(found))
    wrong = sorted(name for name in DEFAULTS if not missing and not is_sound(name, found[name]))
    if missing or wrong:
        what = f" or of another version: it lacks {', '.join(missing)}"
        if wrong:
            what = f": what it says of {', '.join(wrong)} makes no sense"
        raise Failure(
            f"{path} is damaged{what}; restore it, or name another directory with --dir (nothing was touched)"
        )
    return {name: found[name] for name in DEFAULTS}


def is_sound(name, value):
    """Could `write` have written it?"""
    default = DEFAULTS[name]
    if name in WORDS:
        return value in WORDS[name] or value == NO_LONGER.get(name)
    if isinstance(default, str) or (name == "verbs_device" and value is not None):
        return isinstance(value, str)
    if isinstance(default, list):
        return isinstance(value, list) and all(type(one) is int for one in value)
    if default is None and value is None:
        return True
    return type(value) is int and (value > 0 or value == default or name in ("pm_bytes", "lease_ms"))


def write(options):
    saved = {"format": FORMATS[-1]} | {name: getattr(options, name) for name in DEFAULTS}
    write_whole(path_of(options.directory), json.dumps(saved, indent=1) + "\n")


def write_whole(path, text):
    """The old file or the new one is there, whole, whatever ends us."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # else a power loss could leave an empty file
    os.rename(path + ".new", path)


def complete(options):
    """Fills what the command line left out (None): from cluster.json, which is kept in
    `options.saved`, else the defaults. What is given and is not what the data is made of is refused."""
    options.saved = read(options.directory)
    if options.saved and options.pm is not None:
        refuse_other_place(options)
        options.pm = options.pm_offset = None
    for name, default in DEFAULTS.items():
        given = getattr(options, name)
        if options.saved and name in OF_THE_DATA and given not in (None, options.saved[name]):
            refuse(options, flag(name), given, options.saved[name])
        if given is None:
            setattr(options, name, options.saved[name] if options.saved else default)
    if options.verbs_receive == NO_LONGER["verbs_receive"]:
        raise Failure(f"{path_of(options.directory)}: {RECEIVE_NO_LONGER} (nothing was touched)")


def place(directory, pm, offset):
    return os.path.realpath(pm or directory), offset


def refuse_other_place(options):
    saved = options.saved["pm"], options.saved["pm_offset"]
    given = options.pm, options.pm_offset
    if place(options.directory, *given) != place(options.directory, *saved):
        refuse(options, "--pm", *(place_text(options, *one) for one in (given, saved)))


def place_text(options, pm, offset):
    return f"{pm or options.directory}:{offset}" if offset else pm or options.directory


def refuse(options, flag, given, saved):
    raise Failure(
        f"{flag} {shlex.quote(str(given))}: the data in {options.directory} was made with {flag} "
        f"{shlex.quote(str(saved))}, and that cannot change; leave {flag} out to start it again, or "
        "name another directory with --dir (nothing was touched)"
    )
