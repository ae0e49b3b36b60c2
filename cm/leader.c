/* leader.c - who leads; state.c has S10. */
#include "cm/refusal.h"
#include "cm/state_inside.h"
#include "common/cluster/managers.h"

void leader_dismiss(struct cm_state *state, uint32_t connection, const char *detail)
{
    struct connection *peer = &state->connections[connection];
    registrations_remove(&state->registered, connection);
    peer->server = 0;
    actions_refuse(state, connection, peer->join_tag,
                   refusal_error(detail, state->config, peer->has_data), detail);
}

/* S10 */
static void resign(struct cm_state *state)
{
    state->leads = false;
    state->next_id = state->end_id = state->wanting = 0;
    for (uint32_t i = 0; i < state->connection_limit; i++) {
        if (!state->connections[i].open)
            continue;
        manage_plan_forget(state, i);
        state->connections[i].wants_id = state->connections[i].member = false;
        leader_dismiss(state, i, refusal_not_leading);
    }
    state->here = 0;
    state->running.count = 0;
}

/* S10 */
static bool may_lead(const struct cm_state *state)
{
    return state->config && state->config->lease_ms
               ? state->config->manager == state->options.incarnation
               : state->elected;
}

void leader_follow(struct cm_state *state)
{
    const bool leads = may_lead(state);
    if (leads == state->leads)
        return;
    if (!leads) {
        resign(state);
        return;
    }
    state->leads = true;
    state->start_waited = false; /* goodbyes were said to others meanwhile */
    state->granting_ns = state->now_ns;
    registrations_expire(&state->registered);
    leases_watch_anew(&state->leases, state->now_ns);
}

void leader_named(struct cm_state *state)
{
    if (!state->config->lease_ms)
        return;
    claim_follow(&state->claim, state->config, state->now_ns);
    leader_follow(state);
}

void leader_elected(struct cm_state *state, const struct cm_event *event)
{
    state->elected = event->leader;
    state->must_read = true; /* the service is there again, or does not answer */
    if (state->config && state->config->lease_ms)
        return;
    if (event->leader)
        registrations_expire(&state->registered);
    else
        resign(state);
}

void leader_told(struct cm_state *state, const struct cm_join *join)
{
    if (state->leads || !state->config || !state->config->lease_ms ||
        claim_told(&state->claim, state->config, state->options.incarnation, join, state->now_ns) ||
        state->stranger_term == state->config->term ||
        !cluster_member(state->config, join->server) || join->named)
        return;
    state->stranger_term = state->config->term;
    actions_log(
        state, CM_ACTION_WARN, "stranger",
        "server %u holds no data of cluster %016lx, which the coordination service keeps: give "
        "another cluster a path of its own; if this one lost all its data, move the value away",
        join->server, state->config->cluster);
}

/* What was stored when a server had said that it knows better. */
static bool has_looked(const struct cm_state *state)
{
    return !state->must_read && !state->unanswered_ns && state->asked_ns >= state->later_ns;
}

/* What is in force here may be old, so the first that says so makes this manager look; what it knows then is what is stored. */
bool leader_is_behind(struct cm_state *state, const struct cm_join *join)
{
    const struct cluster_config *config = state->config;
    if (!config || !join_knows_better(join, config))
        return false;
    const uint64_t knows =
        join->known_term > join->stored_term ? join->known_term : join->stored_term;
    if (state->later_term <= config->term) {
        state->later_term = knows > config->term ? knows : config->term + 1;
        state->later_ns = state->now_ns;
        state->later_server = join->server;
        state->must_read = true;
        state->told_later = false;
    }
    return has_looked(state);
}

void leader_tell_later(struct cm_state *state)
{
    if (!leader_is_doubted(state) || state->told_later || !has_looked(state))
        return;
    state->told_later = true;
    actions_log(state, CM_ACTION_WARN, "configuration_is_old",
                "server %u has acted on term %lu, and term %lu is stored, so nothing is stored or "
                "granted: %s. If it is that server which is wrong, stop it and start the manager "
                "again",
                state->later_server, state->later_term, state->config->term, refusal_gone_back);
}

struct cluster_config *leader_claim(struct cm_state *state)
{
    if (!state->config || !claim_is_due(&state->claim, state->config, state->now_ns))
        return NULL;
    struct cluster_config *config = cluster_copy(state->config);
    if (!config)
        return NULL;
    claim_tried(&state->claim, state->now_ns);
    config->term++;
    config->manager = state->options.incarnation;
    return config;
}

/* Else an outage of the coordination service would show at the next failure only. */
#define LOOK_NS (10 * NS_PER_S)

/* With leases no grant needs the coordination service. Who grants none looks whether it is still named, and lets others come
 * forward if nobody answers that. */
void leader_tick(struct cm_state *state)
{
    if (!state->leads || !state->leases.managing)
        return;
    const uint64_t half_ns = MANAGERS_LEASES * lease_longest_ns(state->leases.lease_ns) / 2,
                   idle_ns = state->now_ns - state->granting_ns,
                   unheard_ns = state->now_ns - state->heard_ns;
    if (idle_ns > 2 * half_ns && state->unanswered_ns &&
        state->now_ns - state->unanswered_ns > half_ns)
        resign(state);
    else if (unheard_ns > (idle_ns > half_ns ? half_ns : LOOK_NS) && !state->reading &&
             !state->storing)
        state->must_read = true;
}
