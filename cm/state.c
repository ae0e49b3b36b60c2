/* state.c - the configuration manager's decisions: the first configuration, who gets it, client
 * ids.
 *
 * Invariants:
 *  S1 A configuration is in force only if it was read from the coordination service or a
 *     compare-and-set that put it there answered 0 (C7 of the design). Only what is in force is
 *     sent.
 *  S2 Terms in force rise; the cluster's id never changes.
 *  S3 A client id is given only out of a block that a compare-and-set of this very leader reserved
 *     with the answer 0. After any other answer the block is given up, even if a later read shows it
 *     stored: another leader may have stored the very same bytes and be giving those ids out.
 *  S4 One READ or STORE is under way at a time.
 *  S5 The secret goes only to a connection whose Join named a member's incarnation.
 *
 *                     CM_EVENT_STORED: 0 (in force), or another error
 *            +---------------------------------------------------------------+
 *            v                                                               |
 *   [reading] --CM_EVENT_READ--> [resting] --leads, and has a reason--> [storing]
 *       ^ ^                         |          (propose_first,               |
 *       | +--changed, won, an error-+           propose_block)               |
 *       +--------------- CM_EVENT_STORED: lost or unknown -------------------+
 */
#include "cm/state.h"

#include <stdlib.h>
#include <string.h>

#include "cm/first.h"
#include "cm/ids.h"
#include "cm/roll.h"
#include "common/base/assert.h"
#include "common/base/error.h"

enum { FIRST_CLIENT_ID = 1 };

struct connection {
    bool open;
    bool subscribed;      /* asked for the configuration: hears of later ones */
    uint32_t server;      /* that joined by it; 0: none */
    uint32_t join_tag;    /* of its last Join */
    uint64_t incarnation; /* of that server */
    uint64_t told_term;   /* of the newest configuration sent to it, or known to it */
};

/* A step sends a connection at most a reply, a refusal, an id and a configuration. */
enum { MAX_ACTIONS = 4 * CM_MAX_CONNECTIONS + 4 };

struct cm_state {
    struct cm_state_options options;
    bool started, stopped, leads;
    bool knows;     /* the stored value has been read once */
    bool must_read; /* what we know of the stored value may be old */
    bool reading, storing;

    struct cluster_config *config;   /* in force */
    uint64_t version;                /* of the stored value that it is; 0: none stored */
    struct cluster_config *proposal; /* while storing */

    struct ids ids;
    struct roll roll; /* listed servers that joined while there is no configuration */
    struct connection connections[CM_MAX_CONNECTIONS];
    uint32_t connection_limit; /* above the highest ever opened */

    struct cm_output output;
    uint32_t waiting_for[CLUSTER_MAX_MEMBERS];
    char detail[CM_MAX_DETAIL_BYTES + 1];
    struct cm_action actions[MAX_ACTIONS];
};

static bool options_are_right(const struct cm_state_options *options)
{
    if (options->server_count < 1 || options->server_count > CLUSTER_MAX_MEMBERS ||
        options->replicas < 1 || options->replicas > CLUSTER_MAX_REPLICAS ||
        options->replicas > options->server_count || options->shards > CLUSTER_MAX_SHARDS ||
        options->cluster == 0)
        return false;
    for (uint32_t i = 0; i < options->server_count; i++) {
        if (options->servers[i] < 1 || options->servers[i] > CLUSTER_MAX_SERVER ||
            (i > 0 && options->servers[i] <= options->servers[i - 1]))
            return false;
    }
    return true;
}

int cm_state_create(const struct cm_state_options *options, struct cm_state **out)
{
    if (!options_are_right(options))
        return ROWAN_EINVALID;
    struct cm_state *state = calloc(1, sizeof *state);
    if (!state)
        return ROWAN_ENOMEM;
    state->options = *options;
    state->output.actions = state->actions;
    state->output.waiting_for = state->waiting_for;
    *out = state;
    return ROWAN_OK;
}

void cm_state_destroy(struct cm_state *state)
{
    if (!state)
        return;
    cluster_release(state->proposal);
    cluster_release(state->config);
    free(state);
}

struct cluster_config *cm_state_config(const struct cm_state *state)
{
    return state->config;
}

bool cm_state_knows(const struct cm_state *state)
{
    return state->knows;
}

bool cm_state_leads(const struct cm_state *state)
{
    return state->leads;
}

/* --- actions --- */

static struct cm_action *act(struct cm_state *state, enum cm_action_kind kind)
{
    ASSERT(state->output.count < MAX_ACTIONS);
    struct cm_action *action = &state->actions[state->output.count++];
    *action = (struct cm_action){.kind = kind};
    return action;
}

static struct cm_action *answer(struct cm_state *state, enum cm_action_kind kind,
                                uint32_t connection, uint32_t tag)
{
    ASSERT(state->connections[connection].open);
    struct cm_action *action = act(state, kind);
    action->connection = connection;
    action->tag = tag;
    return action;
}

static void refuse(struct cm_state *state, uint32_t connection, uint32_t tag, int error,
                   const char *detail)
{
    struct cm_action *action = answer(state, CM_ACTION_FAILURE, connection, tag);
    action->error = error;
    action->detail = detail;
}

static void stop(struct cm_state *state, int error, const char *detail)
{
    struct cm_action *action = act(state, CM_ACTION_STOP);
    action->error = error;
    action->detail = detail;
    state->stopped = true;
}

/* Sends what is in force, or the news that nothing is. */
static void tell(struct cm_state *state, uint32_t connection, uint32_t tag)
{
    struct connection *peer = &state->connections[connection];
    struct cm_action *action = answer(state, CM_ACTION_CONFIGURATION, connection, tag);
    action->config = state->config;
    if (!state->config)
        return;
    action->with_secret = peer->server != 0; /* S5: install and join checked its incarnation */
    peer->told_term = state->config->term;
}

/* --- client ids --- */

static void give_ids(struct cm_state *state)
{
    uint32_t connection, tag, id;
    while (ids_give(&state->ids, &connection, &tag, &id))
        answer(state, CM_ACTION_CLIENT_ID, connection, tag)->client_id = id;
}

static void fail_ids(struct cm_state *state, int error, const char *detail)
{
    uint32_t connection, tag;
    while (ids_turn(&state->ids, &connection, &tag))
        refuse(state, connection, tag, error, detail);
}

/* --- what is in force --- */

static const char restarted[] =
    "a server that restarted cannot rejoin in this version: its place belongs to the process that "
    "the configuration names; start a new cluster";

/* The server's Join names the incarnation that the configuration in force names. */
static bool is_member(const struct cm_state *state, uint32_t server, uint64_t incarnation)
{
    const struct member *member = cluster_member(state->config, server);
    return member && member->incarnation == incarnation;
}

/* Puts `config`, which is stored as `version`, in force (S1); takes over the caller's reference. */
static void install(struct cm_state *state, struct cluster_config *config, uint64_t version)
{
    ASSERT(!state->config || config->term > state->config->term); /* S2 */
    cluster_release(state->config);
    state->config = config;
    state->version = version;
    state->roll = (struct roll){0};

    for (uint32_t i = 0; i < state->connection_limit; i++) {
        struct connection *peer = &state->connections[i];
        if (peer->server == 0 || is_member(state, peer->server, peer->incarnation))
            continue;
        peer->server = 0;
        refuse(state, i, peer->join_tag, ROWAN_EREFUSED, restarted);
    }
}

/* What the coordination service holds becomes what is in force, unless it is known already. */
static void adopt(struct cm_state *state, struct cluster_config *config, uint64_t version)
{
    state->knows = true;
    if (!config && !state->config) {
        state->version = version;
        return;
    }
    if (config && state->config && version <= state->version)
        return;
    if (!config || (state->config && (config->cluster != state->config->cluster ||
                                      config->term <= state->config->term))) {
        stop(state, ROWAN_ECLUSTER,
             "the stored configuration was removed or replaced by one that does not follow from "
             "it; restore it and start the configuration manager again");
        return;
    }
    if (!config->has_secret) {
        stop(state, ROWAN_EFORMAT, "the stored configuration has no secret");
        return;
    }
    install(state, cluster_hold(config), version);
}

/* --- proposals --- */

static void store(struct cm_state *state, struct cluster_config *proposal)
{
    ASSERT(!state->storing && !state->reading && !state->proposal); /* S4 */
    state->proposal = proposal;
    state->storing = true;
    struct cm_action *action = act(state, CM_ACTION_STORE);
    action->config = proposal;
    action->expected_version = state->version;
}

static bool all_joined(const struct cm_state *state)
{
    for (uint32_t i = 0; i < state->options.server_count; i++) {
        if (!roll_find(&state->roll, state->options.servers[i]))
            return false;
    }
    return true;
}

/* Every change reserves a block of ids, so the first clients cost no second change. When memory is
 * short nothing is proposed; the servers' next Join tries again. */
static void propose_first(struct cm_state *state)
{
    const struct cm_state_options *options = &state->options;
    struct first_wish wish = {.cluster = options->cluster,
                              .block_limit = UINT32_MAX,
                              .replicas = options->replicas,
                              .shards = options->shards,
                              .next_client_id = FIRST_CLIENT_ID + CM_CLIENT_ID_BLOCK};
    memcpy(wish.secret, options->secret, sizeof wish.secret);

    struct member members[CLUSTER_MAX_MEMBERS] = {0};
    for (uint32_t i = 0; i < options->server_count; i++) {
        const struct cm_join *join = &roll_find(&state->roll, options->servers[i])->join;
        members[i].server = join->server;
        members[i].incarnation = join->incarnation;
        members[i].workers = join->workers;
        memcpy(members[i].address, join->address, sizeof members[i].address);
        if (join->block_limit < wish.block_limit)
            wish.block_limit = join->block_limit;
    }

    struct cluster_config *proposal;
    int error = first_place(&wish, members, options->server_count, &proposal);
    ASSERT(error != ROWAN_EINVALID); /* options_are_right and join_is_right made sure */
    if (!error)
        store(state, proposal);
}

static void propose_block(struct cm_state *state)
{
    uint32_t next = state->config->next_client_id;
    if (next > UINT32_MAX - CM_CLIENT_ID_BLOCK) {
        fail_ids(state, ROWAN_ETOOMANY, "this cluster has given out all its client ids");
        return;
    }
    struct cluster_config *proposal = cluster_copy(state->config);
    if (!proposal) {
        fail_ids(state, ROWAN_ENOMEM, "the configuration manager is out of memory");
        return;
    }
    proposal->term++;
    proposal->next_client_id =
        (next < FIRST_CLIENT_ID ? FIRST_CLIENT_ID : next) + CM_CLIENT_ID_BLOCK;
    store(state, proposal);
}

/* After every event: gives what can be given, then starts what has to be started. */
static void advance(struct cm_state *state)
{
    if (state->stopped)
        return;
    give_ids(state);
    for (uint32_t i = 0; state->config && i < state->connection_limit; i++) {
        const struct connection *peer = &state->connections[i];
        if (peer->open && (peer->server != 0 || peer->subscribed) &&
            peer->told_term < state->config->term)
            tell(state, i, 0);
    }

    if (state->reading || state->storing)
        return;
    if (state->must_read) {
        state->must_read = false;
        state->reading = true;
        act(state, CM_ACTION_READ);
    } else if (!state->leads) {
        return;
    } else if (!state->config && all_joined(state)) {
        propose_first(state);
    } else if (state->config && state->ids.wanting > 0) {
        propose_block(state);
    }
}

/* --- events --- */

/* A failed read is tried again at the next event, not at once: the reason may last. */
static bool on_read(struct cm_state *state, const struct cm_event *event)
{
    ASSERT(state->reading);
    state->reading = false;
    if (!event->error) {
        adopt(state, event->config, event->version);
        return true;
    }
    state->must_read = true;
    fail_ids(state, event->error, "the configuration manager cannot read the coordination service");
    if (!state->knows)
        stop(state, event->error, "the stored configuration cannot be read");
    return false;
}

static bool on_stored(struct cm_state *state, const struct cm_event *event)
{
    ASSERT(state->storing && state->proposal);
    struct cluster_config *proposal = state->proposal;
    state->storing = false;
    state->proposal = NULL;

    if (!event->error) {
        install(state, proposal, event->version);
        if (state->leads) { /* S3 */
            uint32_t end = proposal->next_client_id;
            ids_grant(&state->ids, end - CM_CLIENT_ID_BLOCK, end);
        }
        return true;
    }
    cluster_release(proposal);
    state->must_read = true;
    if (event->error == ROWAN_EVERSION || event->error == ROWAN_EUNKNOWN)
        return true;
    fail_ids(state, event->error,
             "the coordination service did not store the configuration; see the log of the "
             "configuration manager");
    return false;
}

static void on_leader(struct cm_state *state, bool leader)
{
    state->leads = leader;
    if (leader)
        state->must_read = true;
    else
        ids_grant(&state->ids, 0, 0);
}

static void on_opened(struct cm_state *state, uint32_t connection)
{
    ASSERT(!state->connections[connection].open);
    state->connections[connection] = (struct connection){.open = true};
    if (connection >= state->connection_limit)
        state->connection_limit = connection + 1;
}

/* A server that goes away before the first configuration is waited for again. */
static void on_closed(struct cm_state *state, uint32_t connection)
{
    ids_forget(&state->ids, connection);
    state->connections[connection].open = false;
    state->connections[connection].subscribed = false;
    state->connections[connection].server = 0;
    roll_remove_connection(&state->roll, connection);
}

static bool is_listed(const struct cm_state *state, uint32_t server)
{
    for (uint32_t i = 0; i < state->options.server_count; i++) {
        if (state->options.servers[i] == server)
            return true;
    }
    return false;
}

/* Why the server may not join, or NULL. */
static const char *join_refusal(struct cm_state *state, uint32_t connection,
                                const struct cm_join *join)
{
    if (state->config) {
        if (!cluster_member(state->config, join->server))
            return "the server's number is not among the servers of this cluster";
        return is_member(state, join->server, join->incarnation) ? NULL : restarted;
    }
    if (!is_listed(state, join->server))
        return "the server's number is not in the list that the configuration manager was "
               "started with (cluster-servers)";
    const struct candidate *candidate = roll_find(&state->roll, join->server);
    if (candidate && candidate->connection != connection &&
        candidate->join.incarnation != join->incarnation)
        return "another running server has this number; each needs its own";
    return roll_fits(&state->roll, join, state->detail, sizeof state->detail) ? NULL
                                                                              : state->detail;
}

static void on_join(struct cm_state *state, const struct cm_event *event)
{
    struct connection *peer = &state->connections[event->connection];
    const struct cm_join *join = event->join;
    if (!join_is_right(join)) {
        refuse(state, event->connection, event->tag, ROWAN_EINVALID,
               "the server's report has a field that is empty or out of range");
        return;
    }
    if (peer->server != 0 &&
        (peer->server != join->server || peer->incarnation != join->incarnation)) {
        refuse(state, event->connection, event->tag, ROWAN_EINVALID,
               "another server joined by this connection");
        return;
    }
    const char *refusal = join_refusal(state, event->connection, join);
    if (refusal) {
        refuse(state, event->connection, event->tag, ROWAN_EREFUSED, refusal);
        return;
    }

    peer->server = join->server;
    peer->incarnation = join->incarnation;
    peer->join_tag = event->tag;
    if (!state->config)
        roll_add(&state->roll, event->connection, join);
    tell(state, event->connection, event->tag);
}

static void on_get_configuration(struct cm_state *state, const struct cm_event *event)
{
    struct connection *peer = &state->connections[event->connection];
    peer->subscribed = true;
    if (state->config && state->config->term > event->known_term) {
        tell(state, event->connection, event->tag);
        return;
    }
    if (event->known_term > peer->told_term)
        peer->told_term = event->known_term;
    answer(state, CM_ACTION_CONFIGURATION, event->connection, event->tag);
}

static void on_new_client_id(struct cm_state *state, const struct cm_event *event)
{
    if (ids_wants(&state->ids, event->connection)) {
        refuse(state, event->connection, event->tag, ROWAN_EBUSY,
               "the connection has asked for a client id already and has no answer yet");
        return;
    }
    ids_want(&state->ids, event->connection, event->tag);
}

/* Handles the event; false: nothing may be started because of it. */
static bool handle(struct cm_state *state, const struct cm_event *event)
{
    switch (event->kind) {
    case CM_EVENT_START:
        ASSERT(!state->started);
        state->started = state->must_read = true;
        return true;
    case CM_EVENT_READ:
        return on_read(state, event);
    case CM_EVENT_STORED:
        return on_stored(state, event);
    case CM_EVENT_CHANGED:
        state->must_read = true;
        return true;
    case CM_EVENT_LEADER:
        on_leader(state, event->leader);
        return true;
    case CM_EVENT_OPENED:
        on_opened(state, event->connection);
        return true;
    case CM_EVENT_CLOSED:
        on_closed(state, event->connection);
        return true;
    case CM_EVENT_JOIN:
        on_join(state, event);
        return true;
    case CM_EVENT_GET_CONFIGURATION:
        on_get_configuration(state, event);
        return true;
    case CM_EVENT_NEW_CLIENT_ID:
        on_new_client_id(state, event);
        return true;
    }
    ASSERT(false && "an event of unknown kind");
    return false;
}

const struct cm_output *cm_state_step(struct cm_state *state, const struct cm_event *event)
{
    ASSERT(!state->stopped && event->connection < CM_MAX_CONNECTIONS);
    ASSERT(state->started || event->kind == CM_EVENT_START);
    ASSERT(event->kind <= CM_EVENT_OPENED || state->connections[event->connection].open);

    state->output.count = 0;
    if (handle(state, event))
        advance(state);

    state->output.waiting_count = 0;
    for (uint32_t i = 0; !state->config && i < state->options.server_count; i++) {
        if (!roll_find(&state->roll, state->options.servers[i]))
            state->waiting_for[state->output.waiting_count++] = state->options.servers[i];
    }
    return &state->output;
}
