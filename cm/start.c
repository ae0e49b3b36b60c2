/* start.c - when the cluster is started, for the first time or again; state.c has S7, S8 and S12. */
#include "cm/first.h"
#include "cm/proposal.h"
#include "cm/state_inside.h"
#include "common/base/error.h"

/* Those that a start waits for: members or, without a configuration, the servers of the options. How many. */
uint32_t start_absent(const struct cm_state *state, uint32_t *servers)
{
    const struct cluster_config *config = state->config;
    const uint32_t listed = config ? config->member_count : state->options.server_count;
    uint32_t count = 0;
    for (uint32_t i = 0; i < listed; i++) {
        const uint32_t server = config ? config->members[i].server : state->options.servers[i];
        const struct registration *found = registrations_find(&state->registered, server);
        if (!found || (state->options.recover && recovery_lacks(&state->recovery, &found->join)))
            servers[count++] = server;
    }
    return count;
}

/* Where all members are kept ones a start is over: they come back one by one (manage_fill.c), or are given up. */
bool start_is_awaited(const struct cm_state *state)
{
    const struct cluster_config *config = state->config;
    bool counts = !config;
    for (uint32_t i = 0; config && i < config->member_count && !counts; i++)
        counts = !config->members[i].kept;
    return counts && (!config || (manage_nobody_runs(state) && state->registered.count > 0));
}

/* S12 */
static bool has_waited(const struct cm_state *state)
{
    if (!state->config || !state->config->lease_ms || state->registered.count == 0)
        return false;
    const uint64_t since_ns =
        clock_latest(registrations_since(&state->registered), state->ended_ns);
    return state->now_ns - since_ns >= state->options.start_wait_ms * NS_PER_MS;
}

/* When memory is short nothing is proposed; the servers' next Join tries again. */
struct cluster_config *start_propose(struct cm_state *state)
{
    uint32_t missing[CLUSTER_MAX_MEMBERS];
    struct cluster_config *config = NULL;
    char *why = state->detail;
    int error = 0;
    struct comeback back;
    if (!start_is_awaited(state) ||
        (!has_waited(state) &&
         (start_absent(state, missing) > 0 ||
          !registrations_are_current(&state->registered, state->config)))) /* S8, S12 */
        return NULL;
    if (state->config && manage_find_back(state, &back, true) &&
        (back.came == state->config->member_count || has_waited(state)))
        error = proposal_cold(state->config, &back, state->config->lease_ms > 0, &config, why,
                              sizeof state->detail);
    else if (state->config)
        return NULL;
    else if (state->options.recover)
        error = recovery_propose(&state->recovery, &state->options, &state->registered, &config,
                                 why, sizeof state->detail);
    else
        config = first_place(&state->options, &state->registered);
    if (error && error != ROWAN_ENOMEM)
        actions_stop(state, error, why);
    state->start_waited = state->start_waited || (config && has_waited(state));
    return config;
}
