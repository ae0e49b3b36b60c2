/* verbs_rc.h - a connection's reliable queue pair, as verbs_rc.c and the ways to receive (verbs_zone.h) share it.
 */
#ifndef FABRIC_VERBS_RC_H
#define FABRIC_VERBS_RC_H

#include "common/fabric/verbs/verbs.h"

/* The number in a wr_id of VERBS_WORK_RC. */
enum verbs_rc_work {
    VERBS_RC_FENCE = 1,   /* active: the read behind blocks */
    VERBS_RC_UNSIGNALLED, /* active: what lies before it; completes only with an error */
};

enum { VERBS_RC_READS = 16 /* fences in flight, at most */ };

/* How long a sender goes on trying. IB specification 1.4, 9.7.6.1.3: without an answer it sends again after
 * a time T between t and 4 t, t = 4.096 us * 2^timeout, `retry_cnt` times: it gives up between 7 t and 28 t
 * after the last answer: with a timeout of 16 between 1.9 s and 7.5 s, with 12 between 0.12 s and 0.47 s. RNR (no
 * receive) is tried for ever (rnr_retry 7; F8). rxe takes 7 for "for ever" with lost answers, too: so 6.
 *
 * The receiver says in its hello which timeout it wants, for it waits that long before a segment is sealed: always
 * where nobody polls (verbs_mlx5.c), else only when a completion was lost (verbs_slots.c). Some devices take no T below
 * one of their own (ConnectX-2: 500 ms, says the RAMCloud wiki); a multi-packet queue bears that (verbs_mlx5.c Z3). */
enum {
    VERBS_RC_TIMEOUT = 16,
    VERBS_RC_SEGMENTS_TIMEOUT = 12, /* into a multi-packet queue */
    VERBS_RC_RETRIES = 6,
    VERBS_RC_RNR_FOR_EVER = 7
};
#define VERBS_RC_GIVES_UP_AFTER_NS(timeout)                                                        \
    ((VERBS_RC_RETRIES + 1) * UINT64_C(4) * (UINT64_C(4096) << (timeout)))
#define VERBS_RC_GIVES_UP_NS          VERBS_RC_GIVES_UP_AFTER_NS(VERBS_RC_TIMEOUT)
#define VERBS_RC_SEGMENTS_GIVES_UP_NS VERBS_RC_GIVES_UP_AFTER_NS(VERBS_RC_SEGMENTS_TIMEOUT)

/* What a receiver without a receive asks a sender to wait: code 4, 40 us (IB specification, table 45). */
enum { VERBS_RC_RNR_TIMER = 4 };

struct verbs_rc {
    struct ibv_qp *qp; /* NULL: the passive end is an object of `receive` */
    uint32_t qp_number;
    uint32_t psn;            /* of the first packet we send */
    uint32_t places;         /* taken from the completion queue; given back when it is closed */
    struct verbs_zone *zone; /* passive: attached to */
    uint32_t member;         /* passive: its place among the zone's members (verbs_slots.c) */
    void *receive;           /* passive: of the way to receive */
};

/* verbs_rc_make: the queue pair in INIT, in rc->qp, with rc->qp_number; takes its places in the completion
 * queue. `init` names the queues' sizes, the shared receive queue and where its receives complete (NULL: with
 * the endpoint's other queues). `access`: what the peer may do. Errors: as of verbs_rc_open. */
int verbs_rc_make(struct verbs_conn *conn, struct ibv_qp_init_attr *init, int access);

/* Says in the log that the device refused to make `what`, and why. ROWAN_ENOMEM or EUNSUPPORTED. */
int verbs_refused(const char *what, int system_errno);

/* The open connection whose RC queue pair has that number; NULL: none. Slow: looks at all. */
struct verbs_conn *verbs_rc_of_number(struct verbs_endpoint *endpoint, uint32_t qp_number);

/* Says in the log why a work request failed, and breaks the connection. */
void verbs_rc_break(struct verbs_conn *conn, const struct ibv_wc *wc);

/* How packets of the connection, of whatever queue pair, reach the peer. */
void verbs_rc_address(const struct verbs_conn *conn, struct ibv_ah_attr *out);

#endif
