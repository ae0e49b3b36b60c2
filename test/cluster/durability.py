#!/usr/bin/python3
"""Each durability setting serves, and is shown beside the figures."""

import os
import sys

from harness import DIVISOR, Cluster, scratch, tap

RECORDS = 20_000 // DIVISOR


def file_system(path):
    """The type of the file system that a path lies on."""
    best = ("", "")
    with open("/proc/mounts", encoding="utf-8") as file:
        for line in file:
            place, kind = line.split()[1:3]
            if os.path.commonpath([place, path]) == place and len(place) >= len(best[0]):
                best = (place, kind)
    return best[1]


def serves_and_says(durability):
    if file_system(os.path.realpath(scratch())) == "tmpfs":
        tap.skip("the clone lies on tmpfs, which syncs nothing: durability is none there")
    cluster = Cluster(durability, "--pm-bytes", "128M", "--landing-segments", "4",
                      "--durability", durability)  # fmt: skip
    found = cluster.ycsb("load", RECORDS)
    tap.equal(found["durability"], durability)
    cluster.ycsb("a", RECORDS, "--operations", RECORDS)
    tap.equal(cluster.ok("--json", "verify", seconds=300).json()["objects"], RECORDS)
    for server in cluster.ok("--json", "status").json()["servers"]:
        tap.equal(server["durability"], durability)
    cluster.stop()


@tap.case
def a_cluster_that_fences_serves_and_says_so():
    serves_and_says("fence")


@tap.case
def a_cluster_that_syncs_behind_serves_and_says_so():
    serves_and_says("async")


if __name__ == "__main__":
    sys.exit(tap.main())
