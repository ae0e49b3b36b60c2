"""Sessions that go wrong somewhere, by a seed, for mangled.py, sessions.py and changing.py: what one connection sends. Some are mangled so
that they are right again; then the other side answers."""

import collections
import os

from harness import slot_of_key, tap

import wire

# Of these whoever connects may be the one who sends them, and the right ones do no harm.
HARMLESS = ("join", "get_configuration", "new_client_id", "configuration_is", "client_id_is", "get_status", "get_checksum", "server_status",
            "checksum_is", "space_is", "failure", "get_suffix", "suffix_is", "fetch")  # fmt: skip
SERVERS = 4  # the last does not run: sessions say that they are it
IDS = 20  # of clients of each user
ROLE = 40  # that no worker has
COORD_HEAD_BYTES = 32  # common/coord/coord_store.h
ALL = tuple(wire.BODIES)
# What an admin may order, and what a member is believed: both are right, and would be judged as faults.
ORDERS, BELIEVED = {"plan", "set_setting"}, {"space_is", "settled_is"}
SIMPLE = ("get_status", "new_client_id", "get_users", "get_slow", "get_checksum")
# Fields of good messages: what Sessions.value makes (proto/control.proto). Left out is what a server is believed: what is gone.
SHAPES = {
    "join": {1: "server", 2: "incarnation", 3: "one", 4: "address", 5: "limit", 6: "fabric", 7: "durability", 8: "cluster", 9: "flag",
             10: "flag", 11: "flag", 12: "number", 13: "damaged", 14: "term", 15: "term", 16: "bytes", 17: "number", 18: "layout",
             19: "flag", 20: "flag", 21: "manager"},
    "renew": {1: "term", 2: "number", 3: "manager", 4: "bytes", 5: "flag"},
    "adopted": {1: "term"},
    "filled": {1: "shard", 2: "epoch", 3: "server"},
    "load": {1: "load", 2: "one", 3: "number", 4: "number", 5: "number", 6: "flag"},
    "get_configuration": {1: "term"},
    "get_checksum": {1: "shard"},
    "get_suffix": {1: "shard", 2: "epoch", 3: "number", 4: "number", 5: "number", 6: "one"},
    "suffix_is": {1: "shard", 2: "epoch", 3: "number", 4: "number", 5: "block", 6: "number", 7: "number", 8: "one"},
    "store_entries": {1: "shard", 2: "epoch", 3: "block"},
    "entries_stored": {1: "shard", 2: "epoch"},
    "fetch": {1: "shard", 2: "number", 3: "number"},
    "get_trace": {1: "bytes"},
    "plan": {1: "one", 2: "server", 3: "shard", 4: "number"},
    "login": {1: "bytes", 2: "bytes", 3: "bytes"},
}  # fmt: skip


class Mangler:
    """Makes what one connection sends."""

    bodies = HARMLESS

    def __init__(self, dice, shards, cluster_id, servers):
        self.dice = dice
        self.shards = shards
        self.cluster_id = cluster_id
        self.servers = servers
        self.kinds = collections.Counter()
        self.client = 0  # who the present connection says it is
        self.more = collections.deque()  # (endpoint, session) of connections that go with one that was made

    def number(self):
        dice = self.dice
        return dice.choice([0, 1, 2, 0xFF, 0xFFFF, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1,
                            dice.getrandbits(16), dice.getrandbits(32), dice.getrandbits(64)])  # fmt: skip

    def text(self):
        """Bytes, of any length or of one that is just too long for something."""
        dice = self.dice
        if dice.random() < 0.5:
            return dice.randbytes(dice.randrange(40))
        return b"x" * dice.choice((0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 900))

    def key(self):
        """(a key, its shard)"""
        key = b"mangled-%d" % self.dice.randrange(1000)
        slot = slot_of_key(key)
        return key, next(s for s in self.shards if s["first_slot"] <= slot <= s["last_slot"])

    def request(self):
        """One that this cluster would carry out, at the primary of its shard."""
        dice = self.dice
        key, shard = self.key()
        kind = dice.choice((wire.GET, wire.PUT, wire.PUT_IF, wire.DELETE))
        value = dice.randbytes(dice.choice((0, 1, 40, 300))) if kind in (wire.PUT, wire.PUT_IF) else b""
        return wire.request(kind, shard["shard"], shard["epoch"], key, value,
                            client=self.client, operation=dice.randrange(1, 100),
                            expected=dice.getrandbits(64) if kind == wire.PUT_IF else 0)  # fmt: skip

    def control(self):
        dice = self.dice
        body = dice.choice(self.bodies)
        numbers = {}
        for field in range(1, dice.randrange(1, 9)):
            numbers[field] = self.number() if dice.random() < 0.7 else self.text()
        if dice.random() < 0.5 and body in ("get_status", "new_client_id"):
            numbers = {}
        return wire.control(body, numbers, dice.getrandbits(32))

    def message(self):
        return self.request() if self.dice.random() < 0.6 else self.control()

    def good(self):
        return self.request()

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

    def mangled(self, number, message=None):
        """(bytes, whether the sender then keeps silent)."""
        dice = self.dice
        how = dice.choice(("bits", "frame bits", "short", "lie", "frame lie", "huge", "random",
                           "random message", "half", "stretched", "order"))  # fmt: skip
        self.kinds[how] += 1
        message = message or self.message()
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

    def stream(self, number=0):
        """(all that one connection sends from message `number` on, whether it then keeps silent)."""
        good = self.dice.choice((0, 0, 1, 3))
        data = b"".join(wire.frame(self.good(), number + n) for n in range(good))
        bad, silent = self.mangled(number + good)
        return data + bad, silent

    def session(self, endpoint):
        """Of one connection, a generator of what it sends and of what follows then: "end", "silent", or "answer", and it goes on with
        the next that came: the welcome, then messages; or with nothing, if nothing comes."""
        greeting = self.greeting()
        data, silent = self.stream()
        yield greeting + data, "silent" if silent else "end"


class Sessions(Mangler):
    """At the doors of `cluster`."""

    def __init__(self, cluster, dice):
        status = cluster.status()
        super().__init__(dice, cluster.shards(), int(status["cluster"], 16), [one["server"] for one in status["servers"]])
        with open(os.path.join(cluster.directory, "coord", "value"), "rb") as file:
            configuration = wire.parsed_all(file.read()[COORD_HEAD_BYTES:])
        self.known, self.incarnation, self.serves, self.name = dict(configuration), 0, None, None
        self.secret = wire.parsed(self.known[18])[1] if 18 in self.known else self.known[5]  # the proof
        self.members = [wire.parsed(value) for number, value in configuration if number == 7]

    def learn(self, cluster):
        """What its sessions over tcp need."""
        self.manager = wire.host_and_port(cluster.processes()["cm"].address)
        self.workers = {wire.host_and_port(one[4].decode(), index): one[1] for one in self.members for index in range(one[3])}
        self.accounts = {name: wire.Account(name, self.read(cluster.secret(name))) for name in ("ann", "wim", "ria")}
        self.server = wire.Account("@server", self.read(os.path.join(cluster.directory, "cluster-key")))
        self.tickets = {name: [self.ask_for_id(account) for _ in range(IDS)] for name, account in self.accounts.items() if name != "ria"}

    @staticmethod
    def read(path):
        with open(path, "rb") as file:
            return file.read().rstrip(b"\n")

    # --- what a good session learns ---

    def ask_for_id(self, account):
        with wire.Client("tcp:%s:%d" % self.manager, seconds=60) as client:
            tap.equal(client.log_in(account, client.take(wire.GREETING_BYTES)), None, account.name)
            client.send(wire.control("new_client_id"))
            which, found = wire.body_of(client.message())
            tap.equal(which, "client_id_is")
            return found[1], found[2]

    # --- messages ---

    def value(self, kind):
        dice = self.dice
        shard = dice.choice(self.shards)
        return {
            "server": SERVERS, "incarnation": self.incarnation, "one": 1, "address": b"tcp:127.0.0.1:1", "limit": self.known[3],
            "fabric": b"tcp", "durability": b"none", "cluster": self.cluster_id, "term": self.known[1], "manager": self.known.get(10, 0),
            "layout": 4, "shard": shard["shard"], "epoch": shard["epoch"], "flag": dice.getrandbits(1), "number": self.number(),
            "bytes": self.text(), "block": self.block(),
            "damaged": wire.fields({1: shard["shard"], 2: shard["first_slot"], 3: shard["last_slot"], 4: dice.getrandbits(1)}),
            "load": wire.fields({1: shard["shard"], 2: shard["epoch"], 3: dice.randrange(10**6), 4: self.number(), 5: dice.randrange(1 << 14)}),
        }[kind]  # fmt: skip

    def control(self):
        """A good one of its kind, often, but for a field."""
        dice = self.dice
        body = dice.choice(self.bodies if dice.random() < 0.3 else [one for one in self.bodies if one in SHAPES or one in SIMPLE])
        if body not in SHAPES or dice.random() < 0.2:
            return super().control()
        numbers = {field: self.value(kind) for field, kind in SHAPES[body].items() if dice.random() < 0.95}
        if numbers and dice.random() < 0.3:
            numbers[dice.choice(list(numbers))] = dice.choice((self.number(), self.text()))
        return wire.control(body, numbers, dice.getrandbits(32))

    def key(self):
        """Mostly one that is served where the session goes, of one who may have it."""
        for _ in range(10):
            key, shard = super().key()
            if self.name == "wim":
                key = b"w/" + key
                shard = next(one for one in self.shards if one["first_slot"] <= slot_of_key(key) <= one["last_slot"])
            if shard["primary"] == self.serves:
                break
        return key, shard

    def good(self):
        return self.request() if self.serves else self.control()

    def message(self):
        """What is of no use there, now and then."""
        return self.good() if self.dice.random() < 0.9 else super().message()

    # --- sessions ---

    def session(self, endpoint):
        draw, self.serves, self.name = self.dice.random(), self.workers.get(endpoint), None
        if draw < 0.25:
            self.bodies, self.kinds["by a stranger"] = ALL, self.kinds["by a stranger"] + 1
            yield from super().session(endpoint)
        elif draw < 0.75 or endpoint in self.workers:
            yield from self.by_user(endpoint, self.dice.choice(list(self.accounts)))
        elif endpoint == self.manager:
            yield from self.by_server(endpoint)
        else:
            yield from self.by_member(endpoint)

    def goes_wrong(self, message, number, so_often=0.1):
        """What is sent in its place, now and then; it is the last."""
        if self.dice.random() >= so_often:
            return None
        data, silent = self.mangled(number, message)
        return data, "silent" if silent else "end"

    def logs_in(self, endpoint, account, hello, ticket=b""):
        """True, in the end, if it has; else it has sent its last."""
        if self.dice.random() < 0.05:
            hello = self.flipped(hello)
        welcome = yield hello, "answer"
        if not welcome or wire.welcomed(welcome)[0]:
            self.kinds["not welcome"] += 1
            return False
        nonce = self.dice.randbytes(16)
        if self.dice.random() < 0.5:
            nonce = nonce[:10] + account.SIGNS_ACCEPTOR
        login = account.login(nonce, ticket)
        wrong = self.goes_wrong(login, 0)
        which, found = wire.body_of((yield wrong or (wire.frame(login, 0), "answer")))
        if which != "challenge":
            return False
        proof = account.proof(nonce, found, wire.acceptor(*endpoint, welcome))
        wrong = self.goes_wrong(proof, 1)
        which, found = wire.body_of((yield wrong or (wire.frame(proof, 1), "answer")))
        self.kinds[f"{which} by {account.name.decode()}"] += 1
        return which == "logged_in"

    def goes_on(self, endpoint, number, bodies, client=0, name=None):
        """The rest of a session that goes on with this message."""

        def is_mine():
            self.bodies, self.client, self.serves, self.name = bodies, client, self.workers.get(endpoint), name

        is_mine()
        good = [self.good() for _ in range(self.dice.choice((0, 0, 1, 3, 10)))]
        if good:
            yield b"".join(wire.frame(message, number + n) for n, message in enumerate(good)), "answer"
            is_mine()  # others had their turn
        data, silent = self.mangled(number + len(good))
        yield data, "silent" if silent else "end"

    def by_user(self, endpoint, name):
        client, ticket = self.dice.choice(self.tickets[name]) if name in self.tickets and self.dice.random() < 0.9 else (0, b"")
        hello = wire.greeting(cluster=self.dice.choice((0, self.cluster_id)), number=client)
        if (yield from self.logs_in(endpoint, self.accounts[name], hello, ticket)):
            bodies = ALL if name != "ann" else [one for one in ALL if one not in ORDERS]
            yield from self.goes_on(endpoint, 2, bodies, client, name)

    def by_server(self, endpoint):
        """Of the one that does not run, to the manager; some of these join."""
        incarnation, epoch = self.dice.getrandbits(64), 0
        hello = wire.greeting(peer=wire.SERVER, number=SERVERS, cluster=self.dice.choice((0, self.cluster_id)), incarnation=incarnation)
        if not (yield from self.logs_in(endpoint, self.server, hello)):
            return
        number, end = 2, 2 + self.dice.choice((0, 2, 3))
        while number < end:
            self.incarnation = incarnation
            joins = wire.control("join", {field: self.value(kind) for field, kind in SHAPES["join"].items() if field < 8 or kind == "layout"} | {12: epoch})
            which, found = wire.body_of((yield self.goes_wrong(joins, number) or (wire.frame(joins, number), "answer")))
            number += 1
            epoch = found.get(3, 0) if which == "configuration_is" else 0
            self.kinds[f"{which} to one that joins"] += 1
        self.incarnation = incarnation
        yield from self.goes_on(endpoint, number, ALL)

    def by_member(self, endpoint):
        """To a control: with the role of a worker that a member might have; and its blocks."""
        dice = self.dice
        member = dice.choice(self.members)
        who = {"peer": wire.SERVER, "number": member[1], "incarnation": member[2], "cluster": self.cluster_id,
               "role": dice.randrange(ROLE, ROLE + 100)}  # fmt: skip
        hello = wire.greeting(**who)
        welcome = yield self.flipped(hello) if dice.random() < 0.1 else hello, "answer"
        if not welcome:
            return
        error, token, zone = wire.welcomed(welcome)
        self.kinds[f"by a member, error {error}, zone {zone}"] += 1
        if error:
            return
        if zone:
            self.more.append((endpoint, self.blocks(who, token)))
            yield b"", "answer"
        yield from self.goes_on(endpoint, 0, [one for one in ALL if one not in BELIEVED])

    def blocks(self, who, token):
        dice = self.dice
        hello = wire.greeting(purpose=wire.BLOCKS, token=token, nonce=dice.getrandbits(64), secret=self.secret, **who)
        welcome = yield self.flipped(hello) if dice.random() < 0.1 else hello, "answer"
        self.kinds[f"blocks, error {wire.welcomed(welcome)[0] if welcome else None}"] += 1
        data = b"".join(self.frame_of_blocks() for _ in range(dice.choice((1, 1, 2))))
        how = dice.choice(("good", "flipped", "cut", "flipped head"))
        if how == "cut":
            data = self.cut(data)
        elif how != "good":
            data = (self.flipped(data[:64]) + data[64:]) if how == "flipped head" else self.flipped(data)
        yield data, "silent" if dice.random() < 0.2 else "end"

    def frame_of_blocks(self):
        """Of bytes that are no entries, though they look like some."""
        dice = self.dice
        blocks = [self.block() for _ in range(dice.choice((1, 1, 3, 20)))]
        return wire.frame_of_blocks(blocks)

    def block(self):
        dice, strides = self.dice, self.dice.choice((1, 1, 2, 4))
        shard = dice.choice(self.shards)
        lengths = dice.choice((0, dice.getrandbits(32), 300 << 11 | 10))
        return wire.entry(dice.choice((0, 1, 2, 3, 4, 6, 7, dice.randrange(256))), dice.choice((shard["shard"], dice.getrandbits(16))),
                          shard["epoch"] << 40 | dice.getrandbits(dice.choice((8, 40))), lengths, dice.choice((1 << 16, dice.getrandbits(32))),
                          dice.randbytes(64 * strides - 32), dice.getrandbits(32))  # fmt: skip
