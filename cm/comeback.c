/* comeback.c - see comeback.h.
 *
 * Invariants of what it makes:
 *  B1 A shard that was kept has no replica that is kept, and none that does not return or run; or it waits on with those that
 *     it had.
 *  B2 Beside data that are whole none count that are in doubt.
 *  B3 A single replica that returns with whole data, while others are away, first runs beside them, and the shard waits. It serves
 *     alone when it has opened its data: it may end for good before that, and those that are away must still be replicas then.
 */
#include "cm/comeback.h"

#include <string.h>

#include "cm/led.h"
#include "cm/split.h"
#include "common/base/assert.h"

/* NULL: it is not among them. */
static const struct cm_join *report_of(const struct cm_join *const *joins, uint32_t count,
                                       uint32_t server)
{
    for (uint32_t i = 0; i < count; i++) {
        if (joins[i]->server == server)
            return joins[i];
    }
    return NULL;
}

/* Of one that runs, or returns. */
static const struct cm_join *here(const struct comeback *comeback, uint32_t server)
{
    const struct cm_join *join = report_of(comeback->joins, comeback->count, server);
    return join ? join : report_of(comeback->run, comeback->present, server);
}

/* What there is of a kept shard. */
struct brought {
    uint32_t found, at_hand; /* full replicas that run, came, or are given up; that run or return */
    bool absent, given;      /* one is kept and did not come; that is given up */
    bool awaited;            /* such a one may still come */
    bool lacks;              /* such a one is not given up */
    bool returns;            /* one does */
    uint32_t whole;          /* those with whole data that run or return */
    /* The best of those that run or return, of those that wait, that return, and that run. */
    enum join_quality here, away, back, runs;
};

static enum join_quality better(enum join_quality a, enum join_quality b)
{
    return a > b ? a : b;
}

/* Of a shard that is split the row of the parent counts. */
static bool shard_is_given_up(const struct comeback *comeback, const struct cluster_config *old,
                              const struct shard *shard)
{
    const struct shard *parent = cluster_parent(old, shard);
    return comeback->given_shard == (parent ? parent : shard)->id + 1u;
}

static struct brought look(const struct comeback *comeback, const struct cluster_config *old,
                           const struct shard *shard)
{
    struct brought brought = {0};
    uint32_t servers[CLUSTER_MAX_REPLICAS];
    const uint32_t count = shard_replicas(shard, servers);
    const bool whole = shard_is_given_up(comeback, old, shard);
    for (uint32_t i = 0; i < count; i++) {
        const struct cm_join *join = report_of(comeback->joins, comeback->came, servers[i]),
                             *at = here(comeback, servers[i]);
        const bool absent = !join && cluster_member(old, servers[i])->kept,
                   given = absent && (whole || comeback->given_server == servers[i]);
        brought.absent = brought.absent || absent;
        brought.lacks = brought.lacks || (absent && !given);
        brought.awaited =
            brought.awaited || (absent && !comeback->over[cluster_position(old, servers[i])]);
        brought.given = brought.given || whole || comeback->given_server == servers[i];
        brought.found += join || at || given;
        brought.at_hand += at != NULL;
        if (at) {
            const enum join_quality quality = join_quality(at, old, shard->id);
            brought.here = better(brought.here, quality);
            brought.whole += quality == JOIN_WHOLE;
            brought.runs = better(brought.runs, at == join ? JOIN_EMPTY : quality);
            brought.returns = brought.returns || at == join;
            brought.back = better(brought.back, at == join ? quality : JOIN_EMPTY);
        } else if (join) {
            brought.away = better(brought.away, join_quality(join, old, shard->id));
        }
    }
    return brought;
}

static bool can_serve(const struct comeback *comeback, const struct cluster_config *old,
                      const struct shard *shard)
{
    const struct brought brought = look(comeback, old, shard);
    const bool all = brought.found == 1 + shard->backup_count;
    const bool untried = comeback->mixes && brought.lacks && brought.whole == 1 &&
                         brought.runs < JOIN_WHOLE; /* B3 */
    if (shard->epoch == CLUSTER_MAX_EPOCH || untried)
        return false;
    if (brought.back == JOIN_WHOLE || (brought.here == JOIN_WHOLE && !brought.awaited))
        return true;
    return all && brought.at_hand && brought.here >= brought.away &&
           (brought.here > JOIN_EMPTY || brought.given);
}

/* Servers that hold the shard, which is not served, wait; but while others are away those with incomplete or whole data run beside
 * it (B3). True if one returned so far. */
static bool put_off(struct comeback *comeback, const struct cluster_config *old,
                    const struct shard *shard)
{
    const uint32_t before = comeback->count;
    const bool waits = comeback->mixes && shard->epoch < CLUSTER_MAX_EPOCH &&
                       look(comeback, old, shard).absent; /* B1 */
    for (uint32_t i = before; i > 0; i--) {
        const struct cm_join *join = comeback->joins[i - 1];
        const enum join_quality quality = join_quality(join, old, shard->id);
        if (!shard_is_full_at(shard, join->server) ||
            (waits && (quality == JOIN_INCOMPLETE || quality == JOIN_WHOLE)))
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
                again = put_off(comeback, old, shard) || again;
        }
    }
}

/* One that is given up leaves a shard that goes on waiting for another one. */
static bool is_dropped(const struct comeback *comeback, const struct cluster_config *old,
                       const struct shard *shard)
{
    uint32_t servers[CLUSTER_MAX_REPLICAS], others = 0;
    for (uint32_t i = shard_replicas(shard, servers); i > 0; i--)
        others += servers[i - 1] != comeback->given_server &&
                  cluster_member(old, servers[i - 1])->kept &&
                  !report_of(comeback->joins, comeback->count, servers[i - 1]);
    return comeback->given_server && others > 0 && shard->epoch < CLUSTER_MAX_EPOCH &&
           shard_is_full_at(shard, comeback->given_server) &&
           cluster_member(old, comeback->given_server)->kept &&
           !report_of(comeback->joins, comeback->count, comeback->given_server);
}

bool comeback_is_due(const struct comeback *comeback, const struct cluster_config *old)
{
    bool due = comeback->count > 0;
    for (uint32_t i = 0; i < old->shard_count && !due; i++)
        due = shard_is_kept(old, &old->shards[i]) && (can_serve(comeback, old, &old->shards[i]) ||
                                                      is_dropped(comeback, old, &old->shards[i]));
    return due;
}

struct work {
    const struct comeback *comeback;
    const struct cluster_config *old;
    struct cluster_config *config;
    struct led led;
};

/* B1, B2: of a shard that is served from now on, if its primary stays, or does not, as `stays` says. */
static void return_shard(struct work *work, struct shard *shard, bool stays)
{
    uint32_t servers[CLUSTER_MAX_REPLICAS], count = shard_replicas(shard, servers), left = 0;
    const enum join_quality best = look(work->comeback, work->old, shard).here;
    for (uint32_t i = 0; i < count; i++) {
        const struct cm_join *join = here(work->comeback, servers[i]);
        const enum join_quality quality =
            join ? join_quality(join, work->old, shard->id) : JOIN_EMPTY;
        if (join && (quality == best || quality >= JOIN_TORN))
            servers[left++] = servers[i];
    }
    if (left == 0 || (servers[0] == shard->primary) != stays)
        return;
    led_set(&work->led, shard, servers, left, left);
    shard_mend_move(shard);
    shard->possibly_incomplete = shard->possibly_incomplete || best < JOIN_TORN;
    shard->epoch++;
}

void comeback_keep(const struct cluster_config *config, struct shard *shard)
{
    if (cluster_member(config, shard->primary)->kept)
        return;
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        const uint32_t server = shard->backups[i];
        if (!cluster_member(config, server)->kept)
            continue;
        shard->backups[i] = shard->primary;
        shard->primary = server;
        shard->worker = 0;
        return;
    }
}

/* B1 */
static void wait_on(const struct work *work, struct shard *shard)
{
    const uint32_t given = work->comeback->given_server;
    const bool drops = is_dropped(work->comeback, work->old, shard);
    if (!drops && !look(work->comeback, work->old, shard).returns)
        return;
    uint32_t left = 0;
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        if (!drops || shard->backups[i] != given)
            shard->backups[left++] = shard->backups[i];
    }
    if (drops && shard->primary == given)
        shard->primary = shard->backups[--left];
    memset(&shard->backups[left], 0, (shard->backup_count - left) * sizeof shard->backups[0]);
    shard->backup_count = left;
    shard->worker = 0;
    comeback_keep(work->config, shard);
    shard->epoch++;
}

void comeback_drop_kept(struct cluster_config *config)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        bool named = !config->members[i].kept;
        for (uint32_t k = 0; k < config->shard_count && !named; k++)
            named = shard_names(&config->shards[k], config->members[i].server);
        if (named)
            config->members[left++] = config->members[i];
    }
    config->member_count = left;
}

void comeback_apply(const struct comeback *comeback, const struct cluster_config *old,
                    struct cluster_config *config)
{
    struct work work = {.comeback = comeback, .old = old, .config = config};
    if (!comeback_is_due(comeback, old))
        return;
    led_count(&work.led, config);
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct cm_join *join =
            report_of(comeback->joins, comeback->count, config->members[i].server);
        if (join)
            config->members[i] = join_member(join);
    }
    /* Those that keep their primary come first: the others go to who leads fewest then. */
    for (uint32_t pass = 0; pass < 3; pass++) {
        for (uint32_t i = 0; i < old->shard_count; i++) {
            if (!shard_is_kept(old, &old->shards[i]) ||
                config->shards[i].epoch != old->shards[i].epoch ||
                can_serve(comeback, old, &old->shards[i]) != (pass < 2))
                continue;
            if (pass < 2)
                return_shard(&work, &config->shards[i], pass == 0);
            else
                wait_on(&work, &config->shards[i]);
        }
    }
    split_follow(config);
}
