/* comeback.c - see comeback.h.
 *
 * Invariant of what it makes:
 *  B1 A shard that was kept has no replica that is kept, or is as it was.
 */
#include "cm/comeback.h"

#include "cm/led.h"
#include "cm/split.h"
#include "common/base/assert.h"

/* Among the first `count`; NULL: it is not. */
static const struct cm_join *report_of(const struct comeback *comeback, uint32_t count,
                                       uint32_t server)
{
    for (uint32_t i = 0; i < count; i++) {
        if (comeback->joins[i]->server == server)
            return comeback->joins[i];
    }
    return NULL;
}

static const struct cm_join *return_of(const struct comeback *comeback, uint32_t server)
{
    return report_of(comeback, comeback->count, server);
}

/* How many of its full replicas are among the first `count`, and the best data that they bring. */
static uint32_t brought(const struct comeback *comeback, uint32_t count,
                        const struct cluster_config *old, const struct shard *shard,
                        enum join_quality *best)
{
    uint32_t servers[CLUSTER_MAX_REPLICAS], replicas = shard_replicas(shard, servers), found = 0;
    *best = JOIN_EMPTY;
    for (uint32_t i = 0; i < replicas; i++) {
        const struct cm_join *join = report_of(comeback, count, servers[i]);
        if (!join)
            continue;
        found++;
        const enum join_quality quality = join_quality(join, old, shard->id);
        *best = quality > *best ? quality : *best;
    }
    return found;
}

static bool can_serve(const struct comeback *comeback, const struct cluster_config *old,
                      const struct shard *shard)
{
    enum join_quality best, best_of_all;
    brought(comeback, comeback->count, old, shard, &best);
    const uint32_t came = brought(comeback, comeback->came, old, shard, &best_of_all);
    return shard->epoch < CLUSTER_MAX_EPOCH &&
           (best == JOIN_WHOLE ||
            (came == 1 + shard->backup_count && best == best_of_all && best != JOIN_EMPTY));
}

/* Those that hold it wait. True if one returned so far. */
static bool put_off(struct comeback *comeback, const struct shard *shard)
{
    const uint32_t before = comeback->count;
    for (uint32_t i = before; i > 0; i--) {
        const struct cm_join *join = comeback->joins[i - 1];
        if (!shard_is_full_at(shard, join->server))
            continue;
        comeback->joins[i - 1] = comeback->joins[--comeback->count];
        comeback->joins[comeback->count] = join;
    }
    return comeback->count < before;
}

void comeback_admit(struct comeback *comeback, const struct cluster_config *old)
{
    comeback->count = comeback->came;
    for (bool again = comeback->count > 0; again;) {
        again = false;
        for (uint32_t i = 0; i < old->shard_count; i++) {
            const struct shard *shard = &old->shards[i];
            if (shard_is_kept(old, shard) && !can_serve(comeback, old, shard))
                again = put_off(comeback, shard) || again;
        }
    }
}

struct work {
    const struct comeback *comeback;
    const struct cluster_config *old;
    struct led led;
};

/* B1 */
static void return_shard(struct work *work, struct shard *shard)
{
    uint32_t servers[CLUSTER_MAX_REPLICAS], count = shard_replicas(shard, servers), left = 0;
    enum join_quality best;
    if (brought(work->comeback, work->comeback->count, work->old, shard, &best) == 0)
        return;
    ASSERT(best != JOIN_EMPTY); /* comeback_admit */
    for (uint32_t i = 0; i < count; i++) {
        const struct cm_join *join = return_of(work->comeback, servers[i]);
        if (join && join_quality(join, work->old, shard->id) == best)
            servers[left++] = servers[i];
    }
    led_set(&work->led, shard, servers, left);
    shard_mend_move(shard);
    shard->possibly_incomplete = shard->possibly_incomplete || best == JOIN_INCOMPLETE;
    shard->epoch++;
}

void comeback_apply(const struct comeback *comeback, const struct cluster_config *old,
                    struct cluster_config *config)
{
    struct work work = {.comeback = comeback, .old = old};
    if (comeback->count == 0)
        return;
    led_count(&work.led, config);
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct cm_join *join = return_of(comeback, config->members[i].server);
        if (join)
            config->members[i] = join_member(join);
    }
    for (uint32_t i = 0; i < old->shard_count; i++) {
        if (shard_is_kept(old, &old->shards[i]))
            return_shard(&work, &config->shards[i]);
    }
    split_follow(config);
}
