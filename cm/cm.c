/* cm.c - the adapter around the pure state: fabric events and coordination answers go in as events,
 * actions come out as messages and requests.
 *
 * Invariants:
 *  A1 The state is stepped only from cm_poll, never inside a callback of the coordination service:
 *     callbacks keep their answer, cm_poll hands it to the state.
 *  A2 The fabric is not polled before the stored value was read once, so that every peer's cluster
 *     id is judged against the true one.
 *  A3 A connection that we give up is closed only after the batch of events it may be in.
 *  A5 A server has one connection: what it says on a newer one, where it has shown the cluster's key if there is one, ends the
 *     older for the state first. Whoever only connects ends nobody's.
 *  A6 Whoever may ask nothing is a guest (F13): clients that have not logged in where that is required, servers that have not
 *     shown the key. Whom another set of users makes one is given up. Clients that are no guests have CM_MAX_CLIENTS places,
 *     the last CM_ADMIN_CLIENTS of them for admins; no number of clients and guests takes those of servers.
 *  A4 CM_EVENT_TIME comes before the fabric's events of a poll: its time was read after those of all polls before.
 */
#include "cm/cm_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cm/refusal.h"
#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/cluster/control.h"

enum { BATCH_EVENTS = 64 };

#define RETRY_NS (1 * NS_PER_MS) /* until what could not be sent is tried again */

/* --- answers of the coordination service --- */

static void keep(struct cm *cm, const struct cm_event *event)
{
    cm->answers[event->kind] = *event;
    cm->answered[event->kind] = true;
}

/* The configuration is ours until it is handed over. */
static void keep_read(void *context, int error, const void *value, size_t bytes, uint64_t version)
{
    struct cm_event event = {.kind = CM_EVENT_READ, .error = error, .version = version};
    if (!error && version > 0)
        event.error = cluster_decode(value, bytes, &event.config);
    keep(context, &event);
}

static void keep_stored(void *context, int error, uint64_t version)
{
    keep(context, &(struct cm_event){.kind = CM_EVENT_STORED, .error = error, .version = version});
}

static void keep_changed(void *context)
{
    keep(context, &(struct cm_event){.kind = CM_EVENT_CHANGED});
}

static void keep_leader(void *context, bool leader)
{
    keep(context, &(struct cm_event){.kind = CM_EVENT_LEADER, .leader = leader});
}

/* --- actions --- */

static void fail(struct cm *cm, int error, const char *detail)
{
    ASSERT(!cm->error && error);
    log_event(LOG_ERROR, "cm_failed", "error=%s detail=\"%s\"", error_name(error), detail);
    cm->error = error;
    if (cm->options.failed)
        cm->options.failed(cm->options.failed_context, error, detail);
}

/* The error of a request that could not start is kept as its answer. */
static void read_stored(struct cm *cm)
{
    int error = coord_read(cm->options.coord, keep_read, cm);
    if (error)
        keep_read(cm, error, NULL, 0, 0);
}

static void store(struct cm *cm, const struct cm_action *action)
{
    size_t bytes = cluster_encoded_bytes(action->config, true);
    void *encoded = malloc(bytes);
    int error = ROWAN_ENOMEM;
    if (encoded) {
        cluster_encode(action->config, true, encoded, bytes);
        error =
            coord_cas(cm->options.coord, action->expected_version, encoded, bytes, keep_stored, cm);
        free(encoded);
    }
    if (error)
        keep_stored(cm, error, 0);
}

static void carry_out(struct cm *cm, const struct cm_output *output, const struct cm_action *action)
{
    switch (action->kind) {
    case CM_ACTION_READ:
        read_stored(cm);
        break;
    case CM_ACTION_STORE:
        store(cm, action);
        break;
    case CM_ACTION_CONFIGURATION:
        post_configuration(cm, output, action);
        break;
    case CM_ACTION_CLIENT_ID:
        post_client_id(cm, action);
        break;
    case CM_ACTION_FAILURE:
        post_failure(cm, action->connection, action->tag, action->error, action->detail);
        break;
    case CM_ACTION_LEASE:
        post_own(cm, action, false,
                 outgoing_lease(cm->identity.incarnation, action->now_ns, action->granted));
        break;
    case CM_ACTION_COMMITTED:
        post_own(cm, action, false, outgoing_committed(action->term));
        break;
    case CM_ACTION_TELL:
        log_event(LOG_INFO, action->event, "%s", action->detail);
        break;
    case CM_ACTION_WARN:
        log_event(LOG_WARN, action->event, "detail=\"%s\"", action->detail);
        break;
    case CM_ACTION_STOP:
        fail(cm, action->error, action->detail);
        break;
    }
}

static void list_servers(const uint32_t *servers, uint32_t count, char *out, size_t bytes)
{
    size_t at = 0;
    *out = '\0';
    for (uint32_t i = 0; i < count && at < bytes; i++)
        at += (size_t)snprintf(out + at, bytes - at, "%s%u", i ? "," : "", servers[i]);
}

/* What the settings say of a cluster counts when it is made, and not for one that is there. */
static void tell_other_settings(const struct cm *cm, const struct cluster_config *config)
{
    char stored[CLUSTER_MAX_MEMBERS * 6], given[CLUSTER_MAX_MEMBERS * 6];
    uint32_t members[CLUSTER_MAX_MEMBERS];
    for (uint32_t i = 0; i < config->member_count; i++)
        members[i] = config->members[i].server;
    if (config->wanted_count > 0)
        list_servers(config->wanted, config->wanted_count, stored, sizeof stored);
    else
        list_servers(members, config->member_count, stored, sizeof stored);
    list_servers(cm->options.state.servers, cm->options.state.server_count, given, sizeof given);
    if (strcmp(stored, given) != 0)
        log_event(LOG_WARN, "other_settings",
                  "key=cluster-servers stored=%s given=%s detail=\"the stored ones count: rowan "
                  "add, drain and "
                  "remove change them\"",
                  stored, given);
    if (config->replicas != cm->options.state.replicas)
        log_event(LOG_WARN, "other_settings",
                  "key=replicas stored=%u given=%u detail=\"the stored ones count: they are fixed "
                  "when the "
                  "cluster is made\"",
                  config->replicas, cm->options.state.replicas);
}

static void step(struct cm *cm, const struct cm_event *event)
{
    if (cm->error)
        return;
    struct cm_event with_time = *event;
    with_time.now_ns = cm->now_ns;
    const struct cm_output *output = cm_state_step(cm->state, &with_time);
    cm->wake_ns = output->wake_ns;
    if (cm->leads != output->leads)
        log_event(LOG_INFO, "leadership", "leads=%s", output->leads ? "yes" : "no");
    cm->leads = output->leads;
    cm->cut = output->cut;
    const struct cluster_config *config = cm_state_config(cm->state);
    if (config && config->term != cm->identity.term) {
        if (cm->identity.term == 0)
            tell_other_settings(cm, config);
        cm->identity.cluster = config->cluster;
        cm->identity.term = config->term;
        fabric_endpoint_identity(cm->endpoint, &cm->identity);
        log_event(LOG_INFO, "configuration", "cluster=%016llx term=%llu servers=%u shards=%u",
                  (unsigned long long)config->cluster, (unsigned long long)config->term,
                  config->member_count, config->shard_count);
        login_tell_off(config->users, cm->options.address, &cm->told_off);
    }
    for (uint32_t i = 0; i < output->count; i++)
        carry_out(cm, output, &output->actions[i]);
    access_users(cm);
}

/* --- answers as events --- */

/* What the role itself has to do with an answer. */
static void handle_answer(struct cm *cm, const struct cm_event *event)
{
    int error = event->error;
    if (event->kind == CM_EVENT_STORED)
        cm->store_error = error;
    if (event->kind == CM_EVENT_READ && error == ROWAN_EFORMAT) {
        fail(cm, error,
             "the stored configuration is damaged: restore it, or move it away and start the "
             "configuration manager with --recover");
    } else if (event->kind == CM_EVENT_READ && error == ROWAN_EINCOMPATIBLE) {
        fail(cm, error, "the stored configuration cannot be read");
    } else if (event->kind == CM_EVENT_STORED && error) {
        log_event(LOG_WARN, "configuration_not_stored", "error=%s reason=\"%s\"", error_name(error),
                  error_sentence(error));
    } else if (event->kind == CM_EVENT_CHANGED) {
        /* A watch fires once: it is set again before the value is read, so that no change is missed. */
        error = coord_watch(cm->options.coord, keep_changed, cm);
        if (error)
            fail(cm, error, "the stored configuration cannot be watched");
    }
}

static bool step_answer(struct cm *cm, enum cm_event_kind kind)
{
    if (!cm->answered[kind])
        return false;
    const struct cm_event event = cm->answers[kind];
    cm->answered[kind] = false;
    cm->answers[kind].config = NULL;
    handle_answer(cm, &event);
    step(cm, &event);
    cluster_release(event.config);
    return true;
}

/* --- fabric events --- */

/* A server that runs waits for a manager that knows its cluster. One that leads and knows nothing never will by itself. */
static void tell_if_lost(struct cm *cm, const struct fabric_identity *peer)
{
    if (peer->kind != FABRIC_SERVER || !cm->leads || cm_state_config(cm->state) || cm->told_lost)
        return;
    cm->told_lost = true;
    log_event(
        LOG_ERROR, "configuration_lost",
        "detail=\"server %u runs in cluster %016lx, and the coordination service holds no "
        "configuration: it was wiped, or this is another path or directory; name the right one, "
        "restore it, or stop the servers and recover it (rowan-cm --recover)\"",
        peer->id, peer->cluster);
}

static int turn_away(struct cm *cm)
{
    cm->turned_away++;
    log_event(LOG_WARN, "connections_refused",
              "so_far=%lu reason=\"there are %u already, of %d: see whose they are\"",
              cm->turned_away, cm->client_count, CM_MAX_CLIENTS);
    return ROWAN_ETOOMANY;
}

static int admit(void *context, const struct fabric_identity *peer)
{
    struct cm *cm = context;
    if (peer->cluster != 0 && peer->cluster != cm->identity.cluster) {
        tell_if_lost(cm, peer);
        return ROWAN_ECLUSTER;
    }
    return peer->kind == FABRIC_SERVER || cm->client_count < CM_MAX_CLIENTS ? 0 : turn_away(cm);
}

/* More servers may have come than there are places: the rest is closed. */
static void on_accepted(struct cm *cm, const struct fabric_event *event)
{
    uint32_t place = 0;
    while (place < CM_MAX_CONNECTIONS && cm->peers[place].conn)
        place++;
    if (place == CM_MAX_CONNECTIONS) {
        log_event(LOG_WARN, "connection_refused", "reason=too_many limit=%d", CM_MAX_CONNECTIONS);
        event->conn->user = NULL;
        fabric_conn_close(event->conn);
        return;
    }
    struct cm_peer *peer = &cm->peers[place];
    *peer = (struct cm_peer){.conn = event->conn, .identity = event->peer};
    event->conn->user = peer;
    cm->open_count++;
    if (place >= cm->peer_limit)
        cm->peer_limit = place + 1;
    access_trust(cm, peer);
    step(cm, &(struct cm_event){.kind = CM_EVENT_OPENED, .connection = place});
}

/* Its connection has ended, or the caller closes it next. */
static void free_place(struct cm *cm, struct cm_peer *peer)
{
    if (peer->given_up)
        cm->given_up_count--;
    outbox_clear(&peer->outbox);
    free(peer->login);
    peer->login = NULL;
    peer->conn = NULL;
    cm->open_count--;
    cm->client_count -= peer->trusted && peer->identity.kind != FABRIC_SERVER;
    if (!peer->left)
        step(cm, &(struct cm_event){.kind = CM_EVENT_CLOSED,
                                    .connection = (uint32_t)(peer - cm->peers)});
    peer->given_up = peer->left = false;
}

/* A5 */
static void leave_older(struct cm *cm, const struct cm_peer *newer)
{
    for (uint32_t i = 0; i < cm->peer_limit; i++) {
        struct cm_peer *older = &cm->peers[i];
        const struct fabric_identity *was = &older->identity, *is = &newer->identity;
        if (older == newer || !older->conn || older->left || was->kind != FABRIC_SERVER ||
            was->id != is->id || was->incarnation != is->incarnation)
            continue;
        cm_give_up(cm, older, "it_came_again");
        older->left = true;
        step(cm, &(struct cm_event){.kind = CM_EVENT_CLOSED, .connection = i});
    }
}

static void on_join(struct cm *cm, uint32_t connection, uint32_t tag, const Rowan__Join *from)
{
    struct cm_join join;
    struct cluster_config *stored;
    if (report_decode(from, &join, &stored)) {
        post_failure(cm, connection, tag, ROWAN_EINCOMPATIBLE, refusal_unread);
        return;
    }
    leave_older(cm, &cm->peers[connection]);
    step(cm, &(struct cm_event){.kind = CM_EVENT_JOIN,
                                .connection = connection,
                                .tag = tag,
                                .join = &join,
                                .config = stored});
    cluster_release(stored);
}

static void on_load(struct cm *cm, uint32_t connection, const Rowan__Load *from)
{
    struct load_report report;
    report_load(from, cm->load_rows, &report);
    step(cm, &(struct cm_event){.kind = CM_EVENT_LOAD, .connection = connection, .load = &report});
}

static void refuse_unknown(struct cm *cm, const struct cm_event *event)
{
    cm->unknown_messages++;
    post_failure(cm, event->connection, event->tag, ROWAN_EUNSUPPORTED,
                 "this configuration manager does not know what is asked for");
}

static void on_event(struct cm *cm, struct cm_event *event)
{
    if (event->kind == CM_EVENT_NEW_CLIENT_ID)
        access_share(cm, &cm->peers[event->connection], event);
    if (event->kind == CM_EVENT_PLAN && event->plan.kind == CM_PLAN_LOGIN)
        random_entropy(&event->plan.drawn, sizeof event->plan.drawn);
    step(cm, event);
}

static void answer(struct cm *cm, struct cm_event *event, const Rowan__ControlMessage *message)
{
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_JOIN)
        on_join(cm, event->connection, event->tag, message->join);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_LOAD)
        on_load(cm, event->connection, message->load);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_USERS)
        post_own(cm, &(struct cm_action){.connection = event->connection, .tag = event->tag}, false,
                 outgoing_users(cm_state_config(cm->state)));
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SET_SETTING)
        post_own(cm, &(struct cm_action){.connection = event->connection, .tag = event->tag}, false,
                 outgoing_settings(cm->options.settings, message->set_setting));
    else if (report_event(message, event))
        on_event(cm, event);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FAILURE)
        cm->unknown_messages++; /* the peer did not know something, and nobody answers an answer */
    else
        refuse_unknown(cm, event);
}

static void on_request(struct cm *cm, uint32_t connection, const void *data, size_t bytes)
{
    struct cm_event event = {.connection = connection};
    struct cm_peer *peer = &cm->peers[connection];
    Rowan__ControlMessage *message;
    int error = control_decode(data, bytes, &event.tag, &message);
    if (error) {
        post_failure(cm, connection, 0, error, error_sentence(error));
        return;
    }
    if (access_is_full(cm, peer, message)) { /* A6 */
        error = turn_away(cm);
        post_failure(cm, connection, event.tag, error, error_sentence(error));
        control_free(message);
        return;
    }
    const enum login_step step = access_login(cm, peer, event.tag, message, &error);
    const char *why = step == LOGIN_NO_PART ? access_refusal(cm, peer, message, &error) : NULL;
    if (step == LOGIN_DONE)
        access_trust(cm, peer);
    if (step == LOGIN_FAILED && error != ROWAN_ELOGIN)
        cm_give_up(cm, peer, error_name(error));
    else if (why)
        post_failure(cm, connection, event.tag, error, why);
    else if (step == LOGIN_NO_PART)
        answer(cm, &event, message);
    control_free(message);
}

static void on_fabric_event(struct cm *cm, const struct fabric_event *event)
{
    struct cm_peer *peer =
        event->conn->user; /* the CM has no landing zone: every event is a connection's */
    if (event->kind == FABRIC_ACCEPTED) {
        on_accepted(cm, event);
    } else if (peer && event->kind == FABRIC_CLOSED) {
        free_place(cm, peer);
    } else if (peer && event->kind == FABRIC_MESSAGE) {
        if (!peer->given_up)
            on_request(cm, (uint32_t)(peer - cm->peers), event->data, event->bytes);
        fabric_message_release(event->conn, event->message);
    }
}

/* A3: the batch is over. Closing one may send messages, which may give up another one: that is closed
 * here if it follows, else in the next poll. */
static void close_given_up(struct cm *cm)
{
    for (uint32_t i = 0; cm->given_up_count > 0 && i < cm->peer_limit; i++) {
        struct cm_peer *peer = &cm->peers[i];
        if (!peer->given_up)
            continue;
        struct fabric_conn *conn = peer->conn;
        free_place(cm, peer);
        fabric_conn_close(conn);
    }
}

/* --- the role --- */

static bool poll_coord(struct cm *cm, uint64_t now_ns, uint64_t *wake_ns)
{
    bool busy = coord_poll(cm->options.coord, now_ns, wake_ns) == POLL_BUSY;
    if (!cm->started) {
        cm->started = busy = true;
        step(cm, &(struct cm_event){.kind = CM_EVENT_START});
    }
    for (int kind = CM_EVENT_READ; kind <= CM_EVENT_LEADER; kind++)
        busy |= step_answer(cm, (enum cm_event_kind)kind);
    return busy;
}

static bool poll_fabric(struct cm *cm, uint64_t now_ns, uint64_t *wake_ns)
{
    struct fabric_event events[BATCH_EVENTS];
    unsigned count = fabric_poll(cm->endpoint, now_ns, events, BATCH_EVENTS);
    int error = fabric_endpoint_error(cm->endpoint);
    if (error) {
        fail(cm, error,
             "the network device failed, so nobody reaches this CM any more: see what became "
             "of it, then start the CM again");
        return true;
    }
    for (unsigned i = 0; i < count; i++)
        on_fabric_event(cm, &events[i]);
    if (post_flush(cm))
        wake_at(wake_ns, now_ns + RETRY_NS);
    /* Who asks for logins without one is answered before it is closed (A6). */
    fabric_flush(cm->endpoint);
    close_given_up(cm);
    fabric_flush(cm->endpoint);
    return count > 0;
}

static void poll_metrics(struct cm *cm)
{
    if (!metrics_asked(cm->options.metrics))
        return;
    figures_update(cm);
    metrics_answer(
        cm->options.metrics,
        cm_state_config(cm->state)
            ? NULL
            : "not ready: this process knows no configuration; either the coordination "
              "service does not answer, or the servers of a new cluster have not joined");
}

enum poll_result cm_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct cm *cm = role;
    if (cm->error)
        return POLL_IDLE;
    cm->now_ns = now_ns;
    log_poll(now_ns);
    bool busy = poll_coord(cm, now_ns, wake_ns);
    if (cm->wake_ns <= now_ns) /* A4 */
        step(cm, &(struct cm_event){.kind = CM_EVENT_TIME});
    if (!cm->error && cm_state_knows(cm->state)) /* A2 */
        busy = poll_fabric(cm, now_ns, wake_ns) || busy;
    poll_metrics(cm);
    wake_at(wake_ns, cm->wake_ns);
    /* A request that failed at once has its answer already. */
    return busy || cm->answered[CM_EVENT_READ] || cm->answered[CM_EVENT_STORED] ? POLL_BUSY
                                                                                : POLL_IDLE;
}

int cm_create(const struct cm_options *options, struct cm **out)
{
    ASSERT(options->fabric && options->coord);
    struct cm *cm = calloc(1, sizeof *cm);
    if (!cm)
        return ROWAN_ENOMEM;
    cm->options = *options;
    cm->options.state.keyed = options->servers != NULL;
    figures_register(cm);
    cm->identity =
        (struct fabric_identity){.incarnation = options->state.incarnation, .kind = FABRIC_CM};
    cm->wake_ns = WAKE_NEVER;
    int error = cm_state_create(&cm->options.state, &cm->state);
    if (error)
        goto fail_state;
    error = fabric_endpoint_open(options->fabric, 0, &cm->endpoint);
    if (error)
        goto fail_endpoint;
    fabric_endpoint_identity(cm->endpoint, &cm->identity);
    fabric_endpoint_admit(cm->endpoint, admit, cm);
    fabric_endpoint_guests(cm->endpoint, true);
    error = coord_watch(options->coord, keep_changed, cm);
    if (!error)
        error = coord_elect(options->coord, keep_leader, cm);
    if (error)
        goto fail_coord;
    *out = cm;
    return ROWAN_OK;

fail_coord:
    fabric_endpoint_close(cm->endpoint);
fail_endpoint:
    cm_state_destroy(cm->state);
fail_state:
    free(cm);
    return error;
}

void cm_destroy(struct cm *cm)
{
    if (!cm)
        return;
    for (uint32_t i = 0; i < cm->peer_limit; i++) {
        outbox_clear(&cm->peers[i].outbox);
        free(cm->peers[i].login);
    }
    post_fini(cm);
    users_release(cm->users);
    cluster_release(cm->answers[CM_EVENT_READ].config);
    fabric_endpoint_close(cm->endpoint);
    cm_state_destroy(cm->state);
    free(cm);
}

void cm_tune(struct cm *cm, const struct cm_state_options *state)
{
    cm_state_tune(cm->state, state);
}

void cm_source(struct cm *cm, struct event_source *out)
{
    fabric_endpoint_source(cm->endpoint, out);
}

const struct cluster_config *cm_config(const struct cm *cm)
{
    return cm_state_config(cm->state);
}

int cm_error(const struct cm *cm)
{
    return cm->error;
}
