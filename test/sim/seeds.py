#!/usr/bin/python3
"""A range of seeds: nothing is found, and everything that may be injected was."""

import harness
import tap
from harness import sim

LAST = max(60 // harness.DIVISOR, 4)
KEPT = (270, 581, 933, 934, 11043)  # found something; README.md, "What it has found"
KEPT_FAILOVERS = (219, 1362, 2087, 2150, 2326, 2676, 5058)  # likewise
done = None


def run():
    global done
    done = sim("--seeds", f"1:{LAST}", seconds=1700)
    harness.show(done.out)


@tap.case
def no_seed_finds_anything():
    tap.equal(done.code, 0, done.err)


@tap.case
def seeds_that_have_found_something_find_nothing_any_more():
    kept = [(seed, ()) for seed in KEPT] + [(seed, ("--failovers", "100")) for seed in KEPT_FAILOVERS]
    for seed, options in kept[: max(len(kept) // harness.DIVISOR, 1)]:
        again = sim("--seeds", str(seed), *options, seconds=300)
        tap.equal(again.code, 0, again.out, again.err)


@tap.case
def nor_does_one_in_which_servers_are_replaced():
    last = max(60 // harness.DIVISOR, 3)
    found = sim("--seeds", f"1:{last}", "--failovers", "100", seconds=1700)
    harness.show(found.out)
    tap.equal(found.code, 0, found.err)
    if harness.DIVISOR == 1:
        for what in ("shards got another primary", "replicas filled", "servers removed while they ran", "asked to stop", "PMs lost",
                     "new addresses", "servers gone for good", "configurations went back", "managers ended of that",
                     "runs with a third manager", "with a small server", "ended without a restart"):  # fmt: skip
            tap.check(found.number(what) > 0, what)


@tap.case
def every_seed_ran_enough():
    tap.check(done.number("operations checked") >= 2000 * LAST, done.out)
    tap.check(done.number("faults:") >= 5 * LAST, done.out)
    tap.check(done.number("simulated seconds") >= 20 * LAST, done.out)


@tap.case
def nothing_that_is_injected_was_left_out():
    if harness.DIVISOR > 1:
        tap.skip("too few seeds in a sanitized build")
    for what in ("of them of unknown outcome", "crashes", "partitions", "power losses", "torn landings",
                 "lost fences", "fault sites fired", "index splits", "long entries written", "joined", "segments cleaned", "shards without fences lost data", "keys went back"):  # fmt: skip
        tap.check(done.number(what) > 0, what)


raise SystemExit(tap.main(before=run))
