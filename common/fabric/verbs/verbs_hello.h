/* verbs_hello.h - what two processes tell each other before they can talk over RDMA. It travels as
 * messages of the tcp connection that sets the verbs connection up, little-endian:
 *
 *   active                          passive
 *   hello (where I am)      ->      makes its queue pairs ready
 *                           <-      hello (where I am), or why not; then the active one closes
 *   makes them ready; ready ->      ACCEPTED
 *   CONNECTED
 *
 * Everything in it comes from a peer and is checked here or where it is used.
 */
#ifndef FABRIC_VERBS_HELLO_H
#define FABRIC_VERBS_HELLO_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/version.h"

#define VERBS_HELLO_MAGIC UINT32_C(0x4f4c4856) /* "VHLO" */

enum {
    VERBS_LAYOUT = VERSION_VERBS_HIGHEST,
    VERBS_HELLO_BYTES = 128,
    VERBS_LEAST_TIMEOUT = 10,
    VERBS_MOST_TIMEOUT = 18,
};

enum verbs_hello_kind { VERBS_HELLO = 1, VERBS_READY = 2, VERBS_REFUSAL = 3 };

/* Of the RC queue pair; all 0: there is none. */
struct verbs_rc_hello {
    uint32_t qp_number;    /* 24 bits */
    uint32_t write_number; /* of the one for bulk writes, 24 bits */
    uint32_t psn;          /* first packet sequence number that we send, 24 bits */
    bool has_zone;         /* you may send into my landing zone */
    bool whole_segments; /* it is a multi-packet queue: verbs_mlx5_may_land holds for your blocks */
    uint8_t timeout;     /* exponent of how long you try (verbs_rc.h), 10 to 18; without zone 0 */
    uint32_t block_limit;   /* bytes that one send into it may have */
    uint32_t reads;         /* RDMA reads of yours that I answer at a time, 1 to 255 */
    uint64_t fence_address; /* 1 byte to be read behind what must be durable */
    uint32_t fence_key;
};

/* Only VERBS_HELLO has more than a kind, and VERBS_REFUSAL its error; all else is 0. */
struct verbs_hello {
    enum verbs_hello_kind kind;
    int32_t error; /* a ROWAN_E*, negative */
    uint8_t gid[16];
    uint16_t lid;       /* InfiniBand; 0 on Ethernet */
    uint32_t mtu;       /* bytes of payload in a packet, 256 to 4096, a power of two */
    uint32_t ud_number; /* queue pair for datagrams, 24 bits */
    uint32_t ud_key;
    uint32_t connection; /* our number for it, and token: in each datagram to us */
    uint32_t token;
    struct verbs_rc_hello rc;
};

void verbs_hello_encode(const struct verbs_hello *hello, uint8_t out[VERBS_HELLO_BYTES]);

/* Errors: ROWAN_EFORMAT; `out` untouched. */
int verbs_hello_decode(const void *bytes, size_t count, struct verbs_hello *out);

#endif
