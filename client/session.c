/* A session: posts, sends, answers, timeouts. Where an operation goes after a rejection or a broken
 * connection is in retry.c.
 *
 * S1 Operations are dated at the first poll after their post. All have the same timeout, so the age
 *    list is in the order of deadlines, and of operation numbers per client id.
 * S2 Nothing is sent for an operation that has a sent one's answer still to come: SENT is left only
 *    by its answer, its timeout or the end of its connection.
 * S3 No connection is closed and no configuration adopted while a batch of events is worked off,
 *    because later events of the batch may belong to them.
 * S4 All outstanding operations have the same client id: a new one is taken, with new connections,
 *    when none is outstanding. Their numbers lie less than `span` apart, so that what servers
 *    remember of them is bounded.
 * S5 A link owes an answer for each operation that is SENT on it. While it owes more than twice what is queued for
 *    it, the queue is held back: a busy server gets larger batches, and a depth below 4 knows nothing of it. A session
 *    that is at most half full holds nothing back: its caller waits for no place, so what counts is latency. Each answer
 *    brings the end nearer: it makes the debt smaller, or its callback the queue longer. What is owed may be slow, and
 *    must not delay the rest: PATIENCE polls without an answer of the link end it, whatever the others bring, and so
 *    do a caller who is about to sleep (session_release), one who polls so seldom that the oldest in the queue is over
 *    HELD_NS old, one who waits for an operation, and the end of the connection.
 *
 * S6 A session whose user may not write has the client id 0, by which no server tells a retry from a new write. So its writes
 *    are refused here and never sent, also if he may since: then the manager gives it an id when it asks, and it waits until
 *    nothing is outstanding (S4).
 *
 *                    +------------- EBUSY, pause over --------------+
 *                    v                                              |
 *   post --> QUEUED (link) --send--> SENT --rejected, connection lost--> QUEUED / PAUSED
 *                    |                |
 *                    +--timeout-------+--answer, timeout--> DONE --> FREE
 */
#include "client/session_internal.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/copy.h"
#include "common/base/error.h"

enum { EVENTS_PER_BATCH = 64, BATCHES_PER_POLL = 4, PATIENCE = 32 /* S5 */ };
#define HELD_NS (10 * NS_PER_MS) /* S5 */

#define STALLED_RETRY_NS (1 * NS_PER_MS)

/* A new id is asked for well before the numbers of the old one run out. */
#define OPERATIONS_PER_ID UINT32_C(4000000000)

int session_create(struct fabric_endpoint *endpoint, const char *managers,
                   const struct session_options *options, struct session **out)
{
    if (options->depth < 1 || options->depth > OP_MAX_DEPTH || options->timeout_ns == 0 ||
        options->timeout_ns > ROWAN_MAX_TIMEOUT_MS * NS_PER_MS || options->span > MESSAGE_MAX_SPAN)
        return ROWAN_EINVALID;
    struct session *session = calloc(1, sizeof *session);

    if (!session)
        return ROWAN_ENOMEM;
    int error = cm_link_init(&session->cm, endpoint, managers);

    if (!error)
        error = op_table_init(&session->table, options->depth);
    if (error) {
        free(session);
        return error;
    }
    session->endpoint = endpoint;
    session->timeout_ns = options->timeout_ns;
    session->operations_per_id =
        options->operations_per_id ? options->operations_per_id : OPERATIONS_PER_ID;
    session->span = options->span ? options->span : MESSAGE_MAX_SPAN;
    session->next_operation = 1;
    router_init(&session->router, endpoint);
    session->router.login = session->cm.peer.login = options->login;
    fabric_endpoint_identity(endpoint, &(struct fabric_identity){.kind = FABRIC_CLIENT});
    *out = session;
    return 0;
}

void session_destroy(struct session *session)
{
    if (!session)
        return;
    ASSERT(!session->polling);
    router_fini(&session->router);
    cm_link_fini(&session->cm);
    op_table_fini(&session->table);
    free(session);
}

bool session_ready(const struct session *session)
{
    return session->has_id && session->router.config;
}

int session_error(const struct session *session)
{
    const struct cm_link *cm = &session->cm;
    const int failed = fabric_endpoint_error(session->endpoint);

    if (failed)
        return failed;
    /* It answers, but neither with a configuration nor with an id; EAGAIN is how it says so. */
    if (cm->peer.state == PEER_UP &&
        (cm->no_config || cm->peer.error == 0 || cm->peer.error == ROWAN_EAGAIN))
        return ROWAN_ETIMEDOUT;
    return cm->peer.error ? cm->peer.error : ROWAN_EUNREACHABLE;
}

const struct cluster_config *session_config(const struct session *session)
{
    return session->router.config;
}

uint32_t session_outstanding(const struct session *session)
{
    return session->table.age.count;
}

uint64_t session_completed(const struct session *session)
{
    return session->completed;
}

uint32_t session_waiting(const struct session *session)
{
    return session->done.count;
}

bool session_release(struct session *session)
{
    session->released = session->holding;
    return session->released;
}

bool session_polling(const struct session *session)
{
    return session->polling;
}

/* --- post and complete --- */

static int check_request(const struct session_request *request)
{
    if (request->key_bytes < 1 || request->key_bytes > ROWAN_MAX_KEY_BYTES)
        return ROWAN_EKEYSIZE;
    if (request->value_bytes > ROWAN_MAX_VALUE_BYTES)
        return ROWAN_EVALUESIZE;
    if (!request->key || (!request->value && request->value_bytes) ||
        (!request->room && request->room_bytes))
        return ROWAN_EINVALID;
    return 0;
}

/* S6 */
static bool may_write_now(const struct session *session)
{
    return session->has_id && !session->client_id && session->cm.client_id;
}

/* S4: is there a number for another operation? Yes, for those below `numbers_end`: the oldest operation, and with it
 * the bound, only moves on. */
static int check_numbers(struct session *session)
{
    const uint64_t oldest = session->table.age.first ? session->table.age.first->request->operation
                                                     : session->next_operation;
    const uint32_t wanting = session->operations_per_id - session->operations_per_id / 8;

    if (!session_ready(session))
        return ROWAN_EAGAIN;
    if (session->next_operation >= wanting && !session->cm.has_id)
        session->cm.wants_id = true;
    if (may_write_now(session) || session->next_operation >= session->operations_per_id ||
        session->next_operation >= oldest + session->span)
        return ROWAN_EAGAIN;
    session->numbers_end = oldest + session->span < wanting ? oldest + session->span : wanting;
    return 0;
}

/* S6 */
static void refuse(struct session *session, struct client_op *op)
{
    op->state = OP_QUEUED;
    op->link = NULL;
    op_list_push(&session->refused, op);
}

int session_post(struct session *session, const struct session_request *request)
{
    struct client_op *op;
    int error = check_request(request);

    if (!error)
        error = fabric_endpoint_error(session->endpoint);
    if (!error && session->next_operation >= session->numbers_end)
        error = check_numbers(session);
    if (!error)
        error = op_table_take(&session->table, request->key, request->key_bytes, request->reserved,
                              &op);
    if (error)
        return error;
    op->request->type = (uint8_t)request->type;
    op->request->zero = 0;
    op->request->client_id = session->client_id;
    op->request->operation = session->next_operation++;
    op->request->value_bytes = (uint32_t)request->value_bytes;
    op->request->expected = request->expected;
    op->slot = slot_of_key(request->key, (uint32_t)request->key_bytes);
    op->value = request->value;
    op->room = request->room;
    op->room_bytes = request->room_bytes;
    op->callback = request->callback;
    op->completion = (struct rowan_completion){.context = request->context, .value = request->room};
    if (!session->undated)
        session->undated = op;
    op->urgent = request->reserved;
    if (!session->client_id && request->type != MESSAGE_GET)
        refuse(session, op);
    else
        session_route(session, op);
    return 0;
}

/* Ends an operation; the callback runs inside. */
static void complete(struct session *session, struct client_op *op, int status)
{
    ASSERT(op->deadline_ns != 0); /* S1: `undated` does not point to it */
    if (op->state == OP_SENT)
        session_settle(op);
    else
        op_list_remove(op);
    op_table_retire(&session->table, op);
    session->completed++;
    op->completion.status = status;
    if (!op->callback) {
        op_list_push(&session->done, op);
        return;
    }
    rowan_callback callback = op->callback;
    struct rowan_completion completion = op->completion;

    op_table_give(&session->table, op); /* the callback may post into it */
    callback(&completion);
}

bool session_next(struct session *session, struct rowan_completion *out)
{
    struct client_op *op = op_list_pop(&session->done);

    if (!op)
        return false;
    *out = op->completion;
    op_table_give(&session->table, op);
    return true;
}

/* --- send --- */

static int send_op(const struct session *session, struct worker_link *link, struct client_op *op)
{
    struct message_request *request = op->request;

    request->layout = (uint8_t)link->peer.conn->layout;
    request->lowest_unanswered = session->table.age.first->request->operation; /* S1, S4 */
    const struct fabric_iov iov[2] = {
        {.data = request, .bytes = (uint32_t)sizeof *request + request->key_bytes},
        {.data = op->value, .bytes = request->value_bytes},
    };
    int error = fabric_send(link->peer.conn, iov, request->value_bytes ? 2 : 1);

    if (error)
        return error;
    op->state = OP_SENT;
    link->owed++;
    return 0;
}

/* S5 */
static bool is_held(const struct session *session, const struct worker_link *link)
{
    const uint64_t dated_ns = link->queue.first->deadline_ns - session->timeout_ns;

    return 2 * session->table.age.count > session->table.depth &&
           session->now_ns - dated_ns < HELD_NS && link->owed > 2 * link->queue.count &&
           link->silent_polls < PATIENCE && !link->urgent && !session->released;
}

/* Sends what waits for one link. True if something was sent. */
static bool send_queue(struct session *session, struct worker_link *link, uint64_t now_ns,
                       uint64_t *wake_ns)
{
    struct client_op *op;
    bool sent = false;

    link->stalled = false;
    if (!link->queue.first)
        return false;
    if (is_held(session, link)) {
        link->silent_polls++;
        session->holding = true;
        return false;
    }
    peer_want(&link->peer, now_ns, wake_ns);
    while ((op = link->queue.first) && link->peer.state == PEER_UP) {
        int error = send_op(session, link, op);

        if (error == ROWAN_EAGAIN) {
            link->stalled = true;
            break;
        }
        if (error) { /* broken: its CLOSED event follows */
            link->peer.error = error;
            break;
        }
        op_list_pop(&link->queue);
        sent = true;
    }
    link->urgent &= op != NULL;
    return sent;
}

static bool send_all(struct session *session, uint64_t now_ns, uint64_t *wake_ns)
{
    bool sent = false, stalled = false;

    session->holding = false;
    for (struct worker_link *link = session->router.links; link; link = link->next) {
        sent |= send_queue(session, link, now_ns, wake_ns);
        stalled |= link->stalled;
    }
    session->released = false;
    if (stalled)
        wake_at(wake_ns, now_ns + STALLED_RETRY_NS);
    return sent;
}

/* --- events --- */

/* False: not an answer that a Rowan-KV server gives. */
static bool take_reply(struct session *session, struct worker_link *link, const void *data,
                       uint32_t bytes)
{
    struct message_reply reply;
    const uint8_t *value;

    if (!message_parse_reply(data, bytes, &reply, &value) || reply.status > 0 ||
        reply.status < (int)ERROR_LOWEST)
        return false;
    peer_answered(&link->peer);
    link->silent_polls = 0;
    if (reply.term > session->router.config->term)
        session->cm.wants_config = true;
    struct client_op *op = op_table_find(&session->table, reply.tag);

    if (!op || op->state != OP_SENT || op->request->operation != reply.operation ||
        op->link != link)
        return true; /* it was given up meanwhile */
    op->completion.version = reply.version;
    if (session_retry(session, op, reply.status, reply.term))
        return true;
    int status = reply.status;

    /* R2: the rights are asked before the records. */
    if (op->unknown && op->request->type != MESSAGE_GET &&
        (status == ROWAN_EACCESS || status == ROWAN_ELOGIN || status == ROWAN_EREFUSED))
        status = ROWAN_EUNKNOWN;
    if (op->request->type == MESSAGE_GET && status == 0) {
        op->completion.value_bytes = reply.value_bytes;
        if (reply.value_bytes > op->room_bytes)
            status = ROWAN_EBUFFER;
        else if (reply.value_bytes)
            copy_short(op->room, value, reply.value_bytes);
    }
    complete(session, op, status);
    return true;
}

static void take_message(struct session *session, struct peer *peer,
                         const struct fabric_event *event)
{
    if (peer->broken)
        return;
    if (peer == &session->cm.peer)
        cm_link_message(&session->cm, event->data, event->bytes);
    else if (peer->state == PEER_LOGGING_IN)
        peer_message(peer, event->data, event->bytes);
    else if (!take_reply(session, session_link(peer), event->data, event->bytes))
        peer_break(peer, ROWAN_EFORMAT);
    session->any_broken |= peer->broken;
}

static void take_event(struct session *session, const struct fabric_event *event)
{
    struct peer *peer = event->conn->user;

    switch (event->kind) {
    case FABRIC_CONNECTED:
        if (peer == &session->cm.peer)
            cm_link_connected(&session->cm, &event->peer);
        else
            peer_connected(peer, &event->peer);
        session->any_broken |= peer->broken;
        break;
    case FABRIC_CLOSED:
        peer_closed(peer, event->error, session->now_ns);
        if (peer != &session->cm.peer) {
            /* Perhaps another server leads its shards by now. */
            session->cm.wants_config = true;
            session_lost(session, session_link(peer));
        }
        break;
    case FABRIC_MESSAGE:
        take_message(session, peer, event);
        fabric_message_release(event->conn, event->message);
        break;
    default:
        break;
    }
}

/* The user may not log in: what was never sent ends so. What callbacks post waits for the next attempt. */
static void refuse_queue(struct session *session, struct worker_link *link)
{
    for (uint32_t left = link->queue.count; left > 0 && link->queue.first; left--) {
        struct client_op *op = link->queue.first;
        if (op->unknown || op->deadline_ns == 0)
            return;
        complete(session, op, ROWAN_ELOGIN);
    }
}

/* Closes what sent nonsense (S3), or is not who it should be: then the configuration is old. */
static void close_broken(struct session *session)
{
    if (!session->any_broken)
        return;
    session->any_broken = false;
    peer_end_broken(&session->cm.peer, session->now_ns);
    for (struct worker_link *link = session->router.links; link; link = link->next) {
        if (!peer_end_broken(&link->peer, session->now_ns))
            continue;
        session->cm.wants_config = true;
        session_lost(session, link);
        if (link->peer.error == ROWAN_ELOGIN)
            refuse_queue(session, link);
    }
}

static bool take_events(struct session *session)
{
    struct fabric_event events[EVENTS_PER_BATCH];
    bool any = false;

    for (int batch = 0; batch < BATCHES_PER_POLL; batch++) {
        unsigned count = fabric_poll(session->endpoint, session->now_ns, events, EVENTS_PER_BATCH);

        for (unsigned i = 0; i < count; i++)
            take_event(session, &events[i]);
        close_broken(session);
        any |= count > 0;
        if (count < EVENTS_PER_BATCH)
            break;
    }
    return any;
}

/* --- poll --- */

/* S4. True: the session has a new client id. */
static bool take_id(struct session *session)
{
    const bool used_up = session->next_operation >= session->operations_per_id;

    if (may_write_now(session))
        session->numbers_end = 0; /* check_numbers */
    if (!session->cm.has_id || session->table.age.count ||
        (session->has_id && !used_up && !may_write_now(session)))
        return false;
    session->has_id = true;
    session->client_id = session->cm.client_id;
    session->cm.has_id = false;
    session->cm.client_id = 0;
    if (session->router.login) {
        session->router.login->has_ticket = session->cm.has_ticket;
        memcpy(session->router.login->ticket, session->cm.ticket, MAC_BYTES);
    }
    session->next_operation = 1;
    session->numbers_end = 0;
    /* A connection is that of the client id in its handshake. */
    for (struct worker_link *link = session->router.links; link; link = link->next)
        peer_close(&link->peer);
    return true;
}

/* What the CM brought. True: posts that were refused may be accepted now. */
static bool take_cm(struct session *session, uint64_t *wake_ns)
{
    bool has_id = take_id(session);

    if (!has_id && !session->cm.fresh)
        return false;
    if (session->cm.fresh)
        session_adopt(session, wake_ns);
    struct fabric_identity identity = {.kind = FABRIC_CLIENT, .id = session->client_id};

    if (session->router.config) {
        identity.cluster = session->router.config->cluster;
        identity.term = session->router.config->term;
    }
    fabric_endpoint_identity(session->endpoint, &identity);
    return has_id;
}

/* S6: those that were posted before this poll. */
static void refuse_writes(struct session *session)
{
    for (uint32_t left = session->refused.count; left > 0; left--)
        complete(session, session->refused.first, ROWAN_EACCESS);
}

static void date_posts(struct session *session)
{
    for (struct client_op *op = session->undated; op; op = op->aged.next)
        op->deadline_ns = session->now_ns + session->timeout_ns;
    session->undated = NULL;
}

/* An endpoint that has failed brings no answer; nothing is posted any more then. */
static void expire(struct session *session, uint64_t *wake_ns)
{
    const int failed = fabric_endpoint_error(session->endpoint);
    const int unanswered = failed ? failed : ROWAN_ETIMEDOUT;
    struct client_op *op;

    while ((op = session->table.age.first) &&
           (failed || (op->deadline_ns && op->deadline_ns <= session->now_ns)))
        complete(session, op,
                 op->request->type != MESSAGE_GET && (op->unknown || op->state == OP_SENT)
                     ? ROWAN_EUNKNOWN
                     : unanswered);
    if (op && op->deadline_ns)
        wake_at(wake_ns, op->deadline_ns);
}

enum poll_result session_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct session *session = role;

    ASSERT(!session->polling);
    session->polling = true;
    session->now_ns = now_ns;
    uint64_t completed = session->completed;
    bool busy = take_events(session);

    busy |= take_cm(session, wake_ns);
    date_posts(session);
    refuse_writes(session);
    expire(session, wake_ns);
    /* What callbacks of expired operations posted has no date yet. */
    date_posts(session);
    busy |= session_resume(session, wake_ns);
    busy |= cm_link_poll(&session->cm, session->router.config ? session->router.config->term : 0,
                         now_ns, wake_ns);
    if (session->cm.peer.broken) {
        session->any_broken = true;
        busy = true; /* the next poll closes it */
    }
    busy |= send_all(session, now_ns, wake_ns);
    if (busy)
        fabric_flush(session->endpoint);
    session->polling = false;
    return busy || session->completed != completed ? POLL_BUSY : POLL_IDLE;
}
