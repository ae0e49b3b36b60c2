#!/usr/bin/python3
"""A server of a cluster with leases is killed, or stands still for longer than its lease, amid a load: the others go on,
it comes back as a replica that fills, every acknowledged write is there and every key was one register.

ROWAN_FAILOVERS: how many are killed on each fabric; ROWAN_STOPS: stopped; ROWAN_SEED: runs a failed one again."""

import os
import sys

from failing import Failing, acknowledged
from harness import rowan_local, tap

KILLS = int(os.environ.get("ROWAN_FAILOVERS") or 5)
STOPS = int(os.environ.get("ROWAN_STOPS") or 1)


def again_and_again(cluster, rounds, fail):
    for number in range(rounds):
        cluster.goes_on("before")
        victim = fail()
        print(f"# round {number + 1}: server {victim}; {acknowledged(cluster.acked)} writes acknowledged", flush=True)
    cluster.goes_on("in the end")


def killed(*options):
    with Failing("killed-" + "-".join(options[1::2]), *options) as cluster:
        done = rowan_local("restart", "1", "--dir", cluster.directory)
        tap.check(done.code == 1 and "kill it first" in done.both, done.code, done.both)
        again_and_again(cluster, KILLS, cluster.kill_a_primary)


def stopped(*options):
    with Failing("stopped-" + "-".join(options[1::2]), *options) as cluster:
        again_and_again(cluster, STOPS, cluster.stop_a_primary)


@tap.case
def a_killed_server_is_replaced_and_comes_back_on_shm():
    killed("--fabric", "shm")


@tap.case
def a_killed_server_is_replaced_and_comes_back_on_tcp_with_zookeeper():
    killed("--fabric", "tcp", "--coord", "zookeeper")


@tap.case
def a_server_that_stood_still_comes_back_by_itself_on_shm():
    stopped("--fabric", "shm")


@tap.case
def a_server_that_stood_still_comes_back_by_itself_on_tcp():
    stopped("--fabric", "tcp")


@tap.case
def the_last_of_three_replicas_serves_alone_until_the_others_are_back():
    with Failing("alone", records=100_000) as cluster:
        cluster.goes_on("before")
        first, second, last = cluster.dice.sample((1, 2, 3), 3)
        cluster.kill([f"s{first}"])
        tap.wait_until(cluster.lacks, 60, "no failover")
        cluster.restart(first)
        tap.wait_until(cluster.fills, 60, "it does not fill")
        cluster.kill([f"s{second}"])
        tap.check(cluster.fills(), "it was filled before the second one was killed: more records")
        tap.wait_until(lambda: cluster.led_by() == {last, first} or cluster.led_by() == {last}, 60, "no failover")
        cluster.kill([f"s{first}"])
        tap.wait_until(lambda: cluster.replicas() == [(1, False)] * 12, 60, "no second failover")
        cluster.goes_on(f"server {last} is alone")
        tap.equal(cluster.led_by(), {last})
        tap.contains(cluster.rowan("status").out, "Replicas: 12 shards have fewer than 3")
        for number in (first, second):
            cluster.restart(number)
        cluster.wait_until_whole()
        tap.wait_until(lambda: cluster.rowan("status").code == 0, 60, "all shards are served")
        tap.check("Replicas:" not in cluster.rowan("status").out)
        cluster.goes_on("in the end")


sys.exit(tap.main())
