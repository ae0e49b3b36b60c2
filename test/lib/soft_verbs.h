/* soft_verbs.h - RDMA devices made of software, inside the test program: what stands in for libibverbs.
 *
 * A program that links it has its ibv_* functions instead of the library's. All contexts of a process
 * share one network, so several "processes" of a test talk to each other as hosts would. Semantics are
 * those of the InfiniBand specification (1.4, chapters 9 to 11) and of what providers make of it, on the
 * strict side: queues hold exactly what was asked for; a slot of a queue is free when its completion was
 * polled; memory is read and written when a packet moves, not when it is posted; local keys and remote
 * keys differ; completions with an error have nonsense in the fields that may not be looked at. What is
 * a mistake of the program (unregistered memory, posting to a queue pair in a wrong state, a full
 * completion queue, closing what still has children) prints a sentence and aborts.
 *
 * There are no threads: packets move inside ibv_poll_cq of any queue, one path MTU at a time, among all
 * queue pairs in an order that the seed decides. ibv_req_notify_cq moves all that can move, since its
 * caller may be about to sleep. All functions may be called by several threads.
 *
 * Not there: UC, XRC, raw packets, atomics, SQD, multicast, memory windows, ibv_create_cq_ex, ibv_wr_*. A shared
 * receive queue belongs to the device's type 1 of verbs.md: one receive buffer a message.
 */
#ifndef TEST_SOFT_VERBS_H
#define TEST_SOFT_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

enum { SOFT_MAX_DEVICES = 4, SOFT_MAX_GIDS = 8 };

struct soft_gid {
    const char *address; /* IPv4 or IPv6; NULL: the entry is empty */
    enum ibv_gid_type type;
};

struct soft_device_config {
    const char *name;   /* NULL: end of the table */
    bool is_down;       /* its port */
    bool is_infiniband; /* link layer; else RoCE, where a global route is mandatory */
    bool lacks_srq;
    bool has_odp;
    uint32_t lacks_rc_odp; /* of what reliable connections can do with it: IBV_ODP_SUPPORT_... */
    uint32_t dm_bytes;     /* device memory */
    uint32_t mtu_bytes;    /* active; 0: 1024 */
    uint32_t max_sge;      /* 0: 16 */
    uint32_t max_inline;   /* 0: 220 */
    uint64_t locked_bytes; /* that may be registered; 0: no limit */
    struct soft_gid gids[SOFT_MAX_GIDS];
};

/* What goes wrong; all 0: nothing. Probabilities are of 1000. */
struct soft_faults {
    /* datagrams */
    uint32_t drop, duplicate, reorder;
    uint32_t delay_polls; /* each waits for a random number of polls below this */

    /* reliable connections: an unacknowledged request waits for up to that many polls, too */
    uint32_t rc_delay_polls;

    uint32_t receive_pause; /* at each packet, its receiver stands still for some polls */
};

struct soft_config {
    uint64_t seed;
    uint32_t packets_per_poll; /* at most; 0: 64 */
    uint32_t
        retry_limit_ns; /* a peer that does not answer is given up after the time that the queue
                                  pair says, at most this; 0: 20 ms */
    bool
        purges_completions; /* ibv_destroy_qp takes its completions out of the queues, as mlx5 does; else
                                  they stay, as with rxe */
    struct soft_device_config devices[SOFT_MAX_DEVICES]; /* none: the default ones */
};

/* soft_verbs_configure: everything anew; no context may be open. Without it, or with NULL, there are:
 *   soft0  its port is down
 *   soft1  RoCE 10.1.1.1: GIDs 0 RoCEv1 link-local, 1 RoCEv2 link-local, 2 RoCEv1 IPv4, 3 RoCEv2 IPv4; MTU 1024;
 *          no device memory, no on-demand paging
 *   soft2  RoCE 10.1.2.1, likewise; MTU 4096, device memory, on-demand paging, no shared receive queues
 */
void soft_verbs_configure(const struct soft_config *config);

/* From now on. NULL: none. */
void soft_verbs_faults(const struct soft_faults *faults);

/* The `nth` (1, 2, ...) call from now on that makes or changes something fails with `error` (an errno); 0:
 * none fails. soft_verbs_calls: how many there were since. */
void soft_verbs_fail_call(uint32_t nth, int error);
uint32_t soft_verbs_calls(void);

/* Puts a queue pair into the error state as a link or NIC error would, with an event QP_FATAL on its
 * context. False: there is none of that number. */
bool soft_verbs_break_qp(uint32_t qp_number);

/* Likewise a random one of type IBV_QPT_RC or IBV_QPT_UD that is connected; 0: there is none. */
uint32_t soft_verbs_break_any_qp(enum ibv_qp_type type);

/* An asynchronous event on each context of the device: IBV_EVENT_DEVICE_FATAL (all its queue pairs fail),
 * PORT_ERR (its port is down: packets from and to it are lost), PORT_ACTIVE, GID_CHANGE, ... */
void soft_verbs_device_event(const char *device, enum ibv_event_type event);

/* From now on ibv_poll_cq fails for it. */
void soft_verbs_break_cq(struct ibv_cq *cq);

/* While on, ibv_create_ah waits, as the kernel does for a neighbour that does not answer; how many calls do. */
void soft_verbs_hold_ahs(bool on);
uint32_t soft_verbs_held_ahs(void);

/* How much may be registered on the device from now on; 0: no limit. */
void soft_verbs_lock_limit(const char *device, uint64_t bytes);

/* What there is and was. */
struct soft_stats {
    uint32_t contexts, pds, mrs, cqs, channels, qps, srqs, ahs, dms; /* live ones */

    uint64_t ud_packets;    /* delivered */
    uint64_t ud_lost;       /* by faults */
    uint64_t ud_unreceived; /* no receive was posted */
    uint64_t unlocked;      /* registrations that were refused for the limit */
};

void soft_verbs_stats(struct soft_stats *out);

/* All that was made is gone. */
bool soft_verbs_is_empty(void);

#endif
