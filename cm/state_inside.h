/* state_inside.h - what the state holds: state.c alone includes it. */
#ifndef CM_STATE_INSIDE_H
#define CM_STATE_INSIDE_H

#include "cm/ids.h"
#include "cm/proposal.h"
#include "cm/recovery.h"
#include "cm/registrations.h"
#include "cm/state.h"

struct connection {
    bool open;
    bool subscribed;      /* asked for the configuration: is sent later ones */
    bool member;          /* its Join named an incarnation that is in force */
    bool has_data;        /* its last Join says so */
    uint32_t server;      /* that joined by it, a member or registered; 0: none */
    uint32_t join_tag;    /* of its last Join */
    uint64_t incarnation; /* of that server */
    uint64_t known_term;  /* of the newest configuration sent to it, or known to it */
};

/* A step sends a connection at most a reply, a refusal, an id and a configuration. */
enum { MAX_ACTIONS = 4 * CM_MAX_CONNECTIONS + 8 };

struct cm_state {
    struct cm_state_options options;
    bool started, stopped, elected;
    bool leads;     /* S10: elected, and has read since */
    bool knows;     /* the stored value has been read once */
    bool must_read; /* what we know of the stored value may be old */
    bool reading, storing;

    struct cluster_config *config; /* in force */
    uint64_t version;              /* of the stored value that it is; 0: none stored */
    struct proposal proposal;      /* while storing */

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
    char detail[CM_MAX_DETAIL_BYTES + 1]; /* of a refusal or a stop: one a step */
    char warnings[2][CM_MAX_DETAIL_BYTES + 1];
    struct cm_action actions[MAX_ACTIONS];
};

#endif
