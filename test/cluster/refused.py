#!/usr/bin/python3
"""Programs that must not start: settings, memory, addresses, directories and disks that they cannot
work with. Each says why in one sentence, ends with the right code, and harms no cluster (the issue's
"Bad input")."""

import os
import subprocess
import sys
import time

from harness import SOURCE, Cluster, expect, program, rowan_local, run, scratch, tap

import mounts

SMALL = ("--pm-bytes", "96M", "--landing-segments", "4")
MEMORY_BYTES = 96 << 20
SEGMENTS_OFFSET = 32  # of the superblock, server/store/store.h
SUPERBLOCKS = (0, 4198400)  # the two copies


def before():
    """A cluster that serves meanwhile, and the data of another one that was stopped."""
    global cluster, other
    cluster = Cluster("living", *SMALL)
    cluster.ok("put", "still", "here")
    other = Cluster("other", *SMALL)
    other.ok("put", "theirs", "value")
    other.stop()


def no_harm():
    tap.equal(cluster.ok("get", "still").out.rstrip("\n"), "here")


def server_words(*more):
    name = os.path.join(scratch(), "another")
    arguments = {
        "--server": "1",
        "--cm": f"shm:{cluster.directory}/run/cm",
        "--address": f"shm:{name}-address",
        "--pm": f"{name}.pm",
        "--pm-bytes": str(MEMORY_BYTES),
        "--durability": "none",
        **dict(zip(more[::2], more[1::2])),
    }
    return [program("rowan-server"), *(word for pair in arguments.items() for word in pair)]


def server(*more):
    """A server of its own, that must refuse to start."""
    return run(server_words(*more), seconds=30)


def cm_words(address, servers="1,2,3", replicas="3", place=None):
    if place is None:
        place = os.path.join(scratch(), "coord")
        os.makedirs(place, exist_ok=True)
    return [
        program("rowan-cm"), "--address", address, "--coord", "file", "--coord-dir", place,
        "--cluster-servers", servers, "--replicas", replicas, "--shards", "0",
    ]  # fmt: skip


def cm(address):
    return run(cm_words(address), seconds=30)


def write_at(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def content(path):
    with open(path, "rb") as file:
        return file.read()


# --- settings ---


def configured(name, text, *more):
    """A program with a configuration file."""
    path = os.path.join(scratch(), "settings.ini")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return run([program(name), "--config", path, *more], seconds=30)


PROGRAMS = ("rowan-server", "rowan-cm", "rowan", "rowan-ycsb")


@tap.case
def an_unknown_key_in_a_configuration_file_is_named_with_its_line():
    for name in PROGRAMS:
        expect(configured(name, f"[{name}]\n\nspeed = 9\n"), 2, "line 3", "unknown key speed")


# --- memory ---


@tap.case
def a_server_refuses_a_file_smaller_than_it_was_told():
    path = os.path.join(scratch(), "short.pm")
    with open(path, "wb") as file:
        file.truncate(MEMORY_BYTES // 2)
    expect(server("--pm", path), 1, path, "fewer bytes")
    tap.equal(os.path.getsize(path), MEMORY_BYTES // 2)


@tap.case
def memory_with_something_else_is_told_by_its_place_as_others_may_lie_beside():
    path = os.path.join(scratch(), "else.pm")
    with open(path, "wb") as file:
        file.truncate(2 * MEMORY_BYTES)
    write_at(path, MEMORY_BYTES + (1 << 20), b"of something else")
    done = server("--pm", path, "--pm-offset", str(MEMORY_BYTES))
    expect(done, 1, path, f"the {MEMORY_BYTES} bytes from byte {MEMORY_BYTES} on", f"--seek={MEMORY_BYTES} --len={MEMORY_BYTES}")
    tap.equal(content(path)[MEMORY_BYTES + (1 << 20):][:17], b"of something else")


@tap.case
def a_directory_is_no_memory():
    expect(server("--pm", scratch()), 1, "it is a directory")


@tap.case
def a_server_refuses_memory_in_use():
    expect(server("--pm", os.path.join(cluster.directory, "s2.pm")), 1, "in use")
    no_harm()


@tap.case
def a_refused_server_removes_the_file_that_its_start_made():
    path = os.path.join(scratch(), "new.pm")
    expect(server("--server", "9", "--pm", path), 1, "not among the servers")
    tap.check(not os.path.exists(path), "an empty file is left")


# --- addresses ---


@tap.case
def a_server_refuses_an_address_in_use():
    expect(server("--address", f"shm:{cluster.directory}/run/s2"), 1, "in use")
    no_harm()


@tap.case
def a_second_cm_at_the_address_is_refused():
    expect(cm(f"shm:{cluster.directory}/run/cm"), 1, "in use")
    no_harm()


@tap.case
def an_address_that_is_none_is_refused():
    for address in ("shm:relative/path", "carrier-pigeon:7", "nothing"):
        expect(server("--address", address), 1, address)
    for done in (server("--address", "nothing"), server("--cm", "nothing"), cm("nothing"),
                 run([program("rowan"), "--cm", "nothing", "get", "a"]),
                 run([program("rowan"), "--cm", "nothing", "status"])):  # fmt: skip
        expect(done, 1, "nothing", "an address begins with its fabric")


@tap.case
def a_malformed_address_is_told_at_once_and_not_tried_again():
    for address, piece in (("tcp:127.0.0.1", "HOST:PORT"), ("tcp:127.0.0.1:70000", "1 to 65535"),
                           ("verbs:10.0.0.300:7", "neither a name nor"), ("shm:run/cm", "/DIRECTORY/NAME"),
                           ("tcp:[::1:7", "[ ]")):  # fmt: skip
        for words in (["rowan", "--cm", address, "get", "a"], ["rowan", "--cm", address, "status"],
                      ["rowan-ycsb", "--cm", address, "--workload", "load"]):  # fmt: skip
            done = run([program(words[0]), *words[1:]], seconds=5)  # the time-out is longer
            expect(done, 1, piece)
            tap.check("out of range" not in done.err, done.err)
        expect(cm(address), 1, piece)
        expect(server("--address", address), 1, piece)


@tap.case
def an_address_of_another_host_and_one_that_nobody_knows_are_told():
    for start in (lambda a: server("--address", a), cm):
        expect(start("tcp:192.0.2.1:7000"), 1, "192.0.2.1", "others reach this host at")
        expect(start("tcp:nobody.invalid:7000"), 1, "nobody.invalid", "cannot be looked up")


@tap.case
def a_server_whose_cm_s_address_is_none_ends_with_it():
    for address in ("nothing", "carrier-pigeon:7", "tcp:127.0.0.1:1"):
        expect(server("--cm", address), 1, "cannot use the CM's address " + address)


@tap.case
def a_server_that_is_no_cm_is_named_once_and_not_at_each_try():
    name = os.path.join(scratch(), "asks")
    with open(name + ".log", "w+", encoding="utf-8") as log:
        words = server_words("--cm", f"shm:{cluster.directory}/run/s1", "--address", f"shm:{name}")
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=log)
        try:
            tap.wait_until(lambda: "cm_connect_failed" in content(name + ".log").decode(), 20, "it says so")
            until = time.monotonic() + 2  # tries are 100 ms apart
            tap.wait_until(lambda: time.monotonic() > until, 10, "time goes by")
            tap.equal(child.poll(), None)
        finally:
            child.terminate()
            child.wait()
    tap.equal(content(name + ".log").decode().count("cm_connect_failed"), 1)


# --- directories and disks ---


def under(options):
    """A function that runs a command where `place` is a file system mounted with these options."""
    reason = mounts.why_not()
    if reason:
        tap.skip(f"no file system can be mounted here: {reason}")
    place = os.path.join(scratch(), "mounted")
    os.makedirs(place, exist_ok=True)
    return place, lambda words, before="": run(mounts.inside(place, options, words, before), seconds=30)


@tap.case
def a_directory_that_cannot_be_written_is_refused():
    place, there = under("ro")
    expect(there(server_words("--pm", f"{place}/s.pm")), 1, place, "permission")
    expect(there(server_words("--address", f"shm:{place}/s")), 1, place)
    expect(there(cm_words(f"shm:{scratch()}/cm3", place=place)), 1, place)
    expect(there([*local(), "start", "--dir", place]), 1, place, "writable")
    expect(there(ycsb(f"{place}/acked")), 1, place)
    no_harm()


def local():
    return [os.path.join(SOURCE, "tools", "rowan-local")]


def ycsb(acked):
    return [program("rowan-ycsb"), "--dir", cluster.directory, "--workload", "load", "--records",
            "100000", "--acked", acked]  # fmt: skip


@tap.case
def a_full_disk_is_told_by_who_meets_it():
    place, there = under("size=1m")
    expect(there(server_words("--pm", f"{place}/s.pm")), 1, "free space")
    expect(there([*local(), "start", "--dir", f"{place}/c", *SMALL]), 1, "free", "--pm-bytes")
    done = there(ycsb(f"{place}/acked"))  # 24 bytes a write: full after a while
    tap.equal(done.code, 1, done.both)
    tap.contains(done.err, "free space", done.both)
    no_harm()


@tap.case
def a_cm_whose_disk_is_full_says_so_and_goes_on_when_there_is_room():
    place, _ = under("size=16k")
    room = os.path.join(scratch(), "room")  # once this is there, the disk is emptied
    again = os.path.join(scratch(), "again")  # and once this is there, filled
    fill = (f'head -c 1048576 /dev/zero > "{place}/filler" 2>/dev/null;'
            f'(while [ ! -e "{room}" ]; do sleep 0.05; done; rm "{place}/filler";'
            f'while [ ! -e "{again}" ]; do sleep 0.05; done; head -c 1048576 /dev/zero > "{place}/filler") 2>/dev/null &')  # fmt: skip
    address, log = f"shm:{scratch()}/cm4", os.path.join(scratch(), "cm4.log")
    words = mounts.inside(place, "size=16k", cm_words(address, "1", "1", place), fill)
    with open(log, "wb") as out:
        manager = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    one = subprocess.Popen(server_words("--cm", address), stdin=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        tap.wait_until(lambda: b"not enough free space" in content(log), 20, "the CM's sentence")
        tap.equal((manager.poll(), one.poll()), (None, None))
        open(room, "wb").close()
        tap.wait_until(lambda: run([program("rowan"), "--cm", address, "put", "a", "b"]).code == 0, 20,
                       "a put after the disk has room")  # fmt: skip
        tap.check(content(log).count(b"free space") < 100, "the log is flooded")
        rowan = [program("rowan"), "--cm", address]
        tap.check("Stuck:" not in run([*rowan, "status"]).out)
        open(again, "wb").close()
        tap.wait_until(lambda: any(run([*rowan, "--timeout-ms", "1000", "balance", word]) and
                                   "Stuck:" in run([*rowan, "status"]).out for word in ("dry-run", "on")), 30,
                       "rowan status says why nothing changes")  # fmt: skip
        tap.contains(run([*rowan, "status"]).out, "not enough free space")
    finally:
        for path in (room, again):
            open(path, "wb").close()
        for child in (one, manager):
            child.terminate()
            child.wait(20)


@tap.case
def a_server_refuses_memory_on_a_full_disk_and_leaves_no_file():
    path = os.path.join(scratch(), "vast.pm")
    expect(server("--pm", path, "--pm-bytes", "60T"), 1, "free space")
    tap.check(not os.path.exists(path))


# --- a start on existing data ---


@tap.case
def a_cm_that_is_told_other_servers_or_replicas_than_are_stored_says_that_they_do_not_count():
    log = os.path.join(scratch(), "cm5.log")
    with open(log, "wb") as out:
        words = cm_words(f"shm:{scratch()}/cm5", "1,2", "2", os.path.join(other.directory, "coord"))
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        tap.wait_until(lambda: content(log).count(b"other_settings") == 2, 20, lambda: content(log).decode())
    finally:
        child.terminate()
        child.wait(20)
    tap.contains(content(log).decode(), "key=cluster-servers stored=1,2,3 given=1,2 ")
    tap.contains(content(log).decode(), "key=replicas stored=3 given=2 ")


@tap.case
def a_start_on_data_of_which_one_superblock_is_lost_is_refused_and_touches_nothing():
    path = os.path.join(other.directory, "s3.pm")
    segments = content(path)[SEGMENTS_OFFSET : SEGMENTS_OFFSET + 1]
    for superblock in SUPERBLOCKS:
        write_at(path, superblock + SEGMENTS_OFFSET, b"\xff")
    hurt = content(path)
    expect(rowan_local("start", "--dir", other.directory, *SMALL), 1, "server 3", "damaged")
    tap.check(content(path) == hurt, "it was written to")
    write_at(path, SUPERBLOCKS[1] + SEGMENTS_OFFSET, segments)
    other.start_again()  # one copy is enough
    tap.equal(other.ok("get", "theirs").out.rstrip("\n"), "value")
    other.stop()


@tap.case
def the_cluster_was_not_harmed_and_stops_cleanly():
    cluster.ok("verify")
    cluster.stop()


sys.exit(tap.main(before))
