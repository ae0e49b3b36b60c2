/* wire.h - the messages between the sending and the receiving side, over the fabric itself. Both are
 * little-endian machines of one kind; `magic` names the version. The `role` of a connection's handshake
 * says what the connection is for.
 */
#ifndef FABRIC_BENCH_WIRE_H
#define FABRIC_BENCH_WIRE_H

#include <stdint.h>

#include "common/fabric/fabric.h"
#include "tools/fabric-bench/cpu_time.h"

#define WIRE_MAGIC UINT64_C(0x31686e4266776f52)

enum wire_role {
    WIRE_CONTROL = 1, /* questions about the receiver */
    WIRE_BLOCKS,      /* Rowan sends and bulk writes; its only message asks for a grant */
    WIRE_ECHO,        /* every message is sent back */
};

struct wire_ask {
    uint64_t magic;
    uint64_t
        value; /* control: a number, which the answer carries too; blocks: bytes to be granted */
};

/* Figures of the receiver's thread, counted since it started. */
struct wire_facts {
    uint64_t magic;
    uint64_t number;
    struct cpu_time cpu;
    uint64_t zeroing_ns; /* part of it: for zeroing sealed segments */
    uint64_t segments;   /* sealed */
    uint64_t sleeps;
    uint64_t busy_polls;
    uint64_t users;  /* connections but those for control, and live grants */
    char memory[16]; /* backend of its PM */
    char durability[16];
};

struct wire_grant {
    uint64_t magic;
    int64_t error; /* ROWAN_E*, 0: `grant` may be used */
    struct fabric_grant grant;
};

_Static_assert(sizeof(struct wire_ask) == 16, "layout");
_Static_assert(sizeof(struct wire_facts) == 112, "layout");
_Static_assert(sizeof(struct wire_grant) == 48, "layout");

#endif
