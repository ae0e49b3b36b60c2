#!/usr/bin/python3
"""rowan verify after a real load, and after one byte went bad on a backup (the issue's Show 4); rowan-server
--check of what the servers leave, and of flipped bits in it."""

import hashlib
import os
import random
import secrets
import sys

from harness import DIVISOR, Cluster, expect, program, run, tap

RECORDS = 1_000_000 // DIVISOR
OPERATIONS = 2_000_000 // DIVISOR


def before():
    global cluster
    cluster = Cluster("content", "--pm-bytes", "1G")


def verify():
    done = cluster.rowan("--json", "verify", seconds=300)
    return done, done.json()


@tap.case
def a_million_objects_are_loaded():
    found = cluster.ycsb("load", RECORDS)
    tap.equal(found["operations"], RECORDS)


@tap.case
def two_million_operations_of_workload_a_have_no_errors():
    found = cluster.ycsb("a", RECORDS, "--operations", OPERATIONS)
    tap.equal(found["operations"], OPERATIONS)


@tap.case
def verify_compares_every_object_on_all_replicas_and_finds_them_equal():
    done, found = verify()
    tap.equal(done.code, 0, done.both)
    tap.equal(found["objects"], RECORDS)
    tap.contains(cluster.ok("verify", seconds=300).out.replace(",", ""), str(RECORDS))


def place_of(path, needle):
    """Offset of the only place where the bytes lie in the file."""
    found, offset, kept = [], 0, b""
    with open(path, "rb") as file:
        while chunk := file.read(8 << 20):
            text = kept + chunk
            at = text.find(needle)
            while at >= 0:
                found.append(offset - len(kept) + at)
                at = text.find(needle, at + 1)
            offset += len(chunk)
            kept = text[-len(needle) + 1 :]
    tap.equal(len(found), 1, f"places of the value in {path}")
    return found[0]


def flip_one_bit(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


@tap.case
def a_byte_flipped_on_a_running_backup_is_reported_with_shard_and_server():
    key, value = "object-to-be-damaged", secrets.token_hex(20)
    cluster.ok("put", key, value)
    shard = cluster.shard_of(key)
    backup = shard["backups"][-1]
    # Digested everywhere, and equal, before the damage.
    tap.equal(cluster.rowan("verify", seconds=300).code, 0)
    path = os.path.join(cluster.directory, f"s{backup}.pm")
    offset = place_of(path, value.encode()) + 7
    flip_one_bit(path, offset)
    done = cluster.rowan("verify", seconds=300)
    tap.equal(done.code, 1, done.both)
    lines = [line for line in done.both.splitlines() if "damaged" in line]
    tap.equal(len(lines), 1, done.both)
    tap.contains(lines[0], f"shard {shard['shard']} on server {backup}")
    tap.contains(lines[0], f'first key "{key}"')
    done, found = verify()
    tap.equal(done.code, 1)
    tap.equal(
        [(problem["shard"], problem["server"]) for problem in found["problems"]],
        [(shard["shard"], backup)],
    )
    flip_one_bit(path, offset)
    tap.equal(cluster.rowan("verify", seconds=300).code, 0, "after the repair")


# --- rowan-server --check ---

HEAD, ROWS, METAS, CONFIG, SEGMENTS = 30, 4096, 4202496, 4206592, 12 << 20  # a byte of the superblock; offsets of the parts


def check_of(path, *more, code):
    done = run([program("rowan-server"), "--check", path, *more], seconds=300)
    tap.equal(done.code, code, done.both[:2000])
    return done


def digest_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha1").digest()


def used_bytes(path, count):
    """Places of bytes that are not zero, in segments, far apart."""
    dice, found = random.Random(1), []
    with open(path, "rb") as file:
        size = os.path.getsize(path)
        while len(found) < count:
            offset = dice.randrange(SEGMENTS, size)
            file.seek(offset)
            if file.read(1) != b"\0" and all(abs(offset - other) > 1 << 16 for other in found):
                found.append(offset)
    return found


@tap.case
def check_refuses_the_memory_of_a_server_that_runs():
    done = run([program("rowan-server"), "--check", os.path.join(cluster.directory, "s1.pm")])
    expect(done, 1, "s1.pm", "in use")


@tap.case
def the_cluster_stops_cleanly():
    cluster.stop()


@tap.case
def check_finds_nothing_in_what_a_stopped_server_left():
    for number in (1, 2, 3):
        path = os.path.join(cluster.directory, f"s{number}.pm")
        found = check_of(path, "--json", code=0).json()
        tap.equal(found["server"], number)
        tap.check(found["found"] == 0 and found["blocks"]["puts"] >= RECORDS, found)
        tap.check(all(row["state"] == "full" for row in found["replicas"]) and found["replicas"], found)


@tap.case
def check_finds_the_places_of_flipped_bits():
    path = os.path.join(cluster.directory, "s2.pm")
    shard = check_of(path, "--json", code=0).json()["replicas"][0]["shard"]
    kinds = {HEAD: "superblock_copies", ROWS + 64 * shard + 9: "replica_row_copies", METAS + 1: "segment_words",
             CONFIG + 80: "configuration_copies"}  # fmt: skip
    flipped = used_bytes(path, 40) + list(kinds)
    before = digest_of(path)
    for offset in flipped:
        flip_one_bit(path, offset)
    found = check_of(path, "--json", code=1).json()
    tap.equal(found["found"], len(found["places"]))
    for offset in flipped:
        kind = [place["kind"] for place in found["places"]
                if place["offset"] <= offset < place["offset"] + place["bytes"]]  # fmt: skip
        # In a segment that is committed it is damage for certain.
        one_of = (kinds[offset],) if offset in kinds else ("blocks", "blocks_torn_or_damaged")
        tap.check(len(kind) == 1 and kind[0] in one_of, f"places of byte {offset}: {kind}")
    done = check_of(path, code=1)
    expect(done, 1, "s2.pm", f"{found['found']} places")
    for offset in flipped:
        flip_one_bit(path, offset)
    tap.check(digest_of(path) == before, "--check wrote into the file")
    report = check_of(path, code=0).out
    tap.contains(report, "superblock: server 2 ")
    tap.contains(report, "nothing is damaged")


@tap.case
def check_says_what_it_cannot_read_and_what_it_does_not_know():
    empty = os.path.join(cluster.directory, "empty.pm")
    with open(empty, "wb") as file:
        file.truncate(64 << 20)
    expect(run([program("rowan-server"), "--check", empty]), 1, "never formatted")
    expect(run([program("rowan-server"), "--check", empty + "s"]), 1, "empty.pms")
    tap.equal(run([program("rowan-server"), "--check", empty, "--speed", "9"]).code, 2)
    with open(empty, "r+b") as file:
        file.write(os.urandom(4096))
    expect(run([program("rowan-server"), "--check", empty]), 1, "something else")


sys.exit(tap.main(before))
