#!/usr/bin/python3
"""Several CMs over files: one leads, and whichever it is may be killed."""

import os
import re
import resource
import signal
import sys
import threading
import time

from harness import SOURCE, Cluster, all_servers_hear, expect, leader, puts_again, rowan_local, scratch, tap

import prometheus
import wire
from local import members

CONNECTIONS = 4096  # CM_MAX_CLIENTS
SMALL = ("--pm-bytes", "96M", "--landing-segments", "4")
SECONDS = 30
DESCRIPTORS = 96


def managers_of(cluster):
    """What the file says that clients read."""
    with open(os.path.join(cluster.directory, "cm"), encoding="utf-8") as file:
        return file.read().strip().split(",")


@tap.case
def a_standby_takes_over_gives_ids_and_starts_the_cluster_again():
    cluster = Cluster("three", "--managers", "3", *SMALL)
    cluster.ok("put", "key", "first")
    term = cluster.status()["term"]
    first = leader(cluster)
    cluster.kill([first])
    puts_again(cluster, "second")
    second = leader(cluster)
    tap.check(second not in (None, first), "who leads now:", second)
    tap.check(cluster.status()["term"] > term)
    all_servers_hear(cluster)
    tap.equal({shard["epoch"] for shard in cluster.shards()}, {1})  # nobody was replaced

    servers = ("s1", "s2", "s3")
    cluster.kill(servers)
    for name in servers:
        cluster.launch(name)
    tap.wait_until(lambda: cluster.rowan("status").code == 0, SECONDS, "the cluster serves again")
    tap.equal(cluster.ok("get", "key").out.strip(), "second")
    tap.equal({shard["epoch"] for shard in cluster.shards()}, {2})

    cluster.launch(first)
    cluster.kill([name for name in ("cm", "cm2", "cm3") if name != first])  # it alone is left
    puts_again(cluster, "third")
    all_servers_hear(cluster)
    tap.contains(cluster.ok("verify").out, "equal")
    cluster.stop()


@tap.case
def a_manager_that_stands_still_or_is_gone_is_replaced_without_an_election():
    """Over files who was elected stays so while its process is there."""
    cluster = Cluster("still", "--managers", "2", "--lease-ms", "500", *SMALL)
    cluster.ok("put", "key", "first")
    first = leader(cluster)
    second = "cm2" if first == "cm" else "cm"
    cluster.signal(first, signal.SIGSTOP)
    puts_again(cluster, "second")
    tap.contains(cluster.log(second), "manager_took_over")
    cluster.signal(first, signal.SIGCONT)
    all_servers_hear(cluster)
    tap.equal(cluster.log(first).count("manager_took_over"), 0)  # it saw that another one is named
    cluster.kill([second])
    puts_again(cluster, "third")
    tap.contains(cluster.log(first), "manager_took_over")
    tap.equal({shard["epoch"] for shard in cluster.shards()}, {1})  # no server was replaced
    cluster.stop()


@tap.case
def all_managers_are_told_stopped_and_started_again():
    cluster = Cluster("known", "--managers", "2", "--fabric", "tcp", *SMALL)
    cluster.ok("put", "key", "value")
    found = rowan_local("status", "--dir", cluster.directory, "--json").json()
    tap.equal([one["id"] for one in found["processes"]], ["cm", "cm2", "s1", "s2", "s3"])
    addresses = managers_of(cluster)
    tap.equal(addresses, [one["address"] for one in found["processes"][:2]])
    cluster.stop()
    for more, count in (((), 2), (("--managers", "3"), 3)):
        done = rowan_local("start", "--dir", cluster.directory, "--json", *more)
        tap.equal(done.code, 0, done.both)
        tap.equal(managers_of(cluster), done.json()["cm"].split(","))
        tap.equal(len(managers_of(cluster)), count)
        tap.equal(managers_of(cluster)[0], addresses[0])
        tap.equal(cluster.ok("get", "key").out.strip(), "value")
        cluster.stop()


@tap.case
def a_manager_that_finds_nothing_stored_while_servers_run_says_what_recovers_them():
    cluster = Cluster("wiped", "--lease-ms", "500", *SMALL)
    cluster.kill(["cm"])
    os.unlink(os.path.join(cluster.directory, "coord", "value"))
    cluster.launch("cm")
    tap.wait_until(lambda: "error configuration_lost" in cluster.log("cm"), 30, "it says so")
    tap.contains(cluster.log("cm"), "--recover")
    cluster.kill(["s1", "s2", "s3", "cm"])


def metrics_of(cluster, name):
    command = cluster.processes()[name].command
    return prometheus.get(command[command.index("--metrics") + 1], "/metrics")[1]


@tap.case
def what_the_guide_names_is_told():
    cluster = Cluster("named", "--servers", "1", "--replicas", "1", "--metrics", "yes", *SMALL)
    told = [metrics_of(cluster, name) for name in ("cm", "s1")]
    with open(os.path.join(SOURCE, "deploy", "guide", "watching.md"), encoding="utf-8") as file:
        rows = [line.split(" | ")[0] for line in file if line.startswith("| `rowan_")]
    names = set(re.findall(r"`(rowan_\w*[a-z])", "".join(rows)))
    tap.check(len(names) > 10, names)
    tap.equal({name for name in names if not re.search(rf"^{name}[_{{ ]", "".join(told), re.MULTILINE)}, set())
    ended = [set(re.findall(r'^rowan_connections_ended_total{why="(\w+)"} \d', page, re.MULTILINE)) for page in told]
    tap.equal(ended, [{"unread", "guest", "crowded"}] * 2)  # the guide tells what each is
    cluster.stop()


@tap.case
def a_full_manager_says_what_it_is_full_of_and_counts_whom_it_refuses():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * CONNECTIONS:
        tap.skip("too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * CONNECTIONS, hard))
    cluster = Cluster("full", "--fabric", "tcp", "--servers", "1", "--replicas", "1", "--metrics", "yes", *SMALL)
    address, held = cluster.processes()["cm"].address, []
    try:
        while True:
            held.append(wire.Client(address))
            refusal = held[-1].welcome()
            if refusal != 0:
                break
        tap.check(len(held) > CONNECTIONS - 100, len(held))
        tap.equal(refusal, -26)  # ROWAN_ETOOMANY
        tap.wait_until(lambda: "warn connections_refused" in cluster.log("cm"), 20, "it says so")
        told = metrics_of(cluster, "cm")
        tap.check(re.search(r"^rowan_cm_connections_refused_total [1-9]", told, re.MULTILINE), told[:2000])
    finally:
        for one in held:
            one.socket.close()
    tap.wait_until(lambda: cluster.rowan("status").code == 0, 30, "there is a place again")
    cluster.stop()


class Crowd(threading.Thread):
    """So many connections that never say anything, and as many that say hello and nothing more; each that is ended comes again."""

    def __init__(self, address, each):
        super().__init__(daemon=True)
        self.address, self.each, self.ends, self.came = address, each, threading.Event(), 0
        self.start()

    def come(self, hello):
        self.came += 1
        return hello, wire.Client(self.address, hello=hello)

    def run(self):
        held = [self.come(hello) for hello in (b"", None) for _ in range(self.each)]
        while not self.ends.wait(0.01):
            for at, (hello, one) in enumerate(held):
                if not is_open(one.socket):
                    one.socket.close()
                    held[at] = self.come(hello)
        for _, one in held:
            one.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.ends.set()
        self.join(60)


def is_open(one):
    one.setblocking(False)
    try:
        while one.recv(4096):
            pass
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def with_few_descriptors(cluster, name):
    """Its next process. The function: whether all that are not kept are taken."""
    one = cluster.processes()[name]
    cluster.kill([name])
    one.command = ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$0" "$@"', *one.command]
    members.launch(cluster.directory, one)
    puts_again(cluster, "before")
    all_servers_hear(cluster)
    tap.contains(cluster.log(name), " warn few_descriptors ")
    return lambda: len(os.listdir(f"/proc/{one.pid}/fd")) >= DESCRIPTORS * 3 // 4


@tap.case
def a_manager_of_which_a_crowd_has_all_descriptors_replaces_a_server():
    cluster = Cluster("crowded", "--fabric", "tcp", "--lease-ms", "500", "--metrics", "yes", *SMALL)
    is_full = with_few_descriptors(cluster, "cm")
    bytes_before = len(cluster.log("cm"))
    with Crowd(cluster.processes()["cm"].address, 2 * DESCRIPTORS) as crowd:
        tap.wait_until(is_full, 30, "the crowd has all that it can have")
        cluster.kill(["s1"])
        begun = time.monotonic()
        tap.wait_until(lambda: " failover " in cluster.log("cm")[bytes_before:], 60, "server 1 is replaced")
        seconds = time.monotonic() - begun
        tap.check(re.search(r'^rowan_connections_ended_total{why="crowded"} [1-9]', metrics_of(cluster, "cm"), re.MULTILINE))
        print(f"# replaced after {seconds:.1f} s, {crowd.came} had come")
    tap.check(seconds < 10, f"it took {seconds} s")
    tap.check(len(cluster.log("cm")) - bytes_before < 1 << 20, "the log floods")
    cluster.launch("s1")
    tap.wait_until(lambda: cluster.rowan("--wait", "shards").code == 0, 60, lambda: cluster.last_logs())
    cluster.stop()


@tap.case
def a_server_of_which_a_crowd_has_all_descriptors_is_reached_by_others():
    cluster = Cluster("besieged", "--fabric", "tcp", "--lease-ms", "500", *SMALL)
    is_full = with_few_descriptors(cluster, "s1")
    with Crowd(cluster.processes()["s1"].address, 2 * DESCRIPTORS):
        tap.wait_until(is_full, 30, "the crowd has all that it can have")
        cluster.kill(["s2"])
        cluster.launch("s2")
        filled = lambda: all(len(row["backups"]) == 2 and not row["filling"] for row in cluster.shards())  # noqa: E731
        tap.wait_until(filled, 60, lambda: str(cluster.shards()[:2]) + cluster.last_logs())
    cluster.ok("put", "key", "after")
    ended = next(row["ended_crowded"] for row in cluster.status()["servers"] if row["server"] == 1)
    tap.check(ended > 0, "not counted")
    cluster.stop()


@tap.case
def wrong_managers_are_one_sentence():
    place = os.path.join(scratch(), "a,b")
    expect(rowan_local("start", "--dir", place, *SMALL), 1, "comma")
    expect(rowan_local("start", "--dir", place, "--managers", "9"), 2, "from 1 to 8")
    tap.check(not os.path.exists(place))


sys.exit(tap.main())
