#!/usr/bin/python3
"""Five servers, three managers, three replicas, as much data as the guide allows, over tcp with ZooKeeper: what happens to machines
in a rack, one thing after the other, drawn from a seed. After each of them every shard that has a full replica takes puts again
within its bound, as long as a server has space; nothing that was acknowledged is lost.

    soak.py [--minutes N] [--only EVENT[,EVENT...]] [--bound FACTOR] [--full FRACTION]

--minutes, or ROWAN_SOAK_MINUTES: how long events are drawn (3). --only: these, once each and in this order; with --minutes
drawn of these. --bound, or ROWAN_SOAK_BOUND: the bounds are those of the design times this (README.md says why CI has more). --full: live data as
a part of the memory above its reserve, as it is when one server is gone (2/3: deploy/guide/operating.md, Sizing); with little of it,
what is not for want of space is seen alone.
ROWAN_SEED runs one again: the same events with the same victims, as far as the machine is as fast."""

import argparse
import os
import signal
import socket
import statistics
import sys
import threading
import time

from failing import Failing
from harness import program, slot_of_key, tap
from local import ports, process
from work import Clients

LEASE_MS = 500
SERVERS = 5
SHARDS = 20
PM_BYTES = 256 << 20
RESERVE_BYTES = 8 * (SERVERS - 1) + 4 * 2 + 12 << 20  # the guide's: with a worker and a digest each
VALUE_BYTES, ENTRY_BYTES = 1000, 1088
REPLICAS = 3
PAUSE_MS, LEAST_MS = 25, 100  # gaps.c

SERVER_MS, MANAGER_MS = 2000, 5000  # without puts at most, where a server failed; where a manager did
START_WAIT_MS, GOODBYE_WAIT_MS = 30_000, 10_000  # design: for machines that do not come back, or said goodbye
STANDS_STILL_SECONDS = 90
FILLED_SECONDS = 300
WATCHED_MS = 12 * LEASE_MS  # from the harm on: by then whoever is silent was missed, and leases of then are over
LIMPS_SECONDS = 8
AWAY_SECONDS = 5


def now_ms():
    """As gaps.c counts."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Gaps(Clients):
    """gaps.c with a key of each shard."""

    def __init__(self, cluster, keys):
        super().__init__([program("cluster_gaps"), cluster.directory, str(PAUSE_MS), str(LEAST_MS), "60000", *keys])
        self.keys = keys
        self.gaps, self.late, self.open, self.told_ms, self.at = [], [], {}, 0, 0

    def listen(self):
        """What was said since the last time."""
        lines, still_open = self.outputs[0], {}
        end = max((number for number in range(self.at, len(lines)) if lines[number].startswith("progress ")), default=-1) + 1
        for line in lines[self.at : end]:
            what, *words = line.split()
            if what == "progress":
                self.told_ms, self.open, still_open = int(words[1]), still_open, {}
            elif what == "late":
                self.late.append((int(words[0]), int(words[1])))
            elif what == "open":
                still_open[int(words[0])] = (int(words[1]), int(words[2]), words[3])
            else:
                self.gaps.append((int(words[0]), int(words[1]), int(words[2]), words[3]))
        self.at = max(self.at, end)

    def put_since(self, when_ms):
        """Of which keys was a put acknowledged since then?"""
        self.listen()
        return {key for key in range(len(self.keys))
                if (self.open[key][0] if key in self.open else self.told_ms - LEAST_MS) > when_ms}  # fmt: skip

    def all_since(self, since_ms):
        """(ms, from, to, key, error), what is before then not counted."""
        self.listen()
        every = self.gaps + [(key, *rest) for key, rest in self.open.items()]
        return [(to - max(begin, since_ms), max(begin, since_ms), to, key, error) for key, begin, to, error in every if to > since_ms]

    def longest(self, since_ms, keys):
        """Of these keys."""
        return max((one for one in self.all_since(since_ms) if one[3] in keys), default=(0, since_ms, since_ms, min(keys), "-"))

    def was_late(self, begin, end):
        """For how many ms of these the machine ran nobody: a thread that asked for 10 ms of sleep got up so much later."""
        return sum(max(0, min(end, to) - max(begin, late)) for late, to in self.late)


class Delays(threading.Thread):
    """How long the threads of the cluster's processes were ready to run, and did not: /proc/PID/task/TID/schedstat."""

    EVERY_SECONDS = 0.1

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.samples = cluster, []
        self.start()

    @staticmethod
    def of(pid):
        try:
            waited = 0
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                    waited += int(file.read().split()[1])
            return waited // 1_000_000
        except OSError:  # it has just ended
            return 0

    def run(self):
        while True:
            time.sleep(self.EVERY_SECONDS)  # the pace of looking
            found = {one.pid: self.of(one.pid) for one in process.load(self.cluster.directory)}
            self.samples.append((now_ms(), found))

    def within(self, begin, end):
        """The most that one process waited in this time, in ms."""
        inside = [found for when, found in list(self.samples) if begin - 200 <= when <= end + 200]
        return max((inside[-1][pid] - inside[0].get(pid, 0) for pid in inside[-1]), default=0) if inside else 0


class Soak(Failing):
    """Events do harm and say what of it is to be judged: (bound in ms, from when, in which keys' shards)."""

    tolerated = "ROWAN_EFULL"  # for how long is judged by the gaps

    def __init__(self, bound, full):
        records = int((PM_BYTES - RESERVE_BYTES) * full * (SERVERS - 1) / REPLICAS / ENTRY_BYTES)
        super().__init__("soak", "--fabric", "tcp", "--coord", "zookeeper", "--managers", "3", "--servers", str(SERVERS),
                         "--shards", str(SHARDS), "--pm-bytes", str(PM_BYTES), lease_ms=LEASE_MS, records=records,
                         profile=f"fixed:{VALUE_BYTES}", load=("--depth", "8", "--rate", "300"))  # fmt: skip
        self.bound, self.absent, self.figures = bound, None, {}
        self.gaps = Gaps(self, self.a_key_of_each_shard())
        self.delays = Delays(self)
        used = [one["live_bytes"] / PM_BYTES for one in self.rowan("--json", "status").json()["servers"]]
        print(f"# live data: {min(used):.2f} to {max(used):.2f} of a server's memory", flush=True)

    def a_key_of_each_shard(self):
        ranges = {(one["first_slot"], one["last_slot"]): None for one in self.known_shards()}
        number = 0
        while None in ranges.values():
            key, number = f"gap-{number}", number + 1
            for (first, last), found in ranges.items():
                if found is None and first <= slot_of_key(key) <= last:
                    ranges[first, last] = key
        return list(ranges.values())

    def drop_work(self):
        super().drop_work()
        if hasattr(self, "gaps"):
            self.gaps.kill()

    # --- who holds what ---

    def full_replicas(self):
        """Of the shard of each key: the servers with a full replica."""
        known = self.known_shards()
        return [next({one["primary"], *one["backups"]} for one in known if one["first_slot"] <= slot_of_key(key) <= one["last_slot"])
                for key in self.gaps.keys] if known else []  # fmt: skip

    def served_without(self, *victims):
        """The keys whose shards have a full replica besides these servers."""
        return {key for key, full in enumerate(self.before) if full - set(victims)}

    def is_ready(self):
        """For the next event: all but the absent one are members, and whatever one server more loses, another has."""
        known, status = self.known_shards(), self.rowan("--json", "status")
        members = {one["server"] for one in status.json()["servers"]} if status.out else {}
        least = REPLICAS if self.absent is None else REPLICAS - 1
        return (known and members == set(range(1, SERVERS + 1)) - {self.absent}
                and all(1 + len(one["backups"]) >= least and not one["recovering"] for one in known))  # fmt: skip

    def a_server(self):
        """One whose memory may be lost."""
        present = [number for number in range(1, SERVERS + 1) if number != self.absent]
        return self.dice.choice([one for one in present if len(self.served_without(one)) == len(self.before)])

    def lose_memory(self, number):
        path = self.processes()[f"s{number}"].pm_path
        os.unlink(path)
        with open(path, "wb") as file:
            file.truncate(PM_BYTES)

    def names(self, *letters):
        """Of the processes that are to run."""
        return [name for name in self.processes() if name.startswith(letters) and name != f"s{self.absent}"]

    def limp(self, name, still, runs):
        """Stands still and runs in turn, for so many seconds each; that is the harm, nothing waits for it."""
        handle, end = process.Handle(self.processes()[name]), time.monotonic() + LIMPS_SECONDS
        still, runs = self.dice.uniform(*still), self.dice.uniform(*runs)
        print(f"# {name} runs {runs:.2f} s, stands still {still:.2f} s", flush=True)
        while time.monotonic() < end:
            handle.send(signal.SIGSTOP)
            time.sleep(still)
            handle.send(signal.SIGCONT)
            time.sleep(runs)
        handle.close()

    def start_zookeeper(self):
        self.launch("z1")
        port = ports.of(self.processes()["z1"].address)
        tap.wait_until(lambda: socket.socket().connect_ex((ports.HOST, port)) == 0, 60, "ZooKeeper listens")

    # --- events: each returns (bound in ms, counted from, keys that are served) ---

    def dead(self):
        """A host dies for good."""
        self.absent = self.a_server()
        print(f"# server {self.absent}", flush=True)
        self.kill([f"s{self.absent}"])
        self.lose_memory(self.absent)
        return SERVER_MS, self.began, self.served_without(self.absent)

    def empty(self):
        """One that died, or dies now, is back with an empty memory."""
        if self.absent is None:
            self.dead()
        number, self.absent = self.absent, None
        self.launch(f"s{number}")
        return SERVER_MS, self.began, self.served_without(number)

    def limping(self):
        victim = self.a_server()
        self.limp(f"s{victim}", (0.3, 1.5), (0.05, 0.5))
        return SERVER_MS, self.began, self.served_without(victim)

    def power(self):
        """Everything loses power, and one server does not come back before the others serve."""
        lost = self.a_server()
        self.kill(self.names("s", "cm", "z"))
        self.start_zookeeper()
        for name in self.names("cm", "s"):
            if name != f"s{lost}":
                self.launch(name)
        print(f"# server {lost} is missing", flush=True)
        return START_WAIT_MS + MANAGER_MS, now_ms(), self.served_without(lost)

    def in_turn(self):
        """A power-off that reaches one server after the other; the last one loses its memory."""
        last = self.a_server()
        order = [int(name[1:]) for name in self.names("s") if name != f"s{last}"]
        self.dice.shuffle(order)
        gap = self.dice.uniform(0.05, 0.5)
        print(f"# {gap:.2f} s apart: {order + [last]}", flush=True)
        handles = [process.Handle(self.processes()[f"s{number}"]) for number in order + [last]]
        for handle in handles:
            handle.send(signal.SIGTERM)
            time.sleep(gap)  # that is the harm
        for handle in handles:
            tap.check(handle.ended(60), handle.process.name, "does not end:", self.last_logs())
        self.lose_memory(last)
        for number in order + [last]:
            self.launch(f"s{number}")
        return GOODBYE_WAIT_MS + MANAGER_MS, now_ms(), self.served_without(last)

    def manager_killed(self):
        self.kill([self.manager()[1]])
        return MANAGER_MS, self.began, self.served_without()

    def manager_limping(self):
        self.limp(self.manager()[1], (0.3, 1.5), (0.04, 0.3))
        return MANAGER_MS, self.began, self.served_without()

    def manager_and_server(self):
        """The host of the leading manager and of a server dies."""
        victim = self.a_server()
        self.kill([self.manager()[1], f"s{victim}"])
        return MANAGER_MS, self.began, self.served_without(victim)

    def zookeeper_restarted(self):
        self.kill(["z1"])
        self.launch("z1")
        return SERVER_MS, self.began, self.served_without()

    def zookeeper_slow(self):
        self.limp("z1", (0.3, 1.5), (0.05, 0.3))
        return SERVER_MS, self.began, self.served_without()

    def zookeeper_away(self):
        self.kill(["z1"])
        time.sleep(AWAY_SECONDS)  # that is the harm
        self.launch("z1")
        return SERVER_MS, self.began, self.served_without()

    # --- one after the other ---

    def return_all(self):
        """Whoever is to run and does not, with its memory."""
        running = self.processes()
        for name in self.names("s", "cm", "z"):
            if not running[name].alive():
                self.launch(name)

    def happens(self, event):
        tap.wait_until(self.is_ready, FILLED_SECONDS, lambda: f"before {event}: shards lack replicas: {self.known_shards()} {self.last_logs()}")
        self.before = self.full_replicas()
        self.began = now_ms()
        bound, since, served = getattr(self, event)()
        over = now_ms() + WATCHED_MS
        try:
            tap.wait_until(lambda: served <= self.gaps.put_since(over), STANDS_STILL_SECONDS, event)
        except tap.Failed:
            self.fails(event, since, served - self.gaps.put_since(over))
        self.return_all()
        tap.wait_until(self.is_ready, FILLED_SECONDS, lambda: f"after {event}: not filled: {self.known_shards()} {self.last_logs()}")
        longest, begin, end, key, error = self.gaps.longest(since, served)
        machine = self.gaps.was_late(begin, end) + self.delays.within(begin, end)
        self.figures.setdefault(event, []).append((longest, machine))
        print(f"# {event}: {longest} ms without puts (key {key}, {error}), of which the machine {machine} ms; bound {bound} ms",
              flush=True)  # fmt: skip
        if longest > bound * self.bound + machine:
            self.fails(event, since, {key})

    def fails(self, event, since, keys):
        status = self.rowan("--timeout-ms", "2000", "status")
        gaps = [one for one in self.gaps.all_since(since) if one[0] > SERVER_MS / 2]
        raise tap.Failed(f"{event}: no puts of keys {sorted(keys)} for too long: {self.gaps.longest(since, keys)}; all: {gaps}; before: "
                         f"{[sorted(self.before[key]) for key in sorted(keys)]}\n{status.both}\n{self.last_logs()}")  # fmt: skip

    def draw(self, events):
        """One host at most is absent, and not for more than a few events."""
        if self.absent is None:
            return self.dice.choice(events)
        more = [event for event in events if event not in NEEDS_ALL]
        return self.dice.choice(more) if more and self.dice.random() < 0.5 else "empty"

    def table(self):
        print(f"# {'event':<22}{'times':>6}{'median ms':>11}{'longest ms':>12}{'machine ms':>12}")
        for event, found in sorted(self.figures.items()):
            gaps = [gap for gap, _ in found]
            print(f"# {event:<22}{len(found):>6}{statistics.median(gaps):>11.0f}{max(gaps):>12}{max(of for _, of in found):>12}", flush=True)


EVENTS = ("dead", "empty", "limping", "power", "in_turn", "manager_killed", "manager_limping", "manager_and_server",
          "zookeeper_restarted", "zookeeper_slow", "zookeeper_away")  # fmt: skip
NEEDS_ALL = ("dead", "empty", "power", "in_turn")  # "empty" brings back who is absent


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("ROWAN_SOAK_MINUTES") or 0))
    parser.add_argument("--only", default="")
    parser.add_argument("--bound", type=float, default=float(os.environ.get("ROWAN_SOAK_BOUND") or 1))
    parser.add_argument("--full", type=float, default=2 / 3)
    found = parser.parse_args()
    found.only = [word for word in found.only.split(",") if word]
    for word in found.only:
        if word not in EVENTS:
            parser.error(f"no event {word!r}: {', '.join(EVENTS)}")
    return found


GIVEN = options()


@tap.case
def every_shard_takes_puts_again_after_each_event_and_nothing_is_lost():
    with Soak(GIVEN.bound, GIVEN.full) as cluster:
        try:
            if GIVEN.only and not GIVEN.minutes:
                for event in GIVEN.only:
                    cluster.happens(event)
            end = time.monotonic() + 60 * (GIVEN.minutes or (0 if GIVEN.only else 3))
            while time.monotonic() < end:
                cluster.happens(cluster.draw(GIVEN.only or EVENTS))
            if cluster.absent:
                cluster.happens("empty")
        finally:
            cluster.table()
        cluster.gaps.end()


sys.exit(tap.main())
