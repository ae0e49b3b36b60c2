/* The table of a session's operations. A tag is the slot's index and the generation of its use.
 *
 * O1 An operation that is not completed is in the age list, at the place of its posting.
 * O2 A free slot is in no list; a slot's generation rises with each use.
 */
#include "client/op.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/list.h"

enum { TAG_INDEX_BITS = 17, TAG_GENERATION_MASK = (1 << (32 - TAG_INDEX_BITS)) - 1 };

_Static_assert(OP_MAX_DEPTH < 1 << TAG_INDEX_BITS, "the reserved slot has an index too");

void op_list_push(struct op_list *list, struct client_op *op)
{
    ASSERT(!op->list);
    op->list = list;
    LIST_APPEND(list, op, queued);
    list->count++;
}

static void drop(struct op_list *list, struct client_op *op)
{
    LIST_REMOVE(list, op, queued);
    list->count--;
    op->list = NULL;
}

void op_list_remove(struct client_op *op)
{
    if (op->list)
        drop(op->list, op);
}

struct client_op *op_list_pop(struct op_list *list)
{
    struct client_op *op = list->first;

    if (op)
        drop(list, op);
    return op;
}

int op_table_init(struct op_table *table, uint32_t depth)
{
    ASSERT(depth > 0 && depth <= OP_MAX_DEPTH);
    struct client_op *ops = calloc((size_t)depth + 1, sizeof *ops);

    if (!ops)
        return ROWAN_ENOMEM;
    *table = (struct op_table){.ops = ops, .depth = depth};
    for (uint32_t i = depth + 1; i-- > 0;) {
        ops[i].index = i;
        ops[i].reserved = i == depth;
        if (!ops[i].reserved) {
            ops[i].queued.next = table->free;
            table->free = &ops[i];
        }
    }
    return 0;
}

void op_table_fini(struct op_table *table)
{
    for (uint32_t i = 0; table->ops && i <= table->depth; i++)
        free(table->ops[i].long_request);
    free(table->ops);
    table->ops = NULL;
}

static struct client_op *take_slot(struct op_table *table, bool reserved)
{
    struct client_op *op = table->free;

    if (op)
        return op;
    op = &table->ops[table->depth];
    return reserved && op->state == OP_FREE ? op : NULL;
}

int op_table_take(struct op_table *table, const void *key, size_t key_bytes, bool reserved,
                  struct client_op **out)
{
    struct client_op *op = take_slot(table, reserved);

    ASSERT(key_bytes > 0 && key_bytes <= ROWAN_MAX_KEY_BYTES);
    if (!op)
        return ROWAN_EAGAIN;
    ASSERT(op->state == OP_FREE && !op->list);
    op->request = &op->short_request;
    if (key_bytes > OP_INLINE_KEY_BYTES) {
        if (!op->long_request)
            op->long_request = malloc(sizeof *op->long_request + ROWAN_MAX_KEY_BYTES);
        if (!op->long_request)
            return ROWAN_ENOMEM;
        op->request = op->long_request;
    }
    if (!op->reserved)
        table->free = op->queued.next;
    op->state = OP_QUEUED;
    op->generation++;
    op->request->tag =
        (op->generation & (uint32_t)TAG_GENERATION_MASK) << TAG_INDEX_BITS | op->index;
    op->request->key_bytes = (uint16_t)key_bytes;
    memcpy(op->request + 1, key, key_bytes);
    op->pauses = 0;
    op->unknown = false;
    op->link = NULL;
    op->deadline_ns = 0;
    LIST_APPEND(&table->age, op, aged);
    table->age.count++;
    *out = op;
    return 0;
}

void op_table_retire(struct op_table *table, struct client_op *op)
{
    ASSERT(op->state != OP_FREE && op->state != OP_DONE);
    LIST_REMOVE(&table->age, op, aged);
    table->age.count--;
    op->state = OP_DONE;
}

void op_table_give(struct op_table *table, struct client_op *op)
{
    ASSERT(op->state == OP_DONE && !op->list);
    op->state = OP_FREE;
    if (op->reserved)
        return;
    op->queued.next = table->free;
    table->free = op;
}

struct client_op *op_table_find(struct op_table *table, uint32_t tag)
{
    uint32_t index = tag & ((1u << TAG_INDEX_BITS) - 1);

    if (index > table->depth)
        return NULL;
    struct client_op *op = &table->ops[index];
    return op->state != OP_FREE && op->request->tag == tag ? op : NULL;
}
