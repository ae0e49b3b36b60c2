/* verbs_hello.h - what two processes tell each other before they can talk over RDMA. It travels as
 * messages of the tcp connection that sets the verbs connection up, little-endian:
 *
 *   active                          passive
 *   hello (where I am)      ->      makes its queue pair ready
 *                           <-      hello (where I am), or why not; then the active one closes
 *   makes it ready; ready   ->      ACCEPTED
 *   CONNECTED
 *
 * Everything in it comes from a peer and is checked here or where it is used.
 */
#ifndef FABRIC_VERBS_HELLO_H
#define FABRIC_VERBS_HELLO_H

#include "common/fabric/greeting.h"

#define VERBS_HELLO_MAGIC UINT64_C(0x314e415752425256) /* "VRBRWAN1" */

enum { VERBS_LEAST_TIMEOUT = 10, VERBS_MOST_TIMEOUT = 18 };

enum verbs_hello_kind { VERBS_HELLO = 1, VERBS_READY = 2, VERBS_REFUSAL = 3 };

/* What the peer may send into: nothing; a zone of slots; one of whole segments, for whose blocks
 * verbs_mlx5_may_land holds. */
enum verbs_zone_kind { VERBS_NO_ZONE, VERBS_ZONE_OF_SLOTS, VERBS_ZONE_OF_SEGMENTS };

/* Of the RC queue pair; all 0: there is none. */
struct verbs_rc_hello {
    uint64_t fence_address; /* 1 byte to be read behind what must be durable */
    uint32_t fence_key;
    uint32_t qp_number;   /* 24 bits */
    uint32_t psn;         /* first packet sequence number that we send, 24 bits */
    uint32_t zone;        /* enum verbs_zone_kind */
    uint32_t block_limit; /* bytes that one send into it may have */
    uint32_t reads;       /* RDMA reads of yours that I answer at a time, 1 to 255 */
    uint32_t timeout;     /* exponent of how long you try (verbs_rc.h), 10 to 18; without zone 0 */
    uint32_t zero;        /* no padding travels unchecked */
};

/* As it lies on the wire. Only VERBS_HELLO has more than the first four, and VERBS_REFUSAL an error; all else is 0. */
struct verbs_hello {
    uint64_t magic;
    struct greeting_layouts layouts;
    uint32_t kind;
    int32_t error; /* a ROWAN_E*, negative */
    uint8_t gid[16];
    uint32_t lid;       /* InfiniBand, 16 bits; 0 on Ethernet */
    uint32_t mtu;       /* bytes of payload in a packet, 256 to 4096, a power of two */
    uint32_t ud_number; /* queue pair for datagrams, 24 bits */
    uint32_t ud_key;
    uint32_t connection; /* our number for it, and token: in each datagram to us */
    uint32_t token;
    struct verbs_rc_hello rc;
    uint8_t zeros[24];
};

static_assert(sizeof(struct verbs_hello) == 128 && offsetof(struct verbs_hello, gid) == 24 &&
                  offsetof(struct verbs_hello, rc) == 64 && sizeof(struct verbs_rc_hello) == 40,
              "wire layout");

struct verbs_hello verbs_hello_make(enum verbs_hello_kind kind);

/* `layout`: the highest that both speak. Errors: ROWAN_EINCOMPATIBLE (there is none, whatever lies behind the layouts)
 * EFORMAT; outputs untouched. */
int verbs_hello_read(const void *bytes, size_t count, struct verbs_hello *out, uint32_t *layout);

#endif
