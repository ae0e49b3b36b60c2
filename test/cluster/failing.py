"""A cluster with leases of which servers fail amid loads, and what must be true afterwards."""

import os
import random
import signal
import subprocess
import time

from harness import DIVISOR, Cluster, environment, program, rowan_local, run, tap
from local import process, zookeeper
from local.failure import Failure
from work import History, chosen_seed

SERVERS = 3
STOPPED_SECONDS = 10


def acked_load(directory, acked, records, *more):
    """rowan-ycsb that records each acknowledged write, until it is killed."""
    return subprocess.Popen(
        [program("rowan-ycsb"), "--dir", directory, "--workload", "a", "--records", str(records), "--seconds", "600",
         "--acked", acked, *map(str, more)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
    )  # fmt: skip


def acknowledged(acked):
    return os.path.getsize(acked) // 24


class Failing(Cluster):
    """`with Failing(...) as cluster:` a cluster that is loaded, and under a load and clients whose history is kept."""

    def __init__(self, name, *options, lease_ms=500, records=5_000, keys=16, pause_ms=25):
        if "zookeeper" in options:
            try:
                zookeeper.check_installed()
            except Failure as why:
                tap.skip(why)
        self.dice = random.Random(chosen_seed())
        super().__init__(name, "--lease-ms", str(lease_ms * (4 if DIVISOR > 1 else 1)), "--pm-bytes", "256M",
                         "--landing-segments", "4", "--shards", "12", "--servers", str(SERVERS), *options)  # fmt: skip
        self.acked, self.records = self.directory + ".acked", max(records // DIVISOR, 100)
        done = run([program("rowan-ycsb"), "--dir", self.directory, "--workload", "load", "--records", str(self.records),
                    "--profile", "zippydb", "--acked", self.acked], seconds=300)  # fmt: skip
        tap.equal(done.code, 0, done.both[-2000:])
        self.history = History(self, name, keys=keys, pause_ms=pause_ms)
        self.load = acked_load(self.directory, self.acked, self.records, "--depth", 16, "--seed", self.dice.randrange(1 << 31))

    def __enter__(self):
        return self

    def __exit__(self, kind, *what):
        try:
            if kind is None:
                self.finish()
        finally:
            self.load.kill()
            self.load.wait()
            self.history.kill()

    def finish(self):
        """Every acknowledged write is there, each key was a register, the replicas are equal."""
        self.load.kill()
        self.load.wait()
        self.history.finish()
        done = run([program("rowan-ycsb"), "--dir", self.directory, "check", self.acked], seconds=300)
        tap.equal(done.code, 0, done.both[-3000:], self.last_logs())
        done = self.rowan("verify", seconds=300)
        tap.equal(done.code, 0, "verify:", done.both[-3000:], self.last_logs())
        self.stop()
        self.remove()

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
        tap.wait_until(self.whole, 120, "not filled: " + self.last_logs())

    def goes_on(self, what):
        """Writes are acknowledged, and every client of the history is answered."""
        before = acknowledged(self.acked)
        tap.wait_until(lambda: acknowledged(self.acked) > before + 20, 60, f"{what}: no write is acknowledged")
        self.history.wait_for_progress()

    def a_primary(self):
        """The number of a server that leads some shard."""
        return self.dice.choice(sorted(self.led_by()))

    # --- what fails ---

    def restart(self, number):
        done = rowan_local("restart", str(number), "--dir", self.directory)
        tap.equal(done.code, 0, done.both, self.last_logs())

    def kill_a_primary(self):
        """kill -9: the others go on, it comes back and is filled."""
        victim = self.a_primary()
        self.kill([f"s{victim}"])
        tap.wait_until(self.lacks, 60, "no failover: " + self.last_logs())
        self.goes_on(f"server {victim} was killed")
        self.restart(victim)
        self.wait_until_whole()
        return victim

    def stop_a_primary(self):
        """SIGSTOP for much longer than its lease, then SIGCONT: it comes back by itself."""
        victim = self.a_primary()
        handle = process.Handle(self.processes()[f"s{victim}"])
        began = time.monotonic()
        handle.send(signal.SIGSTOP)
        tap.wait_until(self.lacks, 60, f"server {victim} is not removed: " + self.last_logs())
        self.goes_on(f"server {victim} is stopped")
        time.sleep(max(0, began + STOPPED_SECONDS - time.monotonic()))  # it may not be shorter: nothing else hangs on it
        tap.check(not self.whole(), "a stopped server is counted as a replica")
        handle.send(signal.SIGCONT)
        self.wait_until_whole()
        handle.close()
        tap.contains(self.log(f"s{victim}"), "server_starts_again")
        return victim
