#!/usr/bin/python3
"""The coordination service has lost the configuration: --recover makes it anew from what the servers stored."""

import os
import shutil
import sys

from harness import Cluster, expect, program, rowan_local, run, scratch, tap
from local import members

SMALL = ("--pm-bytes", "128M")
RECORDS = 2000
CONFIG = 4202496 + 4096  # offset of the first copy


def lose(cluster, *names):
    """What the coordination service keeps; or the memory of a server, whose place holds zeros then."""
    for name in names:
        path = os.path.join(cluster.directory, name)
        if name == "coord":
            shutil.rmtree(path)
        else:
            os.truncate(path, 0)
            os.truncate(path, 128 << 20)


def start(cluster, *options):
    return rowan_local("start", "--dir", cluster.directory, *options, seconds=200)


def check(cluster, acked):
    done = run([program("rowan-ycsb"), "--dir", cluster.directory, "check", acked], seconds=200)
    tap.equal(done.code, 0, done.both[-2000:])
    tap.equal(cluster.rowan("verify", seconds=100).code, 0)


def terms(cluster, number):
    path = os.path.join(cluster.directory, f"s{number}.pm")
    done = run([program("rowan-server"), "--check", path, "--json"])
    tap.equal(done.code, 0, done.both[:2000])
    copies = done.json()["configurations"]
    tap.check(all(copy["state"] == "whole" and copy["members"] == 3 for copy in copies), copies)
    return [copy["term"] for copy in copies]


@tap.case
def all_data_is_there_after_the_configuration_was_lost():
    cluster = Cluster("recovered", *SMALL)
    acked = os.path.join(scratch(), "acked")
    cluster.ycsb("load", RECORDS, "--acked", acked)
    cluster.stop()
    stored = terms(cluster, 1)
    tap.check(stored[0] == stored[1] and all(terms(cluster, number) == stored for number in (2, 3)), stored)
    lose(cluster, "coord")
    done = start(cluster)
    tap.equal(done.code, 1, done.both)
    tap.contains(done.err, "--recover")
    os.mkdir(os.path.join(cluster.directory, "coord"))
    with open(os.path.join(cluster.directory, "coord", "lock"), "wb"):
        pass
    done = start(cluster)
    tap.equal(done.code, 1, done.both)
    tap.contains(done.err, "the configuration manager knows no cluster: restore its coordination directory")

    lose(cluster, "coord")
    done = start(cluster, "--recover")
    tap.equal(done.code, 0, done.both, cluster.last_logs())
    tap.contains(cluster.log("cm"), "changes that no server had adopted are lost")
    check(cluster, acked)
    cluster.ok("put", "key", "value")
    cluster.stop()
    tap.check(terms(cluster, 1)[0] >= stored[0] + (1 << 32), "the term")

    done = start(cluster, "--recover")
    tap.equal(done.code, 1, done.both)
    tap.contains(done.err, "the stored configuration is there")
    cluster.start_again()
    tap.equal(cluster.ok("get", "key").out.strip(), "value")
    check(cluster, acked)
    cluster.stop()


@tap.case
def one_server_lost_its_memory_too():
    cluster = Cluster("halved", *SMALL)
    acked = os.path.join(scratch(), "acked-halved")
    cluster.ycsb("load", RECORDS, "--acked", acked)
    cluster.stop()
    lose(cluster, "coord", "s1.pm")
    done = start(cluster, "--recover")
    tap.equal(done.code, 0, done.both, cluster.last_logs())
    tap.contains(cluster.log("cm"), "replicas_dropped")
    check(cluster, acked)
    cluster.stop()


def recover(cluster):
    """Whose processes were killed: as rowan-local would, and without waiting until all is served."""
    os.mkdir(os.path.join(cluster.directory, "coord"))
    manager = cluster.processes()["cm"]
    manager.command = [*manager.command, "--recover"]
    members.launch(cluster.directory, manager)
    for name in "s1", "s2", "s3":
        cluster.launch(name)


@tap.case
def with_leases_what_one_server_alone_held_waits_and_is_given_up_and_the_rest_is_served():
    cluster = Cluster("alone", "--lease-ms", "500", "--replicas", "1", *SMALL)
    cluster.ok("balance", "off")
    gone = cluster.shards()[0]["primary"]
    keys = {cluster.shard_of(key)["primary"]: key for key in map(str, range(50))}
    for key in keys.values():
        cluster.ok("put", key, "before")
    cluster.kill(["cm", "s1", "s2", "s3"])
    lose(cluster, "coord", f"s{gone}.pm")
    recover(cluster)

    done = []
    for number in set(keys) - {gone}:
        found = lambda number=number: done.append(cluster.rowan("get", keys[number])) or done[-1].code == 0
        tap.wait_until(found, 60, lambda: done[-1].both + cluster.last_logs())
        tap.equal(done[-1].out.strip(), "before")
        cluster.ok("put", keys[number], "after")
    tap.contains(cluster.log("cm"), " shards_wait ")
    expect(cluster.rowan("give-up", "server", str(gone)), 1, "lost for good")
    cluster.ok("--yes", "give-up", "server", str(gone))
    tap.contains(cluster.status_done().out, "Possible loss: ")
    for number, key in keys.items():
        found = cluster.rowan("get", key)
        tap.equal((found.code, found.out.strip()), (1, "") if number == gone else (0, "after"), found.both)
    cluster.ok("put", keys[gone], "again")
    tap.contains(cluster.ok("verify").out, "equal")
    cluster.stop()


@tap.case
def a_server_whose_copies_are_both_damaged_ends_the_recovery():
    cluster = Cluster("uncertain", *SMALL)
    cluster.stop()
    path = os.path.join(cluster.directory, "s2.pm")
    with open(path, "rb") as file:
        data = file.read(12 << 20)
    address = f"shm:{cluster.directory}".encode()  # a member's, in each copy
    places = [data.find(address, CONFIG), data.rfind(address)]
    tap.check(0 < places[0] < places[1] - (4 << 20), "both copies:", places)
    with open(path, "r+b") as file:
        for place in places:
            file.seek(place)
            file.write(b"x")
    done = run([program("rowan-server"), "--check", path])
    expect(done, 1, "s2.pm")
    tap.contains(done.out, "2 copies of the configuration are damaged")
    lose(cluster, "coord")
    done = start(cluster, "--recover")
    tap.equal(done.code, 1, done.both)
    tap.contains(done.err, "server 2 holds data and no whole copy of its configuration")


sys.exit(tap.main())
