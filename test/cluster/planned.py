#!/usr/bin/python3
"""What an operator plans amid a load: servers are added, drained and removed, two at once, while one of them or the leading
manager is killed, and over a stop of all. No client sees an error, every acknowledged write is there and every key was one
register. What cannot be done is refused with a sentence, and changes nothing. Without a load: a server is given up, or gets more memory.

ROWAN_SEED: runs a failed one again."""

import os
import re
import signal
import subprocess
import sys

from failing import Failing
from harness import DIVISOR, Cluster, environment, expect, leader, program, rowan_local, tap
from local import members, process

REPLICAS = 2
MANY = 60_000 * DIVISOR  # records, in a sanitized build too: see Failing.slowly()


class Planned(Failing):
    def __init__(self, name, *options, **work):
        # Long enough that a server which a busy machine holds up is not removed, which would change what is compared.
        super().__init__(name, "--replicas", str(REPLICAS), *options, lease_ms=2000, **work)
        self.ok("balance", "off")  # it changes terms, too

    def whole(self, full=REPLICAS):
        return super().whole(full)

    def local(self, *words):
        return rowan_local(*map(str, words), "--dir", self.directory)

    def local_ok(self, *words):
        done = self.local(*words)
        tap.equal(done.code, 0, words, done.both, self.last_logs())
        return done

    def known(self):
        """What a plan changes: the term, who may be a member, who is one, and the processes."""
        status = self.rowan("--json", "status").json()
        return status["term"], status["wanted"], {one["server"] for one in status["servers"]}, set(self.processes())

    def refuses(self, ask, words, *pieces, terms=0):
        """`terms`: of changes that are undone."""
        term, *before = self.known()
        expect(ask(*words), 1, *pieces)
        tap.equal(self.known(), (term + terms, *before), words)

    def holders(self):
        return {number for shard in self.known_shards()
                for number in (shard["primary"], *shard["backups"], *shard["filling"])}  # fmt: skip

    def add(self, number):
        self.local_ok("add")
        tap.check(number in self.known()[2], f"server {number} is added and no member")

    def drain(self, number):
        """In the background, until it is drained."""
        return subprocess.Popen([program("rowan"), "--dir", self.directory, "--wait", "drain", str(number)],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment())  # fmt: skip

    def end(self, child, says="is drained"):
        out, err = child.communicate(timeout=120)
        tap.equal(child.returncode, 0, out, err, self.last_logs())
        tap.contains(out, says)

    def wait_until_fills(self):
        return tap.wait_until(self.filling, 60, lambda: "nothing fills: " + self.last_logs())

    def half_way(self, number, victim, says="is drained"):
        """Drains it, and as soon as something fills kills whom `victim` names of those that fill, or another. Returns its name."""
        self.goes_on(f"before server {number} is drained")
        self.slowly()
        child = self.drain(number)
        name = victim(self.wait_until_fills())
        self.kill([name])
        tap.equal(child.poll(), None, f"{name} was killed when all was over: more records")
        self.end(child, says)
        self.goes_on(f"{name} was killed amid the drain of server {number}")
        return name

    def filling(self):
        """The servers that fill."""
        return {number for shard in self.known_shards() for number in shard["filling"]}

    def let_in(self, number):
        """A server whose process waits."""
        self.ok("add", str(number))
        self.is_member(number)

    def is_member(self, number):
        tap.wait_until(lambda: number in self.known()[2], 60, lambda: f"server {number} does not come back: " + self.last_logs())


def lives(*options):
    with Planned("lives-" + "-".join(options[1::2]), *options) as cluster:
        cluster.goes_on("before")
        first, second, third = cluster.dice.sample((1, 2, 3), 3)
        cluster.add(4)
        cluster.refuses(cluster.local, ("remove", first), f"server {first} holds", "drain it first")
        cluster.refuses(cluster.rowan, ("drain", "9"), "only a member")
        cluster.end(cluster.drain(first))
        tap.equal(cluster.holders(), {second, third, 4})
        cluster.end(cluster.drain(first))  # it is so
        one = cluster.processes()[f"s{first}"]
        cluster.local_ok("remove", first)
        tap.check(not one.alive() and first not in cluster.known()[2], "a server that was removed is there")
        cluster.goes_on(f"server {first} was removed")
        cluster.refuses(cluster.local, ("remove", first), f"no server {first}", "4")

        cluster.add(5)
        for child in [cluster.drain(second), cluster.drain(third)]:
            cluster.end(child)
        tap.equal(cluster.holders(), {4, 5})
        cluster.goes_on("two were drained at once")
        cluster.refuses(cluster.rowan, ("drain", "5"), "without server 5 there are 1 servers for the 2 replicas")

        cluster.ok("remove", str(second))  # its process hears it, and ends
        one = cluster.processes()[f"s{second}"]
        tap.wait_until(lambda: not one.alive(), 30, "a server that was removed runs on")
        tap.contains(cluster.log(one.name), "rowan add lets it in")
        cluster.refuses(cluster.local, ("restart", second), "may not join", f"rowan add {second}")
        tap.contains(cluster.ok("add", str(second)).out, "start it")
        tap.contains(cluster.status_done().out, f"Absent: server {second} ")
        cluster.restart(second)
        cluster.is_member(second)
        children = {number: cluster.drain(number) for number in (4, 5)}  # two servers have to stay
        said = {number: child.communicate(timeout=120)[1] for number, child in children.items()}
        done = [number for number, child in children.items() if child.returncode == 0]
        tap.equal(len(done), 1, said, cluster.last_logs())
        tap.contains(said[9 - done[0]], "there are 1 servers for the 2 replicas")
        tap.equal(cluster.holders(), {second, 9 - done[0]})
        cluster.goes_on("in the end")


@tap.case
def each_server_is_asked_to_stop_and_others_take_its_place():
    with Planned("asked") as cluster:
        for number in cluster.dice.sample((1, 2, 3), 3):
            handle = process.Handle(cluster.processes()[f"s{number}"])
            handle.send(signal.SIGTERM)
            tap.check(handle.ended(30), f"server {number} does not end: ", cluster.last_logs())
            handle.close()
            tap.check(number not in cluster.known()[2], f"server {number} ended before others had its place: ", cluster.last_logs())
            cluster.goes_on(f"server {number} was asked to stop")
            cluster.restart(number)
            cluster.wait_until_whole()


@tap.case
def servers_come_and_go_on_shm():
    lives("--fabric", "shm")


@tap.case
def servers_come_and_go_on_tcp():
    lives("--fabric", "tcp")


@tap.case
def a_drain_goes_on_whoever_is_killed_and_over_a_stop():
    with Planned("short", "--managers", "2", records=MANY) as cluster:
        cluster.add(4)
        first, second, third = cluster.dice.sample((1, 2, 3), 3)
        cluster.launch(cluster.half_way(first, lambda _: leader(cluster)))
        cluster.let_in(first)
        cluster.restart(int(cluster.half_way(third, lambda filling: f"s{max(filling)}")[1:]))
        cluster.wait_until_whole()
        cluster.let_in(third)
        cluster.half_way(second, lambda _: f"s{second}", says="is no member")
        cluster.wait_until_whole()
        cluster.refuses(cluster.rowan, ("drain", str(second)), "only a member")

        # The first may have none: it was empty when it was let in, and so is who was killed as it filled.
        leaves, stays = (first, third) if first in cluster.holders() else (third, first)
        cluster.slowly()
        cluster.ok("drain", str(leaves))
        cluster.wait_until_fills()
        cluster.local_ok("stop")
        tap.contains(cluster.local_ok("start").err, f"server {second} was drained or removed and is left out")
        cluster.end(cluster.drain(leaves))
        tap.equal(cluster.holders(), {stays, 4})
        cluster.local_ok("remove", second)
        cluster.goes_on("in the end")


@tap.case
def the_last_full_replicas_are_not_removed():
    with Planned("last") as cluster:
        cluster.goes_on("before")
        first, second = cluster.dice.sample((1, 2, 3), 2)
        cluster.kill([f"s{first}", f"s{second}"])
        kept = tap.wait_until(lambda: re.findall(r" failover .* kept=(\d)", cluster.log("cm")), 60, "nobody is kept")
        cluster.refuses(cluster.local, ("remove", kept[0]), "has the last full replicas")
        os.mkdir(os.path.join(cluster.directory, "s4.pm"))
        for number in (first, second):
            cluster.restart(number)
        cluster.wait_until_whole()
        cluster.refuses(cluster.local, ("add",), "s4 did not start", "s4.pm", terms=2)
        os.rmdir(os.path.join(cluster.directory, "s4.pm"))
        cluster.add(4)
        cluster.goes_on("in the end")


def flip(cluster, number, value):
    """A bit of each place where that value lies in the memory of a server that does not run."""
    with open(os.path.join(cluster.directory, f"s{number}.pm"), "r+b") as file:
        data = file.read()
        places = [found.start() for found in re.finditer(value, data)]
        tap.check(places, value, "is not there")
        for place in places:
            file.seek(place)
            file.write(bytes([data[place] ^ 1]))


@tap.case
def a_shard_whose_last_whole_replica_is_gone_is_served_from_what_is_left_when_that_is_given_up():
    cluster = Cluster("given", "--lease-ms", "500", "--replicas", "2", "--pm-bytes", "96M", "--landing-segments", "4")
    cluster.ok("balance", "off")
    shard = cluster.shard_of("{tag}damaged")
    gone, left = shard["primary"], shard["backups"][0]
    cluster.ok("put", "{tag}damaged", "a value that is found")
    cluster.ok("put", "{tag}whole", "value")
    count = sum({one["primary"], *one["backups"]} == {gone, left} for one in cluster.shards())
    give_up = ("give-up", "server", str(gone))

    def term():
        return cluster.rowan("--json", "status").json()["term"]

    before = term()
    expect(cluster.rowan("--yes", "give-up", "shard", "99"), 1, "there is no shard 99")
    expect(cluster.rowan("--yes", "give-up", "member", str(gone)), 2, "shard or server and its number")
    expect(cluster.rowan("--yes", "give-up", "server", "9"), 1, "the cluster has no server 9")
    tap.contains(cluster.ok("--yes", *give_up).out, f"server {gone} is not waited for; 0 of")  # as it runs
    tap.equal(term(), before)

    cluster.kill(["cm", f"s{gone}", f"s{left}"])  # the next manager misses both at once
    os.unlink(os.path.join(cluster.directory, f"s{gone}.pm"))
    flip(cluster, left, b"a value that is found")
    cluster.launch("cm")
    tap.wait_until(lambda: " shards_wait " in cluster.log("cm"), 60, lambda: "nobody is kept: " + cluster.last_logs())
    tap.contains(cluster.log("cm"), "rowan give-up goes on without them")
    expect(cluster.rowan("--yes", *give_up), 1, f"of {count} shards no server that held them is here with data")
    cluster.launch(f"s{left}")

    done = []
    refused = lambda: done.append(cluster.rowan(*give_up)) or "lost for good" in done[-1].err  # noqa: E731
    tap.wait_until(refused, 60, lambda: done[-1].both + cluster.last_logs())
    expect(done[-1], 1, f"{count} shards wait for who is away", "nothing was given up; --yes does it")
    expect(cluster.rowan("--yes", "give-up", "server", str(left)), 1, "is here, and waits for others with what it has")
    done = cluster.rowan("status")
    tap.equal(done.code, 1, done.both)
    tap.contains(done.out, f"     {gone}  does not answer")

    tap.contains(cluster.ok("--yes", *give_up).out, f"server {gone} is not waited for; 0 of")
    done = cluster.status_done()
    tap.contains(done.out, f"Absent: server {gone} ")
    tap.equal(cluster.ok("get", "{tag}whole").out.strip(), "value")
    tap.equal(cluster.rowan("get", "{tag}damaged").code, 1)
    cluster.ok("put", "{tag}damaged", "again")
    tap.contains(cluster.ok("verify").out, "equal")
    cluster.stop()


@tap.case
def what_a_server_alone_held_is_served_empty_when_it_came_without_and_is_given_up():
    cluster = Cluster("bare", "--lease-ms", "500", "--replicas", "1", "--pm-bytes", "96M", "--landing-segments", "4")
    cluster.ok("balance", "off")
    gone = cluster.shards()[0]["primary"]
    keys = {cluster.shard_of(key)["primary"]: key for key in map(str, range(50))}
    for key in keys.values():
        cluster.ok("put", key, "before")
    give_up = ("give-up", "server", str(gone))

    cluster.kill([f"s{gone}"])
    os.unlink(os.path.join(cluster.directory, f"s{gone}.pm"))
    tap.wait_until(lambda: " shards_wait " in cluster.log("cm"), 60, lambda: "nobody is kept: " + cluster.last_logs())
    expect(cluster.rowan("--yes", *give_up), 1, "no server that held them is here with data", "with an empty PM")
    cluster.launch(f"s{gone}")
    done = []
    refused = lambda: done.append(cluster.rowan(*give_up)) or "lost for good" in done[-1].err  # noqa: E731
    tap.wait_until(refused, 60, lambda: done[-1].both + cluster.last_logs())
    cluster.ok("--yes", *give_up)
    tap.contains(cluster.status_done().out, "Possible loss: ")
    for number, key in keys.items():
        found = cluster.rowan("get", key)
        tap.equal((found.code, found.out.strip()), (1, "") if number == gone else (0, "before"), found.both)
        cluster.ok("put", key, "after")
    tap.contains(cluster.ok("verify").out, "equal")
    cluster.stop()


@tap.case
def a_server_that_comes_back_with_a_larger_empty_memory_is_filled():
    cluster = Cluster("larger", "--lease-ms", "500", "--pm-bytes", "96M", "--landing-segments", "4")
    cluster.ok("put", "key", "value")
    segments = lambda: [one["segments"] for one in sorted(cluster.status()["servers"], key=lambda row: row["server"])]  # noqa: E731
    before = segments()
    done = rowan_local("kill", "1", "--dir", cluster.directory)
    tap.equal(done.code, 0, done.both)
    os.unlink(os.path.join(cluster.directory, "s1.pm"))
    one = cluster.processes()["s1"]
    one.command[one.command.index("--pm-bytes") + 1] = str(2 * (96 << 20))
    members.launch(cluster.directory, one)
    larger = [before[0] + (96 << 20) // (4 << 20), *before[1:]]
    tap.wait_until(lambda: segments() == larger and all(len(shard["backups"]) == 2 for shard in cluster.shards()), 60, cluster.last_logs)
    tap.contains(cluster.ok("verify").out, "equal")
    cluster.stop()


sys.exit(tap.main())
