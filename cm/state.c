/* state.c - the configuration manager's decisions: when the first configuration is made and when
 * the cluster is started again, who gets it, client ids.
 *
 * Invariants:
 *  S1 A configuration is in force only if it was read from the coordination service or a
 *     compare-and-set that put it there answered 0 (C7 of the design). Only what is in force is
 *     sent.
 *  S2 Terms in force rise; the cluster's id never changes.
 *  S3 A client id is given only out of a block that a compare-and-set of this leader, answered 0, reserved.
 *     After any other answer the block is given up, even if a later read shows it stored: another leader
 *     may have stored the same bytes and be giving those ids out.
 *  S4 One READ or STORE is under way at a time.
 *  S5 The secret goes only to a connection whose Join named a member's incarnation.
 *  S6 Registrations are of servers that the configuration in force lists, or the options (without a configuration, or with
 *     leases), and never of an incarnation in force.
 *  S7 A cold start is proposed only when every member is registered and no member is here: a server
 *     that kept running is never replaced.
 *  S8 A start is proposed only when every server that is registered and that it names has reported in this registration epoch, which
 *     began after the last of them came, after this manager began to lead, and after any start that could
 *     not be stored. A server that died before that epoch has not reported in it, though its connection may
 *     still be open and older reports of it may still be read. A configuration that named it beside living
 *     ones would wait for it for ever.
 *  S9 The first client ids of a series (proposal.h) are reserved only when every member has reported that its PM is
 *     durably formatted, and keeps the configuration; kept ones count in the very first series only. So a server
 *     without data, once there are clients, has lost it.
 * S10 Only a manager that leads registers a server, refuses one for good or gives an id: what others know may be old. With
 *     leases it leads if the configuration in force names it; another one tries to be named on a server's word (claim.h), and
 *     for no other reason. Without leases, and before the first configuration, it leads if the coordination service elected it,
 *     and has read since. When it ceases to lead, it tells all that are connected, so that they go to the one that does.
 * S11 Where leases are in force, nothing else is proposed before the configuration names this manager, nor while a member has to be
 *     removed (manage.c).
 *
 *                     CM_EVENT_STORED: 0 (in force), or another error
 * S12 With leases a start waits for all members at most start-wait from the first arrival, or the last sign of one that ran. Then who reported in this registration epoch
 *     a moment ago is here, and all others are kept members: by cold.h each shard waits on, or is served.
 * S13 Nothing is stored, and nothing granted, while a server has acted on a later configuration than is in force here: what is stored
 *     may have gone back, and who was removed since knows no better. Until that is read, or an operator starts the manager again.
 * S14 A ticket is made with a key that every server has: none of another key (keys.h) before all have adopted it, and no id below
 *     those that this key is for.
 *
 * S15 A user that asks for ids faster than its quota is told to come later, and others are not. Who may not write
 *     gets none (0).
 *
 *            +---------------------------------------------------------------+
 *            v                                                               |
 *   [reading] --CM_EVENT_READ--> [resting] --leads, and has a reason--> [storing]
 *       ^ ^                         |          (manage_propose,              |
 *       | +--changed, won, an error-+           propose_start, propose_block)|
 *       +--------------- CM_EVENT_STORED: lost or unknown -------------------+
 */
#include <stdlib.h>

#include "cm/first.h"
#include "cm/proposal.h"
#include "cm/refusal.h"
#include "cm/state_inside.h"
#include "cm/story.h"
#include "common/base/assert.h"
#include "common/base/error.h"

/* A coordination service that has not answered for so long does not. */
#define CUT_NS (2 * NS_PER_S)

int cm_state_create(const struct cm_state_options *options, struct cm_state **out)
{
    if (!first_options_are_right(options))
        return ROWAN_EINVALID;
    struct cm_state *state = calloc(1, sizeof *state);
    if (!state)
        return ROWAN_ENOMEM;
    state->options = *options;
    cm_state_tune(state, options);
    state->output.actions = state->actions;
    state->output.waiting_for = state->waiting_for;
    *out = state;
    return ROWAN_OK;
}

void cm_state_destroy(struct cm_state *state)
{
    if (!state)
        return;
    cluster_release(state->recovery.best);
    cluster_release(state->proposal);
    cluster_release(state->config);
    free(state);
}

void cm_state_tune(struct cm_state *state, const struct cm_state_options *options)
{
    state->options.max_shards = options->max_shards;
    state->options.balance_above = options->balance_above;
    state->options.start_wait_ms =
        options->start_wait_ms ? options->start_wait_ms : CM_START_WAIT_MS;
    state->options.goodbye_wait_ms =
        options->goodbye_wait_ms ? options->goodbye_wait_ms : CM_GOODBYE_WAIT_MS;
}

struct cluster_config *cm_state_config(const struct cm_state *state)
{
    return state->config;
}

bool cm_state_knows(const struct cm_state *state)
{
    return state->knows;
}

/* --- client ids --- */

/* The next request, in turn, is to be answered. False: nobody waits. */
static bool take_turn(struct cm_state *state, uint32_t *connection, uint32_t *tag)
{
    if (state->wanting == 0)
        return false;
    while (!state->connections[state->id_turn % CM_MAX_CONNECTIONS].wants_id)
        state->id_turn++;
    *connection = state->id_turn % CM_MAX_CONNECTIONS;
    *tag = state->connections[*connection].id_tag;
    state->connections[*connection].wants_id = false;
    state->wanting--;
    return true;
}

static void give_ids(struct cm_state *state)
{
    uint32_t connection, tag;
    const struct cluster_keys *keys = state->config ? &state->config->keys : NULL;
    if (keys && keys->changing && keys->former_below > 0) /* S14 */
        return;
    while (state->next_id < state->end_id && take_turn(state, &connection, &tag))
        actions_answer(state, CM_ACTION_CLIENT_ID, connection, tag)->client_id = state->next_id++;
}

static void fail_ids(struct cm_state *state, int error, const char *detail)
{
    uint32_t connection, tag;
    while (take_turn(state, &connection, &tag))
        actions_refuse(state, connection, tag, error, detail);
}

/* --- what is in force --- */

/* After a change of what is in force: a server is a member now, waits on (S6), or is dismissed. */
static void sort_servers(struct cm_state *state)
{
    state->here = 0;
    for (uint32_t i = 0; i < state->connection_limit; i++) {
        struct connection *peer = &state->connections[i];
        if (peer->server == 0)
            continue;
        const struct registration *last = registrations_find(&state->registered, peer->server);
        bool waits = last && last->connection == i;
        const bool was_member = peer->member;
        peer->member = refusal_is_member(state->config, peer->server, peer->incarnation);
        if (peer->member) {
            state->here++;
            if (!was_member)
                state->leases.past[peer->server].goodbye_ns = 0; /* it is back */
            if (waits)
                registrations_add(&state->running, i, &last->join, state->now_ns);
            registrations_remove(&state->registered, i);
            continue;
        }
        registrations_remove(&state->running, i);
        if (!waits &&
            !was_member) { /* another connection took its registration: it reports again */
            peer->server = 0;
            continue;
        }
        const char *why = waits ? refusal_unfit(&state->options, state->config, &last->join)
                                : refusal_gone(state->config, peer->server, peer->incarnation);
        if (why)
            leader_dismiss(state, i, why);
    }
}

/* `told`: what became of members and replicas is logged, or another manager's to log. */
static void warn_of_loss(struct cm_state *state, const struct cluster_config *before, bool told)
{
    char what[CM_MAX_DETAIL_BYTES + 1];
    if (story_of_certainty(before, state->config, what, sizeof what))
        actions_log(state, CM_ACTION_WARN, "possible_loss", "%s", what);
    if (!told && story_of_replicas(before, state->config, what, sizeof what))
        actions_log(state, CM_ACTION_WARN, "replicas_dropped", "%s", what);
}

/* Puts `config`, which is stored as `version`, in force (S1); takes over the caller's reference. */
static void install(struct cm_state *state, struct cluster_config *config, uint64_t version)
{
    ASSERT(!state->config || config->term > state->config->term); /* S2 */
    struct cluster_config *before = state->config;
    state->config = config;
    state->version = version;
    state->options.recover = false;
    if (state->next_id < config->keys.former_below) /* S14 */
        state->next_id = state->end_id;
    /* After terms that it never read, it cannot know which process of a server went when, nor why. */
    const bool skipped = before && config->term > before->term + 1;
    const bool told = manage_installed(state, before) || skipped;
    warn_of_loss(state, before ? before : state->recovery.best, told);
    leader_named(state);
    cluster_release(before);
    sort_servers(state);
}

/* The stored configuration becomes the one in force, unless it is already. */
static void adopt(struct cm_state *state, struct cluster_config *config, uint64_t version)
{
    if (config && !state->knows && state->options.recover) {
        actions_stop(
            state, ROWAN_EEXISTS,
            "the stored configuration is there: start the configuration manager without --recover");
        return;
    }
    state->knows = true;
    if (!config && !state->config) {
        state->version = version;
        return;
    }
    if (config && state->config && version == state->version && config->term == state->config->term)
        return;
    if (!config ||
        (state->config && (config->cluster != state->config->cluster || version <= state->version ||
                           config->term <= state->config->term))) {
        actions_stop(state, ROWAN_ECLUSTER, refusal_gone_back);
        return;
    }
    if (!config->has_secret) {
        actions_stop(state, ROWAN_EFORMAT, "the stored configuration has no secret");
        return;
    }
    install(state, cluster_hold(config), version);
}

/* --- proposals --- */

static void note_asked(struct cm_state *state)
{
    state->asked_ns = state->now_ns;
    if (!state->unanswered_ns)
        state->unanswered_ns = state->now_ns;
}

static void store(struct cm_state *state, struct cluster_config *config)
{
    ASSERT(!state->storing && !state->reading && !state->proposal); /* S4 */
    state->proposal = config;
    state->storing = true;
    note_asked(state);
    struct cm_action *action = actions_add(state, CM_ACTION_STORE);
    action->config = config;
    action->expected_version = state->version;
}

static struct cluster_config *propose_block(struct cm_state *state)
{
    struct cluster_config *config = NULL;
    const int error = proposal_block(state->config, &config);
    if (error)
        fail_ids(state, error,
                 error == ROWAN_ETOOMANY ? "this cluster has given out all its client ids"
                                         : "the configuration manager is out of memory");
    return config;
}

/* S7: a member is here, so there is no cold start to wait for. Who is no member, or a kept one, waits to be added. Not called while a
 * configuration is being stored: its outcome decides who is a member. */
static void dismiss_waiting(struct cm_state *state)
{
    for (uint32_t i = 0; state->registered.count > 0 && i < state->connection_limit; i++) {
        const struct connection *peer = &state->connections[i];
        const struct member *member = cluster_member(state->config, peer->server);
        if (peer->open && peer->server != 0 && !peer->member && member && !member->kept)
            leader_dismiss(state, i, refusal_restarted);
    }
}

/* What is due to be stored; NULL: nothing. */
static struct cluster_config *propose(struct cm_state *state)
{
    if (leader_is_doubted(state)) /* S13 */
        return NULL;
    if (!state->leads)
        return leader_claim(state); /* S10 */
    struct cluster_config *config =
        state->config && state->config->lease_ms ? manage_propose(state) : NULL; /* S11 */
    if (config)
        return config;
    config = start_propose(state);
    if (config)
        return config;
    return state->config && state->wanting > 0 && state->next_id == state->end_id &&
                   proposal_may_reserve(state->config, state->holders)
               ? propose_block(state)
               : NULL;
}

/* After every event: gives ids, sends a new configuration, then reads or proposes what is due. */
static void advance(struct cm_state *state)
{
    if (state->stopped)
        return;
    give_ids(state);
    manage_plan_answer(state);
    for (uint32_t i = 0; state->config && i < state->connection_limit; i++) {
        const struct connection *peer = &state->connections[i];
        if (peer->open && (peer->member || peer->subscribed) &&
            peer->known_term < state->config->term)
            actions_configuration(state, i, 0);
    }

    manage_commit(state);
    leader_tell_later(state);
    if (!manage_nobody_runs(state) && !state->storing)
        dismiss_waiting(state);
    if (state->reading || state->storing)
        return;
    if (state->must_read) {
        state->must_read = false;
        state->reading = true;
        note_asked(state);
        actions_add(state, CM_ACTION_READ);
        return;
    }
    struct cluster_config *config = propose(state);
    if (config)
        store(state, config);
}

/* --- events --- */

/* The coordination service has answered. */
static void heard(struct cm_state *state)
{
    state->heard_ns = state->now_ns;
    state->unanswered_ns = 0;
}

/* A read that failed is tried again at the next event, because the reason may last. */
static void on_read(struct cm_state *state, const struct cm_event *event)
{
    ASSERT(state->reading);
    state->reading = false;
    if (!event->error) {
        heard(state);
        adopt(state, event->config, event->version);
        if (!state->must_read && !state->stopped)
            leader_follow(state);
        return;
    }
    state->must_read = state->rests = true;
    fail_ids(state, event->error, "the configuration manager cannot read the coordination service");
    if (!state->knows)
        actions_stop(state, event->error, "the stored configuration cannot be read");
}

/* S3: the ids that it reserves are ours. */
static void take_ids(struct cm_state *state, const struct cluster_config *stored)
{
    const uint32_t next = state->config ? state->config->next_client_id : stored->next_client_id;
    if (!state->leads || next == stored->next_client_id)
        return;
    state->next_id = next < CLUSTER_FIRST_CLIENT_ID ? CLUSTER_FIRST_CLIENT_ID : next;
    state->end_id = stored->next_client_id;
}

static void on_stored(struct cm_state *state, const struct cm_event *event)
{
    ASSERT(state->storing && state->proposal);
    struct cluster_config *proposal = state->proposal;
    state->storing = false;
    state->proposal = NULL;
    if (!event->error || event->error == ROWAN_EVERSION)
        heard(state);

    if (!event->error) {
        take_ids(state, proposal);
        install(state, proposal, event->version);
        return;
    }
    cluster_release(proposal);
    registrations_expire(&state->registered);
    state->must_read = true;
    if (event->error == ROWAN_EVERSION || event->error == ROWAN_EUNKNOWN)
        return;
    state->rests = true;
    fail_ids(state, event->error,
             "the coordination service did not store the configuration; see the log of the "
             "configuration manager");
}

static void on_changed(struct cm_state *state, const struct cm_event *event)
{
    (void)event;
    state->must_read = true;
}

static void on_time(struct cm_state *state, const struct cm_event *event)
{
    (void)event;
    manage_tick(state);
    leader_tick(state);
}

static void on_opened(struct cm_state *state, const struct cm_event *event)
{
    ASSERT(!state->connections[event->connection].open);
    state->connections[event->connection] = (struct connection){.open = true};
    if (event->connection >= state->connection_limit)
        state->connection_limit = event->connection + 1;
}

static void on_closed(struct cm_state *state, const struct cm_event *event)
{
    struct connection *peer = &state->connections[event->connection];
    state->wanting -= peer->wants_id;
    state->renewing -= peer->renews;
    manage_plan_forget(state, event->connection);
    registrations_remove(&state->registered, event->connection);
    registrations_remove(&state->running, event->connection);
    state->here -= peer->member;
    *peer = (struct connection){0};
}

static void on_join(struct cm_state *state, const struct cm_event *event)
{
    struct connection *peer = &state->connections[event->connection];
    const struct cm_join *join = event->join;
    if (!join_is_right(join)) {
        actions_refuse(state, event->connection, event->tag, ROWAN_EINVALID,
                       "the server's report has a field that is empty or out of range");
        return;
    }
    if (peer->server != 0 &&
        (peer->server != join->server || peer->incarnation != join->incarnation)) {
        actions_refuse(state, event->connection, event->tag, ROWAN_EINVALID,
                       "another server joined by this connection");
        return;
    }
    leader_told(state, join);
    const char *refusal = refusal_of(state, event->connection, join);
    if (refusal) {
        actions_refuse(state, event->connection, event->tag,
                       refusal_error(refusal, state->config, join->data_cluster != 0), refusal);
        return;
    }

    if (state->config && join->formatted)
        state->holders[join->server] = join->incarnation; /* S9 */
    peer->server = join->server;
    peer->incarnation = join->incarnation;
    peer->join_tag = event->tag;
    peer->has_data = join->data_cluster != 0;
    peer->format = join->format;
    state->here -= peer->member;
    peer->member = refusal_is_member(state->config, join->server, join->incarnation);
    state->here += peer->member;
    if (peer->member) {
        registrations_add(&state->running, event->connection, join, state->now_ns);
        actions_configuration(state, event->connection, event->tag);
        manage_joined(state, event->connection, join->formatted);
    } else {
        registrations_add(&state->registered, event->connection, join, state->now_ns);
        actions_answer(state, CM_ACTION_CONFIGURATION, event->connection, event->tag)->bring =
            state->options.recover && recovery_asks(&state->recovery, join, event->config);
    }
}

static void on_get_configuration(struct cm_state *state, const struct cm_event *event)
{
    struct connection *peer = &state->connections[event->connection];
    peer->subscribed = true;
    if (state->config && state->config->term > event->known_term) {
        actions_configuration(state, event->connection, event->tag);
        return;
    }
    if (event->known_term > peer->known_term)
        peer->known_term = event->known_term;
    actions_answer(state, CM_ACTION_CONFIGURATION, event->connection, event->tag);
}

/* A client that asks again has waited for a while: the reason is logged, once for each configuration. */
static void put_off(struct cm_state *state, uint32_t connection, uint32_t tag)
{
    const char *why = "the connection has asked for a client id already and has no answer yet";
    if (state->config && !proposal_may_reserve(state->config, state->holders)) {
        proposal_why_not(state->config, state->holders, state->detail, sizeof state->detail);
        why = state->detail;
        if (state->warned_term != state->config->term) {
            state->warned_term = state->config->term;
            actions_log(state, CM_ACTION_WARN, "first_id_waits", "%s", why);
        }
    }
    actions_refuse(state, connection, tag, ROWAN_EAGAIN, why);
}

/* S15 */
static void refuse_more(struct cm_state *state, const struct cm_event *event)
{
    actions_log(state, CM_ACTION_WARN, "client_ids_refused",
                "user %s asks for more than %d client ids a second: see why so many sessions are "
                "opened there",
                event->user, QUOTA_A_SECOND);
    actions_refuse(state, event->connection, event->tag, ROWAN_EAGAIN,
                   "so many sessions were opened by this user of late that there is no client id "
                   "just now: again later");
}

static void on_new_client_id(struct cm_state *state, const struct cm_event *event)
{
    if (!state->leads) {
        actions_refuse(state, event->connection, event->tag, ROWAN_ENOTLEADING,
                       refusal_not_leading);
        return;
    }
    struct connection *peer = &state->connections[event->connection];
    if (peer->wants_id) {
        put_off(state, event->connection, event->tag);
        return;
    }
    if (event->reader) {
        actions_answer(state, CM_ACTION_CLIENT_ID, event->connection, event->tag)->client_id = 0;
        return;
    }
    if (!quota_take(&state->quota, event->user, state->now_ns)) {
        refuse_more(state, event);
        return;
    }
    peer->wants_id = true;
    peer->id_tag = event->tag;
    state->wanting++;
}

static void (*const handlers[])(struct cm_state *state, const struct cm_event *event) = {
    [CM_EVENT_START] = on_changed, /* it was never read */
    [CM_EVENT_READ] = on_read,
    [CM_EVENT_STORED] = on_stored,
    [CM_EVENT_CHANGED] = on_changed,
    [CM_EVENT_LEADER] = leader_elected,
    [CM_EVENT_TIME] = on_time,
    [CM_EVENT_OPENED] = on_opened,
    [CM_EVENT_CLOSED] = on_closed,
    [CM_EVENT_JOIN] = on_join,
    [CM_EVENT_GET_CONFIGURATION] = on_get_configuration,
    [CM_EVENT_NEW_CLIENT_ID] = on_new_client_id,
    [CM_EVENT_RENEW] = manage_renewed,
    [CM_EVENT_ADOPTED] = manage_adopted,
    [CM_EVENT_FILLED] = manage_filled,
    [CM_EVENT_PLAN] = manage_planned,
    [CM_EVENT_LOAD] = manage_loaded,
};

const struct cm_output *cm_state_step(struct cm_state *state, const struct cm_event *event)
{
    ASSERT(!state->stopped && event->connection < CM_MAX_CONNECTIONS);
    ASSERT(state->started == (event->kind != CM_EVENT_START));
    ASSERT(event->cut_count <= CLUSTER_MAX_MEMBERS);
    ASSERT(event->kind <= CM_EVENT_OPENED || state->connections[event->connection].open);

    ASSERT(event->now_ns >= state->now_ns);
    leases_pass(&state->leases, state->now_ns, event->now_ns);
    state->now_ns = event->now_ns;
    state->output.count = state->story_count = 0;
    state->started = true;
    state->rests = false;
    handlers[event->kind](state, event);
    if (!manage_nobody_runs(state))
        state->ended_ns = state->now_ns;
    if (!state->rests)
        advance(state);

    state->output.waiting_count =
        start_is_awaited(state) ? start_absent(state, state->waiting_for) : 0;
    state->output.registration_epoch = state->registered.epoch;
    state->output.leads = state->leads;
    state->output.cut = state->unanswered_ns && state->now_ns - state->unanswered_ns > CUT_NS;
    state->output.wake_ns = manage_wake(state);
    return &state->output;
}
