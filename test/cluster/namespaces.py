#!/usr/bin/python3
"""Servers on different addresses: each process in a network namespace of its own, on one bridge. A
load, equal replicas, and links that fail for seconds: nothing lost, nothing doubled (apart.py)."""

import random
import sys
import time

from apart import NODES, PORT, Cluster, Network
from harness import DIVISOR, program, run, tap
from work import Counters, Load, chosen_seed, counters_add_up

RECORDS = 20_000 // DIVISOR
CUTS = 5 if DIVISOR == 1 else 2


def before():
    global network, cluster, reason
    network = cluster = None
    try:
        network = Network()
    except tap.Skipped as skipped:
        reason = str(skipped)
        return
    cluster = Cluster(network, more=("--shards", "0", "--lease-ms", "0"))


def after():
    if cluster:
        cluster.end()
    if network:
        network.end()


def needs_network():
    if cluster is None:
        tap.skip(reason)


@tap.case
def a_load_from_an_address_of_its_own_reaches_servers_on_three_others():
    needs_network()
    done = run(cluster.client([program("rowan-ycsb"), "--cm", cluster.cm, "--workload", "load", "--records",
                               str(RECORDS), "--threads", "2", "--json"]), seconds=120)  # fmt: skip
    tap.equal(done.code, 0, done.both[-2000:])
    done = cluster.rowan("--json", "status")
    tap.equal(sorted(server["address"] for server in done.json()["servers"]),
              [f"tcp:{NODES[name]}:{PORT}" for name in ("s1", "s2", "s3")])  # fmt: skip
    tap.equal(cluster.rowan("verify", seconds=200).code, 0)


@tap.case
def links_that_fail_for_seconds_during_a_load_lose_and_double_nothing():
    needs_network()
    dice = random.Random(chosen_seed())
    counters = Counters(cluster, "links", timeout_ms=30000, wrap=cluster.client)
    load = Load(cluster, RECORDS, wrap=cluster.client, timeout_ms=30000, may_not_start=True)
    try:
        counters.wait_for_progress()
        for number in range(CUTS):
            name = list(NODES)[number % len(NODES)]
            network.link(name, "down")
            time.sleep(dice.uniform(0.2, 6))  # shorter and longer than what closes a connection
            network.link(name, "up")
            counters.wait_for_progress()
        load.finish()
        acknowledged, unknown = counters.finish()
    except tap.Failed:
        print(cluster.last_logs(), file=sys.stderr)
        raise
    finally:
        load.kill()
        counters.kill()
    tap.equal(sum(unknown), 0, "unknown: every link was up again well within the horizon")
    counters_add_up(cluster, acknowledged, unknown)
    done = cluster.rowan("verify", seconds=200)
    tap.equal(done.code, 0, done.both[-2000:])


@tap.case
def all_processes_end_cleanly():
    needs_network()
    tap.equal(cluster.end(), {name: 0 for name in cluster.children}, cluster.last_logs())


sys.exit(tap.main(before, after))
