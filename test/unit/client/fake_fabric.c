/* The ops table of the fake fabric. Connections are never reused, so that a late use of one that is
 * over is seen. */
#include "fake_fabric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"

static struct fake_fabric *of_endpoint(struct fabric_endpoint *endpoint)
{
    return (struct fake_fabric *)((char *)endpoint - offsetof(struct fake_fabric, endpoint));
}

static struct fake_conn *of_conn(struct fabric_conn *conn)
{
    return (struct fake_conn *)conn;
}

static struct fabric_event *push_event(struct fake_fabric *fake, enum fabric_event_kind kind,
                                       struct fake_conn *conn)
{
    struct fabric_event *event = &fake->events[fake->event_tail++ % FAKE_MAX_EVENTS];

    ASSERT(fake->event_tail - fake->event_head <= FAKE_MAX_EVENTS);
    *event = (struct fabric_event){.kind = kind, .conn = &conn->head, .context = conn->context};
    return event;
}

static unsigned fake_poll(struct fabric_endpoint *endpoint, uint64_t now_ns,
                          struct fabric_event *events, unsigned max)
{
    struct fake_fabric *fake = of_endpoint(endpoint);
    unsigned count = 0;

    (void)now_ns;
    while (count < max && fake->event_head != fake->event_tail) {
        struct fabric_event *event = &fake->events[fake->event_head++ % FAKE_MAX_EVENTS];

        if (of_conn(event->conn)->by_client) {
            free((void *)(uintptr_t)event->data);
            continue;
        }
        fake->unreleased += event->kind == FABRIC_MESSAGE;
        events[count++] = *event;
    }
    return count;
}

static int fake_connect(struct fabric_endpoint *endpoint, const char *address, uint32_t index,
                        uint64_t context, struct fabric_conn **out)
{
    struct fake_fabric *fake = of_endpoint(endpoint);
    struct fake_conn *conn = &fake->conns[fake->conn_count++];

    ASSERT(fake->conn_count <= FAKE_MAX_CONNS);
    *conn = (struct fake_conn){
        .head = {.ops = fake->head.ops, .endpoint = endpoint, .layout = MESSAGE_LAYOUT},
        .fake = fake,
        .index = index,
        .context = context,
        .room = UINT32_MAX};
    snprintf(conn->address, sizeof conn->address, "%s", address);
    *out = &conn->head;
    if (fake->refused && strcmp(fake->refused, address) == 0)
        fake_close(conn, ROWAN_EUNREACHABLE);
    else if (!fake->hold_connects)
        fake_accept(conn);
    return 0;
}

static void fake_conn_close(struct fabric_conn *conn)
{
    ASSERT(!of_conn(conn)->over);
    of_conn(conn)->over = of_conn(conn)->by_client = true;
    of_conn(conn)->open = false;
}

static int fake_send(struct fabric_conn *head, const struct fabric_iov *iov, unsigned count)
{
    struct fake_conn *conn = of_conn(head);
    struct fake_fabric *fake = conn->fake;
    struct fake_sent *sent = &fake->sent[fake->sent_count];

    ASSERT(conn->open);
    if (conn->room == 0)
        return ROWAN_EAGAIN;
    conn->room -= conn->room != UINT32_MAX;
    ASSERT(fake->sent_count < FAKE_MAX_SENT);
    sent->conn = conn;
    sent->bytes = 0;
    for (unsigned i = 0; i < count; i++)
        sent->bytes += iov[i].bytes;
    sent->data = malloc(sent->bytes);
    ASSERT(sent->data);
    for (unsigned i = 0, at = 0; i < count; at += iov[i++].bytes)
        memcpy(sent->data + at, iov[i].data, iov[i].bytes);
    fake->sent_count++;
    return 0;
}

static void fake_release(struct fabric_conn *conn, uint64_t message)
{
    of_conn(conn)->fake->unreleased--;
    free((void *)(uintptr_t)message);
}

static void fake_flush(struct fabric_endpoint *endpoint)
{
    struct fake_fabric *fake = of_endpoint(endpoint);

    fake->flushed = fake->sent_count;
}

static const struct fabric_ops fake_ops = {
    .poll = fake_poll,
    .connect = fake_connect,
    .conn_close = fake_conn_close,
    .send = fake_send,
    .message_release = fake_release,
    .flush = fake_flush,
};

struct fake_fabric *fake_create(void)
{
    struct fake_fabric *fake = calloc(1, sizeof *fake);

    ASSERT(fake);
    fake->head.ops = &fake_ops;
    fake->endpoint.ops = &fake_ops;
    return fake;
}

void fake_destroy(struct fake_fabric *fake)
{
    for (uint32_t i = 0; i < fake->sent_count; i++)
        free(fake->sent[i].data);
    while (fake->event_head != fake->event_tail)
        free((void *)(uintptr_t)fake->events[fake->event_head++ % FAKE_MAX_EVENTS].data);
    ASSERT(fake->unreleased == 0);
    free(fake);
}

struct fake_sent *fake_take(struct fake_fabric *fake)
{
    return fake->taken < fake->flushed ? &fake->sent[fake->taken++] : NULL;
}

void fake_accept(struct fake_conn *conn)
{
    struct fabric_identity reached = {.kind = FABRIC_CM};
    unsigned server;

    if (sscanf(conn->address, "fake:%u", &server) == 1)
        reached = (struct fabric_identity){
            .kind = FABRIC_SERVER, .id = server, .incarnation = conn->fake->incarnations[server]};
    conn->open = true;
    push_event(conn->fake, FABRIC_CONNECTED, conn)->peer = reached;
}

void fake_close(struct fake_conn *conn, int error)
{
    conn->open = false;
    conn->over = true;
    push_event(conn->fake, FABRIC_CLOSED, conn)->error = error;
}

void fake_reply(struct fake_conn *conn, const void *head, uint32_t head_bytes, const void *tail,
                uint32_t tail_bytes)
{
    uint8_t *data = malloc(head_bytes + tail_bytes);
    struct fabric_event *event = push_event(conn->fake, FABRIC_MESSAGE, conn);

    ASSERT(data);
    memcpy(data, head, head_bytes);
    if (tail_bytes)
        memcpy(data + head_bytes, tail, tail_bytes);
    event->data = data;
    event->bytes = head_bytes + tail_bytes;
    event->message = (uint64_t)(uintptr_t)data;
}

struct fake_conn *fake_find(struct fake_fabric *fake, const char *address, uint32_t index)
{
    for (uint32_t i = fake->conn_count; i-- > 0;) {
        struct fake_conn *conn = &fake->conns[i];

        if (!conn->over && conn->index == index && strcmp(conn->address, address) == 0)
            return conn;
    }
    return NULL;
}
