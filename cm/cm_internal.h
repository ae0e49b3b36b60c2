/* cm_internal.h - the adapter (cm.c), and what it sends (post.c). */
#ifndef CM_CM_INTERNAL_H
#define CM_CM_INTERNAL_H

#include "cm/access.h"
#include "cm/cm.h"
#include "cm/figures.h"
#include "cm/loads.h"
#include "cm/outbox.h"
#include "common/cluster/login.h"

struct cm_peer {
    struct fabric_conn *conn;        /* NULL: the place is free */
    bool given_up;                   /* A3 */
    bool left;                       /* and the state knows that it is closed */
    struct fabric_identity identity; /* that it says it has */
    struct login *login;             /* NULL: nobody has tried to log in */
    struct outbox outbox;
};

struct cm {
    struct cm_state *state;
    struct coord *coord;
    struct fabric_endpoint *endpoint;
    struct fabric_identity identity;
    cm_failed *failed;
    void *failed_context;
    struct access access;
    struct config_live *settings;
    struct metrics *metrics;
    struct figures figures;
    int error;
    bool started;
    uint64_t now_ns;  /* of this poll, read before it */
    uint64_t wake_ns; /* of the state's last output */
    /* Of the coordination service, by kind of event, not yet handed to the state (A1). */
    struct cm_event answers[CM_EVENT_LEADER + 1];
    bool answered[CM_EVENT_LEADER + 1];

    struct outgoing *shared[2]; /* the configuration of shared_term, without and with secret */
    uint64_t shared_term;

    struct load_row load_rows[CLUSTER_MAX_SHARDS]; /* of the report that is given to the state */

    uint32_t open_count;
    uint32_t given_up_count;
    uint32_t peer_limit; /* above the highest place ever used */
    struct cm_peer peers[CM_MAX_CONNECTIONS];
};

struct access_asker cm_asker(const struct cm *cm, struct cm_peer *peer);

/* A3: it is closed after this batch. */
void cm_give_up(struct cm *cm, struct cm_peer *peer, const char *reason);

/* What cannot be sent gives the peer up. post_own ends the caller's reference. post_configuration: who may not read any more is sent
 * nothing, and given up. */
void post_own(struct cm *cm, const struct cm_action *action, bool push, struct outgoing *outgoing);
void post_failure(struct cm *cm, uint32_t connection, uint32_t tag, int error, const char *detail);
void post_configuration(struct cm *cm, const struct cm_output *output,
                        const struct cm_action *action);
void post_client_id(struct cm *cm, const struct cm_action *action);

/* True if something still waits to be sent. */
bool post_flush(struct cm *cm);
void post_fini(struct cm *cm);

#endif
