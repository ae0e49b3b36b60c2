#!/usr/bin/python3
"""Mangled messages at every tcp endpoint of a cluster, by a seed, while others work: they see no error;
no process ends, none leaks, memory is bounded (the issue's Show 4).

    ROWAN_MANGLED   how many mangled messages (default 40000, sanitized builds 20000)
    ROWAN_SEED      runs a failed one again

Each message has a connection of its own, as the first nonsense ends it: a greeting, up to three good
messages, then a mangled one. Some are mangled so that they are right again; then the server answers."""

import collections
import errno
import os
import random
import selectors
import socket
import sys
import time

from harness import DIVISOR, Cluster, slot_of_key, tap
from work import Counters, anonymous_bytes, chosen_seed, counters_add_up

import wire

MESSAGES = int(os.environ.get("ROWAN_MANGLED") or (40_000 if DIVISOR == 1 else 20_000))
OPEN_AT_ONCE = 200
SILENT_AT_ONCE = 100  # half a message sent, and then nothing
MOST_GROWTH_BYTES = 96 << 20  # of anonymous memory; ASan's quarantine is made small below


class Mangler:
    """Makes what one connection sends."""

    def __init__(self, dice, shards, cluster_id, servers):
        self.dice = dice
        self.shards = shards
        self.cluster_id = cluster_id
        self.servers = servers
        self.kinds = collections.Counter()
        self.client = 0  # who the present connection says it is

    def number(self):
        dice = self.dice
        return dice.choice([0, 1, 2, 0xFF, 0xFFFF, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1,
                            dice.getrandbits(16), dice.getrandbits(32), dice.getrandbits(64)])  # fmt: skip

    def request(self):
        """One that this cluster would carry out, at the primary of its shard."""
        dice = self.dice
        key = b"mangled-%d" % dice.randrange(1000)
        slot = slot_of_key(key)
        shard = next(s for s in self.shards if s["first_slot"] <= slot <= s["last_slot"])
        kind = dice.choice((wire.GET, wire.PUT, wire.PUT_IF, wire.DELETE))
        value = dice.randbytes(dice.choice((0, 1, 40, 300))) if kind in (wire.PUT, wire.PUT_IF) else b""
        return wire.request(kind, shard["shard"], shard["epoch"], key, value,
                            client=self.client, operation=dice.randrange(1, 100),
                            expected=dice.getrandbits(64) if kind == wire.PUT_IF else 0)  # fmt: skip

    def control(self):
        dice = self.dice
        body = dice.choice(list(wire.BODIES))
        numbers = {}
        for field in range(1, dice.randrange(1, 9)):
            numbers[field] = self.number() if dice.random() < 0.7 else dice.randbytes(dice.randrange(40))
        if dice.random() < 0.5 and body in ("get_status", "new_client_id"):
            numbers = {}
        return wire.control(body, numbers, dice.getrandbits(32))

    def message(self):
        return self.request() if self.dice.random() < 0.6 else self.control()

    def greeting(self):
        """A client's, mostly."""
        dice = self.dice
        self.client = (1 << 30) + dice.randrange(100_000)  # now and then one that is there already
        if dice.random() < 0.9:
            return wire.greeting(cluster=dice.choice((0, self.cluster_id)), number=self.client)
        self.kinds["greeting"] += 1
        bad = wire.greeting(purpose=dice.choice((0, 1, 2, 3, 9)), peer=dice.choice((0, 1, 2, 3, 77)),
                            cluster=dice.choice((0, self.cluster_id, dice.getrandbits(64))),
                            incarnation=dice.getrandbits(64), number=dice.choice(self.servers),
                            token=self.number(), layout=dice.choice((0, 1, 2, 3)))  # fmt: skip
        return self.flipped(bad) if dice.random() < 0.5 else bad

    def flipped(self, data):
        dice, out = self.dice, bytearray(data)
        for _ in range(dice.choice((1, 1, 2, 8))):
            # Mostly where the lengths are.
            at = dice.randrange(min(len(out), 64) if dice.random() < 0.8 else len(out))
            out[at] ^= 1 << dice.randrange(8)
        return bytes(out)

    def cut(self, data):
        return data[: self.dice.randrange(len(data))]

    def mangled(self, number):
        """(bytes, whether the sender then keeps silent)."""
        dice = self.dice
        how = dice.choice(("bits", "frame bits", "short", "lie", "frame lie", "huge", "random",
                           "random message", "half", "stretched", "order"))  # fmt: skip
        self.kinds[how] += 1
        message = self.message()
        if how == "bits":
            return wire.frame(self.flipped(message), number), False
        if how == "frame bits":
            return self.flipped(wire.frame(message, number)), False
        if how == "short":
            return wire.frame(self.cut(message), number), False
        if how == "lie":
            key = b"k" * dice.randrange(1, 20)
            lying = wire.request(dice.choice((wire.GET, wire.PUT)), 0, 1, key, b"v" * dice.randrange(20),
                                 key_bytes=dice.choice((0, 1025, 0xFFFF, len(key) + 1)),
                                 value_bytes=dice.choice((0, 1 << 20, (1 << 20) + 1, 0xFFFFFFFF)))  # fmt: skip
            return wire.frame(lying, number), False
        if how == "frame lie":
            wrong = dice.choice((0, len(message) - 1, len(message) + 8, len(message) + 64))
            return wire.frame(message, number, max(0, wrong)), dice.random() < 0.1
        if how == "huge":
            return wire.frame(message, number, dice.choice((1 << 20, 1 << 24, 1 << 31, 0xFFFFFFFF))), False
        if how == "random":
            return dice.randbytes(dice.randrange(1, 200)), False
        if how == "random message":
            return wire.frame(dice.randbytes(dice.randrange(1, 200)), number), False
        if how == "half":
            return self.cut(wire.frame(message, number)), dice.random() < 0.1
        if how == "stretched":
            return wire.frame(message + dice.randbytes(dice.randrange(1, 64)), number), False
        return wire.frame(message, number + dice.choice((1, 7, 1 << 32))), False

    def stream(self):
        """(all that one connection sends, whether it then keeps silent)."""
        good = self.dice.choice((0, 0, 1, 3))
        data = self.greeting() + b"".join(wire.frame(self.request(), n) for n in range(good))
        bad, silent = self.mangled(good)
        return data + bad, silent


class Sender:
    """Connections, each with one stream, OPEN_AT_ONCE side by side. It reads what comes back."""

    def __init__(self, endpoints, mangler, dice):
        self.endpoints = endpoints
        self.mangler = mangler
        self.dice = dice
        self.selector = selectors.DefaultSelector()
        self.open = collections.OrderedDict()  # socket -> [bytes to send, silent]
        self.silent = collections.deque()
        self.sent = self.refused = self.answered = self.given_up = 0

    def start(self):
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        # Many addresses of this host, so that ports that wait after a connection do not run out.
        if hasattr(socket, "IP_BIND_ADDRESS_NO_PORT"):
            one.setsockopt(socket.SOL_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)
        one.bind((f"127.0.{self.dice.randrange(256)}.{self.dice.randrange(1, 255)}", 0))
        wrong = one.connect_ex(self.dice.choice(self.endpoints))
        if wrong not in (0, errno.EINPROGRESS):
            one.close()
            raise tap.Failed(f"a connection is refused after {self.sent} messages: {os.strerror(wrong)}")
        data, silent = self.mangler.stream()
        self.open[one] = [data, silent]
        self.selector.register(one, selectors.EVENT_WRITE)

    def end(self, one):
        self.selector.unregister(one)
        self.open.pop(one)
        one.close()

    def write(self, one):
        state = self.open[one]
        wrong = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if wrong == errno.ECONNREFUSED:
            raise tap.Failed(f"nobody listens any more, after {self.sent} messages")
        try:
            count = one.send(state[0]) if not wrong else len(state[0])
        except BlockingIOError:
            return
        except OSError:
            count = len(state[0])  # it had enough
        state[0] = state[0][count:]
        if state[0]:
            return
        self.sent += 1
        if state[1]:
            self.keep_silent(one)
            return
        try:
            one.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        self.selector.modify(one, selectors.EVENT_READ)

    def keep_silent(self, one):
        self.selector.unregister(one)
        self.open.pop(one)
        self.silent.append(one)
        if len(self.silent) > SILENT_AT_ONCE:
            self.silent.popleft().close()

    def read(self, one):
        try:
            data = one.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.answered += len(data) > wire.GREETING_BYTES
        else:
            self.end(one)

    def send(self, count):
        """That many more."""
        target, moved = self.sent + count, time.monotonic()
        while self.sent < target:
            while len(self.open) < OPEN_AT_ONCE:
                self.start()
            before = self.sent
            for key, mask in self.selector.select(1):
                (self.write if mask & selectors.EVENT_WRITE else self.read)(key.fileobj)
            if self.sent != before:
                moved = time.monotonic()
            elif time.monotonic() - moved > 5:
                # Nobody reads on: then these are of no use any more.
                for one in list(self.open):
                    self.end(one)
                    self.given_up += 1
                moved = time.monotonic()
        tap.check(self.given_up <= OPEN_AT_ONCE, f"{self.given_up} connections were never read")

    def close(self):
        for one in list(self.open):
            self.end(one)
        while self.silent:
            self.silent.popleft().close()
        self.selector.close()


def memory():
    return {name: anonymous_bytes(one.pid) for name, one in cluster.processes().items()}


def before():
    global cluster, counters
    # Freed memory that ASan keeps to find late uses, 256 MiB by default, would hide a leak.
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8"
    cluster = Cluster("mangled", "--pm-bytes", "1G", "--fabric", "tcp")
    counters = Counters(cluster, "beside", pause_us=5000)
    counters.wait_for_progress()


def endpoints():
    """Of every server its workers and its control role; and the CM's."""
    found = [wire.host_and_port(cluster.processes()["cm"].address)]
    for server in cluster.status()["servers"]:
        found += [wire.host_and_port(server["address"], index) for index in range(server["workers"] + 1)]
    return found


@tap.case
def mangled_messages_end_their_own_connection_and_nothing_else():
    seed = chosen_seed()
    dice = random.Random(seed)
    status = cluster.status()
    mangler = Mangler(dice, cluster.shards(), int(status["cluster"], 16),
                      [server["server"] for server in status["servers"]])  # fmt: skip
    sender = Sender(endpoints(), mangler, dice)
    try:
        sender.send(MESSAGES // 4)
        warm = memory()
        began = time.monotonic()
        for _ in range(8):
            sender.send((MESSAGES - MESSAGES // 4) // 8)
            counters.wait_for_progress()  # fails if one has ended
        seconds = time.monotonic() - began
        grown = {name: count - warm[name] for name, count in memory().items()}
    finally:
        sender.close()
    print(f"# {sender.sent} mangled messages, {sender.sent * 3 / 4 / seconds:.0f} a second;",
          f"{sender.answered} were answered; ", dict(mangler.kinds))  # fmt: skip
    print("# memory grew by", {name: f"{count >> 10} KiB" for name, count in grown.items()})
    for name, count in grown.items():
        tap.check(count < MOST_GROWTH_BYTES, f"{name} grew by {count} bytes")
    tap.check(sender.sent >= MESSAGES * 0.99)
    for name, one in cluster.processes().items():
        tap.equal(one.state(), "running", name, cluster.log(name)[-3000:])


@tap.case
def the_clients_beside_saw_no_error():
    acknowledged, unknown = counters.finish()
    tap.equal(sum(unknown), 0, "unknown")
    counters_add_up(cluster, acknowledged, unknown)


@tap.case
def the_replicas_are_equal_and_the_cluster_stops_without_a_leak():
    cluster.ok("verify", seconds=300)
    cluster.stop()


if __name__ == "__main__":
    try:
        sys.exit(tap.main(before))
    finally:
        if "counters" in globals():
            counters.kill()
