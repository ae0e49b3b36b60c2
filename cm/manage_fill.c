/* manage_fill.c - when members and replicas are added (fill.h), and which.
 *
 * Invariants:
 *  M4 Nothing is added before the configuration in force is committed, nor while a member is not known to be present: else
 *     a cold start may be coming, or somebody is about to be removed.
 *  M5 A server is added, or is back, only if it reported in this registration epoch, and a moment ago, or all would wait for one
 *     that has ended. One that was removed, or kept, again and again waits first (lease.c, L5), but for a start.
 */
#include "cm/fill.h"
#include "cm/refusal.h"
#include "cm/split.h"
#include "cm/state_inside.h"
#include "cm/story.h"
#include "common/base/version.h"

/* M5. Servers report ten times a second. */
#define MOMENT_NS NS_PER_S

void manage_filled(struct cm_state *state, const struct cm_event *event)
{
    const struct connection *peer = &state->connections[event->connection];
    const struct shard *row = peer->member ? cluster_shard(state->config, event->shard) : NULL;
    if (!row || row->epoch != event->epoch)
        return;
    uint8_t *filled = &state->fills.filled[row->id];
    if (row->split == SPLIT_PARENT && row->primary == peer->server)
        *filled |= SPLIT_COPIED_PRIMARY;
    for (uint32_t i = 0; row->split == SPLIT_PARENT && i < row->backup_count; i++)
        *filled |= (uint8_t)((row->backups[i] == peer->server) << i);
    for (uint32_t i = 0; row->primary == peer->server && i < row->filling_count; i++)
        *filled |= (uint8_t)((row->filling[i] == event->server) << i);
}

_Static_assert(CLUSTER_MAX_REPLICAS - 1 <= 8, "a bit for each replica that fills");

/* M5 */
static bool is_fresh(const struct cm_state *state, const struct registration *entry)
{
    return registrations_is_current(&state->registered, entry) &&
           (state->now_ns - entry->reported_ns <= MOMENT_NS || !state->config->lease_ms);
}

/* M5 */
static bool is_steady(const struct cm_state *state, uint32_t server, bool kept)
{
    return state->now_ns >= leases_waits_until(&state->leases, server, kept);
}

bool state_reads(const struct cm_state *state, uint32_t format)
{
    bool reads = true;
    for (uint32_t i = 0; i < state->registered.count; i++)
        reads = reads && state->registered.entries[i].join.format >= format;
    for (uint32_t i = 0; i < state->running.count; i++)
        reads = reads && state->running.entries[i].join.format >= format;
    return reads;
}

/* What operators do not wait for. */
static void find_given_up(const struct cm_state *state, struct comeback *back)
{
    for (uint32_t i = 0; state->planning > 0 && i < state->connection_limit; i++) {
        const struct connection *peer = &state->connections[i];
        if (!peer->plans || peer->plan.kind != CM_PLAN_GIVE_UP || !peer->plan.to)
            continue;
        back->given_server = peer->plan.server;
        back->given_shard = peer->plan.server ? 0 : peer->plan.shard + 1;
        return;
    }
}

bool manage_find_back(struct cm_state *state, struct comeback *back, bool all)
{
    const uint64_t torn_ns = 2 * state->options.start_wait_ms * NS_PER_MS;
    const uint64_t wait_ns = state->options.goodbye_wait_ms * NS_PER_MS;
    *back = (struct comeback){.mixes = state_reads(state, VERSION_CONFIGURATION_MIXED)};
    for (uint32_t i = 0; i < state->config->member_count; i++) {
        const uint32_t server = state->config->members[i].server;
        back->over[i] =
            (state->start_waited || state->now_ns - state->leases.first_ns >= wait_ns) &&
            state->now_ns - state->leases.past[server].goodbye_ns >= wait_ns;
    }
    find_given_up(state, back);
    for (uint32_t i = 0; i < state->registered.count; i++) {
        struct registration *entry = &state->registered.entries[i];
        const struct member *member = cluster_member(state->config, entry->join.server);
        const bool waits =
            member && (all || (member->kept && is_steady(state, member->server, true)));
        /* A version that cannot tell may be torn. As long again for the others. */
        entry->join.torn = (entry->join.torn || entry->join.format < VERSION_CONFIGURATION_MIXED) &&
                           state->now_ns - entry->since_ns < torn_ns;
        if (waits && is_fresh(state, entry))
            back->joins[back->came++] = &entry->join;
        else if (waits && state->now_ns - entry->reported_ns <= MOMENT_NS)
            return false;
    }
    for (uint32_t i = 0; i < state->running.count && !all; i++) {
        const struct cm_join *join = &state->running.entries[i].join;
        if (refusal_is_member(state->config, join->server, join->incarnation))
            back->run[back->present++] = join;
    }
    return true;
}

static void find_joining(const struct cm_state *state, struct fill_from *from)
{
    for (uint32_t i = 0; i < state->registered.count; i++) {
        const struct registration *entry = &state->registered.entries[i];
        if (is_fresh(state, entry) && !cluster_member(state->config, entry->join.server) &&
            is_steady(state, entry->join.server, false) &&
            state->config->member_count + from->join_count < CLUSTER_MAX_MEMBERS)
            from->joins[from->join_count++] = &entry->join;
    }
}

/* Each time that it begins or ends. */
static void tell_lacking(struct cm_state *state, uint32_t shards)
{
    if ((shards > 0) != (state->fills.lacking > 0))
        actions_log(state, shards ? CM_ACTION_WARN : CM_ACTION_TELL,
                    shards ? "no_space_to_fill" : "space_to_fill", "shards=%u%s", shards,
                    shards ? " have fewer replicas than wanted, and no other server has room for "
                             "them: add a server (rowan add), or give servers more PM"
                           : "");
    state->fills.lacking = shards;
}

struct cluster_config *manage_fill_propose(struct cm_state *state)
{
    if (!state->looks || !leases_is_committed(&state->leases) ||
        !leases_may_grant(&state->leases, state->now_ns)) /* M4 */
        return NULL;
    state->looks = false;
    uint32_t lacking = 0;
    struct fill_from from = {.old = state->config,
                             .filled = state->fills.filled,
                             .loads = &state->loads,
                             .lacking = &lacking};
    for (uint32_t i = 0; i < state->leases.count; i++) {
        if (state->leases.entries[i].cut_count > 0)
            from.leases = &state->leases;
    }
    find_joining(state, &from);
    if (!manage_find_back(state, &from.back, false))
        return NULL;
    comeback_admit(&from.back, state->config);
    struct cluster_config *config = fill_make(&from);
    tell_lacking(state, config ? state->fills.lacking : lacking);
    return config;
}

static void forget_filled(struct cm_state *state, const struct cluster_config *before)
{
    for (uint32_t i = 0; i < before->shard_count; i++) {
        const struct shard *now = cluster_shard(state->config, before->shards[i].id);
        if (!now || before->shards[i].epoch != now->epoch)
            state->fills.filled[before->shards[i].id] = 0;
    }
}

static void remember_removed(struct cm_state *state, const struct cluster_config *before)
{
    for (uint32_t i = 0; i < before->member_count; i++) {
        const struct member *old = &before->members[i];
        const struct member *now = cluster_member(state->config, old->server);
        if (now && now->incarnation == old->incarnation && now->kept == old->kept)
            continue;
        struct lease_past *past = &state->leases.past[old->server];
        past->removed = old->incarnation;
        const uint64_t until_ns = leases_waits_until(&state->leases, old->server, now != NULL);
        if (until_ns > state->now_ns && (!now || now->kept))
            actions_log(
                state, CM_ACTION_WARN, "server_unsteady",
                "server=%u spells=%u waits_ms=%lu: it fell silent again and again, and so is "
                "a member again so much later",
                old->server, past->spells, (until_ns - state->now_ns) / NS_PER_MS);
    }
}

/* Of the servers that joined, the one that has waited longest. */
static uint64_t waited_since(const struct cm_state *state, const struct cluster_config *before)
{
    uint64_t since_ns = state->now_ns;
    for (uint32_t i = 0; i < state->registered.count; i++) {
        const struct registration *entry = &state->registered.entries[i];
        if (refusal_is_member(state->config, entry->join.server, entry->join.incarnation) &&
            !refusal_is_member(before, entry->join.server, entry->join.incarnation) &&
            entry->since_ns < since_ns)
            since_ns = entry->since_ns;
    }
    return since_ns;
}

static void tell_story(struct cm_state *state, const struct cluster_config *before,
                       const struct story_fill *story)
{
    const uint64_t term = state->config->term,
                   filling_ms = state_ms_since(state, state->fills.since_ns);
    if (story->joined)
        actions_log(state, CM_ACTION_TELL, "server_joined", "term=%lu server=%s ms=%lu", term,
                    story->servers, state_ms_since(state, waited_since(state, before)));
    if (story->began)
        actions_log(state, CM_ACTION_TELL, "filling", "term=%lu shards=%u ms=%lu", term,
                    story->began, filling_ms);
    if (story->ended)
        actions_log(state, CM_ACTION_TELL, "filled", "term=%lu shards=%u left=%u ms=%lu", term,
                    story->ended, story->left, filling_ms);
    if (story->swapped + story->dropped > 0)
        actions_log(state, CM_ACTION_TELL, "shards_moved", "term=%lu led_by_others=%u left=%u",
                    term, story->swapped, story->dropped);
}

bool manage_fill_installed(struct cm_state *state, const struct cluster_config *before)
{
    struct fills *fills = &state->fills;
    struct story_fill story;
    remember_removed(state, before);
    forget_filled(state, before);
    loads_follow(&state->loads, before, state->config, state->now_ns);
    const bool any = story_of_fill(before, state->config, &story);
    if (story.left && !fills->since_ns)
        fills->since_ns = state->now_ns;
    if (state->leases.managing)
        tell_story(state, before, &story);
    if (!story.left)
        fills->since_ns = 0;
    return any;
}
