/* loads.c - see loads.h. */
#include "cm/loads.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"

enum {
    MEAN_REPORTS = 4, /* the newest counts one of these parts */
    TURNED_PARTS =
        8,           /* and that part of a server's load has to be another shard's to be no noise */
    IDLE_PARTS = 20, /* of a core: what is known of a server that had less tells nothing */
    RATIO_ONE = 1 << 10,
};

#define TURNED_NS NS_PER_S

const struct load_member *loads_member(const struct loads *loads, const struct member *member)
{
    const struct load_member *known = &loads->members[member->server];
    return known->incarnation == member->incarnation ? known : NULL;
}

/* CLUSTER_MAX_REPLICAS: none is that server's. */
static uint32_t place_of(const struct load_shard *shard, uint32_t server)
{
    uint32_t place = 0;
    while (place < CLUSTER_MAX_REPLICAS && shard->at[place].server != server)
        place++;
    return place;
}

bool loads_knows(const struct loads *loads, uint16_t id, uint32_t server)
{
    return place_of(&loads->shards[id], server) < CLUSTER_MAX_REPLICAS;
}

uint32_t loads_at(const struct loads *loads, uint16_t id, uint32_t server)
{
    const uint32_t place = place_of(&loads->shards[id], server);
    return place < CLUSTER_MAX_REPLICAS ? loads->shards[id].at[place].load : 0;
}

static uint64_t bytes_at(const struct loads *loads, uint16_t id, uint32_t server)
{
    const uint32_t place = place_of(&loads->shards[id], server);
    return place < CLUSTER_MAX_REPLICAS ? loads->shards[id].at[place].bytes : 0;
}

uint64_t loads_bytes(const struct loads *loads, const struct shard *shard)
{
    return bytes_at(loads, shard->id, shard->primary);
}

static uint64_t above(uint64_t bytes, uint64_t most)
{
    return bytes > most ? bytes - most : 0;
}

/* What was begun, and had not arrived when the server reported last: a replica may have become full since. */
static uint64_t to_come(const struct loads *loads, const struct cluster_config *config,
                        uint32_t server)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        const uint64_t whole = loads_bytes(loads, shard);
        if (shard->split == SPLIT_PARENT && shard_names(shard, server))
            bytes += whole;
        else if (shard_names(shard, server) &&
                 (!shard_is_full_at(shard, server) ||
                  loads->members[server].told_ns <= loads->shards[shard->id].moved_ns))
            bytes += above(whole, bytes_at(loads, shard->id, server));
    }
    return bytes;
}

static bool left_within(const struct loads *loads, const struct load_member *known, uint64_t ns)
{
    return known->left_ns && loads->now_ns - known->left_ns < ns;
}

uint64_t loads_room(const struct loads *loads, const struct cluster_config *config,
                    const struct member *member)
{
    const struct load_member *known = loads_member(loads, member);
    if (!known || known->full || left_within(loads, known, LOADS_LEFT_NS))
        return 0;
    const uint64_t most = known->all_bytes / 100 * LOADS_FILLED_PERCENT,
                   room = known->all_bytes ? above(most, known->live_bytes) : known->free_bytes;
    return above(room, to_come(loads, config, member->server));
}

bool loads_is_short(const struct loads *loads, const struct member *member)
{
    const struct load_member *known = loads_member(loads, member);
    return known &&
           (known->full || known->live_bytes > known->all_bytes / 100 * LOADS_SHORT_PERCENT);
}

bool loads_must_shed(const struct loads *loads, const struct member *member)
{
    const struct load_member *known = loads_member(loads, member);
    return known && known->full && !left_within(loads, known, LOADS_SHED_NS);
}

bool loads_lack_space(const struct loads *loads, const struct cluster_config *config,
                      const struct member *member, const struct shard *shard)
{
    return loads_member(loads, member) &&
           loads_room(loads, config, member) <= loads_bytes(loads, shard);
}

static void set_at(struct load_shard *shard, uint32_t server, const struct load_row *row,
                   bool turned)
{
    const uint32_t load = row->load;
    uint32_t place = place_of(shard, server);
    const bool means = !turned && place < CLUSTER_MAX_REPLICAS;
    if (place == CLUSTER_MAX_REPLICAS)
        place = place_of(shard, 0); /* loads_follow frees those of who holds it no more */
    ASSERT(place < CLUSTER_MAX_REPLICAS);
    const uint64_t known = shard->at[place].load;
    shard->at[place].load =
        means ? (uint32_t)(((MEAN_REPORTS - 1) * known + load) / MEAN_REPORTS) : load;
    shard->at[place].newest = load;
    shard->at[place].bytes = row->bytes;
    shard->at[place].server = server;
}

/* The shard that a row is about, if it is held by that server in that epoch. */
static const struct shard *shard_of(const struct cluster_config *config, uint32_t server,
                                    const struct load_row *row)
{
    const struct shard *shard = cluster_shard(config, row->shard);
    return shard && shard->epoch == row->epoch && shard_names(shard, server) ? shard : NULL;
}

struct ratio {
    uint64_t known, changed;
};

static int compare_ratios(const void *a, const void *b)
{
    const struct ratio *left = a, *right = b;
    return left->changed < right->changed ? -1 : left->changed > right->changed;
}

/* By what factor, in parts of RATIO_ONE, the load of that server has changed: the median, each shard weighed by its load.
 * UINT64_MAX: the server was idle. */
static uint64_t changed_by(const struct loads *loads, const struct cluster_config *config,
                           uint32_t server, const struct load_report *report)
{
    struct ratio ratios[CLUSTER_MAX_SHARDS];
    uint32_t count = 0, at = 0;
    uint64_t all = 0, passed = 0;
    for (uint32_t i = 0; i < report->count && count < CLUSTER_MAX_SHARDS; i++) {
        const struct load_row *row = &report->rows[i];
        const struct shard *shard = shard_of(config, server, row);
        const uint64_t known = shard ? loads_at(loads, shard->id, server) : 0;
        if (known)
            ratios[count++] = (struct ratio){known, (uint64_t)row->load * RATIO_ONE / known};
        all += known;
    }
    qsort(ratios, count, sizeof *ratios, compare_ratios);
    if (all < LOAD_CORE / IDLE_PARTS)
        return UINT64_MAX;
    while (at < count && 2 * (passed += ratios[at].known) < all)
        at++;
    return ratios[at].changed;
}

/* Has a shard become more than twice as hot as others of its server? */
static bool has_turned(const struct loads *loads, const struct cluster_config *config,
                       uint32_t server, const struct load_report *report)
{
    const uint64_t ratio = changed_by(loads, config, server, report);
    uint64_t all = 0, most = 0;
    if (ratio == UINT64_MAX)
        return false;
    for (uint32_t i = 0; i < report->count; i++) {
        const struct load_row *row = &report->rows[i];
        const struct shard *shard = shard_of(config, server, row);
        if (!shard || !loads_knows(loads, shard->id, server))
            continue;
        const uint64_t expected = loads_at(loads, shard->id, server) * ratio / RATIO_ONE;
        all += row->load;
        if (row->load > 2 * expected && row->load - expected > most)
            most = row->load - expected;
    }
    return most * TURNED_PARTS > all;
}

bool loads_turned(const struct loads *loads, uint64_t now_ns)
{
    return loads->turned_ns && now_ns - loads->turned_ns < TURNED_NS;
}

static void count_newest(struct loads *loads)
{
    for (uint32_t i = 0; i < CLUSTER_MAX_SHARDS; i++) {
        for (uint32_t k = 0; k < CLUSTER_MAX_REPLICAS; k++)
            loads->shards[i].at[k].load = loads->shards[i].at[k].newest;
    }
}

void loads_told(struct loads *loads, const struct cluster_config *config, uint32_t server,
                const struct load_report *report, uint64_t now_ns)
{
    const struct member *member = cluster_member(config, server);
    loads->now_ns = now_ns;
    if (!member)
        return; /* it was removed meanwhile */
    const struct load_member *known = loads_member(loads, member);
    loads->members[server] = (struct load_member){.incarnation = member->incarnation,
                                                  .told_ns = now_ns,
                                                  .cores = report->cores ? report->cores : 1,
                                                  .free_bytes = report->free_bytes,
                                                  .live_bytes = report->live_bytes,
                                                  .all_bytes = report->all_bytes,
                                                  .full = report->full,
                                                  .left_ns = known ? known->left_ns : 0};
    if (has_turned(loads, config, server, report)) {
        count_newest(loads);
        loads->turned_ns = now_ns;
    }
    const bool turned = loads_turned(loads, now_ns);
    for (uint32_t i = 0; i < report->count; i++) {
        const struct load_row *row = &report->rows[i];
        const struct shard *shard = shard_of(config, server, row);
        if (!shard)
            continue;
        struct load_shard *at = &loads->shards[shard->id];
        set_at(at, server, row, turned);
        if (shard->primary == server)
            at->split =
                row->split > shard->first_slot && row->split <= shard->last_slot ? row->split : 0;
    }
}

/* Who leads takes the load of leading over from who led, and the other way round. */
static void swap(struct load_shard *shard, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < CLUSTER_MAX_REPLICAS; i++) {
        const uint32_t server = shard->at[i].server;
        shard->at[i].server = server == from ? to : server == to ? from : server;
    }
}

static bool changed(const struct shard *before, const struct shard *after)
{
    bool same = before->primary == after->primary && before->worker == after->worker &&
                before->backup_count == after->backup_count &&
                before->filling_count == after->filling_count;
    for (uint32_t i = 0; same && i < after->backup_count; i++)
        same = shard_has_backup(before, after->backups[i]);
    for (uint32_t i = 0; same && i < after->filling_count; i++)
        same = shard_names(before, after->filling[i]);
    return !same;
}

/* Whose place is another one's now, and who left because it had no space. */
static void forget_leavers(struct loads *loads, const struct cluster_config *config,
                           const struct shard *row)
{
    struct load_shard *shard = &loads->shards[row->id];
    for (uint32_t k = 0; k < CLUSTER_MAX_REPLICAS; k++) {
        const uint32_t server = shard->at[k].server;
        const struct member *member = server ? cluster_member(config, server) : NULL;
        if (server == 0 || shard_names(row, server))
            continue;
        if (member && loads_is_short(loads, member))
            loads->members[server].left_ns = loads->now_ns;
        memset(&shard->at[k], 0, sizeof shard->at[k]);
    }
}

void loads_follow(struct loads *loads, const struct cluster_config *before,
                  const struct cluster_config *config, uint64_t now_ns)
{
    loads->now_ns = now_ns;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *now = &config->shards[i], *old = cluster_shard(before, now->id);
        struct load_shard *shard = &loads->shards[now->id];
        if (!old)
            *shard = (struct load_shard){0};
        if (!old || !changed(old, now))
            continue;
        shard->moved_ns = now_ns;
        if (old->primary != now->primary)
            swap(shard, old->primary, now->primary);
        forget_leavers(loads, config, now);
    }
}
