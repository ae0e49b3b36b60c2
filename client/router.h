/* router.h - from a slot to the connection of the worker that owns its shard. */
#ifndef CLIENT_ROUTER_H
#define CLIENT_ROUTER_H

#include "client/op.h"
#include "client/peer.h"

/* A worker of a server, and the operations that wait to be sent to it. */
struct worker_link {
    struct peer peer;
    struct op_list queue;
    uint32_t owed;         /* answers: its operations that are SENT */
    uint32_t silent_polls; /* that held the queue back, since it last answered */
    bool urgent;           /* one of the queue is: it is not held back */
    bool stalled;          /* the peer has no room: try again */
    bool used;             /* by the configuration */
    struct worker_link *next;
};

struct router {
    struct fabric_endpoint *endpoint;
    struct login_secret *login;    /* as of its peers (peer.h) */
    struct cluster_config *config; /* NULL: none yet */
    struct worker_link *links;
    struct worker_link **of_shard; /* by the shard's position in the configuration */
};

void router_init(struct router *router, struct fabric_endpoint *endpoint);
void router_fini(struct router *router);

/* router_adopt: routes by `config` from now on and takes over the caller's reference. Links that it does not need any
 * more are not `used`, and connected as they were, until router_drop_unused. Errors: ROWAN_ENOMEM (routes are as before, the
 * reference stays the caller's). */
int router_adopt(struct router *router, struct cluster_config *config);

/* Closes and forgets the links that are not used. No operation names them any more. */
void router_drop_unused(struct router *router);

static inline const struct shard *router_shard(const struct router *router, uint16_t slot)
{
    return cluster_shard_of_slot(router->config, slot);
}

static inline struct worker_link *router_link(const struct router *router, uint16_t slot)
{
    return router->of_shard[router->config->shard_of_slot[slot]];
}

#endif
