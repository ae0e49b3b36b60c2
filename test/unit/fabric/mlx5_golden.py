#!/usr/bin/env python3
"""Golden vectors of what an mlx5 device is told, from outside the encoders.

Written as the manual prints its tables: the byte offset of a double word inside of a structure, then the
field's highest and lowest bit in it. Nothing of the C code is used, least of all its table, which counts
bits from the other end.

The build has it print mlx5_golden.h.
"""
import struct


class Bytes:
    def __init__(self, count):
        self.data = bytearray(count)

    def field(self, at, high, low, value):
        """Bits high..low of the big-endian double word at byte `at`."""
        assert at % 4 == 0 and 31 >= high >= low >= 0 and 0 <= value < 1 << (high - low + 1)
        (word,) = struct.unpack_from('>I', self.data, at)
        assert word >> low & ((1 << (high - low + 1)) - 1) == 0, 'two fields at one place'
        struct.pack_into('>I', self.data, at, word | value << low)
        return self

    def address(self, at, value):
        return self.field(at, 31, 0, value >> 32).field(at + 4, 31, 0, value & 0xffffffff)

    def raw(self, at, data):
        assert not any(self.data[at:at + len(data)])
        self.data[at:at + len(data)] = data
        return self


def command(count, opcode):
    return Bytes(count).field(0, 31, 16, opcode)


def work_queue(out, at, q):
    out.field(at + 0x00, 31, 28, 2)                        # linked list, striding
    out.field(at + 0x08, 23, 0, q['pd'])
    out.address(at + 0x10, q['counter_at'])
    out.field(at + 0x20, 19, 16, 5)                        # elements of 32 bytes
    out.field(at + 0x20, 4, 0, q['log_elements'])
    out.field(at + 0x24, 31, 31, 1)                        # the doorbell record is in a umem
    out.field(at + 0x24, 30, 30, 1)                        # the elements are
    out.field(at + 0x24, 11, 8, (q['log_strides'] - 9) & 0xf)
    out.field(at + 0x24, 2, 0, q['log_stride_bytes'] - 6)
    out.field(at + 0x28, 31, 0, q['counter_umem'])
    out.field(at + 0x2c, 31, 0, q['umem'])
    return out


def create_xrq(q):
    out, xrqc = command(0x150, 0x717), 0x10
    out.field(xrqc + 0x00, 11, 8, 1)                       # tag matching
    out.field(xrqc + 0x04, 23, 0, 0xffffff)
    out.field(xrqc + 0x08, 23, 0, q['cq'])
    out.field(xrqc + 0x20, 31, 28, 1)                      # a list of one tag
    return work_queue(out, xrqc + 0x80, q)


def create_rmp(q):
    out, rmpc = command(0x110, 0x90c), 0x20
    out.field(rmpc + 0x00, 23, 20, 1)                      # ready
    return work_queue(out, rmpc + 0x30, q)


QPC, PATH = 0x18, 0x18 + 0x18


def create_qp(p):
    out = command(0x110, 0x500)
    out.field(QPC + 0x00, 12, 11, 3)                       # migrated; service RC is 0
    out.field(QPC + 0x04, 23, 0, p['pd'])
    out.field(QPC + 0x08, 14, 11, p['log_sends'])
    out.field(QPC + 0x08, 7, 6, 1)                         # the device's default clock
    out.field(QPC + 0x0c, 23, 0, p['uar'])
    out.field(QPC + 0x10, 23, 0, 0xffffff)
    out.field(QPC + 0x7c, 23, 0, p['cq'])
    out.field(QPC + 0x9c, 23, 0, p['cq'])
    out.address(QPC + 0xa0, p['counter_at'])
    out.field(QPC + 0xac, 26, 24, 1)                       # a shared queue
    out.field(QPC + 0xac, 23, 0, p['queue'])
    out.field(QPC + 0xd0, 28, 28, 1)
    out.field(QPC + 0xe4, 31, 0, p['counter_umem'])
    out.address(0x100, p['sends_at'])
    out.field(0x108, 31, 0, p['sends_umem'])
    out.field(0x10c, 31, 31, 1)
    return out


def modify(opcode, qp):
    return command(0x110, opcode).field(0x08, 23, 0, qp)


def may_read(out):
    return out.field(QPC + 0x90, 15, 15, 1)                # and not write: bit 14


def init(qp, port):
    out = modify(0x502, qp)
    out.field(QPC + 0x00, 12, 11, 3)
    out.field(PATH + 0x24, 23, 16, port)
    return may_read(out)


def rtr(qp, p):
    out = modify(0x503, qp)
    out.field(0x10, 31, 0, 1 << 1 | 1 << 3)
    out.field(QPC + 0x08, 31, 29, p['mtu'])
    out.field(QPC + 0x08, 28, 24, 30)
    out.field(QPC + 0x14, 23, 0, p['qp'])
    out.field(QPC + 0x90, 23, 21, p['log_reads'])
    out.field(QPC + 0x94, 28, 24, p['rnr_timer'])
    out.field(QPC + 0x94, 23, 0, p['psn'])
    out.field(PATH + 0x24, 23, 16, p['port'])
    if p.get('gid'):
        out.raw(PATH + 0x10, p['gid'])
        out.field(PATH + 0x08, 23, 16, p['gid_index'])
        out.field(PATH + 0x08, 7, 0, p['hop_limit'])
    if p.get('mac'):
        out.field(PATH + 0x24, 15, 0, int.from_bytes(p['mac'][:2], 'big'))
        out.raw(PATH + 0x28, p['mac'][2:])
        out.field(PATH + 0x20, 15, 0, p['udp_port'])
    else:
        out.field(PATH + 0x04, 15, 0, p['lid'])
    return may_read(out)


def rts(qp, s):
    out = modify(0x504, qp)
    out.field(QPC + 0x70, 18, 16, s['retries'])
    out.field(QPC + 0x70, 15, 13, s['rnr_retries'])
    out.field(QPC + 0x78, 23, 0, s['psn'])
    out.field(PATH + 0x08, 31, 27, s['ack_timeout'])
    return out


def element(following, count=0, key=0, address=0):
    out = Bytes(32).field(0x00, 15, 0, following)
    out.field(0x10, 31, 0, count).field(0x14, 31, 0, key)
    return out.address(0x18, address)


def answer(status, syndrome, number):
    return Bytes(16).field(0, 31, 24, status).field(4, 31, 0, syndrome).field(8, 23, 0, number)


def capabilities(striding, few, tags, log_list, log_xrq, log_rmp):
    """The first 0x140 bytes of the answer; the rest are zeros."""
    out, cap = Bytes(0x140), 0x10
    out.field(cap + 0x40, 26, 26, striding)
    out.field(cap + 0x70, 28, 24, log_rmp)
    out.field(cap + 0x74, 31, 31, few)
    out.field(cap + 0xbc, 15, 15, tags)
    out.field(cap + 0xbc, 12, 8, log_list)
    out.field(cap + 0xbc, 4, 0, log_xrq)
    return out


# mlx5_test.c has the same numbers.
QUEUE = dict(pd=0x123456, umem=0x0a0b0c0d, counter_umem=0x11223344, counter_at=0x8877665544332210,
             cq=0xabcdef, log_elements=6, log_strides=16, log_stride_bytes=6)
SMALL = dict(pd=1, umem=2, counter_umem=2, counter_at=0x8000, cq=3, log_elements=15, log_strides=12,
             log_stride_bytes=7)
PAIR = dict(pd=0x654321, uar=0x13579b, cq=0xfedcba, queue=0x0f1e2d, sends_at=0x0102030405060708,
            sends_umem=0x55667788, counter_umem=0x99aabbcc, counter_at=0x0807060504030200,
            log_sends=6)
GID = bytes.fromhex('00000000000000000000ffff0a010102')
ETHERNET = dict(mtu=3, qp=0x00a1b2, psn=0xfffffe, log_reads=4, rnr_timer=4, port=1, gid=GID,
                gid_index=3, hop_limit=64, mac=bytes.fromhex('02420a0b0c0d'), udp_port=0xc000)
INFINIBAND = dict(mtu=5, qp=0xffffff, psn=1, log_reads=7, rnr_timer=31, port=2, lid=0xbeef)
SENDING = dict(psn=0x765432, ack_timeout=16, retries=7, rnr_retries=6)

VECTORS = [
    ('query', command(16, 0x100).field(4, 15, 0, 1)),
    ('create_xrq', create_xrq(QUEUE)),
    ('create_xrq_small', create_xrq(SMALL)),
    ('create_rmp', create_rmp(QUEUE)),
    ('create_qp', create_qp(PAIR)),
    ('init', init(0x012345, 2)),
    ('rtr_ethernet', rtr(0x012345, ETHERNET)),
    ('rtr_infiniband', rtr(0x012345, INFINIBAND)),
    ('rts', rts(0xfedcba, SENDING)),
    ('error', command(16, 0x507).field(8, 23, 0, 0xabcdef)),
    ('element_linked', element(0x0102)),
    ('element_last', element(0)),
    ('element_set', element(0x0102, 4 << 20, 0xcafe0123, 0x00007f0123400000)),
    ('counter', Bytes(4).field(0, 15, 0, 0xfe01)),
    ('answer_number', answer(0, 0, 0xa1b2c3)),
    ('answer_refused', answer(3, 0x00bada11, 0xffffff)),
    ('capabilities_all', capabilities(1, 1, 1, 31, 30, 29)),
    ('capabilities_some', capabilities(1, 0, 0, 0, 0, 21)),
    ('capabilities_none', capabilities(0, 0, 0, 0, 0, 0)),
]


def header():
    out = ['/* Printed by mlx5_golden.py. */',
           '#ifndef FABRIC_MLX5_GOLDEN_H', '#define FABRIC_MLX5_GOLDEN_H', '', '#include <stdint.h>']
    for name, vector in VECTORS:
        data = bytes(vector.data)
        out += ['', 'static const uint8_t golden_%s[%d] = {' % (name, len(data))]
        out += ['    ' + ' '.join('0x%02x,' % b for b in data[i:i + 16])
                for i in range(0, len(data), 16)]
        out.append('};')
    return '\n'.join(out + ['', '#endif', ''])


if __name__ == '__main__':
    print(header(), end='')
