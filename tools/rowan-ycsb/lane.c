/* The life of operations: drawn, posted into a slot, completed, counted.
 *
 * A closed loop posts into a slot as soon as it is idle, and its latencies count from the clock read
 * before the post. The callback of a completion posts, so that the same poll sends the next operation.
 * Paced, operation n of a lane is meant to start n intervals after the lane's start. Its latency counts
 * from then, however late a slot was idle for it, so it includes the time for which a server stalled.
 *
 * An acknowledged write is counted only after its record was added to the buffer. The buffer is written
 * to the file every ACKED_FLUSH_NS or ACKED_RECORDS records.
 */
#include "tools/rowan-ycsb/lane.h"

#include <stdlib.h>

#include "common/base/clock.h"

enum { ACKED_RECORDS = 4096, OPEN_TIMEOUT_MS = 10000 };

#define ACKED_FLUSH_NS (5 * NS_PER_MS)

static void settle(struct ycsb_lane *lane, uint64_t now_ns);

/* --- one operation --- */

static void push(struct ycsb_slot **list, struct ycsb_slot *slot)
{
    slot->next = *list;
    *list = slot;
}

static void on_completion(const struct rowan_completion *completion)
{
    struct ycsb_slot *slot = completion->context;
    struct ycsb_lane *lane = slot->lane;

    slot->status = completion->status;
    slot->version = completion->version;
    push(&lane->done, slot);
    if (lane->interval_ns > 0)
        return;
    uint64_t now_ns = clock_now_ns(clock_system());

    settle(lane, now_ns);
    lane_fill(lane, now_ns);
}

static uint64_t choose_record(struct ycsb_lane *lane)
{
    const struct run_options *options = lane->options;

    if (options->load)
        return lane->next_record++;
    if (!options->zipf)
        return zipf_scale(random_u64(&lane->random), options->records);
    return zipf_scramble(zipf_rank(options->zipf, random_unit(&lane->random)), options->records);
}

static void prepare(struct ycsb_lane *lane, struct ycsb_slot *slot)
{
    bool put = lane->options->load || (uint32_t)random_u64(&lane->random) < lane->put_below;

    slot->kind = put ? RUN_PUT : RUN_GET;
    slot->record = choose_record(lane);
    slot->prepared = true;
    if (!put)
        return;
    slot->seed = workload_mix(lane->salt, lane->writes++);
    slot->value_bytes = workload_value_bytes(lane->options->profile, slot->record, slot->seed);
    workload_value(slot->record, slot->seed, slot->value, slot->value_bytes);
}

static int post(struct ycsb_lane *lane, struct ycsb_slot *slot)
{
    const struct profile *profile = lane->options->profile;
    char key[WORKLOAD_MAX_KEY_BYTES];
    uint32_t key_bytes = workload_key(profile, slot->record, key);

    if (slot->kind == RUN_PUT)
        return rowan_post_put(lane->rowan, key, key_bytes, slot->value, slot->value_bytes,
                              on_completion, slot);
    return rowan_post_get(lane->rowan, key, key_bytes, slot->value, profile->max_value_bytes,
                          on_completion, slot);
}

uint64_t lane_next_ns(const struct ycsb_lane *lane)
{
    if (!lane->idle || lane->left == 0)
        return UINT64_MAX;
    return (uint64_t)lane->next_ns;
}

void lane_fill(struct ycsb_lane *lane, uint64_t now_ns)
{
    while (lane_next_ns(lane) <= now_ns) {
        struct ycsb_slot *slot = lane->idle;

        if (!slot->prepared)
            prepare(lane, slot);
        int error = post(lane, slot);

        if (error == ROWAN_EAGAIN)
            return;
        slot->prepared = false;
        slot->start_ns = now_ns;
        if (lane->interval_ns > 0) {
            slot->start_ns = (uint64_t)lane->next_ns;
            lane->next_ns += lane->interval_ns;
        }
        lane->idle = slot->next;
        lane->busy++;
        lane->left--;
        if (error) {
            slot->status = error;
            push(&lane->done, slot);
        }
    }
}

bool lane_is_done(const struct ycsb_lane *lane)
{
    return lane->left == 0 && lane->busy == 0;
}

/* --- acknowledged writes --- */

int lane_flush_acked(struct ycsb_lane *lane, uint64_t now_ns)
{
    int error = 0;

    if (lane->acked_count > 0)
        error = acked_append(lane->options->acked_fd, lane->acked, lane->acked_count);
    lane->acked_count = 0;
    lane->acked_ns = now_ns;
    return error;
}

static int keep_acked(struct ycsb_lane *lane, const struct ycsb_slot *slot, uint64_t now_ns)
{
    if (!lane->acked || slot->kind != RUN_PUT || slot->status)
        return 0;
    lane->acked[lane->acked_count++] =
        (struct acked_record){.record = slot->record, .version = slot->version, .seed = slot->seed};
    return lane->acked_count == ACKED_RECORDS ? lane_flush_acked(lane, now_ns) : 0;
}

/* --- figures --- */

static void count(struct ycsb_lane *lane, const struct ycsb_slot *slot, uint64_t now_ns)
{
    struct run_result *result = &lane->result;

    if (slot->status && !(slot->status == ROWAN_ENOTFOUND && slot->kind == RUN_GET)) {
        result->errors++;
        result->errors_by[-slot->status % RUN_ERRORS]++;
        return;
    }
    result->operations++;
    result->not_found += slot->status == ROWAN_ENOTFOUND;
    histogram_add(&result->latencies[slot->kind], now_ns - slot->start_ns);
}

static void settle(struct ycsb_lane *lane, uint64_t now_ns)
{
    while (lane->done) {
        struct ycsb_slot *slot = lane->done;
        int error = keep_acked(lane, slot, now_ns);
        if (error)
            lane->error = error;
        count(lane, slot, now_ns);
        lane->done = slot->next;
        push(&lane->idle, slot);
        lane->busy--;
        lane->settled++;
    }
}

int lane_settle(struct ycsb_lane *lane, uint64_t now_ns)
{
    settle(lane, now_ns);
    uint32_t settled = lane->settled;

    lane->settled = 0;
    if (lane->acked && !lane->error && now_ns - lane->acked_ns >= ACKED_FLUSH_NS)
        lane->error = lane_flush_acked(lane, now_ns);
    return lane->error ? lane->error : (int)settled;
}

/* --- from start to end --- */

static uint64_t part(uint64_t whole, uint32_t index, uint32_t parts)
{
    return (uint64_t)((unsigned __int128)whole * index / parts);
}

int lane_init(struct ycsb_lane *lane, const struct run_options *options, uint32_t index)
{
    uint64_t work = options->load ? options->records : options->operations;
    uint32_t value_bytes = (options->profile->max_value_bytes + 63) & ~UINT32_C(63);

    if (options->load && options->operations && options->operations < work)
        work = options->operations;
    lane->options = options;
    lane->next_record = part(work, index, options->connections);
    lane->left =
        work ? part(work, index + 1, options->connections) - lane->next_record : UINT64_MAX;
    lane->salt = workload_mix(options->seed, index + 1);
    lane->put_below = (uint64_t)(options->puts * 4294967296.0);
    if (options->rate > 0)
        lane->interval_ns = 1e9 * options->connections / options->rate;
    random_init(&lane->random, workload_mix(lane->salt, 0));
    lane->slots = calloc(options->depth, sizeof *lane->slots);
    lane->values = calloc(options->depth, value_bytes ? value_bytes : 1);
    if (options->acked_fd >= 0)
        lane->acked = calloc(ACKED_RECORDS, sizeof *lane->acked);
    if (!lane->slots || !lane->values || (options->acked_fd >= 0 && !lane->acked))
        return ROWAN_ENOMEM;
    for (uint32_t i = 0; i < options->depth; i++) {
        lane->slots[i] =
            (struct ycsb_slot){.lane = lane, .value = lane->values + (size_t)i * value_bytes};
        push(&lane->idle, &lane->slots[i]);
    }
    return 0;
}

void lane_fini(struct ycsb_lane *lane)
{
    rowan_close(lane->rowan);
    free(lane->acked);
    free(lane->values);
    free(lane->slots);
}

int lane_open(struct ycsb_lane *lane)
{
    struct rowan_options options;

    rowan_options_init(&options);
    options.cm = lane->options->cm;
    options.user = lane->options->user;
    options.secret_file = lane->options->secret_file;
    options.depth = lane->options->depth;
    options.timeout_ms = lane->options->timeout_ms;
    options.open_timeout_ms = OPEN_TIMEOUT_MS;
    options.spin_us = lane->options->spin_us;
    return rowan_open(&options, &lane->rowan);
}

void lane_start(struct ycsb_lane *lane, uint32_t index, uint64_t now_ns)
{
    /* The lanes' operations start at even intervals. */
    if (lane->interval_ns > 0)
        lane->next_ns =
            (double)now_ns + lane->interval_ns * index / (double)lane->options->connections;
    lane->acked_ns = now_ns;
}
