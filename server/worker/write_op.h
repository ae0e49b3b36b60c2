/* op.h - the table of a worker's writes: those in flight, those that wait behind another write of
 * their key, and those whose reply found no room.
 *
 * Fixed size, nothing is allocated per operation. One thread.
 */
#ifndef SERVER_WRITE_OP_H
#define SERVER_WRITE_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/message.h"
#include "server/shard/shard.h"

enum { WRITE_OP_TABLE_SIZE = 4096, WRITE_OP_BUCKETS = 4096 };

enum write_op_state {
    WRITE_OP_FREE,
    WRITE_OP_WAITING,   /* behind another write of its key; holds its message */
    WRITE_OP_IN_FLIGHT, /* has a version; its entry is on the way to the backups */
    WRITE_OP_REPLYING,  /* done; the client has no room for the reply yet */
};

struct client_link;

struct write_link {
    struct write_op *next, *prev;
};

struct write_op {
    enum write_op_state state;
    uint8_t trace;            /* worker_trace.c; 0: it is not followed */
    bool conditional;         /* judged when no write of its key is in flight: PUT_IF and DELETE */
    uint8_t type;             /* of its message */
    uint64_t begun_ns;        /* of the poll that took it */
    uint64_t hash;            /* of the key */
    struct index_hint hint;   /* of the key */
    struct write_link bucket; /* same bucket, in order of arrival */

    /* Who asked. `client` is NULL when its connection has gone. */
    struct client_link *client;
    struct write_link of_client;
    uint32_t client_id, operation; /* client_id 0: no retry of it is told from a new write */
    uint32_t tag;

    /* WRITE_OP_WAITING: the request, held in the fabric's buffer; its key is write_op_key's. */
    uint64_t message;
    struct message_request request;
    const uint8_t *value;

    /* WRITE_OP_IN_FLIGHT */
    struct shard_state *shard;
    struct write_link of_shard; /* next higher version of the shard */
    uint64_t version;
    uint64_t offset; /* of the entry in the map */
    uint64_t batch;  /* see worker_state.h */
    uint32_t blocks;
    uint32_t bytes;
    uint16_t key_bytes;

    /* WRITE_OP_REPLYING */
    int status;
};

/* What a worker's connection leads to; the first member of what `fabric_conn.user` points to. */
enum link_kind { LINK_CLIENT, LINK_PEER };

/* A client's connection to the worker. */
struct client_link {
    enum link_kind kind;
    struct fabric_conn *conn; /* NULL: it has gone */
    uint32_t id;              /* of the client, by the handshake; 0: none */
    bool entered; /* it is the client's connection in `known`; nothing else uses the id */
    struct write_list writes; /* its ops, oldest first */
    uint32_t ops;
    uint32_t unread;         /* of these, those whose answers it does not take: as of shed_one */
    uint32_t held;           /* requests whose answers found no room */
    uint64_t blocked_batch;  /* the worker's poll in which one last did */
    uint64_t told_batch;     /* the last in which an answer that tells of data was put together */
    uint64_t tried_round;    /* of held requests, in which its oldest one found no room */
    bool closing;            /* marked for close: worker_client_mark */
    bool limited;            /* not everything is allowed: worker_client_allow says what */
    const struct user *user; /* who has logged in, of the worker's `users`; NULL: nobody */
    struct login *login;     /* NULL: nobody has tried to */
    struct client_link *closing_next;
    struct {
        struct client_link *next, *prev;
    } all; /* clients of the worker */
};

struct write_table {
    struct write_op *ops;
    uint8_t (*keys)[MESSAGE_MAX_KEY_BYTES]; /* of those that wait; of all others never touched */
    struct write_op *free;                  /* linked by `bucket` */
    struct write_list buckets[WRITE_OP_BUCKETS];
    uint32_t used;
};

/* Errors: ROWAN_ENOMEM. */
int write_table_init(struct write_table *table);
void write_table_fini(struct write_table *table);

/* write_op_open: a record for a write of the key with this hash, behind all earlier ones; its state is
 * WRITE_OP_WAITING. NULL: the table is full. */
struct write_op *write_op_open(struct write_table *table, uint64_t hash,
                               struct client_link *client);
void write_op_close(struct write_table *table, struct write_op *op);

/* Where the key of one that waits lies: what its client changes meanwhile does not count (worker.c, W17). */
static inline uint8_t *write_op_key(const struct write_table *table, const struct write_op *op)
{
    return table->keys[op - table->ops];
}

/* write_op_forget_client: the record stays, nobody will be answered. */
void write_op_forget_client(struct write_op *op);

/* write_op_find: the write of this key, client and operation that is in the table, or NULL. */
struct write_op *write_op_find(const struct write_table *table, uint64_t hash, uint32_t client_id,
                               uint32_t operation);

/* write_op_take_over: the answer goes to `client` instead of who asked before, if anybody still waits. */
void write_op_take_over(struct write_op *op, struct client_link *client, uint32_t tag);

/* write_op_may_start: may this write be judged and sent now? A conditional one only if no other write of
 * its key is in flight, and none at all while an earlier one waits. */
bool write_op_may_start(const struct write_table *table, const struct write_op *op);

/* Is there any write in the table whose key may have this hash? */
static inline bool write_op_has_others(const struct write_table *table, uint64_t hash)
{
    return table->buckets[hash % WRITE_OP_BUCKETS].first != NULL;
}

/* write_op_next_waiting: the first waiting write of the key, or NULL. */
struct write_op *write_op_next_waiting(const struct write_table *table, uint64_t hash);

#endif
