/* verbs_zone.h - what verbs_zone.c shares with the ways to receive (verbs_slots.c, verbs_mlx5.c). */
#ifndef FABRIC_VERBS_ZONE_H
#define FABRIC_VERBS_ZONE_H

#include "common/fabric/verbs/verbs.h"

/* A segment's `own`: slots whose receive has completed, or never will (verbs_slots.c). */
struct verbs_zone {
    struct zone base;
    struct verbs_endpoint *endpoint;
    const struct verbs_receive_ops *ops;
    void *receive;         /* of `ops` */
    uint32_t member_count; /* connections that can send into the zone */
    bool failed;           /* the device took no receives any more; said in the log once */
    bool writes_back;      /* see verbs_zone_landed */
    bool unfenced;         /* something was written back since the last fence */
    uint64_t now_ns;       /* of the last poll */
    uint64_t wake_ns; /* when it must be polled again; each poll sets it anew; UINT64_MAX: never */
};

/* A way to receive. All functions run on the endpoint's thread. */
struct verbs_receive_ops {
    bool whole_segments; /* a multi-packet queue: what senders must know of it (verbs_hello.h) */

    /* open: makes zone->receive; the rest of the zone is filled, nothing is posted. Errors: ROWAN_ENOMEM
     * ETOOMANY EUNSUPPORTED. close: all connections are detached. */
    int (*open)(struct verbs_zone *zone);
    void (*close)(struct verbs_zone *zone);

    /* attach: creates the passive end of a connection in INIT, with its receives where they belong, and sets
     * conn->rc->qp_number; what it makes is in conn->rc->qp, or in conn->rc->receive if it is no ibv_qp.
     * Errors: ROWAN_ENOMEM ETOOMANY EUNSUPPORTED.
     * connect: to RTS, as verbs_pair_connect; NULL: conn->rc->qp is an ibv_qp, which verbs_rc.c moves itself. Errors:
     * ROWAN_EIO EUNREACHABLE.
     * detach: nothing lands over this connection when it returns. conn->rc->qp, if there was one, has been
     * destroyed before; an object of its own is destroyed here. Not called if attach failed. */
    int (*attach)(struct verbs_zone *zone, struct verbs_conn *conn);
    int (*connect)(struct verbs_conn *conn, const struct ibv_qp_attr *to);
    void (*detach)(struct verbs_conn *conn);

    /* Each poll, first: takes completions from a queue of the zone's own; NULL: it has none. */
    void (*poll)(struct verbs_zone *zone);

    /* Each poll: hands receives of the posted segments to the device. */
    void (*post)(struct verbs_zone *zone);

    /* Each poll while the endpoint is armed, last: makes sure that what lands, or a time (verbs_zone_wake_at), wakes
     * it soon enough; NULL: what does is the endpoint's. */
    void (*sleep)(struct verbs_zone *zone);

    /* Fills the oldest segment (there is one), so that it is sealed soon; NULL: it cannot. */
    void (*skip)(struct verbs_zone *zone);

    /* True: the oldest segment (there is one) is sealed, and nobody can write to it any more. If only time
     * is missing it calls verbs_zone_wake_at. */
    bool (*is_sealed)(struct verbs_zone *zone);
};

/* verbs_mlx5.c: what verbs_receive_multi_packet.open does when it has a channel, which is the zone's from then on. */
struct mlx5_channel;
int verbs_mlx5_zone_open(struct verbs_zone *zone, struct mlx5_channel *channel);

/* A receive has brought `bytes` to `offset` of the PM, as a completion says. What holds then:
 *
 * - On a NIC, DDIO off (rowan-doctor looks): the sender's read behind the block has pushed it out of the NIC and the
 *   PCIe bridges before LANDED (F2): nothing is to be done. With eADR the caches are durable, too.
 * - On a software NIC (rxe) the processor copied it; the read pushes nothing, and a power cut may take what LANDED has
 *   promised. It is written back in the next look at what landed (asleep: verbs_slots.c, 8). Its use is tests.
 * - On PM that syncs behind (PM_ASYNC) somebody must say that there is something to sync. */
void verbs_zone_landed(struct verbs_zone *zone, uint64_t offset, uint32_t bytes);

/* The zone wants to be polled at `at_ns`, though nothing happens. */
static inline void verbs_zone_wake_at(struct verbs_zone *zone, uint64_t at_ns)
{
    if (at_ns < zone->wake_ns)
        zone->wake_ns = at_ns;
}

#endif
