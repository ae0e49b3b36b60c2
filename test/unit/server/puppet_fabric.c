/* The ops table of the puppet fabric, and the strings. */
#include "puppet_fabric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/shut_out.h"

static struct puppet_conn *of(struct fabric_conn *conn)
{
    return (struct puppet_conn *)conn;
}

static struct fabric_event *push(struct puppet_conn *conn, enum fabric_event_kind kind)
{
    struct puppet_endpoint *at = conn->at;
    struct fabric_event *event = &at->events[at->event_tail++ % PUPPET_EVENTS];

    ASSERT(at->event_tail - at->event_head <= PUPPET_EVENTS);
    *event = (struct fabric_event){.kind = kind, .conn = &conn->head, .context = conn->context};
    return event;
}

static void conn_free(struct puppet_conn *conn)
{
    while (conn->messages) {
        struct puppet_message *message = conn->messages;

        conn->messages = message->next;
        free(message);
    }
    free(conn);
}

static void bury(struct puppet_conn *conn)
{
    struct puppet_conn **link = &conn->at->conns;

    while (*link != conn)
        link = &(*link)->next;
    *link = conn->next;
    conn->next = conn->at->graves;
    conn->at->graves = conn;
}

static unsigned puppet_poll(struct fabric_endpoint *base, uint64_t now_ns,
                            struct fabric_event *events, unsigned max)
{
    struct puppet_endpoint *at = (struct puppet_endpoint *)base;
    unsigned count = 0;

    (void)now_ns;
    if (!at->head.holds)
        at->flushed = at->fabric->sent_count;
    while (at->graves) {
        struct puppet_conn *conn = at->graves;

        at->graves = conn->next;
        conn_free(conn);
    }
    for (struct puppet_conn *conn = at->conns; conn; conn = conn->next) {
        conn->room += conn->room_at_poll;
        conn->room_at_poll = 0;
    }
    while (count < max && at->event_head != at->event_tail) {
        const struct fabric_event *event = &at->events[at->event_head++ % PUPPET_EVENTS];

        if (event->conn && of(event->conn)->closed_here)
            continue;
        events[count++] = *event;
        if (event->kind == FABRIC_CLOSED)
            bury(of(event->conn));
    }
    return count;
}

/* Memory of the test's own: no call that fail_call.h fails. */
static void *zeros(size_t bytes)
{
    void *memory = reallocarray(NULL, 1, bytes);

    ASSERT(memory);
    return memset(memory, 0, bytes);
}

static struct puppet_conn *conn_create(struct puppet_endpoint *at)
{
    struct puppet_conn *conn = zeros(sizeof *conn);

    conn->head = (struct fabric_conn){
        .ops = at->head.ops, .endpoint = &at->head, .layout = VERSION_MESSAGES_HIGHEST};
    conn->at = at;
    conn->room = UINT32_MAX;
    conn->next = at->conns;
    at->conns = conn;
    return conn;
}

static int puppet_connect(struct fabric_endpoint *endpoint, const char *address, uint32_t index,
                          uint64_t context, struct fabric_conn **out)
{
    struct puppet_conn *conn = conn_create((struct puppet_endpoint *)endpoint);

    (void)index;
    conn->context = context;
    snprintf(conn->address, sizeof conn->address, "%s", address);
    *out = &conn->head;
    return 0;
}

static void drop_unflushed(struct puppet_conn *conn)
{
    struct puppet_fabric *puppet = conn->at->fabric;
    uint32_t kept = conn->at->flushed;

    for (uint32_t i = kept; i < puppet->sent_count; i++) {
        if (puppet->sent[i].conn == conn)
            free(puppet->sent[i].data);
        else
            puppet->sent[kept++] = puppet->sent[i];
    }
    puppet->sent_count = kept;
}

static void puppet_conn_close(struct fabric_conn *base)
{
    struct puppet_conn *conn = of(base);

    ASSERT(!conn->closed_here);
    conn->closed_here = true;
    drop_unflushed(conn);
    /* What is queued for it must not be met after it was freed. */
    struct puppet_endpoint *at = conn->at;
    uint32_t kept = at->event_head;

    for (uint32_t i = at->event_head; i != at->event_tail; i++) {
        if (at->events[i % PUPPET_EVENTS].conn != base)
            at->events[kept++ % PUPPET_EVENTS] = at->events[i % PUPPET_EVENTS];
    }
    at->event_tail = kept;
    bury(conn);
}

static int puppet_send(struct fabric_conn *base, const struct fabric_iov *iov, unsigned count)
{
    struct puppet_conn *conn = of(base);
    struct puppet_fabric *puppet = conn->at->fabric;
    struct puppet_sent *sent = &puppet->sent[puppet->sent_count];

    ASSERT(count <= FABRIC_MAX_IOV);
    if (conn->over || conn->closed_here)
        return ROWAN_ECLOSED;
    if (conn->room == 0 && conn->shows_early && !conn->at->head.holds) {
        conn->at->flushed = puppet->sent_count;
        conn->room = 1;
    }
    if (conn->room == 0)
        return ROWAN_EAGAIN;
    conn->room -= conn->room != UINT32_MAX;
    ASSERT(puppet->sent_count < PUPPET_SENT);
    *sent = (struct puppet_sent){.conn = conn};
    for (unsigned i = 0; i < count; i++)
        sent->bytes += iov[i].bytes;
    sent->data = zeros(sent->bytes);
    for (unsigned i = 0, at = 0; i < count; at += iov[i++].bytes)
        memcpy(sent->data + at, iov[i].data, iov[i].bytes);
    puppet->sent_count++;
    return 0;
}

static void puppet_release(struct fabric_conn *base, uint64_t message)
{
    struct puppet_message **link = &of(base)->messages;

    while (*link && (uint64_t)(uintptr_t)*link != message)
        link = &(*link)->next;
    ASSERT(*link); /* else it was released twice */
    struct puppet_message *found = *link;

    *link = found->next;
    free(found);
}

static uint32_t puppet_room(const struct fabric_conn *base)
{
    const struct puppet_conn *conn = (const struct puppet_conn *)base;

    return conn->no_rowan_room ? 0 : PUPPET_BLOCKS - conn->in_flight - conn->added;
}

static int puppet_add(struct fabric_conn *base, const void *block, uint32_t bytes)
{
    struct puppet_fabric *puppet = of(base)->at->fabric;

    if (of(base)->over)
        return ROWAN_ECLOSED;
    ASSERT(of(base)->head.has_zone && bytes % FABRIC_STRIDE == 0);
    if (puppet_room(base) == 0)
        return ROWAN_EAGAIN;
    of(base)->added++;
    ASSERT(puppet->log_count < PUPPET_LOG);
    puppet->log[puppet->log_count++] = (struct puppet_block){block, bytes};
    return 0;
}

static int puppet_post(struct fabric_conn *base, uint64_t context)
{
    struct puppet_conn *conn = of(base);

    if (conn->over)
        return ROWAN_ECLOSED;
    if (conn->added == 0)
        return 0;
    ASSERT(conn->batch_last - conn->batch_first < 1024);
    conn->batches[conn->batch_last % 1024] = context;
    conn->batch_blocks[conn->batch_last++ % 1024] = conn->added;
    conn->in_flight += conn->added;
    conn->added = 0;
    return 0;
}

static int puppet_register(struct fabric *fabric, struct pm *pm)
{
    (void)fabric;
    (void)pm;
    return 0;
}

static int puppet_endpoint_open(struct fabric *fabric, uint32_t index, struct fabric_endpoint **out)
{
    struct puppet_endpoint *at = &((struct puppet_fabric *)fabric)->endpoints[index];

    ASSERT(index < PUPPET_ENDPOINTS);
    *at = (struct puppet_endpoint){.head = {.ops = fabric->ops},
                                   .fabric = (struct puppet_fabric *)fabric};
    at->events = zeros(PUPPET_EVENTS * sizeof *at->events);
    *out = &at->head;
    return 0;
}

static void puppet_endpoint_close(struct fabric_endpoint *endpoint)
{
    struct puppet_endpoint *at = (struct puppet_endpoint *)endpoint;

    while (at->conns)
        bury(at->conns);
    at->event_head = at->event_tail;
    puppet_poll(endpoint, 0, NULL, 0);
    free(at->events);
}

static void puppet_flush(struct fabric_endpoint *endpoint)
{
    struct puppet_endpoint *at = (struct puppet_endpoint *)endpoint;

    at->flushed = at->fabric->sent_count;
}

static int puppet_zone_open(struct fabric_endpoint *endpoint, struct pm *pm, uint32_t depth,
                            struct fabric_zone **out)
{
    struct puppet_fabric *puppet = ((struct puppet_endpoint *)endpoint)->fabric;

    (void)depth;
    puppet->zone_pm = pm;
    puppet->zone.ops = puppet->head.ops;
    puppet->zone_is_open = true;
    *out = &puppet->zone;
    return 0;
}

static int puppet_zone_post(struct fabric_zone *zone, uint64_t offset, uint64_t context)
{
    struct puppet_fabric *puppet =
        (struct puppet_fabric *)((char *)zone - offsetof(struct puppet_fabric, zone));

    ASSERT(puppet->post_count < 64);
    puppet->posts[puppet->post_count++] = (struct puppet_post){offset, context};
    return 0;
}

static void puppet_close_segment(struct fabric_zone *zone)
{
    (void)zone; /* as where a device places blocks */
}

static uint64_t puppet_zone_begun(const struct fabric_zone *zone)
{
    const struct puppet_fabric *puppet =
        (const struct puppet_fabric *)((const char *)zone - offsetof(struct puppet_fabric, zone));
    return puppet->post_count;
}

static int puppet_zone_shut_out(struct fabric_zone *zone, uint32_t server, uint64_t incarnation,
                                uint64_t context)
{
    struct puppet_fabric *puppet =
        (struct puppet_fabric *)((char *)zone - offsetof(struct puppet_fabric, zone));

    return shut_out_begin(&puppet->endpoints[1].head, zone, server, incarnation, context)
               ? 0
               : ROWAN_ETOOMANY;
}

static const struct fabric_ops puppet_ops = {
    .register_memory = puppet_register,
    .endpoint_open = puppet_endpoint_open,
    .endpoint_close = puppet_endpoint_close,
    .poll = puppet_poll,
    .connect = puppet_connect,
    .conn_close = puppet_conn_close,
    .send = puppet_send,
    .message_release = puppet_release,
    .rowan_room = puppet_room,
    .rowan_add = puppet_add,
    .rowan_post = puppet_post,
    .flush = puppet_flush,
    .zone_open = puppet_zone_open,
    .zone_post = puppet_zone_post,
    .close_segment = puppet_close_segment,
    .zone_begun = puppet_zone_begun,
    .shut_out = puppet_zone_shut_out,
};

struct puppet_fabric *puppet_create(uint32_t block_limit)
{
    struct puppet_fabric *puppet = zeros(sizeof *puppet);

    puppet->head.ops = &puppet_ops;
    puppet->head.caps = (struct fabric_caps){.backend = "puppet",
                                             .block_limit = block_limit,
                                             .landing_stride = FABRIC_STRIDE,
                                             .max_batch_blocks = PUPPET_BLOCKS};
    return puppet;
}

void puppet_destroy(struct puppet_fabric *puppet)
{
    for (uint32_t i = 0; i < puppet->sent_count; i++)
        free(puppet->sent[i].data);
    free(puppet);
}

struct puppet_conn *puppet_accept(struct puppet_fabric *puppet, uint32_t index,
                                  const struct fabric_identity *peer)
{
    struct puppet_endpoint *at = &puppet->endpoints[index];

    if (at->head.admit && at->head.admit(at->head.admit_context, peer))
        return NULL;
    struct puppet_conn *conn = conn_create(at);

    conn->id = peer->id;
    push(conn, FABRIC_ACCEPTED)->peer = *peer;
    return conn;
}

struct puppet_conn *puppet_find(struct puppet_fabric *puppet, uint32_t index, const char *address)
{
    struct puppet_conn *conn = puppet->endpoints[index].conns;

    while (conn && (conn->over || strcmp(conn->address, address) != 0))
        conn = conn->next;
    return conn;
}

bool puppet_lives(struct puppet_fabric *puppet, uint32_t index, const struct puppet_conn *conn)
{
    const struct puppet_conn *at = puppet->endpoints[index].conns;

    while (at && at != conn)
        at = at->next;
    return at;
}

void puppet_connected(struct puppet_conn *conn, bool has_zone)
{
    struct fabric_identity reached = {.kind = FABRIC_CM};
    unsigned server;

    if (sscanf(conn->address, "puppet:%u", &server) == 1)
        reached = (struct fabric_identity){.kind = FABRIC_SERVER,
                                           .id = server,
                                           .incarnation = conn->at->fabric->incarnations[server]};
    conn->head.has_zone = has_zone;
    push(conn, FABRIC_CONNECTED)->peer = reached;
}

void puppet_close(struct puppet_conn *conn, int error)
{
    conn->over = true;
    push(conn, FABRIC_CLOSED)->error = error;
}

void puppet_message(struct puppet_conn *conn, const void *head, uint32_t head_bytes,
                    const void *key, uint32_t key_bytes, const void *value, uint32_t value_bytes)
{
    uint32_t bytes = head_bytes + key_bytes + value_bytes;
    struct puppet_message *message = zeros(sizeof *message + bytes);
    struct fabric_event *event = push(conn, FABRIC_MESSAGE);

    memcpy(message->data, head, head_bytes);
    if (key_bytes)
        memcpy(message->data + head_bytes, key, key_bytes);
    if (value_bytes)
        memcpy(message->data + head_bytes + key_bytes, value, value_bytes);
    message->next = conn->messages;
    conn->messages = message;
    event->data = message->data;
    event->bytes = bytes;
    event->message = (uint64_t)(uintptr_t)message;
}

bool puppet_land(struct puppet_conn *conn)
{
    if (conn->batch_first == conn->batch_last)
        return false;
    conn->in_flight -= conn->batch_blocks[conn->batch_first % 1024];
    push(conn, FABRIC_LANDED)->context = conn->batches[conn->batch_first++ % 1024];
    return true;
}

bool puppet_seal(struct puppet_fabric *puppet, uint32_t index)
{
    struct puppet_endpoint *at = &puppet->endpoints[index];

    if (puppet->sealed == puppet->post_count)
        return false;
    at->events[at->event_tail++ % PUPPET_EVENTS] =
        (struct fabric_event){.kind = FABRIC_SEALED,
                              .quiet = !puppet->unquiet,
                              .context = puppet->posts[puppet->sealed++].context};
    return true;
}

static struct fabric_event *push_zone(struct puppet_fabric *puppet, uint32_t index,
                                      enum fabric_event_kind kind)
{
    struct puppet_endpoint *at = &puppet->endpoints[index];
    struct fabric_event *event = &at->events[at->event_tail++ % PUPPET_EVENTS];

    *event = (struct fabric_event){.kind = kind};
    return event;
}

void puppet_void(struct puppet_fabric *puppet, uint32_t index, uint32_t from, uint32_t bytes)
{
    const struct puppet_post *post = &puppet->posts[puppet->sealed];
    struct fabric_event *event = push_zone(puppet, index, FABRIC_VOID);

    event->context = post->context;
    event->data = pm_at(puppet->zone_pm, post->offset + from);
    event->bytes = bytes;
}

void puppet_shut_out(struct puppet_fabric *puppet, uint32_t index, uint32_t server, int error)
{
    struct fabric_event *event = push_zone(puppet, index, FABRIC_SHUT_OUT);

    event->context = server;
    event->error = error;
    puppet->zone.shut_out_waiting--;
}

void puppet_quiet(struct puppet_fabric *puppet, uint32_t index, uint32_t post)
{
    push_zone(puppet, index, FABRIC_QUIET)->context = puppet->posts[post].context;
}

const struct puppet_sent *puppet_take(struct puppet_fabric *puppet)
{
    return puppet->taken < puppet->sent_count ? &puppet->sent[puppet->taken++] : NULL;
}
