#!/usr/bin/python3
"""Backups spend no CPU on the write path: writes go on while one is stopped (the issue's Show 6)."""

import re
import selectors
import signal
import subprocess
import sys
import time

from harness import FABRIC, Cluster, environment, program, tap

PUTS = 100_000
BACKUP = 2  # the server that is stopped


class Writer:
    """The program onesided, with its progress."""

    def __init__(self, cluster, puts):
        ranges = ",".join(
            f"{shard['first_slot']}-{shard['last_slot']}"
            for shard in cluster.shards()
            if shard["primary"] == BACKUP or BACKUP not in shard["backups"]
        )
        self.child = subprocess.Popen(
            [program("cluster_onesided"), cluster.directory, str(puts), ranges],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(), bufsize=0,
        )  # fmt: skip
        self.text = ""
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.child.stdout, selectors.EVENT_READ)

    def read(self, seconds):
        """Takes in what came within this time. False at the end of the output."""
        if self.selector.select(seconds):
            piece = self.child.stdout.read(65536)
            self.text += piece.decode()
            return bool(piece)
        return True

    def wait_for(self, pattern, seconds):
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text, re.MULTILINE):
            more = self.read(0.1)
            if re.search(pattern, self.text, re.MULTILINE):
                return
            tap.check(more, "ended early:", self.text[-500:], "" if more else self.errors())
            tap.check(time.monotonic() < end, f"no {pattern} in {seconds} s:", self.text[-500:])

    def errors(self):
        return self.child.stderr.read().decode()

    def go(self):
        self.child.stdin.write(b"go\n")

    def numbers(self):
        """(acknowledged, failed, outstanding) of the last progress line."""
        found = re.findall(r"^progress acknowledged=(\d+) failed=(\d+) outstanding=(\d+)$",
                           self.text, re.MULTILINE)  # fmt: skip
        return tuple(map(int, found[-1])) if found else (0, 0, 0)

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.communicate()


def before():
    global roomy, tight
    roomy = Cluster("roomy", "--pm-bytes", "512M", "--landing-segments", "16")
    tight = Cluster("tight", "--pm-bytes", "512M", "--landing-segments", "2")


def with_stopped_backup(cluster, puts, while_stopped):
    """Runs the writer with server BACKUP stopped, calls while_stopped(writer), continues it."""
    writer = Writer(cluster, puts)
    name = f"s{BACKUP}"
    try:
        writer.wait_for("^ready$", 60)
        cluster.signal(name, signal.SIGSTOP)
        tap.wait_until(lambda: cluster.processes()[name].state() == "stopped", 10, "SIGSTOP")
        writer.go()
        while_stopped(writer)
        tap.equal(cluster.processes()[name].state(), "stopped")
        cluster.signal(name, signal.SIGCONT)
        writer.wait_for(r"^done ", 120)
        tap.contains(writer.text, f"done acknowledged={puts} failed=0")
        tap.equal(writer.child.wait(timeout=20), 0, writer.errors())
    finally:
        if cluster.processes()[name].alive():
            cluster.signal(name, signal.SIGCONT)
        writer.end()


def a_hundred_thousand_puts_are_acknowledged_while_a_backup_is_stopped():
    with_stopped_backup(roomy, PUTS, lambda writer: writer.wait_for("^done ", 120))


def all_puts_wait_for_a_backup_that_is_stopped_and_none_fails():
    with_stopped_backup(roomy, PUTS, stands_still)


# On tcp it is the backup's own process that reads its sockets: stopped, it lands nothing.
if FABRIC == "tcp":
    tap.case(all_puts_wait_for_a_backup_that_is_stopped_and_none_fails)
else:
    tap.case(a_hundred_thousand_puts_are_acknowledged_while_a_backup_is_stopped)


@tap.case
def verify_is_equal_after_the_backup_goes_on():
    done = roomy.ok("--json", "verify", seconds=300)
    tap.check(done.json()["objects"] >= PUTS, done.out)


def stands_still(writer):
    """Some puts wait, none fails, and nothing moves for two seconds."""
    end = time.monotonic() + 90
    last, since = writer.numbers(), time.monotonic()
    while time.monotonic() - since < 2 or last[2] == 0:
        tap.check(time.monotonic() < end, "never stood still:", last)
        tap.check(writer.read(0.1), "ended while the backup was stopped:", writer.text[-300:])
        if writer.numbers()[0] != last[0]:
            since = time.monotonic()
        last = writer.numbers()
    acknowledged, failed, outstanding = last
    tap.check("done" not in writer.text, "all were acknowledged without room in the landing zone")
    tap.check(acknowledged < PUTS, last)
    tap.equal(failed, 0)
    tap.check(outstanding > 0, last)


@tap.case
def puts_wait_for_a_dry_landing_zone_and_none_fails():
    with_stopped_backup(tight, PUTS, stands_still)


@tap.case
def verify_is_equal_after_the_puts_that_waited():
    done = tight.ok("--json", "verify", seconds=300)
    tap.check(done.json()["objects"] >= PUTS, done.out)


@tap.case
def the_clusters_stop_cleanly():
    roomy.stop()
    tight.stop()


sys.exit(tap.main(before))
