"""The bytes that Rowan-KV's peers send over tcp, made apart from the C code: greetings and frames
(common/fabric/tcp/tcp_wire.h), requests (proto/message.h), control messages (proto/control.proto); and a
client made of nothing but a socket."""

import hashlib
import hmac
import socket
import struct

MAGIC = 0x314E41574F524354
MESSAGE_MAGIC = 0x47534D52
FRAME_MAGIC = 0x4D524652
LAYOUT = 1
GREETING_BYTES = 128
GREETING_LAYOUT = 2
GREETING = "<QIIIiQQQQIIIIIIQ32sQ"
MESSAGES, BLOCKS = 1, 2  # what a connection is for
CLIENT, SERVER, CM = 1, 2, 3  # who connects
GET, PUT, PUT_IF, DELETE, REPLY, CONTROL = 1, 2, 3, 4, 16, 32

# Bodies of a ControlMessage: numbers of its fields, and those of their number and text fields.
BODIES = {
    "join": 1, "get_configuration": 2, "new_client_id": 3, "configuration_is": 4, "client_id_is": 5,
    "get_status": 6, "get_checksum": 7, "server_status": 8, "checksum_is": 9, "space_is": 10,
    "failure": 11, "get_suffix": 12, "suffix_is": 13, "fetch": 14, "store_entries": 15, "entries_stored": 16,
    "settled_is": 17, "renew": 18, "lease_is": 19, "adopted": 20, "committed": 21, "filled": 22, "plan": 23,
    "load": 24, "login": 25, "challenge": 26, "proof": 27, "logged_in": 28, "get_users": 29, "users_are": 30,
    "set_setting": 31, "settings_are": 32, "get_slow": 33, "slow_are": 34, "get_trace": 35, "trace_is": 36,
}  # fmt: skip


def greeting(purpose=MESSAGES, peer=CLIENT, cluster=0, term=0, incarnation=0, number=0, role=0,
             token=0, magic=MAGIC, layout=GREETING_LAYOUT, nonce=0, secret=None):  # fmt: skip
    """`secret`: the cluster's, by which a server shows that it is one, on a socket for blocks."""
    fields_ = [magic, layout, layout, purpose, 0, token, cluster, term, incarnation, number, role, peer,
               LAYOUT << 16 | LAYOUT, 0, 0, nonce, bytes(32), 0]  # fmt: skip
    if secret:
        fields_[16] = hmac.digest(secret, struct.pack(GREETING, *fields_), "sha256")
    return struct.pack(GREETING, *fields_)


def welcomed(data):
    """What a welcome says that others need: (error, token, is a socket for blocks expected)."""
    found = struct.unpack(GREETING, data)
    return found[4], found[5], bool(found[13])


def acceptor(host, port, welcome):
    """Whom it was that welcomed, as proofs name him (struct fabric_acceptor)."""
    found = struct.unpack(GREETING, welcome)
    place = bytes(10) + b"\xff\xff" + socket.inet_aton(host)
    return struct.pack("<16sQIHH", place, found[8], found[9], port, found[11])


def incarnation_of(welcome):
    return struct.unpack(GREETING, welcome)[8]


def frame(message, number, declared=None):
    """A message as it travels; `declared`: the length that its head tells."""
    head = struct.pack("<IIQ", MESSAGE_MAGIC, len(message) if declared is None else declared, number)
    return head + message + bytes(-len(message) % 8)


def frame_of_blocks(blocks):
    """Blocks of 64-byte strides as they travel, on a socket of their own."""
    lengths = struct.pack(f"<{len(blocks)}H", *(len(block) // 64 for block in blocks))
    return struct.pack("<IHH", FRAME_MAGIC, len(blocks), 0) + lengths + bytes(-len(lengths) % 8) + b"".join(blocks)


def entry(kind, shard, version, lengths, numbers, payload, checksum):
    """One block of an entry (common/entry/entry.h)."""
    return struct.pack("<BBHIQIIII", 0, kind, shard, checksum, version, lengths, numbers, 1, 1) + payload


def request(kind, shard, epoch, key, value=b"", client=1, operation=1, tag=1, expected=0,
            key_bytes=None, value_bytes=None):  # fmt: skip
    """A request; `key_bytes` and `value_bytes`: what it says of them."""
    return struct.pack(
        "<BBHIIIIHHIIQ", kind, LAYOUT, shard, epoch, client, operation, operation,
        len(key) if key_bytes is None else key_bytes, 0,
        len(value) if value_bytes is None else value_bytes, tag, expected,
    ) + key + value  # fmt: skip


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def fields(numbers):
    """Protobuf fields: {number: integer or bytes}."""
    out = b""
    for number, value in numbers.items():
        if isinstance(value, int):
            out += varint(number << 3) + varint(value & 0xFFFFFFFFFFFFFFFF)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def control(body, numbers=None, tag=1):
    return struct.pack("<BBHI", CONTROL, LAYOUT, 0, tag) + fields({BODIES[body]: fields(numbers or {})})


def parsed_all(data):
    """Protobuf fields in their order: [(number, integer or bytes)]."""
    found, at = [], 0

    def integer():
        nonlocal at
        value = shift = 0
        while True:
            value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
            if data[at - 1] < 0x80:
                return value

    while at < len(data):
        tag, value = integer(), integer()
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
        found.append((tag >> 3, value))
    return found


def parsed(data):
    """Likewise, {number: value}: of those that are repeated the last."""
    return dict(parsed_all(data))


def body_of(message):
    """(which, its fields) of a control message; (None, {}) of any other one."""
    if len(message) < 8 or message[0] != CONTROL:
        return None, {}
    names = {number: name for name, number in BODIES.items()}
    for number, value in parsed(message[8:]).items():
        return names.get(number), parsed(value)
    return None, {}


class Account:
    """Who logs in (common/cluster/login.h)."""

    NONCE_BYTES = 16
    SIGNS_ACCEPTOR = b"ends 2"

    def __init__(self, name, secret):
        self.name, self.secret, self.keys = name.encode(), secret, {}

    def login(self, nonce, ticket=b""):
        return control("login", {1: self.name, 2: nonce, **({3: ticket} if ticket else {})})

    def proof(self, nonce, challenge, whom):
        """Of the fields of a challenge; `whom`: acceptor()."""
        theirs, salt, rounds = challenge[1], challenge[2], challenge[3]
        if (salt, rounds) not in self.keys:
            salted = hashlib.pbkdf2_hmac("sha256", self.secret, salt, rounds)
            self.keys[salt, rounds] = hmac.digest(salted, b"Client Key", "sha256")
        key = self.keys[salt, rounds]
        words = self.name.ljust(33, b"\0") + struct.pack("<I", rounds) + salt + nonce + theirs
        if nonce.endswith(self.SIGNS_ACCEPTOR) and theirs.endswith(self.SIGNS_ACCEPTOR):
            words += whom
        signature = hmac.digest(hashlib.sha256(key).digest(), words, "sha256")
        return control("proof", {1: bytes(a ^ b for a, b in zip(key, signature))})


def host_and_port(address, index=0):
    """Of endpoint `index` of the process at tcp:HOST:PORT."""
    scheme, host, port = address.rsplit(":", 2) if "[" not in address else (None, None, None)
    if scheme != "tcp":
        raise ValueError(f"{address} is no tcp address of this form: tcp:HOST:PORT")
    return host, int(port) + index


class Client:
    """One connection, that says hello and then whatever it is told to. Each is a client of its own: a
    worker closes the older connection of one that comes again."""

    identity = 1 << 30

    def __init__(self, address, index=0, hello=None, seconds=10):
        Client.identity += 1
        self.identity = Client.identity
        self.socket = socket.create_connection(host_and_port(address, index), timeout=seconds)
        self.number = 0
        self.received = b""
        if hello is None:
            hello = greeting(number=self.identity)
        if hello:
            self.socket.sendall(hello)

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.socket.close()

    def take(self, count):
        """The next `count` bytes; fewer at the end of the stream."""
        while len(self.received) < count:
            try:
                piece = self.socket.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                break
            self.received += piece
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    def welcome(self):
        """The error of the other side's greeting; None if it closed without one."""
        found = self.take(GREETING_BYTES)
        return struct.unpack_from("<i", found, 20)[0] if len(found) == GREETING_BYTES else None

    def send(self, message, declared=None):
        self.socket.sendall(frame(message, self.number, declared))
        self.number += 1

    def log_in(self, account, welcome, ticket=b""):
        """With the bytes of the welcome. What came instead of a yes, or None."""
        nonce = b"wire.py 16" + account.SIGNS_ACCEPTOR
        self.send(account.login(nonce, ticket))
        which, found = body_of(self.message() or b"")
        if which == "challenge":
            self.send(account.proof(nonce, found, acceptor(*self.socket.getpeername()[:2], welcome)))
            which, found = body_of(self.message() or b"")
        return None if which == "logged_in" else (which, found)

    def message(self):
        """The next message; None at the end of the stream."""
        head = self.take(16)
        if len(head) < 16:
            return None
        magic, count, _ = struct.unpack("<IIQ", head)
        if magic != MESSAGE_MAGIC:
            raise ValueError("no message's head: " + head.hex())
        return self.take(count + -count % 8)[:count]

    def closed(self):
        """Reads to the end of the stream. False if that does not come in time."""
        try:
            while self.take(65536):
                pass
        except TimeoutError:
            return False
        return True


def reply_status(message):
    """(status, tag) of a reply."""
    if len(message) < 32 or message[0] != REPLY:
        raise ValueError("no reply: " + message[:64].hex())
    return struct.unpack_from("<h", message, 2)[0], struct.unpack_from("<I", message, 8)[0]
