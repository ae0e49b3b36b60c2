#!/usr/bin/python3
"""Every mutant is caught within a bounded number of seeds: a case for each, and the table."""

import re

import harness
import tap
from harness import sim

SEEDS = "1:200"
ROW = re.compile(r"^(\S+) +(\d+|-)  (.{22}) (.*)$")
rows = {}


def run():
    done = sim("--seeds", SEEDS, "--mutants", seconds=1700)
    harness.show(done.out)
    tap.check(done.code in (0, 1), done.code, done.err)
    for line in done.out.splitlines():
        row = ROW.match(line)
        if row:
            rows[row.group(1)] = row.group(2)


def names():
    return [line.split()[0] for line in sim("--mutant", "list").out.splitlines()]


def is_caught(name):
    def check():
        tap.check(name in rows, "not in the table")
        tap.check(rows[name] != "-", f"no seed of {SEEDS} catches it")

    check.__name__ = name.replace("-", "_") + "_is_caught"
    return check


if __name__ == "__main__":
    for mutant in names():
        tap.case(is_caught(mutant))
    raise SystemExit(tap.main(before=run))
