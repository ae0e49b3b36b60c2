/* The table of a worker's writes. A bucket's chain is in order of arrival, so the writes of one key
 * stand in it in that order; two keys with one 64-bit hash only wait for each other needlessly. */
#include "server/worker/write_op.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/list.h"

int write_table_init(struct write_table *table)
{
    *table = (struct write_table){.ops = calloc(WRITE_OP_TABLE_SIZE, sizeof(struct write_op)),
                                  .keys = calloc(WRITE_OP_TABLE_SIZE, sizeof table->keys[0])};
    if (!table->ops || !table->keys) {
        write_table_fini(table);
        return ROWAN_ENOMEM;
    }
    for (uint32_t i = WRITE_OP_TABLE_SIZE; i-- > 0;) {
        table->ops[i].bucket.next = table->free;
        table->free = &table->ops[i];
    }
    return 0;
}

void write_table_fini(struct write_table *table)
{
    free(table->ops);
    free(table->keys);
    table->ops = NULL;
    table->keys = NULL;
}

static void link_client(struct write_op *op, struct client_link *client)
{
    op->client = client;
    LIST_APPEND(&client->writes, op, of_client);
    client->ops++;
}

void write_op_forget_client(struct write_op *op)
{
    struct client_link *client = op->client;
    if (!client)
        return;
    LIST_REMOVE(&client->writes, op, of_client);
    client->ops--;
    op->client = NULL;
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
    struct write_op *at = table->buckets[hash % WRITE_OP_BUCKETS].first;
    while (at && (at->hash != hash || at->client_id != client_id || at->operation != operation))
        at = at->bucket.next;
    return at;
}

struct write_op *write_op_open(struct write_table *table, uint64_t hash, struct client_link *client)
{
    struct write_op *op = table->free;
    if (!op)
        return NULL;
    table->free = op->bucket.next;
    /* What the states to come have, they set (write_op.h). */
    op->state = WRITE_OP_WAITING;
    op->hash = hash;
    link_client(op, client);
    LIST_APPEND(&table->buckets[hash % WRITE_OP_BUCKETS], op, bucket);
    table->used++;
    return op;
}

void write_op_close(struct write_table *table, struct write_op *op)
{
    ASSERT(op->state != WRITE_OP_FREE);
    write_op_forget_client(op);
    LIST_REMOVE(&table->buckets[op->hash % WRITE_OP_BUCKETS], op, bucket);
    op->state = WRITE_OP_FREE;
    op->bucket.next = table->free;
    table->free = op;
    table->used--;
}

bool write_op_may_start(const struct write_table *table, const struct write_op *op)
{
    const struct write_op *at = table->buckets[op->hash % WRITE_OP_BUCKETS].first;
    for (; at != op; at = at->bucket.next) {
        if (at->hash != op->hash)
            continue;
        if (at->state == WRITE_OP_WAITING || (op->conditional && at->state == WRITE_OP_IN_FLIGHT))
            return false;
    }
    return true;
}

struct write_op *write_op_next_waiting(const struct write_table *table, uint64_t hash)
{
    struct write_op *at = table->buckets[hash % WRITE_OP_BUCKETS].first;
    for (; at; at = at->bucket.next) {
        if (at->hash == hash && at->state == WRITE_OP_WAITING)
            return at;
    }
    return NULL;
}
