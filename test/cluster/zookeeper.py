#!/usr/bin/python3
"""Clusters whose configuration lies in real ZooKeeper servers, which go away and return; a CM that is killed."""

import json
import os
import subprocess
import sys

from harness import Cluster, expect, leader, program, puts_again, rowan_local, run, scratch, tap
from local import zookeeper
from local.failure import Failure

SMALL = ("--pm-bytes", "128M", "--landing-segments", "4")
SECONDS = 60  # a new session, or a new majority


def needs_zookeeper():
    try:
        zookeeper.check_installed()
    except Failure as why:
        tap.skip(why)


def puts_of(status):
    if isinstance(status, Cluster):
        status = status.status()
    return sum(server["puts"] for server in status["servers"])


@tap.case
def a_cluster_whose_zookeeper_is_away_serves_on():
    needs_zookeeper()
    cluster = Cluster("away", "--coord", "zookeeper", *SMALL)
    cluster.ycsb("load", 2000)
    before = cluster.status()
    with subprocess.Popen(
        [program("rowan-ycsb"), "--dir", cluster.directory, "--workload", "a", "--profile", "zippydb", "--records",
         "2000", "--seconds", "10", "--threads", "1", "--json"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ) as load:  # fmt: skip
        tap.wait_until(lambda: puts_of(cluster) > puts_of(before), SECONDS, "the load has begun")
        cluster.kill(["z1"])
        tap.wait_until(lambda: "zookeeper_lost" in cluster.log("cm"), SECONDS, "the CM has lost ZooKeeper")
        puts = puts_of(cluster)  # what was stored last is told
        tap.wait_until(lambda: puts_of(cluster) > puts, SECONDS, "puts go on")
        tap.check(load.poll() is None, "the load was over before ZooKeeper was away")
        out = load.communicate(timeout=120)[0]
        tap.equal(load.returncode, 0, out[-2000:])
        tap.equal(json.loads(out)["errors"], 0)
    cluster.launch("z1")
    puts_again(cluster, "value")
    tap.check(cluster.status()["term"] > before["term"])
    tap.contains(cluster.ok("verify").out, "equal")
    cluster.stop()
    cluster.remove()


@tap.case
def a_majority_of_three_is_enough_and_the_data_start_again_on_all():
    needs_zookeeper()
    cluster = Cluster("three", "--coord", "zookeeper", "--zookeepers", "3", *SMALL)
    cluster.ok("put", "key", "first")
    connected = [line for line in cluster.log("cm").splitlines() if "zookeeper_connected" in line][-1]
    mine = [name for name, one in cluster.processes().items()
            if name[0] == "z" and f"server={one.address} " in connected]  # fmt: skip
    tap.equal(len(mine), 1, connected)
    cluster.kill(mine)
    puts_again(cluster, "second")
    cluster.stop()
    cluster.start_again()
    tap.equal(cluster.ok("get", "key").out.strip(), "second")
    cluster.stop()
    cluster.remove()


@tap.case
def a_cm_that_was_killed_leads_again_when_its_old_session_is_over():
    needs_zookeeper()
    cluster = Cluster("killed", "--coord", "zookeeper", *SMALL)
    cluster.ok("put", "key", "before")
    cluster.kill(["cm"])
    cluster.launch("cm")
    puts_again(cluster, "after")
    cluster.stop()
    cluster.remove()


@tap.case
def a_standby_leads_when_the_session_of_a_killed_leader_is_over():
    needs_zookeeper()
    cluster = Cluster("standby", "--coord", "zookeeper", "--managers", "2", *SMALL)
    cluster.ok("put", "key", "before")
    cluster.kill([leader(cluster)])
    puts_again(cluster, "after")
    cluster.stop()
    cluster.remove()


def as_an_operator(cluster, command):
    """What ZooKeeper's own client, which has no key, says to that."""
    place = cluster.processes()["z1"].address
    client = ["java", "-cp", zookeeper.JAR, "org.apache.zookeeper.ZooKeeperMain", "-server", place, *command]
    done = subprocess.run(client, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout + done.stderr


@tap.case
def who_has_not_the_managers_key_reads_and_changes_nothing():
    needs_zookeeper()
    cluster = Cluster("closed", "--coord", "zookeeper", "--managers", "2", *SMALL)
    cluster.ok("put", "key", "before")
    tap.contains(as_an_operator(cluster, ["getAcl", zookeeper.PATH + "/value"]), "'world,'anyone")
    cluster.stop()
    key = os.path.join(cluster.directory, "cluster-key")
    with open(key, "w", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write("a key of the test\n")
    cluster.start_again()
    cluster.kill([leader(cluster)])
    puts_again(cluster, "after")
    for node in ("", "/value"):
        tap.contains(as_an_operator(cluster, ["get", zookeeper.PATH + node]), "ermission")
        tap.contains(as_an_operator(cluster, ["set", zookeeper.PATH + node, "mine"]), "ermission")
    tap.equal(cluster.ok("get", "key").out.strip(), "after")
    cluster.stop()
    cluster.remove()


@tap.case
def what_is_missing_or_wrong_is_one_sentence():
    place = os.path.join(scratch(), "wrong")
    expect(rowan_local("start", "--dir", place, "--zookeepers", "3"), 2, "--coord zookeeper")
    path = os.environ["PATH"]
    os.environ["PATH"] = scratch()  # there is no java
    try:
        expect(rowan_local("start", "--dir", place, "--coord", "zookeeper"), 1, "not installed", "install-deps zookeeper")
    finally:
        os.environ["PATH"] = path
    tap.check(not os.path.exists(place))
    cm = [program("rowan-cm"), "--address", f"shm:{place}", "--cluster-servers", "1", "--replicas", "1", "--coord"]
    expect(run([*cm, "zookeeper"]), 2, "coord zookeeper needs zookeeper")
    expect(run([*cm, "zookeeper", "--zookeeper", "here"]), 2, "HOST:PORT")
    expect(run([*cm, "file", "--coord-dir", scratch(), "--zookeeper", "a:1"]), 2, "belongs to coord zookeeper")


sys.exit(tap.main())
