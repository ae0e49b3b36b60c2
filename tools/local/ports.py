"""Free ports of this machine for a cluster over tcp or verbs.

They are outside of the range that the kernel gives to connections (ip_local_port_range), so that no
connection takes a port between our test and the server's bind. Ports are drawn at random: if two
clusters that start at the same moment draw the same, a server finds its address in use, and the
start draws again.
"""

import random
import socket

from .failure import Failure

HOST = "127.0.0.1"
LEAST_PORT, MOST_PORT = 10000, 65535  # below are the ports of well-known services
DRAWS = 200


def ephemeral_range():
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        low, high = map(int, file.read().split())
    return low, high


def possible_starts(count):
    """Where a range of so many ports may start, as (first, last) pairs."""
    low, high = ephemeral_range()
    gaps = ((LEAST_PORT, low - 1), (max(high + 1, LEAST_PORT), MOST_PORT))
    return [(first, last - count + 1) for first, last in gaps if last - count + 1 >= first]


def is_free(port):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do
        try:
            one.bind((HOST, port))
        except OSError:
            return False
    return True


def address(port):
    """The ports that follow are its owner's, too."""
    return f"{HOST}:{port}"


def of(address):
    return int(address.rpartition(":")[2])


def listens(port):
    """Does a process listen there? Looked up, not tried: a try would be a connection that it counts."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return any(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def find(count):
    """The first of `count` free ports that follow each other."""
    gaps = possible_starts(count)
    sizes = [last - first + 1 for first, last in gaps]
    for _ in range(DRAWS if gaps else 0):
        first, last = random.choices(gaps, sizes)[0]
        start = random.randint(first, last)
        if all(is_free(port) for port in range(start, start + count)):
            return start
    raise Failure(
        f"no {count} free ports in a row outside of {'-'.join(map(str, ephemeral_range()))} (see "
        "/proc/sys/net/ipv4/ip_local_port_range); end what listens there, or use --fabric shm"
    )


def assign(names_and_counts, wanted=0):
    """{name: first port} for each process, which listens on as many ports as it has endpoints; from
    `wanted` on, if those are all free."""
    total = sum(count for _, count in names_and_counts)
    port = wanted
    if not wanted or not all(is_free(one) for one in range(wanted, wanted + total)):
        port = find(total)
    assigned = {}
    for name, count in names_and_counts:
        assigned[name] = port
        port += count
    return assigned
