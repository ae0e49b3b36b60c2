/* One link per (server, incarnation, worker) that leads a shard. Links survive a change of the
 * configuration that does not concern them, so that it disturbs no operation in flight. */
#include "client/router.h"

#include <stdlib.h>
#include <string.h>

void router_init(struct router *router, struct fabric_endpoint *endpoint)
{
    *router = (struct router){.endpoint = endpoint};
}

void router_fini(struct router *router)
{
    for (struct worker_link *link = router->links; link; link = link->next)
        link->used = false;
    router_drop_unused(router);
    free(router->of_shard);
    cluster_release(router->config);
    *router = (struct router){0};
}

void router_drop_unused(struct router *router)
{
    for (struct worker_link **at = &router->links; *at;) {
        struct worker_link *link = *at;

        if (link->used) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        peer_close(&link->peer);
        free(link);
    }
}

/* The link, made if there is none. NULL: no memory. */
static struct worker_link *get_link(struct router *router, const struct member *member,
                                    uint32_t worker)
{
    struct worker_link *link = router->links;

    while (link &&
           !(link->peer.server == member->server && link->peer.incarnation == member->incarnation &&
             link->peer.index == worker && strcmp(link->peer.address, member->address) == 0))
        link = link->next;
    if (link)
        return link;
    link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    peer_init_member(&link->peer, router->endpoint, member, worker);
    link->peer.login = router->login;
    link->next = router->links;
    router->links = link;
    return link;
}

int router_adopt(struct router *router, struct cluster_config *config)
{
    struct worker_link **of_shard = calloc(config->shard_count, sizeof(struct worker_link *));

    if (!of_shard)
        return ROWAN_ENOMEM;
    for (struct worker_link *link = router->links; link; link = link->next)
        link->used = false;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];

        of_shard[i] = get_link(router, cluster_member(config, shard->primary), shard->worker);
        if (!of_shard[i]) {
            free(of_shard);
            return ROWAN_ENOMEM;
        }
        of_shard[i]->used = true;
    }
    free(router->of_shard);
    cluster_release(router->config);
    router->of_shard = of_shard;
    router->config = config;
    return 0;
}
