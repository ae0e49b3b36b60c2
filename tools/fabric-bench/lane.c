/* lane.c - posts and completes. An operation's time begins when it is posted, so it includes the wait for
 * the flush at the end of its thread's turn. */
#include "tools/fabric-bench/lane.h"

#include "common/base/error.h"

uint64_t lane_grant_bytes(const struct bench_lane *lane)
{
    return lane->bytes > LANE_GRANT_BYTES ? lane->bytes
                                          : (uint64_t)LANE_GRANT_BYTES / lane->bytes * lane->bytes;
}

static const uint8_t *next_source(struct bench_lane *lane)
{
    const uint8_t *source;

    if (lane->source_at + lane->bytes > lane->source_bytes)
        lane->source_at = 0;
    source = lane->source + lane->source_at;
    lane->source_at += (lane->bytes + FABRIC_STRIDE - 1) / FABRIC_STRIDE * FABRIC_STRIDE;
    return source;
}

static int post_batch(struct bench_lane *lane)
{
    while (lane->added < lane->batch) {
        int error = fabric_rowan_add(lane->conn, next_source(lane), lane->bytes);

        if (error)
            return error;
        lane->added++;
    }
    lane->added = 0;
    return fabric_rowan_post(lane->conn, lane->posted);
}

static int post_message(struct bench_lane *lane)
{
    const struct fabric_iov iov = {.data = next_source(lane), .bytes = lane->bytes};

    return fabric_send(lane->conn, &iov, 1);
}

static int post_write(struct bench_lane *lane)
{
    int error = fabric_write(lane->conn, &lane->grant, lane->grant_at, next_source(lane),
                             lane->bytes, lane->posted);

    if (error)
        return error;
    lane->grant_at += lane->bytes;
    if (lane->grant_at + lane->bytes > lane->grant_bytes)
        lane->grant_at = 0;
    return 0;
}

static int post(struct bench_lane *lane)
{
    switch (lane->mode) {
    case MODE_ROWAN:
        return post_batch(lane);
    case MODE_WRITE:
        return post_write(lane);
    default:
        return post_message(lane);
    }
}

int lane_fill(struct bench_lane *lane, uint64_t now_ns)
{
    lane->starved = false;
    while (lane->posted - lane->done < lane->depth) {
        int error = post(lane);

        if (error == ROWAN_EAGAIN) {
            lane->starved = true;
            lane->full++;
            return 0;
        }
        if (error)
            return error;
        lane->starts_ns[lane->next] = now_ns;
        lane->next = lane->next + 1 == lane->depth ? 0 : lane->next + 1;
        lane->posted++;
    }
    return 0;
}

int lane_complete(struct bench_lane *lane, uint64_t number, uint64_t *start_ns)
{
    if (lane->done == lane->posted || number != lane->done)
        return ROWAN_EFORMAT;
    *start_ns = lane->starts_ns[lane->oldest];
    lane->oldest = lane->oldest + 1 == lane->depth ? 0 : lane->oldest + 1;
    lane->done++;
    return 0;
}
