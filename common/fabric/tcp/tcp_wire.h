/* tcp_wire.h - the bytes that the tcp backend puts on the wire, all little-endian. A connection is a
 * socket for messages and, where the peer has a landing zone for it, a second one for blocks:
 *
 *   messages  hello ->, <- welcome; then both ways: a head of 16 bytes, the message, zeros to 8 bytes
 *   blocks    hello ->, <- welcome; then frames -> (a head, the lengths of up to 512 blocks, zeros to
 *             8 bytes, the blocks), and <- counts of the blocks that have landed since the beginning
 */
#ifndef FABRIC_TCP_WIRE_H
#define FABRIC_TCP_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "common/auth/mac.h"
#include "common/fabric/greeting.h"

#define TCP_MAGIC UINT64_C(0x314e41574f524354) /* "TCROWAN1" */

enum tcp_greeting_kind { GREETING_MESSAGES = 1, GREETING_BLOCKS = 2, GREETING_WELCOME = 3 };

/* The hello and the welcome. */
struct tcp_greeting {
    uint64_t magic;
    struct greeting_layouts layouts;
    uint32_t kind;
    int32_t error; /* welcome: 0, or the ROWAN_E* that the peer is refused with */
    uint64_t
        token; /* names the connection that a socket for blocks belongs to: given by the welcome,
                       repeated in that socket's hello */
    struct fabric_identity identity;
    uint32_t zone; /* welcome: 1: a second socket for blocks is expected */
    uint32_t zero;
    /* On a socket for blocks: that the sender has the cluster's secret: HMAC-SHA-256 of a struct tcp_proof with a key made of the
     * secret for this (mac_subkey); up to layout 2 of the greeting alone, with the secret itself. So the token makes each hello
     * another one, and the nonce, chosen by the hello and repeated by the welcome, each welcome. */
    uint64_t nonce;
    uint8_t mac[MAC_BYTES];
    uint64_t reserved;
};

static_assert(sizeof(struct tcp_greeting) == 128, "a greeting is 128 bytes");
static_assert(offsetof(struct tcp_greeting, token) == 24, "golden offset");
static_assert(offsetof(struct tcp_greeting, identity) == 32, "golden offset");
static_assert(offsetof(struct tcp_greeting, mac) == 88, "golden offset");

/* What a proof is made over: the greeting, with zeros for its `mac`, and whom it was meant for. It holds its sender's layouts, so
 * between two that know this one nobody can have them agree on an older one. */
struct tcp_proof {
    struct tcp_greeting greeting;
    struct fabric_acceptor acceptor;
};

static_assert(sizeof(struct tcp_proof) == 160, "a proof is over 160 bytes");

#define TCP_PROOF_LABEL "tcp proof"

/* And by the present secret, on a connection that was made by a former one: whose it is, who dialled, and whom. */
struct tcp_proof_again {
    uint64_t token;
    uint64_t incarnation;
    uint32_t id, role;
    struct fabric_acceptor acceptor;
};

static_assert(sizeof(struct tcp_proof_again) == 56, "without gaps");

#define TCP_AGAIN_LABEL "tcp proof again"

#define TCP_MESSAGE_MAGIC UINT32_C(0x47534d52) /* "RMSG" */

struct tcp_message_head {
    uint32_t magic;
    uint32_t bytes;  /* of the message, without padding */
    uint64_t number; /* 0, 1, ... in this direction of the connection */
};

static_assert(sizeof(struct tcp_message_head) == 16, "a message's head is 16 bytes");

#define TCP_FRAME_MAGIC UINT32_C(0x4d524652) /* "RFRM" */

enum { TCP_FRAME_BLOCKS = 512 };

struct tcp_frame_head {
    uint32_t magic;
    uint16_t blocks; /* 1 to TCP_FRAME_BLOCKS */
    uint16_t zero;
};

static_assert(sizeof(struct tcp_frame_head) == 8, "a frame's head is 8 bytes");

/* The largest head of a frame: with one 16-bit length, in strides, for each block. */
enum { TCP_FRAME_HEAD_BYTES = 8 + 2 * TCP_FRAME_BLOCKS };

static inline uint32_t pad_to_8(uint32_t bytes)
{
    return (bytes + 7) & ~UINT32_C(7);
}

static inline uint32_t frame_head_bytes(uint32_t blocks)
{
    return 8 + pad_to_8(2 * blocks);
}

static inline uint32_t message_wire_bytes(uint32_t bytes)
{
    return (uint32_t)sizeof(struct tcp_message_head) + pad_to_8(bytes);
}

#endif
