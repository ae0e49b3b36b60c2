#!/usr/bin/python3
"""rowan-fabric-bench: every mode on the fabrics of any host, and what it refuses."""

import sys

from harness import program, run, sentences, tap

SHORT = ("--seconds", "0.2")


def bench(*arguments):
    return run([program("rowan-fabric-bench"), *SHORT, *arguments], seconds=120)


def check_figures(row):
    for key in ("operations", "seconds", "mops", "mbytes_per_second", "p50_us", "p99_us", "p999_us", "max_us"):
        tap.check(row[key] > 0, key, row)
    tap.check(row["p50_us"] <= row["p99_us"] <= row["p999_us"] <= row["max_us"], row)
    tap.check(abs(row["mops"] * 1e6 * row["seconds"] / row["operations"] - 1) < 0.001, row)
    for side in ("sender", "receiver"):
        tap.check(row[f"{side}_ns_per_op"] > 0, side, row)


@tap.case
def each_mode_is_measured_and_wrong_use_gives_one_sentence():
    for fabric in ("shm", "tcp"):
        done = bench("--json", "--fabric", fabric, "--mode", "all", "--bytes", "128", "--senders", "1,6")
        tap.equal(done.code, 0, done.both)
        report = done.json()
        tap.equal((report["fabric"], report["memory"]), (fabric, "file (durability none)"))
        tap.equal([(row["mode"], row["senders"]) for row in report["runs"]],
                  [(mode, senders) for mode in ("rowan", "message") for senders in (1, 6)])  # fmt: skip
        for row in report["runs"]:
            check_figures(row)
    done = bench("--bytes", "100", "--mode", "rowan")
    tap.equal((done.code, len(sentences(done.err)), done.out), (2, 1, ""), done.both)


sys.exit(tap.main())
