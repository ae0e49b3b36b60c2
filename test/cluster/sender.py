"""Many connections over tcp side by side, each with its session (mangler.py)."""

import collections
import errno
import os
import selectors
import socket
import time

from guarded import elsewhere
from harness import tap

import wire

OPEN_AT_ONCE = 200
ANSWER_SECONDS = 1
SILENT_AT_ONCE = 100  # half a message sent, and then nothing


class Link:
    """One connection, and how far its session is."""

    def __init__(self, session):
        self.session = session
        self.data, self.then = next(session)
        self.received, self.welcome = b"", False
        self.since = time.monotonic()

    def next_piece(self):
        """The welcome, or the next message; None if it is not all there."""
        count = skip = wire.GREETING_BYTES
        if self.welcome:
            if len(self.received) < 16:
                return None
            bytes_ = int.from_bytes(self.received[4:8], "little")
            skip, count = 16 + bytes_ + -bytes_ % 8, bytes_
        if len(self.received) < skip:
            return None
        piece = self.received[16 : 16 + count] if self.welcome else self.received[:count]
        self.received, self.welcome = self.received[skip:], True
        return piece

    def goes_on(self, piece):
        """False: it has said all."""
        try:
            self.data, self.then = self.session.send(piece)
            return True
        except StopIteration:
            return False


class Sender:
    """Connections, each with one stream, OPEN_AT_ONCE side by side. It reads what comes back."""

    def __init__(self, endpoints, mangler, dice):
        self.endpoints = endpoints
        self.mangler = mangler
        self.dice = dice
        self.selector = selectors.DefaultSelector()
        self.open = collections.OrderedDict()  # socket -> Link
        self.silent = collections.deque()
        self.sent = self.refused = self.answered = self.unanswered = self.given_up = 0

    def start(self):
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        if hasattr(socket, "IP_BIND_ADDRESS_NO_PORT"):
            one.setsockopt(socket.SOL_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)
        one.bind((elsewhere(self.dice), 0))
        endpoint, session = self.mangler.more.popleft() if self.mangler.more else (self.dice.choice(self.endpoints), None)
        wrong = one.connect_ex(endpoint)
        if wrong not in (0, errno.EINPROGRESS):
            one.close()
            raise tap.Failed(f"a connection is refused after {self.sent} messages: {os.strerror(wrong)}")
        self.open[one] = Link(session or self.mangler.session(endpoint))
        self.selector.register(one, selectors.EVENT_WRITE)

    def end(self, one):
        self.selector.unregister(one)
        self.open.pop(one)
        one.close()

    def write(self, one):
        link = self.open[one]
        wrong = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if wrong == errno.ECONNREFUSED:
            raise tap.Failed(f"nobody listens any more, after {self.sent} messages")
        try:
            count = one.send(link.data) if not wrong else len(link.data)
        except BlockingIOError:
            return
        except OSError:
            count = len(link.data)  # it had enough
        link.data = link.data[count:]
        if not link.data:
            self.was_sent(one, link)

    def was_sent(self, one, link):
        self.sent += link.then != "answer"
        if link.then == "silent":
            self.keep_silent(one)
            return
        if link.then == "end":
            try:
                one.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        self.selector.modify(one, selectors.EVENT_READ)
        if link.then == "answer":
            self.go_on(one, link)  # it may have come already

    def keep_silent(self, one):
        self.selector.unregister(one)
        self.open.pop(one)
        self.silent.append(one)
        if len(self.silent) > SILENT_AT_ONCE:
            self.silent.popleft().close()

    def read(self, one):
        link = self.open[one]
        try:
            data = one.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.sent += link.then == "answer"  # there is none
            self.end(one)
            return
        if link.then != "answer":
            self.answered += len(data) > wire.GREETING_BYTES
            return
        link.received += data
        self.go_on(one, link)

    def go_on(self, one, link):
        piece = link.next_piece()
        if piece is None:
            return
        self.continue_with(one, link, piece)

    def continue_with(self, one, link, piece):
        link.since = time.monotonic()
        if link.goes_on(piece):
            self.selector.modify(one, selectors.EVENT_WRITE)
        else:
            self.sent += 1
            self.end(one)

    def make_room(self):
        """Of those who wait for an answer that does not come the oldest go on without it."""
        long_ago = time.monotonic() - ANSWER_SECONDS
        for one, link in [(one, link) for one, link in self.open.items() if link.then == "answer" and not link.data and link.since < long_ago]:
            self.unanswered += 1
            self.continue_with(one, link, b"")

    def send(self, count):
        """That many more."""
        target, moved = self.sent + count, time.monotonic()
        while self.sent < target:
            self.make_room()
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
