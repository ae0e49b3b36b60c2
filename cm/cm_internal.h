/* cm_internal.h - the adapter (cm.c), who may ask it what (access.c), what it sends (post.c), and what it
 * tells Prometheus (figures.c). */
#ifndef CM_CM_INTERNAL_H
#define CM_CM_INTERNAL_H

#include "cm/cm.h"
#include "cm/loads.h"
#include "cm/outbox.h"
#include "common/cluster/login.h"
#include "common/metrics/metrics.h"

enum { CM_FIGURES = 23 };

struct cm_peer {
    struct fabric_conn *conn;        /* NULL: the place is free */
    bool given_up;                   /* A3 */
    bool left;                       /* and the state knows that it is closed */
    bool trusted;                    /* A6 */
    struct fabric_identity identity; /* that it says it has */
    struct login *login;             /* NULL: nobody has tried to log in */
    struct outbox outbox;
};

struct cm {
    struct cm_options options;
    struct cm_state *state;
    struct fabric_endpoint *endpoint;
    struct fabric_identity identity;
    uint64_t refused_logins;
    uint64_t unknown_messages;
    struct counter figures[CM_FIGURES]; /* figures.c */
    int error;
    bool started;
    uint64_t now_ns;  /* of this poll, read before it */
    uint64_t wake_ns; /* of the state's last output, like these two: */
    bool leads, cut;
    /* Of the coordination service, by kind of event, not yet handed to the state (A1). */
    struct cm_event answers[CM_EVENT_LEADER + 1];
    bool answered[CM_EVENT_LEADER + 1];

    struct outgoing *shared[2]; /* the configuration of shared_term, without and with secret */
    uint64_t shared_term;

    struct load_row load_rows[CLUSTER_MAX_SHARDS]; /* of the report that is given to the state */

    bool told_off;   /* the log has said that logins are not required */
    bool told_lost;  /* the log has said that the stored configuration is gone */
    int store_error; /* 0, or why a configuration could not be stored when that was tried last */
    uint32_t open_count, client_count; /* of the latter, A6 */
    struct users *users;               /* of the last configuration: A6 was seen to */
    uint64_t turned_away;              /* connections, because there are too many */
    uint32_t given_up_count;
    uint32_t peer_limit; /* above the highest place ever used */
    struct cm_peer peers[CM_MAX_CONNECTIONS];
};

/* report.c: a Join as the state gets it. Strings in `out` end with a NUL, all else is unchecked. *stored: the configuration that the server brings, with one
 * reference; NULL: none that is whole. Errors: ROWAN_EINCOMPATIBLE (it brings one in a format that is not read here). */
int report_decode(const Rowan__Join *from, struct cm_join *out, struct cluster_config **stored);

/* Of every other kind of request, the event that it is; the caller sets connection and tag. It points into `from`. False: it
 * is of none that this version knows. */
bool report_event(const Rowan__ControlMessage *from, struct cm_event *out);

/* `rows` has space for CLUSTER_MAX_SHARDS; the report points to them. */
void report_load(const Rowan__Load *from, struct load_row *rows, struct load_report *out);

/* As login_take; a failure is logged. */
enum login_step access_login(struct cm *cm, struct cm_peer *peer, uint32_t tag,
                             const Rowan__ControlMessage *message, int *error);

/* A6. access_trust: it is no guest any more, if it has shown who it is. access_users: there may be another configuration.
 * access_is_full: it begins to log in, and there is no place for that user. */
bool access_is_full(const struct cm *cm, const struct cm_peer *peer,
                    const Rowan__ControlMessage *message);
void access_trust(struct cm *cm, struct cm_peer *peer);
void access_users(struct cm *cm);

/* The name of the user who has logged in; NULL: nobody. */
const char *access_user(const struct cm *cm, const struct cm_peer *peer);

/* Whose quota of client ids it uses, and whether it needs none: it says that it takes 0, and may not write. */
void access_share(const struct cm *cm, const struct cm_peer *peer, struct cm_event *event);

/* May it be sent what changes? Who was removed since, for one, may not. */
bool access_may_watch(const struct cm *cm, const struct cm_peer *peer);

/* NULL: it may ask that; else why not, and `error`. */
const char *access_refusal(const struct cm *cm, const struct cm_peer *peer,
                           const Rowan__ControlMessage *message, int *error);

void figures_register(const struct cm *cm);
void figures_update(struct cm *cm);

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
/* Gives up what several were sent. */
void post_fini(struct cm *cm);

#endif
