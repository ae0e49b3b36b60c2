"""The kernel that the machine runs: fetched by apt-get as Debian's package, unpacked, never installed."""

import glob
import os
import re
import shutil
import subprocess

# The machine's own: linux-image-amd64 depends on the package of the present version.
META_PACKAGE = "linux-image-amd64"

# What the machine does with them. modules.dep adds what these need.
DISK = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"]
LATER = [
    "virtio_console",  # the port that commands come through
    "nfit", "nd_pmem", "dax_pmem", "device_dax",  # persistent memory
    "crc32_generic", "dummy", "rdma_rxe", "ib_uverbs", "rdma_ucm",  # SoftRoCE; rxe does not ask for crc32
    "veth", "overlay", "loop",
]  # fmt: skip
# Asked for by the kernel under names that are no file's, or not asked for at all.
EXTRA = ["crc32_pclmul", "crc32c_intel"]


class Unavailable(Exception):
    """There can be no machine here; the text says why."""


def command(words, seconds=300, **more):
    """The output of a command that must succeed."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=seconds, **more)  # fmt: skip
    except FileNotFoundError:
        raise Unavailable(f"the program {words[0]} is not there: tools/install-deps vm") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(words)} took longer than {seconds} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise Unavailable(f"{' '.join(words[:4])} failed: {last}")
    return done.stdout


class Kernel:
    """An unpacked package: `image` is what boots, `modules` the folder of its modules."""

    def __init__(self, folder):
        images = glob.glob(os.path.join(folder, "boot", "vmlinuz-*"))
        if len(images) != 1:
            raise Unavailable(f"{folder} holds no kernel; remove it and try again")
        self.image = images[0]
        self.version = os.path.basename(self.image).removeprefix("vmlinuz-")
        self.modules = os.path.join(folder, "lib", "modules", self.version)
        self.needs = self.read_needs()

    def read_needs(self):
        """{name: (file, files it needs, in the order to take away)} from modules.dep."""
        found = {}
        with open(os.path.join(self.modules, "modules.dep"), encoding="utf-8") as file:
            for line in file:
                path, _, needs = line.strip().partition(":")
                found[module_name(path)] = path, needs.split()
        return found

    def files_of(self, names):
        """The modules' files, each behind those that it needs."""
        files = []

        def add(path):
            if path in files:
                return
            for needed in self.needs[module_name(path)][1]:
                add(needed)
            files.append(path)

        for name in names:
            if name in self.needs:  # else it is built in
                add(self.needs[name][0])
        return files


def module_name(path):
    return re.sub(r"\.ko.*", "", os.path.basename(path)).replace("-", "_")


def newest_package():
    text = command(["apt-cache", "depends", META_PACKAGE])
    names = re.findall(r"Depends: (linux-image-\S+)", text)
    if not names:
        raise Unavailable(f"apt knows no package that {META_PACKAGE} depends on; apt-get update may help")
    return names[0]


def download(package, folder):
    """The package's file. Lists of packages grow old: then they are fetched anew, once."""
    os.makedirs(folder, exist_ok=True)
    words = ["apt-get", "-q", "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root",
             "download", package]  # fmt: skip
    try:
        command(words, cwd=folder, seconds=600)
    except Unavailable:
        if os.geteuid() == 0:
            command(["apt-get", "-q", "update"], seconds=300)
        command(words, cwd=folder, seconds=600)
    found = glob.glob(os.path.join(folder, package + "_*.deb"))
    if len(found) != 1:
        raise Unavailable(f"apt-get download {package} left no package in {folder}")
    return found[0]


def fetch(place):
    """The kernel below `place`; fetched and unpacked if it is not there."""
    for folder in sorted(glob.glob(os.path.join(place, "linux-image-*")), reverse=True):
        if os.path.exists(os.path.join(folder, "complete")):
            return Kernel(folder)
    package = newest_package()
    folder = os.path.join(place, package)
    shutil.rmtree(folder, ignore_errors=True)
    archive = download(package, os.path.join(place, "download"))
    command(["dpkg", "-x", archive, folder])
    shutil.rmtree(os.path.dirname(archive))
    version = os.path.basename(glob.glob(os.path.join(folder, "boot", "vmlinuz-*"))[0])
    # Packages have no modules.dep: installing makes it.
    command(["busybox", "depmod", "-b", folder, version.removeprefix("vmlinuz-")])
    with open(os.path.join(folder, "complete"), "w", encoding="utf-8"):
        return Kernel(folder)
