#!/usr/bin/env python3
"""Writes the seeds of the entry and message fuzzers into corpus/ beside this file.

They are committed; this is how to make them again after a format changed."""
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'unit', 'entry'))
from golden import (COMMIT_CLIENTS, COMMIT_SHARDS, COMMIT_VERSIONS, DELETE, PAD, PUT,  # noqa: E402
                    RECORD, Entry, commit_value, pattern)

SEED = 0x5eed  # entry_fuzz.c's
BLOCK_LIMITS = (256, 1024, 4096, 65536)


def write(target, name, data):
    path = os.path.join(HERE, 'corpus', target)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), 'wb') as file:
        file.write(data)


def entry(limit, kind, key, value):
    return Entry(SEED, BLOCK_LIMITS[limit], kind, 3, 1, 2, 5, 6, key, value).bytes()


def entries():
    for limit in range(4):
        put = entry(limit, PUT, b'user4052466453699787802', pattern(43))
        delete = entry(limit, DELETE, b'user4052466453699787802', b'')
        pad = entry(limit, PAD, b'', bytes(192 - 32))
        record = entry(limit, RECORD, b'', b'')
        versions = entry(limit, COMMIT_VERSIONS, b'', commit_value(COMMIT_SHARDS, COMMIT_CLIENTS))
        long = entry(limit, PUT, pattern(300), pattern(BLOCK_LIMITS[limit] if limit < 2 else 700))
        for flags, name in ((0, 'plain'), (4, 'sealed'), (8, 'stopping')):
            head = bytes([limit | flags])
            write('entry', '%s_%u' % (name, BLOCK_LIMITS[limit]),
                  head + put + pad + record + delete + bytes(128) + versions + long + put[:64])
    write('entry', 'hole', bytes(1 + 256))
    write('entry', 'empty', b'\0')


def commits():
    whole = commit_value(COMMIT_SHARDS, COMMIT_CLIENTS)
    write('commit', 'whole', whole)
    write('commit', 'none', commit_value([], []))
    write('commit', 'shards', commit_value([(i, 1, i) for i in range(200)], []))
    write('commit', 'clients', commit_value([], COMMIT_CLIENTS * 50))
    write('commit', 'cut', whole[:-1])
    write('commit', 'most', struct.pack('<HHHH', 65535, 0, 65535, 0) + whole[8:])
    write('commit', 'part', commit_value(COMMIT_SHARDS, COMMIT_CLIENTS, 2, 3))


def checkpoints():
    def buckets(first, counts, items):
        return struct.pack('<BQII', 3, first, len(counts), len(items)) + struct.pack(
            '<%uQ' % len(items), *items) + bytes(counts)

    write('checkpoint', 'segments', b'\1' + struct.pack('<QIIII', 9, 3, 6, 1, 0) * 2)
    write('checkpoint', 'shard', b'\2' + struct.pack('<QQQQ', 1, 1 << 40 | 5, 1024, 1))
    write('checkpoint', 'buckets', buckets(7, [0, 2, 1], [64, 128, 1 << 48 | 192]))
    write('checkpoint', 'wrong_counts', buckets(7, [0, 2, 2], [64, 128, 192]))
    write('checkpoint', 'records', b'\4' + struct.pack('<IIQ', 7, 4, 1 << 40 | 5))
    write('checkpoint', 'end', b'\5')


def messages():
    def request(kind, key, value, expected=0):
        return struct.pack('<BBHIIIIHHIIQ', kind, 1, 7, 1, 42, 2, 1, len(key), 0, len(value), 9,
                           expected) + key + value

    def reply(status, value):
        return struct.pack('<BBhIIIQQ', 16, 1, status, 2, 9, len(value), 1 << 40 | 5, 3) + value

    write('message', 'get', request(1, b'key', b''))
    write('message', 'put', request(2, b'key', b'value'))
    write('message', 'put_empty', request(2, b'key', b''))
    write('message', 'put_if', request(3, b'key', b'value', 1 << 40 | 4))
    write('message', 'delete', request(4, b'key', b''))
    write('message', 'put_cut', request(2, b'key', b'value')[:-1])
    write('message', 'reply', reply(0, b'value'))
    write('message', 'reply_failed', reply(-1, b''))
    write('message', 'control', struct.pack('<BBHI', 32, 1, 0, 9) + b'\x32\x00')


# --- protobuf, written by hand so that the seeds do not come from the code they test ---

def varint(number):
    out = b''
    while number >= 0x80:
        out += bytes([number & 0x7f | 0x80])
        number >>= 7
    return out + bytes([number])


def number(field, value):
    return varint(field << 3) + varint(value) if value else b''


def blob(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def configuration(secret):
    members = b''.join(
        blob(7, number(1, server) + number(2, 1000 + server) + number(3, 2) +
             blob(4, b'shm:/run/rowan/s%u' % server)) for server in (1, 2, 3))
    shards = b''
    for shard in range(6):
        servers = [(shard + i) % 3 + 1 for i in range(3)]
        first, last = shard * 16384 // 6, (shard + 1) * 16384 // 6 - 1
        shards += blob(8, number(1, shard) + number(2, first) + number(3, last) + number(4, 1) +
                       number(5, servers[0]) + number(6, shard // 3) +
                       blob(7, bytes(servers[1:])))
    return (number(1, 4) + number(2, 0x1122334455667788) + number(3, 65536) + number(4, 3) +
            (blob(5, pattern(16)) if secret else b'') + number(6, 1025) + members + shards)


def control(field, body):
    return struct.pack('<BBHI', 32, 1, 0, 9) + blob(field, body)


def configurations():
    write('cluster', 'three_servers', configuration(True))
    write('cluster', 'for_clients', configuration(False))
    write('cluster', 'with_keys', configuration(True) + number(9, 5) +
          blob(18, blob(1, pattern(16)) + blob(2, pattern(16)) + blob(3, pattern(16)) + blob(4, pattern(16)) + number(5, 1025)))
    write('cluster', 'cut', configuration(True)[:-3])


def controls():
    join = (number(1, 2) + number(2, 77) + number(3, 1) + blob(4, b'shm:/run/rowan/s2') +
            number(5, 65536) + blob(6, b'shm') + blob(7, b'none'))
    write('control', 'join', control(1, join))
    write('control', 'join_brings', control(1, join + number(14, 4) + blob(15, configuration(True))))
    write('control', 'get_configuration', control(2, number(1, 3)))
    write('control', 'configuration_is', control(4, blob(1, configuration(True))))
    write('control', 'waiting', control(4, blob(2, bytes([2, 3]))))
    write('control', 'bring', control(4, number(3, 7) + number(4, 1)))
    write('control', 'get_checksum', control(7, number(1, 5)))
    write('control', 'set_setting', control(25, blob(1, b'percent') + blob(2, b'60')))
    write('control', 'settings_are', control(26, blob(1, blob(1, b'level') + blob(2, b'c')) + blob(2, b'/etc/p.conf')))
    write('control', 'failure', control(11, number(1, 14) + blob(2, b'not a member')))


def configs():
    write('config', 'all_kinds', b'[p]\ncm = a\nworkers=3\njson: yes\ndurability=fence\n')
    write('config', 'mistakes', b'; comment\n[p]\nworkers=9999999999999999999\nnone=1\n[q]\na=b\n')


def greeting(kind, token=0):
    return struct.pack('<QIIIiQQQQIIIHHII48x', 0x314e41574f524354, 2, 2, kind, 0, token, 7, 3, 1, 9, 0, 2, 1, 1, 0, 0)


def streams():
    def message(number, data):
        return struct.pack('<IIQ', 0x47534d52, len(data), number) + data + bytes(-len(data) % 8)

    def frame(*sizes):
        head = struct.pack('<IHH', 0x4d524652, len(sizes), 0)
        head += b''.join(struct.pack('<H', size // 64) for size in sizes)
        return head + bytes(-len(head) % 8) + b''.join(pattern(size) for size in sizes)

    what = {'greeting': b'\0', 'messages': b'\1', 'blocks': b'\2', 'frames': b'\3'}
    write('tcp', 'hello', what['greeting'] + b'\1' + greeting(1))
    write('tcp', 'hello_blocks', what['greeting'] + b'\2' + greeting(2, 5))
    write('tcp', 'messages', what['messages'] + b'\3' + message(0, b'question') + message(1, b'') +
          message(2, pattern(1000)) + message(3, b'x'))
    write('tcp', 'message_long', what['messages'] + b'\4' + message(0, pattern(200000))[:2000])
    write('tcp', 'blocks', what['blocks'] + b'\5' + frame(64, 128, 64) + frame(64) + frame(192, 64))
    write('tcp', 'block_cut', what['blocks'] + b'\6' + frame(64, 65536)[:1000])
    write('tcp', 'frames', what['frames'] + b'\7' + bytes([0, 1, 2]) + pattern(64 * 6) + frame(64))


def verbs():
    def hello(kind, error=0, queue=0x1234, zone=1, timeout=16):
        head = struct.pack('<8sIIIi', b'VRBRWAN1', 3, 3, kind, error)
        if kind != 1:
            return head + bytes(104)
        rc = struct.pack('<QIIIIIIII', 0x7f0000001000, 77, queue, 0x654321, zone, 256, 16, timeout, 0)
        return (head + bytes(10) + b'\xff\xff\x0a\x01\x01\x01' +
                struct.pack('<IIIIII', 0, 1024, 17, 0x111, 3, 0x5eed) +
                (rc if queue else bytes(40)) + bytes(24))

    def short(flags, sequence, message=0, payload=0, odd=0, acked=0, limit=64):
        return struct.pack('<BBBBHHB', flags, sequence, acked, limit, message, payload, odd)

    def whole(sequence, flags, message, payload, acked=0, limit=64, early=0):
        return struct.pack('<IIIHHIIQH', sequence, acked, limit, flags, payload, message, 0, early,
                           payload)

    write('verbs', 'hello', b'\0' + hello(1))
    write('verbs', 'hello_segments', b'\0' + hello(1, zone=2, timeout=12))
    write('verbs', 'hello_no_zone', b'\0' + hello(1, zone=0, timeout=0))
    write('verbs', 'hello_no_rc', b'\0' + hello(1, queue=0))
    write('verbs', 'ready', b'\0' + hello(2))
    write('verbs', 'refusal', b'\0' + hello(3, error=-26))
    write('verbs', 'messages', b'\1' + short(7, 0, 0, 100, 5) + short(7, 1, 0, 0, 5) +
          short(15, 2, 0, 900, 5))
    write('verbs', 'long', b'\1' + short(3, 0, 100, 984) + short(5, 1, 100, 616) + short(7, 2, 0, 8, 5))
    write('verbs', 'disorder', b'\1' + short(7, 1, 0, 8, 5) + short(7, 0, 0, 8, 5) + short(7, 0, 0, 8, 5))
    write('verbs', 'too_far', b'\1' + short(7, 64, 0, 8, 5))
    write('verbs', 'acked', b'\1' + short(0, 0, acked=1, odd=8, limit=65) + short(0, 0, acked=2, limit=66) +
          short(0, 0, acked=5, limit=69))
    write('verbs', 'again', b'\1' + short(16, 0, acked=1, limit=65) + short(0, 0, acked=5, limit=69))
    write('verbs', 'strange', b'\1' + short(8, 0) + short(7, 0, 0, 8, 1) + short(7, 0, 0, 8, 2) +
          short(7, 0, 0, 8, 3))
    write('verbs', 'whole', b'\2' + whole(0, 7, 8, 8) + whole(1, 8, 0, 0) + whole(1, 7, 100, 99))
    write('verbs', 'early', b'\2' + whole(3, 7, 8, 8) + whole(1, 7, 8, 8) + whole(0, 7, 8, 8) +
          whole(2, 7, 8, 8) + whole(4, 7, 8, 8, early=2))


if __name__ == '__main__':
    entries()
    commits()
    checkpoints()
    streams()
    verbs()
    messages()
    configurations()
    controls()
    configs()
