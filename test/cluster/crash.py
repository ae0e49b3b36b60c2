#!/usr/bin/python3
"""kill -9 of all processes in the middle of a load, and a start on the same directory, again and again:
every acknowledged write is there, nothing deleted is back, no counter lost or doubled, all replicas equal. The PM is
so small that the servers clean.

ROWAN_CRASHES: rounds of each setting; ROWAN_SEED: runs a failed one again."""

import os
import random
import signal
import subprocess
import sys
import time

from harness import DIVISOR, Cluster, environment, program, run, tap
from local import process
from work import Counters, chosen_seed, counters_add_up

ROUNDS = int(os.environ.get("ROWAN_CRASHES") or 3)
CLEANED = []  # segments, of each setting
RECORDS = 20_000 // DIVISOR
PROFILE = "fixed:1000"  # bytes of a value


def acked_load(cluster, acked, seed):
    """rowan-ycsb with --acked, for as long as the cluster lives and its operations' timeout."""
    return subprocess.Popen(
        [program("rowan-ycsb"), "--dir", cluster.directory, "--workload", "a", "--records",
         str(RECORDS), "--profile", PROFILE, "--threads", "2", "--depth", "32", "--seconds", "600", "--timeout-ms", "1000",
         "--seed", str(seed), "--acked", acked],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environment(),
    )  # fmt: skip


def kill_all(cluster, dice):
    """In any order, some at once and some a moment later, so that the last entries are on one replica
    only: the primary, or a backup."""
    names = list(cluster.processes())
    dice.shuffle(names)
    handles = [process.Handle(cluster.processes()[name]) for name in names]
    for name, handle in zip(names, handles):
        tap.check(handle.fd >= 0, name, "had ended before:", cluster.last_logs())
        handle.send(signal.SIGKILL)
        if dice.random() < 0.5:
            time.sleep(dice.uniform(0, 0.02))
    for handle in handles:
        tap.check(handle.ended(20), "a killed process does not end")


def segments_cleaned(cluster):
    servers = cluster.status()["servers"]
    return sum(server["segments_cleaned"] for server in servers)


def crash(cluster, acked, dice, counters, until_cleaned):
    """One round, perhaps until servers clean; how many segments were cleaned in it. The counters' clients live through it:
    their operations wait for the cluster. `verify` needs a moment in which nobody writes to a shard."""
    before = os.path.getsize(acked)
    load = acked_load(cluster, acked, dice.randrange(1 << 31))
    try:
        tap.wait_until(lambda: os.path.getsize(acked) > before or load.poll() is not None, 30,
                       "an acknowledged write")  # fmt: skip
        tap.equal(load.poll(), None, "rowan-ycsb ended early")
        if until_cleaned:
            tap.wait_until(lambda: segments_cleaned(cluster) > 0, 120, "a cleaned segment")
        time.sleep(dice.uniform(0.05, 0.4))  # somewhere in the middle
        cleaned = segments_cleaned(cluster)
        kill_all(cluster, dice)
    finally:
        load.kill()
        load.wait()
    tap.check(os.path.getsize(acked) > before)
    cluster.start_again()
    done = run([program("rowan-ycsb"), "--dir", cluster.directory, "check", acked], seconds=300)
    tap.equal(done.code, 0, done.both[-3000:], cluster.last_logs())
    with counters.stopped():
        done = cluster.rowan("verify", seconds=300)
    tap.equal(done.code, 0, "verify after the start:", done.both[-3000:], cluster.last_logs())
    return cleaned


def survives(fabric, durability):
    seed = chosen_seed()
    dice = random.Random(seed)
    cluster = Cluster(f"{fabric}-{durability}", "--pm-bytes", "128M", "--landing-segments", "4",
                      "--fabric", fabric, "--durability", durability)  # fmt: skip
    acked = os.path.join(cluster.directory + ".acked")
    done = run(
        [program("rowan-ycsb"), "--dir", cluster.directory, "--workload", "load", "--records",
         str(RECORDS), "--profile", PROFILE, "--acked", acked], seconds=300)  # fmt: skip
    tap.equal(done.code, 0, done.both[-2000:])
    counters = Counters(cluster, "crash", timeout_ms=60000)
    cleaned = 0
    try:
        for number in range(ROUNDS):
            counters.wait_for_progress()
            # Without fences it does not take long.
            until_cleaned = number == ROUNDS - 1 and durability == "none"
            cleaned += crash(cluster, acked, dice, counters, until_cleaned)
            print(f"# round {number + 1}: {os.path.getsize(acked) // 24} writes acknowledged, "
                  f"{cleaned} segments cleaned so far", flush=True)  # fmt: skip
        counters.wait_for_progress()
        acknowledged, unknown = counters.finish()
    finally:
        counters.kill()
    counters_add_up(cluster, acknowledged, unknown)
    CLEANED.append(cleaned)
    cluster.ok("verify", seconds=300)
    cluster.stop()
    cluster.remove()


@tap.case
def killed_clusters_that_fence_come_back_whole_on_shm():
    survives("shm", "fence")


@tap.case
def killed_clusters_without_durability_come_back_whole_on_shm():
    survives("shm", "none")


@tap.case
def killed_clusters_that_fence_come_back_whole_on_tcp():
    survives("tcp", "fence")


@tap.case
def killed_clusters_without_durability_come_back_whole_on_tcp():
    survives("tcp", "none")


@tap.case
def they_cleaned_meanwhile():
    tap.check(sum(CLEANED) > 0, CLEANED)


sys.exit(tap.main())
