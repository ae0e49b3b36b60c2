#!/usr/bin/python3
"""A cluster with leases, its manager and ZooKeeper in network namespaces (apart.py), and cuts between two of them, both ways
or one, that last longer than leases: the others go on where they can, nothing is stale or lost, and all is well again by itself
after it. Clients work at an address of their own and at those of the servers, so that they are cut off with them.

ROWAN_PARTITIONS: how often each; ROWAN_SEED: runs a failed one again."""

import os
import sys
import time

import apart
from failing import AtWork
from harness import DIVISOR, scratch, tap
from local import zookeeper
from local.failure import Failure

ROUNDS = int(os.environ.get("ROWAN_PARTITIONS") or 1)
LEASE_MS = 500 * (4 if DIVISOR > 1 else 1)
CUT_SECONDS = 8 * LEASE_MS / 1000  # longer than leases, than what makes a server silent and one late


class Parted(apart.Cluster, AtWork):
    def __init__(self, network):
        directory = os.path.join(scratch(), "zookeeper")
        os.mkdir(directory)
        with open(os.path.join(directory, "zoo.cfg"), "w", encoding="utf-8") as file:
            file.write(zookeeper.CONFIG.format(tick=zookeeper.TICK_MS, data=directory, port=apart.PORT, host=apart.NODES["zk"]))
        super().__init__(network, ("--coord", "zookeeper", "--zookeeper", f"{apart.NODES['zk']}:{apart.PORT}/rowan"),
                         ("--shards", "12", "--lease-ms", str(LEASE_MS)), {"zk": zookeeper.java(os.path.join(directory, "zoo.cfg"))})  # fmt: skip

    def cut(self, ways, during, what):
        """Cuts [(sender, receiver)], for a while after `during` has come true, and waits until all is well again."""
        print(f"# {what}: {', '.join(f'{sender} -> {receiver}' for sender, receiver in ways)}", flush=True)
        for way in ways:
            self.network.cut(*way)
        during()
        time.sleep(CUT_SECONDS)  # in which whoever was deposed may answer what is stale by then
        for way in ways:
            self.network.heal(*way)
        self.wait_until_whole()
        self.goes_on(what)


def before():
    global network, cluster, reason
    network = cluster = None
    try:
        zookeeper.check_installed()
        network = apart.Network()
    except (tap.Skipped, Failure) as why:
        reason = str(why)
        return
    cluster = Parted(network)
    nodes = ("client", "s1", "s2", "s3")
    cluster.begin_work("parted", pause_ms=50, wraps=[lambda words, node=node: network.inside(node, words) for node in nodes])


def after():
    if cluster:
        cluster.drop_work()
        cluster.end()
    if network:
        network.end()


def both(one, other):
    return [(one, other), (other, one)]


def needs_cluster():
    if cluster is None:
        tap.skip(reason)


def again_and_again(ways, during, what):
    needs_cluster()
    for _ in range(ROUNDS):
        cluster.goes_on("before")
        cluster.cut(ways(), during, what)


def fails_over():
    tap.wait_until(cluster.lacks, 60, lambda: "no failover: " + cluster.last_logs())
    cluster.goes_on("a server was removed", every=False)


@tap.case
def a_primary_that_is_cut_off_from_the_manager_is_replaced():
    again_and_again(lambda: both(f"s{cluster.a_primary()}", "cm"), fails_over, "primary and manager")


@tap.case
def a_manager_that_is_cut_off_from_zookeeper_stops_nobody():
    def is_lost():
        log = cluster.log("cm")
        return log.rfind("zookeeper_lost") > log.rfind("zookeeper_connected")

    def serves_on():
        tap.wait_until(is_lost, 60, "the manager has lost ZooKeeper")
        cluster.goes_on("ZooKeeper is away")

    again_and_again(lambda: both("cm", "zk"), serves_on, "manager and ZooKeeper")


@tap.case
def two_servers_that_are_cut_off_from_each_other_go_on():
    """And meanwhile: a backup that its primary does not reach leaves the shards that this one leads."""
    again_and_again(lambda: both(*cluster.dice.sample(["s1", "s2", "s3"], 2)),
                    lambda: cluster.goes_on("a link is bad"), "two servers")  # fmt: skip


@tap.case
def what_is_cut_one_way_is_well_again_afterwards():
    def one_way():
        pair = [f"s{cluster.a_primary()}", cluster.dice.choice(["cm", "cm", "s1", "s2", "s3"])]
        return [cluster.dice.sample(pair, 2)] if pair[0] != pair[1] else [cluster.dice.sample(["cm", "zk"], 2)]

    again_and_again(one_way, lambda: None, "one way")


@tap.case
def every_acknowledged_write_is_there_and_each_key_was_a_register():
    needs_cluster()
    cluster.judge_work()
    tap.equal(cluster.end(), {name: 143 if name == "zk" else 0 for name in cluster.children}, cluster.last_logs())


sys.exit(tap.main(before, after))
