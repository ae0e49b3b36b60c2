#!/usr/bin/python3
"""Two versions in one cluster amid a load: that of the part before, whose last commit ../before names, and this one. Servers go
from one to the other and back, one at a time on the files they have, under a manager of either; clients are of both. No client
sees an error, every acknowledged write is there, every key was one register, the replicas are equal.

ROWAN_MIXED: seconds for which two versions of servers are together; ROWAN_SEED: runs a failed one again."""

import os
import shutil
import signal
import sys
import time

from failing import Failing
from harness import BIN, SOURCE, Cluster, expect, program, rowan_local, run, scratch, tap
from local import members, process
from work import Load

MIXED_SECONDS = int(os.environ.get("ROWAN_MIXED") or 60)
MIXES = 4  # each way, under each of two managers
SERVERS = ("s1", "s2", "s3")
RECORDS = 5_000
RATE = ("--rate", "1000")  # all that works here shares the processors
NOW, BEFORE = VERSIONS = ("now", "before")
PROGRAMS = {"rowan-server": "server", "rowan-cm": "cm", "rowan": "tools", "rowan-ycsb": "tools", "cluster_history": "test/cluster"}

with open(os.path.join(SOURCE, "test", "before"), encoding="ascii") as _file:
    COMMIT = _file.read().strip()
PLACE = os.path.join(BIN, f"before-{COMMIT[:12]}")  # its source and its build


def do(*words):
    done = run([str(word) for word in words], seconds=900)
    tap.equal(done.code, 0, *words, done.both[-3000:])


def build_before():
    """The part before, out of the repository's history; what was built once is kept."""
    found = run(["git", "-C", SOURCE, "cat-file", "-e", COMMIT + "^{commit}"])
    if found.code != 0:
        tap.skip(f"the history here lacks commit {COMMIT}, the part before (git fetch --unshallow brings it): {found.err.strip()}")
    source, build = os.path.join(PLACE, "source"), os.path.join(PLACE, "build")
    if not os.path.exists(os.path.join(build, "build.ninja")):
        shutil.rmtree(PLACE, ignore_errors=True)
        os.makedirs(source)
        do("git", "-C", SOURCE, "archive", "--output", source + ".tar", COMMIT)
        do("tar", "xf", source + ".tar", "-C", source)
        do("meson", "setup", build, source, "-Doptimization=1", "-Ddebug=false", "-Dwerror=false", "-Dbench=false")
    do("ninja", "-C", build, *(os.path.join(module, name) for name, module in PROGRAMS.items()))


def of(version, name):
    """The path of that version's program."""
    return program(name) if version == NOW else os.path.join(PLACE, "build", PROGRAMS[name], name)


def as_of(version):
    """The command that runs that version's program instead."""
    return lambda words: [of(version, os.path.basename(words[0])), *words[1:]]


def local_before(*words):
    return run(["env", f"ROWAN_BIN={PLACE}/build", f"{PLACE}/source/tools/rowan-local", *words], seconds=200)


class Mixed(Failing):
    """Begun by the programs of the part before."""

    def __init__(self, name, *options):
        build_before()
        self.loads = []
        super().__init__(name, *options, records=RECORDS, wraps=[as_of(version) for version in VERSIONS], load=("--depth", "16", *RATE))
        # New clients all the time, beside those that stay. They say so at once if there is no manager just then.
        self.loads = [Load(self, RECORDS, timeout_ms=60000, wrap=as_of(version), may_not_start=True, more=(*RATE, "--acked", self.acked_by(version)))
                      for version in VERSIONS]  # fmt: skip

    def acked_by(self, version):
        return f"{self.directory}-{version}.acked"

    def start(self):
        return local_before("start", "--dir", self.directory, *self.options)

    def judge_work(self):
        for load in self.loads:
            load.finish()
        super().judge_work()
        for version in VERSIONS:
            for words in (("check", self.acked_by(NOW)), ("check", self.acked_by(BEFORE))):
                do(of(version, "rowan-ycsb"), "--dir", self.directory, *words)
            do(of(version, "rowan"), "--dir", self.directory, "verify")
        print("#", *(f"{load.operations} operations of clients of {version};" for load, version in zip(self.loads, VERSIONS)), flush=True)

    def drop_work(self):
        for load in self.loads:
            load.kill()
        super().drop_work()

    def goes_on(self, what, every=True):
        for load in self.loads:
            tap.check(not load.failure, what, load.failure)
        super().goes_on(what, every)

    def versions(self, *names):
        """Of the processes that run, by what they are."""
        running = self.processes()
        paths = {name: os.readlink(f"/proc/{running[name].pid}/exe") for name in names}
        return {name: BEFORE if path.startswith(PLACE) else NOW for name, path in paths.items()}

    def exchange(self, name, version):
        """It is asked to stop, and the other version's program has its options and files from then on."""
        one = self.processes()[name]
        was = self.versions("cm", name)
        handle = process.Handle(one)
        handle.send(signal.SIGTERM)
        tap.check(handle.ended(60), name, "does not end:", self.last_logs())
        handle.close()
        if name != "cm" and was[name] == NOW:
            tap.contains(self.log(name), " stopping ")
            tap.contains(self.log("cm"), f"{name[1:]}(leaves)")
        one.command[0] = of(version, os.path.basename(one.command[0]))
        members.launch(self.directory, one)
        awaited = " leads=yes" if name == "cm" else " configuration_adopted "
        tap.wait_until(lambda: awaited in self.log(name), 60, lambda: f"{name} of {version} is not back: {self.last_logs()}")
        self.wait_until_whole()
        tap.equal(self.versions(name), {name: version})
        self.goes_on(f"{name} is of {version}")

    def asked_by_both(self):
        """What people do by hand."""
        for version, other in (VERSIONS, VERSIONS[::-1]):
            rowan = of(version, "rowan"), "--dir", self.directory
            for words in (("status",), ("shards",), ("put", "by-hand", version)):
                do(*rowan, *words)
            done = run([of(other, "rowan"), "--dir", self.directory, "get", "by-hand"])
            tap.equal((done.code, done.out.strip()), (0, version), done.both)

    def tells_what_servers_do_not_know(self):
        """Which operations were slow, and where a key lies, servers of the part before cannot say."""
        for words in ("slow",), ("trace", "by-hand"):
            expect(self.rowan(*words), 1, "it is of an earlier version, which does not know the question")

    def roll(self, version, with_one_killed=False):
        """One server after the other becomes of that version. Two versions are together from the first on, up to the last."""
        first, second, last = self.dice.sample(SERVERS, len(SERVERS))
        self.exchange(first, version)
        began = time.monotonic()
        self.asked_by_both()
        self.exchange(second, version)
        self.asked_by_both()
        tap.equal(self.versions(*SERVERS), {first: version, second: version, last: other(version)})
        self.tells_what_servers_do_not_know()
        if with_one_killed:
            self.kill_a_primary()
        tap.wait_until(lambda: time.monotonic() - began >= MIXED_SECONDS / MIXES, MIXED_SECONDS + 60, "time goes by")
        self.goes_on("two versions were together")
        print(f"# servers become of {version}, the manager is of {self.versions('cm')['cm']}: {time.monotonic() - began:.0f} s together", flush=True)
        self.exchange(last, version)


def other(version):
    return BEFORE if version == NOW else NOW


@tap.case
def servers_are_upgraded_and_put_back_under_a_manager_of_the_part_before():
    with Mixed("before", "--fabric", "tcp") as cluster:
        cluster.roll(NOW, with_one_killed=True)
        cluster.roll(BEFORE)
        tap.equal(set(cluster.versions("cm", *SERVERS).values()), {BEFORE})


@tap.case
def servers_are_upgraded_and_put_back_under_a_manager_of_now():
    with Mixed("now", "--fabric", "shm") as cluster:
        cluster.exchange("cm", NOW)
        cluster.roll(NOW)
        cluster.roll(BEFORE, with_one_killed=True)
        cluster.exchange("cm", BEFORE)
        tap.equal(set(cluster.versions("cm", *SERVERS).values()), {BEFORE})


class Begun(Cluster):
    """By the programs of the part before."""

    def start(self):
        return local_before("start", "--dir", self.directory, *self.options)


@tap.case
def a_cluster_that_was_stopped_starts_again_as_the_other_version():
    build_before()
    cluster = Begun("again", "--lease-ms", "500", "--pm-bytes", "256M", "--landing-segments", "4")
    acked = cluster.directory + ".acked"

    def work(version, *words):
        do(of(version, "rowan-ycsb"), "--dir", cluster.directory, "--records", RECORDS, "--acked", acked, "--workload", *words)

    work(BEFORE, "load")
    for version, start in ((NOW, rowan_local), (BEFORE, local_before)):
        cluster.stop()
        done = start("start", "--dir", cluster.directory)
        tap.equal(done.code, 0, version, done.both, cluster.last_logs())
        do(of(version, "rowan-ycsb"), "--dir", cluster.directory, "check", acked)
        work(NOW, "a", "--operations", "5000")
        work(BEFORE, "a", "--operations", "5000", "--seed", "2")
        do(of(NOW, "rowan-ycsb"), "--dir", cluster.directory, "check", acked)
        do(of(NOW, "rowan"), "--dir", cluster.directory, "verify")
    cluster.stop()


class Guarded(Begun):
    """With a key, and logins required."""

    def __init__(self, name):
        key = os.path.join(scratch(), name, "cluster-key")
        os.makedirs(os.path.dirname(key))
        with open(key, "w", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write("a key of the test\n")
        super().__init__(name, "--fabric", "tcp", "--lease-ms", "2000", "--pm-bytes", "256M", "--landing-segments", "4")
        secret = os.path.join(self.directory, "ann.secret")
        self.login = "--user", "ann", "--secret-file", secret
        self.by(BEFORE, "user", "add", "ann", "admin", secret)
        secret = os.path.join(self.directory, "ria.secret")
        self.reader = "--user", "ria", "--secret-file", secret
        self.by(BEFORE, *self.login, "user", "add", "ria", "read", secret)
        self.by(BEFORE, *self.login, "put", "key", "value")
        self.by(BEFORE, *self.login, "login", "required")

    def by(self, version, *words):
        do(of(version, "rowan"), "--dir", self.directory, *words)

    def read(self):
        """By a user who may not write: managers of before give him client ids."""
        for version in VERSIONS:
            self.by(version, *self.reader, "get", "key")
            expect(run([of(version, "rowan"), "--dir", self.directory, *self.reader, "put", "key", "x"]), 1, "the user may not do this")

    def become(self, name, version):
        """As Mixed.exchange; whole again, says a tool of either."""
        one = self.processes()[name]
        handle = process.Handle(one)
        handle.send(signal.SIGTERM)
        tap.check(handle.ended(60), name, "does not end:", self.last_logs())
        handle.close()
        one.command[0] = of(version, os.path.basename(one.command[0]))
        members.launch(self.directory, one)
        for each in VERSIONS:
            words = of(each, "rowan"), "--dir", self.directory, *self.login, "--wait", "shards"
            tap.wait_until(lambda words=words: run(words).code == 0, 90, lambda: f"not whole: {self.last_logs()}")


@tap.case
def servers_and_managers_are_upgraded_where_logins_are_required():
    build_before()
    cluster = Guarded("guarded")
    do(of(BEFORE, "rowan-ycsb"), "--dir", cluster.directory, *cluster.login, "--records", RECORDS, "--workload", "load")
    loads = [Load(cluster, RECORDS, timeout_ms=60000, wrap=as_of(version), may_not_start=True, more=(*cluster.login, *RATE)) for version in VERSIONS]
    try:
        for name in "s2", "cm", "s1", "s3":
            cluster.read()
            cluster.become(name, NOW)
            tap.check(not any(load.failure for load in loads), name, *(load.failure for load in loads))
            rotated = run((of(NOW, "rowan"), "--dir", cluster.directory, *cluster.login, "login", "rotate"))
            tap.equal(rotated.code, int(name != "s3"), name, rotated.both)
        cluster.read()
        for load in loads:
            load.finish()
    finally:
        for load in loads:
            load.kill()
    lines = [line for text in cluster.logs().values() for line in text.splitlines()]
    tap.equal([line for line in lines if " peer_refused " in line or (" login_refused " in line and "ROWAN_EAGAIN" not in line)], [])
    for version in VERSIONS:
        cluster.by(version, *cluster.login, "verify")
    cluster.stop()


sys.exit(tap.main())
