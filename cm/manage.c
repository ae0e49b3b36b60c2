/* manage.c - see state_inside.h; lease.h has the rules of time.
 *
 * Invariants:
 *  M1 A lease is granted only by CM_EVENT_TIME: its clock was read after the Renew was here, however long this process
 *     stood still before.
 *  M2 Nothing is granted, proposed or committed before the configuration in force names this manager.
 *  M3 A member is removed only if every other one is either present, so that it can take over, or silent too; and
 *     only if one is present: where nobody is, this manager may be the one that is cut off. Where none has adopted what is in
 *     force, those that renew stay: they may wait for those that do not (Z6 in server/worker/worker_epoch.c).
 *  M8 Who said goodbye shortly after another one, which is not back, is not replaced by a single one: all may be about to stop, and
 *     the last one to lose its memory. It is waited for as long (goodbye-wait) since it said so, whoever stops later.
 */
#include <stdio.h>
#include <string.h>

#include "cm/failover.h"
#include "cm/state_inside.h"
#include "cm/story.h"
#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/version.h"

/* The member that joined by this connection; NULL: none that this manager knows. */
static struct lease *lease_of(struct cm_state *state, uint32_t connection)
{
    const struct connection *peer = &state->connections[connection];
    return peer->member ? leases_of(&state->leases, peer->server) : NULL;
}

/* --- leases --- */

/* Each time that a member says something new. */
static void note_cut(struct cm_state *state, struct lease *lease, const struct cm_event *event)
{
    const size_t bytes = event->cut_count * sizeof lease->cut[0];
    if (lease->cut_count == event->cut_count &&
        (bytes == 0 || memcmp(lease->cut, event->cut, bytes) == 0))
        return;
    lease->cut_count = event->cut_count;
    if (bytes > 0)
        memcpy(lease->cut, event->cut, bytes);
    char to[CM_MAX_DETAIL_BYTES + 1] = "-";
    size_t at = 0;
    for (uint32_t i = 0; i < lease->cut_count && at < sizeof to; i++)
        at += (size_t)snprintf(to + at, sizeof to - at, "%s%u", i ? "," : "", lease->cut[i]);
    actions_log(state, CM_ACTION_TELL, "sends_incomplete", "server=%u to=%s", lease->server, to);
}

static void answer_renew(struct cm_state *state, uint32_t connection, bool granted)
{
    struct connection *peer = &state->connections[connection];
    struct cm_action *action = actions_answer(state, CM_ACTION_LEASE, connection, peer->renew_tag);
    action->now_ns = state->now_ns;
    action->granted = granted;
    peer->renews = false;
    state->renewing--;
}

/* A second one answers the first. */
void manage_renewed(struct cm_state *state, const struct cm_event *event)
{
    struct connection *peer = &state->connections[event->connection];
    if (peer->renews)
        answer_renew(state, event->connection, false);
    peer->renews = true;
    peer->renew_tag = event->tag;
    peer->renew_term = event->known_term;
    state->renewing++;
    struct lease *lease = lease_of(state, event->connection);
    if (!lease)
        return;
    leases_renewed(&state->leases, lease, event->known_term,
                   event->manager == state->options.incarnation ? event->manager_ns : 0,
                   state->now_ns);
    note_cut(state, lease, event);
    if (event->leaves) {
        state->leases.past[lease->server].goodbye_ns = state->now_ns;
        /* Its last lease is over, by its own clock, and it grants J1 of the server: so by ours. */
        lease->left = true;
        lease->granted_ns = 0;
    }
}

/* M1 */
void manage_tick(struct cm_state *state)
{
    state->looks = true;
    leases_tick(&state->leases, state->now_ns);
    const bool grant = state->leads && !leader_is_doubted(state) /* S13 */ &&
                       leases_may_grant(&state->leases, state->now_ns);
    for (uint32_t i = 0; state->renewing > 0 && i < state->connection_limit; i++) {
        const struct connection *peer = &state->connections[i];
        if (!peer->renews)
            continue;
        struct lease *lease = lease_of(state, i);
        const bool granted = grant && lease && !lease->left && !lease->joins &&
                             peer->renew_term <= state->config->term;
        if (granted)
            lease->granted_ns = state->granting_ns = state->now_ns;
        answer_renew(state, i, granted);
    }
}

/* --- committed --- */

static void send_committed(struct cm_state *state, uint32_t connection)
{
    actions_answer(state, CM_ACTION_COMMITTED, connection, 0)->term = state->leases.committed;
}

void manage_adopted(struct cm_state *state, const struct cm_event *event)
{
    struct lease *lease = lease_of(state, event->connection);
    if (!lease)
        return;
    leases_adopted(&state->leases, lease, event->known_term, state->now_ns);
    if (leases_is_committed(&state->leases))
        send_committed(state, event->connection);
}

void manage_joined(struct cm_state *state, uint32_t connection, bool serves)
{
    struct lease *lease = lease_of(state, connection);
    if (!lease)
        return;
    if (serves)
        leases_serves(lease, state->now_ns);
    else
        leases_opens(lease, state->config);
    if (leases_is_committed(&state->leases))
        send_committed(state, connection);
}

static void tell_silent(struct cm_state *state)
{
    char servers[CM_MAX_DETAIL_BYTES + 1];
    size_t at = 0;
    for (uint32_t i = 0; i < state->leases.count && at < sizeof servers; i++) {
        struct lease *lease = &state->leases.entries[i];
        const bool silent = leases_presence(&state->leases, lease, state->now_ns) == LEASE_SILENT;
        if (silent && !lease->told)
            at += (size_t)snprintf(
                servers + at, sizeof servers - at, "%s%u(%s)", at ? "," : "", lease->server,
                lease->left                                            ? "leaves"
                : leases_is_late(&state->leases, lease, state->now_ns) ? "not_adopted"
                                                                       : "no_word");
        lease->told = silent;
    }
    if (at)
        actions_log(state, CM_ACTION_TELL, "server_silent", "server=%s", servers);
}

void manage_commit(struct cm_state *state)
{
    if (!state->leads || !state->leases.managing)
        return;
    tell_silent(state);
    const uint64_t at_ns = leases_commit_at(&state->leases);
    if (at_ns == 0 || at_ns > state->now_ns)
        return;
    actions_log(state, CM_ACTION_TELL, "configuration_committed", "term=%lu ms=%lu",
                state->leases.term, state_ms_since(state, state->leases.begun_ns));
    leases_committed(&state->leases);
    state->claim.tries = 0; /* claim-4 */
    for (uint32_t i = 0; i < state->connection_limit; i++) {
        if (state->connections[i].open && state->connections[i].member)
            send_committed(state, i);
    }
}

bool manage_nobody_runs(const struct cm_state *state)
{
    const struct leases *leases = &state->leases;
    bool none = state->here == 0 || leases->count > 0;
    for (uint32_t i = 0; state->here > 0 && i < leases->count && none; i++)
        none = leases_presence(leases, &leases->entries[i], state->now_ns) == LEASE_SILENT &&
               !leases_renews(leases, &leases->entries[i], state->now_ns);
    return none;
}

/* --- what is stored --- */

bool manage_installed(struct cm_state *state, const struct cluster_config *before)
{
    const bool managed = state->leases.managing;
    leases_follow(&state->leases, state->config, state->options.incarnation, state->asked_ns,
                  state->now_ns);
    char what[CM_MAX_DETAIL_BYTES + 1] = "";
    const bool failover = before && story_of_failover(before, state->config, what, sizeof what);
    if (state->leases.managing && before && (failover || !managed))
        actions_log(state, CM_ACTION_TELL, failover ? "failover" : "manager_took_over",
                    "term=%lu ms=%lu%s%s", state->config->term,
                    state_ms_since(state, state->leases.begun_ns), failover ? " " : "", what);
    if (state->leases.managing &&
        story_of_waiting(managed ? before : NULL, state->config, what, sizeof what))
        actions_log(state, CM_ACTION_WARN, "shards_wait", "%s", what);
    const bool fill = before && manage_fill_installed(state, before);
    return failover || fill;
}

/* M3. All are silent. True: of some this is known not to be so. */
static bool leaves_late(struct cm_state *state, bool *silent)
{
    bool any = false, left = false;
    for (uint32_t i = 0; i < state->config->member_count; i++) {
        const struct lease *lease = leases_of(&state->leases, state->config->members[i].server);
        const bool renews = lease && leases_renews(&state->leases, lease, state->now_ns);
        silent[i] = silent[i] && !renews;
        any = any || silent[i];
        left = left || renews;
    }
    return any && left;
}

/* M3 */
static bool removes_any(struct cm_state *state, bool *silent)
{
    bool any = false, present = false;
    for (uint32_t i = 0; i < state->config->member_count; i++) {
        const struct lease *lease = leases_of(&state->leases, state->config->members[i].server);
        silent[i] = false;
        if (!lease)
            continue;
        const enum lease_presence presence = leases_presence(&state->leases, lease, state->now_ns);
        if (presence == LEASE_UNSURE && !lease->joins)
            return false;
        silent[i] = presence == LEASE_SILENT;
        any = any || silent[i];
        present = present || (!silent[i] && !lease->joins);
    }
    return any && (present || leaves_late(state, silent));
}

/* M8 */
static bool is_power_off(struct cm_state *state, const struct member *member)
{
    const struct lease *lease = leases_of(&state->leases, member->server);
    const uint64_t wait_ns = state->options.goodbye_wait_ms * NS_PER_MS;
    if (!lease || !lease->left || !state_reads(state, VERSION_CONFIGURATION_MIXED))
        return false;
    for (uint32_t server = 1; server <= CLUSTER_MAX_SERVER; server++) {
        const uint64_t said_ns = state->leases.past[server].goodbye_ns;
        if (server != member->server && said_ns && state->now_ns - said_ns < wait_ns)
            return true;
    }
    return false;
}

static struct cluster_config *propose_failover(struct cm_state *state, const bool *silent)
{
    struct cluster_config *config = NULL;
    char why[CM_MAX_DETAIL_BYTES + 1];
    bool waits[CLUSTER_MAX_MEMBERS];
    const struct cm_join *reports[CLUSTER_MAX_MEMBERS];
    for (uint32_t i = 0; i < state->config->member_count; i++) {
        const struct member *member = &state->config->members[i];
        const struct registration *last = registrations_find(&state->running, member->server);
        waits[i] = silent[i] && is_power_off(state, member);
        reports[i] = last && state_reads(state, VERSION_CONFIGURATION_MIXED) ? &last->join : NULL;
    }
    const int error =
        failover_make(state->config, silent, waits, reports, &config, why, sizeof why);
    if (error && error != ROWAN_ENOMEM && state->failed_term != state->config->term) {
        state->failed_term = state->config->term;
        actions_log(state, CM_ACTION_WARN, "failover_impossible", "%s", why);
    }
    return config;
}

struct cluster_config *manage_propose(struct cm_state *state)
{
    bool silent[CLUSTER_MAX_MEMBERS];
    ASSERT(state->leases.managing); /* M2 */
    if (removes_any(state, silent))
        return propose_failover(state, silent);
    struct cluster_config *config = manage_plan_propose(state);
    if (!config)
        config = manage_fill_propose(state);
    return config ? config : manage_balance_propose(state);
}

uint64_t manage_wake(const struct cm_state *state)
{
    if (state->renewing > 0)
        return 0;
    if (state->leads && state->leases.managing)
        return leases_wake(&state->leases, state->now_ns);
    return state->leads || !state->config
               ? UINT64_MAX
               : claim_wake_ns(&state->claim, state->config, state->now_ns);
}
