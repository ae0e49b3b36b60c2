/* One link per (server, incarnation, worker) that leads a shard. Links survive a change of the
 * configuration that does not concern them, so that it disturbs no operation in flight. */
#include "client/router.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"

void router_init(struct router *router, struct fabric_endpoint *endpoint)
{
    *router = (struct router){.endpoint = endpoint};
}

void router_fini(struct router *router)
{
    router_drop(router, router->link_count);
    free(router->links);
    free(router->of_shard);
    cluster_release(router->config);
    *router = (struct router){0};
}

void router_drop(struct router *router, uint32_t count)
{
    ASSERT(count <= router->link_count);
    while (count-- > 0) {
        struct worker_link *link = router->links[--router->link_count];

        peer_close(&link->peer);
        free(link);
    }
}

static struct worker_link *find_link(struct worker_link **links, uint32_t count,
                                     const struct member *member, uint32_t worker)
{
    for (uint32_t i = 0; i < count; i++) {
        struct worker_link *link = links[i];

        if (link->peer.server == member->server && link->peer.incarnation == member->incarnation &&
            link->peer.index == worker && strcmp(link->peer.address, member->address) == 0)
            return link;
    }
    return NULL;
}

static struct worker_link *make_link(const struct router *router, const struct member *member,
                                     uint32_t worker)
{
    struct worker_link *link = calloc(1, sizeof *link);

    if (!link)
        return NULL;
    peer_init_member(&link->peer, router->endpoint, member, worker);
    link->peer.login = router->login;
    return link;
}

/* Fills `of_shard`, adding the links that are missing. */
static int route_shards(struct router *router, const struct cluster_config *config,
                        struct worker_link **links, uint32_t *count, struct worker_link **of_shard)
{
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        const struct member *member = cluster_member(config, shard->primary);
        struct worker_link *link = find_link(links, *count, member, shard->worker);

        if (!link) {
            link = make_link(router, member, shard->worker);
            if (!link)
                return ROWAN_ENOMEM;
            links[(*count)++] = link;
        }
        link->used = true;
        of_shard[i] = link;
    }
    return 0;
}

/* The used ones first; returns how many are not used. */
static uint32_t part_links(struct worker_link **links, uint32_t count)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (links[i]->used) {
            struct worker_link *link = links[i];

            links[i] = links[used];
            links[used++] = link;
        }
    }
    return count - used;
}

int router_adopt(struct router *router, struct cluster_config *config, uint32_t *obsolete)
{
    uint32_t count = router->link_count;
    struct worker_link **links =
        calloc((size_t)count + config->shard_count, sizeof(struct worker_link *));
    struct worker_link **of_shard = calloc(config->shard_count, sizeof(struct worker_link *));

    if (!links || !of_shard)
        goto no_memory;
    for (uint32_t i = 0; i < count; i++) {
        links[i] = router->links[i];
        links[i]->used = false;
    }
    if (route_shards(router, config, links, &count, of_shard))
        goto no_memory;
    *obsolete = part_links(links, count);
    free(router->links);
    free(router->of_shard);
    cluster_release(router->config);
    router->links = links;
    router->link_count = count;
    router->of_shard = of_shard;
    router->config = config;
    return 0;

no_memory:
    for (uint32_t i = router->link_count; links && i < count; i++)
        free(links[i]);
    free(of_shard);
    free(links);
    return ROWAN_ENOMEM;
}
