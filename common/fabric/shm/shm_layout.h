/* shm_layout.h - the memory that processes of one host share, word by word: doorbells, message
 * rings, the control block of a landing zone. Layout is the point; a change of it raises
 * VERSION_SHM_HIGHEST. Everything in here may be written by a faulty peer: whoever reads a word
 * checks it.
 */
#ifndef FABRIC_SHM_LAYOUT_H
#define FABRIC_SHM_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/fabric/greeting.h"

enum {
    SHM_LINE = 64,
    SHM_PAGE = 4096,
    SHM_MAX_CONNS = 4096,
    SHM_RING_BYTES = 256 << 10, /* of one direction of a connection */

    ZONE_STRIDES = FABRIC_SEGMENT_BYTES / FABRIC_STRIDE, /* 2^16: offsets need 17 bits */
    ZONE_CLAIMS = 32768,                                 /* of one segment */
};

/* --- doorbell: one for an endpoint, shared with each of its peers --- */

/* A peer that has something for connection s of this endpoint sets bit s % 64 of ready[s / 64],
 * then bit s / 64 of `summary`; if `sleeping` is not 0 it then rings (shm_connect.c, 5). */
struct shm_doorbell {
    _Alignas(SHM_LINE) _Atomic uint64_t summary;
    _Alignas(SHM_LINE) _Atomic uint32_t sleeping; /* number of the present sleep, 0: awake */
    _Alignas(SHM_LINE) _Atomic uint64_t ready[SHM_MAX_CONNS / 64];
};

/* --- channel: one for a connection --- */

/* A record starts at a multiple of 8 with one word, {u32 bytes of payload, u32 enum record_kind},
 * and is padded to 8. It never crosses the ring's end. */
enum record_kind {
    RECORD_WHOLE = 1, /* a message */
    RECORD_PAD = 2,   /* nothing, up to the ring's end */
    RECORD_FIRST = 3, /* a large message's u64 length and first bytes */
    RECORD_MORE = 4,  /* and the bytes after those */
};

/* Positions count bytes since the connection began and never wrap. */
struct shm_ring {
    _Alignas(SHM_LINE) _Atomic uint64_t tail;      /* written by the sender */
    _Alignas(SHM_LINE) _Atomic uint64_t head;      /* written by the receiver */
    _Alignas(SHM_LINE) _Atomic uint32_t want_room; /* set by a sender without room */
};

struct shm_channel {
    struct shm_ring ring[2]; /* 0: from the connector, 1: to it */
    _Alignas(SHM_PAGE) uint8_t data[2][SHM_RING_BYTES];
};

/* --- landing zone --- */

struct zone_sender {
    _Alignas(SHM_LINE) _Atomic uint64_t intent; /* segment + 1 that it may be storing in; 0: none */
    _Atomic uint32_t want;    /* it met a dry zone: ring its doorbell after the next post */
    _Atomic uint32_t revoked; /* set by the owner: claim nothing more, report nothing more */
};

/* Segment number n lives in slot n % depth. A word of an earlier generation counts as not written
 * yet, so nothing is cleared when a slot takes its next segment. */
struct zone_slot {
    _Alignas(SHM_LINE) _Atomic uint64_t offset;              /* of the segment in the owner's PM */
    _Alignas(SHM_LINE) _Atomic uint64_t closed;              /* (n + 1) << 16 | claims made in it */
    _Alignas(SHM_LINE) _Atomic uint64_t claims[ZONE_CLAIMS]; /* see claim_pack */
};

struct zone_control {
    _Alignas(SHM_LINE) _Atomic uint64_t position; /* never goes back; see position_pack */
    _Alignas(SHM_LINE) _Atomic uint64_t posted;   /* segments ever posted */
    _Alignas(SHM_LINE) _Atomic uint32_t wanted;   /* some sender's `want` is set */
    struct zone_sender senders[FABRIC_MAX_ZONE_SENDERS];
    _Alignas(SHM_PAGE) struct zone_slot slots[];
};

static inline uint64_t zone_control_bytes(uint32_t depth)
{
    return sizeof(struct zone_control) + depth * sizeof(struct zone_slot);
}

/* The position: segment number (31 bits), next claim (16 bits), next stride (17 bits). */
enum { POSITION_FULL = (1 << 17) - 1 }; /* in place of the stride: the segment takes no more */

static inline uint64_t position_pack(uint64_t segment, uint32_t claim, uint32_t stride)
{
    return segment << 33 | (uint64_t)claim << 17 | stride;
}

static inline uint64_t position_segment(uint64_t position)
{
    return position >> 33;
}

static inline uint32_t position_claim(uint64_t position)
{
    return (uint32_t)(position >> 17) & 0xffff;
}

static inline uint32_t position_stride(uint64_t position)
{
    return (uint32_t)position & POSITION_FULL;
}

enum claim_state { CLAIM_EMPTY = 0, CLAIM_DONE = 1, CLAIM_VOID = 2 };

/* Most of one claim: others wait for its copy at the seal. */
enum { CLAIM_STRIDES = ZONE_STRIDES / 4 };

/* A claim's word: its first stride (16 bits), its strides less 1 (14 bits), segment number + 1 (32 bits), state. Only of
 * a claim that is DONE somebody knows where it lies: what is between two of these is void. */
static inline uint64_t claim_pack(uint64_t segment, enum claim_state state)
{
    return (segment + 1) << 2 | (uint64_t)state;
}

static inline uint64_t claim_pack_done(uint64_t segment, uint32_t stride, uint32_t strides)
{
    return (uint64_t)stride << 48 | (uint64_t)(strides - 1) << 34 | claim_pack(segment, CLAIM_DONE);
}

static inline uint64_t claim_generation(uint64_t word)
{
    return (word >> 2) & UINT32_MAX;
}

static inline enum claim_state claim_state(uint64_t word)
{
    return (enum claim_state)(word & 3);
}

static inline uint32_t claim_begin(uint64_t word)
{
    return (uint32_t)(word >> 48);
}

static inline uint32_t claim_end(uint64_t word)
{
    return claim_begin(word) + ((uint32_t)(word >> 34) & (CLAIM_STRIDES - 1)) + 1;
}

static inline uint64_t closed_pack(uint64_t segment, uint32_t claims)
{
    return (segment + 1) << 16 | claims;
}

static inline uint64_t closed_generation(uint64_t word)
{
    return word >> 16;
}

static inline uint32_t closed_claims(uint64_t word)
{
    return (uint32_t)word & 0xffff;
}

/* --- handshake, over the SOCK_SEQPACKET socket --- */

#define SHM_MAGIC UINT64_C(0x6d68732d6e776f72) /* "rown-shm" */

/* Connector to acceptor. Descriptors: doorbell, eventfd (not used from VERSION_SHM_RING on), channel. */
struct shm_hello {
    uint64_t magic;
    struct greeting_layouts layouts;
    uint32_t ring_bytes;
    uint32_t slot; /* the connector's: the bit the acceptor shall set */
    struct fabric_identity identity;
    uint64_t reserved[4];
};

/* Acceptor to connector. Descriptors: doorbell, eventfd (from VERSION_SHM_RING on the doorbell again); with a zone also its control block and its
 * PM; then, in layouts from VERSION_SHM_TAP on and if that PM has one, the ring of its tap. None when `error` is not 0. */
struct shm_welcome {
    uint64_t magic;
    struct greeting_layouts layouts;
    int32_t error; /* 0 or ROWAN_E* */
    uint32_t slot; /* the acceptor's */
    struct fabric_identity identity;
    uint32_t has_zone;
    uint32_t zone_depth;
    uint32_t zone_sender;
    uint32_t durability; /* enum pm_durability */
    uint64_t pm_offset;  /* in the file */
    uint64_t pm_bytes;
    uint64_t tap_bytes; /* of the ring; 0: there is none */
    uint64_t reserved[3];
};

enum { HELLO_FDS = 3, WELCOME_FDS = 2, WELCOME_ZONE_FDS = 4, WELCOME_TAP_FDS = 5, SHM_MAX_FDS = 5 };

static_assert(sizeof(struct shm_doorbell) == 128 + SHM_MAX_CONNS / 8, "shared layout");
static_assert(sizeof(struct shm_ring) == 192, "shared layout");
static_assert(offsetof(struct shm_channel, data) == SHM_PAGE, "shared layout");
static_assert(offsetof(struct zone_control, senders) == 192, "shared layout");
static_assert(sizeof(struct zone_sender) == SHM_LINE, "shared layout");
static_assert(sizeof(struct zone_slot) == 128 + 8 * ZONE_CLAIMS, "shared layout");
static_assert(offsetof(struct zone_control, slots) == sizeof(struct zone_control), "shared layout");
static_assert(sizeof(struct shm_hello) == 96 && sizeof(struct shm_welcome) == 128, "wire layout");
static_assert((int)ZONE_STRIDES < (int)POSITION_FULL && ZONE_CLAIMS <= 0xffff,
              "fields of the position");
static_assert(ZONE_STRIDES <= 1 << 16 && CLAIM_STRIDES <= 1 << 14, "fields of a claim's word");

#endif
