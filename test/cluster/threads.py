#!/usr/bin/python3
"""Servers with two workers and two digests on four threads: what ThreadSanitizer looks at."""

import sys
import threading

from harness import DIVISOR, Cluster, tap

RECORDS = 200_000 // DIVISOR
OPERATIONS = 200_000 // DIVISOR


def before():
    global cluster
    cluster = Cluster("threads", "--pm-bytes", "512M", "--workers", "2", "--digests", "2",
                      "--reactors", "4", "--shards", "12", "--landing-segments", "8")  # fmt: skip


@tap.case
def every_worker_owns_shards():
    owners = {(shard["primary"], shard["worker"]) for shard in cluster.shards()}
    tap.equal(owners, {(server, worker) for server in (1, 2, 3) for worker in (0, 1)})


@tap.case
def a_load_and_a_mixed_workload_have_no_errors():
    cluster.ycsb("load", RECORDS)
    cluster.ycsb("a", RECORDS, "--operations", OPERATIONS)


@tap.case
def verify_is_equal_after_them():
    tap.equal(cluster.ok("--json", "verify", seconds=300).json()["objects"], RECORDS)


@tap.case
def status_answers_while_writes_go_on():
    failures = []

    def work():
        try:
            cluster.ycsb("a", RECORDS, "--operations", OPERATIONS)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    done = cluster.rowan("status")
    thread.join()
    tap.equal(done.code, 0, done.both)
    tap.equal(failures, [])
    tap.equal(cluster.ok("--json", "verify", seconds=300).json()["objects"], RECORDS)


@tap.case
def the_cluster_stops_cleanly_and_its_logs_hold_no_report():
    cluster.stop()


if __name__ == "__main__":
    sys.exit(tap.main(before))
