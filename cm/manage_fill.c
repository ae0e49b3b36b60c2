/* manage_fill.c - when members and replicas are added (fill.h), and which.
 *
 * Invariants:
 *  M4 Nothing is added before the configuration in force is committed, nor while a member is not known to be present: else
 *     a cold start may be coming, or somebody is about to be removed.
 *  M5 A server is added only if it reported in this registration epoch, and a moment ago, or all would wait for one that has
 *     ended.
 */
#include "cm/fill.h"
#include "cm/refusal.h"
#include "cm/split.h"
#include "cm/state_inside.h"
#include "cm/story.h"

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

static void find_joining(const struct cm_state *state, struct fill_from *from)
{
    for (uint32_t i = 0; i < state->registered.count; i++) {
        const struct registration *entry = &state->registered.entries[i];
        const struct member *member = cluster_member(state->config, entry->join.server);
        if (!registrations_is_current(&state->registered, entry) ||
            state->now_ns - entry->reported_ns > MOMENT_NS) /* M5 */
            continue;
        if (member && member->kept)
            from->back.joins[from->back.came++] = &entry->join;
        else if (!member && state->config->member_count + from->join_count < CLUSTER_MAX_MEMBERS)
            from->joins[from->join_count++] = &entry->join;
    }
}

/* Logged once for each configuration. */
static void admit_kept(struct cm_state *state, struct comeback *back)
{
    comeback_admit(back, state->config);
    if (back->count == back->came || state->waits_term == state->config->term)
        return;
    state->waits_term = state->config->term;
    actions_log(state, CM_ACTION_WARN, "kept_server_waits",
                "a server that holds the last replicas of some shards is back without whole data "
                "of one of them: it waits until all that hold this shard are back");
}

struct cluster_config *manage_fill_propose(struct cm_state *state)
{
    if (!state->looks || !leases_is_committed(&state->leases) ||
        !leases_may_grant(&state->leases, state->now_ns)) /* M4 */
        return NULL;
    state->looks = false;
    struct fill_from from = {.old = state->config, .filled = state->fills.filled};
    for (uint32_t i = 0; i < state->leases.count; i++) {
        if (state->leases.entries[i].cut_count > 0)
            from.leases = &state->leases;
    }
    find_joining(state, &from);
    admit_kept(state, &from.back);
    return fill_make(&from);
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
        if (!now || now->incarnation != old->incarnation)
            state->removed[old->server] = old->incarnation;
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
