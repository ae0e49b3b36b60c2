/* lane.h - one connection of the load: a session, `depth` slots, and the operations in them. A lane is
 * one thread's; nothing of it is shared while it runs. */
#ifndef YCSB_LANE_H
#define YCSB_LANE_H

#include "client/rowan.h"
#include "common/base/random.h"
#include "tools/rowan-ycsb/acked.h"
#include "tools/rowan-ycsb/runner.h"

struct ycsb_lane;

struct ycsb_slot {
    struct ycsb_lane *lane;
    enum run_kind kind;
    bool prepared; /* and not posted yet */
    int status;
    uint32_t value_bytes;
    uint64_t record, seed, version, start_ns;
    uint8_t *value;
    struct ycsb_slot *next; /* idle or done */
};

struct ycsb_lane {
    const struct run_options *options;
    struct rowan *rowan;
    struct random random;
    struct ycsb_slot *slots;
    uint8_t *values;
    struct ycsb_slot *idle;
    struct ycsb_slot *done;     /* completed by the last poll */
    uint32_t busy;              /* slots that are not idle */
    uint32_t settled;           /* counted since lane_settle last said how many */
    int error;                  /* of writing the acked file */
    uint64_t next_record, left; /* load: the next one; how many operations may still begin */
    uint64_t salt, writes;      /* value seeds */
    uint64_t put_below;         /* of 2^32 */
    double interval_ns;         /* paced: between two operations; 0: a closed loop */
    double next_ns;             /* paced: when the next one is meant to start */
    struct acked_record *acked;
    uint32_t acked_count;
    uint64_t acked_ns; /* when the buffer was written */
    struct run_result result;
};

/* Lane `index` of options->connections, without session. Errors: ROWAN_ENOMEM (lane_fini is fine). */
int lane_init(struct ycsb_lane *lane, const struct run_options *options, uint32_t index);
void lane_fini(struct ycsb_lane *lane);

/* Errors: those of rowan_open. lane_fini closes it. */
int lane_open(struct ycsb_lane *lane);

/* The run begins: paced operations are dated from here. */
void lane_start(struct ycsb_lane *lane, uint32_t index, uint64_t now_ns);

/* Posts into idle slots what is due. */
void lane_fill(struct ycsb_lane *lane, uint64_t now_ns);

/* Counts what completed, and keeps acknowledged writes. Returns how many, or the error of writing the
 * acked file. */
int lane_settle(struct ycsb_lane *lane, uint64_t now_ns);

/* Nothing is outstanding and nothing may begin. */
bool lane_is_done(const struct ycsb_lane *lane);

/* When a slot is idle: when the next operation is meant to start; else WAKE_NEVER. */
uint64_t lane_next_ns(const struct ycsb_lane *lane);

/* Writes out what is kept of acknowledged writes. */
int lane_flush_acked(struct ycsb_lane *lane, uint64_t now_ns);

#endif
