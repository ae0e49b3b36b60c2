#!/usr/bin/python3
"""Clusters that fence, or sync behind; again.py has those that do neither."""

import os
import sys

from harness import DIVISOR, Cluster, scratch, tap

RECORDS = 20_000 // DIVISOR
SMALL = ("--pm-bytes", "128M", "--landing-segments", "4")


def file_system(path):
    """The type of the file system that a path lies on."""
    best = ("", "")
    with open("/proc/mounts", encoding="utf-8") as file:
        for line in file:
            place, kind = line.split()[1:3]
            if os.path.commonpath([place, path]) == place and len(place) >= len(best[0]):
                best = (place, kind)
    return best[1]


def need_a_disk():
    if file_system(os.path.realpath(scratch())) == "tmpfs":
        tap.skip("the clone lies on tmpfs, which syncs nothing: durability is none there")


@tap.case
def a_cluster_that_syncs_behind_serves_and_says_so():
    need_a_disk()
    cluster = Cluster("async", *SMALL, "--durability", "async")
    found = cluster.ycsb("load", RECORDS)
    tap.equal(found["durability"], "async")
    cluster.ycsb("a", RECORDS, "--operations", RECORDS)
    tap.equal(cluster.ok("--json", "verify", seconds=300).json()["objects"], RECORDS)
    for server in cluster.status()["servers"]:
        tap.equal(server["durability"], "async")
    cluster.stop()


def syncs_of(cluster):
    return sum(server["syncs"] for server in cluster.status()["servers"])


def syncs_per_write(cluster, depth, writes):
    """Of the servers' own files, by themselves."""
    before = syncs_of(cluster)
    cluster.ycsb("load", writes, threads=1, depth=depth)
    return (syncs_of(cluster) - before) / writes


@tap.case
def writes_that_are_under_way_together_share_their_syncs():
    need_a_disk()
    cluster = Cluster("shared", *SMALL, "--durability", "fence")
    alone = syncs_per_write(cluster, 1, max(200 // DIVISOR, 50))
    together = syncs_per_write(cluster, 64, max(6400 // DIVISOR, 1000))
    print(f"# {alone:.2f} syncs a write at depth 1, {together:.3f} at depth 64", flush=True)
    tap.check(alone >= 1, f"a write alone has {alone:.2f} syncs: it was answered without one")
    tap.check(together < alone / 2, f"{together:.3f} syncs a write at depth 64, {alone:.2f} alone")
    cluster.stop()


sys.exit(tap.main())
