/* Asks the CM, and takes in what it says. A question that got no answer within ASK_AGAIN_NS is
 * asked again: the CM may have changed its leader. An answered one is asked again ASK_PAUSE_NS
 * after it was asked, when the answer was not what we need. A client id that comes twice so is kept
 * once; the other is never used, which costs nothing. Who is told to come again later (EAGAIN) waits longer each time, up to
 * PUT_OFF_MAX_NS.
 *
 * A manager that says that it does not lead is left for the next one, as is one that takes SILENT_NS to connect, or to answer a
 * question for a configuration, which each does at once: it is stopped. What it told is stored, and is kept.
 *
 * Every new connection asks for the configuration, because asking also makes the CM tell us of
 * later ones.
 */
#include "client/cm_link.h"

#include <stdio.h>
#include <string.h>

#include "common/base/error.h"

#define ASK_AGAIN_NS (500 * NS_PER_MS)
#define ASK_PAUSE_NS (20 * NS_PER_MS)

#define PUT_OFF_NS     (250 * NS_PER_MS)
#define PUT_OFF_MAX_NS (4 * NS_PER_S)

#define SILENT_NS (1500 * NS_PER_MS)

enum { TAG_NEW_ID = 1, TAG_CONFIGURATION = 2, TAG_QUESTION = 3 };

int cm_link_init(struct cm_link *cm, struct fabric_endpoint *endpoint, const char *addresses)
{
    struct managers managers;
    int error = managers_parse(addresses, &managers, NULL);

    if (error)
        return error;
    *cm = (struct cm_link){.managers = managers, .wants_id = true, .wants_config = true};
    peer_init_managers(&cm->peer, endpoint, &cm->managers);
    return 0;
}

void cm_link_fini(struct cm_link *cm)
{
    peer_close(&cm->peer);
    cluster_release(cm->fresh);
    control_free(cm->reply);
    cm->fresh = NULL;
}

void cm_link_connected(struct cm_link *cm, const struct fabric_identity *reached)
{
    cm->peer.error = 0;
    peer_connected(&cm->peer, reached);
    cm->wants_config = true;
    cm->wants_id |= cm->reads;
    cm->put_off_ns = PUT_OFF_NS;
    cm->next_id_ns = cm->next_config_ns = cm->next_question_ns = cm->asked_ns = 0;
}

/* Sends `message` unless it was asked a short while ago. */
static bool ask(struct cm_link *cm, uint32_t tag, const Rowan__ControlMessage *message,
                uint64_t *next_ns, uint64_t now_ns, uint64_t *wake_ns)
{
    bool sent = false;

    if (now_ns >= *next_ns) {
        /* No room, or closed: it is asked again, or on the next connection. */
        sent = control_message_send(cm->peer.conn, tag, message) == 0;
        *next_ns = now_ns + ASK_AGAIN_NS;
    }
    wake_at(wake_ns, *next_ns);
    return sent;
}

/* The question that set `next_ns` was answered. */
static void answered(uint64_t *next_ns)
{
    if (*next_ns >= ASK_AGAIN_NS)
        *next_ns += ASK_PAUSE_NS - ASK_AGAIN_NS;
}

/* Where there is another one to go to. */
static void leave_if_silent(struct cm_link *cm, uint64_t now_ns, uint64_t *wake_ns)
{
    const uint64_t since_ns = cm->peer.state == PEER_DOWN ? 0
                              : cm->peer.state == PEER_UP ? cm->asked_ns
                                                          : cm->peer.connecting_ns;

    if (since_ns == 0 || cm->peer.broken || cm->managers.count == 1)
        return;
    if (now_ns - since_ns >= SILENT_NS)
        peer_break(&cm->peer, ROWAN_ETIMEDOUT);
    else
        wake_at(wake_ns, since_ns + SILENT_NS);
}

bool cm_link_poll(struct cm_link *cm, uint64_t known_term, uint64_t now_ns, uint64_t *wake_ns)
{
    Rowan__NewClientId new_id = ROWAN__NEW_CLIENT_ID__INIT;
    Rowan__GetConfiguration get = ROWAN__GET_CONFIGURATION__INIT;
    bool sent = false;

    new_id.unless_reader = true;
    peer_want(&cm->peer, now_ns, wake_ns);
    leave_if_silent(cm, now_ns, wake_ns);
    if (cm->peer.state != PEER_UP)
        return false;
    if (cm->wants_id) {
        sent = ask(cm, TAG_NEW_ID, &CONTROL_MESSAGE(NEW_CLIENT_ID, new_client_id, &new_id),
                   &cm->next_id_ns, now_ns, wake_ns);
    }
    if (cm->question)
        sent |= ask(cm, TAG_QUESTION, cm->question, &cm->next_question_ns, now_ns, wake_ns);
    if (cm->wants_config) {
        get.known_term = known_term;
        const bool asked =
            ask(cm, TAG_CONFIGURATION, &CONTROL_MESSAGE(GET_CONFIGURATION, get_configuration, &get),
                &cm->next_config_ns, now_ns, wake_ns);
        if (asked && cm->asked_ns == 0)
            cm->asked_ns = now_ns;
        sent |= asked;
    }
    return sent;
}

static void take_configuration(struct cm_link *cm, uint32_t tag, const Rowan__ConfigurationIs *is)
{
    struct cluster_config *config;

    cm->led = !is->not_leading;
    cm->store_error = is->store_error <= INT32_MAX ? -(int)is->store_error : ROWAN_EIO;
    if (tag == TAG_CONFIGURATION)
        answered(&cm->next_config_ns);
    cm->waiting_count = 0;
    for (size_t i = 0; i < is->n_waiting_for && i < CLUSTER_MAX_MEMBERS; i++)
        cm->waiting_for[cm->waiting_count++] = is->waiting_for[i];
    if (is->configuration.len == 0) {
        /* None newer than the known one; if there is none at all, the CM tells us when there is
         * one, because we asked. */
        cm->no_config = true;
        cm->wants_config = false;
        return;
    }
    int error = cluster_decode(is->configuration.data, is->configuration.len, &config);

    if (error) {
        cm->peer.error = error;
        cm->peer.broken = error == ROWAN_EFORMAT;
        return;
    }
    cm->wants_config = cm->no_config = false;
    if (cm->fresh && cm->fresh->term >= config->term) {
        cluster_release(config);
        return;
    }
    cluster_release(cm->fresh);
    cm->fresh = config;
    cm->wants_id |= cm->reads;
}

static void take_id(struct cm_link *cm, const Rowan__ClientIdIs *is)
{
    cm->has_id = true;
    cm->client_id = is->client_id;
    cm->reads = is->client_id == 0;
    cm->has_ticket = is->ticket.len == sizeof cm->ticket;
    if (cm->has_ticket)
        memcpy(cm->ticket, is->ticket.data, sizeof cm->ticket);
    cm->wants_id = false;
    cm->next_id_ns = 0;
    cm->put_off_ns = PUT_OFF_NS;
}

/* It was asked and cannot answer now; it is asked again after a while. */
static void take_failure(struct cm_link *cm, uint32_t tag, const Rowan__Failure *failure)
{
    cm->peer.error = failure->error;
    if (tag != TAG_NEW_ID || failure->error != ROWAN_EAGAIN)
        return;
    cm->next_id_ns += cm->put_off_ns;
    cm->put_off_ns = 2 * cm->put_off_ns < PUT_OFF_MAX_NS ? 2 * cm->put_off_ns : PUT_OFF_MAX_NS;
}

static bool says_it_leads(const Rowan__ControlMessage *message)
{
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_CONFIGURATION_IS)
        return !message->configuration_is->not_leading;
    return message->body_case != ROWAN__CONTROL_MESSAGE__BODY_FAILURE ||
           message->failure->error != ROWAN_ENOTLEADING;
}

static void take_answer(struct cm_link *cm, const Rowan__ControlMessage *message)
{
    const bool refused = message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FAILURE;
    cm->question = NULL;
    cm->refusal = refused ? message->failure->error : 0;
    snprintf(cm->why, sizeof cm->why, "%s", refused ? message->failure->detail : "");
}

void cm_link_message(struct cm_link *cm, const void *data, uint32_t bytes)
{
    Rowan__ControlMessage *message;
    uint32_t tag;

    if (cm->peer.state == PEER_LOGGING_IN) {
        peer_message(&cm->peer, data, bytes);
        return;
    }
    int error = control_decode(data, bytes, &tag, &message);

    if (error) {
        cm->peer.error = error;
        cm->peer.broken = error == ROWAN_EFORMAT;
        return;
    }
    control_make_printable(message);
    const bool leads = says_it_leads(message);

    cm->asked_ns = 0;
    if (leads)
        peer_answered(&cm->peer);
    else
        peer_break(&cm->peer, ROWAN_ENOTLEADING);
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_CONFIGURATION_IS)
        take_configuration(cm, tag, message->configuration_is);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_CLIENT_ID_IS && cm->wants_id)
        take_id(cm, message->client_id_is);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FAILURE)
        take_failure(cm, tag, message->failure);
    if (tag == TAG_QUESTION && cm->question && leads)
        take_answer(cm, message);
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_USERS_ARE && !cm->reply)
        cm->reply = message;
    else
        control_free(message);
}
