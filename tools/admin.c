/* Connections of a tool: one to the CM that leads (the client's cm_link), one to each server's control
 * endpoint, which has the number after the workers', and to each manager that is asked for its settings. Driven by admin_wait
 * on the tool's thread.
 *
 * A call goes posted -> sent -> done. It ends early when the connection cannot be made or breaks.
 */
#include "tools/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cm_link.h"
#include "common/base/config.h"
#include "common/base/error.h"
#include "common/base/list.h"
#include "common/reactor/wait.h"

enum { EVENTS = 32 };

/* To whom that number means, as in struct admin_call: the process of its present incarnation. */
struct admin_link {
    struct peer peer; /* first: the fabric's events name it */
    uint32_t server;
    struct admin_link *next;
};

struct admin {
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    struct event_source source;
    struct cm_link cm;
    struct login_secret login;
    struct cluster_config *config;
    struct admin_link *links;
    struct {
        struct admin_call *first, *last;
    } calls; /* not done */
    uint32_t next_tag;
    uint64_t ended; /* calls, so far */
};

int admin_find(struct admin_access *access, char list[MANAGERS_LIST_BYTES])
{
    struct managers managers;
    const char *why = NULL;
    int error = 0;
    if (!*access->user != !*access->secret_file)
        return tool_usage("--user and --secret-file belong together");
    if (*access->user && !*access->managers && !*access->dir)
        return tool_usage("--user needs --cm or --dir: a file cm in the current directory may be "
                          "anybody's, and is not trusted with a login");
    if (!*access->managers)
        error = config_read_cm(*access->dir ? access->dir : ".", list, MANAGERS_LIST_BYTES);
    else if (snprintf(list, MANAGERS_LIST_BYTES, "%s", access->managers) >= MANAGERS_LIST_BYTES)
        error = ROWAN_EINVALID;
    if (!error)
        error = managers_parse(list, &managers, &why);
    access->managers = list;
    if (why)
        return tool_say("address of the CM: %s: %s", list, why);
    if (error && error != ROWAN_ENOTFOUND)
        return tool_failed("address of the CM", error);
    if (error && *access->dir)
        return tool_say("%s is no directory of a cluster: it has no file cm", access->dir);
    if (error)
        return tool_say("which cluster? This directory has no file cm: give --dir or --cm, or "
                        "change into the cluster's directory");
    return EXIT_DONE;
}

struct cluster_config *admin_config(const struct admin *admin)
{
    return admin->config;
}

static uint64_t clock_ns(void)
{
    return clock_now_ns(clock_system());
}

/* --- calls --- */

static void end_call(struct admin *admin, struct admin_call *call, int error)
{
    LIST_REMOVE(&admin->calls, call, place);
    call->error = error;
    call->done = true;
    admin->ended++;
}

/* The kind of answer that it asks for. */
static unsigned answer_to(const Rowan__ControlMessage *question)
{
    switch (question->body_case) {
    case ROWAN__CONTROL_MESSAGE__BODY_GET_CHECKSUM:
        return ROWAN__CONTROL_MESSAGE__BODY_CHECKSUM_IS;
    case ROWAN__CONTROL_MESSAGE__BODY_GET_SLOW:
        return ROWAN__CONTROL_MESSAGE__BODY_SLOW_ARE;
    case ROWAN__CONTROL_MESSAGE__BODY_GET_TRACE:
        return ROWAN__CONTROL_MESSAGE__BODY_TRACE_IS;
    case ROWAN__CONTROL_MESSAGE__BODY_SET_SETTING:
        return ROWAN__CONTROL_MESSAGE__BODY_SETTINGS_ARE;
    default:
        return ROWAN__CONTROL_MESSAGE__BODY_SERVER_STATUS;
    }
}

void admin_post(struct admin *admin, struct admin_call *call, uint32_t server,
                const Rowan__ControlMessage *question, uint64_t timeout_ns)
{
    *call = (struct admin_call){.server = server,
                                .tag = ++admin->next_tag,
                                .deadline_ns = clock_ns() + timeout_ns,
                                .question = question};
    LIST_APPEND(&admin->calls, call, place);
}

void admin_call_free(struct admin_call *call)
{
    control_free(call->reply);
    call->reply = NULL;
}

static void fail_calls(struct admin *admin, const struct admin_link *link)
{
    for (struct admin_call *call = admin->calls.first; call; call = call->place.next) {
        if (call->server == link->server)
            end_call(admin, call, link->peer.error);
    }
}

/* NULL: there is no such server, or no memory. */
static struct admin_link *find_link(struct admin *admin, uint32_t server)
{
    const bool is_manager = server >= ADMIN_MANAGERS;
    const struct member *member = is_manager ? NULL : cluster_member(admin->config, server);
    struct admin_link *link = admin->links;

    while (link && link->server != server)
        link = link->next;
    if (!is_manager && !member)
        return NULL;
    if (link && (is_manager || link->peer.incarnation == member->incarnation))
        return link;
    if (link) { /* what its last process was asked, the next one is */
        peer_close(&link->peer);
        for (struct admin_call *call = admin->calls.first; call; call = call->place.next)
            call->sent &= call->server != server;
    } else {
        link = calloc(1, sizeof *link);
        if (!link)
            return NULL;
        link->server = server;
        link->next = admin->links;
        admin->links = link;
    }
    if (is_manager)
        peer_init(&link->peer, admin->endpoint,
                  admin->cm.managers.addresses[server - ADMIN_MANAGERS], 0);
    else
        peer_init_member(&link->peer, admin->endpoint, member, member->workers);
    link->peer.login = admin->cm.peer.login;
    return link;
}

/* Connects, sends, or ends the call if its time is over. */
static void step_call(struct admin *admin, struct admin_call *call, uint64_t now_ns,
                      uint64_t *wake_ns)
{
    struct admin_link *link = find_link(admin, call->server);

    if (!link) {
        end_call(admin, call, ROWAN_EUNREACHABLE);
        return;
    }
    if (now_ns >= call->deadline_ns) {
        end_call(admin, call, ROWAN_ETIMEDOUT);
        return;
    }
    wake_at(wake_ns, call->deadline_ns);
    if (call->sent)
        return;
    peer_want(&link->peer, now_ns, wake_ns);
    if (link->peer.state != PEER_UP)
        return;
    int error = control_message_send(link->peer.conn, call->tag, call->question);

    if (error && error != ROWAN_EAGAIN)
        end_call(admin, call, error);
    call->sent = error == 0;
}

static void apply_reply(struct admin *admin, const struct admin_link *link,
                        const struct fabric_event *event)
{
    Rowan__ControlMessage *reply;
    uint32_t tag;
    int error = control_decode(event->data, event->bytes, &tag, &reply);
    struct admin_call *call = admin->calls.first;

    if (error)
        return; /* its call ends by the timeout */
    control_make_printable(reply);
    while (call && !(call->tag == tag && call->server == link->server))
        call = call->place.next;
    if (!call) {
        control_free(reply);
    } else if (reply->body_case == ROWAN__CONTROL_MESSAGE__BODY_FAILURE) {
        int failure = reply->failure->error;

        snprintf(call->why, sizeof call->why, "%s", reply->failure->detail);
        control_free(reply);
        end_call(admin, call, failure < 0 ? failure : ROWAN_EFORMAT);
    } else if (reply->body_case != answer_to(call->question)) {
        control_free(reply);
        end_call(admin, call, ROWAN_EFORMAT);
    } else {
        call->reply = reply;
        end_call(admin, call, 0);
    }
}

/* --- events --- */

static void dispatch_event(struct admin *admin, const struct fabric_event *event, uint64_t now_ns)
{
    struct peer *peer = event->conn->user;
    bool is_cm = peer == &admin->cm.peer;

    switch (event->kind) {
    case FABRIC_CONNECTED:
        if (is_cm)
            cm_link_connected(&admin->cm, &event->peer);
        else
            peer_connected(peer, &event->peer);
        break;
    case FABRIC_CLOSED:
        peer_closed(peer, event->error, now_ns);
        if (!is_cm)
            fail_calls(admin, (struct admin_link *)peer);
        break;
    case FABRIC_MESSAGE:
        if (is_cm)
            cm_link_message(&admin->cm, event->data, event->bytes);
        else if (peer->state == PEER_LOGGING_IN)
            peer_message(peer, event->data, event->bytes);
        else
            apply_reply(admin, (struct admin_link *)peer, event);
        fabric_message_release(event->conn, event->message);
        break;
    default:
        break;
    }
}

static void apply_config(struct admin *admin)
{
    struct cluster_config *fresh = admin->cm.fresh;

    if (!fresh)
        return;
    admin->cm.fresh = NULL;
    cluster_release(admin->config);
    admin->config = fresh;
    fabric_endpoint_identity(admin->endpoint, &(struct fabric_identity){.kind = FABRIC_CLIENT,
                                                                        .cluster = fresh->cluster,
                                                                        .term = fresh->term});
}

static enum poll_result admin_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct admin *admin = role;
    struct fabric_event events[EVENTS];
    unsigned count = fabric_poll(admin->endpoint, now_ns, events, EVENTS);
    uint64_t ended = admin->ended;

    for (unsigned i = 0; i < count; i++)
        dispatch_event(admin, &events[i], now_ns);
    peer_end_broken(&admin->cm.peer, now_ns);
    for (struct admin_link *link = admin->links; link; link = link->next) {
        if (peer_end_broken(&link->peer, now_ns))
            fail_calls(admin, link);
    }
    apply_config(admin);
    cm_link_poll(&admin->cm, admin->config ? admin->config->term : 0, now_ns, wake_ns);
    for (struct admin_call *call = admin->calls.first; call; call = call->place.next)
        step_call(admin, call, now_ns, wake_ns);
    fabric_flush(admin->endpoint);
    return count || admin->ended != ended ? POLL_BUSY : POLL_IDLE;
}

int admin_wait(struct admin *admin, uint64_t until_ns)
{
    uint64_t wake_ns = until_ns;
    const int failed = fabric_endpoint_error(admin->endpoint);

    if (failed)
        return failed;
    if (admin_poll(admin, clock_ns(), &wake_ns) == POLL_BUSY)
        return 0;
    return event_source_wait(&admin->source, clock_system(), admin_poll, admin, until_ns);
}

/* --- open and close --- */

/* True if nobody listens, or a peer of another version. A connection that broke is made again. */
static bool is_in_vain(const struct peer *cm)
{
    return cm->state == PEER_DOWN &&
           (cm->error == ROWAN_EUNREACHABLE || cm->error == ROWAN_EINCOMPATIBLE);
}

/* By the manager that leads, or if none does by another one. */
static bool is_told(const struct admin *admin)
{
    return (admin->config || admin->cm.waiting_count > 0) &&
           (admin->cm.led || admin->cm.managers.rounds > 0);
}

static int wait_config(struct admin *admin, uint64_t timeout_ns)
{
    const struct cm_link *cm = &admin->cm;
    uint64_t until_ns = clock_ns() + timeout_ns;

    while (!is_told(admin)) {
        int error = admin_wait(admin, until_ns);

        if (error)
            return error;
        if (!admin->config && cm->peer.error == ROWAN_ELOGIN)
            return ROWAN_ELOGIN;
        if (!admin->config && cm->managers.rounds > 0 && is_in_vain(&cm->peer))
            return cm->peer.error;
        if (!admin->config && clock_ns() >= until_ns)
            return cm->peer.error == ROWAN_ETOOMANY        ? ROWAN_ETOOMANY
                   : cm->peer.state != PEER_UP             ? ROWAN_EUNREACHABLE
                   : cm->peer.error == ROWAN_EINCOMPATIBLE ? cm->peer.error
                                                           : ROWAN_ETIMEDOUT;
    }
    return cm->waiting_count > 0 ? ROWAN_EAGAIN : 0;
}

int admin_open(const struct admin_access *access, uint64_t timeout_ns, struct admin **out,
               struct admin_missing *missing)
{
    const bool logs_in = *access->user != '\0';
    struct admin *admin = calloc(1, sizeof *admin);
    if (!admin)
        return ROWAN_ENOMEM;
    int error = logs_in ? login_secret_read(&admin->login, access->user, access->secret_file) : 0;
    if (!error)
        error = fabric_open(access->managers, NULL, &admin->fabric);
    if (!error)
        error = fabric_endpoint_open(admin->fabric, 0, &admin->endpoint);
    if (!error)
        error = cm_link_init(&admin->cm, admin->endpoint, access->managers);
    if (error)
        goto fail;
    admin->cm.peer.login = logs_in ? &admin->login : NULL;
    fabric_endpoint_source(admin->endpoint, &admin->source);
    fabric_endpoint_identity(admin->endpoint, &(struct fabric_identity){.kind = FABRIC_CLIENT});
    admin->cm.wants_id = false;
    error = wait_config(admin, timeout_ns);
    if (error)
        goto fail;
    *out = admin;
    return 0;

fail:
    if (missing) {
        missing->count = admin->cm.waiting_count;
        memcpy(missing->servers, admin->cm.waiting_for, sizeof missing->servers);
    }
    admin_close(admin);
    return error;
}

void admin_close(struct admin *admin)
{
    for (struct admin_link *link = admin->links, *next; link; link = next) {
        next = link->next;
        peer_close(&link->peer);
        free(link);
    }
    cm_link_fini(&admin->cm);
    cluster_release(admin->config);
    fabric_endpoint_close(admin->endpoint);
    fabric_close(admin->fabric);
    login_secret_fini(&admin->login);
    free(admin);
}

/* --- questions to the manager that leads --- */

int admin_ask(struct admin *admin, const Rowan__ControlMessage *question, uint64_t timeout_ns,
              char *why, Rowan__ControlMessage **reply)
{
    struct cm_link *cm = &admin->cm;
    const uint64_t until_ns = clock_ns() + timeout_ns;
    int error = 0;
    cm->question = question;
    while (cm->question && !error) {
        error = admin_wait(admin, until_ns);
        if (!error && cm->question && clock_ns() >= until_ns)
            error = ROWAN_ETIMEDOUT;
    }
    cm->question = NULL;
    snprintf(why, sizeof cm->why, "%s", error ? error_sentence(error) : cm->why);
    if (reply) {
        *reply = cm->reply;
        cm->reply = NULL;
    }
    return error ? error : cm->refusal;
}

const struct managers *admin_managers(const struct admin *admin)
{
    return &admin->cm.managers;
}

/* --- questions to all --- */

int admin_wait_all(struct admin *admin)
{
    int error = 0;
    while (admin->calls.first && !error)
        error = admin_wait(admin, WAKE_NEVER);
    while (admin->calls.first)
        end_call(admin, admin->calls.first, error);
    return error;
}

const char *admin_leader(const struct admin *admin)
{
    return admin->cm.peer.state == PEER_UP && admin->cm.led ? admin->cm.peer.address : NULL;
}

int admin_ask_members(struct admin *admin, const Rowan__ControlMessage *questions, uint32_t count,
                      uint64_t timeout_ns, struct admin_status *out)
{
    const struct cluster_config *config = admin->config;
    int error = 0;
    for (uint32_t i = 0; i < count; i++) {
        out[i].config = cluster_hold(admin->config);
        out[i].store_error = admin->cm.store_error;
        out[i].calls = calloc(config->member_count, sizeof *out[i].calls);
        error = out[i].calls ? error : ROWAN_ENOMEM;
    }
    for (uint32_t i = 0; i < count && !error; i++) {
        for (uint32_t at = 0; at < config->member_count; at++)
            admin_post(admin, &out[i].calls[at], config->members[at].server, &questions[i],
                       timeout_ns);
    }
    if (!error)
        error = admin_wait_all(admin);
    for (uint32_t i = 0; i < count && error; i++)
        admin_status_free(&out[i]);
    return error;
}

int admin_status_get(struct admin *admin, uint64_t timeout_ns, struct admin_status *out)
{
    Rowan__GetStatus get = ROWAN__GET_STATUS__INIT;
    const Rowan__ControlMessage question = CONTROL_MESSAGE(GET_STATUS, get_status, &get);
    return admin_ask_members(admin, &question, 1, timeout_ns, out);
}

void admin_status_free(struct admin_status *status)
{
    for (uint32_t i = 0; status->calls && i < status->config->member_count; i++)
        admin_call_free(&status->calls[i]);
    free(status->calls);
    cluster_release(status->config);
}
