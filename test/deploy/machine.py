"""Debian machines for the tests of this folder: a fresh base system, made once by debootstrap; roots that are copies of it,
each in namespaces of its own; and the packages of this tree, built once for each state of it. All lies in build/deploy."""

import contextlib
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
FOLDER = os.path.join(TOP, "build", "deploy")
sys.path.insert(0, os.path.join(TOP, "test", "lib"))

import packages as distribution  # noqa: E402
from packages import Unavailable, command  # noqa: E402

ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
               "DEBIAN_FRONTEND=noninteractive")  # fmt: skip
# What of this host's ways to a mirror apt has to know inside too: proxies, and what a mirror of an old day asks for.
WAYS = re.compile(r"^Acquire::(https?::|Check-|Retries|Languages)")


@contextlib.contextmanager
def alone(name):
    """One process at a time makes what is called so."""
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, name + ".lock"), "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield os.path.join(FOLDER, name)


# --- the base ---


def release():
    """The codename of this host's Debian: its packages and those built here fit it."""
    with open("/etc/os-release", encoding="utf-8") as file:
        told = dict(re.findall(r'^(\w+)="?(.*?)"?$', file.read(), re.M))
    if told.get("ID") != "debian":
        raise Unavailable("this host is no Debian; the packages are for Debian")
    return told["VERSION_CODENAME"]


def sources(codename):
    """[(address, suite, component)] of Debian's own packages, as apt reads them in /etc/apt."""
    form = "$(CREATED_BY) $(ORIGIN) $(REPO_URI) $(CODENAME) $(COMPONENT)"

    def look():
        told = command(["apt-get", "indextargets", "--format", form])
        found = re.findall(rf"^Packages Debian (\S+) ({codename}\S*) (\S+)$", told, re.M)
        if not any(suite == codename for _, suite, _ in found):
            raise Unavailable(f"apt on this host has no list of packages of Debian {codename}")
        return found

    return distribution.with_lists(look)


def bootstrap(made):
    codename = release()
    lists = sources(codename)
    ways = command(["apt-config", "dump"]).splitlines()
    proxies = dict(re.findall(r'^Acquire::(https?)::Proxy "(.+)";$', "\n".join(ways), re.M))
    environment = {**os.environ, **{kind + "_proxy": proxy for kind, proxy in proxies.items()}}
    address = next(address for address, suite, _ in lists if suite == codename)
    try:
        command(["debootstrap", "--variant=minbase", codename, made, address], seconds=1200, env=environment)
    except Unavailable as reason:
        raise Unavailable(f"{reason}; its log: {made}/debootstrap/debootstrap.log") from None
    for name, lines in {
        "apt/sources.list": [f"deb {' '.join(one)}" for one in lists],
        "apt/apt.conf.d/host": [line for line in ways if WAYS.match(line)],
        "dpkg/dpkg.cfg.d/tests": ["force-unsafe-io"],
    }.items():
        with open(os.path.join(made, "etc", name), "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))


def base():
    """The folder of a fresh Debian: what debootstrap makes, apt's sources, no lists of packages. Not to be changed."""
    if os.geteuid() != 0:
        raise Unavailable("only root can make a Debian system with debootstrap")
    with alone("base") as made:
        if not os.path.isdir(made):
            new = made + ".new"
            shutil.rmtree(new, ignore_errors=True)
            bootstrap(new)
            os.rename(new, made)
    return made


# --- roots ---

# Process 1 of a root: makes the mounts, tells its number, and ends when the standard input does, and all others with it.
FIRST = """set -e
ip link set lo up
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount -t sysfs -o ro sysfs "$1/sys"
mount -t tmpfs tmpfs "$1/dev/shm"
read -r number rest </proc/self/stat
trap '' CHLD # nobody here waits for those that outlive their parents
echo "$number"
exec cat"""


class Done:
    """What became of a command: its exit code, and what it wrote."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err, self.both = code, out, err, out + err


def share(source, target):
    """Gives a folder the packages of another one: links, where one file system has both."""
    os.makedirs(target, exist_ok=True)
    for path in glob.glob(os.path.join(source, "*.deb")):
        new = os.path.join(target, os.path.basename(path))
        if not os.path.exists(new):
            command(["cp", "--link", path, new] if os.stat(source).st_dev == os.stat(target).st_dev else ["cp", path, new])


class Root:
    """A copy of the base that commands run in, with mounts, processes and a network of their own, until it is closed or this
    process ends. `folder`: where; it must not be there."""

    def __init__(self, folder):
        self.folder = folder
        command(["cp", "--archive", "--reflink=auto", base(), folder])
        with alone("archives") as fetched:  # by apt, for an earlier root
            share(fetched, self.path("/var/cache/apt/archives"))
        shutil.copyfile("/etc/resolv.conf", os.path.join(folder, "etc", "resolv.conf"))
        self.first = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child", "sh", "-c", FIRST, "sh", folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
        self.number = self.first.stdout.readline().strip()
        if not self.number:
            self.close()
            raise Unavailable("a root with namespaces of its own cannot be made here (the reason is on standard error)")

    def end(self):
        """Its processes and mounts are gone; the folder stays."""
        self.first.stdin.close()
        self.first.wait()
        with alone("archives") as fetched:
            share(self.path("/var/cache/apt/archives"), fetched)

    def close(self):
        self.end()
        shutil.rmtree(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name.lstrip("/"))

    def words(self, *command, online=False):
        """The command line on this host of a command inside. `online`: with this host's network."""
        spaces = ["--mount", "--pid", "--ipc"] + ([] if online else ["--net"])
        return ["nsenter", "--target", self.number, *spaces, "chroot", self.folder, "env", "-i", *ENVIRONMENT, *command]

    def run(self, *command, seconds=120, online=False, text=None):
        done = subprocess.run(self.words(*command, online=online), input=text, capture_output=True, text=True, timeout=seconds,
                              **({} if text is not None else {"stdin": subprocess.DEVNULL}))  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def install(self, *names):
        """Installs packages with apt: names, or files in the root. The first time it fetches apt's lists."""
        options = ["-q", "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root"]
        for words in ([] if glob.glob(self.path("var/lib/apt/lists/*Packages*")) else [["update"]]) + [
            ["install", "--yes", "--no-install-recommends", *names]
        ]:
            done = self.run("apt-get", *options, *words, seconds=900, online=True)
            if done.code != 0:
                kind = Unavailable if words == ["update"] or "Failed to fetch" in done.err else RuntimeError
                raise kind(f"apt-get {' '.join(words)} failed in a root: {done.both[-1500:]}")


# --- packages of this tree ---


def sources_of_tree():
    """Files of this tree, relative to it, without what is built."""
    for folder, folders, files in os.walk(TOP):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not (folder == TOP and name in ("build", ".git")))
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), TOP)
            if path != ".git":
                yield path


def copy_tree(target):
    for path in sources_of_tree():
        os.makedirs(os.path.dirname(os.path.join(target, path)), exist_ok=True)
        shutil.copy2(os.path.join(TOP, path), os.path.join(target, path))


def state():
    """A hash of what packages are made of."""
    total = hashlib.sha256()
    for path in sources_of_tree():
        if not path.startswith("test" + os.sep):
            with open(os.path.join(TOP, path), "rb") as file:
                total.update(path.encode() + b"\0" + hashlib.sha256(file.read()).digest())
    return total.hexdigest()


def are_kept(made):
    """Are the packages in this folder of the tree as it is?"""
    with contextlib.suppress(FileNotFoundError), open(os.path.join(made, "state"), encoding="ascii") as file:
        return file.read() == state()
    return False


def settle(made, built):
    shutil.rmtree(made, ignore_errors=True)
    with open(os.path.join(built, "state"), "w", encoding="ascii") as file:
        file.write(state())
    shutil.move(built, made)


def keep(built):
    """Takes a folder of packages of the tree as it is, for whoever needs them next."""
    with alone("packages") as made:
        if not are_kept(made):
            settle(made, built)


def packages():
    """The folder of this tree's packages. They are built by deploy/package, once for each state of the tree."""
    with alone("packages") as made:
        if not are_kept(made):
            new = made + ".new"
            shutil.rmtree(new, ignore_errors=True)
            done = subprocess.run([os.path.join(TOP, "deploy", "package"), new], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True)  # fmt: skip
            if done.returncode != 0:
                raise RuntimeError("deploy/package failed:\n" + done.stdout[-2000:] + done.stderr[-6000:])
            settle(made, new)
    return made
