#!/usr/bin/python3
"""Peers over shm that change what they share while it is read (changer.c), by a seed, at workers, controls and the manager, as clients and
as servers: of a cluster that is open to all, and of one that requires logins, where they are guests. Others work beside them, and what
is true afterwards is what sessions.py says. And as members that change a landing zone: no process ends.

    changing.py [--seconds N]

--seconds, or ROWAN_CHANGING_SECONDS: how long at each cluster (15 in a sanitized build, else 5). ROWAN_SEED runs one again."""

import argparse
import os
import random
import sys

from guarded import Believer, Used, all_run, none_complains
from harness import DIVISOR, Cluster, program, scratch, tap
from mangler import ALL, BELIEVED, HARMLESS, ORDERS, ROLE, SERVERS, Sessions
from work import Clients, Counters, Load, chosen_seed, counters_add_up

import wire

SESSIONS = 1000
MANY = 20_000  # elements of a repeated field
ASKED = (*HARMLESS, "login", "proof", "get_users", "get_slow", "get_trace", "renew", "load")


class Table(Sessions):
    """What changer.c plays at `cluster`."""

    def __init__(self, cluster, dice):
        super().__init__(cluster, dice)
        self.doors = [(cluster.processes()["cm"].address, 0, "manager", None)]
        for member in self.members:
            address, workers = member[4].decode(), member[3]
            self.doors += [(address, index, "worker", member[1]) for index in range(workers)] + [(address, workers, "control", None)]

    def lengthy(self):
        """Of many elements, which are counted before they are filled in."""
        many = bytes(1 + self.dice.randrange(100) for _ in range(MANY))
        loads = b"".join(wire.fields({1: self.value("load")}) for _ in range(200))
        return self.dice.choice((wire.control("renew", {4: many}), wire.control("renew", {4: b"\x80" * 9 + b"\x01" + many}),
                                 wire.control("renew")[:8] + wire.fields({wire.BODIES["load"]: loads}),
                                 wire.control("store_entries", {1: 0, 2: 1, 3: bytes(MANY)})))  # fmt: skip

    def put(self):
        return wire.request(wire.PUT, 0, 1, b"mangled-%d" % self.dice.randrange(100), self.dice.randbytes(100_000), client=self.client)

    def line(self, zone):
        dice = self.dice
        address, index, what, self.serves = dice.choice([one for one in self.doors if one[2] == "control"] if zone else self.doors)
        self.client = (1 << 30) + dice.randrange(10_000)
        who = ("client", self.client, 0, 0, 0)
        self.bodies = ASKED
        if not self.serves and (zone or dice.random() < 0.5):
            member = dice.choice(self.members)
            self.incarnation = dice.getrandbits(64)
            who = ("server", SERVERS, self.incarnation, 0, 0)
            if what == "control":
                who = ("zone" if zone else "server", member[1], member[2], self.cluster_id, ROLE + dice.randrange(100))
            self.bodies = [one for one in ALL if one not in BELIEVED | ORDERS]
        messages = [self.message() for _ in range(dice.randrange(1, 20))]
        if dice.random() < 0.3:
            messages.append(self.put() if self.serves else self.lengthy())
        return " ".join(map(str, (address, index, *who, *(one.hex() for one in messages))))

    def write(self, name, zone):
        path = os.path.join(scratch(), name)
        with open(path, "w", encoding="ascii") as file:
            for _ in range(SESSIONS):
                print(self.line(zone), file=file)
        return path


def play(cluster, zone=False, meanwhile=lambda: None):
    dice = random.Random(chosen_seed())
    path = Table(cluster, dice).write(os.path.basename(cluster.directory) + ".table", zone)
    peer = Clients([program("cluster_changer"), path, str(dice.randrange(1 << 31)), str(options.seconds)])
    try:
        tap.wait_until(lambda: meanwhile() or not peer.pids(), options.seconds * 4 + 60, "the table is played")
        peer.end()
    finally:
        peer.kill()
    all_run(cluster)


def change(cluster):
    counters, believer = Counters(cluster, "beside", pause_us=5000), Believer(cluster)
    try:
        counters.wait_for_progress()
        play(cluster, meanwhile=believer.start_again)
        none_complains(cluster)
        believer.wait_until_renewed()
        counters.wait_for_progress()
        acknowledged, unknown = counters.finish()
    finally:
        counters.kill()
    tap.equal(sum(unknown), 0, "unknown")
    counters_add_up(cluster, acknowledged, unknown)
    cluster.ok("verify", seconds=300)
    cluster.stop()


def of_all(name):
    return Cluster(name, "--fabric", "shm", "--pm-bytes", "256M", "--servers", str(SERVERS - 1), "--lease-ms", "2000")


@tap.case
def memory_that_changes_while_it_is_read_hurts_nobody():
    change(of_all("open"))


@tap.case
def that_of_guests_neither():
    change(Used("closed", "--fabric", "shm", "--pm-bytes", "256M", "--servers", str(SERVERS - 1)))


@tap.case
def a_landing_zone_that_changes_ends_no_process():
    """A member is believed: what it does to data, servers find and tell, and that is not judged."""
    cluster = of_all("zone")
    load = Load(cluster, 1000)
    try:
        play(cluster, zone=True)
    finally:
        load.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=int(os.environ.get("ROWAN_CHANGING_SECONDS") or (5 if DIVISOR == 1 else 15)))
    options = parser.parse_args()
    sys.exit(tap.main())
