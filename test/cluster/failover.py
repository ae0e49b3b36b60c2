#!/usr/bin/python3
"""A server of a cluster with leases is killed, or stands still for longer than its lease, amid a load: the others go on,
it comes back as a replica that fills, and every acknowledged write is there.

ROWAN_FAILOVERS: rounds of each setting; ROWAN_SEED: runs a failed one again."""

import os
import random
import signal
import subprocess
import sys

from harness import DIVISOR, Cluster, environment, program, rowan_local, run, tap
from local import process
from work import Counters, chosen_seed, counters_add_up

ROUNDS = int(os.environ.get("ROWAN_FAILOVERS") or 2)
RECORDS = 5_000 // DIVISOR
LEASE_MS = 500 * (4 if DIVISOR > 1 else 1)
SERVERS = 3


def load(cluster, acked, seed):
    return subprocess.Popen(
        [program("rowan-ycsb"), "--dir", cluster.directory, "--workload", "a", "--records",
         str(RECORDS), "--profile", "zippydb", "--threads", "1", "--depth", "16", "--seconds", "600", "--seed", str(seed),
         "--acked", acked],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environment(),
    )  # fmt: skip


def replicas(cluster):
    """Of each shard: how many are full, and do any fill?"""
    done = cluster.rowan("--json", "shards")
    if done.code != 0:
        return []
    return [(1 + len(shard["backups"]), len(shard.get("filling", []))) for shard in done.json()["shards"]]


def lacks(cluster, full):
    found = replicas(cluster)
    return found and any(count != full or filling for count, filling in found)


def whole(cluster, full):
    found = replicas(cluster)
    return found and not lacks(cluster, full)


def acknowledged(acked):
    return os.path.getsize(acked) // 24


def goes_on(acked, what, others=lambda: ""):
    before = acknowledged(acked)
    tap.wait_until(lambda: acknowledged(acked) > before + 20, 60, what + others())


def check(cluster, acked, counters):
    done = run([program("rowan-ycsb"), "--dir", cluster.directory, "check", acked], seconds=300)
    tap.equal(done.code, 0, done.both[-3000:], cluster.last_logs())
    with counters.stopped():
        done = cluster.rowan("verify", seconds=300)
    tap.equal(done.code, 0, "verify:", done.both[-3000:], cluster.last_logs())


def fail(cluster, number, dice):
    """kill -9; or SIGSTOP until it was removed, after which it ends by itself."""
    name = f"s{number}"
    if dice.random() < 0.5:
        cluster.kill([name])
        return "killed"
    handle = process.Handle(cluster.processes()[name])
    handle.send(signal.SIGSTOP)
    tap.wait_until(lambda: lacks(cluster, SERVERS), 60, f"{name} is not removed: {cluster.last_logs()}")
    handle.send(signal.SIGCONT)
    tap.check(handle.ended(60), name, "goes on though it was removed", cluster.last_logs())
    return "stopped"


def survives(fabric):
    dice = random.Random(chosen_seed())
    cluster = Cluster(f"failover-{fabric}", "--fabric", fabric, "--lease-ms", str(LEASE_MS), "--pm-bytes", "256M",
                      "--landing-segments", "4", "--shards", "12", "--servers", str(SERVERS))  # fmt: skip
    acked = os.path.join(cluster.directory + ".acked")
    done = run([program("rowan-ycsb"), "--dir", cluster.directory, "--workload", "load", "--records", str(RECORDS),
                "--profile", "zippydb", "--acked", acked], seconds=300)  # fmt: skip
    tap.equal(done.code, 0, done.both[-2000:])
    counters = Counters(cluster, "failover", timeout_ms=60000)
    work = load(cluster, acked, dice.randrange(1 << 31))
    try:
        for number in range(ROUNDS):
            goes_on(acked, "no write is acknowledged")
            victim = dice.randrange(1, SERVERS + 1)
            done = rowan_local("restart", str(victim), "--dir", cluster.directory)
            tap.check(done.code == 1 and "kill it first" in done.both, done.code, done.both)
            how = fail(cluster, victim, dice)
            tap.wait_until(lambda: lacks(cluster, SERVERS), 60, "no failover")
            goes_on(acked, f"server {victim} was {how}, and no write is acknowledged: ", cluster.last_logs)
            done = rowan_local("restart", str(victim), "--dir", cluster.directory)
            tap.equal(done.code, 0, done.both, cluster.last_logs())
            tap.wait_until(lambda: whole(cluster, SERVERS), 120, "not filled: " + cluster.last_logs())
            print(f"# {fabric} round {number + 1}: server {victim} was {how}; {acknowledged(acked)} writes acknowledged",
                  flush=True)  # fmt: skip
            counters.wait_for_progress()
    finally:
        work.kill()
        work.wait()
    check(cluster, acked, counters)
    counted, unknown = counters.finish()
    counters_add_up(cluster, counted, unknown)
    cluster.stop()
    cluster.remove()


@tap.case
def a_server_that_fails_is_replaced_and_comes_back_on_shm():
    survives("shm")


@tap.case
def a_server_that_fails_is_replaced_and_comes_back_on_tcp():
    survives("tcp")


sys.exit(tap.main())
