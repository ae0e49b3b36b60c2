/* outbox.h - control messages that are encoded, and those of one connection that the fabric cannot send just now. Bounded: a peer
 * that asks and does not read fills only its own. */
#ifndef CM_OUTBOX_H
#define CM_OUTBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "cm/state.h"
#include "common/cluster/settings.h"
#include "common/fabric/fabric.h"

/* A message. The configuration's is shared by all connections that get it, so its tag is filled in when it is sent. */
struct outgoing;

/* Each makes one with one reference. NULL: no memory. */
struct outgoing *outgoing_configuration(const struct cm_action *action,
                                        const struct cm_output *output, int store_error);
/* With its ticket, if `user` is not NULL. */
struct outgoing *outgoing_client_id(uint32_t client_id, const struct cluster_config *config,
                                    const char *user);
struct outgoing *outgoing_lease(uint64_t manager, uint64_t manager_ns, bool granted);
struct outgoing *outgoing_users(const struct cluster_config *config); /* NULL: none */
struct outgoing *outgoing_committed(uint64_t term);
struct outgoing *outgoing_failure(int error, const char *detail);
struct outgoing *outgoing_settings(struct config_live *live, const Rowan__SetSetting *question);

/* A second reference, and the end of one (NULL is fine). One thread. */
struct outgoing *outgoing_hold(struct outgoing *outgoing);
void outgoing_release(struct outgoing *outgoing);

/* As fabric_send, whose errors it gives; the bytes are copied. */
int outgoing_send(const struct outgoing *outgoing, uint32_t tag, struct fabric_conn *conn);

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
