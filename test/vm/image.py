"""What the machine boots from: an initial file system in memory, with busybox and the modules for the disk, and the
disk, with a build's programs, the tree's tools and tests, python, and the libraries of all these. The disk is only
read, so machines may share it."""

import contextlib
import fcntl
import glob
import gzip
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile

import kernel
from kernel import Unavailable

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))

# Where things are inside.
SOURCE = "/rowan"
BUILD = "/rowan/build"

# dash, because busybox's shell takes its own commands before any program of that name.
PROGRAMS = ["dash", "python3", "ip", "rdma", "ndctl", "daxctl", "mke2fs"]
PRELOADED = "test/vm/qp_errors.so"  # of the build
OPTIONAL = ["ibv_devinfo", "ibv_rc_pingpong", "ibv_srq_pingpong", "ibv_ud_pingpong", "strace", "gdb", "perf"]
TREE = ["tools", "test/lib", "test/cluster", "test/vm", "deploy/ansible"]
PYTHON_WITHOUT = shutil.ignore_patterns(
    "test", "tests", "idlelib", "lib2to3", "ensurepip", "distutils", "pydoc_data", "tkinter",
    "turtledemo", "config-3*", "sitecustomize.py", "EXTERNALLY-MANAGED", "venv", "unittest", "xmlrpc",
)  # fmt: skip
FOLDERS = ["dev", "etc", "proc", "sys", "tmp", "run", "root", "pm", "usr/bin", "usr/sbin", "usr/lib", "var"]
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/hostname": "rowan-vm\n",
    "etc/inittab": "::sysinit:/rowan/test/vm/inside/setup\n::respawn:/rowan/test/vm/inside/agent\n"
    "::ctrlaltdel:/usr/bin/poweroff -f\n",
}
DEBIAN_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
SPARE_BYTES = 24 << 20


@contextlib.contextmanager
def locked(place):
    """One maker at a time."""
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "lock"), "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def find_program(name):
    path = shutil.which(name, path=DEBIAN_PATH)  # not a shim of python3, for one
    if not path:
        raise Unavailable(f"the program {name} is not there: tools/install-deps vm")
    return path


def is_program(path):
    try:
        with open(path, "rb") as file:
            return os.access(path, os.X_OK) and file.read(4) == b"\x7fELF"
    except OSError:
        return False


def programs_of(build):
    """Executables of a build, as paths below it."""
    found = []
    for folder, folders, names in os.walk(build):
        folders[:] = [name for name in folders if not name.endswith(".p") and not name.startswith("meson-")]
        found += [os.path.join(folder, name) for name in names if ".so" not in name]
    return sorted(os.path.relpath(path, build) for path in found if is_program(path))


def libraries_of(paths):
    """The shared libraries that these programs and libraries load, by ldd."""
    done = subprocess.run(["ldd", *paths], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    missing = re.findall(r"^\s+(\S+) => not found", done.stdout, re.MULTILINE)
    if missing:
        raise Unavailable(f"the library {missing[0]} is not there: tools/install-deps vm")
    return sorted(set(re.findall(r"(?:=>|^)\s+(/\S+) \(0x", done.stdout, re.MULTILINE)))


class Content:
    """{place inside: file here}; copied when the disk is made."""

    def __init__(self, linux, build, more, folders):
        self.files = {}
        self.linux = linux
        self.names = []  # of modules
        self.add_programs(build, more)
        self.add_tree()
        self.add_python()
        self.add_verbs()
        self.add_modules()
        for folder in folders:
            self.add_folder(folder, folder, shutil.ignore_patterns("__pycache__"))
        elf = [path for path in self.files.values() if is_program(path) or ".so" in os.path.basename(path)]
        for path in map(os.path.normpath, libraries_of(elf)):
            # The build's own is found by its place beside the programs (RUNPATH).
            of_build = os.path.relpath(path, build)
            inside = usr_merged(path) if of_build.startswith("..") else os.path.join(BUILD, of_build)
            self.files.setdefault(inside, path)

    def add_programs(self, build, more):
        self.files["/usr/bin/busybox"] = find_program("busybox")
        self.files["/etc/mke2fs.conf"] = "/etc/mke2fs.conf"
        for name in PROGRAMS:
            path = find_program(name)
            self.files[usr_merged(path)] = os.path.realpath(path)
        for name in [*OPTIONAL, *more]:
            path = shutil.which(name, path=DEBIAN_PATH)
            if not path and name in more:
                raise Unavailable(f"the program {name} is not there")
            if path:
                self.files[usr_merged(os.path.abspath(path))] = os.path.realpath(path)
        programs = programs_of(build)
        if not programs:
            raise Unavailable(f"{build} holds no programs; build first")
        if os.path.exists(os.path.join(build, PRELOADED)):
            programs.append(PRELOADED)
        for path in programs:
            self.files[os.path.join(BUILD, path)] = os.path.join(build, path)

    def add_folder(self, inside, folder, ignore=None):
        for place, folders, names in os.walk(folder):
            ignored = ignore(place, folders + names) if ignore else set()
            folders[:] = [name for name in folders if name not in ignored]
            for name in names:
                path = os.path.join(place, name)
                if name not in ignored and os.path.isfile(path):
                    self.files[os.path.join(inside, os.path.relpath(path, folder))] = path

    def add_tree(self):
        for folder in TREE:
            self.add_folder(os.path.join(SOURCE, folder), os.path.join(TOP, folder),
                            shutil.ignore_patterns("__pycache__"))  # fmt: skip

    def add_python(self):
        real = os.path.realpath(find_program("python3"))
        folder = os.path.join("/usr/lib", os.path.basename(real))
        if not os.path.isdir(folder):
            raise Unavailable(f"{real} has no library in {folder}: only Debian's own python3 is known here")
        self.add_folder(folder, folder, PYTHON_WITHOUT)

    def add_verbs(self):
        """libibverbs loads the provider of each file in its folder, and complains of those not there."""
        drivers = glob.glob("/usr/lib/*/libibverbs/librxe-rdmav*.so")
        if not drivers:
            raise Unavailable("SoftRoCE's library is not there: tools/install-deps vm")
        self.files["/etc/libibverbs.d/rxe.driver"] = "/etc/libibverbs.d/rxe.driver"
        for path in drivers:
            self.files[path] = os.path.realpath(path)

    def add_modules(self):
        self.names = self.linux.files_of(kernel.DISK + kernel.EXTRA + kernel.LATER)
        for name in self.names:
            self.files[os.path.join("/lib/modules", name)] = os.path.join(self.linux.modules, name)

    def fingerprint(self):
        """Of all files on the disk: changes when the disk must be made again."""
        digest = hashlib.sha256(json.dumps([FILES, FOLDERS, self.names]).encode())
        for inside, path in sorted(self.files.items()):
            about = os.stat(path)
            digest.update(f"{inside} {path} {about.st_size} {about.st_mtime_ns}\n".encode())
        with open(__file__, "rb") as file:
            digest.update(file.read())
        return digest.hexdigest()

    def stage(self, folder):
        for name in FOLDERS:
            os.makedirs(os.path.join(folder, name))
        for name in ("bin", "sbin", "lib", "lib64"):
            os.makedirs(os.path.join(folder, "usr", name), exist_ok=True)
            os.symlink("usr/" + name, os.path.join(folder, name))
        for inside, path in self.files.items():
            target = folder + inside
            os.makedirs(os.path.dirname(os.path.realpath(target)), exist_ok=True)
            shutil.copy2(path, target)
        for name, text in FILES.items():
            write(os.path.join(folder, name), text)
        os.symlink("/proc/mounts", os.path.join(folder, "etc/mtab"))
        os.symlink("dash", os.path.join(folder, "usr/bin/sh"))
        later = [name for name in self.names if name not in self.linux.files_of(kernel.DISK)]
        write(os.path.join(folder, "etc/modules"), "\n".join(later) + "\n")
        for applet in kernel.command(["busybox", "--list"]).split():
            path = os.path.join(folder, "usr/bin", applet)
            if not any(os.path.lexists(os.path.join(folder, "usr", place, applet)) for place in ("bin", "sbin")):
                os.symlink("busybox", path)


def usr_merged(path):
    """Debian's /bin, /sbin and /lib are links into /usr."""
    return re.sub(r"^/(bin|sbin|lib|lib64)/", r"/usr/\1/", path)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def make_disk(linux, build, more, folders, place):
    """The path of the disk for this build; made where what goes in has changed."""
    content = Content(linux, build, more, folders)
    name = re.sub(r"[^\w-]", "-", os.path.relpath(build, TOP)) + ("-more" if folders else "")
    path, mark = os.path.join(place, name + ".img"), os.path.join(place, name + ".made")
    wanted = content.fingerprint()
    if os.path.exists(path) and os.path.exists(mark):
        with open(mark, encoding="ascii") as file:
            if file.read() == wanted:
                return path
    folder = tempfile.mkdtemp(prefix="stage-", dir=place)
    try:
        content.stage(folder)
        size = sum(entry_bytes(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)
        new = path + ".new"
        if os.path.exists(new):
            os.unlink(new)
        kernel.command([find_program("mke2fs"), "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0",
                        "-E", "root_owner=0:0", "-d", folder, new, f"{(size + SPARE_BYTES) >> 10}k"])  # fmt: skip
        os.rename(new, path)  # a machine that runs keeps the one that it has open
        write(mark, wanted)
    finally:
        shutil.rmtree(folder)
    return path


def entry_bytes(path):
    about = os.lstat(path)
    return 4096 + (about.st_size + 4095) // 4096 * 4096 if stat.S_ISREG(about.st_mode) else 4096


def make_initial(linux, place):
    """The initial file system, as the kernel wants it: cpio, compressed."""
    path = os.path.join(place, f"initial-{linux.version}.gz")
    sources = [find_program("busybox"), os.path.join(HERE, "inside", "init"), __file__, kernel.__file__]
    if os.path.exists(path) and os.path.getmtime(path) > max(map(os.path.getmtime, sources)):
        return path
    folder = tempfile.mkdtemp(prefix="initial-", dir=place)
    try:
        for name in ("bin", "modules", "root"):
            os.makedirs(os.path.join(folder, name))
        shutil.copy2(sources[0], os.path.join(folder, "bin", "busybox"))
        shutil.copy2(sources[1], os.path.join(folder, "init"))
        for number, name in enumerate(linux.files_of(kernel.DISK)):
            shutil.copy2(os.path.join(linux.modules, name),
                         os.path.join(folder, "modules", f"{number:02}-{os.path.basename(name)}"))  # fmt: skip
        names = "\n".join(sorted(os.path.relpath(os.path.join(at, name), folder)
                          for at, folders, files in os.walk(folder) for name in folders + files))  # fmt: skip
        done = subprocess.run([find_program("cpio"), "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=folder,
                              input=names.encode(), capture_output=True)  # fmt: skip
        if done.returncode != 0:
            raise Unavailable(f"cpio failed: {done.stderr.decode(errors='replace').strip()}")
        with gzip.open(path + ".new", "wb", compresslevel=1) as file:
            file.write(done.stdout)
        os.rename(path + ".new", path)
    finally:
        shutil.rmtree(folder)
    return path


class Image:
    """All that a machine boots from. `build`: the folder of the programs; `more` and `folders`: programs and folders of
    this host that are wanted inside too."""

    def __init__(self, build, more=(), folders=()):
        place = os.path.join(TOP, "build", "vm")
        with locked(place):
            linux = kernel.fetch(place)
            self.kernel = linux.image
            self.version = linux.version
            self.initial = make_initial(linux, place)
            self.disk = make_disk(linux, os.path.abspath(build), tuple(more), tuple(folders), place)
        self.place = place
