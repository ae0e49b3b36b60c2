#!/usr/bin/python3
"""Cuts connections of running processes from outside, at random, by a seed.

A connection is a socket that two processes hold: tcp, or the unix socket of shm's handshake, whose
end tells both sides that the other is gone. Its descriptor is fetched out of one of them
(pidfd_getfd(2)) and shut down both ways: to the two programs the network broke, and neither was
asked. That needs the permission to trace the process: root, or its user where nothing forbids it.

    cutter.py [--seed N] [--count N] [--pause SECONDS] PID...    cuts between these processes
"""

import argparse
import ctypes
import os
import random
import socket
import struct
import sys
import time

PIDFD_GETFD = 438  # one number on every architecture (asm-generic/unistd.h)
TCP_ESTABLISHED = 1
UNIX_CONNECTED = 3  # SS_CONNECTED, linux/net.h

_libc = ctypes.CDLL(None, use_errno=True)


class Unpermitted(Exception):
    """This user may not fetch descriptors of that process."""


def fetch(pid, fd):
    """The socket behind a descriptor of another process; None if it or the process is gone."""
    try:
        holder = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        own = _libc.syscall(PIDFD_GETFD, holder, fd, 0)
        wrong = ctypes.get_errno()
    finally:
        os.close(holder)
    if own >= 0:
        os.set_inheritable(own, False)
        return socket.socket(fileno=own)
    if isinstance(wrong, int) and wrong in (1, 38):  # EPERM, ENOSYS
        raise Unpermitted(f"pidfd_getfd of process {pid}: {os.strerror(wrong)}")
    return None


def sockets_of(pid):
    """{inode: descriptor} of a process's sockets."""
    found = {}
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except (FileNotFoundError, ProcessLookupError):
        return found
    except PermissionError as error:
        raise Unpermitted(str(error)) from None
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found[int(target[8:-1])] = int(name)
    return found


class Tables:
    """Rows of /proc/PID/net/NAME, which shows the process's own network namespace; each read once."""

    def __init__(self):
        self.rows = {}

    def read(self, pid, name):
        try:
            key = os.readlink(f"/proc/{pid}/ns/net"), name
            if key not in self.rows:
                with open(f"/proc/{pid}/net/{name}", encoding="ascii", errors="replace") as file:
                    self.rows[key] = [line.split() for line in file.readlines()[1:]]
            return self.rows[key]
        except OSError:
            return []


class Connection:
    def __init__(self, pid, fd, inode):
        self.pid = pid
        self.fd = fd
        self.inode = inode

    def cut(self):
        """True if it was this connection, and still whole, that was cut."""
        held = fetch(self.pid, self.fd)
        if held is None:
            return False
        with held:
            if os.fstat(held.fileno()).st_ino != self.inode:
                return False  # the number names another one by now
            try:
                held.shutdown(socket.SHUT_RDWR)
            except OSError:
                return False
        return True


def unix_connections(pid, sockets, tables):
    """(connection, process of the other side) of connected unix sockets."""
    for row in tables.read(pid, "unix"):
        inode = int(row[6])
        if inode not in sockets or int(row[5], 16) != UNIX_CONNECTED:
            continue
        held = fetch(pid, sockets[inode])
        if held is None:
            continue
        with held:
            try:
                kind = held.family
                found = held.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            except OSError:
                continue
        if kind == socket.AF_UNIX:
            yield Connection(pid, sockets[inode], inode), struct.unpack("iII", found)[0]


def tcp_connections(pid, sockets, tables):
    """(connection, local address, remote address) of established tcp sockets."""
    for name in ("tcp", "tcp6"):
        for row in tables.read(pid, name):
            if int(row[3], 16) == TCP_ESTABLISHED and int(row[9]) in sockets:
                yield Connection(pid, sockets[int(row[9])], int(row[9])), row[1], row[2]


def connections(pids):
    """(connection, its process, the other process) between these processes, from both sides."""
    found, ends, waiting, tables = [], {}, [], Tables()
    for pid in pids:
        sockets = sockets_of(pid)
        for connection, other in unix_connections(pid, sockets, tables):
            if other in pids and other != pid:
                found.append((connection, pid, other))
        for connection, local, remote in tcp_connections(pid, sockets, tables):
            ends[local, remote] = pid
            waiting.append((connection, local, remote))
    for connection, local, remote in waiting:
        other = ends.get((remote, local))
        if other is not None and other != connection.pid:
            found.append((connection, connection.pid, other))
    return found


class Cutter:
    """`groups`: {name: process ids}; kinds of connections are pairs of those names."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.cuts = {}  # (name, name) -> how many

    def cut(self, groups, kind):
        """Cuts one connection between the two groups that `kind` names. True if there was one."""
        first, second = (set(groups[name]) for name in kind)
        found = [
            connection
            for connection, one, other in connections(first | second)
            if (one in first and other in second) or (one in second and other in first)
        ]
        self.random.shuffle(found)
        for connection in found:
            if connection.cut():
                self.cuts[kind] = self.cuts.get(kind, 0) + 1
                return True
        return False


def why_not(pid):
    """Why connections of this process cannot be cut by us; None if they can."""
    try:
        for fd in sockets_of(pid).values():
            held = fetch(pid, fd)
            if held:
                held.close()
                return None
    except Unpermitted as reason:
        return str(reason)
    return f"process {pid} has no socket"


def main():
    parser = argparse.ArgumentParser(description="Cuts connections between processes, at random.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between two cuts")
    parser.add_argument("pids", type=int, nargs="+", metavar="PID")
    options = parser.parse_args()
    cutter, done = Cutter(options.seed), 0
    try:
        for _ in range(options.count):
            done += cutter.cut({"all": options.pids}, ("all", "all"))
            time.sleep(options.pause)
    except Unpermitted as reason:
        print(f"cutter: {reason}", file=sys.stderr)
        return 1
    print(f"seed {options.seed}: {done} of {options.count} cuts")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
