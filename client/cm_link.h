/* cm_link.h - a session's connection to the configuration manager that leads, which it finds in the list: client ids and
 * configurations. */
#ifndef CLIENT_CM_LINK_H
#define CLIENT_CM_LINK_H

#include "client/peer.h"
#include "common/auth/mac.h"
#include "common/cluster/control.h"

struct cm_link {
    struct peer peer;
    struct managers managers;
    bool led;           /* by a manager that leads, of the connection's last configuration */
    bool has_id;        /* one was given and not taken: */
    uint32_t client_id; /* the newest; 0: the user may not write, and needs none */
    bool has_ticket;    /* it came with one (common/cluster/login.h) */
    uint8_t ticket[MAC_BYTES];
    struct cluster_config *fresh; /* the newest configuration come and not taken, or NULL */
    bool wants_id;                /* set to ask for one that was never given before */
    /* It got none: asked again on each connection, and with each configuration, as users change. */
    bool reads;
    uint64_t put_off_ns; /* how much longer it waits when it is told to come again later */
    bool wants_config;   /* set to ask for one newer than the known one */
    bool no_config;      /* the CM said that there is none newer than what we know */
    int store_error; /* why the CM could not store a configuration, as it said last; 0: it can */
    uint32_t waiting_count; /* servers that the cluster waits for, as the CM said last */
    uint32_t waiting_for[CLUSTER_MAX_MEMBERS];
    uint64_t next_id_ns, next_config_ns, next_question_ns; /* not to be asked before */
    uint64_t asked_ns; /* for a configuration, and nothing came since; 0: it owes none */
    /* The owner's: asked until a manager that leads has answered, then NULL. */
    const Rowan__ControlMessage *question;
    int refusal; /* of the question; 0: `fresh` is the answer, or what was known before */
    char why[256];
    Rowan__ControlMessage
        *reply; /* likewise, where the answer is none of these; the owner's, for control_free */
};

/* `addresses`: a list (managers.h); `cm` stays where it is. Errors: those of managers_parse. */
int cm_link_init(struct cm_link *cm, struct fabric_endpoint *endpoint, const char *addresses);
void cm_link_fini(struct cm_link *cm);

/* Keeps the connection and sends what is to be asked. True if something was sent. */
bool cm_link_poll(struct cm_link *cm, uint64_t known_term, uint64_t now_ns, uint64_t *wake_ns);

/* What to do with the fabric's events of this connection (a message is not released here). */
void cm_link_connected(struct cm_link *cm, const struct fabric_identity *reached);
void cm_link_message(struct cm_link *cm, const void *data, uint32_t bytes);

#endif
