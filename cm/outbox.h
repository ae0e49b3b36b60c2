/* outbox.h - messages of one connection that the fabric cannot send just now. Bounded: a peer that asks
 * and does not read fills only its own. */
#ifndef CM_OUTBOX_H
#define CM_OUTBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "cm/outgoing.h"
#include "common/fabric/fabric.h"

enum { OUTBOX_MAX_MESSAGES = 16 };

struct outbox_item {
    struct outgoing *outgoing;
    uint32_t tag;
    bool push;
};

struct outbox {
    uint32_t count;
    struct outbox_item items[OUTBOX_MAX_MESSAGES];
};

/* outbox_post: sends the outgoing, or keeps it (with a reference of its own) until outbox_flush.
 * `push`: a message that nobody asked for; it replaces an older such message that still waits.
 * Errors: ROWAN_EBUSY (the outbox is full), ROWAN_ECLOSED and ROWAN_EINVALID of fabric_send. */
int outbox_post(struct outbox *outbox, struct fabric_conn *conn, struct outgoing *outgoing,
                uint32_t tag, bool push);

/* outbox_flush: sends what waits. 0 when nothing is left; errors: ROWAN_EAGAIN (something is left),
 * ROWAN_ECLOSED and ROWAN_EINVALID of fabric_send. */
int outbox_flush(struct outbox *outbox, struct fabric_conn *conn);

/* Drops what waits. */
void outbox_clear(struct outbox *outbox);

#endif
