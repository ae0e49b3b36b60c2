"""A cluster of real processes for a test, driven as a person drives it: rowan-local and rowan.

Set by meson: ROWAN_BIN (the build directory), ROWAN_SOURCE (the tree), ROWAN_TEST_DIVISOR (numbers
are divided by it in sanitized builds), ROWAN_TEST_FABRIC, ROWAN_TEST_SCRATCH (where clusters live; test/run-all looks
there for what an interrupted test left).
"""

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("ROWAN_SOURCE") or os.path.abspath(
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
)
BIN = os.path.abspath(os.environ.get("ROWAN_BIN") or os.path.join(SOURCE, "build", "gcc-plain"))
DIVISOR = int(os.environ.get("ROWAN_TEST_DIVISOR", "1"))
FABRIC = os.environ.get("ROWAN_TEST_FABRIC", "shm")  # of clusters whose test names none
for _place in ("test/lib", "tools"):
    sys.path.insert(0, os.path.join(SOURCE, _place))
sys.dont_write_bytecode = True

import tap  # noqa: E402
from local import members, process  # noqa: E402

SLOTS = 16384
SANITIZER_MARKS = ("ERROR: AddressSanitizer", "runtime error:", "WARNING: ThreadSanitizer",
                   "ERROR: LeakSanitizer", "assertion failed")  # fmt: skip


class Result:
    def __init__(self, done):
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr
        self.both = self.out + self.err

    def json(self):
        return json.loads(self.out)


def run(command, seconds=120, text=True, **more):
    """Runs a command to its end. Output as text, or as bytes with text=False. It runs in the scratch directory,
    so that what it makes beside itself is not in the tree."""
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("cwd", scratch())
    if "input" in more:
        del more["stdin"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=text, timeout=seconds, env=environment(), **more
        )
    except subprocess.TimeoutExpired as late:
        raise tap.Failed(f"not done after {seconds} s: {command}: {late.output} {late.stderr}")
    return Result(done)


def environment():
    return {**os.environ, "ROWAN_BIN": BIN, "PYTHONDONTWRITEBYTECODE": "1"}


def program(name):
    for module in ("tools", "server", "cm", "test/cluster", "test/bench"):
        path = os.path.join(BIN, module, name)
        if os.path.exists(path):
            return path
    raise tap.Failed(f"{name} is not built in {BIN}")


def sentences(text):
    """The lines that are for a person, not events of the log."""
    return [
        line
        for line in text.splitlines()
        if line.strip() and not re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z (error|warn|info|debug) ", line)
    ]


def expect(done, code, *pieces):
    """It ended with this exit code and one sentence for a person, that holds these pieces."""
    tap.equal(done.code, code, done.both[:1000])
    lines = sentences(done.err)
    tap.check(lines, "no sentence:", done.err[:2000])
    for piece in pieces:
        tap.contains("\n".join(lines).lower(), piece.lower())
    tap.check(len(lines) <= 3, "more than a sentence:", done.err[:2000])


def rowan_local(*arguments, **more):
    return run([os.path.join(SOURCE, "tools", "rowan-local"), *map(str, arguments)], **more)


# --- the scratch directory, and what must not outlive a test ---

_scratch = None
_directories = []  # of clusters


def scratch():
    """A new directory for this test file, inside the clone."""
    global _scratch
    if _scratch is None:
        place = os.environ.get("ROWAN_TEST_SCRATCH") or os.path.join(SOURCE, "build")
        os.makedirs(place, exist_ok=True)
        _scratch = tempfile.mkdtemp(prefix="t", dir=place)
        atexit.register(clean_up)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(1))
    return _scratch


def ends_with_us(directory):
    """A cluster there must not outlive the test."""
    _directories.append(directory)


def clean_up():
    """At once: meson gives half a second between SIGTERM and SIGKILL."""
    for directory in _directories:
        for one in process.load(directory):
            handle = process.Handle(one)
            handle.send(signal.SIGKILL)
            handle.ended(5)
    if _scratch and not os.environ.get("ROWAN_TEST_KEEP"):
        shutil.rmtree(_scratch, ignore_errors=True)


class Cluster:
    """A running cluster. stop() looks into its logs too: a sanitizer's report fails the test."""

    def __init__(self, name, *options):
        self.directory = os.path.join(scratch(), name)
        if "--fabric" not in options:
            options = ("--fabric", FABRIC, *options)
        if "--lease-ms" not in options:
            options = ("--lease-ms", "0", *options)  # a server that is killed is waited for
        self.options = options
        ends_with_us(self.directory)
        done = self.start()
        tap.equal(done.code, 0, "rowan-local start:", done.both)

    def start(self):
        return rowan_local("start", "--dir", self.directory, *self.options, seconds=200)

    def start_again(self):
        """On the data that is there, with the options it was made with."""
        done = self.start()
        tap.equal(done.code, 0, "rowan-local start on existing data:", done.both, self.last_logs())

    def last_logs(self):
        return "\n".join(f"--- {name}:\n{text[-1500:]}" for name, text in self.logs().items())

    def kill(self, names):
        """SIGKILL, in this order, each by its process; returns when all have ended."""
        handles = [process.Handle(self.processes()[name]) for name in names]
        for name, handle in zip(names, handles):
            tap.check(handle.fd >= 0, name, "is not running")
            handle.send(signal.SIGKILL)
        for name, handle in zip(names, handles):
            tap.check(handle.ended(20), name, "does not end")

    def launch(self, name):
        """The next process of one that was killed, with the same command."""
        members.launch(self.directory, self.processes()[name])

    def rowan(self, *words, **more):
        return run([program("rowan"), "--dir", self.directory, *words], **more)

    def ok(self, *words, **more):
        done = self.rowan(*words, **more)
        tap.equal(done.code, 0, f"rowan {' '.join(map(str, words))}:"[:200], done.both[:2000])
        return done

    def status_done(self, *words):
        """As soon as all answer and serve: on a machine that stood still for a moment a server may just have been replaced."""
        done = []
        told = lambda: done[-1].both[-2000:]  # noqa: E731
        tap.wait_until(lambda: done.append(self.rowan(*words, "status")) or done[-1].code == 0, 60, told)
        return done[-1]

    def status(self, *words):
        return self.status_done(*words, "--json").json()

    def ycsb(self, workload, records, *more, seconds=600, threads=2, depth=64):
        done = run(
            [program("rowan-ycsb"), "--dir", self.directory, "--workload", workload, "--profile",
             "zippydb", "--records", str(records), "--threads", str(threads), "--depth",
             str(depth), "--json", *map(str, more)],
            seconds=seconds,
        )  # fmt: skip
        tap.equal(done.code, 0, f"rowan-ycsb {workload}:", done.both[-2000:])
        found = done.json()
        tap.equal(found["errors"], 0, f"rowan-ycsb {workload}: errors")
        return found

    def processes(self):
        return {one.name: one for one in process.load(self.directory)}

    def signal(self, name, number):
        handle = process.Handle(self.processes()[name])
        tap.check(handle.fd >= 0, name, "is not running")
        handle.send(number)
        handle.close()

    def log(self, name):
        with open(os.path.join(self.directory, "log", name + ".log"), encoding="utf-8",
                  errors="replace") as file:  # fmt: skip
            return file.read()

    def logs(self):
        names = sorted(os.listdir(os.path.join(self.directory, "log")))
        return {name: self.log(name.removesuffix(".log")) for name in names}

    def shards(self):
        return self.ok("--json", "shards").json()["shards"]

    def shard_of(self, key):
        slot = slot_of_key(key)
        for shard in self.shards():
            if shard["first_slot"] <= slot <= shard["last_slot"]:
                return shard
        raise tap.Failed(f"no shard has slot {slot}")

    def stop(self):
        done = rowan_local("stop", "--dir", self.directory)
        tap.equal(done.code, 0, "rowan-local stop:", done.both)
        tap.check("was killed" not in done.err, done.err)
        self.no_sanitizer_reports()

    def no_sanitizer_reports(self):
        for name, text in self.logs().items():
            for mark in SANITIZER_MARKS:
                at = text.find(mark)
                tap.check(at < 0, f"{name}:", text[at : at + 3000])

    def remove(self):
        """Its files, when it was stopped: a test of many clusters would fill the disk."""
        if not os.environ.get("ROWAN_TEST_KEEP"):
            shutil.rmtree(self.directory)


def leader(cluster):
    """The CM that leads, by its name."""
    for name, one in cluster.processes().items():
        if name.startswith("cm") and one.alive() and cluster.log(name).rpartition(" leads=")[2].startswith("yes"):
            return name
    return None


def puts_again(cluster, value, seconds=60):
    """Each `rowan put` is a new client: a CM has to lead to give it an id."""
    tap.wait_until(lambda: cluster.rowan("put", "key", value).code == 0, seconds, "a CM leads")
    tap.equal(cluster.ok("get", "key").out.strip(), value)


def all_servers_hear(cluster):
    """A change of the configuration is carried to servers that have joined at who leads, and to them alone."""

    def all_know():
        status = cluster.rowan("--json", "status").json()
        return all(server.get("term") == status["term"] for server in status["servers"])

    tap.wait_until(all_know, 30, "every server has the newest configuration")


def processes_naming(directory):
    """Processes whose command line names the directory."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if any(directory.encode() in word for word in words):
            found.append((name, words[0]))
    return found


# --- slots, computed apart from the C code ---


def crc16(data):
    """CRC16/XMODEM: polynomial 0x1021, from 0."""
    value = 0
    for byte in data:
        value ^= byte << 8
        for _ in range(8):
            value = (value << 1 ^ 0x1021 if value & 0x8000 else value << 1) & 0xFFFF
    return value


def slot_of_key(key):
    """Redis Cluster specification, "Hash tags"."""
    key = key.encode() if isinstance(key, str) else key
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc16(key) % SLOTS
