#!/usr/bin/python3
"""Shards move and are split amid a load, by an operator or because they are hot, while the source, the target, a backup or the
leading manager is killed at some instant of it. No client sees an error, every acknowledged write is there, every key was one
register, the replicas are equal. What cannot be done is refused with a sentence, and changes nothing.

ROWAN_MOVES: rounds of the sweep; ROWAN_SEED: runs a failed one again."""

import os
import subprocess
import sys
import time

from failing import Failing
from harness import DIVISOR, environment, expect, leader, program, rowan_local, tap

REPLICAS, SERVERS = 2, (1, 2, 3, 4)
MANY = 60_000 * min(DIVISOR, 4)  # records: a move takes longer than to see it
MOVES = int(os.environ.get("ROWAN_MOVES") or 6)
VICTIMS = ("source", "target", "backup", "manager")


class Moved(Failing):
    def __init__(self, name, *options, balance="off", **work):
        super().__init__(name, "--replicas", str(REPLICAS), *options, **work)
        self.ok("balance", balance)
        done = self.local("add")
        tap.equal(done.code, 0, done.both)

    def local(self, *words):
        return rowan_local(*map(str, words), "--dir", self.directory)

    def whole(self, full=REPLICAS):
        shards = self.known_shards()
        return super().whole(full) and not any(shard["split"] or shard["moves_to"] for shard in shards)

    def shard(self):
        """One that is served, not moving and wider than a slot; with a server that has none of it."""
        shards = [shard for shard in self.known_shards()
                  if not shard["split"] and len(shard["backups"]) == REPLICAS - 1 and shard["first_slot"] < shard["last_slot"]]  # fmt: skip
        shard = self.dice.choice(shards)
        holders = {shard["primary"], *shard["backups"]}
        return shard, self.dice.choice([number for number in SERVERS if number not in holders])

    def begin(self, *words):
        """In the background, until it is over."""
        return subprocess.Popen([program("rowan"), "--dir", self.directory, "--wait", *map(str, words)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())  # fmt: skip

    def refuses(self, words, *pieces):
        epochs = [(shard["shard"], shard["epoch"]) for shard in self.known_shards()]
        expect(self.rowan(*map(str, words)), 1, *pieces)
        tap.equal([(shard["shard"], shard["epoch"]) for shard in self.known_shards()], epochs, words)

    def round(self, number):
        """Something moves, or is split, and somebody is killed amid it, or behind it."""
        shard, target = self.shard()
        source, backup, name = shard["primary"], shard["backups"][0], shard["shard"]
        operations = (("move", name, source, target), ("split", name), ("move", name, backup, target), ("move", name, source, backup))
        words = operations[number % len(operations)]
        victim = {"source": words[2] if words[0] == "move" else source, "target": words[-1] if words[0] == "move" else source,
                  "backup": backup, "manager": leader(self)}[VICTIMS[(number + number // len(operations)) % len(VICTIMS)]]  # fmt: skip
        child = self.begin(*words)
        time.sleep(self.dice.uniform(0, 0.3))  # at some instant of it
        killed = victim if isinstance(victim, str) else f"s{victim}"
        self.kill([killed])
        out = child.communicate(timeout=120)[0]
        tap.check(child.returncode in (0, 1) and out, words, out, self.last_logs())
        if isinstance(victim, int):
            self.goes_on_without(victim)
        else:
            self.goes_on(f"{killed} was killed amid {words}")
            self.launch(killed)
        self.wait_until_whole()
        return f"{' '.join(map(str, words))}: {killed} killed; {out.strip().splitlines()[-1]}"


@tap.case
def what_an_operator_moves_or_splits_is_so_at_once_for_clients():
    with Moved("operator") as cluster:
        shard, target = cluster.shard()
        name, source, backup = shard["shard"], shard["primary"], shard["backups"][0]
        cluster.refuses(("move", 999, source, target), "there is no shard 999")
        cluster.refuses(("move", name, source, 9), "server 9 cannot take a shard")
        other = next(number for number in SERVERS if number not in (source, backup, target))
        cluster.refuses(("move", name, target, other), f"server {target} has no full replica of shard {name}")
        cluster.refuses(("split", 999), "there is no shard 999")
        cluster.refuses(("split", name, shard["first_slot"] or shard["last_slot"] + 1), "can be split at slots")
        tap.contains(cluster.ok("--wait", "move", str(name), str(source), str(backup)).out, f"server {backup} leads shard {name}")
        cluster.goes_on("roles were swapped")
        tap.contains(cluster.ok("--wait", "move", str(name), str(backup), str(target)).out, f"server {target} leads shard {name}")
        cluster.goes_on("a primary moved")
        tap.contains(cluster.ok("--wait", "split", str(name)).out, "13 shards are served")
        cluster.goes_on("a shard was split")
        cluster.wait_until_whole()
        cluster.refuses(("move", name, target, source), f"there is no shard {name}")
        tap.equal(len(cluster.known_shards()), 13)


@tap.case
def whoever_is_killed_amid_a_move_or_a_split_nothing_is_lost():
    with Moved("sweep", "--managers", "2", records=MANY) as cluster:
        for number in range(MOVES):
            print("#", cluster.round(number), flush=True)


@tap.case
def a_hot_shard_leaves_and_a_hot_key_stands_alone():
    with Moved("hot", balance="dry-run") as cluster:
        load = subprocess.Popen([program("rowan-ycsb"), "--dir", cluster.directory, "--workload", "b", "--records", "1", "--seconds", "3600",
                                 "--depth", "64"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                env=environment())  # fmt: skip
        try:
            tap.wait_until(lambda: " balance_would " in cluster.log("cm"), 300, lambda: "nothing would be done: " + cluster.last_logs())
            tap.equal(len(cluster.known_shards()), 12)
            cluster.ok("balance", "on")
            tap.wait_until(lambda: "as small as it gets" in cluster.rowan("shards").out, 300, lambda: "it does not stand alone: " + cluster.last_logs())
            cluster.ok("balance", "off")
        finally:
            load.kill()
            load.wait()
        cluster.wait_until_whole()
        cluster.goes_on("a slot stands alone")


sys.exit(tap.main())
