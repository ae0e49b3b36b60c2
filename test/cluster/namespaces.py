#!/usr/bin/python3
"""Servers on different addresses: each process in a network namespace of its own, on one bridge. A
load, equal replicas, and links that fail for seconds: nothing lost, nothing doubled.

Needs root, or user namespaces, and ip(8). Each namespace is held by a process of this test and goes
with it; the host's own network is not touched."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

from harness import DIVISOR, environment, program, run, scratch, tap
from work import Counters, Load, chosen_seed, counters_add_up

NODES = {"cm": "10.77.0.1", "s1": "10.77.0.2", "s2": "10.77.0.3", "s3": "10.77.0.4",
         "client": "10.77.0.5"}  # fmt: skip
PORT = 7000
RECORDS = 20_000 // DIVISOR
CUTS = len(NODES) if DIVISOR == 1 else 2
PM_BYTES = "512M"


class Holder:
    """A process that does nothing in a network namespace of its own, and so keeps that alive."""

    def __init__(self, inside):
        self.child = subprocess.Popen([*inside, "sh", "-c", "echo ready; exec sleep 3600"],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE)  # fmt: skip
        self.ready = self.child.stdout.readline() == b"ready\n"

    def why(self):
        return self.child.stderr.read().decode().strip() or "unshare failed"

    def end(self):
        self.child.kill()
        self.child.communicate()


class Network:
    """A namespace with a bridge, and one for each node, joined to it by a pair of links."""

    def __init__(self):
        self.holders = []
        self.users = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        first = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
        self.bridge = self.hold(first)
        self.ip("link", "add", "br0", "type", "bridge")
        self.ip("link", "set", "br0", "up")
        self.nodes = {name: self.hold([*self.enter(self.bridge), "unshare", "--net"]) for name in NODES}
        for name, address in NODES.items():
            self.ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns",
                    str(self.nodes[name].child.pid))  # fmt: skip
            self.ip("link", "set", f"to-{name}", "master", "br0", "up")
            for words in (("addr", "add", f"{address}/24", "dev", "eth0"), ("link", "set", "eth0", "up"),
                          ("link", "set", "lo", "up")):  # fmt: skip
                self.ip(*words, at=self.nodes[name])

    def hold(self, inside):
        holder = Holder(inside)
        self.holders.append(holder)
        if not holder.ready:
            reason = holder.why()
            self.end()
            tap.skip(f"no network namespaces can be made here: {reason}")
        return holder

    def enter(self, holder):
        return ["nsenter", "--target", str(holder.child.pid), *self.users, "--net"]

    def ip(self, *words, at=None):
        done = run([*self.enter(at or self.bridge), "ip", *words], seconds=20)
        if done.code != 0:
            self.end()
            tap.skip(f"ip {' '.join(words)}: {done.err.strip()}")

    def link(self, name, state):
        self.ip("link", "set", f"to-{name}", state)

    def end(self):
        for holder in reversed(self.holders):
            holder.end()


class Cluster:
    """Three servers and a CM, each in its namespace; what work.py needs of a cluster."""

    def __init__(self, network):
        self.network = network
        self.directory = os.path.join(scratch(), "apart")
        os.makedirs(os.path.join(self.directory, "coord"))
        self.children = {}
        self.cm = f"tcp:{NODES['cm']}:{PORT}"
        with open(os.path.join(self.directory, "cm"), "w", encoding="utf-8") as file:
            file.write(self.cm + "\n")
        self.start("cm", [program("rowan-cm"), "--address", self.cm, "--coord", "file", "--coord-dir",
                          os.path.join(self.directory, "coord"), "--cluster-servers", "1,2,3",
                          "--replicas", "3", "--shards", "0", "--lease-ms", "0"])  # fmt: skip
        for number in (1, 2, 3):
            name = f"s{number}"
            self.start(name, [program("rowan-server"), "--server", str(number), "--cm", self.cm,
                              "--address", f"tcp:{NODES[name]}:{PORT}", "--pm",
                              os.path.join(self.directory, name + ".pm"), "--pm-bytes", PM_BYTES,
                              "--durability", "none", "--spin-us", "0"])  # fmt: skip
        tap.wait_until(lambda: self.rowan("put", "ready", "yes").code == 0, 60, "the cluster serves")

    def start(self, name, words):
        with open(os.path.join(self.directory, name + ".log"), "wb") as log:
            self.children[name] = subprocess.Popen(
                [*self.network.enter(self.network.nodes[name]), *words], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, env=environment(),
            )  # fmt: skip

    def client(self, words):
        return [*self.network.enter(self.network.nodes["client"]), *words]

    def rowan(self, *words, seconds=120, **more):
        return run(self.client([program("rowan"), "--cm", self.cm, *words]), seconds=seconds, **more)

    def logs(self):
        found = ""
        for name in self.children:
            with open(os.path.join(self.directory, name + ".log"), encoding="utf-8") as file:
                found += f"--- {name}:\n" + file.read()[-1500:]
        return found

    def end(self):
        for child in self.children.values():
            child.send_signal(signal.SIGTERM)
        codes = {}
        for name, child in self.children.items():
            try:
                codes[name] = child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
                codes[name] = child.wait()
        return codes


def before():
    global network, cluster, reason
    network = cluster = None
    reason = "ip(8) is not installed (package iproute2)"
    if not shutil.which("ip"):
        return
    try:
        network = Network()
    except tap.Skipped as skipped:
        reason = str(skipped)
        return
    cluster = Cluster(network)


def after():
    if cluster:
        cluster.end()
    if network:
        network.end()


def needs_network():
    if cluster is None:
        tap.skip(reason)


@tap.case
def a_load_from_an_address_of_its_own_reaches_servers_on_three_others():
    needs_network()
    done = run(cluster.client([program("rowan-ycsb"), "--cm", cluster.cm, "--workload", "load", "--records",
                               str(RECORDS), "--threads", "2", "--json"]), seconds=120)  # fmt: skip
    tap.equal(done.code, 0, done.both[-2000:])
    done = cluster.rowan("--json", "status")
    tap.equal(sorted(server["address"] for server in done.json()["servers"]),
              [f"tcp:{NODES[name]}:{PORT}" for name in ("s1", "s2", "s3")])  # fmt: skip
    tap.equal(cluster.rowan("verify", seconds=200).code, 0)


@tap.case
def links_that_fail_for_seconds_during_a_load_lose_and_double_nothing():
    needs_network()
    dice = random.Random(chosen_seed())
    counters = Counters(cluster, "links", timeout_ms=30000, wrap=cluster.client)
    load = Load(cluster, RECORDS, wrap=cluster.client, timeout_ms=30000, may_not_start=True)
    try:
        counters.wait_for_progress()
        for number in range(CUTS):
            name = list(NODES)[number % len(NODES)]
            network.link(name, "down")
            time.sleep(dice.uniform(0.2, 6))  # shorter and longer than what closes a connection
            network.link(name, "up")
            counters.wait_for_progress()
        load.finish()
        acknowledged, unknown = counters.finish()
    except tap.Failed:
        print(cluster.logs(), file=sys.stderr)
        raise
    finally:
        load.kill()
        counters.kill()
    tap.equal(sum(unknown), 0, "unknown: every link was up again well within the horizon")
    counters_add_up(cluster, acknowledged, unknown)
    done = cluster.rowan("verify", seconds=200)
    tap.equal(done.code, 0, done.both[-2000:])


@tap.case
def all_processes_end_cleanly():
    needs_network()
    tap.equal(cluster.end(), {name: 0 for name in cluster.children}, cluster.logs())


sys.exit(tap.main(before, after))
