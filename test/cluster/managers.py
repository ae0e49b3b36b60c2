#!/usr/bin/python3
"""Several CMs over files: one leads, and whichever it is may be killed."""

import os
import re
import resource
import signal
import sys

from harness import Cluster, all_servers_hear, expect, leader, puts_again, rowan_local, scratch, tap

import prometheus
import wire

CONNECTIONS = 4096  # CM_MAX_CONNECTIONS
SMALL = ("--pm-bytes", "96M", "--landing-segments", "4")
SECONDS = 30


def managers_of(cluster):
    """What the file says that clients read."""
    with open(os.path.join(cluster.directory, "cm"), encoding="utf-8") as file:
        return file.read().strip().split(",")


@tap.case
def a_standby_takes_over_gives_ids_and_starts_the_cluster_again():
    cluster = Cluster("three", "--managers", "3", *SMALL)
    cluster.ok("put", "key", "first")
    term = cluster.status()["term"]
    first = leader(cluster)
    cluster.kill([first])
    puts_again(cluster, "second")
    second = leader(cluster)
    tap.check(second not in (None, first), "who leads now:", second)
    tap.check(cluster.status()["term"] > term)
    all_servers_hear(cluster)
    tap.equal({shard["epoch"] for shard in cluster.shards()}, {1})  # nobody was replaced

    servers = ("s1", "s2", "s3")
    cluster.kill(servers)
    for name in servers:
        cluster.launch(name)
    tap.wait_until(lambda: cluster.rowan("status").code == 0, SECONDS, "the cluster serves again")
    tap.equal(cluster.ok("get", "key").out.strip(), "second")
    tap.equal({shard["epoch"] for shard in cluster.shards()}, {2})

    cluster.launch(first)
    cluster.kill([name for name in ("cm", "cm2", "cm3") if name != first])  # it alone is left
    puts_again(cluster, "third")
    all_servers_hear(cluster)
    tap.contains(cluster.ok("verify").out, "equal")
    cluster.stop()


@tap.case
def a_manager_that_stands_still_or_is_gone_is_replaced_without_an_election():
    """Over files who was elected stays so while its process is there."""
    cluster = Cluster("still", "--managers", "2", "--lease-ms", "500", *SMALL)
    cluster.ok("put", "key", "first")
    first = leader(cluster)
    second = "cm2" if first == "cm" else "cm"
    cluster.signal(first, signal.SIGSTOP)
    puts_again(cluster, "second")
    tap.contains(cluster.log(second), "manager_took_over")
    cluster.signal(first, signal.SIGCONT)
    all_servers_hear(cluster)
    tap.equal(cluster.log(first).count("manager_took_over"), 0)  # it saw that another one is named
    cluster.kill([second])
    puts_again(cluster, "third")
    tap.contains(cluster.log(first), "manager_took_over")
    tap.equal({shard["epoch"] for shard in cluster.shards()}, {1})  # no server was replaced
    cluster.stop()


@tap.case
def all_managers_are_told_stopped_and_started_again():
    cluster = Cluster("known", "--managers", "2", "--fabric", "tcp", *SMALL)
    cluster.ok("put", "key", "value")
    found = rowan_local("status", "--dir", cluster.directory, "--json").json()
    tap.equal([one["id"] for one in found["processes"]], ["cm", "cm2", "s1", "s2", "s3"])
    addresses = managers_of(cluster)
    tap.equal(addresses, [one["address"] for one in found["processes"][:2]])
    cluster.stop()
    for more, count in (((), 2), (("--managers", "3"), 3)):
        done = rowan_local("start", "--dir", cluster.directory, "--json", *more)
        tap.equal(done.code, 0, done.both)
        tap.equal(managers_of(cluster), done.json()["cm"].split(","))
        tap.equal(len(managers_of(cluster)), count)
        tap.equal(managers_of(cluster)[0], addresses[0])
        tap.equal(cluster.ok("get", "key").out.strip(), "value")
        cluster.stop()


@tap.case
def a_manager_that_finds_nothing_stored_while_servers_run_says_what_recovers_them():
    cluster = Cluster("wiped", "--lease-ms", "500", *SMALL)
    cluster.kill(["cm"])
    os.unlink(os.path.join(cluster.directory, "coord", "value"))
    cluster.launch("cm")
    tap.wait_until(lambda: "error configuration_lost" in cluster.log("cm"), 30, "it says so")
    tap.contains(cluster.log("cm"), "--recover")
    cluster.kill(["s1", "s2", "s3", "cm"])


@tap.case
def a_full_manager_says_what_it_is_full_of_and_counts_whom_it_refuses():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * CONNECTIONS:
        tap.skip("too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * CONNECTIONS, hard))
    cluster = Cluster("full", "--fabric", "tcp", "--servers", "1", "--replicas", "1", "--metrics", "yes", *SMALL)
    address, held = cluster.processes()["cm"].address, []
    command = cluster.processes()["cm"].command
    try:
        while True:
            held.append(wire.Client(address))
            refusal = held[-1].welcome()
            if refusal != 0:
                break
        tap.check(len(held) > CONNECTIONS - 100, len(held))
        tap.equal(refusal, -26)  # ROWAN_ETOOMANY
        tap.wait_until(lambda: "warn connections_refused" in cluster.log("cm"), 20, "it says so")
        told = prometheus.get(command[command.index("--metrics") + 1], "/metrics")[1]
        tap.check(re.search(r"^rowan_cm_connections_refused_total [1-9]", told, re.MULTILINE), told[:2000])
    finally:
        for one in held:
            one.socket.close()
    tap.wait_until(lambda: cluster.rowan("status").code == 0, 30, "there is a place again")
    cluster.stop()


@tap.case
def wrong_managers_are_one_sentence():
    place = os.path.join(scratch(), "a,b")
    expect(rowan_local("start", "--dir", place, *SMALL), 1, "comma")
    expect(rowan_local("start", "--dir", place, "--managers", "9"), 2, "from 1 to 8")
    tap.check(not os.path.exists(place))


sys.exit(tap.main())
