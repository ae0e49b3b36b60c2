/* state.h - what the configuration manager decides: a pure function (state, event) -> (state,
 * actions). No clock of its own, no randomness, no input or output. After cm_state_create it allocates nothing but
 * new configurations.
 *
 * The owner feeds every event in the order it happened and carries out every action in the order
 * given, before the next event. One READ or STORE is under way at a time; its answer comes back as
 * an event. Each event has the time, and CM_EVENT_TIME comes when the output asked for it.
 */
#ifndef CM_STATE_H
#define CM_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "cm/join.h"
#include "common/cluster/cluster.h"
#include "common/fabric/fabric.h"

enum {
    CM_MAX_DETAIL_BYTES = 255, /* of a sentence */
    CM_MAX_CLIENTS = 4096,     /* connections of clients and tools that are no guests, */
    CM_ADMIN_CLIENTS = 64,     /* of these, for admins, where logins are required */
    CM_MAX_CONNECTIONS = CM_MAX_CLIENTS + FABRIC_MAX_GUESTS + 256, /* of these, for servers */
    CM_START_WAIT_MS = 30000,
    CM_GOODBYE_WAIT_MS = 10000,
};

struct cm_state;
struct load_report;

/* From the operator and `main`. The state copies it. */
struct cm_state_options {
    bool keyed;                            /* servers have to have the cluster's key: cm_create's */
    uint32_t server_count;                 /* 1 to CLUSTER_MAX_MEMBERS */
    uint32_t servers[CLUSTER_MAX_MEMBERS]; /* each 1 to CLUSTER_MAX_SERVER, rising */
    uint32_t replicas;                     /* 1 to min(CLUSTER_MAX_REPLICAS, server_count) */
    uint32_t shards;                       /* 0 to CLUSTER_MAX_SHARDS; 0: see first.h */
    uint32_t max_shards;      /* with so many none is split any more; 0: CLUSTER_MAX_SHARDS */
    uint32_t balance_above;   /* of balance.h, per cent; 0: BALANCE_ABOVE */
    uint64_t start_wait_ms;   /* of all members, by a cold start; 0: CM_START_WAIT_MS */
    uint64_t goodbye_wait_ms; /* manage.c, M8; 0: CM_GOODBYE_WAIT_MS */
    uint64_t incarnation;     /* of this manager: random, never 0, never given twice */
    uint32_t lease_ms;        /* of a new cluster; 0: none, else CLUSTER_MIN_LEASE_MS to
                             CLUSTER_MAX_LEASE_MS */
    uint64_t cluster;         /* random, never 0: the id if a new cluster is made */
    uint8_t secret[CLUSTER_SECRET_BYTES]; /* random, likewise */
    bool
        recover; /* the stored value is lost: made anew from what the servers stored (recovery.h) */
};

enum cm_event_kind {
    CM_EVENT_START,             /* once, first */
    CM_EVENT_READ,              /* answers CM_ACTION_READ: error, version, config */
    CM_EVENT_STORED,            /* answers CM_ACTION_STORE: error, version */
    CM_EVENT_CHANGED,           /* the stored value changed, or may have */
    CM_EVENT_LEADER,            /* leader */
    CM_EVENT_TIME,              /* nothing else; its now_ns was read after every event before it */
    CM_EVENT_OPENED,            /* connection, which was closed */
    CM_EVENT_CLOSED,            /* connection, which was open */
    CM_EVENT_JOIN,              /* connection, tag, join, config: what it brings, or NULL */
    CM_EVENT_GET_CONFIGURATION, /* connection, tag, known_term */
    CM_EVENT_NEW_CLIENT_ID,     /* connection, tag, user, reader */
    CM_EVENT_RENEW,             /* connection, tag, known_term, manager, manager_ns, cut */
    CM_EVENT_ADOPTED,           /* connection, known_term */
    CM_EVENT_FILLED,            /* connection, shard, epoch, server: it has all, says its primary */
    CM_EVENT_PLAN,              /* connection, tag, plan */
    CM_EVENT_LOAD,              /* connection, load: what a member's shards cost it */
};

/* What an operator wants of a server (plan.h); numbers as in proto/control.proto. */
enum cm_plan_kind {
    CM_PLAN_ADD,
    CM_PLAN_DRAIN,
    CM_PLAN_REMOVE,
    CM_PLAN_MOVE,
    CM_PLAN_WORKER,
    CM_PLAN_BALANCE,
    CM_PLAN_SPLIT,
    CM_PLAN_USER,    /* `user` may log in, in place of who has its name */
    CM_PLAN_NO_USER, /* who has the name of `user` may not */
    CM_PLAN_LOGIN,   /* `to`: an enum cm_login */
    CM_PLAN_GIVE_UP, /* who is away is not waited for: by `shard` or, if not 0, `server` by all; `to` 0: says what that loses */
    CM_PLAN_KINDS
};

enum cm_login {
    CM_LOGIN_OPEN,     /* who has not logged in may do everything */
    CM_LOGIN_REQUIRED, /* nothing; the cluster was open, so its keys are drawn anew (keys.h) */
    CM_LOGIN_ROTATE    /* another proof */
};

struct cm_plan {
    enum cm_plan_kind kind;
    uint32_t server;
    uint32_t shard; /* MOVE, WORKER, SPLIT, GIVE_UP */
    uint32_t to;    /* MOVE, WORKER; of BALANCE: an enum cluster_balance; of SPLIT: a slot; LOGIN */
    struct user user;           /* USER: every field; NO_USER: its name */
    uint64_t rotation;          /* LOGIN, ROTATE: of whom it is asked for; never 0 */
    struct cluster_drawn drawn; /* LOGIN */
    bool draws;                 /* likewise, and the state's: every server can read what is drawn */
};

struct cm_event {
    enum cm_event_kind kind;
    uint64_t
        now_ns; /* of a clock that counts suspend and never goes back; never 0. Read before this event
                            happened, perhaps long before */
    uint32_t connection; /* below CM_MAX_CONNECTIONS; numbers are used again after a close */
    uint32_t tag;
    uint64_t known_term;
    uint64_t manager, manager_ns; /* out of the LeaseIs that the member had last; 0: none */
    bool leaves;                  /* RENEW: it has no lease, and asks for none */
    uint32_t cut_count;           /* RENEW: servers to which its sends stay incomplete */
    const uint32_t *cut;
    uint32_t shard, epoch, server;
    struct cm_plan plan;
    const struct load_report *load;
    const struct cm_join *join;
    const char *user; /* NULL: who has not logged in */
    bool reader;      /* takes 0, as it may not write */
    bool leader;
    int error;                     /* 0; READ: any; STORED: ROWAN_EVERSION (lost), ROWAN_EUNKNOWN
                                      (may have won), others (did not happen, or nobody knows) */
    uint64_t version;              /* of the stored value; 0: there is none */
    struct cluster_config *config; /* READ: the stored value; NULL: none. JOIN: what the server
                                      stored. The state takes its own reference */
};

enum cm_action_kind {
    CM_ACTION_READ,          /* read the stored value; answer CM_EVENT_READ */
    CM_ACTION_STORE,         /* compare-and-set: `config` if the stored version is
                                `expected_version`; answer CM_EVENT_STORED */
    CM_ACTION_CONFIGURATION, /* send ConfigurationIs with `config` (NULL: none) and the output's
                                waiting_for, the secret only if `with_secret`. tag 0 if nobody
                                asked. To a plan: it is in force */
    CM_ACTION_CLIENT_ID,     /* send ClientIdIs */
    CM_ACTION_FAILURE,       /* send Failure: error, detail. tag 0 if nobody asked */
    CM_ACTION_LEASE,         /* send LeaseIs: now_ns, this manager's incarnation, granted */
    CM_ACTION_COMMITTED,     /* send Committed: term */
    CM_ACTION_TELL,          /* log `event` with `detail`, which has key=value in it */
    CM_ACTION_WARN,          /* log `event`, a word, with `detail` */
    CM_ACTION_STOP,          /* the CM cannot go on: error, detail. No further event */
};

struct cm_action {
    enum cm_action_kind kind;
    uint32_t connection;
    uint32_t tag;
    bool with_secret;
    bool bring; /* CONFIGURATION: the server's next Join is to bring what it stored */
    bool granted;
    uint32_t client_id;
    uint64_t now_ns;
    uint64_t term;
    int error;
    const char *event;  /* of the log */
    const char *detail; /* a sentence */
    uint64_t expected_version;
    const struct cluster_config *config;
};

/* Everything in it is the state's, and valid until the next step. */
struct cm_output {
    uint32_t count;
    const struct cm_action *actions;
    bool leads;             /* a configuration that is sent says so */
    bool cut;               /* the coordination service does not answer it */
    uint32_t waiting_count; /* servers that have not joined, while there is no configuration, or
                               a cold start is awaited */
    const uint32_t *waiting_for;
    uint64_t
        wake_ns; /* CM_EVENT_TIME is wanted then; 0: as soon as the clock was read again; UINT64_MAX: never */
    uint64_t registration_epoch; /* a server that waits sends it back with its next Join */
};

/* Errors: ROWAN_EINVALID (options out of range), ROWAN_ENOMEM. */
int cm_state_create(const struct cm_state_options *options, struct cm_state **out);
void cm_state_destroy(struct cm_state *state);

/* cm_state_tune: max_shards, balance_above and the waits of `options` holds from now on. Between two steps. */
void cm_state_tune(struct cm_state *state, const struct cm_state_options *options);

const struct cm_output *cm_state_step(struct cm_state *state, const struct cm_event *event);

/* The configuration in force: one that is known to be stored. NULL: none. */
struct cluster_config *cm_state_config(const struct cm_state *state);

/* True once the stored value has been read: from then on the cluster's id is known if it has one. The
 * owner accepts no connection before, because it could not compare clusters. */
bool cm_state_knows(const struct cm_state *state);

#endif
