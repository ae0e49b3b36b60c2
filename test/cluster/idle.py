#!/usr/bin/python3
"""An idle cluster costs next to nothing (the issue's Show 8)."""

import os
import sys
import time

from harness import Cluster, tap
from local import process

SECONDS = 5
MOST_CPU_SECONDS = 0.02 * SECONDS  # 2 % of one core, all processes together
TICKS = os.sysconf("SC_CLK_TCK")


def before():
    global cluster
    cluster = Cluster("idle", "--pm-bytes", "512M")
    cluster.ycsb("load", 20_000)
    cluster.ok("verify")  # equal: everything is digested
    tap.wait_until(at_rest, 60, "the cluster comes to rest after the load")


def cpu_seconds():
    """utime + stime of all processes of the cluster (proc(5), fields 14 and 15)."""
    total = 0
    for one in cluster.processes().values():
        fields = process.stat_fields(one.pid)
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def at_rest():
    began = cpu_seconds()
    time.sleep(0.5)
    return cpu_seconds() - began <= 0.02


def segments():
    """What each server says of its segments."""
    found = cluster.status()["servers"]
    return {
        server["server"]: {name: server[name] for name in server if name.startswith("segments")}
        for server in found
    }


@tap.case
def an_idle_cluster_uses_under_2_percent_of_a_core_and_its_logs_and_segments_do_not_grow():
    counted, logs = segments(), cluster.logs()
    tap.check(all(counted.values()), "rowan status --json names no segments:", counted)
    tap.wait_until(at_rest, 30, "rest after rowan status")
    began = cpu_seconds()
    time.sleep(SECONDS)
    used = cpu_seconds() - began
    print(f"# {used:.2f} s of processor time in {SECONDS} s, {used / SECONDS:.1%} of a core")
    tap.check(used < MOST_CPU_SECONDS, f"{used:.2f} s of processor time in {SECONDS} s")
    for name, text in cluster.logs().items():
        tap.equal(text, logs[name], name)
    tap.equal(segments(), counted)


@tap.case
def the_cluster_stops_cleanly():
    cluster.stop()


sys.exit(tap.main(before))
