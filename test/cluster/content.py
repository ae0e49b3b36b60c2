#!/usr/bin/python3
"""rowan verify after a real load, and after one byte went bad on a backup (the issue's Show 4); rowan-server
--check of what the servers leave."""

import os
import secrets
import sys

from harness import DIVISOR, Cluster, expect, program, run, tap

RECORDS = 200_000 // DIVISOR
OPERATIONS = 600_000 // DIVISOR


def before():
    global cluster
    cluster = Cluster("content", "--pm-bytes", "128M")  # what is overwritten is cleaned meanwhile


def verify():
    done = cluster.rowan("--json", "verify", seconds=300)
    return done, done.json()


@tap.case
def objects_are_loaded():
    found = cluster.ycsb("load", RECORDS)
    tap.equal(found["operations"], RECORDS)


@tap.case
def operations_of_workload_a_have_no_errors():
    found = cluster.ycsb("a", RECORDS, "--operations", OPERATIONS)
    tap.equal(found["operations"], OPERATIONS)
    for server in cluster.status()["servers"]:
        tap.check(server["segments_cleaned"] > 0 or DIVISOR > 1, server)


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


def place_to_damage(cluster, key):
    """A shard, a backup of it, its file and a place there within the value of that key, which is put."""
    value = secrets.token_hex(20)
    cluster.ok("put", key, value)
    shard = cluster.shard_of(key)
    backup = shard["backups"][-1]
    # Digested everywhere, and equal, before the damage.
    tap.equal(cluster.rowan("verify", seconds=300).code, 0)
    path = os.path.join(cluster.directory, f"s{backup}.pm")
    return shard, backup, path, place_of(path, value.encode()) + 7


@tap.case
def a_byte_flipped_on_a_running_backup_is_reported_with_shard_and_server():
    key = "object-to-be-damaged"
    shard, backup, path, offset = place_to_damage(cluster, key)
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


def check_of(path, *more, code):
    done = run([program("rowan-server"), "--check", path, *more], seconds=300)
    tap.equal(done.code, code, done.both[:2000])
    return done


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
    tap.contains(check_of(path, code=0).out, "nothing is damaged")


# --- where there are leases ---


@tap.case
def a_backup_with_damage_is_filled_anew():
    other = Cluster("damaged", "--pm-bytes", "128M", "--lease-ms", "1000")
    shard, backup, path, offset = place_to_damage(other, "key")
    flip_one_bit(path, offset)
    tap.contains(other.rowan("verify", seconds=300).both, f"shard {shard['shard']} on server {backup}")
    # Nobody else is there to take its place.
    tap.wait_until(lambda: f" shard_left node=server-{backup} shard={shard['shard']} " in other.log(f"s{backup}"), 60, other.last_logs)
    tap.wait_until(lambda: not other.status()["under_replicated"], 60, other.last_logs)
    tap.equal(other.shard_of("key")["backups"][-1], backup)
    tap.equal(other.rowan("verify", seconds=300).code, 0)
    other.stop()


sys.exit(tap.main(before))
