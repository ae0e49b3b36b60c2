/* message.h - the data-plane messages: fixed little-endian structs in front of key and value.
 *
 * One fabric message is one request or one reply. The layouts are the wire format: static asserts
 * check their offsets, golden bytes in the tests their content.
 *
 * Lengths are checked by message_parse_*, which every receiver calls first.
 */
#ifndef PROTO_MESSAGE_H
#define PROTO_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MESSAGE_LAYOUT = 1,        /* the highest that this version reads and writes */
    MESSAGE_LAYOUT_LOWEST = 1, /* ... reads */
    MESSAGE_MAX_KEY_BYTES = 1024,
    MESSAGE_MAX_VALUE_BYTES = 1 << 20,
    MESSAGE_MAX_SPAN = 1 << 17, /* operation - lowest_unanswered is less: it bounds what a server
                                   has to remember of one client */
};

enum message_type {
    MESSAGE_GET = 1,
    MESSAGE_PUT = 2,
    MESSAGE_PUT_IF = 3, /* put if the object's version is `expected` (0: if there is none) */
    MESSAGE_DELETE = 4,
    MESSAGE_REPLY = 16,   /* to any of the above */
    MESSAGE_CONTROL = 32, /* protobuf: see control.proto */
};

/* 40 bytes, then key, then value. */
struct message_request {
    uint8_t type;   /* enum message_type */
    uint8_t layout; /* the highest that both ends speak: fabric_conn's `layout` */
    uint16_t shard;
    uint32_t epoch;
    uint32_t client_id;         /* as in the connection's handshake */
    uint32_t operation;         /* of the client; rises by one, from 1; never UINT32_MAX */
    uint32_t lowest_unanswered; /* operation of the client; all lower ones have their answer */
    uint16_t key_bytes;
    uint16_t zero;
    uint32_t value_bytes;
    uint32_t tag;      /* chosen by the client, returned in the reply */
    uint64_t expected; /* PUT_IF only, else 0 */
};

/* 32 bytes, then the value. */
struct message_reply {
    uint8_t type; /* MESSAGE_REPLY */
    uint8_t layout;
    int16_t status; /* 0 or a negative ROWAN_E* */
    uint32_t operation;
    uint32_t tag;
    uint32_t value_bytes;
    uint64_t version; /* of the object got or written; EVERSION: the one that is there */
    uint64_t term;    /* of the server's configuration: a higher one than ours says "fetch it" */
};

/* 8 bytes, then a serialised ControlMessage. */
struct message_control {
    uint8_t type; /* MESSAGE_CONTROL */
    uint8_t layout;
    uint16_t zero;
    uint32_t tag; /* of the request; a reply carries the request's */
};

_Static_assert(sizeof(struct message_request) == 40, "wire format");
_Static_assert(offsetof(struct message_request, key_bytes) == 20, "wire format");
_Static_assert(offsetof(struct message_request, expected) == 32, "wire format");
_Static_assert(sizeof(struct message_reply) == 32, "wire format");
_Static_assert(offsetof(struct message_reply, version) == 16, "wire format");
_Static_assert(sizeof(struct message_control) == 8, "wire format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "a big-endian host needs byte swaps here");

/* The type of a message of `bytes` bytes, or -1 for fewer than two bytes or a layout that is
 * not read here. */
int message_type(const void *message, size_t bytes);

/* The next three: true if the message is whole, of its kind, every length fits and every reserved
 * field is zero; then key, value or payload point into it: where its sender may still change it (shm), whoever judges them
 * copies them first. The header is copied out in any case, and what is judged is the copy. */
bool message_parse_request(const void *message, size_t bytes, struct message_request *request,
                           const uint8_t **key, const uint8_t **value);
bool message_parse_reply(const void *message, size_t bytes, struct message_reply *reply,
                         const uint8_t **value);
bool message_parse_control(const void *message, size_t bytes, struct message_control *control,
                           const uint8_t **payload, size_t *payload_bytes);

#endif
