#!/usr/bin/python3
"""What a person types first: start, put, get, del, status, shards, stop (the issue's Show 3)."""

import os
import stat
import sys

from harness import FABRIC, Cluster, processes_naming, program, rowan_local, run, scratch, slot_of_key, tap

BEFORE = {}


def listing():
    """What a cluster could leave behind outside its directory."""
    found = {}
    for place in ("/tmp", "/dev/shm", "/var/tmp", "/run", os.path.expanduser("~"), os.getcwd()):
        # Only what is new and looks like ours can be blamed on the cluster: others work here too, some on our tests.
        found[place] = {
            name for name in os.listdir(place) if "rowan" in name.lower() and "rowan-test-" not in name
        }
    return found


def before():
    global cluster
    BEFORE.update(listing())
    cluster = Cluster("basic", "--pm-bytes", "256M")


@tap.case
def start_writes_the_address_of_the_cm():
    with open(os.path.join(cluster.directory, "cm"), encoding="utf-8") as file:
        address = file.read()
    tap.check(address.startswith(f"{FABRIC}:") and address.endswith("\n"), address)
    if FABRIC == "shm":
        tap.equal(address, f"shm:{cluster.directory}/run/cm\n")


@tap.case
def nobody_else_reaches_the_sockets_of_a_local_cluster():
    tap.equal(stat.S_IMODE(os.stat(os.path.join(cluster.directory, "run")).st_mode), 0o700)


@tap.case
def nobody_else_opens_the_files_of_a_cluster():
    for name in ("s1.pm", "coord/value"):
        tap.equal(stat.S_IMODE(os.stat(os.path.join(cluster.directory, name)).st_mode), 0o600, name)


@tap.case
def put_and_get_give_the_value_back():
    tap.equal(cluster.rowan("put", "greeting", "hello").code, 0)
    done = cluster.rowan("get", "greeting")
    tap.equal((done.code, done.out.rstrip("\n")), (0, "hello"))


@tap.case
def a_get_after_the_delete_says_not_found_and_exits_1():
    cluster.ok("put", "gone", "soon")
    tap.equal(cluster.rowan("del", "gone").code, 0)
    done = cluster.rowan("get", "gone")
    tap.equal(done.code, 1)
    tap.contains(done.err, "not found")
    tap.equal(done.out, "")


@tap.case
def get_put_and_del_print_json():
    tap.equal(cluster.ok("--json", "put", "object", "text").json()["status"], "ROWAN_OK")
    found = cluster.ok("--json", "get", "object").json()
    tap.equal((found["key"], found["value"]), ("object", "text"))
    tap.check(found["version"] > 0)
    tap.equal(cluster.ok("--json", "del", "object").json()["status"], "ROWAN_OK")
    done = cluster.rowan("--json", "get", "object")
    tap.equal((done.code, done.json()["status"]), (1, "ROWAN_ENOTFOUND"))


@tap.case
def rowan_finds_the_cluster_of_the_directory_it_runs_in():
    cluster.ok("put", "here", "yes")
    done = run([program("rowan"), "get", "here"], cwd=cluster.directory)
    tap.equal((done.code, done.out.rstrip("\n")), (0, "yes"))


@tap.case
def rowan_takes_the_address_of_the_cm():
    with open(os.path.join(cluster.directory, "cm"), encoding="utf-8") as file:
        address = file.read().strip()
    done = run([program("rowan"), "--cm", address, "get", "here"])
    tap.equal((done.code, done.out.rstrip("\n")), (0, "yes"))


@tap.case
def status_names_every_server_and_the_durability():
    out = cluster.status_done().out
    for piece in ("none", FABRIC):
        tap.contains(out, piece)
    found = cluster.status()
    tap.equal(sorted(server["server"] for server in found["servers"]), [1, 2, 3])
    for server in found["servers"]:
        tap.equal(server["durability"], "none")


@tap.case
def paced_load_over_several_connections_keeps_its_rate():
    """A multiple of the operations would be the closed loop's; fewer, operations never asked."""
    found = cluster.ycsb("a", 1000, "--operations", "2000", "--threads", "2", "--connections", "5",
                         "--depth", "4", "--rate", "2000")  # fmt: skip
    tap.equal((found["operations"], found["connections"], found["rate"]), (2000, 5, 2000))
    tap.check(0.95 < found["seconds"] < 10, found["seconds"])


@tap.case
def shards_cover_every_slot_once_with_three_replicas_each():
    tap.check(cluster.ok("shards").out.strip())
    shards = sorted(cluster.shards(), key=lambda shard: shard["first_slot"])
    at = 0
    for shard in shards:
        tap.equal(shard["first_slot"], at)
        at = shard["last_slot"] + 1
        tap.equal(sorted([shard["primary"], *shard["backups"]]), [1, 2, 3])
    tap.equal(at, 16384)
    tap.equal({shard["primary"] for shard in shards}, {1, 2, 3})


@tap.case
def the_slot_function_of_this_test_agrees_with_the_redis_specification():
    tap.equal(slot_of_key("123456789"), 0x31C3 % 16384)
    tap.equal(slot_of_key("{user1000}.following"), slot_of_key("user1000"))
    tap.equal(slot_of_key("foo{}{bar}"), slot_of_key(b"foo{}{bar}"))


@tap.case
def local_status_shows_every_process_running():
    done = rowan_local("status", "--dir", cluster.directory)
    tap.equal(done.code, 0, done.both)
    for name in ("cm", "s1", "s2", "s3", "running"):
        tap.contains(done.out, name)
    found = rowan_local("status", "--json", "--dir", cluster.directory).json()
    tap.equal([row["state"] for row in found["processes"]], ["running"] * 4)


@tap.case
def verify_finds_all_replicas_equal():
    done = cluster.ok("verify")
    tap.check(any(character.isdigit() for character in done.out), "no number in:", done.out)


def open_outside(pid):
    """Files of a process that lie outside the cluster's directory and would stay."""
    fine = ("/dev/null", "/memfd:", "socket:", "pipe:", "anon_inode:", cluster.directory)
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{name}")
        if not target.startswith(fine):
            found.append(target)
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        for line in file:
            path = line.split(maxsplit=5)[5].strip() if len(line.split(maxsplit=5)) > 5 else ""
            if " rw-s " in line and not path.startswith(fine):
                found.append(path)
    return found


@tap.case
def no_process_has_a_file_open_outside_the_directory():
    for one in cluster.processes().values():
        tap.equal(open_outside(one.pid), [], one.name)


@tap.case
def stop_leaves_no_process():
    cluster.stop()
    tap.equal(processes_naming(cluster.directory), [])


@tap.case
def stop_leaves_no_file_outside_the_directory():
    for place, names in listing().items():
        new = names - BEFORE[place]
        tap.equal(sorted(new), [], place)
    tap.equal(os.listdir(scratch()), ["basic"])


@tap.case
def stop_leaves_data_and_logs_and_nothing_else():
    names = set(os.listdir(cluster.directory))
    tap.equal(names, {"cluster.json", "coord", "log", "s1.pm", "s2.pm", "s3.pm"})


sys.exit(tap.main(before))
