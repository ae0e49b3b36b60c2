#!/usr/bin/python3
"""rowan-fabric-bench: every mode on every fabric of this host, two programs, and what it refuses."""

import glob
import os
import signal
import subprocess
import sys
import tempfile

from harness import environment, program, run, sentences, tap
from local import ports

SHORT = ("--seconds", "0.2", "--warm-up-ms", "50")
FABRICS = ("shm", "tcp")
LEFT_OVER = "/dev/shm/rowan-fabric-bench.*"
OTHERS = set()  # was there before


def bench(*arguments, seconds=120):
    return run([program("rowan-fabric-bench"), *arguments], seconds=seconds)


def measured(*arguments):
    done = bench(*SHORT, "--json", *arguments)
    tap.equal(done.code, 0, done.both)
    return done.json()


def check_figures(row):
    for key in ("operations", "seconds", "mops", "mbytes_per_second", "p50_us", "p99_us", "p999_us", "max_us"):
        tap.check(row[key] > 0, key, row)
    tap.check(row["p50_us"] <= row["p99_us"] <= row["p999_us"] <= row["max_us"], row)
    tap.check(abs(row["mops"] * 1e6 * row["seconds"] / row["operations"] - 1) < 0.001, row)
    for side in ("sender", "receiver"):
        tap.check(row[side]["cpu_ns_per_op"] > 0, side, row)


def on_each_fabric(mode, *arguments):
    for fabric in FABRICS:
        report = measured("--fabric", fabric, "--mode", mode, "--bytes", "64,128", "--senders", "1,6", *arguments)
        tap.equal(report["fabric"], fabric)
        tap.equal(report["durability"], "none")
        tap.equal(
            [(row["mode"], row["bytes"], row["senders"]) for row in report["runs"]],
            [(mode, size, senders) for size in (64, 128) for senders in (1, 6)],
        )
        for row in report["runs"]:
            check_figures(row)


@tap.case
def rowan_sends_are_measured_on_each_fabric():
    on_each_fabric("rowan")


@tap.case
def rowan_sends_in_batches_are_measured_on_each_fabric():
    on_each_fabric("rowan", "--batch", "16", "--depth", "3")


@tap.case
def messages_are_measured_on_each_fabric():
    on_each_fabric("message")


@tap.case
def bulk_writes_are_measured_on_each_fabric():
    on_each_fabric("write", "--depth", "3")


@tap.case
def large_writes_and_many_grants_are_measured():
    for fabric in FABRICS:
        for arguments in (("--bytes", "4M", "--senders", "16", "--depth", "1"), ("--bytes", "4K", "--senders", "64")):
            report = measured("--fabric", fabric, "--mode", "write", *arguments, "--seconds", "0.5")
            check_figures(report["runs"][0])


@tap.case
def a_mode_that_cannot_is_told_beside_the_others():
    report = measured("--mode", "all", "--bytes", "100,128", "--senders", "1")
    tap.equal([(row["mode"], row["bytes"]) for row in report["runs"]],
              [("rowan", 128), ("write", 128), ("message", 100), ("message", 128)])  # fmt: skip
    tap.equal([(row["mode"], row["bytes"]) for row in report["skipped"]], [("rowan", 100), ("write", 100)])
    for row in report["skipped"]:
        tap.contains(row["reason"], "a multiple of 64 bytes")


@tap.case
def as_many_senders_as_a_zone_takes_are_measured():
    for fabric in FABRICS:
        report = measured("--fabric", fabric, "--mode", "rowan", "--bytes", "64", "--senders", "256", "--depth", "2")
        check_figures(report["runs"][0])


@tap.case
def a_receiver_works_for_a_segment_and_not_for_a_block():
    """Over shm; counted, not timed."""
    row = measured("--fabric", "shm", "--mode", "rowan", "--bytes", "64", "--senders", "6")["runs"][0]
    tap.check(row["receiver"]["busy_polls"] <= row["operations"] / 1000 + 50, row)


@tap.case
def a_zone_of_two_segments_is_kept_fed():
    """65,536 strides a segment: the run lasts longer than both."""
    for fabric in FABRICS:
        row = measured("--fabric", fabric, "--mode", "rowan", "--bytes", "32K", "--senders", "3", "--segments", "2",
                       "--seconds", "1")["runs"][0]  # fmt: skip
        check_figures(row)
        tap.check(row["receiver"]["segments"] > 2, row)
        tap.check(row["receiver"]["zeroing_ns_per_op"] > 0, row)


@tap.case
def several_threads_share_the_senders():
    report = measured("--fabric", "shm", "--mode", "rowan", "--bytes", "64", "--senders", "7", "--threads", "3")
    tap.equal(report["threads"], 3)
    tap.equal(report["spin_us"], 0 if os.cpu_count() < 4 else 50)
    check_figures(report["runs"][0])


@tap.case
def the_table_has_a_row_for_each_run():
    done = bench(*SHORT, "--mode", "message", "--bytes", "100", "--senders", "1,2")
    tap.equal(done.code, 0, done.both)
    rows = [line.split() for line in done.out.splitlines() if line.startswith("message")]
    tap.equal([row[1:3] for row in rows], [["100", "1"], ["100", "2"]])
    tap.equal(done.err, "")


@tap.case
def two_programs_measure_between_them():
    for fabric in FABRICS:
        with tempfile.TemporaryDirectory(prefix="rowan-", dir="/dev/shm") as directory:
            if fabric == "shm":
                address = f"shm:{directory}/receiver"
            else:
                address = f"tcp:127.0.0.1:{ports.find(1)}"
            command = [program("rowan-fabric-bench"), "--serve", "--address", address]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as receiver:
                try:
                    tap.contains(receiver.stderr.readline(), "receives at")
                    for _ in range(2):  # it serves one after another
                        report = measured("--connect", address, "--bytes", "64", "--senders", "2", "--mode", "rowan")
                        check_figures(report["runs"][0])
                        tap.equal(report["remote"], True)
                finally:
                    receiver.send_signal(signal.SIGTERM)
                    receiver.wait(30)
                tap.equal(receiver.returncode, 0, receiver.stderr.read())


@tap.case
def a_receiver_that_dies_fails_the_run():
    with tempfile.TemporaryDirectory(prefix="rowan-", dir="/dev/shm") as directory:
        address = f"shm:{directory}/receiver"
        command = [program("rowan-fabric-bench"), "--serve", "--address", address]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as receiver:
            tap.contains(receiver.stderr.readline(), "receives at")
            senders = subprocess.Popen(
                [program("rowan-fabric-bench"), "--connect", address, "--bytes", "64,128", "--senders",
                 "1,2", "--mode", "rowan", "--warm-up-ms", "0", "--seconds", "0.2"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
            )  # fmt: skip
            tap.contains(senders.stdout.readline() + senders.stdout.readline() + senders.stdout.readline(), "mode")
            receiver.kill()
            receiver.wait(30)
            out, err = senders.communicate(timeout=60)
            tap.equal(senders.returncode, 1, out, err)
            tap.equal(len(sentences(err)), 1, err)
    for left in set(glob.glob(LEFT_OVER)) - OTHERS:  # of the receiver that was killed
        tap.equal(os.listdir(left), [], "its memory was to be gone at once")
        os.rmdir(left)


@tap.case
def memory_that_a_user_names_is_used_and_left_as_it_was():
    with tempfile.TemporaryDirectory(prefix="rowan-") as directory:
        path = os.path.join(directory, "pm")
        few = ("--mode", "rowan", "--bytes", "64", "--senders", "1", "--segments", "2", "--pm", path)
        check_figures(measured(*few, "--durability", "async")["runs"][0])
        tap.check(not os.path.exists(path), "it made the file, and left it")
        with open(path, "wb") as file:
            file.truncate(72 << 20)
        check_figures(measured(*few, "--durability", "none")["runs"][0])
        with open(path, "rb") as file:
            tap.check(file.read() == bytes(72 << 20), "it left something")
        with open(path, "r+b") as file:
            file.write(b"something")
        done = bench(*SHORT, *few)
        tap.equal(done.code, 1, done.both)
        tap.contains(done.err, "--overwrite")
        with open(path, "rb") as file:
            tap.equal(file.read(9), b"something")
        check_figures(measured(*few, "--durability", "none", "--overwrite")["runs"][0])
        with open(path, "wb") as file:
            file.truncate(4096)
        done = bench(*SHORT, *few)
        tap.equal(done.code, 1, done.both)
        tap.contains(done.err, "too small")


@tap.case
def wrong_use_gives_one_sentence():
    for arguments in (
        ["--fabric", "carrier-pigeon"],
        ["--mode", "twice"],
        ["--bytes", "64,"],
        ["--bytes", "0"],
        ["--bytes", "100", "--mode", "rowan"],
        ["--bytes", "1M", "--mode", "rowan"],
        ["--bytes", "2M", "--mode", "message"],
        ["--senders", "257", "--mode", "rowan"],
        ["--senders", "65", "--mode", "write"],
        ["--senders", "17", "--bytes", "4M", "--mode", "write"],
        ["--senders", "1,x"],
        ["--senders", "1000", "--depth", "1000", "--mode", "message"],
        ["--depth", "0"],
        ["--seconds", "0"],
        ["--seconds", "soon"],
        ["--batch", "5000"],
        ["--threads", str(max(os.cpu_count() or 1, 1)), "--spin-us", "10"],
        ["--serve"],
        ["--serve", "--address", "tcp:127.0.0.1:1", "--connect", "tcp:127.0.0.1:1"],
        ["--connect", "tcp:127.0.0.1:1", "--pm", "/dev/shm/never"],
        ["--connect", "tcp:127.0.0.1:1", "--address", "tcp:127.0.0.1:1"],
        ["--connect", "nowhere"],
        ["--fabric", "tcp", "--address", "shm:/dev/shm/x"],
        ["--fabric", "verbs"],
        ["--unheard-of"],
        ["surplus"],
    ):
        done = bench(*arguments)
        tap.equal(done.code, 2, arguments, done.both)
        tap.equal(len(sentences(done.err)), 1, arguments, done.err)
        tap.equal(done.out, "", arguments)


@tap.case
def nobody_at_the_address_is_told():
    done = bench("--connect", f"tcp:127.0.0.1:{ports.find(1)}")
    tap.equal(done.code, 1, done.both)
    tap.contains(done.err, "no connection")


@tap.case
def nothing_is_left_in_memory():
    tap.equal(set(glob.glob(LEFT_OVER)) - OTHERS, set())


def before():
    OTHERS.update(glob.glob(LEFT_OVER))


sys.exit(tap.main(before))
