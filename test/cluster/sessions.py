#!/usr/bin/python3
"""Whole sessions that go wrong somewhere, by a seed, at every tcp endpoint of a cluster that requires logins: greeting, login, requests,
control messages, blocks; of strangers, of users, of servers with the cluster's key. Others work beside them: no process ends, no
sanitizer and no server complains, nothing that was acknowledged is lost, and nobody is left.

    sessions.py [--seconds N]

--seconds, or ROWAN_SESSIONS_SECONDS: how long (60 in a sanitized build, else 10). ROWAN_SEED runs one again."""

import argparse
import os
import random
import sys
import time

from guarded import Believer, Used, all_run, doors, none_complains, wait_until_they_are_gone
from harness import DIVISOR, tap
from mangler import SERVERS, SHAPES, Sessions
from sender import Sender
from work import Counters, chosen_seed, counters_add_up

import wire

BATCH = 500


def before():
    global cluster, counters, believer
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8"
    cluster = Used("sessions", "--fabric", "tcp", "--pm-bytes", "256M", "--servers", str(SERVERS))
    cluster.kill([f"s{SERVERS}"])
    tap.wait_until(lambda: len(cluster.status()["servers"]) == SERVERS - 1, 60, f"server {SERVERS} is removed")
    believer = Believer(cluster)
    counters = Counters(cluster, "beside", pause_us=5000)
    counters.wait_for_progress()


@tap.case
def sessions_that_go_wrong_hurt_nobody():
    dice = random.Random(chosen_seed())
    sessions = Sessions(cluster, dice)
    sessions.learn(cluster)
    endpoints = doors(cluster)
    sender = Sender(endpoints, sessions, dice)
    end = time.monotonic() + options.seconds
    try:
        while time.monotonic() < end:
            sender.send(BATCH)
            counters.wait_for_progress(meanwhile=believer.start_again)
    except tap.Failed:
        cluster.no_sanitizer_reports()
        raise
    finally:
        sender.close()
    print(f"# {sender.sent} sessions, {sender.answered} answered, {sender.given_up} given up", flush=True)
    for kind, count in sorted(sessions.kinds.items()):
        print(f"#   {kind}: {count}")
    tap.check(sessions.kinds["blocks, error 0"], "no member's proof was right")
    wait_until_they_are_gone({port for _, port in endpoints})
    counters.wait_for_progress(meanwhile=believer.start_again)
    all_run(cluster, but=f"s{SERVERS}")
    none_complains(cluster)


@tap.case
def one_that_knows_a_later_configuration_is_believed_and_that_is_said():
    believer.wait_until_renewed()
    sessions = Sessions(cluster, random.Random(1))
    sessions.learn(cluster)
    sessions.incarnation, sessions.known[1] = 1, sessions.known[1] + 5
    hello = wire.greeting(peer=wire.SERVER, number=SERVERS, cluster=sessions.cluster_id, incarnation=1)
    with wire.Client("tcp:%s:%d" % sessions.manager, hello=hello) as client:
        tap.equal(client.log_in(sessions.server, client.take(wire.GREETING_BYTES)), None)
        client.send(wire.control("join", {field: sessions.value(kind) for field, kind in SHAPES["join"].items() if field < 9 or kind in ("term", "layout")}))
        stuck = lambda: "no server has a lease" in cluster.rowan("status").err  # noqa: E731
        tap.wait_until(lambda: believer.believes() and stuck(), 60, lambda: cluster.log("cm")[-3000:])
        tap.equal(cluster.rowan("--json", "status").code, 1)
    believer.start_again()
    counters.wait_for_progress()


@tap.case
def all_that_was_acknowledged_is_there():
    acknowledged, unknown = counters.finish()
    counters_add_up(cluster, acknowledged, unknown)
    cluster.ok("verify", seconds=300)
    cluster.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("ROWAN_SESSIONS_SECONDS") or (10 if DIVISOR == 1 else 60)))
    options = parser.parse_args()
    try:
        sys.exit(tap.main(before))
    finally:
        if "counters" in globals():
            counters.kill()
