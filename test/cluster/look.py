#!/usr/bin/python3
"""What a person looks at: `rowan top` while a server fails and comes back, `rowan slow`, and `rowan trace` of a key
before and after. ROWAN_RECORDING=FILE keeps the frames of the failover."""

import atexit
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time

from harness import Cluster, environment, expect, program, run, scratch, tap
from work import Load

SMALL = ("--pm-bytes", "192M", "--landing-segments", "4", "--lease-ms", "500", "--servers", "4")
RECORDS = 60000
SECONDS = 60
ROW = re.compile(r"^ *(\d+)  (\S+(?: \S+)?) +(-|[\d.]+) +(-|[\d.kM]+) +(-|[\d.kM]+) +(\d+) +(\d+) +(\d+)")
BUSY = re.compile(r"A second: puts [1-9]\d*, gets [1-9]\d*, deletes 0\n"
                  r"Latency:  get p50 \d+ us, p99 \d+, most \d+ \(\d+\)  write p50")  # fmt: skip


class Frame:
    """One picture: its lines, and the rows of its servers."""

    def __init__(self, text):
        self.text = text
        self.rows = {}
        for line in text.splitlines():
            found = ROW.match(line)
            if found:
                server, state, *_, leads, backs, fills = found.groups()
                self.rows[int(server)] = (state, int(leads), int(backs), int(fills))
            elif line.endswith("  absent"):
                self.rows[int(line.split()[0])] = ("absent", 0, 0, 0)

    def state(self, server):
        return self.rows.get(server, ("-",))[0]

    def leads(self):
        return {server: row[1] for server, row in self.rows.items()}

    def is_well(self, servers):
        return "Well: " in self.text and [self.state(one) for one in servers] == ["serves"] * len(servers)


class Recording:
    """`rowan top`, which is no terminal's; its frames so far."""

    def __init__(self, cluster, name, *words):
        self.path = os.path.join(scratch(), name)
        with open(self.path, "wb") as file:
            self.child = subprocess.Popen([program("rowan"), "--dir", cluster.directory, "top", *words],
                                          stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                          env=environment())  # fmt: skip
        atexit.register(self.child.kill)  # of a case that failed
        self.passed = 0

    def frames(self):
        """The last one may not be whole yet."""
        with open(self.path, encoding="utf-8") as file:
            return [Frame(text) for text in file.read().split("\f\n")[:-1]]

    def wait_for(self, what, condition):
        """A frame behind the one that was waited for last."""
        found = []

        def came():
            found[:] = [at for at, frame in enumerate(self.frames()) if at >= self.passed and condition(frame)]
            return found or self.child.poll() is not None

        tap.wait_until(came, SECONDS, lambda: f"a frame that shows {what}; the last: " + "".join(self.tail()))
        tap.check(found, "top ended:", self.tail())
        self.passed = found[0]
        return self.frames()[found[0]]

    def tail(self):
        return [frame.text for frame in self.frames()[-1:]]

    def end(self):
        self.child.send_signal(signal.SIGTERM)
        tap.equal(self.child.wait(SECONDS), 0)


def before():
    global cluster
    cluster = Cluster("look", *SMALL)


def trace(key):
    return cluster.ok("--json", "trace", key).json()


def is_whole(told):
    return [one.get("verdict") for one in told["replicas"]] == ["newest"] * 3


def waits_until_whole(key):
    cluster.ok("--wait", "shards")
    tap.wait_until(lambda: is_whole(trace(key)), SECONDS, "all replicas have the key")
    return trace(key)


# First: nobody else's operations are among the slowest yet.
@tap.case
def slow_tells_the_steps_of_the_slowest_first():
    cluster.ok("set", "trace-one-in=1")
    for number in range(20):
        cluster.ok("put", f"slow-{number}", "x" * 100 * number)
    cluster.ok("get", "slow-7")
    told = cluster.ok("--json", "slow").json()
    tap.equal({one["one_in"] for one in told["servers"]}, {1})
    totals = [one["total_ns"] for one in told["operations"]]
    tap.equal(totals, sorted(totals, reverse=True))
    mine = [one for one in told["operations"] if one["key"] == "slow-7" and one["kind"] == "put"]
    tap.equal(len(mine), 1, [one["key"] for one in told["operations"]])
    put, now = mine[0], trace("slow-7")
    tap.equal((put["status"], put["value_bytes"], put["shard"]), ("ROWAN_OK", 700, now["shard"]))
    tap.equal(put["server"], now["primary"])
    tap.equal(sorted(one["server"] for one in put["backups"]), sorted(now["backups"]))
    for step in (put["queue_ns"], put["log_ns"], put["index_ns"], *(one["landed_ns"] for one in put["backups"])):
        tap.check(0 < step <= put["total_ns"], put)
    out = cluster.ok("slow").out.splitlines()
    tap.contains(out[1], f" {told['operations'][0]['total_ns'] / 1000:.1f}  ")
    tap.equal(out[21], "")
    cluster.ok("set", "3", "trace-one-in=0")
    tap.contains(cluster.ok("slow").err, "server 3 follows none: rowan set trace-one-in=1024")
    cluster.ok("set", "trace-one-in=1024")


@tap.case
def top_shows_a_failover_and_trace_where_the_key_went():
    cluster.ycsb("load", RECORDS)
    cluster.ok("put", "followed", "five!")
    told = waits_until_whole("followed")
    victim = told["primary"]
    others = [one for one in (1, 2, 3, 4) if one != victim]
    cluster.ok("set", "fill-rate=1M")  # so that some frames show it
    cluster.ok("set", "trace-one-in=16")
    load = Load(cluster, RECORDS)
    top = Recording(cluster, "frames", "--interval", "0.2")
    try:
        frame = top.wait_for("the load", lambda one: one.is_well((1, 2, 3, 4)) and BUSY.search(one.text))
        shards = sum(frame.leads().values())
        tap.check(frame.leads()[victim] > 0, frame.text)
        cluster.kill([f"s{victim}"])
        frame = top.wait_for("the silence", lambda one: one.state(victim) == "silent")
        tap.contains(frame.text, f"Not served: {frame.leads()[victim]} of {shards} shards:")
        frame = top.wait_for("who leads now", lambda one: one.state(victim) == "absent" and "Not serv" not in one.text)
        tap.equal(sum(frame.leads()[one] for one in others), shards, frame.text)
        frame = top.wait_for("filling", lambda one: re.search(r"Filling: \d+ shards, [1-9]\d*k? objects are", one.text))
        tap.check(sum(frame.rows[one][3] for one in others) > 0, frame.text)
        cluster.ok("set", "fill-rate=1T")
        top.wait_for("that three are well", lambda one: one.is_well(others) and one.state(victim) == "absent")
        cluster.launch(f"s{victim}")
        top.wait_for("that it is back", lambda one: one.is_well((1, 2, 3, 4)))
    finally:
        load.kill() if sys.exc_info()[0] else load.finish()
        top.child.send_signal(signal.SIGTERM)
    top.end()
    if os.environ.get("ROWAN_RECORDING"):
        shutil.copy(top.path, os.environ["ROWAN_RECORDING"])
    after = waits_until_whole("followed")
    tap.check(after["primary"] != victim and after["epoch"] > told["epoch"], told, after)
    tap.equal({one["version"] for one in after["replicas"]}, {one["version"] for one in told["replicas"]})
    tap.equal({one["value_bytes"] for one in after["replicas"]}, {5})


@tap.case
def top_goes_on_while_a_server_stands_still_and_without_a_manager():
    top = Recording(cluster, "goes-on", "--interval", "0.2")
    top.wait_for("the manager", lambda one: "manager shm:" in one.text or "manager tcp:" in one.text)
    cluster.kill(["cm"])
    top.wait_for("that it is gone", lambda one: "no manager answers" in one.text)
    cluster.launch("cm")
    top.wait_for("it again", lambda one: one.is_well((1, 2, 3, 4)) and "no manager answers" not in one.text)
    cluster.signal("s2", signal.SIGSTOP)
    top.wait_for("the silence", lambda one: one.state(2) == "silent")
    cluster.signal("s2", signal.SIGCONT)
    top.wait_for("that it is back", lambda one: one.is_well((1, 2, 3, 4)))
    top.end()
    cluster.ok("--wait", "shards")


class Terminal:
    """`rowan top` on a terminal of 60 columns and 9 rows."""

    def __init__(self):
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (9, 60))
        self.before = termios.tcgetattr(self.slave)
        self.child = subprocess.Popen([program("rowan"), "--dir", cluster.directory, "top"], stdin=self.slave,
                                      stdout=self.slave, stderr=self.slave, env=environment())  # fmt: skip
        atexit.register(self.child.kill)
        self.shown = b""

    def read_until(self, condition):
        deadline = time.monotonic() + SECONDS
        while not condition():
            tap.check(time.monotonic() < deadline, self.shown[-2000:])
            if select.select([self.master], [], [], 0.1)[0]:
                self.shown += os.read(self.master, 65536)


@tap.case
def top_leaves_a_terminal_as_it_was():
    ends = (lambda one: os.write(one.master, b"q"), lambda one: os.write(one.master, b"\x03"),
            lambda one: one.child.send_signal(signal.SIGTERM))  # fmt: skip
    for end in ends:
        terminal = Terminal()
        terminal.read_until(lambda: terminal.shown.count(b"rowan top") >= 2)
        tap.check(termios.tcgetattr(terminal.slave) != terminal.before)
        end(terminal)
        terminal.read_until(lambda: terminal.child.poll() is not None)
        terminal.read_until(lambda: terminal.shown.endswith(b"\x1b[?25h\x1b[?1049l"))
        tap.equal(terminal.child.returncode, 0)
        tap.equal(termios.tcgetattr(terminal.slave), terminal.before)
        tap.check(terminal.shown.startswith(b"\x1b[?1049h\x1b[?25l\x1b[H"), terminal.shown[:100])
        lines = terminal.shown.split(b"\x1b[H")[1].split(b"\r\n")
        tap.equal(len(lines), 9)
        widths = [len(re.sub(rb"\x1b\[[?0-9]*[A-Za-z]", b"", line)) for line in lines]
        tap.equal(max(widths), 60)
        os.close(terminal.master)
        os.close(terminal.slave)


@tap.case
def trace_tells_of_a_deleted_key():
    cluster.ok("put", "short-lived", "x")
    cluster.ok("del", "short-lived")
    tap.wait_until(lambda: is_whole(trace("short-lived")), SECONDS, "all replicas have the tombstone")
    for one in trace("short-lived")["replicas"]:
        tap.equal((one["tombstone"], one["segment_state"]), (True, "using"))
    tap.equal(cluster.ok("trace", "short-lived").out.count(" tombstone "), 3)


@tap.case
def trace_names_the_place_of_the_bytes_and_what_became_of_them():
    told = waits_until_whole("followed")
    backup = [one for one in told["replicas"] if one["role"] == "backup"][0]
    with open(os.path.join(cluster.directory, f"s{backup['server']}.pm"), "r+b") as file:
        entry = os.pread(file.fileno(), 64, backup["offset"])
        tap.check(b"followedfive!" in entry, entry)
        os.pwrite(file.fileno(), entry.replace(b"five!", b"fire!"), backup["offset"])
        done = cluster.rowan("--json", "trace", "followed")
        os.pwrite(file.fileno(), entry, backup["offset"])
    expect(done, 1, "an entry of the key is damaged")
    tap.equal({one["server"]: one["verdict"] for one in done.json()["replicas"]},
              {one["server"]: "damaged" if one == backup else "newest" for one in told["replicas"]})
    waits_until_whole("followed")  # the manager was told of the damage, and has it filled anew


@tap.case
def what_cannot_be_shown_is_one_sentence():
    expect(cluster.rowan("trace", "k" * 1025), 2, "a key must have 1 to 1024 bytes")
    expect(cluster.rowan("trace", ""), 2, "a key must have 1 to 1024 bytes")
    expect(cluster.rowan("trace", "nowhere"), 1, 'trace: "nowhere": not found')
    expect(cluster.rowan("--json", "top"), 2, "--json status")
    expect(cluster.rowan("--frames", "-1", "top"), 2, "frames")
    expect(cluster.rowan("--interval", "0", "top"), 2, "--interval must be a number of seconds from 0.1 to 3600")
    done = cluster.rowan("--frames", "2", "top")
    tap.equal((done.code, done.out.count("rowan top")), (0, 2), done.both)
    for words in (("top",), ("slow",), ("trace", "key")):
        expect(run([program("rowan"), "--cm", f"shm:{scratch()}/nobody", *words]), 1, words[0], "no connection")


@tap.case
def a_server_that_does_not_answer_is_named():
    cluster.ok("--wait", "shards")
    cluster.stop()
    waits = Cluster("waits", "--pm-bytes", "96M", "--landing-segments", "4")  # without leases nobody goes on without it
    waits.ok("put", "named", "x")
    backup = waits.ok("--json", "trace", "named").json()["backups"][0]
    waits.signal(f"s{backup}", signal.SIGSTOP)
    for words in (("slow",), ("trace", "named")):
        done = waits.rowan("--timeout-ms", "1000", *words)
        expect(done, 1, f"{words[0]}: server {backup}: no answer came in time")
    tap.check(done.out.count(" newest") > 0, done.out)
    waits.signal(f"s{backup}", signal.SIGCONT)
    waits.stop()


sys.exit(tap.main(before))
