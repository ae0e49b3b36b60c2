#!/usr/bin/python3
"""A server whose PM is full answers "full" to puts; reads and deletes go on, and after deletes puts do."""

import sys

from harness import Cluster, tap

VALUE_BYTES = 100_000


def before():
    global cluster, KEPT
    cluster = Cluster("full", "--pm-bytes", "96M", "--landing-segments", "4")
    KEPT = []


def key_of(kept):
    return kept if isinstance(kept, str) else f"key-{kept}"


@tap.case
def writes_are_refused_with_the_sentence_once_the_memory_is_full():
    value = "v" * VALUE_BYTES
    for number in range(1, 3000):
        done = cluster.rowan("put", f"key-{number}", value, seconds=60)
        if done.code != 0:
            tap.equal(done.code, 1)
            tap.contains(done.err, "full")
            break
        KEPT.append(number)
    tap.check(len(KEPT) < 2000, "never full")
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
    tap.contains(cluster.ok("status").out.lower(), "full")
    found = cluster.ok("--json", "status").json()["servers"]
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


def done_in_time(*words):
    """Space comes back once segments are cleaned."""
    tap.wait_until(lambda: cluster.rowan(*words, seconds=60).code == 0, 30, f"rowan {words[0]} {words[1]}")


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
    for server in cluster.ok("--json", "status").json()["servers"]:
        tap.check(server["segments_cleaned"] > 0, server)


def everywhere(name):
    return [server[name] for server in cluster.ok("--json", "status").json()["servers"]]


@tap.case
def after_everything_is_deleted_nothing_is_left_whatever_starts():
    for kept in KEPT:
        done_in_time("del", key_of(kept))
    tap.check(max(everywhere("tombstones")) > 0, "a delete leaves a tombstone")
    for _ in range(2):
        cluster.stop()  # what lies in open segments is closed by the next start
        cluster.start_again()
        tap.wait_until(lambda: max(everywhere("tombstones")) == 0, 60, "tombstones go")
        # Record stubs of the last operations stay: a block each.
        tap.wait_until(lambda: max(everywhere("live_bytes")) < 256 * 64, 60, "live bytes go")
        tap.equal(cluster.ok("--json", "verify").json()["objects"], 0)
        tap.check(cluster.rowan("get", key_of(KEPT[0])).code == 1, "it is back")
    # The newest segments of a worker's log stay (clean_choose.c).
    tap.wait_until(lambda: max(everywhere("dead_bytes")) <= 3 * 4 << 20, 60, "dead bytes go")


@tap.case
def the_cluster_stops_cleanly():
    cluster.stop()


sys.exit(tap.main(before))
