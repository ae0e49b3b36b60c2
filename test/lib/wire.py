"""The bytes that Rowan-KV's peers send over tcp, made apart from the C code: greetings and frames
(common/fabric/tcp/tcp_wire.h), requests (proto/message.h), control messages (proto/control.proto); and a
client made of nothing but a socket."""

import socket
import struct

MAGIC = 0x314E41574F524354
MESSAGE_MAGIC = 0x47534D52
LAYOUT = 1
GREETING_BYTES = 128
GREETING_LAYOUT = 2
MESSAGES, BLOCKS = 1, 2  # what a connection is for
CLIENT, SERVER, CM = 1, 2, 3  # who connects
GET, PUT, PUT_IF, DELETE, REPLY, CONTROL = 1, 2, 3, 4, 16, 32

# Bodies of a ControlMessage: numbers of its fields, and those of their number and text fields.
BODIES = {
    "join": 1, "get_configuration": 2, "new_client_id": 3, "configuration_is": 4, "client_id_is": 5,
    "get_status": 6, "get_checksum": 7, "server_status": 8, "checksum_is": 9, "space_is": 10,
    "failure": 11, "get_suffix": 12, "suffix_is": 13, "fetch": 14,
}  # fmt: skip


def greeting(purpose=MESSAGES, peer=CLIENT, cluster=0, term=0, incarnation=0, number=0, role=0,
             token=0, magic=MAGIC, layout=GREETING_LAYOUT):  # fmt: skip
    return struct.pack("<QIIIiQQQQIIIIII6Q", magic, layout, layout, purpose, 0, token, cluster, term,
                       incarnation, number, role, peer, LAYOUT << 16 | LAYOUT, 0, 0, *[0] * 6)  # fmt: skip


def frame(message, number, declared=None):
    """A message as it travels; `declared`: the length that its head tells."""
    head = struct.pack("<IIQ", MESSAGE_MAGIC, len(message) if declared is None else declared, number)
    return head + message + bytes(-len(message) % 8)


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
