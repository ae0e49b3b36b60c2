/* The table of a worker's writes. A bucket's chain is in order of arrival, so the writes of one key
 * stand in it in that order; two keys with one 64-bit hash only wait for each other needlessly. */
#include "server/worker/write_op.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"

int write_table_init(struct write_table *table)
{
    *table = (struct write_table){.ops = calloc(WRITE_OP_TABLE_SIZE, sizeof(struct write_op))};
    if (!table->ops)
        return ROWAN_ENOMEM;
    for (uint32_t i = WRITE_OP_TABLE_SIZE; i-- > 0;) {
        table->ops[i].bucket_next = table->free;
        table->free = &table->ops[i];
    }
    return 0;
}

void write_table_fini(struct write_table *table)
{
    free(table->ops);
    table->ops = NULL;
}

static void link_client(struct write_op *op, struct client_link *client)
{
    op->client = client;
    op->client_next = client->first;
    if (client->first)
        client->first->client_previous = op;
    client->first = op;
    client->ops++;
}

void write_op_forget_client(struct write_op *op)
{
    struct client_link *client = op->client;
    if (!client)
        return;
    if (op->client_previous)
        op->client_previous->client_next = op->client_next;
    else
        client->first = op->client_next;
    if (op->client_next)
        op->client_next->client_previous = op->client_previous;
    client->ops--;
    op->client = NULL;
    op->client_next = op->client_previous = NULL;
}

void write_op_take_over(struct write_op *op, struct client_link *client, uint32_t tag)
{
    write_op_forget_client(op);
    link_client(op, client);
    op->tag = tag;
}

struct write_op *write_op_find(const struct write_table *table, uint64_t hash, uint32_t client_id,
                               uint32_t operation)
{
    struct write_op *at = table->first[hash % WRITE_OP_BUCKETS];
    while (at && (at->hash != hash || at->client_id != client_id || at->operation != operation))
        at = at->bucket_next;
    return at;
}

struct write_op *write_op_open(struct write_table *table, uint64_t hash, struct client_link *client)
{
    struct write_op *op = table->free;
    if (!op)
        return NULL;
    table->free = op->bucket_next;
    /* What the states to come have, they set (write_op.h). */
    op->state = WRITE_OP_WAITING;
    op->hash = hash;
    op->bucket_next = NULL;
    op->client_previous = NULL;
    link_client(op, client);
    uint32_t bucket = (uint32_t)(hash % WRITE_OP_BUCKETS);
    if (table->last[bucket])
        table->last[bucket]->bucket_next = op;
    else
        table->first[bucket] = op;
    table->last[bucket] = op;
    table->used++;
    return op;
}

void write_op_close(struct write_table *table, struct write_op *op)
{
    ASSERT(op->state != WRITE_OP_FREE);
    write_op_forget_client(op);
    uint32_t bucket = (uint32_t)(op->hash % WRITE_OP_BUCKETS);
    struct write_op *previous = NULL;
    for (struct write_op *at = table->first[bucket]; at != op; at = at->bucket_next) {
        ASSERT(at);
        previous = at;
    }
    if (previous)
        previous->bucket_next = op->bucket_next;
    else
        table->first[bucket] = op->bucket_next;
    if (table->last[bucket] == op)
        table->last[bucket] = previous;
    op->state = WRITE_OP_FREE;
    op->bucket_next = table->free;
    table->free = op;
    table->used--;
}

bool write_op_may_start(const struct write_table *table, const struct write_op *op)
{
    const struct write_op *at = table->first[op->hash % WRITE_OP_BUCKETS];
    for (; at != op; at = at->bucket_next) {
        if (at->hash != op->hash)
            continue;
        if (at->state == WRITE_OP_WAITING || (op->conditional && at->state == WRITE_OP_IN_FLIGHT))
            return false;
    }
    return true;
}

struct write_op *write_op_next_waiting(const struct write_table *table, uint64_t hash)
{
    for (struct write_op *at = table->first[hash % WRITE_OP_BUCKETS]; at; at = at->bucket_next) {
        if (at->hash == hash && at->state == WRITE_OP_WAITING)
            return at;
    }
    return NULL;
}
