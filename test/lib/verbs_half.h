/* verbs_half.h - the reliable half of the verbs backend alone, on devices made of software: endpoints with
 * queue pairs, landing zones and grants, whose handshake is two function calls. What the other half does
 * for it (numbers, lists, the end of a connection and that its peer hears of it) is done here, as
 * common/fabric/verbs/verbs.h says; the program must not link that half. Include after cmocka.h.
 */
#ifndef TEST_VERBS_HALF_H
#define TEST_VERBS_HALF_H

#include "common/fabric/verbs/verbs_rc.h"
#include "common/fabric/verbs/verbs_zone.h"
#include "test/lib/soft_verbs.h"

enum {
    HALF_NODES = 4,
    HALF_CONNS = 64,
    HALF_EVENTS = 1 << 16,
    HALF_CQ = 1 << 14,
    HALF_SLOT = 1024
};

struct half_node {
    struct verbs_fabric fabric;
    struct verbs_endpoint endpoint;
    struct verbs_conn *conns[HALF_CONNS];
    struct verbs_conn *peers[HALF_CONNS]; /* the other ends; NULL: gone */
    struct heap_pm *heap;
    struct pm *pm;
    struct fabric_zone *zone;
    struct fabric_event *events;
    uint32_t event_count;
    uint32_t broken; /* connections */
    bool is_stopped; /* half_poll passes it over */
};

struct half {
    struct half_node nodes[HALF_NODES];
    unsigned count;
    uint64_t now_ns;
};

/* `count` processes with an endpoint each. */
void half_open(struct half *half, unsigned count, uint64_t pm_bytes);
void half_close(struct half *half);

/* Zone of `depth` at node 0, with `posted` segments from the start of its PM. */
void half_zone(struct half *half, uint32_t depth, uint32_t posted);

/* 0 and an open connection, the active end at `from`; or what one of the ends answered. */
int half_connect(struct half *half, unsigned from, unsigned to, struct verbs_conn **active,
                 struct verbs_conn **passive);

/* The end of a connection, of which its peer hears in its next poll. */
void half_end(struct verbs_conn *conn);

/* Frees a connection of which both ends are broken. */
void half_forget(struct verbs_conn *one, struct verbs_conn *other);

/* One poll and flush of each node, and a microsecond. */
void half_poll_node(struct half *half, unsigned node);
void half_poll(struct half *half);
void half_poll_times(struct half *half, unsigned times);

uint32_t half_events(const struct half_node *node, enum fabric_event_kind kind);
const struct fabric_event *half_event(const struct half_node *node, enum fabric_event_kind kind,
                                      uint32_t nth);

/* Polls until node has had `count` events of `kind`, at most some million times. */
void half_wait(struct half *half, unsigned node, enum fabric_event_kind kind, uint32_t count);

/* One block of `bytes` in a batch of its own: its words say who sent it and which it is. 0 or ROWAN_EAGAIN. */
int half_send(struct half *half, unsigned from, struct verbs_conn *conn, uint32_t number,
              uint32_t bytes);

/* Looks at the first `segments` of node 0's PM, slot by slot: each is zeros or begins with one whole block of
 * the right sender in the right order. How many of each sender there are. */
void half_walk(const struct half *half, uint32_t segments, uint32_t counts[HALF_NODES]);

#endif
