/* manage_plan.c - what operators want (plan.h): it waits here until the configuration in force says so. And what the loads of
 * shards want (balance.h).
 *
 * Invariants:
 *  M6 A plan is answered by what is stored, so a manager that takes over goes on with it, and who asks again is answered again.
 *  M7 No member is removed, and no shard moved, by a plan while a configuration is not committed, in which that member may
 *     hold a shard, or nobody serves it yet; nor while a member is not known to be present.
 */
#include <stdio.h>

#include "cm/plan.h"
#include "cm/refusal.h"
#include "cm/split.h"
#include "cm/state_inside.h"
#include "common/base/error.h"
#include "common/base/version.h"

void manage_planned(struct cm_state *state, const struct cm_event *event)
{
    struct connection *peer = &state->connections[event->connection];
    if (!state->leads || !state->config) {
        actions_refuse(state, event->connection, event->tag,
                       state->leads ? ROWAN_EREFUSED : ROWAN_ENOTLEADING,
                       state->leads ? "the cluster has not been started yet" : refusal_not_leading);
        return;
    }
    state->planning += !peer->plans;
    peer->plans = true;
    peer->plan_tag = event->tag;
    peer->plan = event->plan;
}

void manage_plan_forget(struct cm_state *state, uint32_t connection)
{
    struct connection *peer = &state->connections[connection];
    state->planning -= peer->plans;
    peer->plans = false;
}

/* NULL: its target has the space, and could read all that it has of the shard, as far as is known. */
static const char *target_refusal(const struct cm_state *state, const struct cluster_config *config,
                                  const struct cm_plan *plan, char *why, size_t why_bytes)
{
    const struct shard *shard = cluster_shard(config, plan->shard);
    const struct registration *to = registrations_find(&state->running, plan->to);
    if (plan_is_due(plan, config) && to && damage_was_found(&to->join.damage, shard->id)) {
        snprintf(
            why, why_bytes,
            "server %u could not read an object of shard %u: restart it, so that it is filled anew",
            plan->to, shard->id);
        return why;
    }
    if (!plan_is_due(plan, config) || shard_has_backup(shard, plan->to) ||
        !loads_lack_space(&state->loads, config, cluster_member(config, plan->to), shard))
        return NULL;
    snprintf(why, why_bytes,
             "server %u has no space for shard %u: give it more, or name another server (rowan "
             "status shows what is free)",
             plan->to, shard->id);
    return why;
}

/* What a plan for users needs: members that read a configuration which has some, and servers that are known. */
static const char *users_refusal(const struct cm_state *state, const struct cm_plan *plan,
                                 char *why, size_t why_bytes)
{
    const bool rotates = plan->kind == CM_PLAN_LOGIN && plan->to == CM_LOGIN_ROTATE;
    if (plan->kind == CM_PLAN_LOGIN && plan->to != CM_LOGIN_OPEN && !state->options.keyed)
        return "whoever says that he is a server needs no login: give all managers and servers a "
               "key first (cluster-key)";
    for (uint32_t i = 0; i < state->connection_limit; i++) {
        const struct connection *peer = &state->connections[i];
        if (!peer->open || !peer->member ||
            peer->format >= (rotates ? VERSION_CONFIGURATION_KEYS : VERSION_CONFIGURATION_USERS))
            continue;
        snprintf(why, why_bytes, "server %u runs a version that knows no %s: upgrade it first",
                 peer->server, rotates ? "rotation of secrets" : "users");
        return why;
    }
    return NULL;
}

/* Does it run, or wait with what it has? */
static bool brings_some(const struct cm_state *state, uint32_t server)
{
    const struct registration *found = registrations_find(&state->registered, server);
    return found ? found->join.data_cluster != 0
                 : registrations_find(&state->running, server) != NULL;
}

/* What nobody waits for any more, before it is done: and why that cannot be, or helps nothing. */
static const char *give_up_refusal(const struct cm_state *state,
                                   const struct cluster_config *config, const struct cm_plan *plan,
                                   char *why, size_t why_bytes)
{
    uint32_t shards = 0, bare = 0;
    if (config->member_count > 0 && !config->members[0].kept && manage_nobody_runs(state))
        return "the cluster is being started: what came is served, and the rest can be given up, "
               "when "
               "its start-wait is over";
    for (uint32_t i = 0; i < config->served_count; i++) {
        const struct shard *shard = &config->shards[i];
        uint32_t servers[CLUSTER_MAX_REPLICAS], at_hand = 0;
        if (!shard_is_kept(config, shard) ||
            (plan->server ? !shard_is_full_at(shard, plan->server) : shard->id != plan->shard))
            continue;
        for (uint32_t k = shard_replicas(shard, servers); k > 0; k--)
            at_hand += brings_some(state, servers[k - 1]) ||
                       (plan->server && registrations_find(&state->registered, servers[k - 1]));
        shards++;
        bare += at_hand == 0;
    }
    if (shards > 0 && bare == shards)
        snprintf(
            why, why_bytes,
            "of %u shards no server that held them is here with data: start one of them, with an "
            "empty PM if all is gone, and give that server up with all that it held",
            shards);
    else if (shards > 0 && plan->server && brings_some(state, plan->server))
        snprintf(why, why_bytes,
                 "server %u is here, and waits for others with what it has: give these up",
                 plan->server);
    else if (shards > 0 && plan->to == 0)
        snprintf(
            why, why_bytes,
            "%u shards wait for who is away: what only these servers hold, acknowledged writes "
            "among it, is lost for good, and the rest is served as it was found (%u shards have "
            "nobody else here, and wait on)",
            shards, bare);
    else
        return NULL;
    return why;
}

/* plan_refusal, with what loads say; and of a split, whose slot is found if it names none. */
static const char *refusal(const struct cm_state *state, const struct cluster_config *config,
                           struct cm_plan *plan, char *why, size_t why_bytes)
{
    const char *sentence = plan_refusal(plan, config, why, why_bytes);
    if (!sentence && (plan->kind == CM_PLAN_USER || plan->kind == CM_PLAN_LOGIN))
        return users_refusal(state, plan, why, why_bytes);
    if (!sentence && plan->kind == CM_PLAN_GIVE_UP)
        return give_up_refusal(state, config, plan, why, why_bytes);
    if (!sentence && plan->kind == CM_PLAN_MOVE)
        return target_refusal(state, config, plan, why, why_bytes);
    if (sentence || plan->kind != CM_PLAN_SPLIT)
        return sentence;
    if (plan->to == 0)
        plan->to = split_slot(config, &state->loads, plan->shard);
    return split_refusal(plan, config, &state->loads, state->options.max_shards, why, why_bytes);
}

/* M7. And who joins enters no row before it has adopted a configuration: a move to it waits. A rotation waits for the end of the one
 * before: servers hold two secrets. */
static bool may_propose(const struct cm_state *state, const struct cm_plan *plan)
{
    const bool moves =
        plan->kind == CM_PLAN_MOVE || plan->kind == CM_PLAN_WORKER || plan->kind == CM_PLAN_SPLIT ||
        (plan->kind == CM_PLAN_REMOVE && cluster_member(state->config, plan->server));
    if (plan->kind == CM_PLAN_LOGIN && plan->to != CM_LOGIN_OPEN && state->config->keys.changing)
        return false;
    for (uint32_t i = 0; plan->kind == CM_PLAN_MOVE && i < state->leases.count; i++) {
        if (state->leases.entries[i].server == plan->to && state->leases.entries[i].joins)
            return false;
    }
    return !moves ||
           (leases_is_committed(&state->leases) && leases_may_grant(&state->leases, state->now_ns));
}

static int describe(const struct cm_plan *plan, char *out, size_t bytes)
{
    static const char *const words[CM_PLAN_KINDS] = {"add",     "drain",   "remove", "move",
                                                     "worker",  "balance", "split",  "user",
                                                     "no_user", "login",   "give_up"};
    static const char *const logins[] = {"open", "required", "rotate"};
    const char *word = words[plan->kind];
    if (plan->kind == CM_PLAN_BALANCE)
        return snprintf(out, bytes, " what=%s mode=%s", word,
                        cluster_balance_name((enum cluster_balance)plan->to));
    if (plan->kind == CM_PLAN_USER || plan->kind == CM_PLAN_NO_USER)
        return snprintf(out, bytes, " what=%s user=%s role=%s", word, plan->user.name,
                        user_role_name(plan->user.role));
    if (plan->kind == CM_PLAN_LOGIN)
        return snprintf(out, bytes, " what=%s to=%s secrets=%s", word, logins[plan->to],
                        plan->to != CM_LOGIN_OPEN && plan->draws ? "drawn" : "kept");
    if (plan->kind == CM_PLAN_SPLIT)
        return snprintf(out, bytes, " what=%s shard=%u slot=%u", word, plan->shard, plan->to);
    if (plan->kind == CM_PLAN_MOVE || plan->kind == CM_PLAN_WORKER)
        return snprintf(out, bytes, " what=%s server=%u shard=%u to=%u", word, plan->server,
                        plan->shard, plan->to);
    return snprintf(out, bytes, " what=%s server=%u", word, plan->server);
}

/* As many of them as find space. */
static void tell_planned(struct cm_state *state, const char *event, const struct cm_plan *plans,
                         uint32_t count, uint64_t term)
{
    char what[CM_MAX_DETAIL_BYTES + 1] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < count && at < sizeof what; i++)
        at += (size_t)describe(&plans[i], what + at, sizeof what - at);
    actions_log(state, CM_ACTION_TELL, event, "term=%lu%s", term, what);
}

/* Every server has adopted it, so the former proof counts no longer. */
static struct cluster_config *end_rotation(struct cm_state *state)
{
    if (!state->config->keys.changing || !leases_is_committed(&state->leases))
        return NULL;
    struct cluster_config *config = cluster_copy(state->config);
    if (!config)
        return NULL;
    config->term++;
    cluster_rotated(config);
    actions_log(state, CM_ACTION_TELL, "secrets_rotated", "term=%lu", config->term);
    return config;
}

struct cluster_config *manage_plan_propose(struct cm_state *state)
{
    struct cluster_config *rotated = end_rotation(state);
    if (rotated)
        return rotated;
    for (uint32_t i = 0; state->planning > 0 && i < state->connection_limit; i++) {
        struct connection *peer = &state->connections[i];
        char why[CM_MAX_DETAIL_BYTES + 1];
        if (!peer->plans || peer->plan.kind == CM_PLAN_GIVE_UP || /* manage_find_back */
            !may_propose(state, &peer->plan) ||
            refusal(state, state->config, &peer->plan, why, sizeof why) ||
            !plan_is_due(&peer->plan, state->config))
            continue;
        peer->plan.draws = state_reads(state, VERSION_CONFIGURATION_KEYS);
        struct cluster_config *config = plan_make(&peer->plan, state->config);
        if (!config)
            return NULL;
        tell_planned(state, "planned", &peer->plan, 1, config->term);
        return config;
    }
    return NULL;
}

/* --- what nobody asked for --- */

void manage_loaded(struct cm_state *state, const struct cm_event *event)
{
    const struct connection *peer = &state->connections[event->connection];
    if (state->leads && peer->member)
        loads_told(&state->loads, state->config, peer->server, event->load, state->now_ns);
    state->weighs = true;
}

/* Of a decision all steps, in one configuration: each would cost all servers an adoption, and an end of their open segments. NULL: none
 * can be made. */
static struct cluster_config *make_steps(struct cm_state *state, struct cm_plan *plans,
                                         uint32_t count, uint32_t *made)
{
    struct cluster_config *config = NULL;
    *made = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct cluster_config *from = config ? config : state->config;
        struct cm_plan plan = plans[i];
        const char *why = refusal(state, from, &plan, state->refusal, sizeof state->refusal);
        if (why && plan.kind == CM_PLAN_SPLIT) {
            state->balance.split_ns = state->now_ns + BALANCE_REST_NS;
            actions_log(state, CM_ACTION_WARN, "balance_cannot_split", "%s", why);
        }
        struct cluster_config *next = why ? NULL : plan_make(&plan, from);
        if (!next)
            continue;
        cluster_release(config);
        config = next;
        config->term = state->config->term + 1;
        plans[(*made)++] = plan;
    }
    return config;
}

/* M7. Behind everything else that may be due; one decision for each report. */
struct cluster_config *manage_balance_propose(struct cm_state *state)
{
    struct cm_plan plans[BALANCE_STEPS];
    uint32_t count;
    const bool dry = state->config->balance == BALANCE_DRY_RUN;
    if (!state->weighs || state->config->balance == BALANCE_OFF ||
        (dry && state->now_ns - state->dry_ns < BALANCE_REST_NS) ||
        !leases_is_committed(&state->leases) || !leases_may_grant(&state->leases, state->now_ns))
        return NULL;
    state->weighs = false;
    state->balance.above = state->options.balance_above;
    const enum balance_found found =
        balance_decide(&state->balance, state->config, &state->loads, state->now_ns, plans, &count);
    if (found == BALANCE_NOTHING)
        return NULL;
    if (found == BALANCE_PASSED || dry) {
        tell_planned(state, found == BALANCE_PASSED ? "balance_lacks_space" : "balance_would",
                     plans, count, state->config->term);
        state->dry_ns = state->now_ns;
        return NULL;
    }
    struct cluster_config *config = make_steps(state, plans, count, &count);
    if (config)
        tell_planned(state, "balanced", plans, count, config->term);
    return config;
}

/* M6. A second refusal waits for the next step. */
void manage_plan_answer(struct cm_state *state)
{
    bool refused = false;
    for (uint32_t i = 0; state->planning > 0 && i < state->connection_limit; i++) {
        struct connection *peer = &state->connections[i];
        struct cm_plan *plan = &peer->plan;
        if (!peer->plans || refused)
            continue;
        const char *why =
            refusal(state, state->config, plan, state->refusal, sizeof state->refusal);
        refused = why != NULL;
        if (refused)
            actions_refuse(state, i, peer->plan_tag, ROWAN_EREFUSED, why);
        else if (plan_is_due(plan, state->config))
            continue;
        else
            actions_configuration(state, i, peer->plan_tag);
        manage_plan_forget(state, i);
    }
}
