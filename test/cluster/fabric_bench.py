#!/usr/bin/python3
"""rowan-fabric-bench: every mode on every fabric of this host, two programs, and what it refuses."""

import contextlib
import glob
import os
import signal
import subprocess
import sys
import tempfile

from harness import environment, program, run, sentences, tap
from local import ports

SHORT = ("--seconds", "0.2")
FABRICS = ("shm", "tcp")
files = None  # the only place for what a run leaves


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
        tap.check(row[f"{side}_ns_per_op"] > 0, side, row)


def on_each_fabric(mode, *arguments):
    for fabric in FABRICS:
        report = measured("--fabric", fabric, "--mode", mode, "--bytes", "64,128", "--senders", "1,6", *arguments)
        tap.equal((report["fabric"], report["memory"]), (fabric, "file (durability none)"))
        tap.equal(
            [(row["mode"], row["bytes"], row["senders"]) for row in report["runs"]],
            [(mode, size, senders) for size in (64, 128) for senders in (1, 6)],
        )
        for row in report["runs"]:
            check_figures(row)


@tap.case
def each_mode_is_measured_on_each_fabric():
    for arguments in (("rowan",), ("rowan", "--batch", "16", "--depth", "3"), ("message",)):
        on_each_fabric(*arguments)


@tap.case
def large_messages_and_as_many_senders_as_a_zone_takes_are_measured():
    for mode, size, senders, depth in (("message", "1M", "1", "4"), ("rowan", "64", "256", "2")):
        for fabric in FABRICS:
            check_figures(measured("--fabric", fabric, "--mode", mode, "--bytes", size, "--senders", senders, "--depth", depth,
                                   "--seconds", "0.5")["runs"][0])  # fmt: skip


@tap.case
def all_modes_are_measured_one_after_another():
    report = measured("--mode", "all", "--bytes", "128", "--senders", "1")
    tap.equal([row["mode"] for row in report["runs"]], ["rowan", "message"])


@tap.case
def a_receiver_works_for_a_segment_and_not_for_a_block():
    """Over shm; counted, not timed."""
    row = measured("--fabric", "shm", "--mode", "rowan", "--bytes", "64", "--senders", "6")["runs"][0]
    tap.check(row["busy_polls"] <= row["operations"] / 1000 + 50, row)


@tap.case
def a_zone_of_two_segments_is_kept_fed():
    """65,536 strides a segment: the run lasts longer than both."""
    for fabric in FABRICS:
        row = measured("--fabric", fabric, "--mode", "rowan", "--bytes", "32K", "--senders", "3", "--segments", "2",
                       "--seconds", "1")["runs"][0]  # fmt: skip
        check_figures(row)
        tap.check(row["segments"] > 2, row)
        tap.check(row["zeroing_ns_per_op"] > 0, row)


@tap.case
def several_threads_share_the_senders():
    report = measured("--fabric", "shm", "--mode", "rowan", "--bytes", "64", "--senders", "7", "--threads", "3")
    tap.equal(report["threads"], 3)
    check_figures(*report["runs"])


@tap.case
def the_table_has_a_row_for_each_run():
    done = bench(*SHORT, "--mode", "message", "--bytes", "100", "--senders", "1,2")
    tap.equal(done.code, 0, done.both)
    rows = [line.split() for line in done.out.splitlines() if line.startswith("message")]
    tap.equal([row[1:3] for row in rows], [["100", "1"], ["100", "2"]])
    tap.equal(done.err, "")


@contextlib.contextmanager
def receiver_at(address):
    command = [program("rowan-fabric-bench"), "--serve", "--address", address]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as receiver:
        tap.contains(receiver.stderr.readline(), "receives at")
        try:
            yield receiver
        finally:
            receiver.send_signal(signal.SIGTERM)
            receiver.wait(30)


@tap.case
def two_programs_measure_between_them():
    for address in (f"shm:{files}/receiver", f"tcp:127.0.0.1:{ports.find(1)}"):
        with receiver_at(address) as receiver:
            for _ in range(2):  # it serves one after another
                report = measured("--connect", address, "--bytes", "64", "--senders", "2", "--mode", "rowan")
                check_figures(report["runs"][0])
                tap.equal(report["memory"], "of another program")
        tap.equal(receiver.returncode, 0)


@tap.case
def a_receiver_that_dies_fails_the_run():
    address = f"shm:{files}/receiver"
    with receiver_at(address) as receiver:
        senders = subprocess.Popen(
            [program("rowan-fabric-bench"), "--connect", address, "--bytes", "64,128", "--senders", "1,2", "--mode",
             "rowan", *SHORT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        tap.contains(senders.stdout.readline() + senders.stdout.readline() + senders.stdout.readline(), "mode")
        receiver.kill()
        receiver.wait(30)
        out, err = senders.communicate(timeout=60)
    tap.equal(senders.returncode, 1, out, err)
    tap.equal(len(sentences(err)), 1, err)
    for left in glob.glob(f"{files}/rowan-*"):  # of the receiver that was killed
        tap.equal(os.listdir(left), [], "its memory was to be gone at once")
        os.rmdir(left)
    os.unlink(f"{files}/receiver.0")


@tap.case
def a_signal_ends_a_run():
    command = [program("rowan-fabric-bench"), "--mode", "rowan", "--senders", "1", "--seconds", "600"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as both:
        tap.wait_until(lambda: glob.glob(f"{files}/rowan-*"), 60, "its directory")
        both.send_signal(signal.SIGINT)
        out, err = both.communicate(timeout=60)
    tap.equal((both.returncode, err), (1, "rowan-fabric-bench: run: stopped by a signal\n"))


@tap.case
def memory_that_a_user_names_is_used_and_left_as_it_was():
    path = os.path.join(files, "pm")
    few = ("--mode", "rowan", "--bytes", "64", "--senders", "1", "--segments", "2", "--pm", path)
    with open(path, "wb") as file:
        file.truncate(8 << 20)
    check_figures(measured(*few, "--durability", "none")["runs"][0])
    with open(path, "rb") as file:
        tap.check(file.read() == bytes(8 << 20), "it left something")
    for content, sentence in ((b"something" + bytes(8 << 20), "holds data"), (bytes(4096), "too small")):
        with open(path, "wb") as file:
            file.write(content)
        done = bench(*SHORT, *few)
        tap.equal(done.code, 1, done.both)
        tap.contains(done.err, sentence)
        with open(path, "rb") as file:
            tap.check(file.read() == content, "it wrote there")
    os.unlink(path)


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
        ["--senders", "1,x"],
        ["--senders", "1000", "--depth", "1000", "--mode", "message"],
        ["--depth", "0"],
        ["--seconds", "0"],
        ["--seconds", "soon"],
        ["--batch", "5000"],
        ["--serve"],
        ["--serve", "--address", "tcp:127.0.0.1:1", "--connect", "tcp:127.0.0.1:1"],
        ["--connect", "tcp:127.0.0.1:1", "--pm", "/dev/shm/never"],
        ["--connect", "tcp:127.0.0.1:1", "--address", "tcp:127.0.0.1:1"],
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
    for address, sentence in ((f"tcp:127.0.0.1:{ports.find(1)}", "no connection"), ("nowhere", "nowhere: ")):
        done = bench("--connect", address)
        tap.equal(done.code, 1, done.both)
        tap.contains(done.err, sentence)
        tap.equal(len(sentences(done.err)), 1, done.err)


@tap.case
def nothing_is_left_in_memory():
    tap.equal(os.listdir(files), [])


with tempfile.TemporaryDirectory(prefix="rowan-", dir="/dev/shm") as files:
    os.environ["TMPDIR"] = files
    sys.exit(tap.main())
