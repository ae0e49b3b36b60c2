"""Hosts with systemd for a test: systemd-nspawn containers, each with a root of its own (in memory, over a base that is made once for a
build directory), a cgroup and a network namespace, joined by a bridge.

They are made inside namespaces of the test's own (mounts, network, processes): when its first process ends, in whatever way, the
kernel ends them and takes mounts and links away. Only their cgroups stay, and are removed by enter(). Nothing is asked of the host's
service manager.
"""

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.append(os.path.join(TOP, "test", "lib"))

import machine  # noqa: E402
import tap  # noqa: E402
from packages import Unavailable, command  # noqa: E402

# What a Debian host has that ansible is to reach.
HOST = ("systemd", "systemd-sysv", "dbus", "python3", "python3-apt", "openssh-server", "iproute2")
NEEDED = {"ansible-playbook": "ansible-core", "debootstrap": "debootstrap", "ip": "iproute2", "ssh": "openssh-client",
          "systemd-nspawn": "systemd-container", "unshare": "util-linux"}  # fmt: skip
GROUPS = "/sys/fs/cgroup"
GROUP = "ROWAN_TEST_GROUP"  # inside: the name of the test's cgroup
UNSHARE = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
BOOT_SECONDS = 120


def why_not():
    """Why there are no such hosts here; None if there can be."""
    if os.geteuid() != 0:
        return "only root can make hosts with systemd"
    missing = sorted(package for program, package in NEEDED.items() if not shutil.which(program))
    if missing:
        return f"not installed: {', '.join(missing)} (tools/install-deps deploy)"
    done = subprocess.run([*UNSHARE, "mount", "-t", "cgroup2", "cgroup2", GROUPS], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)  # fmt: skip
    return f"no namespaces or cgroups can be made here: {done.stderr.strip()}" if done.returncode else None


def is_inside():
    return GROUP in os.environ


def enter(**known):
    """Runs this program again inside namespaces of its own. `known`: for its environment. Returns its exit code;
    nothing of it is left then."""
    name = f"rowan-deploy-{os.getpid()}"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(prefix="t", dir=scratch())
    environment = {**os.environ, **known, GROUP: name, "ROWAN_TEST_SCRATCH": folder}
    child = subprocess.Popen([*UNSHARE, "--propagation", "private", sys.executable, *sys.argv], env=environment)
    try:
        return child.wait()
    finally:
        child.kill()  # and with it, by --kill-child, all that runs in there
        child.wait()
        shutil.rmtree(folder)
        remove = 'mount -t cgroup2 cgroup2 "$1" && cd "$1" && [ ! -d "$2" ] || find "$2" -depth -type d -exec rmdir {} +'
        words = ["unshare", "--mount", "sh", "-c", remove, "sh", GROUPS, name]
        tap.wait_until(lambda: subprocess.run(words, capture_output=True).returncode == 0, 20, f"{name}: the cgroup can be removed")


# --- the base ---


def base(names):
    """The root directory of a Debian host with these packages, and without places to get others from."""
    names = sorted({*HOST, *names})
    with machine.alone("host-" + hashlib.sha256(" ".join(names).encode()).hexdigest()[:12]) as made:
        if not os.path.isdir(made):
            shutil.rmtree(made + ".new", ignore_errors=True)
            new = machine.Root(made + ".new")
            try:
                new.install(*names)
                command(new.words("systemctl", "enable", "systemd-networkd", "ssh"))
            finally:
                new.end()
            for name in ("etc/apt/sources.list", "etc/machine-id", "etc/resolv.conf"):
                with open(new.path(name), "w", encoding="utf-8"):
                    pass
            os.rename(new.folder, made)
    return made


# --- hosts ---


class Hosts:
    """Inside enter(). `root`: of the base. The test's own address on the bridge is 10.78.0.254."""

    def __init__(self, root):
        self.base = root
        self.folder = scratch()
        command(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", self.folder])
        command(["mount", "-t", "cgroup2", "cgroup2", GROUPS])
        self.group = os.path.join(GROUPS, os.environ[GROUP])
        os.mkdir(self.group)
        for words in (("link", "set", "lo", "up"), ("link", "add", "br0", "type", "bridge"),
                      ("addr", "add", "10.78.0.254/24", "dev", "br0"), ("link", "set", "br0", "up")):  # fmt: skip
            command(["ip", *words])
        self.key = os.path.join(self.folder, "key")
        command(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key])
        self.all = {}

    def boot(self, name, number):
        self.all[name] = Host(self, name, f"10.78.0.{number}")
        return self.all[name]

    def ssh(self):
        """Options for a connection to any of them."""
        return ["-i", self.key, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
                "-o", "ControlMaster=auto", "-o", "ControlPersist=600", "-o", f"ControlPath={self.folder}/%h"]  # fmt: skip

    def end(self):
        """The rest goes with this process."""
        for one in self.all.values():
            one.child.kill()
        for one in self.all.values():
            one.child.wait()


class Host:
    """Boots; await_boot() waits for it."""

    def __init__(self, hosts, name, address):
        self.hosts, self.name, self.address = hosts, name, address
        place = os.path.join(hosts.folder, name)
        self.root = os.path.join(place, "root")
        for part in ("root", "upper", "work"):
            os.makedirs(os.path.join(place, part))
        command(["mount", "-t", "overlay", "-o", f"lowerdir={hosts.base},upperdir={place}/upper,workdir={place}/work", "overlay",
                 self.root])  # fmt: skip
        self.write("etc/hostname", name + "\n")
        self.write("etc/systemd/network/10-host0.network", f"[Match]\nName=host0\n[Network]\nAddress={address}/24\n")
        with open(hosts.key + ".pub", encoding="utf-8") as file:
            self.write("root/.ssh/authorized_keys", file.read())
        group = os.path.join(hosts.group, name)
        os.mkdir(group)
        self.console = os.path.join(hosts.folder, name + ".console")
        with open(self.console, "wb") as console:
            self.child = subprocess.Popen(
                ["sh", "-c", 'echo $$ >"$1"/cgroup.procs && shift && exec "$@"', "sh", group,
                 "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--directory", self.root, "--machine", name,
                 "--network-veth", "--network-bridge=br0", "--link-journal=no", "--resolv-conf=off", "--timezone=off"],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console,
            )  # fmt: skip

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def await_boot(self):
        def answers():
            tap.equal(self.child.poll(), None, f"{self.name} has ended:", self.said())
            try:
                socket.create_connection((self.address, 22), timeout=1).close()
                return True
            except OSError:
                return False

        tap.wait_until(answers, BOOT_SECONDS, lambda: f"{self.name} does not boot: {self.said()}")

    def said(self):
        with open(self.console, encoding="utf-8", errors="replace") as file:
            return file.read()[-3000:]

    def words(self, *words):
        """The command that runs these words in it, by its shell."""
        return ["ssh", *self.hosts.ssh(), f"root@{self.address}", *words]


def scratch():
    place = os.environ.get("ROWAN_TEST_SCRATCH") or os.path.join(TOP, "build")
    os.makedirs(place, exist_ok=True)
    return place
