/* state_inside.h - what the state holds, and what the files that decide do with it. */
#ifndef CM_STATE_INSIDE_H
#define CM_STATE_INSIDE_H

#include "cm/balance.h"
#include "cm/claim.h"
#include "cm/comeback.h"
#include "cm/lease.h"
#include "cm/quota.h"
#include "cm/recovery.h"
#include "cm/registrations.h"
#include "cm/state.h"

/* Who has all, as their primaries said, by id of the shard: a bit for each place in `filling` of the row in force; or who has
 * copied a shard that is split (split.h). */
struct fills {
    uint8_t filled[CLUSTER_MAX_SHARDS];
    uint64_t since_ns; /* some replica has been filling, as far as this manager saw; 0: none does */
    uint32_t lacking;  /* shards that nobody has the space to fill, as it was logged */
};

struct connection {
    bool open;
    bool subscribed;      /* asked for the configuration: is sent later ones */
    bool member;          /* its Join named an incarnation that is in force */
    bool has_data;        /* its last Join says so */
    uint32_t format;      /* likewise: the highest of configurations that it reads */
    uint32_t server;      /* that joined by it, a member or registered; 0: none */
    uint32_t join_tag;    /* of its last Join */
    uint64_t incarnation; /* of that server */
    bool renews;          /* its Renew waits for an answer */
    uint32_t renew_tag;   /* of it */
    uint64_t renew_term;  /* that it knows */
    uint64_t known_term;  /* of the newest configuration sent to it, or known to it */
    bool wants_id;        /* its NewClientId waits for an answer */
    uint32_t id_tag;      /* of it */
    bool plans;           /* `plan` waits for an answer */
    uint32_t plan_tag;    /* of it */
    struct cm_plan plan;
};

enum {
    /* Who is silent, what was done, what is committed, who joined, what fills, what has filled, what moved, what is planned,
     * who is out of reach, and what is wrong; and for each member that it is unsteady. */
    MAX_STORIES = 16 + CLUSTER_MAX_MEMBERS,
    /* A step sends a connection at most a reply, a refusal, an id, a configuration, and that it is committed. */
    MAX_ACTIONS = 5 * CM_MAX_CONNECTIONS + MAX_STORIES,
};

struct cm_state {
    struct cm_state_options options;
    bool started, stopped;
    bool
        elected; /* by the coordination service: that says who leads while no configuration with leases is known */
    bool rests;           /* what this event tells may last: nothing is tried before the next one */
    bool leads;           /* S10 */
    bool start_waited;    /* a start has waited for all members for start-wait (S12) */
    uint64_t granting_ns; /* when it last could */
    uint64_t heard_ns;    /* when the coordination service last answered */
    struct claim claim;
    uint64_t
        stranger_term; /* of the configuration in which a server without its data was told of; 0: none */
    uint64_t later_term, later_ns; /* a server has acted on it, and has said so then; 0: on none */
    uint32_t later_server;         /* that server */
    bool told_later;
    bool knows;     /* the stored value has been read once */
    bool must_read; /* what we know of the stored value may be old */
    bool reading, storing;

    struct cluster_config *config;   /* in force */
    uint64_t version;                /* of the stored value that it is; 0: none stored */
    struct cluster_config *proposal; /* while storing */

    uint64_t now_ns;      /* of the last event */
    struct leases leases; /* if the configuration in force has some, and names this manager */
    uint32_t renewing;    /* connections whose Renew waits */
    uint32_t planning;    /* those whose plan waits */
    uint64_t
        failed_term; /* of the configuration that no failover is possible from, which was logged; 0: none */
    uint64_t asked_ns; /* when the last READ or STORE was asked for */
    uint64_t
        unanswered_ns; /* the coordination service was asked then, and has not answered since; 0: it has */
    bool looks;        /* since the last look for members and replicas to add the clock was read */
    struct fills fills;
    struct loads loads;
    struct balance balance;
    uint64_t dry_ns; /* when it was told last what a dry run would do first */
    bool weighs;     /* since the last decision of `balance` there was a report */

    uint32_t next_id, end_id; /* client ids that are ours: next_id up to below end_id */
    uint32_t wanting;         /* connections that want one */
    uint32_t id_turn;         /* the connection to serve first, so that all get their turn */
    struct quota quota;       /* of client ids */
    struct recovery recovery;
    struct registrations registered; /* S6: servers that wait for a configuration that names them */
    struct registrations running;    /* the last reports of members, and their connections */
    uint32_t here;                   /* connections of members */
    uint64_t ended_ns;               /* some member ran until then */
    /* S9: by server, the incarnation that said last that it is formatted; 0: none */
    uint64_t holders[CLUSTER_MAX_SERVER + 1];
    uint64_t warned_term; /* of the configuration whose unformatted servers were named; 0: none */
    struct connection connections[CM_MAX_CONNECTIONS];
    uint32_t connection_limit; /* above the highest ever opened */

    struct cm_output output;
    uint32_t waiting_for[CLUSTER_MAX_MEMBERS];
    char detail[CM_MAX_DETAIL_BYTES + 1];               /* of a refusal or a stop: one a step */
    char refusal[CM_MAX_DETAIL_BYTES + 1];              /* of a plan: one a step */
    char stories[MAX_STORIES][CM_MAX_DETAIL_BYTES + 1]; /* of this step, for the log */
    uint32_t story_count;
    struct cm_action actions[MAX_ACTIONS];
};

static inline uint64_t state_ms_since(const struct cm_state *state, uint64_t then_ns)
{
    return (state->now_ns - then_ns) / NS_PER_MS;
}

/* --- actions.c: of one step, in order --- */

struct cm_action *actions_add(struct cm_state *state, enum cm_action_kind kind);

/* To a connection that is open; tag 0: it did not ask. */
struct cm_action *actions_answer(struct cm_state *state, enum cm_action_kind kind,
                                 uint32_t connection, uint32_t tag);

/* `detail` must stay until the next step. */
void actions_refuse(struct cm_state *state, uint32_t connection, uint32_t tag, int error,
                    const char *detail);
void actions_stop(struct cm_state *state, int error, const char *detail);

/* Of these kinds: CM_ACTION_WARN, CM_ACTION_TELL. */
void actions_log(struct cm_state *state, enum cm_action_kind kind, const char *event,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The configuration in force, or the answer that there is none. */
void actions_configuration(struct cm_state *state, uint32_t connection, uint32_t tag);

/* --- leader.c: who leads (state.c, S10) --- */

/* CM_EVENT_LEADER. */
void leader_elected(struct cm_state *state, const struct cm_event *event);

/* A configuration came into force. */
void leader_named(struct cm_state *state);

/* The stored value was read: this manager begins to lead, leads on, or resigns. */
void leader_follow(struct cm_state *state);

/* A server has reported. */
void leader_told(struct cm_state *state, const struct cm_join *join);

/* It has acted on a later configuration than the stored one, as that was read since. */
bool leader_is_behind(struct cm_state *state, const struct cm_join *join);

/* Logs, once, that a server has acted on a later configuration: that server may never report again. */
void leader_tell_later(struct cm_state *state);

/* S13: by a server. */
static inline bool leader_is_doubted(const struct cm_state *state)
{
    return state->config && state->later_term > state->config->term;
}

/* This manager does not lead: the configuration that names it, if it should try that now (claim.h); else NULL. */
struct cluster_config *leader_claim(struct cm_state *state);

/* After manage_tick. */
void leader_tick(struct cm_state *state);

/* The connection's server is none that this manager knows any more, and is told why. */
void leader_dismiss(struct cm_state *state, uint32_t connection, const char *detail);

/* --- start.c --- */

/* Does the cluster wait to be started, for the first time or again? start_absent: those that it waits for: members or, without a
 * configuration, the servers of the options. How many. */
bool start_is_awaited(const struct cm_state *state);
uint32_t start_absent(const struct cm_state *state, uint32_t *servers);

/* NULL: it is not due. */
struct cluster_config *start_propose(struct cm_state *state);

/* --- manage.c: what is done in time where the configuration in force has leases: grants, takes over from another manager,
 * removes members that are silent, commits, adds members and replicas. Without leases it only answers renewals with no --- */

/* CM_EVENT_RENEW, which manage_tick answers, CM_EVENT_ADOPTED, CM_EVENT_FILLED, CM_EVENT_PLAN, which manage_plan_answer does,
 * and CM_EVENT_LOAD. */
void manage_renewed(struct cm_state *state, const struct cm_event *event);
void manage_adopted(struct cm_state *state, const struct cm_event *event);
void manage_filled(struct cm_state *state, const struct cm_event *event);
void manage_planned(struct cm_state *state, const struct cm_event *event);
void manage_loaded(struct cm_state *state, const struct cm_event *event);

/* Answers the plans that are in force, or refused. The manager leads. manage_plan_forget: none waits of this connection. */
void manage_plan_answer(struct cm_state *state);
void manage_plan_forget(struct cm_state *state, uint32_t connection);

/* CM_EVENT_TIME. */
void manage_tick(struct cm_state *state);

/* The member of this connection has reported. */
void manage_joined(struct cm_state *state, uint32_t connection, bool serves);

/* `before` (NULL: none) was in force, what is in force now was stored since. True: it removed or added members or replicas, and
 * the log tells of it. */
bool manage_installed(struct cm_state *state, const struct cluster_config *before);

/* Does every member, and who waits, read configurations in that format? */
bool state_reads(const struct cm_state *state, uint32_t format);

/* No member runs, as far as is known: none reported, or, with leases, all that did are silent. */
bool manage_nobody_runs(const struct cm_state *state);

/* Who is back, or runs, and who is given up. `all`: every member counts as kept. False: wait, somebody is about to report anew. */
bool manage_find_back(struct cm_state *state, struct comeback *back, bool all);

/* After each event: logs who is silent, and commits if it may. */
void manage_commit(struct cm_state *state);

/* What is due before anything else is proposed; NULL: nothing. This manager leads and has leases in force. */
struct cluster_config *manage_propose(struct cm_state *state);

/* The parts of it that do what is planned, and what loads want (manage_plan.c), and that of it and of manage_installed that adds members
 * and replicas (manage_fill.c). */
struct cluster_config *manage_plan_propose(struct cm_state *state);
struct cluster_config *manage_balance_propose(struct cm_state *state);
struct cluster_config *manage_fill_propose(struct cm_state *state);
bool manage_fill_installed(struct cm_state *state, const struct cluster_config *before);

/* As wake_ns of the output. */
uint64_t manage_wake(const struct cm_state *state);

#endif
