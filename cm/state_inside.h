/* state_inside.h - what the state holds: for the files that decide. */
#ifndef CM_STATE_INSIDE_H
#define CM_STATE_INSIDE_H

#include "cm/balance.h"
#include "cm/claim.h"
#include "cm/ids.h"
#include "cm/lease.h"
#include "cm/proposal.h"
#include "cm/recovery.h"
#include "cm/registrations.h"
#include "cm/state.h"

/* Who has all, as their primaries said, by id of the shard: a bit for each place in `filling` of the row in force; or who has
 * copied a shard that is split (split.h). */
struct fills {
    uint8_t filled[CLUSTER_MAX_SHARDS];
    uint64_t since_ns; /* some replica has been filling, as far as this manager saw; 0: none does */
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
    bool plans;           /* `plan` waits for an answer */
    uint32_t plan_tag;    /* of it */
    struct cm_plan plan;
};

/* A step sends a connection at most a reply, a refusal, an id, a configuration, and that it is committed. */
enum { MAX_ACTIONS = 5 * CM_MAX_CONNECTIONS + 16 };

struct cm_state {
    struct cm_state_options options;
    bool started, stopped, elected;
    bool fresh; /* has read since it was elected last */
    bool owed;  /* elected, and no other manager was named since: the one before has ended */
    bool leads; /* S10 */
    bool
        cut; /* the coordination service does not answer; this manager leads on as long as it can grant */
    uint64_t granting_ns; /* when it last could */
    struct claim claim;
    bool knows;     /* the stored value has been read once */
    bool must_read; /* what we know of the stored value may be old */
    bool reading, storing;

    struct cluster_config *config; /* in force */
    uint64_t version;              /* of the stored value that it is; 0: none stored */
    struct proposal proposal;      /* while storing */

    uint64_t now_ns;      /* of the last event */
    struct leases leases; /* if the configuration in force has some, and names this manager */
    uint32_t renewing;    /* connections whose Renew waits */
    uint32_t planning;    /* those whose plan waits */
    uint64_t
        failed_term; /* of the configuration that no failover is possible from, which was logged; 0: none */

    uint64_t asked_ns; /* when the last READ or STORE was asked for */
    bool looks;        /* since the last look for members and replicas to add the clock was read */
    uint64_t
        waits_term; /* of the configuration in which it was logged that a kept member waits; 0: none */
    struct fills fills;
    struct loads loads;
    struct balance balance;
    uint64_t dry_ns; /* when it was told last what a dry run would do first */
    bool weighs;     /* since the last decision of `balance` there was a report */
    /* By server: the last incarnation that was a member and is none any more, as far as this manager saw; 0: none. */
    uint64_t removed[CLUSTER_MAX_SERVER + 1];

    struct ids ids;
    struct recovery recovery;
    struct registrations registered; /* S6: servers that wait for a configuration that names them */
    uint32_t here;                   /* connections of members */
    /* S9: by position of the member, the incarnation that said last that it is formatted; 0: none */
    uint64_t holders[CLUSTER_MAX_MEMBERS];
    uint64_t warned_term; /* of the configuration whose unformatted servers were named; 0: none */
    struct connection connections[CM_MAX_CONNECTIONS];
    uint32_t connection_limit; /* above the highest ever opened */

    struct cm_output output;
    uint32_t waiting_for[CLUSTER_MAX_MEMBERS];
    char detail[CM_MAX_DETAIL_BYTES + 1];  /* of a refusal or a stop: one a step */
    char refusal[CM_MAX_DETAIL_BYTES + 1]; /* of a plan: one a step */
    /* Who is silent, what was done, what is committed, who joined, what fills, what has filled, what moved, what is planned,
     * who is out of reach. */
    char stories[9][CM_MAX_DETAIL_BYTES + 1];
    char warnings[2][CM_MAX_DETAIL_BYTES + 1];
    struct cm_action actions[MAX_ACTIONS];
};

#endif
