#!/usr/bin/python3
"""rowan-sim as a person uses it: flags, exit codes, stories, and runs that can be had again."""

import os
import re
import signal
import subprocess

import harness
import tap
from harness import sim

CAUGHT = "index-early"  # a mutant that few seeds miss
SEEDS = "1:3"


@tap.case
def equal_seeds_give_equal_runs_however_many_at_a_time():
    alone = sim("--seeds", SEEDS, "--jobs", "1")
    tap.equal(alone.code, 0, alone.out, alone.err)
    together = sim("--seeds", SEEDS, "--jobs", "3")
    tap.equal(alone.hash(), together.hash())
    other = sim("--seeds", "2:4")
    tap.check(other.hash() != alone.hash(), "other seeds give the same hash")


@tap.case
def a_trace_changes_nothing_and_shows_every_event():
    plain = sim("--seeds", "1")
    traced = sim("--seeds", "1", "--trace")
    tap.equal(traced.hash(), plain.hash())
    for kind in ("call", "answer", "stored", "landed", "fault", "phase"):
        tap.check(re.search(rf"^ +\d+\.\d{{6}} \S* +{kind} ", traced.out, re.MULTILINE), "no", kind)
    tap.check(len(traced.out.splitlines()) > 5000, "a short trace")


@tap.case
def a_planted_bug_ends_with_its_code_a_story_and_the_command_that_shows_it_again():
    found = sim("--seeds", "1:40", "--mutant", CAUGHT, "--until-caught")
    tap.check(found.code in (3, 4, 5), "exit code", found.code, found.out, found.err)
    line = re.search(r"^seed \d+ FAILED: (\w+), found by .*$", found.out, re.MULTILINE)
    tap.check(line, "no line about a failure in", found.out)
    codes = {"correctness": 3, "liveness": 4, "crash": 5}
    tap.equal(found.code, codes[line.group(1)])
    tap.check(re.search(r"place was reached [1-9]", found.out), "not reached", found.out[-300:])
    tap.contains(found.out, "servers=")
    command = re.search(r"^again, with a trace: rowan-sim (.*)$", found.out, re.MULTILINE)
    tap.check(command, "no command in", found.out)
    again = sim(*command.group(1).split())
    tap.equal(again.code, found.code)
    tap.contains(again.out, line.group(0))
    tap.contains(again.out, " call ")


@tap.case
def a_story_is_told_once_for_few_failures_and_every_seed_is_listed():
    found = sim("--seeds", "1:12", "--mutant", CAUGHT)
    failed = found.number("failed")
    tap.check(failed > 1, "too few failures to see anything")
    seeds = [int(seed) for seed in re.findall(r"^seed (\d+) FAILED", found.out, re.MULTILINE)]
    tap.equal(len(seeds), failed)
    tap.equal(seeds, sorted(seeds))
    tap.equal(found.out.count("again, with a trace"), min(failed, 3))


@tap.case
def mistakes_on_the_command_line_get_a_sentence_and_code_2():
    for arguments, piece in (
        ([], "seeds"),
        (["--seeds", "3:1"], "FROM:TO"),
        (["--seeds", "one"], "FROM:TO"),
        (["--seeds", "-1:3"], "FROM:TO"),
        (["--seeds", "1:"], "FROM:TO"),
        (["--seeds", "1:99999999999999999999"], "FROM:TO"),
        (["--seeds", "1", "--mutant", "nobody"], "no such mutant"),
        (["--seeds", "1", "--mutant", CAUGHT, "--mutants"], "exclude"),
        (["--seeds", "1", "--jobs", "9999"], "jobs"),
        (["--seeds", "1", "--colour"], "colour"),
    ):
        result = sim(*arguments)
        tap.equal(result.code, 2, arguments)
        tap.contains(result.err, piece, arguments)
        tap.equal(len(result.err.splitlines()), 1, arguments)
        tap.equal(result.out, "", arguments)


@tap.case
def a_verdict_that_cannot_be_written_is_not_0():
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run(
            [harness.PROGRAM, "--seeds", "1"],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=600,
        )
    tap.equal(done.returncode, 1)
    tap.contains(done.stderr, "cannot write")


@tap.case
def help_and_the_list_of_mutants_end_with_0():
    usage = sim("--help")
    tap.equal(usage.code, 0)
    for key in ("seeds", "mutant", "jobs", "limit-s"):
        tap.contains(usage.out, f"  --{key} VALUE\n")
    for switch in ("trace", "mutants", "until-caught"):
        tap.contains(usage.out, f"  --{switch}\n")
    listed = sim("--mutant", "list")
    tap.equal(listed.code, 0)
    tap.contains(listed.out, CAUGHT)


def interfere(number, *arguments):
    """Starts rowan-sim, sends a signal to its first child, and waits for its end."""
    parent = subprocess.Popen(
        [harness.PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    path = f"/proc/{parent.pid}/task/{parent.pid}/children"

    def child():
        with open(path, encoding="ascii") as file:
            return file.read().split()

    os.kill(int(tap.wait_until(child, 30, "a child")[0]), number)
    out, err = parent.communicate(timeout=600)
    return harness.Result(subprocess.CompletedProcess([], parent.returncode, out, err))


@tap.case
def a_run_that_crashes_is_a_result_and_the_others_go_on():
    result = interfere(signal.SIGABRT, "--seeds", "1:3", "--jobs", "1")
    tap.equal(result.code, 5, result.out, result.err)
    tap.contains(result.out, 'seed 1 FAILED: crash, found by "crash": Aborted')
    tap.contains(result.out, "rowan-sim --seeds 1:1 --trace")
    tap.equal(result.number("seeds, 1 failed"), 3)


@tap.case
def a_run_that_hangs_is_ended_and_is_a_result():
    result = interfere(signal.SIGSTOP, "--seeds", "1", "--limit-s", "1")
    tap.equal(result.code, 5, result.out, result.err)
    tap.contains(result.out, 'seed 1 FAILED: crash, found by "hang"')


raise SystemExit(tap.main())
