/* lane.h - one connection of the load: a session, `depth` slots, and the operations in them. A lane is
 * one thread's; nothing of it is shared while it runs. */
#ifndef YCSB_LANE_H
#define YCSB_LANE_H

#include "common/base/random.h"
#include "tools/rowan-ycsb/acked.h"
#include "tools/rowan-ycsb/runner.h"

struct ycsb_lane;

struct ycsb_slot {
    struct ycsb_lane *lane;
    enum run_kind kind;
    enum run_kind request; /* RUN_PUT or RUN_GET: what is sent for it now */
    bool prepared;         /* and not posted yet */
    bool owed;             /* an insert of `insert` failed: it is this slot's next insert */
    int status;
    uint32_t value_bytes;
    uint64_t record, insert, seed, version;
    uint64_t start_ns, request_ns; /* of the operation; of the request */
    uint8_t *value;
    struct ycsb_slot *next; /* idle, halfway or done */
};

struct ycsb_lane {
    const struct run_options *options;
    struct run_result *result; /* of its thread */
    struct rowan *rowan;
    struct random random;
    struct chooser chooser;
    struct ycsb_slot *slots;
    uint8_t *values;
    struct ycsb_slot *idle;
    struct ycsb_slot *halfway; /* read-modify-writes that have read */
    struct ycsb_slot *done;    /* completed by the last poll */
    uint32_t busy;             /* slots that are not idle */
    uint32_t settled;          /* requests counted since lane_settle last said how many */
    int error;                 /* of writing the acked file */
    uint64_t next_place,
        left; /* load: the next place in the order; how many operations may still begin */
    uint64_t salt, writes;       /* value seeds */
    uint64_t below[RUN_KINDS];   /* of 2^32: a draw below it is of that kind or one before */
    double interval_ns;          /* paced: between two operations; 0: a closed loop */
    double next_ns;              /* paced: when the next one is meant to start */
    uint64_t begin_ns, count_ns; /* the run's start; that of what is counted */
    struct acked_record *acked;
    uint32_t acked_count;
    uint64_t acked_ns; /* when the buffer was written */
};

/* Lane `index` of options->connections, without `rowan`, which lane_fini closes, and `result`. Errors: ROWAN_ENOMEM
 * (lane_fini is fine). */
int lane_init(struct ycsb_lane *lane, const struct run_options *options, uint32_t index);
void lane_fini(struct ycsb_lane *lane);

/* The run begins: paced operations are dated from here. */
void lane_start(struct ycsb_lane *lane, uint32_t index, uint64_t now_ns);

/* Nothing begins any more. What was due before `stop_ns` and did not begin is counted. */
void lane_stop(struct ycsb_lane *lane, uint64_t stop_ns, uint64_t now_ns);

/* Posts into idle slots what is due. */
void lane_fill(struct ycsb_lane *lane, uint64_t now_ns);

/* Counts what completed, and keeps acknowledged writes. Returns how many, or the error of writing the
 * acked file. */
int lane_settle(struct ycsb_lane *lane, uint64_t now_ns);

/* Nothing is outstanding and nothing may begin. */
bool lane_is_done(const struct ycsb_lane *lane);

/* When a slot is idle: when the next operation is meant to start; 0: there is something to post now;
 * else UINT64_MAX. */
uint64_t lane_next_ns(const struct ycsb_lane *lane);

/* Writes out what is kept of acknowledged writes. */
int lane_flush_acked(struct ycsb_lane *lane, uint64_t now_ns);

#endif
