#!/usr/bin/python3
"""A server of a cluster with leases is killed, or stands still for longer than its lease, amid a load: the others go on,
it comes back as a replica that fills, every acknowledged write is there and every key was one register. Also when the
leading manager is killed at any step of that: a standby goes on with it.

ROWAN_FAILOVERS: how many are killed on each fabric; ROWAN_STOPS: stopped; ROWAN_SWEEPS: managers killed at each step;
ROWAN_SEED: runs a failed one again."""

import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import time

from failing import SLOWER, Failing, acknowledged
from harness import DIVISOR, Cluster, environment, program, rowan_local, tap
from local import process

import prometheus

KILLS = int(os.environ.get("ROWAN_FAILOVERS") or 3)
STOPS = int(os.environ.get("ROWAN_STOPS") or 1)
SWEEPS = int(os.environ.get("ROWAN_SWEEPS") or 1)

# A step has come when the leading manager ("cm"), or so many servers ("s"), have logged the event.
REMOVAL = (("cm", 0, "-"), ("cm", 1, "server_silent"), ("cm", 1, "failover"), ("s", 1, "configuration_adopted"),
           ("s", 2, "configuration_adopted"), ("cm", 1, "configuration_committed"), ("s", 1, "configuration_committed"),
           ("s", 1, "reconciled"))  # fmt: skip
RETURN = (("cm", 0, "-"), ("cm", 1, "server_joined"), ("s", 1, "configuration_adopted"), ("s", 3, "configuration_adopted"),
          ("cm", 1, "configuration_committed"), ("s", 1, "filling"), ("s", 1, "filled"), ("cm", 1, "filled"))  # fmt: skip


def again_and_again(cluster, rounds, fail):
    for number in range(rounds):
        cluster.goes_on("before")
        victim = fail()
        print(f"# round {number + 1}: server {victim}; {acknowledged(cluster.acked)} writes acknowledged", flush=True)
    cluster.goes_on("in the end")


def killed(*options):
    with Failing("killed-" + "-".join(options[1::2]), *options) as cluster:
        done = rowan_local("restart", "1", "--dir", cluster.directory)
        tap.check(done.code == 1 and "kill it first" in done.both, done.code, done.both)
        again_and_again(cluster, KILLS, cluster.kill_a_primary)


def stopped(*options):
    with Failing("stopped-" + "-".join(options[1::2]), *options) as cluster:
        again_and_again(cluster, STOPS, cluster.stop_a_primary)


@tap.case
def a_killed_server_is_replaced_and_comes_back_on_shm():
    killed("--fabric", "shm")


@tap.case
def a_killed_server_is_replaced_and_comes_back_on_tcp_with_zookeeper():
    killed("--fabric", "tcp", "--coord", "zookeeper")


@tap.case
def a_server_that_stood_still_comes_back_by_itself_on_shm():
    stopped("--fabric", "shm")


@tap.case
def a_server_that_stood_still_comes_back_by_itself_on_tcp():
    stopped("--fabric", "tcp")


class Sweep(Failing):
    """With three managers, of which the leading one is killed again and again."""

    def __init__(self, *options):
        super().__init__("sweep-" + "-".join(options[1::2]), "--managers", "3", *options, lease_ms=250 * SLOWER)

    def kill_at(self, step, victim, begin):
        """Begins what has the steps, kills the manager at this one, and lets it return when another one manages."""
        who, count, event = step
        term, manager = self.manager()
        names = [manager] if who == "cm" else ["s1", "s2", "s3"]
        running = self.processes()
        said = {name: len(self.log(name)) if running[name].alive() else 0 for name in names}
        begin(victim)
        end = time.monotonic() + 60
        while sum(f" {event} " in self.log(name)[said[name]:] for name in names) < count:  # fmt: skip
            tap.check(time.monotonic() < end, step, "does not come: " + self.last_logs())
            time.sleep(0.0005)  # the pace of looking: nothing hangs on it
        self.kill([manager])
        print(f"# {victim}, {step}: {manager} ended at", *self.log(manager).splitlines()[-1].split()[2:4], flush=True)
        tap.wait_until(lambda: self.manager()[0] > term, 60, lambda: "no standby manages: " + self.last_logs())
        self.launch(manager)

    def goes_without(self, victim):
        found = self.known_shards()
        return found and not any(shard["recovering"] or int(victim[1:]) in (shard["primary"], *shard["backups"]) for shard in found)

    def round(self, removal, comeback):
        self.goes_on("before")
        victim = f"s{self.a_primary()}"
        self.kill_at(removal, victim, lambda name: self.kill([name]))
        tap.wait_until(lambda: self.goes_without(victim), 60, lambda: f"{removal}: no failover: " + self.last_logs())
        self.goes_on(f"{victim} is removed")
        self.kill_at(comeback, victim, self.launch)
        self.wait_until_whole()


def swept(rounds, *options):
    with Sweep(*options) as cluster:
        steps = [(removal, comeback) for _ in range(SWEEPS)
                 for removal, comeback in zip(*(cluster.dice.sample(of, len(of)) for of in (REMOVAL, RETURN)))]  # fmt: skip
        for pair in steps[: max(1, rounds * SWEEPS // (4 if DIVISOR > 1 else 1))]:
            cluster.round(*pair)
        cluster.goes_on("in the end")


@tap.case
def a_standby_finishes_what_a_killed_manager_had_begun_with_files():
    swept(8, "--fabric", "shm")


@tap.case
def a_standby_finishes_what_a_killed_manager_had_begun_with_zookeeper():
    swept(1, "--fabric", "tcp", "--coord", "zookeeper")


@tap.case
def the_last_of_three_replicas_serves_alone_until_the_others_are_back():
    with Failing("alone", records=30_000 * DIVISOR) as cluster:
        cluster.goes_on("before")
        cluster.slowly()
        first, second, last = cluster.dice.sample((1, 2, 3), 3)
        cluster.kill([f"s{first}"])
        tap.wait_until(cluster.lacks, 60, "no failover")
        cluster.restart(first)
        tap.wait_until(cluster.fills, 60, "it does not fill")
        cluster.kill([f"s{second}"])
        tap.check(cluster.fills(), "it was filled before the second one was killed: more records")
        tap.wait_until(lambda: cluster.led_by() == {last, first} or cluster.led_by() == {last}, 60, "no failover")
        cluster.kill([f"s{first}"])
        tap.wait_until(lambda: cluster.replicas() == [(1, False)] * 12, 60, "no second failover")
        cluster.goes_on(f"server {last} is alone")
        tap.equal(cluster.led_by(), {last})
        cluster.ok("set", str(last), "fill-rate=1T")
        tap.contains(cluster.rowan("status").out, "Replicas: 12 shards have fewer than 3")
        for number in (first, second):
            cluster.restart(number)
        cluster.wait_until_whole()
        tap.wait_until(lambda: cluster.rowan("status").code == 0, 60, "all shards are served")
        tap.check("Replicas:" not in cluster.rowan("status").out)
        cluster.goes_on("in the end")


def address_space(pid):
    with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


@tap.case
def a_server_that_gets_no_memory_says_so_and_its_shards_go_to_others():
    if DIVISOR > 1:
        tap.skip("a sanitizer needs address space of its own")
    cluster = Cluster("memory", "--lease-ms", "3000", "--pm-bytes", "512M", "--metrics", "yes")
    with open(os.path.join(cluster.directory, "prometheus.json"), encoding="utf-8") as file:
        target = next(row["targets"][0] for row in json.load(file) if row["labels"].get("server") == "1")
    load = subprocess.Popen(
        [program("rowan-ycsb"), "--dir", cluster.directory, "--workload", "load", "--records", "10000000", "--profile",
         "fixed:16", "--timeout-ms", "60000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env=environment(),
    )  # fmt: skip
    try:
        one = cluster.processes()["s1"]
        handle, space = process.Handle(one), address_space(one.pid)
        tap.equal(prometheus.get(target, "/readyz")[0], 200)
        tap.wait_until(lambda: address_space(one.pid) > space, 60, "the load makes its index grow")
        least = [sys.maxsize]

        def ends_without():
            """What it gave back is not given again: an index that has grown frees its former table."""
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                least[0] = min(least[0], address_space(one.pid))
                resource.prlimit(one.pid, resource.RLIMIT_AS, (least[0],) * 2)
            return handle.ended(0)

        is_ready = lambda: "refuses the server memory" not in prometheus.get(target, "/readyz")[1]  # noqa: E731
        tap.wait_until(lambda: not ends_without() and not is_ready(), 60, "it is ready")
        tap.check(not re.search(r"^rowan_memory_refused_total 0$", prometheus.get(target, "/metrics")[1], re.MULTILINE))
        tap.wait_until(ends_without, 60, lambda: f"it goes on, the load: {load.poll()}: {cluster.log('s1')[-1000:]}")
        tap.contains(cluster.log("s1"), "error memory_refused")
        tap.contains(cluster.log("s1"), "no memory for the length of a lease")
        tap.wait_until(lambda: all(shard["primary"] != 1 for shard in cluster.shards()), 60, "its shards go to others")
        cluster.ok("put", "key", "value")
    finally:
        load.kill()
        load.wait()
    cluster.stop()


sys.exit(tap.main())
