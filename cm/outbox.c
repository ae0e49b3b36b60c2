/* outbox.c - a queue of messages in front of fabric_send. Messages leave in the order they were
 * posted; a replaced one keeps its place. */
#include "cm/outbox.h"

#include <string.h>

#include "common/base/error.h"

int outbox_post(struct outbox *outbox, struct fabric_conn *conn, struct outgoing *outgoing,
                uint32_t tag, bool push)
{
    if (outbox->count == 0) {
        int error = outgoing_send(outgoing, tag, conn);
        if (error != ROWAN_EAGAIN)
            return error;
    }

    for (uint32_t i = 0; push && i < outbox->count; i++) {
        struct outbox_item *item = &outbox->items[i];
        if (item->push) {
            outgoing_release(item->outgoing);
            item->outgoing = outgoing_hold(outgoing);
            return ROWAN_OK;
        }
    }
    if (outbox->count == OUTBOX_MAX_MESSAGES)
        return ROWAN_EBUSY;
    outbox->items[outbox->count++] =
        (struct outbox_item){.outgoing = outgoing_hold(outgoing), .tag = tag, .push = push};
    return ROWAN_OK;
}

static void drop_first(struct outbox *outbox)
{
    outgoing_release(outbox->items[0].outgoing);
    memmove(outbox->items, outbox->items + 1, --outbox->count * sizeof outbox->items[0]);
}

int outbox_flush(struct outbox *outbox, struct fabric_conn *conn)
{
    while (outbox->count > 0) {
        int error = outgoing_send(outbox->items[0].outgoing, outbox->items[0].tag, conn);
        if (error)
            return error;
        drop_first(outbox);
    }
    return ROWAN_OK;
}

void outbox_clear(struct outbox *outbox)
{
    while (outbox->count > 0)
        drop_first(outbox);
}
