#!/usr/bin/python3
"""Mangled messages at every tcp endpoint of a cluster, by a seed, while others work: they see no error;
no process ends, none leaks, memory is bounded (the issue's Show 4).

    ROWAN_MANGLED   how many mangled messages (default 40000, sanitized builds 20000)
    ROWAN_SEED      runs a failed one again

Each message has a connection of its own, as the first nonsense ends it: a greeting, up to three good
messages, then a mangled one. Some are mangled so that they are right again; then the server answers."""

import os
import random
import sys
import time

from guarded import doors
from harness import DIVISOR, Cluster, tap
from mangler import Mangler
from sender import Sender
from work import Counters, anonymous_bytes, chosen_seed, counters_add_up

MESSAGES = int(os.environ.get("ROWAN_MANGLED") or (40_000 if DIVISOR == 1 else 20_000))
MOST_GROWTH_BYTES = 96 << 20  # of anonymous memory; ASan's quarantine is made small below


def memory():
    return {name: anonymous_bytes(one.pid) for name, one in cluster.processes().items()}


def before():
    global cluster, counters
    # Freed memory that ASan keeps to find late uses, 256 MiB by default, would hide a leak.
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8"
    cluster = Cluster("mangled", "--pm-bytes", "1G", "--fabric", "tcp")
    counters = Counters(cluster, "beside", pause_us=5000)
    counters.wait_for_progress()


@tap.case
def mangled_messages_end_their_own_connection_and_nothing_else():
    seed = chosen_seed()
    dice = random.Random(seed)
    status = cluster.status()
    mangler = Mangler(dice, cluster.shards(), int(status["cluster"], 16),
                      [server["server"] for server in status["servers"]])  # fmt: skip
    sender = Sender(doors(cluster), mangler, dice)
    try:
        sender.send(MESSAGES // 4)
        warm = memory()
        began = time.monotonic()
        for _ in range(8):
            sender.send((MESSAGES - MESSAGES // 4) // 8)
            counters.wait_for_progress()  # fails if one has ended
        seconds = time.monotonic() - began
        grown = {name: count - warm[name] for name, count in memory().items()}
    finally:
        sender.close()
    print(f"# {sender.sent} mangled messages, {sender.sent * 3 / 4 / seconds:.0f} a second;",
          f"{sender.answered} were answered; ", dict(mangler.kinds))  # fmt: skip
    print("# memory grew by", {name: f"{count >> 10} KiB" for name, count in grown.items()})
    for name, count in grown.items():
        tap.check(count < MOST_GROWTH_BYTES, f"{name} grew by {count} bytes")
    tap.check(sender.sent >= MESSAGES * 0.99)
    for name, one in cluster.processes().items():
        tap.equal(one.state(), "running", name, cluster.log(name)[-3000:])


@tap.case
def the_clients_beside_saw_no_error():
    acknowledged, unknown = counters.finish()
    tap.equal(sum(unknown), 0, "unknown")
    counters_add_up(cluster, acknowledged, unknown)


@tap.case
def the_replicas_are_equal_and_the_cluster_stops_without_a_leak():
    cluster.ok("verify", seconds=300)
    cluster.stop()


if __name__ == "__main__":
    try:
        sys.exit(tap.main(before))
    finally:
        if "counters" in globals():
            counters.kill()
