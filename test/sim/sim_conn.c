/* Connections of the simulated network, and the messages on them.
 *
 * What has been sent waits in the sender's `outgoing` until it is flushed, then in the receiver's
 * `incoming` until it has arrived and is polled, then among the receiver's `unreleased`. The sender
 * counts all three against its room.
 *
 *   CONNECTING -- accepted --> OPEN -- cut, or closed by the peer --> CUT -- closes_ns --> BROKEN
 *        \-- refused, at closes_ns --> BROKEN                  any of them -- closed --> BROKEN
 *
 * A side that is CUT does not know: it may send, and nothing of it leaves. It hears of it at its closes_ns;
 * what has not arrived by then never does.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "test/sim/sim_fabric_state.h"

/* --- queues --- */

static struct sim_item *queue_pop(struct sim_queue *queue)
{
    struct sim_item *item = queue->first;
    LIST_REMOVE(queue, item, link);
    return item;
}

static void queue_free(struct sim_queue *queue)
{
    while (queue->first)
        free(queue_pop(queue));
}

static struct sim_item *item_create(enum fabric_event_kind kind, size_t bytes)
{
    struct sim_item *item = malloc(sizeof *item + bytes);
    ASSERT(item);
    *item = (struct sim_item){.event = {.kind = kind}};
    return item;
}

static void copy_pieces(uint8_t *to, const struct fabric_iov *iov, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (iov[i].bytes)
            memcpy(to, iov[i].data, iov[i].bytes);
        to += iov[i].bytes;
    }
}

static void drop(struct sim_conn *conn, struct sim_item *item)
{
    sim_network_of(conn)->counts.lost += item->event.kind == FABRIC_MESSAGE;
    free(item);
}

/* --- life --- */

struct sim_conn *sim_conn_create(struct sim_endpoint *endpoint, uint64_t context)
{
    struct sim_conn *conn = calloc(1, sizeof *conn);
    ASSERT(conn);
    conn->head = (struct fabric_conn){.ops = endpoint->head.ops, .endpoint = &endpoint->head};
    conn->endpoint = endpoint;
    conn->context = context;
    conn->closes_ns = WAKE_NEVER;
    conn->number = ++endpoint->fabric->network->conns;
    LIST_APPEND(&endpoint->conns, conn, link);
    return conn;
}

void sim_conn_free(struct sim_conn *conn)
{
    struct sim_endpoint *endpoint = conn->endpoint;
    ASSERT(!conn->peer && !conn->lander.zone && !conn->wreck);
    struct sim_conn **link = &endpoint->dirty;
    while (conn->dirty && *link != conn)
        link = &(*link)->next_dirty;
    if (conn->dirty)
        *link = conn->next_dirty;
    LIST_REMOVE(&endpoint->conns, conn, link);
    queue_free(&conn->incoming);
    queue_free(&conn->outgoing);
    queue_free(&conn->unreleased);
    free(conn->blocks);
    free(conn);
}

void sim_conn_journal(const struct sim_conn *conn, const char *what)
{
    const struct sim_network *network = sim_network_of(conn);
    const char *scheme = "sim:";
    const char *node = conn->endpoint->fabric->address;
    const char *remote = network->hosts[conn->remote].name;
    journal_note(network->options.journal, JOURNAL_NETWORK, *node ? node + strlen(scheme) : "",
                 "connection %llu with %s %s", (unsigned long long)conn->number,
                 *remote ? remote + strlen(scheme) : "somebody", what);
}

/* --- what there is to do --- */

void sim_conn_wake(struct sim_conn *conn)
{
    struct sim_endpoint *endpoint = conn->endpoint;
    endpoint->due_ns = 0;
    if (conn->listed)
        return;
    conn->listed = true;
    conn->next_busy = NULL;
    if (endpoint->last_busy)
        endpoint->last_busy->next_busy = conn;
    else
        endpoint->busy = conn;
    endpoint->last_busy = conn;
}

void sim_conn_dirty(struct sim_conn *conn)
{
    if (conn->dirty)
        return;
    conn->dirty = true;
    conn->next_dirty = conn->endpoint->dirty;
    conn->endpoint->dirty = conn;
}

bool sim_conn_rests(const struct sim_conn *conn)
{
    return !conn->over && !conn->incoming.first && conn->closes_ns == WAKE_NEVER &&
           sim_rowan_rests(conn);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t item_due_ns(const struct sim_conn *conn, const struct sim_item *item)
{
    return sim_path_at(sim_network_of(conn), conn->remote, conn->endpoint->fabric->host,
                       item->at_ns);
}

static uint64_t close_due_ns(const struct sim_conn *conn)
{
    if (!conn->is_told || conn->closes_ns == WAKE_NEVER)
        return conn->closes_ns;
    return sim_path_at(sim_network_of(conn), conn->remote, conn->endpoint->fabric->host,
                       conn->closes_ns);
}

uint64_t sim_conn_due_ns(const struct sim_conn *conn)
{
    if (conn->over)
        return 0;
    uint64_t due_ns = earlier(close_due_ns(conn), sim_rowan_due_ns(conn));
    return conn->incoming.first ? earlier(due_ns, item_due_ns(conn, conn->incoming.first)) : due_ns;
}

bool sim_conn_has_work(const struct sim_conn *conn)
{
    uint64_t now_ns = sim_network_now(sim_network_of(conn));
    if (conn->over)
        return false;
    return close_due_ns(conn) <= now_ns ||
           (conn->incoming.first && item_due_ns(conn, conn->incoming.first) <= now_ns) ||
           sim_rowan_has_work(conn);
}

static uint64_t arrival_ns(struct sim_conn *to)
{
    struct sim_network *network = sim_network_of(to);
    uint64_t at_ns = sim_network_now(network) + sim_network_delay(network);
    if (at_ns < to->last_at_ns)
        at_ns = to->last_at_ns;
    to->last_at_ns = at_ns;
    sim_alarm(network, at_ns);
    network->progress++;
    return at_ns;
}

static void arrive(struct sim_conn *conn, struct sim_item *item)
{
    item->at_ns = arrival_ns(conn);
    LIST_APPEND(&conn->incoming, item, link);
    sim_conn_wake(conn);
}

struct sim_item *sim_conn_push(struct sim_conn *conn, enum fabric_event_kind kind, uint64_t context)
{
    struct sim_item *item = item_create(kind, 0);
    item->event.context = context;
    arrive(conn, item);
    return item;
}

/* --- the end --- */

/* How long it takes until a side hears of it: soon, or long after the other. */
static uint64_t end_delay(struct sim_network *network)
{
    static const uint32_t TIMES[] = {1, 1, 8, 64};
    uint64_t most_ns = network->options.max_delay_ns * TIMES[random_below(&network->random, 4)];
    return most_ns ? random_below(&network->random, most_ns + 1) : 0;
}

/* Keeps some of the first of what is on its way to the owner. */
static void cut_incoming(struct sim_conn *conn)
{
    struct sim_queue old = conn->incoming;
    uint64_t count = 0;
    for (const struct sim_item *item = old.first; item; item = item->link.next)
        count++;
    uint64_t keep = random_below(&sim_network_of(conn)->random, count + 1);
    /* An owner must know a connection before it hears of its end. */
    if (keep == 0 && old.first && old.first->event.kind == FABRIC_ACCEPTED)
        keep = 1;
    conn->incoming = (struct sim_queue){0};
    while (old.first) {
        struct sim_item *item = queue_pop(&old);
        if (keep > 0) {
            keep--;
            LIST_APPEND(&conn->incoming, item, link);
        } else {
            drop(conn, item);
        }
    }
}

static void will_close(struct sim_conn *conn, int error, uint64_t at_ns, bool is_told)
{
    struct sim_network *network = sim_network_of(conn);
    conn->close_error = error;
    conn->is_told = is_told;
    if (is_told && at_ns < conn->last_at_ns)
        at_ns = conn->last_at_ns;
    conn->closes_ns = at_ns;
    sim_alarm(network, at_ns);
    sim_conn_wake(conn);
    network->progress++;
}

/* `closer`: the one of them who ends it; NULL: a cable did. */
static void sever(struct sim_conn *conn, struct sim_conn *closer)
{
    struct sim_network *network = sim_network_of(conn);
    struct sim_conn *sides[2] = {conn, conn->peer};
    for (int i = 0; i < 2; i++) {
        bool closes = sides[i] == closer;
        uint64_t delay_ns = closes ? 0 : end_delay(network);
        will_close(sides[i], ROWAN_ECLOSED, sim_network_now(network) + delay_ns, closer && !closes);
        sides[i]->state = CONN_CUT;
    }
    for (int i = 0; i < 2; i++) {
        sim_rowan_cut(sides[i], sides[1 - i] != closer, sides[i] == closer);
        cut_incoming(sides[i]);
    }
    conn->peer->peer = NULL;
    conn->peer = NULL;
}

void sim_conn_break(struct sim_conn *conn)
{
    struct sim_network *network = sim_network_of(conn);
    if (conn->state == CONN_CUT && conn->is_told) /* the end that was told never comes */
        will_close(conn, ROWAN_ECLOSED, sim_network_now(network) + end_delay(network), false);
    if (conn->state != CONN_OPEN)
        return;
    sim_conn_journal(conn, "broke");
    network->counts.broken++;
    sever(conn, NULL);
}

void sim_conn_fail(struct sim_conn *conn)
{
    struct sim_network *network = sim_network_of(conn);
    if (conn->state == CONN_OPEN) {
        sim_conn_journal(conn, "failed");
        network->counts.broken++;
        sever(conn, conn);
    } else if (conn->state == CONN_CUT) {
        will_close(conn, ROWAN_ECLOSED, sim_network_now(network), false);
    }
}

void sim_conn_supersede(struct sim_conn *conn)
{
    sim_conn_fail(conn);
    sim_rowan_end(conn, false);
}

static void end(struct sim_conn *conn, bool by_owner)
{
    while (conn->outgoing.first)
        drop(conn, queue_pop(&conn->outgoing));
    while (conn->incoming.first)
        drop(conn, queue_pop(&conn->incoming));
    sim_rowan_end(conn, by_owner);
    conn->state = CONN_BROKEN;
    conn->closes_ns = WAKE_NEVER;
    conn->over = true;
    sim_conn_wake(conn);
}

void sim_conn_close(struct fabric_conn *head)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    if (conn->over)
        return;
    if (conn->state == CONN_CONNECTING)
        sim_conn_answered(conn);
    if (conn->state == CONN_OPEN) {
        sim_conn_journal(conn, "was closed");
        sever(conn, conn);
    }
    end(conn, true);
}

/* --- beginning --- */

int sim_connect(struct fabric_endpoint *head, const char *address, uint32_t index, uint64_t context,
                struct fabric_conn **out)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)head;
    struct sim_network *network = endpoint->fabric->network;
    if (!sim_address_is_valid(address))
        return ROWAN_EINVALID;
    struct sim_conn *conn = sim_conn_create(endpoint, context);
    conn->state = CONN_CONNECTING;
    conn->identity = head->identity;
    conn->remote = sim_host(network, address);
    conn->to_index = index;
    conn->connect_ns = sim_network_now(network);
    conn->connect_at_ns = conn->connect_ns + sim_network_delay(network);
    sim_alarm(network, conn->connect_at_ns);
    sim_alarm(network, conn->connect_ns + SIM_HANDSHAKE_NS);
    LIST_APPEND(&network->connecting, conn, connecting);
    network->progress++;
    *out = &conn->head;
    return 0;
}

void sim_conn_answered(struct sim_conn *conn)
{
    LIST_REMOVE(&sim_network_of(conn)->connecting, conn, connecting);
    conn->state = CONN_BROKEN;
}

void sim_conn_refuse(struct sim_conn *conn, int error)
{
    struct sim_network *network = sim_network_of(conn);
    sim_conn_answered(conn);
    will_close(conn, error, sim_network_now(network) + sim_network_delay(network), false);
}

/* --- messages --- */

int sim_send(struct fabric_conn *head, const struct fabric_iov *iov, unsigned count)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    struct sim_network *network = sim_network_of(conn);
    if (conn->state != CONN_OPEN && conn->state != CONN_CUT)
        return ROWAN_ECLOSED;
    if (count == 0 || count > FABRIC_MAX_IOV)
        return ROWAN_EINVALID;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < count; i++)
        bytes += iov[i].bytes;
    if (bytes > FABRIC_MAX_MESSAGE_BYTES)
        return ROWAN_EINVALID;
    if (conn->messages >= network->options.max_messages ||
        conn->message_bytes + bytes > SIM_MAX_UNRELEASED_BYTES) {
        network->counts.refused++;
        conn->refused = true;
        return ROWAN_EAGAIN;
    }
    conn->messages++;
    conn->message_bytes += bytes;
    struct sim_item *item = item_create(FABRIC_MESSAGE, bytes);
    item->event.bytes = (uint32_t)bytes;
    copy_pieces(item->data, iov, count);
    LIST_APPEND(&conn->outgoing, item, link);
    sim_conn_dirty(conn);
    return 0;
}

void sim_conn_flush(struct sim_conn *conn)
{
    while (conn->outgoing.first) {
        struct sim_item *item = queue_pop(&conn->outgoing);
        if (conn->peer)
            arrive(conn->peer, item);
        else
            drop(conn, item);
    }
}

static void hand_out_message(struct sim_conn *conn, struct sim_item *item)
{
    item->event.data = item->data;
    item->event.message = (uint64_t)(uintptr_t)item;
    LIST_APPEND(&conn->unreleased, item, link);
}

static bool hand_out_close(struct sim_conn *conn, struct fabric_event *event)
{
    if (close_due_ns(conn) > sim_network_now(sim_network_of(conn)))
        return false;
    *event = (struct fabric_event){.kind = FABRIC_CLOSED,
                                   .error = conn->close_error,
                                   .conn = &conn->head,
                                   .context = conn->context};
    end(conn, false);
    return true;
}

/* What arrived after the end was there to be heard did not arrive. */
static bool has_arrived(const struct sim_conn *conn, const struct sim_item *item)
{
    uint64_t at_ns = item_due_ns(conn, item);
    return at_ns <= sim_network_now(sim_network_of(conn)) &&
           (at_ns <= close_due_ns(conn) || item->event.kind == FABRIC_ACCEPTED);
}

bool sim_conn_next(struct sim_conn *conn, struct fabric_event *event)
{
    struct sim_item *item = conn->incoming.first;
    if (conn->over)
        return false;
    if (!item || !has_arrived(conn, item)) {
        /* An owner must know a connection before it hears of its end. */
        return !(item && item->event.kind == FABRIC_ACCEPTED) && hand_out_close(conn, event);
    }
    queue_pop(&conn->incoming);
    item->event.conn = &conn->head;
    bool message = item->event.kind == FABRIC_MESSAGE;
    if (message)
        hand_out_message(conn, item);
    *event = item->event;
    if (!message)
        free(item);
    return true;
}

void sim_message_release(struct fabric_conn *head, uint64_t message)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    struct sim_item *item = conn->unreleased.first;
    while (item && item != (struct sim_item *)(uintptr_t)message)
        item = item->link.next;
    ASSERT(item); /* released twice, or of another connection */
    LIST_REMOVE(&conn->unreleased, item, link);
    if (conn->peer) {
        conn->peer->endpoint->room |= conn->peer->refused;
        conn->peer->refused = false;
        conn->peer->messages--;
        conn->peer->message_bytes -= item->event.bytes;
    }
    free(item);
}
