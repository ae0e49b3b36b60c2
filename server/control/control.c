/* The control role: its poll, and the connections that come to its endpoint. */
#include "server/control/control.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/cluster/settings.h"
#include "proto/message.h"
#include "server/control/control_state.h"

/* --- links --- */

/* A server must be a member with its incarnation: a deposed or restarted one is refused. Others must
 * only not belong to another cluster. */
static int admit(void *context, const struct fabric_identity *peer)
{
    struct control *control = context;
    const struct cluster_config *config = control->config;
    if (config && peer->cluster != 0 && peer->cluster != config->cluster)
        return ROWAN_ECLUSTER;
    if (peer->kind != FABRIC_SERVER)
        return 0;
    if (!config)
        return ROWAN_EAGAIN;
    const struct member *member = cluster_member(config, peer->id);
    return member && member->incarnation == peer->incarnation ? 0 : ROWAN_EREFUSED;
}

static void link_accepted(struct control *control, const struct fabric_event *event)
{
    const bool out =
        fabric_is_unproved(event->conn) && control->endpoint->demands_secret; /* since just now */
    const uint32_t most =
        event->peer.kind == FABRIC_SERVER
            ? CONTROL_MAX_LINKS
            : CONTROL_MAX_LINKS - FABRIC_MAX_ZONE_SENDERS; /* servers have theirs */
    struct control_link *link = control->link_count < most && !out ? calloc(1, sizeof *link) : NULL;
    if (!link) {
        log_event(LOG_WARN, "link_refused", "links=%u", control->link_count);
        fabric_conn_close(event->conn);
        return;
    }
    link->conn = event->conn;
    link->peer = event->peer.kind == FABRIC_SERVER;
    link->server = event->peer.id;
    link->worker = event->peer.role;
    LIST_APPEND(&control->links, link, place);
    control->link_count++;
    event->conn->user = link;
    for (uint32_t i = 0; link->peer && i < control->options->digests; i++) {
        /* If there is no memory: they ask later. */
        (void)command_push(&digest_role(control->digests[i])->inbox,
                           &(struct command){.kind = COMMAND_CONNECTED});
    }
}

static void link_closed(struct control *control, struct control_link *link)
{
    control_query_forget(control, link);
    LIST_REMOVE(&control->links, link, place);
    control->link_count--;
    free(link->login);
    free(link);
}

static void link_ended(struct control *control, struct control_link *link)
{
    if (link->peer && control->zone)
        control_zone_check_medium(control);
    link_closed(control, link);
}

static const struct users *users_of(const struct control *control)
{
    return control->config ? control->config->users : NULL;
}

/* It may have come before the configuration that has this secret. */
static bool has_shown_again(struct control_link *link)
{
    uint8_t code[MAC_BYTES];
    if (!fabric_proof_again(link->conn, code) || !mac_equal(code, link->code))
        return false;
    fabric_proved_again(link->conn);
    return true;
}

void control_leave_guests(struct control *control)
{
    struct control_link *link = control->links.first;
    while (link) {
        struct control_link *next = link->place.next;
        struct fabric_conn *conn = link->conn;
        const bool out = link->peer ? fabric_is_unproved(conn) && !has_shown_again(link)
                                    : !conn->guest && !login_user(link->login, users_of(control));
        if (out) {
            conn->user = NULL;
            link_ended(control, link);
            fabric_conn_close(conn);
        }
        link = next;
    }
}

int control_send(struct control_link *link, uint32_t tag, const Rowan__ControlMessage *message)
{
    int error = control_message_send(link->conn, tag, message);
    if (error && error != ROWAN_ECLOSED)
        log_event(LOG_WARN, "answer_dropped", "error=%s", error_name(error));
    return error;
}

const struct shard *control_row(const struct control *control, uint32_t id)
{
    const struct shard *row = control->shards ? cluster_shard(control->config, id) : NULL;
    return row && control->shards[row - control->config->shards] ? row : NULL;
}

struct role *control_owner(struct control *control, const struct shard *row)
{
    const struct shard_state *shard = control->shards[row - control->config->shards];
    return control->roles[row->primary == control->common->server
                              ? row->worker
                              : control->options->workers + shard->digest];
}

int control_tell_clean(struct control *control, const struct shard *row, struct shard_state *shard)
{
    const struct command_read read = {.shard = shard,
                                      .worker = row->worker,
                                      .number = row->primary == control->common->server
                                                    ? row->worker
                                                    : CLUSTER_MAX_WORKERS + shard->digest,
                                      .questions = &control_owner(control, row)->questions};
    return command_push(&clean_role(control->clean)->inbox,
                        &(struct command){.kind = COMMAND_READ, .read = read});
}

void control_wake_digests(struct control *control)
{
    for (uint32_t i = 0; i < control->options->digests; i++)
        inbox_wake(&digest_role(control->digests[i])->inbox);
}

/* Garbage ends its connection. Further events of this batch find `user` NULL. */
static void link_refuse(struct control *control, struct control_link *link, int error)
{
    struct fabric_conn *conn = link->conn;

    log_event(LOG_WARN, "link_garbage", "error=%s", error_name(error));
    conn->user = NULL;
    link_closed(control, link);
    fabric_conn_close(conn);
}

static enum login_step log_in(struct control *control, struct control_link *link, uint32_t tag,
                              const Rowan__ControlMessage *message, int *error)
{
    const struct login_book book = {
        .users = users_of(control),
        .cover = control->config ? cluster_cover(control->config) : NULL,
    };
    const enum login_step step = login_take(&link->login, &book, link->conn, tag, message, error);
    if (step == LOGIN_DONE && login_user(link->login, book.users))
        fabric_conn_trust(link->conn);
    if (step == LOGIN_FAILED) {
        control->refused_logins++;
        log_event(LOG_WARN, "login_refused", "user=%s error=%s", login_name(link->login),
                  error_name(*error));
    }
    return step;
}

/* Servers are let in by `admit`, and change no settings. Before there is a configuration nobody knows who may. */
static int allow(struct control *control, const struct control_link *link,
                 const Rowan__ControlMessage *message)
{
    const struct users *users = users_of(control);
    const bool sets = message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SET_SETTING;
    if (sets && !control->config)
        return ROWAN_EAGAIN;
    const int error = link->peer && !sets ? 0
                                          : users_allow(users, login_user(link->login, users),
                                                        sets ? USER_ADMIN : USER_READ);
    control->refused_requests += error != 0;
    return error;
}

static void answer_setting(const struct control *control, struct control_link *link, uint32_t tag,
                           const Rowan__SetSetting *question)
{
    struct settings_answer answer;
    settings_answer(control->options->settings, question, &answer);
    control_send(link, tag, &answer.message);
}

static void link_message(struct control *control, const struct fabric_event *event)
{
    struct control_link *link = event->conn->user;
    Rowan__ControlMessage *message;
    uint32_t tag;
    int error = control_decode(event->data, event->bytes, &tag, &message);
    fabric_message_release(event->conn, event->message);
    if (error) {
        link_refuse(control, link, error);
        return;
    }
    const enum login_step step = log_in(control, link, tag, message, &error);
    if (step != LOGIN_NO_PART) {
        control_free(message);
        if (step == LOGIN_FAILED && error != ROWAN_ELOGIN)
            link_refuse(control, link, error);
        return;
    }
    error = allow(control, link, message);
    if (error)
        control_query_refuse(control, link, tag, error);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_STATUS)
        control_status_send(control, link, tag);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_SLOW)
        control_slow_send(control, link, tag);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SET_SETTING)
        answer_setting(control, link, tag, message->set_setting);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_PROOF_AGAIN)
        (void)control_take(&message->proof_again->code, link->code, sizeof link->code);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SETTLED_IS)
        control_settled_told(control, link, message->settled_is);
    else
        control_query_ask(control, link, tag, message);
    control_free(message);
}

/* --- the role --- */

static void dispatch_event(struct control *control, const struct fabric_event *event)
{
    if (event->kind == FABRIC_SEALED)
        control_zone_sealed(control, (struct blog_segment *)(uintptr_t)event->context,
                            event->quiet);
    else if (event->kind == FABRIC_QUIET)
        ((struct blog_segment *)(uintptr_t)event->context)->quiet = true;
    else if (event->kind == FABRIC_VOID || event->kind == FABRIC_SHUT_OUT)
        control_zone_event(control, event);
    else if (event->conn == control->cm_conn)
        control_config_event(control, event);
    else if (event->kind == FABRIC_ACCEPTED)
        link_accepted(control, event);
    else if (!event->conn->user)
        return; /* link_accepted or link_refuse has closed it */
    else if (event->kind == FABRIC_CLOSED)
        link_ended(control, event->conn->user);
    else if (event->kind == FABRIC_MESSAGE)
        link_message(control, event);
}

/* Asks the worker that leads the shard, on the newest connection that it sends entries on: an older
 * one may be broken without our knowing. Without any nobody is asked; the digest role tries again. */
static void send_fetch(struct control *control, const struct command_fetch *fetch)
{
    const struct shard *row = cluster_shard(control->config, fetch->shard);
    struct control_link *link = control->links.last;
    while (link &&
           !(link->peer && row && link->server == row->primary && link->worker == row->worker))
        link = link->place.prev;
    if (!link)
        return;
    Rowan__Fetch body = ROWAN__FETCH__INIT;
    body.shard = fetch->shard;
    body.first = fetch->first;
    body.last = fetch->last;
    control_send(link, 0, &CONTROL_MESSAGE(FETCH, fetch, &body));
}

static bool execute_commands(struct control *control, struct inbox *outbox)
{
    struct command command;
    bool any = false;
    while (command_pop(outbox, &command)) {
        if (command.kind == COMMAND_FETCH) {
            send_fetch(control, &command.fetch);
        } else if (command.kind == COMMAND_SHARD) {
            control_adopt_released(control, command.shard);
        } else if (command.kind == COMMAND_FILLED) {
            control_adopt_filled(control, &command.filled);
        } else if (command.kind == COMMAND_ADOPT) {
            control_adopt_answered(control, command.term);
        } else {
            ASSERT(command.kind == COMMAND_QUERY);
            command.query->returned = true;
        }
        any = true;
    }
    return any;
}

enum poll_result control_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct control *control = role;
    control->now_ns = now_ns;
    if (control->start_ns == 0)
        control->start_ns = control->cm_led_ns = now_ns;
    log_poll(now_ns);
    control_config_poll(control, wake_ns);
    control_lease_poll(control, wake_ns);
    control_memory_poll(control, wake_ns);
    control_load_poll(control, wake_ns);
    bool busy = control_stored_poll(control);
    busy |= control_open_poll(control, wake_ns);

    struct fabric_event events[CONTROL_EVENTS];
    unsigned count =
        fabric_poll(control->endpoint, now_ns, events, FAULT(SHORT_BATCH) ? 1 : CONTROL_EVENTS);
    server_watch(control->common, control->endpoint);
    for (unsigned i = 0; i < count; i++)
        dispatch_event(control, &events[i]);

    busy |= count > 0;
    for (uint32_t i = 0; i < control->role_count; i++)
        busy |= execute_commands(control, &control->roles[i]->outbox);
    if (control->zone) {
        busy |= control_zone_poll(control, wake_ns);
        busy |= control_commit_poll(control, wake_ns);
        busy |= control_settled_poll(control, wake_ns);
        busy |= control_adopt_poll(control);
    }
    busy |= control_query_poll(control, wake_ns);
    control_status_poll(control);
    fabric_flush(control->endpoint);
    return busy ? POLL_BUSY : POLL_IDLE;
}

/* Until there is a configuration who connects is a guest, unless the one that the PM keeps requires no logins. */
static void set_guests(struct control *control)
{
    fabric_endpoint_guests(control->endpoint, !control->stored_open);
    for (uint32_t i = 0; i < control->options->workers; i++)
        fabric_endpoint_guests(worker_endpoint(control->workers[i]), !control->stored_open);
}

int control_create(struct server_common *common, const struct server_options *options,
                   struct worker **workers, struct digest **digests, struct clean *clean,
                   struct role **roles, struct control **out)
{
    struct control *control = calloc(1, sizeof *control);
    if (!control)
        return ROWAN_ENOMEM;
    control->common = common;
    control->options = options;
    control->workers = workers;
    control->digests = digests;
    control->clean = clean;
    control->roles = roles;
    control->role_count = options->workers + options->digests + 1;
    control->join_tag = CONTROL_JOIN_TAGS;
    int error = control_open_read(control);
    if (!error)
        error = managers_parse(options->cm, &control->managers, NULL);
    if (!error)
        error = fabric_endpoint_open(common->fabric, options->workers, &control->endpoint);
    if (error) {
        control_destroy(control);
        return error;
    }
    fabric_endpoint_admit(control->endpoint, admit, control);
    set_guests(control);
    control_status_open(control);
    *out = control;
    return 0;
}

void control_destroy(struct control *control)
{
    if (!control)
        return;
    fabric_endpoint_close(control->endpoint);
    while (control->links.first)
        link_closed(control, control->links.first);
    control_zone_close(control);
    control_commit_close(control);
    control_adopt_close(control);
    recover_destroy(control->recover);
    control_query_close(control);
    cluster_release(control->next);
    cluster_release(control->coming);
    cluster_release(control->config);
    free(control->shards);
    free(control);
}

bool control_serves(const struct control *control)
{
    return control->config && control->zone &&
           (control->config->lease_ms == 0 ||
            (control->lease.holds && control->adoption.committed > 0));
}

_Atomic uint64_t *control_busy_ns(struct control *control)
{
    return &control->busy_ns.value;
}

struct fabric_endpoint *control_endpoint(struct control *control)
{
    return control->endpoint;
}
