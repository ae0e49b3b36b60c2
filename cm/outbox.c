/* outbox.c - a ring of letters in front of fabric_send. Letters leave in the order they were
 * posted; only news is replaced in its place. */
#include "cm/outbox.h"

#include "common/base/error.h"

static struct outbox_item *item_at(struct outbox *outbox, uint32_t position)
{
    return &outbox->items[(outbox->first + position) % OUTBOX_MAX_LETTERS];
}

int outbox_post(struct outbox *outbox, struct fabric_conn *conn, struct letter *letter,
                uint32_t tag, bool push)
{
    if (outbox->count == 0) {
        int error = letter_send(letter, tag, conn);
        if (error != ROWAN_EAGAIN)
            return error;
    }

    for (uint32_t i = 0; push && i < outbox->count; i++) {
        struct outbox_item *item = item_at(outbox, i);
        if (item->push) {
            letter_release(item->letter);
            item->letter = letter_hold(letter);
            return ROWAN_OK;
        }
    }
    if (outbox->count == OUTBOX_MAX_LETTERS)
        return ROWAN_EBUSY;
    *item_at(outbox, outbox->count++) =
        (struct outbox_item){.letter = letter_hold(letter), .tag = tag, .push = push};
    return ROWAN_OK;
}

static void drop_first(struct outbox *outbox)
{
    letter_release(item_at(outbox, 0)->letter);
    outbox->first = (outbox->first + 1) % OUTBOX_MAX_LETTERS;
    outbox->count--;
}

int outbox_flush(struct outbox *outbox, struct fabric_conn *conn)
{
    while (outbox->count > 0) {
        const struct outbox_item *item = item_at(outbox, 0);
        int error = letter_send(item->letter, item->tag, conn);
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
