"""The kernel that the machine runs: fetched by apt-get as Debian's package, unpacked, never installed."""

import glob
import os
import re
import shutil

import packages
from packages import Unavailable, command

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
# The kernel asks for these by names that are no file's, or not at all.
EXTRA = ["crc32_pclmul", "crc32c_intel"]


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


def fetch(place):
    """The kernel below `place`; fetched and unpacked if it is not there."""
    for folder in sorted(glob.glob(os.path.join(place, "linux-image-*")), reverse=True):
        if os.path.exists(os.path.join(folder, "complete")):
            return Kernel(folder)
    package = packages.depends_on(META_PACKAGE, r"linux-image-\S+")
    folder = os.path.join(place, package)
    shutil.rmtree(folder, ignore_errors=True)
    archive = packages.download(package, os.path.join(place, "download"))
    command(["dpkg", "-x", archive, folder])
    shutil.rmtree(os.path.dirname(archive))
    version = os.path.basename(glob.glob(os.path.join(folder, "boot", "vmlinuz-*"))[0])
    # Packages have no modules.dep: installing makes it.
    command(["busybox", "depmod", "-b", folder, version.removeprefix("vmlinuz-")])
    with open(os.path.join(folder, "complete"), "w", encoding="utf-8"):
        return Kernel(folder)
