/* soft_verbs_impl.h - what the files of soft_verbs share:
 *
 *   soft_verbs.c   configuration, faults that are called for, statistics
 *   soft_device.c  devices, contexts, ports, GIDs, protection domains, address handles
 *   soft_memory.c  regions and device memory; checks of each access
 *   soft_cq.c      completion queues, channels, asynchronous events
 *   soft_qp.c      queue pairs and shared receive queues: life and states
 *   soft_post.c    work requests
 *   soft_wire.c    the order in which packets move; datagrams
 *   soft_rc.c      packets of reliable connections
 *
 * One mutex guards everything; functions whose names begin with soft_ want it held.
 */
#ifndef TEST_SOFT_VERBS_IMPL_H
#define TEST_SOFT_VERBS_IMPL_H

#include <errno.h>
#include <pthread.h>
#include <stddef.h>

#include "common/base/random.h"
#include "test/lib/soft_verbs.h"

#define SOFT_CONTAINER(pointer, type, member)                                                      \
    ((type *)(void *)((uint8_t *)(pointer)-offsetof(type, member)))

enum {
    SOFT_MAX_MRS = 1 << 14,
    SOFT_MAX_QPS = 1 << 16,
    SOFT_MAX_CONTEXTS = 64,
    SOFT_MAX_EVENTS = 1024,
    SOFT_MAX_PACKETS = 2048, /* datagrams on the way */
    SOFT_MAX_MTU = 4096,
    SOFT_GRH_BYTES = 40,
    SOFT_MAX_QP_WR = 1 << 15,
    SOFT_MAX_CQE = 1 << 22,
    SOFT_MAX_READS = 16,
    SOFT_MAX_MESSAGE = 1 << 30,
};

struct soft_device {
    struct ibv_device base;
    uint8_t room[512]; /* libmlx5 looks behind `base` whether the device is one of its own */
    struct soft_device_config config;
    unsigned index;
    union ibv_gid gids[SOFT_MAX_GIDS];
    uint64_t locked_bytes;
};

struct soft_context {
    struct verbs_context verbs;
    struct soft_device *device;
    uint32_t children;
    uint32_t event_count;
    struct ibv_async_event events[SOFT_MAX_EVENTS];
    struct soft_cq *cqs;
};

struct soft_pd {
    struct ibv_pd base;
    uint32_t children;
};

struct soft_ah {
    struct ibv_ah base;
    struct ibv_ah_attr attr;
};

struct soft_dm {
    struct ibv_dm base;
    uint32_t children;
    size_t bytes;
    uint8_t *data;
};

struct soft_mr {
    struct ibv_mr base;
    uint8_t *host; /* where address `iova` is */
    uint64_t iova;
    uint64_t bytes;
    uint32_t lkey, rkey; /* whatever the program does to those in `base` */
    unsigned access;
    uint64_t locked_bytes;
    struct soft_dm *dm; /* NULL: host memory */
};

struct soft_channel {
    struct ibv_comp_channel base;
    uint32_t count, head, room; /* of a ring */
    struct soft_cq **events;
    uint32_t children;
};

struct soft_receives;
struct soft_qp;

struct soft_completion {
    struct ibv_wc wc;
    bool of_send;
    struct soft_qp *qp;             /* NULL: is gone */
    struct soft_receives *receives; /* a slot of it is free when this was polled */
    uint32_t sends;                 /* of qp, this many slots */
};

struct soft_cq {
    struct ibv_cq base;
    struct soft_cq *next; /* of the context */
    struct soft_channel *channel;
    uint32_t children;
    uint32_t head, count; /* of `ring`, whose room is base.cqe */
    struct soft_completion *ring;
    bool armed;
    bool broken;           /* cannot be polled */
    uint32_t events_given; /* by ibv_get_cq_event */
};

struct soft_receive {
    uint64_t wr_id;
    uint32_t sge_count;
};

/* Of a queue pair or shared. */
struct soft_receives {
    uint32_t max_wr, max_sge;
    uint32_t head, count; /* not taken by a message yet */
    uint32_t used;        /* posted and its completion not polled */
    uint32_t limit;       /* event SRQ_LIMIT_REACHED below it; 0: none */
    struct soft_receive *ring;
    struct ibv_sge *sges;
};

struct soft_srq {
    struct ibv_srq base;
    uint32_t children;
    struct soft_receives receives;
    uint32_t events_unacked;
};

struct soft_send {
    uint64_t wr_id;
    enum ibv_wr_opcode opcode;
    unsigned flags;
    uint32_t sge_count;
    uint32_t bytes;
    uint64_t remote;
    uint32_t rkey;
    uint32_t remote_qp, remote_key; /* of a datagram */
    struct ibv_ah_attr ah;
};

struct soft_qp {
    struct ibv_qp base;
    enum ibv_qp_state state;
    bool signals_all;
    struct ibv_qp_cap cap;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    /* Sends: [tail, done) are complete, but their slots are not free; [done, next) have been carried out and
     * are not acknowledged; [next, head) wait. Counters that only grow. */
    uint32_t tail, done, next, head;
    uint32_t silent; /* completed without a completion since the last one */
    struct soft_send *sends;
    struct ibv_sge *send_sges;
    uint8_t *inline_data;

    uint32_t moved; /* bytes of send `next` */
    uint32_t reads; /* in [done, next) */
    uint32_t psn_out, psn_in;
    uint32_t rnr_tries;
    uint64_t rnr_poll; /* of the last */
    bool is_established;
    uint64_t unanswered_ns; /* since when; 0: it answers */
    uint64_t pause_until;   /* poll count */
    bool was_last_wqe;

    struct soft_receives *receives; /* own or of the shared queue */
    struct soft_receives own;

    /* The message that is being received. */
    bool receiving;
    struct soft_receive rx;
    struct ibv_sge *rx_sges;
    uint32_t rx_room;
    uint32_t rx_bytes;

    uint32_t active_plus_1; /* in soft.active; 0: is not */
    uint32_t events_unacked;
};

struct soft_packet {
    uint32_t from, to, key;
    struct soft_device *source;
    struct ibv_ah_attr ah;
    uint64_t due; /* poll count */
    uint32_t bytes;
    uint8_t data[SOFT_MAX_MTU];
};

struct soft {
    pthread_mutex_t lock;
    pthread_cond_t acknowledged;
    pthread_cond_t released; /* see soft_verbs_hold_ahs */
    bool holds_ahs;
    uint32_t held_ahs;
    bool is_configured;
    struct random random;
    struct soft_config config;
    struct soft_faults faults;
    uint32_t fail_in; /* calls; 0: never */
    int fail_error;
    uint32_t calls;
    uint64_t polls;

    uint32_t device_count;
    struct soft_device devices[SOFT_MAX_DEVICES];
    struct soft_context *contexts[SOFT_MAX_CONTEXTS];
    uint8_t mr_tags[SOFT_MAX_MRS];
    struct soft_mr *mrs[SOFT_MAX_MRS];
    uint32_t qp_next; /* where the next free number is looked for */
    uint8_t qp_tags[SOFT_MAX_QPS];
    struct soft_qp *qps[SOFT_MAX_QPS];

    uint32_t active_count;
    struct soft_qp *active[SOFT_MAX_QPS]; /* with sends that wait or are unacknowledged */
    uint32_t packet_count;
    struct soft_packet *packets[SOFT_MAX_PACKETS];
    uint32_t spare_count;
    struct soft_packet *spare[SOFT_MAX_PACKETS];

    struct soft_stats stats;
};

extern struct soft soft;

/* --- soft_verbs.c --- */
void soft_lock(void); /* configures by default if nobody has */
void soft_unlock(void);

/* A mistake of the program: says it and aborts. */
_Noreturn void soft_mistake(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* True: this call must fail with errno, which it sets. */
bool soft_call_fails(void);
bool soft_chance(uint32_t of_1000);

/* --- soft_device.c --- */
struct soft_context *soft_context_of(struct ibv_context *context);
void soft_devices_init(void);
uint32_t soft_mtu_bytes(enum ibv_mtu mtu);

/* Whether packets by this address come to `to`; both ports must be up. */
bool soft_reaches(const struct soft_device *from, const struct ibv_ah_attr *ah,
                  const struct soft_device *to);

/* 0 or an errno. */
int soft_check_ah(const struct soft_device *device, const struct ibv_ah_attr *attr);

/* --- soft_memory.c --- */

/* Where the bytes are, or NULL: the key or the range is wrong, or the access is not allowed. */
uint8_t *soft_local(const struct ibv_pd *pd, uint32_t lkey, uint64_t address, uint64_t bytes,
                    unsigned access);
uint8_t *soft_remote(const struct ibv_pd *pd, uint32_t rkey, uint64_t address, uint64_t bytes,
                     unsigned access);

/* Checks a list as a local access; a mistake if it is wrong. The bytes in all. */
uint64_t soft_check_sges(const struct ibv_pd *pd, const struct ibv_sge *sges, uint32_t count,
                         unsigned access, const char *what);

/* Bytes [at, at + bytes) of what a list names. */
void soft_gather(const struct ibv_pd *pd, const struct ibv_sge *sges, uint32_t count, uint32_t at,
                 uint8_t *to, uint32_t bytes);
void soft_scatter(const struct ibv_pd *pd, const struct ibv_sge *sges, uint32_t count, uint32_t at,
                  const uint8_t *from, uint32_t bytes);

struct ibv_dm *soft_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int soft_free_dm(struct ibv_dm *dm);
struct ibv_mr *soft_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
                              unsigned access);

/* --- soft_cq.c --- */
struct soft_cq *soft_cq_of(struct ibv_cq *cq);
void soft_cq_add(struct ibv_cq *cq, const struct soft_completion *completion);
void soft_cq_forget(struct soft_context *context, const struct soft_qp *qp,
                    const struct soft_receives *receives);
int soft_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int soft_req_notify_cq(struct ibv_cq *cq, int solicited_only);
void soft_event(struct soft_context *context, enum ibv_event_type type, void *element);
void soft_events_forget(struct soft_context *context, const void *element);

/* Waits as the library does until every event that was given is acknowledged; not for ever. */
void soft_wait_acknowledged(const uint32_t *unacknowledged, const char *what);

/* --- soft_qp.c --- */
struct soft_qp *soft_qp_of(struct ibv_qp *qp);
struct soft_srq *soft_srq_of(struct ibv_srq *srq);
struct soft_qp *soft_qp_find(uint32_t number);
struct soft_device *soft_qp_device(const struct soft_qp *qp);

/* To the error state: the oldest send that is not complete ends with `status`, the others, and receives,
 * are flushed. */
void soft_qp_fail(struct soft_qp *qp, enum ibv_wc_status status);
void soft_qp_break(struct soft_qp *qp);

/* --- soft_post.c --- */
int soft_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int soft_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int soft_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* Takes the oldest receive for a message; false: there is none. */
bool soft_take_receive(struct soft_qp *qp);

/* The completion of what was taken. */
void soft_receive_done(struct soft_qp *qp, const struct ibv_wc *wc);

/* Of send `done`, which is counted on; no completion if nobody asked for one and it went well. */
void soft_send_done(struct soft_qp *qp, enum ibv_wc_status status);

struct ibv_sge *soft_send_sges(const struct soft_qp *qp, uint32_t number);
uint8_t *soft_inline_data(const struct soft_qp *qp, uint32_t number);

/* Bytes [at, at + bytes) of a send. */
void soft_send_bytes(const struct soft_qp *qp, uint32_t number, uint32_t at, uint8_t *to,
                     uint32_t bytes);

/* --- soft_wire.c --- */
void soft_activate(struct soft_qp *qp);
void soft_deactivate(struct soft_qp *qp);
void soft_move(bool all);
void soft_packets_clear(void);
uint64_t soft_now_ns(void);

/* --- soft_rc.c --- */

/* One packet or acknowledgement; false: nothing could move. */
bool soft_rc_step(struct soft_qp *qp, bool all);

#endif
