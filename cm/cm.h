/* cm.h - the configuration manager as a role: carries events from the fabric and the coordination
 * service to the pure state, and its actions back. Everything that differs between a process and
 * the simulator comes in from outside.
 */
#ifndef CM_CM_H
#define CM_CM_H

#include "cm/state.h"
#include "common/coord/coord.h"
#include "common/fabric/fabric.h"
#include "common/reactor/reactor.h"

struct cm;
struct config_live;
struct metrics;

/* The CM cannot go on (`detail` is a sentence); called at most once, from cm_poll, which does
 * nothing any more from then on. Must not destroy the CM. */
typedef void cm_failed(void *context, int error, const char *detail);

struct cm_options {
    struct cm_state_options state; /* its incarnation is for handshakes, too */
    struct fabric *fabric; /* has an address; the CM opens its endpoint 0. Outlives the CM */
    const char *address;   /* of that; outlives the CM; NULL: nobody is told of it */
    struct coord *coord;   /* nobody else's. Closed by the caller, after cm_destroy */
    const struct scram_verifier *
        servers; /* of the key that servers must have; outlives the CM; NULL: none (common/cluster/login.h) */
    cm_failed *failed; /* may be NULL */
    void *failed_context;
    struct config_live *settings; /* of the process; NULL: none changes while it runs */
    struct metrics
        *metrics; /* that the role adds to and looks after; outlives it; NULL: nobody asks */
};

/* cm_create: reads the stored configuration and stands for election, both from cm_poll on.
 * Errors: ROWAN_EINVALID, ROWAN_ENOMEM, and those of fabric_endpoint_open and coord_read. */
int cm_create(const struct cm_options *options, struct cm **out);

/* Closes the endpoint and all connections. After it coord_poll must not be called. NULL is fine. */
void cm_destroy(struct cm *cm);

/* cm_tune: as cm_state_tune. On the owner's thread. */
void cm_tune(struct cm *cm, const struct cm_state_options *state);

/* A poll_function; `role` is the struct cm. Polls the coordination service too. */
enum poll_result cm_poll(void *role, uint64_t now_ns, uint64_t *wake_ns);

/* How a reactor sleeps on it. */
void cm_source(struct cm *cm, struct event_source *out);

/* For tools, tests and the simulator: the configuration in force (NULL: none) and what failed (0:
 * nothing). On the owner's thread; valid until the next cm_poll. */
const struct cluster_config *cm_config(const struct cm *cm);
int cm_error(const struct cm *cm);

#endif
