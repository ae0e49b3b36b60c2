#!/usr/bin/python3
"""Keys and values from the smallest to the largest, by the SDK and the command line (Show 5)."""

import random
import sys

from harness import Cluster, program, run, tap

VALUE_SIZES = (0, 1, 1000, 65536, 1048576)
KEY_SIZES = (1, 1024)
# One argument of a command holds 128 KiB (MAX_ARG_STRLEN, execve(2)); larger ones come by pipe.
MOST_BYTES_AN_ARGUMENT = 131071
PUT = set()


def before():
    global cluster
    cluster = Cluster("sizes", "--pm-bytes", "512M")


def letters(count, seed):
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=count))


@tap.case
def every_size_makes_the_round_trip_through_the_sdk():
    done = run([program("cluster_sizes"), cluster.directory], seconds=300)
    print("\n".join("# " + line for line in done.out.splitlines()))
    tap.equal(done.code, 0, done.both)
    tap.check("not ok" not in done.out)


@tap.case
def every_size_makes_the_round_trip_through_the_command_line():
    for key_bytes in KEY_SIZES:
        for value_bytes in VALUE_SIZES:
            key, value = letters(key_bytes, value_bytes), letters(value_bytes, key_bytes)
            if value_bytes <= MOST_BYTES_AN_ARGUMENT:
                done = cluster.rowan("put", key, value)
            else:
                done = cluster.rowan("put", key, "-", input=value)
            tap.equal(done.code, 0, key_bytes, value_bytes, done.err)
            PUT.add(key)
            done = cluster.rowan("get", key)
            tap.equal(done.code, 0, key_bytes, value_bytes, done.err)
            tap.check(done.out in (value, value + "\n"), key_bytes, value_bytes, "differ")


@tap.case
def the_large_ones_are_equal_on_all_replicas():
    tap.equal(cluster.ok("--json", "verify").json()["objects"], len(PUT))


@tap.case
def the_cluster_stops_cleanly():
    cluster.stop()


sys.exit(tap.main(before))
