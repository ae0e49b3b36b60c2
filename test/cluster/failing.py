"""A cluster with leases of which servers fail amid loads, and what must be true afterwards."""

import atexit
import os
import random
import re
import signal
import subprocess
import time

from harness import DIVISOR, Cluster, environment, program, rowan_local, run, tap
from local import process, zookeeper
from local.failure import Failure
from work import History, chosen_seed

SERVERS = 3
STOPPED_SECONDS = 5 * (2 if DIVISOR > 1 else 1)  # ten leases, or five
SLOWER = 4 if DIVISOR > 1 else 1  # a sanitized build


def acknowledged(acked):
    return os.path.getsize(acked) // 24


class AtWork:
    """Of a cluster with leases: the work that it does while parts of it fail, and what must be true afterwards."""

    tolerated = None  # the one error that clients may see

    @staticmethod
    def client(words):
        """The command that runs a client's command."""
        return words

    def begin_work(self, name, records=5_000, profile="zippydb", wraps=None, load=("--depth", "16"), **more):
        """Loads it; begins a load and, for each of `wraps`, a process of clients whose history is kept (work.py)."""
        self.dice = random.Random(chosen_seed())
        self.acked, records = self.directory + ".acked", str(max(records // DIVISOR, 100))
        command = self.client([program("rowan-ycsb"), "--dir", self.directory, "--records", records, "--profile", profile,
                            "--acked", self.acked, "--workload"])  # fmt: skip
        done = run([*command, "load"], seconds=300)
        tap.equal(done.code, 0, done.both[-2000:])
        self.history = History(self, name, wraps=wraps or [self.client], **more)
        self.load = subprocess.Popen(
            [*command, "a", "--seconds", "1000000", "--timeout-ms", "60000", *load, "--seed", str(self.dice.randrange(1 << 31))],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
        )  # fmt: skip
        atexit.register(self.drop_work)  # also if the test ends before it is at work
        self.goes_on("the work begins")  # who starts while nothing answers ends at once

    def drop_work(self):
        self.load.kill()
        self.load.wait()
        self.history.kill()

    def judge_work(self):
        """Every acknowledged write is there, each key was a register, the replicas are equal."""
        tap.equal(self.load.poll(), None, "the load has ended")
        self.load.kill()
        self.load.wait()
        self.history.finish(self.tolerated)
        done = run(self.client([program("rowan-ycsb"), "--dir", self.directory, "check", self.acked]), seconds=300)
        tap.equal(done.code, 0, done.both[-3000:], self.last_logs())
        done = self.rowan("verify", seconds=300)
        tap.equal(done.code, 0, "verify:", done.both[-3000:], self.last_logs())

    # --- what is seen from outside ---

    def known_shards(self):
        """[] while no manager answers."""
        done = self.rowan("--json", "shards")
        return done.json()["shards"] if done.code == 0 else []

    def replicas(self):
        """Of each shard: how many are full, and do any fill?"""
        return [(1 + len(shard["backups"]), bool(shard.get("filling"))) for shard in self.known_shards()]

    def lacks(self, full=SERVERS):
        found = self.replicas()
        return found and any(count != full or filling for count, filling in found)

    def fills(self):
        return any(filling for _, filling in self.replicas())

    def led_by(self):
        return {shard["primary"] for shard in self.known_shards()}

    def whole(self, full=SERVERS):
        found = self.replicas()
        return found and all(count == full and not filling for count, filling in found)

    def wait_until_whole(self):
        tap.wait_until(self.whole, 120, lambda: "not filled: " + self.last_logs())

    def goes_on(self, what, every=True):
        """Writes are acknowledged, and of the processes of the history every one (or the first) is answered."""
        before = acknowledged(self.acked)
        tap.wait_until(lambda: acknowledged(self.acked) > before + 20, 60, f"{what}: no write is acknowledged")
        self.history.wait_for_progress(count=None if every else 1)

    def a_primary(self):
        """The number of a server that leads some shard."""
        return self.dice.choice(sorted(self.led_by()))


class Failing(AtWork, Cluster):
    """`with Failing(...) as cluster:` one of local processes, at work."""

    def __init__(self, name, *options, lease_ms=500 * SLOWER, **work):
        if "zookeeper" in options:
            try:
                zookeeper.check_installed()
            except Failure as why:
                tap.skip(why)
        super().__init__(name, "--lease-ms", str(lease_ms), "--pm-bytes", "256M",
                         "--landing-segments", "4", "--shards", "12", "--servers", str(SERVERS), *options)  # fmt: skip
        self.begin_work(name, **work)

    def __enter__(self):
        return self

    def __exit__(self, kind, *what):
        try:
            if kind is None:
                self.judge_work()
                self.stop()
                self.remove()
        finally:
            self.drop_work()

    # --- what fails ---

    def manager(self):
        """(term, name) of who took over last, of those that run: a standby may have claimed it from who was elected. Who managed
        first took over nothing."""
        logs = {name: self.log(name) for name, one in self.processes().items() if name.startswith("cm") and one.alive()}
        return max(((int((re.findall(r"manager_took_over .*term=(\d+)", log) or [0])[-1]), name)
                    for name, log in logs.items() if " leads=yes" in log or " manager_took_over " in log), default=(0, None))  # fmt: skip

    def restart(self, number):
        done = rowan_local("restart", str(number), "--dir", self.directory)
        tap.equal(done.code, 0, done.both, self.last_logs())

    def slowly(self):
        """Servers that run now fill by 1 MB a second: longer than a busy machine takes to see that something fills."""
        self.ok("set", "fill-rate=1M")

    def holds_the_last(self, victim):
        return any(shard["primary"] == victim and not shard["backups"] for shard in self.known_shards())

    def goes_on_without(self, victim):
        """It was killed, and is started again once the others go on. On a busy machine others may be found silent, too, and
        be filled anew. Then the victim may have the last full replicas, and nothing goes on before it is back: False."""
        before, looks = acknowledged(self.acked), time.monotonic() + 1

        def goes_on_or_waits():
            nonlocal looks
            if acknowledged(self.acked) > before + 20:
                return "goes on"
            if time.monotonic() < looks:
                return None
            looks = time.monotonic() + 1
            return "waits" if self.holds_the_last(victim) else None

        what = f"server {victim} was killed"
        waited = tap.wait_until(goes_on_or_waits, 60, lambda: f"{what}: no write is acknowledged: {self.last_logs()}") == "waits"
        if waited:
            self.restart(victim)
        self.goes_on(what)
        if not waited:
            self.restart(victim)
        return not waited

    def kill_a_primary(self):
        """kill -9: the others go on, it comes back and is filled."""
        victim = self.a_primary()
        self.kill([f"s{victim}"])
        tap.wait_until(self.lacks, 60, lambda: "no failover: " + self.last_logs())
        self.goes_on_without(victim)
        self.wait_until_whole()
        return victim

    def stop_a_primary(self):
        """SIGSTOP for much longer than its lease, then SIGCONT: it comes back by itself."""
        victim = self.a_primary()
        handle = process.Handle(self.processes()[f"s{victim}"])
        began = time.monotonic()
        handle.send(signal.SIGSTOP)
        tap.wait_until(self.lacks, 60, lambda: f"server {victim} is not removed: " + self.last_logs())
        self.goes_on(f"server {victim} is stopped")
        time.sleep(max(0, began + STOPPED_SECONDS - time.monotonic()))  # it may not be shorter: nothing else hangs on it
        tap.check(not self.whole(), "a stopped server is counted as a replica")
        handle.send(signal.SIGCONT)
        self.wait_until_whole()
        handle.close()
        tap.contains(self.log(f"s{victim}"), "server_starts_again")
        return victim
