#!/usr/bin/env python3
"""Writes the seeds of the entry and message fuzzers into corpus/ beside this file.

They are committed; this is how to make them again after a format changed."""
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'unit', 'entry'))
from golden import COMMIT_VERSIONS, DELETE, PAD, PUT, Entry, pattern  # noqa: E402

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
        versions = entry(limit, COMMIT_VERSIONS, b'', pattern(32))
        long = entry(limit, PUT, pattern(300), pattern(BLOCK_LIMITS[limit] if limit < 2 else 700))
        for flags, name in ((0, 'plain'), (4, 'sealed'), (8, 'stopping')):
            head = bytes([limit | flags])
            write('entry', '%s_%u' % (name, BLOCK_LIMITS[limit]),
                  head + put + pad + delete + bytes(128) + versions + long + put[:64])
    write('entry', 'hole', bytes(1 + 256))
    write('entry', 'empty', b'\0')


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


if __name__ == '__main__':
    entries()
    messages()
