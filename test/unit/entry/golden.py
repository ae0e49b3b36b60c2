#!/usr/bin/env python3
"""Golden vectors of the entry's bytes, from outside the encoder.

Written from the table in common/entry/entry.h (and section 5 of the design), with struct and a
bitwise CRC32C: nothing of the C code is used here. The build has it print golden.h.
"""
import struct

PUT, DELETE, COMMIT_VERSIONS, PAD, RECORD = 1, 2, 3, 4, 6
HEADER = struct.Struct('<BBHIQIIII')
assert HEADER.size == 32


def crc32c(seed, data):
    """RFC 3720 appendix B.4, one bit at a time: reflected 0x1edc6f41, inverted before and after."""
    crc = seed ^ 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


assert crc32c(0, b'123456789') == 0xe3069283
assert crc32c(crc32c(0, b'1234'), b'56789') == 0xe3069283


class Entry:
    def __init__(self, seed, block_limit, kind, shard, epoch, counter, client, operation, key,
                 value):
        self.seed, self.block_limit, self.kind, self.shard = seed, block_limit, kind, shard
        self.version = epoch << 40 | counter
        self.client, self.operation, self.key, self.value = client, operation, key, value

    def payloads(self):
        whole, size = self.key + self.value, self.block_limit - 32
        return [whole[i:i + size] for i in range(0, len(whole), size)] or [b'']

    def unsealed(self, number):
        """Block `number` with a checksum field of 0."""
        parts = self.payloads()
        header = HEADER.pack(0, self.kind, self.shard, 0, self.version,
                             len(self.value) << 11 | len(self.key), len(parts) << 16 | number,
                             self.client, self.operation)
        block = header + parts[number]
        return block + bytes(-len(block) % 64)

    def block(self, number):
        block = self.unsealed(number)
        crc = crc32c(self.seed, block)
        return block[:4] + struct.pack('<I', crc or 0xffffffff) + block[8:]

    def bytes(self):
        return b''.join(self.block(i) for i in range(len(self.payloads())))


def pattern(count):
    """The value of the long vectors; golden_test.c makes the same."""
    return bytes((i * 31 + (i >> 8)) & 0xff for i in range(count))


# (shard, epoch, counter) and (client, lowest unanswered); commit_test.c has the same.
COMMIT_SHARDS = [(5, 6, 123), (0xbeef, 0xabcdef, 0x123456789a), (0, 1, 0)]
COMMIT_CLIENTS = [(1024, 77), (0xcafe0001, 0xffffffff)]


def commit_value(shards, clients, part=0, parts=0):
    """The value of a commit versions entry, by the table in common/entry/commit.h."""
    return (struct.pack('<HHHH', len(shards), parts, len(clients), part) +
            b''.join(struct.pack('<H6xQ', shard, epoch << 40 | counter)
                     for shard, epoch, counter in shards) +
            b''.join(struct.pack('<II', *client) for client in clients))


def forge_zero(entry, at):
    """Sets the four value bytes from `at` on so that the CRC of the only block is 0.

    The CRC is affine in them over GF(2): crc(x) = crc(0) ^ L x. L's columns come from 32 trials,
    and Gauss' elimination solves L x = crc(0)."""
    def crc_with(x):
        entry.value = entry.value[:at] + struct.pack('<I', x) + entry.value[at + 4:]
        return crc32c(entry.seed, entry.unsealed(0))

    base = crc_with(0)
    rows = {}  # highest bit of the image -> (image, preimage)
    for bit in range(32):
        image, preimage = crc_with(1 << bit) ^ base, 1 << bit
        while image and image.bit_length() in rows:
            other = rows[image.bit_length()]
            image, preimage = image ^ other[0], preimage ^ other[1]
        assert image, 'four bytes in a row give every CRC'
        rows[image.bit_length()] = (image, preimage)
    rest, x = base, 0
    while rest:
        image, preimage = rows[rest.bit_length()]
        rest, x = rest ^ image, x ^ preimage
    assert crc_with(x) == 0


def entries():
    """(name, entry, blocks shown, bytes shown of each or None for all)"""
    seed = 0x5eed1e55
    yield 'tiny put', Entry(seed, 65536, PUT, 7, 1, 1, 42, 9, b'k', b'v'), [0], None
    yield 'put of an empty value', Entry(0, 256, PUT, 0, 0, 0, 0, 0, b'k', b''), [0], None
    yield ('put of ZippyDB size',
           Entry(seed, 65536, PUT, 0xbeef, 0xabcdef, 0x123456789a, 0xcafe0001, 0xfffffffe,
                 b'user4052466453699787802:profile:2024-10-31T08:15', pattern(43)), [0], None)
    yield ('put that fills its block',
           Entry(seed, 256, PUT, 3, 2, 77, 5, 6, b'0123456789abcdef', pattern(208)), [0], None)
    yield ('delete',
           Entry(seed, 65536, DELETE, 512, 3, 0xffffffffff, 1, 2, b'{tag}:gone', b''), [0], None)
    yield ('put of two blocks',
           Entry(seed, 256, PUT, 11, 0xffffff, 5, 0x01020304, 0x05060708,
                 b'a key that leaves the value two blocks', pattern(300)), [0, 1], None)
    yield ('put of 1 MiB',
           Entry(seed, 65536, PUT, 65535, 4, 1 << 39, 8, 100, b'big', pattern(1 << 20)), [0, 16],
           32)
    yield ('put of 1 MiB with the longest key in the smallest blocks',
           Entry(seed, 256, PUT, 1, 4, 2, 8, 101, pattern(1024), pattern(1 << 20)), [0, 4685], 32)
    zero = Entry(seed, 65536, PUT, 9, 6, 1000, 77, 88, b'zero', b'forged: ????, see golden.py')
    forge_zero(zero, 8)
    assert zero.block(0)[4:8] == b'\xff\xff\xff\xff'
    yield 'put whose CRC is 0', zero, [0], None
    yield ('commit versions',
           Entry(seed, 65536, COMMIT_VERSIONS, 0, 0, 0, 3, 1, b'',
                 commit_value(COMMIT_SHARDS, COMMIT_CLIENTS)), [0], None)
    yield ('part of a table',
           Entry(seed, 65536, COMMIT_VERSIONS, 0, 0, 0, 3, 1, b'',
                 commit_value(COMMIT_SHARDS, COMMIT_CLIENTS, 2, 0x103)), [0], None)
    yield 'pad', Entry(seed, 65536, PAD, 0, 0, 0, 0, 0, b'', bytes(192 - 32)), [0], None
    yield 'record stub', Entry(seed, 256, RECORD, 21, 5, 77, 1024, 4711, b'', b''), [0], None
    yield 'shortest pad', Entry(seed, 65536, PAD, 0, 0, 0, 0, 0, b'', bytes(32)), [0], None


def array(data):
    lines = ['    ' + ' '.join('0x%02x,' % b for b in data[i:i + 16])
             for i in range(0, len(data), 16)]
    return '{\n' + '\n'.join(lines) + '\n}'


def name_of(what, number):
    return 'golden_%s_%u' % (what, number)


def header():
    out = ['/* Printed by golden.py. */', '#ifndef ENTRY_GOLDEN_H', '#define ENTRY_GOLDEN_H', '', '#include <stdint.h>', '',
           '/* One block. A value of NULL with bytes is the pattern (or, in a pad, zeros). */',
           'struct golden {',
           '    const char *name;',
           '    uint32_t seed, block_limit;',
           '    uint8_t type;',
           '    uint16_t shard;',
           '    uint64_t version;',
           '    uint32_t client_id, operation;',
           '    const uint8_t *key, *value;',
           '    uint32_t key_bytes, value_bytes, block, blocks;',
           '    uint32_t block_bytes, shown_bytes;',
           '    const uint8_t *shown;',
           '};', '']
    rows = []
    for index, (name, entry, blocks, shown) in enumerate(entries()):
        key, value = 'NULL', 'NULL'
        if entry.key:
            key = name_of('key', index)
            out.append('static const uint8_t %s[] = %s;' % (key, array(entry.key)))
        if entry.value and entry.kind != PAD and len(entry.value) < 1000:
            value = name_of('value', index)
            out.append('static const uint8_t %s[] = %s;' % (value, array(entry.value)))
        for number in blocks:
            block = entry.block(number)
            part = block if shown is None else block[:shown]
            bytes_name = '%s_%u' % (name_of('block', index), number)
            out.append('static const uint8_t %s[] = %s;' % (bytes_name, array(part)))
            rows.append('    {"%s", 0x%08xu, %u, %u, %u, UINT64_C(0x%x), %uu, %uu,\n'
                        '     %s, %s, %u, %u, %u, %u, %u, %u, %s},' %
                        (name, entry.seed, entry.block_limit, entry.kind, entry.shard,
                         entry.version, entry.client, entry.operation, key, value, len(entry.key),
                         len(entry.value), number, len(entry.payloads()), len(block), len(part),
                         bytes_name))
    out += ['', 'static const struct golden goldens[] = {'] + rows + ['};', '', '#endif', '']
    return '\n'.join(out)


if __name__ == '__main__':
    print(header())
