#!/usr/bin/python3
"""Mistakes of an operator: each gets one sentence and the right exit code, and costs nobody else
anything."""

import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from harness import (SOURCE, Cluster, ends_with_us, environment, expect, processes_naming, program, rowan_local,
                     run, scratch, tap)  # fmt: skip

import wire
from local import ports


SMALL = ("--pm-bytes", "96M", "--landing-segments", "4")


def before():
    global cluster
    cluster = Cluster("mistakes", "--pm-bytes", "128M", "--landing-segments", "4")


# --- every program ---

PROGRAMS = ("rowan", "rowan-server", "rowan-cm", "rowan-ycsb", "rowan-doctor", "rowan-dlwa")


@tap.case
def every_program_tells_its_version_and_the_formats_it_reads():
    told = {name: run([program(name), "--version"]) for name in PROGRAMS}
    told["rowan-local"] = rowan_local("--version")
    formats = {done.out.splitlines()[1] for done in told.values()}
    tap.equal(len(formats), 1, formats)
    for piece in ("messages", "configuration", "PM", "shm", "tcp", "verbs"):
        tap.check(re.search(rf"\b{piece} \d+( to \d+)?(,|$)", *formats), piece)
    for name, done in told.items():
        tap.equal((done.code, done.err), (0, ""), name)
        tap.check(re.match(rf"{name} \d+\.\d+\.\d+ \(commit \w+\)$", done.out.splitlines()[0]), done.out)


@tap.case
def help_shows_switches_without_a_value():
    told = {name: run([program(name), "--help"]) for name in PROGRAMS}
    told["rowan-local"] = rowan_local("start", "--help")
    for name, done in told.items():
        tap.equal((done.code, done.err), (0, ""), name)
        for switch in ("json", "pin", "version"):
            tap.check(not re.search(rf"--{switch} [A-Z]", done.out), done.out)
        tap.check(re.search(r"^ +--(json|pin|version)( +\w|$)", done.out, re.MULTILINE), done.out)
        tap.check(re.search(r"^ +--[a-z-]+ [A-Z]", done.out, re.MULTILINE), done.out)
    tap.equal(rowan_local("--help").code, 0)


# --- rowan-local ---


@tap.case
def a_second_start_in_the_directory_of_a_running_cluster_is_refused():
    expect(rowan_local("start", "--dir", cluster.directory), 1, "running", "stop")
    cluster.ok("put", "still", "here")


@tap.case
def a_way_to_receive_that_is_no_more_is_told_with_what_mends_it():
    old = Cluster("old", *SMALL)
    old.stop()
    settings = os.path.join(old.directory, "cluster.json")
    with open(settings, encoding="utf-8") as file:
        text = file.read()
    with open(settings, "w", encoding="utf-8") as file:
        file.write(text.replace('"verbs_receive": null', '"verbs_receive": "connection"'))
    expect(rowan_local("start", "--dir", old.directory), 1, "cluster.json", "shared receive queues",
           "--verbs-receive auto", "nothing was touched")  # fmt: skip
    more = ("start", "--dir", old.directory, "--verbs-receive")
    expect(rowan_local(*more, "connection"), 2, "shared receive queues", "--verbs-receive auto")
    tap.equal(rowan_local(*more, "auto").code, 0)
    old.stop()


@tap.case
def memory_in_which_no_write_would_find_room_is_refused_with_the_least_size():
    place = os.path.join(scratch(), "small")
    done = rowan_local("start", "--dir", place, "--pm-bytes", "32M")
    expect(done, 1, "too small", "--pm-bytes ")
    least = done.err.split("(--pm-bytes ")[1].split(")")[0]
    smallest = Cluster("least", "--pm-bytes", least)
    smallest.ok("put", "key", "value")
    tap.equal(rowan_local("stop", "--dir", smallest.directory).code, 0)


@tap.case
def a_directory_with_other_files_is_refused():
    place = os.path.join(scratch(), "somebody")
    os.mkdir(place)
    with open(os.path.join(place, "letter.txt"), "w", encoding="utf-8") as file:
        file.write("dear")
    expect(rowan_local("start", "--dir", place), 1, "not empty")
    tap.equal(os.listdir(place), ["letter.txt"])


@tap.case
def a_directory_of_somebody_else_is_not_called_a_cluster_to_delete():
    for name in ("run", "coord", "cm", "Module.pm"):
        place = os.path.join(scratch(), "theirs-" + name)
        os.makedirs(os.path.join(place, name))
        expect(rowan_local("start", "--dir", place), 1, "holds no cluster")


@tap.case
def a_directory_that_cannot_be_made_is_refused():
    expect(rowan_local("start", "--dir", "/proc/rowan"), 1, "cannot make /proc/rowan")


@tap.case
def more_memory_than_the_disk_has_is_refused_before_anything_is_made():
    place = os.path.join(scratch(), "most")
    expect(rowan_local("start", "--dir", place, "--pm-bytes", "900T"), 1, "free", "--pm-bytes")
    tap.check(not os.path.exists(place))


@tap.case
def too_little_memory_fails_the_start_with_the_server_s_sentence_and_leaves_only_logs():
    place = os.path.join(scratch(), "tiny")
    expect(rowan_local("start", "--dir", place, "--pm-bytes", "1M"), 1, "pm")
    tap.equal(os.listdir(place), ["log"])
    # What is left does not stop the next try.
    done = rowan_local("start", "--dir", place, "--pm-bytes", "96M", "--landing-segments", "4")
    tap.equal(done.code, 0, done.both)
    tap.equal(rowan_local("stop", "--dir", place).code, 0)


@tap.case
def rdma_without_a_device_is_one_sentence():
    if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
        tap.skip("this host has an RDMA device")
    place = os.path.join(scratch(), "rdma")
    expect(rowan_local("start", "--dir", place, "--fabric", "verbs", *SMALL), 1, "did not start")
    tap.equal(os.listdir(place), ["log"])


@tap.case
def settings_that_make_no_sense_are_usage_mistakes():
    words = ("--server", "1", "--cm", "verbs:127.0.0.1:1", "--address", "verbs:127.0.0.1:2", "--pm", "x")
    for more, piece in (
        (("--verbs-slot-bytes", "300"), "power of two"),
        (("--verbs-slot-bytes", "8K"), "verbs-slot-bytes"),
        (("--verbs-gid-index", "first"), "verbs-gid-index must be auto or a number"),
        (("--verbs-gid-index", "256"), "verbs-gid-index must be auto or a number from 0 to 255"),
        (("--verbs-receive", "fast"), "verbs-receive must be auto, multi-packet or shared"),
        (("--verbs-receive", "connection"), "every RDMA NIC has shared receive queues"),
        (("--metrics", "abc"), "metrics is PORT (of 127.0.0.1)"),
    ):
        expect(run([program("rowan-server"), *words, *more]), 2, piece)


@tap.case
def a_device_that_is_none_or_no_dax_is_named():
    for path, piece in (("/dev/dax9.9", "there is no device /dev/dax9.9"), ("/dev/null", "no DAX device")):
        place = os.path.join(scratch(), "device")
        expect(rowan_local("start", "--dir", place, "--pm", path, *SMALL), 1, piece)
        tap.check(not os.path.exists("/dev/dax9.9"))


@tap.case
def a_file_for_the_memory_of_all_servers_is_there_with_the_size_of_all():
    place, path = os.path.join(scratch(), "parts"), os.path.join(scratch(), "parts.pm")
    ends_with_us(place)
    start = ("start", "--dir", place, "--pm", path + ":1M", "--lease-ms", "500", *SMALL)
    advice = f"truncate -s {3 * (96 << 20) + (1 << 20)} {path}"
    expect(rowan_local(*start), 1, advice)
    tap.check(not os.path.exists(path))
    open(path, "wb").close()
    expect(rowan_local(*start), 1, advice)
    tap.equal(run(advice.split()).code, 0)
    tap.equal(rowan_local(*start).code, 0)
    expect(rowan_local("add", "--dir", place), 1, f"truncate -s {4 * (96 << 20) + (1 << 20)} {path}")
    tap.equal(rowan_local("stop", "--dir", place).code, 0)


@tap.case
def unknown_flags_and_bad_choices_are_usage_mistakes():
    for words in (
        ("start", "--speed", "9"),
        ("start", "--servers", "none"),
        ("start", "--durability", "maybe"),
        ("start", "--servers", "2", "--replicas", "3"),
        ("start", "--pm-bytes", "2X"),
        ("begin",),
        ("kill",),
    ):
        expect(rowan_local(*words), 2)


@tap.case
def stop_status_and_kill_of_no_cluster_say_so():
    for words in (("stop",), ("status",), ("kill", "1")):
        expect(rowan_local(*words, "--dir", "/tmp"), 1, "no cluster")


@tap.case
def kill_and_restart_of_an_unknown_server_name_the_ones_there_are():
    for action in ("kill", "restart"):
        expect(rowan_local(action, "9", "--dir", cluster.directory), 1, "no server 9", "1, 2, 3")


@tap.case
def kill_and_restart_are_for_servers_and_leave_the_manager_alone():
    for action in ("kill", "restart"):
        for name in ("cm", "0"):
            expect(rowan_local(action, name, "--dir", cluster.directory), 1, f"no server {name}", "1, 2, 3")
    tap.equal(cluster.processes()["cm"].state(), "running")


@tap.case
def restart_says_that_without_leases_no_single_server_returns():
    expect(rowan_local("restart", "1", "--dir", cluster.directory), 1, "without leases", "--lease-ms")


@tap.case
def what_is_planned_without_leases_or_for_no_number_is_refused():
    for words in (("add", "4"), ("drain", "1"), ("remove", "1")):
        expect(cluster.rowan(*words), 1, "only a cluster with leases")
    for words in (("add",), ("remove", "1")):
        expect(rowan_local(*words, "--dir", cluster.directory), 1, "without leases", "--lease-ms")
    for words in (("add", "tcp:127.0.0.1:1"), ("drain", "s1"), ("remove", "0"), ("remove",), ("--wait", "add", "4")):
        expect(cluster.rowan(*words), 2)


@tap.case
def a_setting_that_cannot_be_is_refused_by_who_has_it():
    told = cluster.ok("--json", "set").json()
    for words, pieces in (
        (("2", "clean-below=96"), ("server 2", 'clean-below must be a number from 1 to 95, not "96"')),
        (("log-level=loud",), ("must be one of error|warn|info|debug",)),
        (("2", "speed=9"), ("unknown key speed; rowan-server --help lists the keys",)),
        (("manager", "clean-below=60"), ("unknown key clean-below; rowan-cm --help lists the keys",)),
        (("workers=2",), ("workers changes only at a restart",)),
        (("manager", "lease-ms=500"), ("lease-ms does not change: it is fixed when the cluster is made",)),
        (("9", "clean-below=60"), ("the cluster has no server 9",)),
    ):
        done = cluster.rowan("set", *words)
        expect(done, 1, *pieces)
        tap.equal(done.out, "")
    tap.equal(cluster.ok("--json", "set").json(), told)
    for words in (("s1", "clean-below=60"), ("0",), ("1", "clean-below"), ("=60",), ("a=1", "b=2"), ("1", "a=1", "b=2")):
        expect(cluster.rowan("set", *words), 2, "--help")


@tap.case
def a_restart_that_cannot_be_written_down_leaves_no_server_that_nobody_knows():
    leased = Cluster("unwritten", "--lease-ms", "500", *SMALL)
    leased.kill(["s1"])
    obstacle = os.path.join(leased.directory, "run", "processes.json.new")
    os.mkdir(obstacle)  # as on a full disk the record cannot be written
    expect(rowan_local("restart", "1", "--dir", leased.directory), 1, "processes.json.new")
    tap.equal([pid for pid, _ in processes_naming(os.path.join(leased.directory, "s1.pm"))], [])
    os.rmdir(obstacle)
    tap.equal(rowan_local("restart", "1", "--dir", leased.directory).code, 0)
    leased.stop()


# --- rowan ---


@tap.case
def rowan_refuses_unknown_flags_and_words_and_missing_arguments():
    for words in (("--speed", "9", "get", "a"), ("fetch", "a"), ("get",), ("put", "a"), ()):
        expect(cluster.rowan(*words), 2)


@tap.case
def rowan_refuses_keys_and_values_that_are_too_long_or_empty():
    expect(cluster.rowan("put", "k" * 1025, "v"), 1, "key", "1024")
    expect(cluster.rowan("get", "k" * 1025), 1, "key", "1024")
    expect(cluster.rowan("put", "", "v"), 1, "key")
    expect(cluster.rowan("put", "k", "-", input="v" * 1048577), 1, "value", "1048576")


@tap.case
def rowan_says_that_there_is_no_cluster():
    empty = os.path.join(scratch(), "empty")
    os.mkdir(empty)
    expect(run([program("rowan"), "--dir", empty, "get", "a"]), 1)
    expect(run([program("rowan"), "get", "a"], cwd=empty), 1)


@tap.case
def rowan_says_at_once_that_nobody_is_at_the_address_of_the_cm():
    for words in (("get", "a"), ("put", "a", "b"), ("del", "a"), ("status",), ("verify",)):
        began = time.monotonic()
        expect(run([program("rowan"), "--cm", f"shm:{scratch()}/no/cm", *words]), 1, "no connection")
        tap.check(time.monotonic() - began < 2, words, "took", time.monotonic() - began, "s")


@contextlib.contextmanager
def another_cm(welcome, then=b""):
    """The address of a CM that says this to everybody."""
    listener, streams = socket.create_server(("127.0.0.1", 0)), []

    def answer():
        while True:
            try:
                streams.append(listener.accept()[0])
            except OSError:
                return
            streams[-1].recv(wire.GREETING_BYTES, socket.MSG_WAITALL)
            streams[-1].sendall(welcome + then)

    threading.Thread(target=answer, daemon=True).start()
    yield f"tcp:127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    for stream in streams:
        stream.close()


def says_that_it_is_another_version(address):
    for words in (("--timeout-ms", "500", "status"), ("--timeout-ms", "500", "get", "a")):
        expect(run([program("rowan"), "--cm", address, *words]), 1, "a version that this program does not understand")


def refusing():
    welcome = bytearray(wire.greeting(purpose=3))
    struct.pack_into("<i", welcome, 20, -29)  # ROWAN_EINCOMPATIBLE
    return another_cm(welcome)


def telling_a_later_format():
    later = wire.control("configuration_is", {1: wire.fields({1: 7, 9: 99})}, tag=0)
    return another_cm(wire.greeting(purpose=3, peer=wire.CM, incarnation=1), wire.frame(later, 0))


@tap.case
def a_cm_of_another_version_is_told_in_a_sentence():
    with refusing() as address:
        says_that_it_is_another_version(address)


@tap.case
def a_configuration_of_a_later_format_is_told_in_a_sentence():
    with telling_a_later_format() as address:
        says_that_it_is_another_version(address)


@tap.case
def a_server_tells_of_a_cm_of_another_version_and_ends_with_a_configuration_of_a_later_format():
    name = os.path.join(scratch(), "behind")
    address = f"tcp:{ports.HOST}:{ports.assign([(name, 2)])[name]}"
    words = [program("rowan-server"), "--server", "1", "--address", address, "--pm", name + ".pm", "--pm-bytes", "64M",
             "--durability", "none", "--cm"]  # fmt: skip
    with refusing() as address, open(name + ".log", "w+", encoding="utf-8") as log:
        child = subprocess.Popen([*words, address], stdin=subprocess.DEVNULL, stderr=log)
        try:
            tap.wait_until(lambda: log.seek(0) or "cm_connect_failed" in log.read(), 20, "it says so")
        finally:
            child.terminate()
            child.wait()
        log.seek(0)
        tap.contains(log.read(), "a version that this program does not understand")
    with telling_a_later_format() as address:
        expect(run([*words, address], seconds=30), 1, "a format that this server does not read")


@tap.case
def what_cannot_be_printed_is_no_success():
    cluster.ok("put", "printed", "text")
    for words in (("get", "printed"), ("status",), ("shards",), ("--json", "status")):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([program("rowan"), "--dir", cluster.directory, *words], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=30)  # fmt: skip
        tap.equal(done.returncode, 1, words, done.stderr)
        tap.check(done.stderr.strip(), "no sentence from", words)


# --- rowan-ycsb ---


@tap.case
def ycsb_s_usage_is_checked_before_a_cluster_is_looked_for():
    place = os.path.join(scratch(), "nowhere")
    os.mkdir(place)
    a, load = ("--workload", "a", "--seconds", "1"), ("--workload", "load")
    expect(run([program("rowan-ycsb"), "--workload", "e", "--seconds", "1"], cwd=place), 2, "scans")
    for words in (("--workload", "z"), ("--workload", "a"), ("--workload", "d"), (*load, "--warm-up", "1"),
                  (*a, "--warm-up", "-1"), (*a, "--share", "0/2"), (*a, "--share", "3/2"), (*a, "--share", "1/2/3"),
                  (*a, "--order", "hashed"), (*a, "--hot-fraction", "1.5"),
                  (*a, "--distribution", "latest", "--hot-moves-ms", "9"),
                  ("--workload", "load", "--profile", "big"),
                  ("--workload", "load", "--distribution", "odd"),
                  ("--workload", "load", "--threads", "4", "--connections", "3"),
                  ("--workload", "load", "--threads", "2", "--connections", "513")):  # fmt: skip
        expect(run([program("rowan-ycsb"), *words], cwd=place), 2)
    expect(run([program("rowan-ycsb"), "--workload", "load"], cwd=place), 1, "cluster")


# --- a server that died ---


@tap.case
def a_killed_server_is_shown_and_stop_still_cleans_up():
    done = rowan_local("kill", "3", "--dir", cluster.directory)
    tap.equal(done.code, 0, done.both)
    done = rowan_local("status", "--dir", cluster.directory)
    tap.equal(done.code, 1)
    tap.contains(done.out, "ended")
    said = cluster.ok("shards").out
    tap.check("no answer" in said and "serves" in said and "recovering" not in said, said)
    expect(rowan_local("kill", "3", "--dir", cluster.directory), 1, "not running")
    done = cluster.rowan("verify", seconds=25)  # at once, not after a timeout
    tap.equal(done.code, 1, done.both)
    tap.contains(done.out, "on server 3: no connection")
    tap.check("on server 1" not in done.out and "on server 2" not in done.out, done.out)
    cluster.stop()
    tap.check(not os.path.exists(os.path.join(cluster.directory, "run")))


@tap.case
def a_start_that_is_interrupted_again_and_again_still_cleans_up():
    """From when a process of it is on record."""
    place = os.path.join(scratch(), "impatient")
    child = subprocess.Popen(
        [os.path.join(SOURCE, "tools", "rowan-local"), "start", "--dir", place, *SMALL],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    tap.wait_until(lambda: os.path.exists(os.path.join(place, "run", "processes.json"))
                   or child.poll() is not None, 20, "a process started")  # fmt: skip
    child.terminate()
    while child.poll() is None:
        child.send_signal(signal.SIGINT)
        time.sleep(0.001)  # not to keep it from its work
    _, err = child.communicate(timeout=60)
    tap.equal(child.returncode, 1, err)
    tap.equal(os.listdir(place), ["log"])
    tap.equal(processes_naming(place), [])


sys.exit(tap.main(before))
