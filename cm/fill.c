/* fill.c - see fill.h.
 *
 * Invariants of what it makes:
 *  G1 A replica becomes full only if it filled in the row that is in force and has all; a full one stays full, if the shard was
 *     not kept.
 *  G2 A shard that changed has a higher epoch; one that did not is as it was.
 *  G3 A shard that is not kept has a full replica of before as its primary, and loses a full one only if it has as many as are
 *     wanted without it, or if its primary, which is here and goes on, does not reach it, or if that has no space and two others
 *     stay (G4), or as G6 says.
 *  G4 Space comes first. Nobody fills who has not said that all fits that is to come, this shard too; who runs short leaves
 *     what it fills, and a full server one shard at a time that it backs. Too few replicas are better than a shard that takes
 *     no puts.
 *  G5 A primary that reaches nobody may be the one with the bad link. If a full backup is reached by all others, and reaches some
 *     itself, the two swap roles: what it says of its own sends then decides who leaves.
 *  G6 A primary that could not read an entry and a full backup of which nobody knows such a thing swap roles. A backup that could not
 *     read one is made no primary, and beside a primary that could it leaves when another has filled, as what else is damaged at
 *     either nobody knows. If nobody else can fill, it fills anew itself, one of a shard at a time. It leaves a shard that is split at
 *     once, as it cannot copy that to the children. Both only beside two that could: what the primary can read is only known
 *     when somebody was filled from it. As long as the primary is such a one, no full replica within its reach
 *     leaves: it may have what the primary cannot read.
 */
#include "cm/fill.h"

#include <string.h>

#include "cm/led.h"
#include "cm/split.h"
#include "common/base/assert.h"

struct work {
    const struct fill_from *from;
    const struct cluster_config *config;
    const struct shard *old; /* the shard as it was */
    struct led led;
    struct place {
        uint32_t held; /* shards that it is a replica of */
        uint64_t room; /* G4: in bytes, what is to come subtracted */
        bool told, short_of, sheds;
        bool reaches, fails;       /* G5: some replica of a shard that it leads; another one */
    } places[CLUSTER_MAX_MEMBERS]; /* by position of the member */
    uint32_t lacking;              /* shards that nobody has the space to fill */
};

static struct place *place_of(struct work *work, uint32_t server)
{
    return &work->places[cluster_position(work->config, server)];
}

static bool may_change(const struct cluster_config *config, const struct shard *shard)
{
    return shard->epoch < CLUSTER_MAX_EPOCH && !shard_is_kept(config, shard) &&
           shard->split != SPLIT_ENDED && !cluster_parent(config, shard); /* split_follow */
}

static bool is_cut(const struct work *work, const struct shard *shard, uint32_t server)
{
    return work->from->leases && server != shard->primary &&
           leases_are_cut(work->from->leases, shard->primary, server);
}

/* G5 */
static bool is_apart(struct work *work, const struct shard *shard)
{
    const struct place *place = place_of(work, shard->primary);
    return place->fails && !place->reaches;
}

/* G5. The backup is reached by all but the primary, and reaches some. */
static bool is_sound(struct work *work, const struct shard *shard, uint32_t server)
{
    bool sound = place_of(work, server)->reaches;
    for (uint32_t i = 0; i < work->config->member_count && sound; i++) {
        const uint32_t other = work->config->members[i].server;
        sound = other == shard->primary || !leases_are_cut(work->from->leases, other, server);
    }
    return sound;
}

/* G6 */
static bool is_damaged(const struct work *work, const struct shard *shard, uint32_t server)
{
    const struct comeback *back = &work->from->back;
    uint32_t at = 0;
    while (at < back->present && back->run[at]->server != server)
        at++;
    return at < back->present && damage_was_found(&back->run[at]->damage, shard->id);
}

/* G6. It was a full backup before, and is to be replaced. */
static bool is_spoiled(const struct work *work, const struct shard *shard, uint32_t server)
{
    return shard_has_backup(work->old, server) && is_damaged(work, shard, server) &&
           !is_damaged(work, shard, shard->primary);
}

/* Into the order of members. */
static void add_members(const struct fill_from *from, struct cluster_config *config)
{
    uint32_t count = from->old->member_count;
    for (uint32_t i = 0; i < from->join_count; i++) {
        uint32_t at = count++;
        for (; at > 0 && config->members[at - 1].server > from->joins[i]->server; at--)
            config->members[at] = config->members[at - 1];
        config->members[at] = join_member(from->joins[i]);
    }
    ASSERT(count == config->member_count);
}

/* G1 */
static bool end_filling(struct shard *shard, uint8_t filled)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < shard->filling_count; i++) {
        if (filled >> i & 1)
            shard->backups[shard->backup_count++] = shard->filling[i];
        else
            shard->filling[left++] = shard->filling[i];
    }
    const bool changed = left < shard->filling_count;
    memset(&shard->filling[left], 0, (shard->filling_count - left) * sizeof shard->filling[0]);
    shard->filling_count = left;
    return changed;
}

/* It is not drained, nor to leave in favour of another one. */
static bool may_stay(const struct work *work, const struct shard *shard, uint32_t server)
{
    return cluster_wants(work->config, server) && server != shard->move_from;
}

/* And it is within reach, and need not be replaced. */
static bool lasts(const struct work *work, const struct shard *shard, uint32_t server)
{
    return may_stay(work, shard, server) && !is_cut(work, shard, server) &&
           !is_spoiled(work, shard, server);
}

/* Of the full ones. */
static uint32_t count_lasting(const struct work *work, const struct shard *shard)
{
    uint32_t lasting = lasts(work, shard, shard->primary);
    for (uint32_t i = 0; i < shard->backup_count; i++)
        lasting += lasts(work, shard, shard->backups[i]);
    return lasting;
}

/* Leaves of those within reach the ones that are to go, if `leavers` says so, and the first `most` others, in their order; how
 * many. Who was the primary stays for the time being. */
static uint32_t keep(const struct work *work, const struct shard *shard, uint32_t *servers,
                     uint32_t count, bool leavers, uint32_t most)
{
    const bool splits = shard->split == SPLIT_PARENT && count_lasting(work, shard) >= 2; /* G6 */
    uint32_t left = 0, others = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool stays = leavers && !is_cut(work, shard, servers[i]) &&
                     !(splits && is_spoiled(work, shard, servers[i]));
        if (lasts(work, shard, servers[i]))
            stays = others++ < most;
        if (stays || servers[i] == work->old->primary)
            servers[left++] = servers[i];
    }
    memset(&servers[left], 0, (count - left) * sizeof servers[0]);
    return left;
}

/* G3 */
static bool drop_replicas(const struct work *work, struct shard *shard)
{
    const uint32_t before = shard->backup_count + shard->filling_count,
                   wanted = work->config->replicas, primary = lasts(work, shard, shard->primary),
                   full = count_lasting(work, shard);
    const bool damaged = is_damaged(work, shard, shard->primary); /* G6 */
    shard->backup_count =
        keep(work, shard, shard->backups, shard->backup_count, damaged || full < wanted,
             damaged ? CLUSTER_MAX_REPLICAS : wanted - primary);
    shard->filling_count = keep(work, shard, shard->filling, shard->filling_count, false,
                                full < wanted ? wanted - full : 0);
    shard_mend_move(shard);
    return shard->backup_count + shard->filling_count < before;
}

/* Of a shard that is split nothing changes but this: its epoch might never end, and its children wait for that. */
static bool drop_cut(const struct work *work, struct shard *shard)
{
    const uint32_t before = shard->backup_count;
    shard->backup_count =
        keep(work, shard, shard->backups, shard->backup_count, true, CLUSTER_MAX_REPLICAS);
    shard_mend_move(shard);
    return shard->backup_count < before;
}

/* G3: with one that was full before; that of a move with the one that comes for it. */
static bool swap_roles(struct work *work, struct shard *shard)
{
    const bool drained = !cluster_wants(work->config, shard->primary);
    uint32_t able[CLUSTER_MAX_REPLICAS], count = 0;
    const bool apart = is_apart(work, shard), damaged = is_damaged(work, shard, shard->primary);
    if (may_stay(work, shard, shard->primary) && !apart && !damaged)
        return false;
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        const uint32_t server = shard->backups[i];
        const bool leads = drained || damaged || server == shard->move_to;
        if (!is_damaged(work, shard, server) && shard_has_backup(work->old, server) &&
            may_stay(work, shard, server) &&
            ((leads && !is_cut(work, shard, server)) || (apart && is_sound(work, shard, server))))
            able[count++] = server;
    }
    if (count == 0)
        return false;
    led_swap(&work->led, shard, able[led_fewest(&work->led, able, count)]);
    return true;
}

/* If it is one. */
static void drop_backup(struct shard *shard, uint32_t server)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        if (shard->backups[i] != server)
            shard->backups[left++] = shard->backups[i];
    }
    memset(&shard->backups[left], 0, (shard->backup_count - left) * sizeof shard->backups[0]);
    shard->backup_count = left;
}

/* G4: keep those in their order that are not short; a full one goes if two others stay, and none has from that server. */
static bool drop_short(struct work *work, struct shard *shard)
{
    const uint32_t before = shard->backup_count + shard->filling_count;
    uint32_t left = 0;
    for (uint32_t i = 0; i < shard->filling_count; i++) {
        if (!place_of(work, shard->filling[i])->short_of)
            shard->filling[left++] = shard->filling[i];
    }
    memset(&shard->filling[left], 0, (shard->filling_count - left) * sizeof shard->filling[0]);
    shard->filling_count = left;
    const bool damaged = is_damaged(work, shard, shard->primary); /* G6 */
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        struct place *place = place_of(work, shard->backups[i]);
        if (!place->sheds || damaged || !shard_has_backup(work->old, shard->backups[i]) ||
            count_lasting(work, shard) < 2U + lasts(work, shard, shard->backups[i]))
            continue;
        place->sheds = false;
        drop_backup(shard, shard->backups[i]);
    }
    shard_mend_move(shard);
    return shard->backup_count + shard->filling_count < before;
}

/* G4. Of those with at least half of the most room, the one that is a replica of fewest; or a full backup, as G6 says. NULL: nobody
 * can. */
static struct place *choose(struct work *work, const struct shard *shard, uint32_t *server)
{
    const struct cluster_config *config = work->config;
    const struct loads *loads = work->from->loads;
    const uint64_t bytes = loads ? loads_bytes(loads, shard) : 0;
    struct place *able[CLUSTER_MAX_MEMBERS], *best = NULL;
    uint32_t count = 0;
    uint64_t most = 0;
    bool short_of = false;
    if (loads && !loads_knows(loads, shard->id, shard->primary))
        return NULL;
    for (uint32_t i = 0; i < config->member_count; i++) {
        struct place *place = &work->places[i];
        const uint32_t other = config->members[i].server;
        if (config->members[i].kept || shard_names(shard, other) || !lasts(work, shard, other))
            continue;
        short_of = short_of || place->told;
        if (place->room <= bytes)
            continue;
        able[count++] = place;
        most = place->room > most ? place->room : most;
    }
    const bool none = count + shard->filling_count == 0 && count_lasting(work, shard) >= 2;
    for (uint32_t i = 0; i < shard->backup_count && none; i++) {
        const uint32_t other = shard->backups[i]; /* G6 */
        if (place_of(work, other)->room > bytes && may_stay(work, shard, other) &&
            is_spoiled(work, shard, other) && !is_cut(work, shard, other))
            able[count++] = place_of(work, other);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (able[i]->room >= most / 2 && (!best || able[i]->held < best->held))
            best = able[i];
    }
    work->lacking += !best && short_of;
    if (!best)
        return NULL;
    *server = config->members[best - work->places].server;
    best->room -= loads ? bytes : 0;
    return best;
}

/* False: there are enough, or nobody is left that could. */
static bool begin_filling(struct work *work, struct shard *shard)
{
    const struct cluster_config *config = work->config;
    if (count_lasting(work, shard) + shard->filling_count >= config->replicas ||
        shard->backup_count + shard->filling_count == CLUSTER_MAX_REPLICAS - 1)
        return false;
    uint32_t server;
    struct place *place = choose(work, shard, &server);
    if (!place)
        return false;
    drop_backup(shard, server);
    place->held++;
    shard->filling[shard->filling_count++] = server;
    return true;
}

/* The one that came has all, and the one that was to leave for it is needed still: then it stays. Else a drained one, which can
 * only leave because of it, would never. */
static bool end_move(struct shard *shard)
{
    if (shard->move_to == 0 || shard->filling_count > 0)
        return false;
    shard->move_from = shard->move_to = 0;
    return true;
}

/* True if it changed. */
static bool arrange(struct work *work, const struct shard *old, struct shard *shard, uint8_t filled)
{
    work->old = old;
    if (shard->split == SPLIT_PARENT)
        return drop_cut(work, shard);
    bool changed = end_filling(shard, filled);
    changed = swap_roles(work, shard) || changed;
    changed = drop_replicas(work, shard) || changed;
    changed = drop_short(work, shard) || changed;
    while (begin_filling(work, shard))
        changed = true;
    return changed || end_move(shard);
}

static void look_at_members(struct work *work)
{
    const struct cluster_config *config = work->config;
    const struct loads *loads = work->from->loads;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct member *member = &config->members[i];
        work->places[i].room = loads ? loads_room(loads, config, member) : UINT64_MAX;
        work->places[i].told = loads && loads_member(loads, member);
        work->places[i].short_of = loads && loads_is_short(loads, member);
        work->places[i].sheds = loads && loads_must_shed(loads, member);
    }
}

static void look_at_shards(struct work *work)
{
    const struct cluster_config *config = work->config;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        for (uint32_t m = 0; m < config->member_count; m++) {
            const uint32_t server = config->members[m].server;
            struct place *primary = place_of(work, shard->primary);
            if (!shard_names(shard, server))
                continue;
            work->places[m].held++;
            if (is_cut(work, shard, server))
                primary->fails = true;
            else if (server != shard->primary)
                primary->reaches = true;
        }
    }
}

static void begin(struct work *work, const struct fill_from *from,
                  const struct cluster_config *config)
{
    *work = (struct work){.from = from, .config = config};
    led_count(&work->led, config);
    look_at_members(work);
    look_at_shards(work);
}

/* What it becomes is left to the second time, when it is known who holds how many. */
static bool is_due(const struct fill_from *from)
{
    const struct cluster_config *old = from->old;
    struct work work;
    begin(&work, from, old);
    bool due = from->join_count > 0 || comeback_is_due(&from->back, old) ||
               split_is_due(old, from->filled);
    for (uint32_t i = 0; i < old->shard_count && !due; i++) {
        struct shard shard = old->shards[i];
        due = may_change(old, &old->shards[i]) &&
              arrange(&work, &old->shards[i], &shard, from->filled[shard.id]);
    }
    if (!due && from->lacking)
        *from->lacking = work.lacking;
    return due;
}

struct cluster_config *fill_make(const struct fill_from *from)
{
    if (!is_due(from))
        return NULL;
    struct cluster_config *config = cluster_copy_for(
        from->old, from->old->member_count + from->join_count, from->old->shard_count);
    if (!config)
        return NULL;
    struct work work;
    config->term++;
    add_members(from, config);
    comeback_apply(&from->back, from->old, config);
    begin(&work, from, config);
    for (uint32_t i = 0; i < config->shard_count; i++) {
        struct shard *shard = &config->shards[i];
        if (may_change(config, shard) &&
            arrange(&work, &from->old->shards[i], shard, from->filled[shard->id]) &&
            shard->epoch == from->old->shards[i].epoch)
            shard->epoch++; /* G2 */
    }
    split_follow(config);
    split_advance(from->old, config, from->filled);
    comeback_drop_kept(config);
    return cluster_finished(config); /* join_is_right checked each report */
}
