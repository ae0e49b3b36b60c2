"""A cluster that requires logins, and who is a guest there."""

import os
import re
import time

from harness import Cluster, scratch, tap

import wire

SMALL = ("--pm-bytes", "96M", "--landing-segments", "4", "--lease-ms", "2000")


def make_key(name, mode=0o600):
    path = os.path.join(scratch(), name)
    with open(path, "wb") as file:
        file.write(os.urandom(24).hex().encode() + b"\n")
    os.chmod(path, mode)
    return path


class Guarded(Cluster):
    """A cluster with a key that requires logins. Users: ann admin, wim write under w/, ria read."""

    user = None  # who uses it where nobody else is named, since logins are required

    def __init__(self, name, *options):
        directory = os.path.join(scratch(), name)
        os.makedirs(directory)
        os.rename(make_key("cluster-key"), os.path.join(directory, "cluster-key"))
        self.required = False
        super().__init__(name, *SMALL, *options)
        for user, role, *prefix in ("ann", "admin"), ("wim", "write", "w/"), ("ria", "read"):
            self.ok("user", "add", user, role, self.secret(user), *prefix)
        self.ok("login", "required")
        self.required = True
        tap.wait_until(lambda: self.logged("secrets_rotated"), 20, "the open cluster's secret counts on")
        self.is_adopted()

    def secret(self, user):
        return os.path.join(self.directory, user + ".secret")

    def login(self, user, secret=None):
        return "--user", user, "--secret-file", self.secret(secret or user)

    def rowan(self, *words, **more):
        return super().rowan(*(self.login(self.user) if self.user and self.required else ()), *words, **more)

    def by(self, user, *words):
        return self.rowan(*self.login(user), *words)

    def ok_by(self, user, *words):
        return self.ok(*self.login(user), *words)

    def counts(self, *names):
        rows = self.status(*self.login("ria"))["servers"]
        return [sum(row[name] for row in rows) for name in names or ("refused_logins", "refused_requests")]

    def is_adopted(self):
        """By all, the newest configuration is."""
        term = self.status(*self.login("ria"))["term"]
        for name in "s1", "s2", "s3":
            terms = lambda name=name: map(int, re.findall(r" configuration_adopted node=\S+ term=(\d+) ", self.log(name)))  # noqa: E731
            tap.wait_until(lambda terms=terms: max(terms()) >= term, 20, f"{name} does not adopt term {term}")

    def logged(self, *pieces):
        """Lines of the managers' logs."""
        lines = [line for name in self.processes() if name.startswith("cm") for line in self.log(name).splitlines()]
        return sum(all(piece in line for piece in pieces) for line in lines)


class Believer:
    """A server is believed when it says that it knows a later configuration (cm/state.c, S13): the manager says so, grants nothing any
    more, and is to be started again. Who mangles what servers say plays that server, too."""

    def __init__(self, cluster):
        self.cluster = cluster

    def believes(self):
        """Each start of a process begins its log anew."""
        return " configuration_is_old " in self.cluster.log("cm")

    def start_again(self):
        if self.believes():
            self.cluster.kill(["cm"])
            self.cluster.launch("cm")
            self.cluster.status_done()

    def lease_ends(self):
        """By the test's clock."""
        self.start_again()
        done = self.cluster.rowan("--json", "status")
        left = [row["lease_left_ms"] / 1000 for row in done.json()["servers"]] if done.code == 0 else [0]
        return all(left) and [time.monotonic() + one for one in left]

    def wait_until_renewed(self):
        """What the manager had heard by now, it has acted on."""
        before = tap.wait_until(self.lease_ends, 60, "all servers have leases")
        later = lambda now: now and all(one > then + 0.2 for one, then in zip(now, before))  # noqa: E731
        tap.wait_until(lambda: later(self.lease_ends()), 60, "each server's lease is renewed")


class Used(Guarded):
    """ann uses it, and so do the clients that tests start (test/lib/log_in.h)."""

    user = "ann"

    def __init__(self, name, *options):
        super().__init__(name, *options)
        os.environ["ROWAN_TEST_USER"], os.environ["ROWAN_TEST_SECRET_FILE"] = self.user, self.secret(self.user)

    def client(self, words):
        """The command that runs a client's command."""
        return [words[0], *self.login(self.user), *words[1:]] if words[0].endswith("rowan-ycsb") else words


# --- who comes from elsewhere ---

HOME = 0x0100007F  # 127.0.0.1 as /proc/net/tcp writes it
TIME_WAIT = "06"


def elsewhere(dice):
    """An address of this host that only guests have: ports that wait after a connection do not run out, and each can be told."""
    return f"127.{dice.randrange(1, 255)}.{dice.randrange(256)}.{dice.randrange(1, 255)}"


def guests_left(ports):
    """How many sockets at these ports have one of those at their other end."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        next(file)
        rows = [line.split() for line in file]
    ends = [int(row[2].partition(":")[0], 16) for row in rows if row[3] != TIME_WAIT and int(row[1].partition(":")[2], 16) in ports]
    return sum(end & 0xFF == 127 and end != HOME for end in ends)


def wait_until_they_are_gone(ports, seconds=60):
    tap.wait_until(lambda: guests_left(ports) == 0, seconds, lambda: f"{guests_left(ports)} guests are left")


def doors(cluster):
    """(host, port) of every endpoint: of each server its workers and its control role, and the managers'."""
    found = [wire.host_and_port(one.address) for name, one in cluster.processes().items() if name.startswith("cm")]
    for server in cluster.status()["servers"]:
        found += [wire.host_and_port(server["address"], index) for index in range(server["workers"] + 1)]
    return found


def all_run(cluster, but=None):
    cluster.no_sanitizer_reports()
    for name, one in cluster.processes().items():
        if name != but:
            tap.equal(one.state(), "running", name, cluster.log(name)[-3000:])


def none_complains(cluster):
    for name, text in cluster.logs().items():
        tap.equal(re.findall(r"^\S+ error .*", text, re.MULTILINE), [], name)
