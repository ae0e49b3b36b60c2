#!/usr/bin/python3
"""Every mutant is caught, within a bounded number of seeds or by a unit test: a case for each, and the table.

Usage: mutants.py            the test; of the environment it has what meson sets
       mutants.py --renew    writes the seed by which each was caught into mutants.table, and wants ROWAN_SIM only
"""

import os
import re
import subprocess
import sys

import harness
import plant
import tap
from harness import sim

SEEDS = "1:200"
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mutants.table")
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


def by_seed(name):
    tap.check(name in rows, "not in the table")
    tap.check(rows[name] != "-", f"no seed of {SEEDS} catches it")


def outcome(test, case, mutant):
    program = os.environ.get("ROWAN_PLANTED_" + test)
    tap.check(program, f"{test} is not among planted_tests of meson.build")
    switches = {"CMOCKA_MESSAGE_OUTPUT": "TAP", "ROWAN_CASE": case, "ROWAN_MUTANT": mutant}
    done = subprocess.run(
        [program],
        env={**os.environ, **switches},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=100,
    )
    return re.findall(r"^(ok|not ok) \d+ - (\S+)$", done.stdout, re.MULTILINE)


def by_unit_test(name, test, case):
    tap.equal(outcome(test, case, ""), [("ok", case)], "without the mutant")
    tap.equal(outcome(test, case, name), [("not ok", case)], "with it; is its file in planted_src?")


def is_caught(name, checkers):
    def check():
        if checkers.startswith("unit "):
            by_unit_test(name, *checkers.split()[1:])
        else:
            by_seed(name)

    check.__name__ = name.replace("-", "_") + "_is_caught"
    return check


def renew():
    run()
    with open(TABLE, encoding="utf-8") as file:
        table = file.read()
    for name, seed in rows.items():
        if seed != "-":
            table = re.sub(rf"^({name} \|[^|]+\| f?)\d+ ", rf"\g<1>{seed} ", table, flags=re.MULTILINE)
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write(table)
    return "-" in rows.values()


if __name__ == "__main__":
    if sys.argv[1:] == ["--renew"]:
        raise SystemExit(renew())
    for mutant, catchers, *_ in plant.mutants(TABLE):
        tap.case(is_caught(mutant, catchers))
    raise SystemExit(tap.main(before=run))
