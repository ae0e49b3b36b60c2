/* lane.h - one sender: a connection with up to `depth` operations outstanding. */
#ifndef FABRIC_BENCH_LANE_H
#define FABRIC_BENCH_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/fabric/fabric.h"

enum bench_mode { MODE_ROWAN, MODE_WRITE, MODE_MESSAGE, MODE_COUNT };

enum {
    LANE_MAX_DEPTH = 1024,
    LANE_MAX_BATCH = 4096,
    LANE_GRANT_BYTES =
        1 << 20, /* a sender writes round about in so much, or in one write's bytes */
};

struct bench_lane {
    struct fabric_conn *conn;
    enum bench_mode mode;
    bool asking;  /* for its grant; MODE_WRITE */
    bool starved; /* the fabric answered ROWAN_EAGAIN */
    uint32_t bytes, batch, depth;
    uint32_t added;        /* blocks of the batch that is being made */
    uint64_t posted, done; /* operations (of MODE_ROWAN: batches) */
    uint64_t full;         /* answers ROWAN_EAGAIN */
    const uint8_t *source; /* registered; what is sent does not change */
    uint64_t source_bytes, source_at;
    struct fabric_grant grant;
    uint64_t grant_bytes, grant_at;
    uint32_t oldest, next; /* places in starts_ns, a ring of `depth`; a division would cost more */
    uint64_t *starts_ns;   /* when the outstanding ones were posted */
};

/* How many bytes a lane asks a grant for. */
uint64_t lane_grant_bytes(const struct bench_lane *lane);

/* lane_fill: posts as many as `depth` allows, at `now_ns`. Errors: those of the fabric, except
 * ROWAN_EAGAIN, which makes the lane starved. */
int lane_fill(struct bench_lane *lane, uint64_t now_ns);

/* lane_complete: operation `number`, the oldest, is done; *start_ns: when it was posted. Errors:
 * ROWAN_EFORMAT: it is not the oldest. */
int lane_complete(struct bench_lane *lane, uint64_t number, uint64_t *start_ns);

#endif
