/* leader.c - who leads; state.c has S10. */
#include "cm/refusal.h"
#include "cm/state_inside.h"

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
    state->leads = state->cut = false;
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
    if (!state->config || !state->config->lease_ms)
        return state->elected;
    return state->owed || state->config->manager == state->options.incarnation;
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
    state->granting_ns = state->now_ns;
    leases_watch_anew(&state->leases, state->now_ns);
}

/* Another manager was named, or this one. */
void leader_named(struct cm_state *state, const struct cluster_config *before)
{
    const uint64_t self = state->options.incarnation, named = state->config->manager;
    claim_follow(&state->claim, state->config, state->now_ns);
    if (named == self)
        state->claim.tries = 0;
    if (named == self || (state->fresh && before && named != before->manager))
        state->owed = false;
    if (state->config->lease_ms)
        leader_follow(state);
}

/* With leases no grant needs the coordination service. */
void leader_elected(struct cm_state *state, const struct cm_event *event)
{
    state->elected = state->owed = event->leader;
    state->fresh = false;
    state->must_read |= event->leader;
    if (event->leader)
        registrations_expire(&state->registered);
    else if (state->leads && may_lead(state))
        state->cut = state->must_read = true;
    else
        resign(state);
}

/* Who is cut off from the coordination service and has no members to grant a lease to lets others come forward. */
void leader_tick(struct cm_state *state)
{
    if (state->cut && state->now_ns - state->granting_ns >
                          CLAIM_AFTER * lease_longest_ns(state->config->lease_ms * NS_PER_MS))
        resign(state);
}
