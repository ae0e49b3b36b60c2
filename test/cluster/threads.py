#!/usr/bin/python3
"""Servers with two workers and two digests on four threads, on each fabric: what ThreadSanitizer looks
at."""

import sys
import threading

from harness import DIVISOR, Cluster, tap

RECORDS = OPERATIONS = 80_000 // min(DIVISOR, 8)
clusters = {}


def before():
    for fabric in ("shm", "tcp"):
        clusters[fabric] = Cluster(
            "threads-" + fabric, "--fabric", fabric, "--pm-bytes", "512M", "--workers", "2",
            "--digests", "2", "--reactors", "4", "--shards", "12", "--landing-segments", "8",
        )  # fmt: skip


def every_worker_owns_shards(cluster):
    owners = {(shard["primary"], shard["worker"]) for shard in cluster.shards()}
    tap.equal(owners, {(server, worker) for server in (1, 2, 3) for worker in (0, 1)})


def a_load_and_a_mixed_workload_have_no_errors(cluster):
    cluster.ycsb("load", RECORDS)
    cluster.ycsb("a", RECORDS, "--operations", OPERATIONS)


def verify_is_equal_after_them(cluster):
    tap.equal(cluster.ok("--json", "verify", seconds=300).json()["objects"], RECORDS)


def status_answers_while_writes_go_on(cluster):
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


def the_cluster_stops_cleanly_and_its_logs_hold_no_report(cluster):
    cluster.stop()


for _fabric in ("shm", "tcp"):
    for _case in (
        every_worker_owns_shards,
        a_load_and_a_mixed_workload_have_no_errors,
        verify_is_equal_after_them,
        status_answers_while_writes_go_on,
        the_cluster_stops_cleanly_and_its_logs_hold_no_report,
    ):

        def _run(case=_case, fabric=_fabric):
            case(clusters[fabric])

        _run.__name__ = f"{_case.__name__}_on_{_fabric}"
        tap.case(_run)

sys.exit(tap.main(before))
