/* op.h - a session's operations: one table of `depth` slots, made once, and lists through it.
 *
 * A slot is taken by a post and given back when its completion was handed over. It holds the request as it goes
 * over the wire, the key right behind its head, so that sending again copies nothing together. Nothing here
 * allocates, but a slot that meets its first key of more than OP_INLINE_KEY_BYTES gets a buffer for
 * long keys and keeps it.
 */
#ifndef CLIENT_OP_H
#define CLIENT_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/rowan.h"
#include "proto/message.h"

enum { OP_INLINE_KEY_BYTES = 64, OP_MAX_DEPTH = 65536 };

enum op_state {
    OP_FREE,   /* in no list but the table's free one */
    OP_QUEUED, /* waits to be sent: in a link's queue, or in the session's `unrouted` */
    OP_PAUSED, /* a server said "later": in one of the session's pauses */
    OP_SENT,   /* its answer is awaited; in no queue */
    OP_DONE,   /* completed; the completion waits in the session's `done` */
};

struct worker_link;
struct op_list;

struct op_link {
    struct client_op *next, *prev;
};

struct client_op {
    enum op_state state;
    uint32_t index;      /* of the slot in the table */
    uint16_t generation; /* of the slot's use, so that a late answer meets nobody */
    uint16_t slot;       /* of the key */
    uint8_t pauses;      /* how often in a row a server said "later" */
    bool unknown;        /* a connection broke on which it was sent: it may have taken effect */
    bool reserved;       /* in the slot that asynchronous posts cannot take */
    bool urgent;         /* somebody waits for it: it is not held back */
    struct message_request
        *request;             /* the key lies behind it; shard and epoch are as last routed */
    struct worker_link *link; /* as last queued or sent; NULL while unrouted */
    struct op_list *list;     /* the queue it is in; NULL: in none */
    struct op_link queued;    /* in `list`; `next` also in the free list */
    struct op_link aged;      /* in the age list: every operation that is not completed */
    uint64_t deadline_ns;     /* 0: not polled since it was posted */
    uint64_t resume_ns;       /* PAUSED: when to go on */
    const void *value;        /* put: of the caller */
    void *room;               /* get: of the caller */
    size_t room_bytes;        /* get */
    rowan_callback callback;
    struct rowan_completion completion;
    struct message_request
        *long_request; /* with room for the longest key; NULL until first needed */
    struct message_request short_request;
    uint8_t short_key[OP_INLINE_KEY_BYTES];
};

_Static_assert(offsetof(struct client_op, short_key) ==
                   offsetof(struct client_op, short_request) + sizeof(struct message_request),
               "the key lies behind the request's head");

/* --- queues: an operation is in one at most --- */

struct op_list {
    struct client_op *first, *last;
    uint32_t count;
};

void op_list_push(struct op_list *list, struct client_op *op);
struct client_op *op_list_pop(struct op_list *list); /* NULL when empty */
void op_list_remove(struct client_op *op);           /* from the list it is in, if any */

/* --- the table --- */

struct op_table {
    struct client_op *ops; /* depth, and behind them the reserved one */
    uint32_t depth;
    struct client_op *free;
    struct op_list age; /* what is outstanding, in the order of posting */
};

/* Errors: ROWAN_ENOMEM. */
int op_table_init(struct op_table *table, uint32_t depth);
void op_table_fini(struct op_table *table);

/* A slot holding a copy of the key, at the young end of the age list, QUEUED; in the request's head only tag and
 * key_bytes are set. `reserved` may take the slot beyond `depth`, of which there is one, for an operation that the
 * caller waits for.
 * Errors: ROWAN_EAGAIN, ROWAN_ENOMEM (a long key). */
int op_table_take(struct op_table *table, const void *key, size_t key_bytes, bool reserved,
                  struct client_op **out);

/* The operation leaves the age list: it is completed, and no answer to it is expected any more. */
void op_table_retire(struct op_table *table, struct client_op *op);

/* The slot is free again. The operation was retired and is in no list. */
void op_table_give(struct op_table *table, struct client_op *op);

/* From the request's tag back to the operation; NULL if the slot was given to another since. */
struct client_op *op_table_find(struct op_table *table, uint32_t tag);

#endif
