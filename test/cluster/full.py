#!/usr/bin/python3
"""A server whose PM is full answers "full" to puts; reads and deletes go on, and after deletes puts do."""

import os
import sys

from harness import Cluster, rowan_local, scratch, tap

VALUE_BYTES = 100_000


def before():
    global cluster, KEPT
    cluster = Cluster("full", "--pm-bytes", "96M", "--landing-segments", "4")
    KEPT = []


def key_of(kept):
    return kept if isinstance(kept, str) else f"key-{kept}"


def fill(cluster):
    """Puts until one is refused; how many were taken."""
    for number in range(1, 3000):
        done = cluster.rowan("put", f"key-{number}", "v" * VALUE_BYTES, seconds=60)
        if done.code != 0:
            tap.equal(done.code, 1)
            tap.contains(done.err, "full", "what was deleted makes space")
            return number - 1
    raise tap.Failed("never full")


@tap.case
def writes_are_refused_with_the_sentence_once_the_memory_is_full():
    KEPT.extend(range(1, fill(cluster) + 1))
    # 21 segments of 4 MiB, some of them landing zone and the open ends of logs.
    tap.check(len(KEPT) >= 100, f"full after {len(KEPT)} values of {VALUE_BYTES} bytes")


@tap.case
def reads_go_on():
    for number in (KEPT[0], KEPT[len(KEPT) // 2], KEPT[-1]):
        tap.equal(cluster.ok("get", f"key-{number}").out.rstrip("\n"), "v" * VALUE_BYTES)


@tap.case
def every_further_write_is_refused_and_none_hangs():
    refused = 0
    for number in range(30):
        done = cluster.rowan("put", f"more-{number}", "v" * VALUE_BYTES, seconds=60)
        if done.code == 0:
            KEPT.append(f"more-{number}")
            continue
        tap.contains(done.err, "full")
        refused += 1
    tap.check(refused > 0, "thirty more fitted")


@tap.case
def status_says_that_it_is_full():
    tap.contains(cluster.status_done().out.lower(), "full")
    found = cluster.status()["servers"]
    tap.check(any(server["full"] for server in found), found)


@tap.case
def verify_is_equal_on_a_full_cluster():
    tap.equal(cluster.ok("--json", "verify").json()["objects"], len(KEPT))


@tap.case
def a_full_cluster_starts_again_and_again():
    for _ in range(3):
        cluster.stop()
        cluster.start_again()
        tap.equal(cluster.ok("get", key_of(KEPT[0])).out.rstrip("\n"), "v" * VALUE_BYTES)
    tap.equal(cluster.ok("--json", "verify").json()["objects"], len(KEPT))


def done_in_time(*words, of=None):
    """Space comes back once segments are cleaned."""
    tap.wait_until(lambda: (of or cluster).rowan(*words, seconds=60).code == 0, 30, f"rowan {words[0]} {words[1]}")


@tap.case
def deletes_go_on_and_make_space_for_puts():
    half = len(KEPT) // 2
    for kept in KEPT[:half]:
        done_in_time("del", key_of(kept))
    del KEPT[:half]
    for number in range(20):
        done_in_time("put", f"again-{number}", "v" * VALUE_BYTES)
        KEPT.append(f"again-{number}")
    tap.equal(cluster.ok("--json", "verify").json()["objects"], len(KEPT))
    for server in cluster.status()["servers"]:
        tap.check(server["segments_cleaned"] > 0, server)


def everywhere(name):
    return [server[name] for server in cluster.status()["servers"]]


@tap.case
def after_everything_is_deleted_nothing_is_left_whatever_starts():
    for kept in KEPT:
        done_in_time("del", key_of(kept))
    tap.check(max(everywhere("tombstones")) > 0, "a delete leaves a tombstone")
    for _ in range(2):
        cluster.stop()  # what lies in open segments is closed by the next start
        cluster.start_again()
        tap.wait_until(lambda: max(everywhere("tombstones")) == 0, 60, "tombstones go")
        # A block for each command stays, for as long as its client is known: its record stub.
        tap.wait_until(lambda: max(everywhere("live_bytes")) < 2000 * 64, 60, "live bytes go")
        tap.equal(cluster.ok("--json", "verify").json()["objects"], 0)
        tap.check(cluster.rowan("get", key_of(KEPT[0])).code == 1, "it is back")
    # The newest segments of a worker's log stay (clean_choose.c).
    tap.wait_until(lambda: max(everywhere("dead_bytes")) <= 3 * 4 << 20, 60, "dead bytes go")


@tap.case
def the_cluster_stops_cleanly():
    cluster.stop()


@tap.case
def from_the_least_size_on_puts_are_taken_again_once_all_was_deleted():
    refused = rowan_local("start", "--dir", os.path.join(scratch(), "too-small"), "--pm-bytes", "32M")
    least = int(refused.err.split("(--pm-bytes ")[1].split("M")[0])
    for mib in (least, least + 8):
        small = Cluster(f"small-{mib}", "--pm-bytes", f"{mib}M")
        count = fill(small)
        tap.check(count * VALUE_BYTES >= 4 << 20, f"{mib} MiB are full after {count} values")
        for number in range(1, count + 1):
            done_in_time("del", f"key-{number}", of=small)
        for number in range(count // 2):
            done_in_time("put", f"again-{number}", "v" * VALUE_BYTES, of=small)
        small.stop()


sys.exit(tap.main(before))
