#!/usr/bin/python3
"""A cluster that starts again from its data: after a stop, after the death of all its processes, with
other settings, with something missing; and a CM that comes back alone."""

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

from harness import (DIVISOR, SOURCE, Cluster, all_servers_hear, ends_with_us, environment, expect, process, program,
                     puts_again, rowan_local, run, scratch, sentences, tap)  # fmt: skip

SMALL = ("--pm-bytes", "128M", "--landing-segments", "4")
RECORDS = max(500, 20000 // DIVISOR)


def start_again(cluster, *options):
    done = rowan_local("start", "--dir", cluster.directory, *options, seconds=200)
    tap.equal(done.code, 0, "rowan-local start:", done.both)
    tap.contains(done.out, "going on from the data")
    return done


def refused(cluster, options, *pieces):
    """The start says so in one sentence and touches nothing."""
    before = fingerprint(cluster.directory)
    done = rowan_local("start", "--dir", cluster.directory, *options)
    tap.equal(done.code, 1, done.both)
    tap.equal(len(done.err.strip().splitlines()), 1, done.err)
    for piece in pieces:
        tap.contains(done.err, piece)
    tap.equal(fingerprint(cluster.directory), before)


def fingerprint(directory):
    """Every file with its content; PM files by their first MiB and their size."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    found[path] = os.path.getsize(path), hashlib.sha1(file.read(1 << 20)).hexdigest()
    return found


def kill_all(cluster, spared=()):
    cluster.kill([name for name in cluster.processes() if name not in spared])


def fill(cluster):
    cluster.ycsb("load", RECORDS)
    for number in range(20):
        cluster.ok("put", f"key-{number}", f"old-{number}")
    for number in range(10):
        cluster.ok("put", f"key-{number}", f"new-{number}")
    cluster.ok("del", "key-0")


def check(cluster, replicas=3):
    """All of `fill` is there, and on every replica."""
    tap.equal(cluster.rowan("get", "key-0").code, 1)
    for number in (1, 9, 10, 19):
        tap.equal(cluster.ok("get", f"key-{number}").out.strip(),
                  f"{'new' if number < 10 else 'old'}-{number}")  # fmt: skip
    found = cluster.ycsb("c", RECORDS, "--operations", RECORDS)
    tap.equal(found["operations"], RECORDS)
    said = cluster.ok("verify").out
    tap.contains(said, "equal")
    tap.contains(said, f"{RECORDS + 19} objects")
    for shard in cluster.shards():
        tap.equal(len(shard["backups"]), replicas - 1, shard)
        tap.equal((shard["recovering"], shard["possibly_incomplete"]), (False, False))


def epochs(cluster):
    return [shard["epoch"] for shard in cluster.shards()]


def address_of_cm(cluster):
    with open(os.path.join(cluster.directory, "cm"), encoding="utf-8") as file:
        return file.read()


def goes_on(fabric):
    cluster = Cluster("again-" + fabric, "--fabric", fabric, *SMALL)
    fill(cluster)
    term = cluster.status()["term"]
    cluster.stop()
    start_again(cluster)
    check(cluster)
    tap.check(cluster.status()["term"] > term)
    tap.equal(set(epochs(cluster)), {2})

    cluster.ok("put", "key-0", "back")
    address = address_of_cm(cluster)
    kill_all(cluster)
    start_again(cluster)
    tap.equal(address_of_cm(cluster), address)  # where clients that outlived it look for it
    tap.equal(cluster.ok("get", "key-0").out.strip(), "back")
    cluster.ok("del", "key-0")
    check(cluster)
    tap.equal(set(epochs(cluster)), {3})
    tap.equal(cluster.status()["servers"][0]["fabric"], fabric)
    cluster.stop()


@tap.case
def a_cluster_goes_on_after_a_stop_and_after_the_death_of_all_on_shm():
    goes_on("shm")


@tap.case
def a_cluster_goes_on_after_a_stop_and_after_the_death_of_all_on_tcp():
    goes_on("tcp")


@tap.case
def fabric_durability_and_roles_may_change_between_runs():
    cluster = Cluster("changing", *SMALL)
    fill(cluster)
    cluster.stop()
    start_again(cluster, "--fabric", "tcp", "--workers", "2", "--digests", "2")
    check(cluster)
    tap.equal({shard["worker"] for shard in cluster.shards()}, {0, 1})
    cluster.stop()
    start_again(cluster, "--fabric", "shm", "--durability", "fence")
    check(cluster)
    server = cluster.status()["servers"][1]
    tap.equal((server["fabric"], server["durability"], server["workers"]), ("shm", "fence", 2))
    cluster.stop()
    start_again(cluster)  # as it was the last time
    server = cluster.status()["servers"][1]
    tap.equal((server["fabric"], server["durability"], server["workers"]), ("shm", "fence", 2))
    cluster.stop()


@tap.case
def a_run_that_does_not_fence_is_on_the_medium_as_such_before_it_serves():
    cluster = Cluster("weaker", *SMALL, "--durability", "fence")
    cluster.ok("put", "key", "value")
    cluster.stop()
    for _ in range(2):  # the run record and the copies of the configuration, which may share one, and nothing else
        start_again(cluster, "--durability", "none")
        found = cluster.status()["servers"]
        tap.check(all(server["syncs"] in (2, 3) for server in found), found)
        cluster.stop()


@tap.case
def what_the_data_is_made_of_cannot_change():
    cluster = Cluster("kept", *SMALL)
    cluster.ok("put", "key", "value")
    cluster.stop()
    for flag, given, made in (
        ("--servers", "4", "3"),
        ("--replicas", "2", "3"),
        ("--shards", "12", "0"),
        ("--pm-bytes", "256M", str(128 << 20)),
        ("--pm", scratch(), cluster.directory),
        ("--pm", f"{cluster.directory}:4K", cluster.directory),
    ):
        refused(cluster, (flag, given), f"{flag} ", f"was made with {flag} {made}", "nothing was touched")
    start_again(cluster, "--servers", "3", "--pm-bytes", "128M", "--pm", cluster.directory)
    tap.equal(cluster.ok("get", "key").out.strip(), "value")
    cluster.stop()


@tap.case
def nothing_is_started_beside_a_part_of_a_cluster_that_still_runs():
    cluster = Cluster("partly", *SMALL)
    cluster.ok("put", "key", "value")
    kill_all(cluster, spared=("s2",))
    cluster.signal("s2", signal.SIGSTOP)  # it would go on writing its log
    tap.wait_until(lambda: cluster.processes()["s2"].state() == "stopped", 10, "s2 stands still")
    refused(cluster, (), "a part of the cluster", "(s2)", "rowan-local stop")
    tap.equal(rowan_local("stop", "--dir", cluster.directory).code, 0)
    start_again(cluster)
    tap.equal(cluster.ok("get", "key").out.strip(), "value")
    cluster.stop()


@tap.case
def a_missing_part_is_named_and_a_lost_replica_can_be_given_up():
    cluster = Cluster("parts", *SMALL)
    fill(cluster)
    cluster.stop()
    place = cluster.directory
    for name, words in (("coord", "is gone"), ("s2.pm", "the data of server 2, is gone")):
        os.rename(os.path.join(place, name), os.path.join(scratch(), "aside"))
        refused(cluster, (), name, words)
        os.rename(os.path.join(scratch(), "aside"), os.path.join(place, name))
    os.rename(os.path.join(place, "cluster.json"), os.path.join(scratch(), "aside"))
    refused(cluster, (), "no cluster.json")
    os.rename(os.path.join(scratch(), "aside"), os.path.join(place, "cluster.json"))

    os.unlink(os.path.join(place, "s2.pm"))
    with open(os.path.join(place, "s2.pm"), "wb") as file:
        file.truncate(128 << 20)
    start_again(cluster)
    check(cluster, replicas=2)
    tap.check(all(shard["primary"] != 2 and 2 not in shard["backups"] for shard in cluster.shards()))
    cluster.stop()


def lose(cluster, name):
    """Moves that PM file aside, and does what the start advises. Returns its sentence then."""
    path = os.path.join(cluster.directory, name)
    os.replace(path, os.path.join(scratch(), "lost"))
    done = rowan_local("start", "--dir", cluster.directory)
    advice = re.search(r"truncate -s \d+ \S+", done.err)
    tap.check(advice, done.both)
    tap.equal(run(shlex.split(advice.group())).code, 0)
    done = rowan_local("start", "--dir", cluster.directory, seconds=200)
    tap.equal(done.code, 1, done.both, cluster.last_logs())
    return sentences(done.err)[-1]


@tap.case
def a_cluster_of_which_shards_wait_for_lost_data_is_left_running_until_that_is_back_or_given_up():
    cluster = Cluster("losing", "--lease-ms", "500", "--replicas", "1", *SMALL)
    cluster.ok("balance", "off")
    keys = {cluster.shard_of(key)["primary"]: key for key in map(str, range(50))}
    for key in keys.values():
        cluster.ok("put", key, "value")
    cluster.stop()
    said = lose(cluster, "s2.pm")
    tap.contains(said, "the cluster runs, and 8 of 24 shards are not served: they wait for the data of server 2, which came without")
    expect(cluster.rowan("status"), 1, "8 shards are not served: they wait for server 2 to come back")
    tap.equal(cluster.ok("get", keys[1]).out.strip(), "value")
    tap.equal({name for name, one in cluster.processes().items() if one.alive()}, {"cm", "s1", "s2", "s3"})

    cluster.stop()
    os.replace(os.path.join(scratch(), "lost"), os.path.join(cluster.directory, "s2.pm"))
    start_again(cluster)
    for key in keys.values():
        tap.equal(cluster.ok("get", key).out.strip(), "value")
    cluster.stop()

    said = lose(cluster, "s2.pm")
    command = shlex.split(said[said.index("rowan --dir ") :])
    expect(run([program("rowan"), *command[1:]]), 1, "8 shards wait", "lost for good", "--yes does it")
    tap.equal(run([program("rowan"), "--yes", *command[1:]]).code, 0)
    tap.contains(cluster.status_done().out, "Possible loss: 8 shards")
    for server, key in keys.items():
        tap.equal(cluster.rowan("get", key).out.strip(), "" if server == 2 else "value")
    cluster.stop()
    start_again(cluster)
    cluster.stop()


@tap.case
def pm_that_is_gone_with_the_data_of_all_is_not_begun_anew():
    path = os.path.join(scratch(), "of-all.pm")
    with open(path, "wb") as file:
        file.truncate(3 * (128 << 20) + 4096)
    for name, place in (("shared", ("--pm", path + ":4K")), ("own", ())):
        cluster = Cluster("gone-" + name, "--lease-ms", "500", *place, *SMALL)
        cluster.stop()
        paths = [path] if place else [os.path.join(cluster.directory, f"s{number}.pm") for number in (1, 2, 3)]
        for number, each in enumerate(paths):
            os.rename(each, os.path.join(scratch(), f"aside-{number}"))
        refused(cluster, (), f"{paths[0]} is gone, and no server's data is there", "another directory")
        for number, each in enumerate(paths):
            os.rename(os.path.join(scratch(), f"aside-{number}"), each)
        start_again(cluster)
        cluster.stop()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


@tap.case
def a_lost_configuration_is_told_in_a_whole_sentence_and_can_be_restored():
    cluster = Cluster("forgotten", *SMALL)
    cluster.ok("put", "key", "value")
    cluster.stop()
    value = os.path.join(cluster.directory, "coord", "value")
    os.rename(value, os.path.join(scratch(), "aside"))
    done = rowan_local("start", "--dir", cluster.directory)
    tap.equal(done.code, 1, done.both)
    tap.contains(done.err, "the configuration manager knows no cluster: restore its coordination directory")
    tap.contains(done.err, "not a member of this cluster (log: ")  # the end
    os.rename(os.path.join(scratch(), "aside"), value)
    start_again(cluster)
    tap.equal(cluster.ok("get", "key").out.strip(), "value")
    cluster.stop()


@tap.case
def a_process_with_the_same_id_and_start_time_after_the_host_has_booted_is_none_of_ours():
    cluster = Cluster("booted", *SMALL)
    cluster.ok("put", "key", "value")
    kill_all(cluster)
    path = os.path.join(cluster.directory, "run", "processes.json")
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    with subprocess.Popen(["sleep", "infinity"]) as other:
        try:
            alive = [row | {"pid": other.pid, "start": process.start_time(other.pid)} for row in rows]
            write(path, json.dumps(alive))
            refused(cluster, (), "a cluster is running in")
            write(path, json.dumps([row | {"boot": "another"} for row in alive]))
            start_again(cluster)
            tap.equal(cluster.ok("get", "key").out.strip(), "value")
            cluster.stop()
        finally:
            other.kill()


@tap.case
def records_that_are_damaged_are_named_and_nothing_is_touched():
    cluster = Cluster("damaged", *SMALL)
    cluster.ok("put", "key", "value")
    kill_all(cluster)
    path = os.path.join(cluster.directory, "run", "processes.json")
    for text in ("", '[{"name": "cm"}]', "{}", "7", '[{"name": "x", "pid": 1, "start": 1, "address": ""}]'):
        write(path, text)
        refused(cluster, (), path, "is damaged")
    os.unlink(path)

    path = os.path.join(cluster.directory, "cluster.json")
    with open(path, encoding="utf-8") as file:
        whole = file.read()
    for text in ("", whole[:60], "[]"):
        write(path, text)
        refused(cluster, (), path, "is damaged")
    write(path, '{"servers": 3}')
    refused(cluster, (), path, "it lacks")
    for name, value in (("servers", None), ("replicas", "3"), ("durability", "some"), ("workers", -1),
                        ("fabric", ["shm"]), ("pm", 1), ("port", True)):  # fmt: skip
        write(path, json.dumps(json.loads(whole) | {name: value}))
        refused(cluster, (), path, "is damaged", name)
    write(path, json.dumps(json.loads(whole) | {"format": 2}))
    refused(cluster, (), path, "another version of rowan-local")
    older = json.loads(whole)
    tap.equal(older.pop("format"), 1)
    write(path, json.dumps(older))  # as versions wrote it that had no formats
    start_again(cluster)
    tap.equal(cluster.ok("get", "key").out.strip(), "value")
    cluster.stop()


@tap.case
def the_data_of_another_cluster_is_refused_with_both_names_and_kept():
    clusters = [Cluster("mine", *SMALL), Cluster("theirs", *SMALL)]
    names = [one.status()["cluster"] for one in clusters]
    for one in clusters:
        one.ok("put", "key", names[0])
        one.stop()
    for one in clusters:
        os.rename(os.path.join(one.directory, "s2.pm"), one.directory + ".pm")
    for one, other in (clusters, clusters[::-1]):
        shutil.copy(other.directory + ".pm", os.path.join(one.directory, "s2.pm"))
    done = rowan_local("start", "--dir", clusters[0].directory)
    tap.equal(done.code, 1, done.both)
    for piece in ("server 2 holds data of cluster " + names[1], "this is cluster " + names[0]):
        tap.contains(done.err, piece)
    tap.check(not os.path.exists(os.path.join(clusters[0].directory, "run")))
    shutil.copy(clusters[0].directory + ".pm", os.path.join(clusters[0].directory, "s2.pm"))
    start_again(clusters[0])
    tap.equal(clusters[0].ok("get", "key").out.strip(), names[0])
    tap.contains(clusters[0].ok("verify").out, "equal")
    clusters[0].stop()


@tap.case
def status_names_the_servers_that_a_cluster_waits_for():
    cluster = Cluster("waiting", *SMALL)
    cluster.ok("put", "key", "value")
    kill_all(cluster)
    for name, missing in (("cm", None), ("s1", [2, 3]), ("s3", [2])):
        cluster.launch(name)
        if missing:
            tap.wait_until(lambda: waited_for(cluster) == missing, 30, f"it waits for {missing}")
            done = cluster.rowan("status")
            tap.equal(done.code, 1, done.both[-3000:])
            words = ", ".join(map(str, missing))
            tap.contains(done.err, f"it waits for server {words} to be started")
            tap.equal(cluster.rowan("verify").code, 1)
    cluster.launch("s2")
    tap.wait_until(lambda: cluster.rowan("status").code == 0, 60, "the cluster serves")
    tap.equal(cluster.ok("get", "key").out.strip(), "value")
    cluster.stop()


def waited_for(cluster):
    done = cluster.rowan("--json", "status")
    return done.json().get("waiting_for") if done.out else None


def cm_returns(fabric):
    cluster = Cluster("cm-" + fabric, "--fabric", fabric, *SMALL)
    fill(cluster)
    before = cluster.status()
    cluster.kill(["cm"])
    cluster.launch("cm")
    puts_again(cluster, "it")
    tap.check(cluster.status()["term"] > before["term"])
    all_servers_hear(cluster)
    tap.equal(set(epochs(cluster)), {1})  # nobody was replaced
    tap.contains(cluster.ok("verify").out, "equal")
    tap.equal(cluster.ok("get", "key-1").out.strip(), "new-1")
    cluster.stop()


@tap.case
def a_cm_that_returns_alone_finds_its_servers_again_on_shm():
    cm_returns("shm")


@tap.case
def a_cm_that_returns_alone_finds_its_servers_again_on_tcp():
    cm_returns("tcp")


# --- ports ---


@tap.case
def two_clusters_over_tcp_start_side_by_side():
    places = [os.path.join(scratch(), f"side-{number}") for number in (1, 2)]
    for place in places:
        ends_with_us(place)
    children = [
        subprocess.Popen([os.path.join(SOURCE, "tools", "rowan-local"), "start", "--dir", place, "--json",
                          "--fabric", "tcp", *SMALL], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         text=True, env=environment())
        for place in places
    ]  # fmt: skip
    found = [json.loads(child.communicate(timeout=200)[0]) for child in children]
    addresses = [one["address"] for cluster in found for one in cluster["processes"]]
    tap.equal(len(set(addresses)), 8)
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        low, high = map(int, file.read().split())
    for address in addresses:
        tap.check(address.startswith("tcp:127.0.0.1:"), address)
        tap.check(not low <= int(address.rpartition(":")[2]) <= high, address)
    for place in places:
        tap.equal(rowan_local("stop", "--dir", place).code, 0)


# Takes a port away after it was found free: the first draw, or all of them.
TAKEN = """
import socket, sys
sys.path.insert(0, {tools!r})
from local import command, ports
find, draws, taken = ports.find, [], []
def find_and_take(count):
    start = find(count)
    draws.append(start)
    if len(draws) <= {times}:
        taken.append(socket.create_server(("127.0.0.1", start + {which})))
    return start
ports.find = find_and_take
code = command.main(["start", "--dir", {place!r}, "--fabric", "tcp", "--pm-bytes", "96M",
                     "--landing-segments", "4"], {tools!r})
print("draws", len(draws))
sys.exit(code)
"""


def start_on_taken_ports(name, times, which):
    place = os.path.join(scratch(), name)
    tools = os.path.join(SOURCE, "tools")
    ends_with_us(place)
    script = TAKEN.format(tools=tools, times=times, which=which, place=place)
    return place, run([sys.executable, "-c", script], seconds=200)


@tap.case
def a_port_that_was_taken_meanwhile_costs_another_draw():
    for which in (0, 3):  # the CM's, and one of server 2
        place, done = start_on_taken_ports(f"taken-{which}", 1, which)
        tap.equal(done.code, 0, done.both)
        draws = int(re.search(r"^draws (\d)$", done.out, re.MULTILINE).group(1))
        tap.check(draws in (2, 3), "draws:", draws)  # 3: another test's cluster drew the same
        tap.equal(rowan_local("stop", "--dir", place).code, 0)


@tap.case
def ports_that_are_taken_again_and_again_fail_the_start_with_the_address():
    place, done = start_on_taken_ports("all-taken", 99, 2)
    tap.equal(done.code, 1, done.both)
    tap.contains(done.out, "draws 3")
    tap.contains(done.err, "server 1 did not start: rowan-server: cannot")
    tap.contains(done.err, "address is in use")
    tap.equal(os.listdir(place), ["log"])


sys.exit(tap.main())
