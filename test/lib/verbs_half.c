/* verbs_half.c - see verbs_half.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/list.h"
#include "test/lib/heap_pm.h"
#include "test/lib/verbs_half.h"

enum { POLLS = 4000000, WCS = 32, EVENTS = 16, STEP_NS = 1000, SOURCE_BYTES = 1 << 20 };

/* --- what the other half would do --- */

void verbs_list_add(struct verbs_conn *conn, enum verbs_list_kind kind)
{
    struct verbs_list *list = &conn->endpoint->lists[kind];

    if (verbs_is_listed(conn, kind))
        return;
    conn->listed |= UINT32_C(1) << kind;
    LIST_APPEND(list, conn, links[kind]);
}

void verbs_list_remove(struct verbs_conn *conn, enum verbs_list_kind kind)
{
    struct verbs_list *list = &conn->endpoint->lists[kind];

    if (!verbs_is_listed(conn, kind))
        return;
    LIST_REMOVE(list, conn, links[kind]);
    conn->listed &= ~(UINT32_C(1) << kind);
}

struct verbs_conn *verbs_list_take(struct verbs_endpoint *endpoint, enum verbs_list_kind list)
{
    struct verbs_conn *conn = endpoint->lists[list].first;

    if (conn)
        verbs_list_remove(conn, list);
    return conn;
}

static struct half_node *node_of(struct verbs_endpoint *endpoint)
{
    return (struct half_node *)(void *)((uint8_t *)endpoint - offsetof(struct half_node, endpoint));
}

struct verbs_conn *verbs_conn_of(const struct verbs_endpoint *endpoint, uint32_t number)
{
    return number < endpoint->conn_room ? endpoint->conns[number] : NULL;
}

void verbs_conn_break(struct verbs_conn *conn, int error)
{
    if (conn->state == VCONN_BREAKING)
        return;
    assert_true(error < 0);
    conn->state = VCONN_BREAKING;
    conn->error = error;
    verbs_rc_close(conn);
    verbs_list_remove(conn, VLIST_DIRTY);
    verbs_list_remove(conn, VLIST_ACTIVE);
    node_of(conn->endpoint)->broken++;
}

void verbs_endpoint_fail(struct verbs_endpoint *endpoint, const char *reason)
{
    (void)endpoint;
    fail_msg("the endpoint has failed: %s", reason);
}

void half_end(struct verbs_conn *conn)
{
    verbs_conn_break(conn, ROWAN_ECLOSED);
}

/* --- nodes --- */

static void node_open(struct half_node *node, uint64_t pm_bytes)
{
    const struct fabric_verbs_options options = {.receive = FABRIC_RECEIVE_SHARED,
                                                 .slot_bytes = HALF_SLOT};
    struct verbs_endpoint *endpoint = &node->endpoint;

    *node = (struct half_node){.fabric = {.options = options}};
    assert_int_equal(verbs_device_open("10.1.1.1", &options, &node->fabric.device), 0);
    node->fabric.base.caps = (struct fabric_caps){.backend = "verbs",
                                                  .block_limit = node->fabric.device->slot_bytes,
                                                  .landing_stride = node->fabric.device->slot_bytes,
                                                  .max_batch_blocks = VERBS_BLOCKS};
    node->heap = heap_pm_create(pm_bytes);
    node->pm = &node->heap->pm;
    node->pm->fd = -1;
    assert_int_equal(verbs_register(&node->fabric.base, node->pm), 0);
    endpoint->fabric = &node->fabric;
    endpoint->device = node->fabric.device;
    endpoint->cq = ibv_create_cq(endpoint->device->context, HALF_CQ, NULL, NULL, 0);
    assert_non_null(endpoint->cq);
    endpoint->cq_room = HALF_CQ;
    endpoint->conns = node->conns;
    endpoint->conn_room = HALF_CONNS;
    node->events = calloc(HALF_EVENTS, sizeof *node->events);
    assert_non_null(node->events);
}

void half_open(struct half *half, unsigned count, uint64_t pm_bytes)
{
    *half = (struct half){.count = count, .now_ns = NS_PER_S};
    for (unsigned i = 0; i < count; i++)
        node_open(&half->nodes[i], pm_bytes);
}

static void node_close(struct half_node *node)
{
    for (uint32_t i = 0; i < HALF_CONNS; i++) {
        if (node->conns[i] && node->conns[i]->state != VCONN_BREAKING)
            half_end(node->conns[i]);
    }
    if (node->zone)
        verbs_zone_close(node->zone);
    verbs_grants_destroy(&node->endpoint);
    assert_int_equal(node->endpoint.cq_room, HALF_CQ); /* all places were given back */
    assert_int_equal(ibv_destroy_cq(node->endpoint.cq), 0);
    for (uint32_t i = 0; i < node->fabric.region_count; i++)
        assert_int_equal(ibv_dereg_mr(node->fabric.regions[i].mr), 0);
    verbs_device_close(node->fabric.device);
    heap_pm_destroy(node->heap);
    free(node->events);
    for (uint32_t i = 0; i < HALF_CONNS; i++)
        free(node->conns[i]);
}

void half_close(struct half *half)
{
    struct soft_stats stats;

    for (unsigned i = 0; i < half->count; i++)
        node_close(&half->nodes[i]);
    soft_verbs_stats(&stats);
    assert_int_equal(stats.contexts + stats.pds + stats.mrs + stats.cqs + stats.qps + stats.srqs,
                     0);
}

void half_zone(struct half *half, uint32_t depth, uint32_t posted)
{
    struct half_node *node = &half->nodes[0];

    assert_int_equal(verbs_zone_open(&node->endpoint.base, node->pm, depth, &node->zone), 0);
    for (uint32_t i = 0; i < posted; i++)
        assert_int_equal(verbs_zone_post(node->zone, (uint64_t)i * FABRIC_SEGMENT_BYTES, i), 0);
}

/* --- connections --- */

static struct verbs_conn *conn_make(struct half_node *node, bool active)
{
    struct verbs_conn *conn = calloc(1, sizeof *conn);

    assert_non_null(conn);
    conn->endpoint = &node->endpoint;
    conn->active = active;
    conn->state = VCONN_GREETING;
    while (conn->number < HALF_CONNS && node->conns[conn->number])
        conn->number++;
    assert_true(conn->number < HALF_CONNS);
    node->conns[conn->number] = conn;
    verbs_list_add(conn, VLIST_ALL);
    return conn;
}

static struct verbs_hello hello_of(const struct verbs_conn *conn, const struct verbs_rc_hello *rc)
{
    struct verbs_hello hello = {.kind = VERBS_HELLO,
                                .lid = conn->endpoint->device->port_attributes.lid,
                                .mtu = conn->endpoint->device->mtu_bytes,
                                .rc = *rc};

    memcpy(hello.gid, conn->endpoint->device->gid.raw, sizeof hello.gid);
    return hello;
}

int half_connect(struct half *half, unsigned from, unsigned to, struct verbs_conn **active,
                 struct verbs_conn **passive)
{
    struct verbs_rc_hello a = {0}, p = {0};
    int error;

    *active = conn_make(&half->nodes[from], true);
    *passive = conn_make(&half->nodes[to], false);
    half->nodes[from].peers[(*active)->number] = *passive;
    half->nodes[to].peers[(*passive)->number] = *active;
    error = verbs_rc_open(*active, &a);
    if (!error) {
        (*passive)->theirs = hello_of(*active, &a);
        error = verbs_rc_open(*passive, &p);
    }
    if (!error)
        error = verbs_rc_connect(*passive);
    if (!error) {
        (*active)->theirs = hello_of(*passive, &p);
        error = verbs_rc_connect(*active);
    }
    if (error) {
        verbs_conn_break(*active, error);
        verbs_conn_break(*passive, error);
    } else {
        (*active)->state = (*passive)->state = VCONN_OPEN;
    }
    return error;
}

static void forget_end(struct verbs_conn *conn)
{
    assert_int_equal(conn->state, VCONN_BREAKING);
    node_of(conn->endpoint)->conns[conn->number] = NULL;
    verbs_list_remove(conn, VLIST_ALL);
    free(conn);
}

void half_forget(struct verbs_conn *one, struct verbs_conn *other)
{
    forget_end(one);
    forget_end(other);
}

/* A connection ends when its other end is gone. */
static void reap(struct half_node *node)
{
    for (uint32_t i = 0; i < HALF_CONNS; i++) {
        struct verbs_conn *conn = node->conns[i];

        if (conn && conn->state == VCONN_OPEN && node->peers[i]->state == VCONN_BREAKING)
            half_end(conn);
    }
}

/* --- polls --- */

static void take_completion(struct half_node *node, const struct ibv_wc *wc)
{
    struct verbs_conn *conn = verbs_conn_of(&node->endpoint, verbs_work_connection(wc->wr_id));

    assert_int_equal(verbs_work_kind(wc->wr_id), VERBS_WORK_RC);
    if (conn)
        verbs_rc_completion(conn, wc);
}

static void poll_conns(struct half_node *node)
{
    for (uint32_t i = 0; i < HALF_CONNS; i++) {
        struct verbs_conn *conn = node->conns[i];

        if (!conn || !verbs_is_listed(conn, VLIST_ACTIVE))
            continue;
        verbs_list_remove(conn, VLIST_ACTIVE);
        node->event_count += verbs_rc_poll(conn, node->events + node->event_count, EVENTS);
        if (conn->state == VCONN_OPEN && verbs_rc_has_events(conn))
            verbs_list_add(conn, VLIST_ACTIVE);
    }
}

void half_poll_node(struct half *half, unsigned index)
{
    struct half_node *node = &half->nodes[index];
    struct verbs_endpoint *endpoint = &node->endpoint;
    struct verbs_conn *conn;
    struct ibv_wc wcs[WCS];
    const int count = ibv_poll_cq(endpoint->cq, WCS, wcs);

    assert_true(count >= 0);
    assert_true(node->event_count + 1000 < HALF_EVENTS);
    endpoint->now_ns = half->now_ns;
    endpoint->more_completions = count == WCS;
    for (int i = 0; i < count; i++)
        take_completion(node, &wcs[i]);
    reap(node);
    if (endpoint->zone)
        node->event_count +=
            verbs_zone_poll(endpoint->zone, half->now_ns, node->events + node->event_count, EVENTS);
    node->event_count +=
        verbs_grants_poll(endpoint, node->events + node->event_count, FABRIC_MAX_GRANTS);
    poll_conns(node);
    while ((conn = verbs_list_take(endpoint, VLIST_DIRTY)))
        verbs_rc_push(conn);
}

void half_poll(struct half *half)
{
    for (unsigned i = 0; i < half->count; i++) {
        if (!half->nodes[i].is_stopped)
            half_poll_node(half, i);
    }
    half->now_ns += STEP_NS;
}

void half_poll_times(struct half *half, unsigned times)
{
    while (times-- > 0)
        half_poll(half);
}

/* --- events --- */

uint32_t half_events(const struct half_node *node, enum fabric_event_kind kind)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->event_count; i++)
        count += node->events[i].kind == kind;
    return count;
}

const struct fabric_event *half_event(const struct half_node *node, enum fabric_event_kind kind,
                                      uint32_t nth)
{
    for (uint32_t i = 0; i < node->event_count; i++) {
        if (node->events[i].kind == kind && nth-- == 0)
            return &node->events[i];
    }
    fail_msg("no such event of kind %d", (int)kind);
    return NULL;
}

void half_wait(struct half *half, unsigned node, enum fabric_event_kind kind, uint32_t count)
{
    uint32_t had = half_events(&half->nodes[node], kind), seen = half->nodes[node].event_count;

    for (uint32_t i = 0; had < count; i++) {
        if (i == POLLS)
            fail_msg("node %u had %u of %u events of kind %d", node, had, count, (int)kind);
        half_poll(half);
        for (; seen < half->nodes[node].event_count; seen++)
            had += half->nodes[node].events[seen].kind == kind;
    }
}

/* --- blocks --- */

struct head {
    uint32_t mark, sender, number, bytes;
};

enum { MARK = 0x68616c00 }; /* a block begins with a byte of 0 */

int half_send(struct half *half, unsigned from, struct verbs_conn *conn, uint32_t number,
              uint32_t bytes)
{
    const struct head head = {.mark = MARK, .sender = from, .number = number, .bytes = bytes};
    const uint64_t at =
        (uint64_t)(number % (SOURCE_BYTES / 4096)) * 4096; /* F4: of who landed long ago */
    struct pm *pm = half->nodes[from].pm;
    uint8_t block[4096];
    int error;

    memset(block, (int)(1 + number % 200), bytes);
    memcpy(block, &head, sizeof head);
    if (verbs_rowan_room(&conn->base) <= VERBS_BLOCKS - SOURCE_BYTES / 4096)
        return ROWAN_EAGAIN;
    pm_store(pm, at, block, bytes);
    error = verbs_rowan_add(&conn->base, pm_at(pm, at), bytes);
    assert_true(error == 0 || error == ROWAN_EAGAIN || error == ROWAN_ECLOSED);
    return error ? error : verbs_rowan_post(&conn->base, number);
}

static bool is_zero(const uint8_t *bytes, uint32_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

void half_walk(const struct half *half, uint32_t segments, uint32_t counts[HALF_NODES])
{
    const struct half_node *owner = &half->nodes[0];
    const uint32_t slot = owner->fabric.device->slot_bytes;
    uint32_t next[HALF_NODES] = {0};

    memset(counts, 0, HALF_NODES * sizeof counts[0]);
    for (uint64_t at = 0; at < (uint64_t)segments * FABRIC_SEGMENT_BYTES; at += slot) {
        const uint8_t *data = pm_at(owner->pm, at);
        struct head head;

        if (is_zero(data, slot))
            continue;
        memcpy(&head, data, sizeof head);
        assert_int_equal(head.mark, MARK);
        assert_true(head.sender < HALF_NODES && head.bytes <= slot);
        assert_true(head.number >= next[head.sender]); /* F1 */
        next[head.sender] = head.number + 1;
        for (uint32_t i = sizeof head; i < slot; i++)
            assert_int_equal(data[i], i < head.bytes ? 1 + head.number % 200 : 0);
        counts[head.sender]++;
    }
}
