#!/usr/bin/python3
"""What a single peer can do wrong over tcp, and that it costs nobody else anything: garbage, half a
message, a length that lies, answers that are never read, ten thousand connections (the issue's "Bad
input"). The cluster is open: all of these are trusted (guests.py has those who are not). mangled.py does all of it at random."""

import concurrent.futures
import contextlib
import os
import resource
import socket
import sys
import threading
import time

from harness import DIVISOR, Cluster, tap
from work import Counters, anonymous_bytes, counters_add_up

import wire

CONNECTIONS = int(os.environ.get("ROWAN_CONNECTIONS") or (10_000 if DIVISOR == 1 else 1000))
# common/fabric/README.md and server/README.md state what an idle connection costs its server: 0.8 KiB and
# 0.2 KiB; the socket's memory is the system's. Sanitizers put room around each piece.
MOST_BYTES_A_CONNECTION = 1088 if DIVISOR == 1 else 8192
SILENT = 100  # clients that do not read
# common/fabric/tcp/tcp.h: a worker may have chunks of 64 MiB, middle pieces of 64, large ones of 32, and answers of 32; others work beside.
MOST_GROWTH_BYTES = 224 << 20
# 256 chunks, each of 256 KiB; 32 large pieces, and 1,024 of 64 KiB.
CHUNKS = 256
FILLERS, FILLER_BYTES = 18, 15_000  # more than a chunk together; each, alone, finds its place in one (TCP_READ_ROOM)
UNREAD, UNREAD_BYTES, SIP_BYTES = 400, 20_000, 4096  # what is sipped while all chunks go round is much less than what waits
# So many, bytes of the message, drips for a byte of it, what others do. The first leave no memory, and only answers want some.
BEGUN = ((32, 1_000_000, 1, "c"), (40, 1 << 20, 1, "a"), (1100, 60 << 10, 4, "a"))
DRIP_SECONDS = 0.3
RECORDS = 200


def before():
    global cluster, counters, cm, worker, control
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    os.environ["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=0"  # a huge page is 200 B for each of 10,000 connections
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8"
    cluster = Cluster("peers", "--pm-bytes", "1G", "--fabric", "tcp")
    counters = Counters(cluster, "beside", pause_us=2000)
    counters.wait_for_progress()
    address = cluster.status()["servers"][0]["address"]
    cm = (cluster.processes()["cm"].address, 0)
    worker, control = (address, 0), (address, 1)


def shard_of_server_1(key):
    shard = cluster.shard_of(key)
    return shard if shard["primary"] == 1 else None


def own_key():
    """A key that server 1 leads."""
    number = 0
    while not shard_of_server_1(f"peers-{number}"):
        number += 1
    return f"peers-{number}"


def get_of(client, key):
    """A request of this client for this key, that server 1 answers."""
    shard = shard_of_server_1(key)
    return wire.request(wire.GET, shard["shard"], shard["epoch"], key.encode(), client=client.identity)


def log_lines(name, piece):
    return cluster.log(name).count(piece)


def harm_none():
    counters.wait_for_progress()


@tap.case
def the_client_of_this_test_speaks_the_protocol():
    with wire.Client(*worker) as client:
        tap.equal(client.welcome(), 0)
        client.send(get_of(client, own_key()))
        tap.equal(wire.reply_status(client.message())[0], -1)  # not found


def memory():
    return anonymous_bytes(cluster.processes()["s1"].pid)


def open_idle(count):
    held = []
    while len(held) < count:
        batch = [wire.Client(*worker) for _ in range(min(200, count - len(held)))]
        held += batch
        for client in batch:
            tap.equal(client.welcome(), 0, f"connection {len(held)}")
    return held


@tap.case
def ten_thousand_connections_cost_bounded_memory_and_nobody_else():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit < CONNECTIONS + 200:
        tap.skip(f"only {limit} descriptors are allowed here (ulimit -Hn)")
    for client in open_idle(200):  # what is taken once
        client.socket.close()
    harm_none()
    began = memory()
    held = open_idle(CONNECTIONS)
    harm_none()
    each = (memory() - began) / CONNECTIONS
    print(f"# {CONNECTIONS} idle connections: {each:.0f} bytes of the server's memory each")
    tap.check(each <= MOST_BYTES_A_CONNECTION, f"{each} bytes a connection")
    cluster.ok("put", "beside", "ten thousand")
    key = own_key()
    for client in (held[0], held[len(held) // 2], held[-1]):  # they are alive
        client.send(get_of(client, key))
        tap.check(wire.reply_status(client.message()))
    for client in held:
        client.socket.close()
    harm_none()


@tap.case
def garbage_instead_of_a_greeting_closes_the_connection():
    for endpoint in (worker, control, cm):
        with wire.Client(*endpoint, hello=b"GET / HTTP/1.1\r\nHost: rowan\r\n\r\n" * 8) as client:
            tap.check(client.closed(), endpoint)
    harm_none()


@tap.case
def another_cluster_and_strangers_among_the_servers_are_refused_with_the_error():
    cluster_id = int(cluster.status()["cluster"], 16)
    refused, other = -14, -15  # ROWAN_EREFUSED, ROWAN_ECLUSTER
    for endpoint in (worker, control, cm):
        with wire.Client(*endpoint, hello=wire.greeting(cluster=cluster_id ^ 1)) as client:
            tap.equal(client.welcome(), other, endpoint)
            tap.check(client.closed())
    for endpoint in (worker, control):
        hello = wire.greeting(peer=wire.SERVER, cluster=cluster_id, number=2, incarnation=12345)
        with wire.Client(*endpoint, hello=hello) as client:
            tap.equal(client.welcome(), refused, endpoint)
            tap.check(client.closed())
    harm_none()


@tap.case
def a_garbage_message_closes_its_connection_with_one_line_in_the_log():
    for endpoint, line in ((worker, "client_garbage"), (control, "link_garbage")):
        before = log_lines("s1", line)
        with wire.Client(*endpoint) as client:
            tap.equal(client.welcome(), 0)
            for _ in range(50):
                try:
                    client.send(b"this is no message at all")
                except OSError:
                    break
            tap.check(client.closed(), endpoint)
        tap.equal(log_lines("s1", line), before + 1, line)
    harm_none()


@tap.case
def a_cm_answers_garbage_with_an_error():
    with wire.Client(*cm) as client:
        tap.equal(client.welcome(), 0)
        client.send(b"this is no message at all")
        found = client.message()
        tap.check(found and found[0] == wire.CONTROL, found)
        tap.contains(found, b"unknown or damaged format")
    harm_none()


@tap.case
def a_length_that_lies_closes_its_connection():
    key = own_key()
    size = 40 + len(key)
    for lie in (0, 1, size - 1, size + 8, (1 << 20) + 8192, 1 << 31, 0xFFFFFFFF):
        with wire.Client(*worker) as client:
            tap.equal(client.welcome(), 0)
            get = get_of(client, key)
            client.send(get, declared=lie)
            client.send(get)
            tap.check(client.closed(), lie)
    for key_bytes, value_bytes in ((0, 0), (1025, 0), (size, 0), (3, 1 << 20), (3, 0xFFFFFFFF)):
        with wire.Client(*worker) as client:
            tap.equal(client.welcome(), 0)
            client.send(wire.request(wire.PUT, 0, 1, b"key", b"value", key_bytes=key_bytes,
                                     value_bytes=value_bytes, client=client.identity))  # fmt: skip
            tap.check(client.closed(), key_bytes, value_bytes)
    harm_none()


def window(when, seconds, workload="a"):
    """What others do now, with objects of 100 KB."""
    found = cluster.ycsb(workload, RECORDS, "--profile", "fixed:100000", "--seconds", seconds, "--timeout-ms", "60000", threads=1, depth=8)
    longest = max(found[kind]["max_us"] for kind in ("get", "put") if kind in found) / 1000
    print(f"# {when}: {found['ops_per_second']:.0f} operations a second of others, the longest took {longest:.0f} ms", flush=True)


@contextlib.contextmanager
def nobody_stays():
    """Memory of server 1 at the beginning; at the end all connections since then must go, and others go on."""
    descriptors = lambda: len(os.listdir(f"/proc/{cluster.processes()['s1'].pid}/fd"))  # noqa: E731
    began = descriptors()
    window("before", 1)
    yield memory()
    tap.wait_until(lambda: descriptors() <= began, 60, lambda: f"{descriptors() - began} connections are left")
    harm_none()
    window("after", 1)


def pin_chunks(unread, filling, get, filler):
    """The first has a small request in each chunk that the second fills, and hardly reads, until the server ends it: (chunks, memory)."""
    unread.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SIP_BYTES)
    unread.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(UNREAD):
        unread.send(get)
    unread.socket.setblocking(False)
    most = 0
    for chunk in range(8 * CHUNKS):
        for _ in range(FILLERS):
            filling.send(filler)
            tap.check(wire.reply_status(filling.message())[0] < 0, "the filler is refused")
        try:
            unread.send(get)
            if not unread.socket.recv(SIP_BYTES):
                return chunk, most
        except BlockingIOError:
            pass
        except OSError:
            return chunk, most
        most = max(most, memory())
    raise tap.Failed("who does not read keeps its place")


@tap.case
def who_pins_a_request_in_each_chunk_and_does_not_read_is_ended_and_costs_nobody_else():
    key = own_key()
    shard, told, over = shard_of_server_1(key), log_lines("s1", "peer_does_not_read"), threading.Event()
    cluster.ok("put", key, "-", input="v" * UNREAD_BYTES)

    def attack():
        found = []
        while not found or not over.is_set():
            with wire.Client(*worker) as unread, wire.Client(*worker) as filling:
                tap.equal((unread.welcome(), filling.welcome()), (0, 0))
                filler = wire.request(wire.PUT, shard["shard"], 0, b"k", bytes(FILLER_BYTES), client=filling.identity)  # of no epoch
                found.append(pin_chunks(unread, filling, get_of(unread, key), filler))
        return found

    with nobody_stays() as began, concurrent.futures.ThreadPoolExecutor(1) as pool:
        attacking = pool.submit(attack)
        try:
            window("amid pinned chunks", 2)
            harm_none()
        finally:
            over.set()
        chunks, most = zip(*attacking.result())
        print(f"# ended after {chunks} chunks; memory grew by {max(most) - began >> 10} KiB")
        tap.check(min(chunks) > CHUNKS // 2, "one was ended before memory was short:", chunks)
        tap.check(log_lines("s1", "peer_does_not_read") > told, "the log does not tell")
        tap.check(max(most) - began < MOST_GROWTH_BYTES, f"{max(most) - began} bytes")


def begin(count, size):
    """So many connections with the head of a message and a little of it."""
    held, head = open_idle(count), wire.frame(bytes(size), 0)
    for number, client in enumerate(held):
        client.socket.sendall(head[: 16 + number % 1000])
        client.socket.setblocking(False)
    return held


def drip(held, every):
    """A byte of each now and then, until all were ended. The most memory meanwhile."""
    most, end = 0, time.monotonic() + 60
    for turn in range(1 << 30):
        for client in held[:]:
            with contextlib.suppress(BlockingIOError):
                try:
                    if turn % every == 0:
                        client.socket.send(b"\0")
                    tap.equal(client.socket.recv(1), b"", "an answer to half a message")
                except (ConnectionResetError, BrokenPipeError):
                    pass
                client.socket.close()
                held.remove(client)
        most = max(most, memory())
        if not held:
            return most
        tap.check(time.monotonic() < end, f"{len(held)} of them are left")
        time.sleep(DRIP_SECONDS)


@tap.case
def begun_messages_that_drip_are_ended_and_cost_nobody_else():
    def is_told(size):
        found = [line for line in cluster.log("s1").splitlines() if "connection_stalled" in line]
        return any(f" of={size + 16}" in line for line in found)

    with nobody_stays() as began, concurrent.futures.ThreadPoolExecutor(len(BEGUN)) as pool:
        dripping = []
        for count, size, every, workload in BEGUN:
            dripping.append(pool.submit(drip, begin(count, size), every))
            window(f"amid {count} begun messages of {size} bytes", 2, workload)
            harm_none()
            tap.wait_until(lambda size=size: is_told(size), 60, "who begins and stalls is ended while others want memory")
        grown = max(each.result() for each in dripping) - began
        print(f"# all were ended; memory grew by {grown >> 10} KiB")
        tap.check(grown < MOST_GROWTH_BYTES, f"{grown} bytes")


@tap.case
def clients_that_never_read_their_answers_cost_bounded_memory_and_nobody_else():
    key = own_key()
    cluster.ok("put", key, "-", input="v" * 1_000_000)
    began, held = memory(), []
    for _ in range(SILENT):
        client = wire.Client(*worker)
        held.append(client)
        tap.equal(client.welcome(), 0)
        client.socket.settimeout(0.2)
        get = get_of(client, key)
        try:
            for _ in range(200):
                client.send(get)  # of a million bytes each
        except OSError:
            pass  # it reads no more of us, or has closed: both are right
    harm_none()
    grown = memory() - began
    print(f"# {len(held)} clients with 200 unread answers each: memory grew by {grown >> 10} KiB")
    tap.check(grown < MOST_GROWTH_BYTES, f"{grown} bytes")
    began = time.monotonic()
    tap.equal(len(cluster.ok("get", key).out.rstrip("\n")), 1_000_000)
    tap.check(time.monotonic() - began < 5, "another's read waited for them")
    for client in held:
        client.socket.close()
    harm_none()


@tap.case
def the_clients_beside_saw_no_error_and_the_replicas_are_equal():
    acknowledged, unknown = counters.finish()
    tap.equal(sum(unknown), 0, "unknown")
    counters_add_up(cluster, acknowledged, unknown)
    for name, one in cluster.processes().items():
        tap.equal(one.state(), "running", name)
    cluster.ok("verify", seconds=300)
    cluster.stop()


if __name__ == "__main__":
    try:
        sys.exit(tap.main(before))
    finally:
        if "counters" in globals():
            counters.kill()
