#!/usr/bin/python3
"""Connections cut at random during load, between servers and between client and server: no error, no
lost and no doubled operation (the issue's Show 3).

ROWAN_CUTS: how many on each fabric; ROWAN_SEED: runs a failed one again."""

import os
import sys
import time

from harness import DIVISOR, Cluster, tap
from work import Counters, Load, chosen_seed, counters_add_up

import cutter

CUTS = int(os.environ.get("ROWAN_CUTS") or max(20, 200 // DIVISOR))
RECORDS = 20_000 // DIVISOR
KINDS = (("server", "server"), ("server", "client"), ("cm", "server"), ("cm", "client"))
DECK = (9, 9, 1, 1)  # how many of each kind in 20


def processes(cluster, counters, load):
    found = cluster.processes()
    return {
        "server": [one.pid for name, one in found.items() if name != "cm"],
        "cm": [found["cm"].pid],
        "client": counters.pids() + load.pids(),
    }


def cut_at_random(cluster, counters, load, seed):
    knife, done = cutter.Cutter(seed), 0
    end = time.monotonic() + 60 + CUTS
    deck = []
    while done < CUTS:
        tap.check(time.monotonic() < end, f"{done} of {CUTS} cuts in time: {knife.cuts}")
        if not deck:
            deck = [kind for kind, count in zip(KINDS, DECK) for _ in range(count)]
        card = knife.random.randrange(len(deck))
        if knife.cut(processes(cluster, counters, load), deck[card]):
            done += 1
            deck.pop(card)
        time.sleep(knife.random.uniform(0, 0.05))  # the pace: nothing hangs on it
    print("# cuts:", ", ".join(f"{one}-{two} {count}" for (one, two), count in knife.cuts.items()))


def servers_run(cluster):
    for name, one in cluster.processes().items():
        tap.equal(one.state(), "running", name, cluster.log(name)[-2000:])


def nothing_is_lost_nor_doubled(fabric):
    cluster = Cluster(fabric, "--pm-bytes", "2G", "--fabric", fabric)
    reason = cutter.why_not(cluster.processes()["s1"].pid)
    if reason:
        tap.skip(f"connections of other processes cannot be cut here: {reason}")
    cluster.ycsb("load", RECORDS)
    seed = chosen_seed()
    counters = Counters(cluster, "cuts")
    load = Load(cluster, RECORDS)
    try:
        counters.wait_for_progress()
        cut_at_random(cluster, counters, load, seed)
        counters.wait_for_progress()
        load.finish()
        acknowledged, unknown = counters.finish()
    finally:
        load.kill()
        counters.kill()
    servers_run(cluster)
    counters_add_up(cluster, acknowledged, unknown)
    cluster.ok("verify", seconds=300)
    cluster.stop()
    cluster.remove()


@tap.case
def cuts_during_load_lose_and_double_nothing_on_shm():
    nothing_is_lost_nor_doubled("shm")


@tap.case
def cuts_during_load_lose_and_double_nothing_on_tcp():
    nothing_is_lost_nor_doubled("tcp")


sys.exit(tap.main())
