/* The life of operations: drawn, posted into a slot, completed, counted as of the warm-up or of the run.
 *
 * A closed loop posts into a slot as soon as it is idle, and its latencies count from the clock read
 * before the post. The callback of a completion posts, so that the same poll sends the next operation.
 * Paced, operation n of a lane is meant to start n intervals after the lane's start. Its latency counts
 * from then, however late a slot was idle for it, so it includes the time for which a server stalled. One for which no slot was
 * idle before the end counts with its latency so far: left out, a stall would hide all that was due in it.
 *
 * A read-modify-write whose read has ended waits in `halfway`; its write is posted before anything new.
 * Its latency counts from the operation's start, that of its write from the post of the write.
 *
 * An acknowledged write is counted only after its record was added to the buffer. The buffer is written
 * to the file every ACKED_FLUSH_NS or ACKED_RECORDS records.
 */
#include "tools/rowan-ycsb/lane.h"

#include <stdlib.h>

#include "common/base/clock.h"

enum { ACKED_RECORDS = 4096 };

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

static enum run_kind choose_kind(struct ycsb_lane *lane)
{
    enum run_kind kind = RUN_PUT;

    if (lane->options->load)
        return kind;
    uint32_t draw = (uint32_t)random_u64(&lane->random);

    while (draw >= lane->below[kind])
        kind++;
    return kind;
}

static uint64_t load_record(struct ycsb_lane *lane)
{
    const struct run_options *options = lane->options;
    uint64_t place = lane->next_place++;

    return options->hashed ? choose_permuted(place, options->choice.records) : place;
}

static void prepare_value(struct ycsb_lane *lane, struct ycsb_slot *slot)
{
    slot->request = RUN_PUT;
    slot->seed = workload_mix(lane->salt, lane->writes++);
    slot->value_bytes = workload_value_bytes(lane->options->profile, slot->record, slot->seed);
    workload_value(slot->record, slot->seed, slot->value, slot->value_bytes);
}

static void prepare(struct ycsb_lane *lane, struct ycsb_slot *slot, uint64_t now_ns)
{
    slot->kind = choose_kind(lane);
    slot->request = RUN_GET;
    slot->prepared = true;
    if (slot->kind == RUN_INSERT) {
        slot->owed = slot->owed || inserts_take(lane->options->choice.inserts, &slot->insert);
        slot->record = slot->insert;
        slot->kind = slot->owed ? RUN_INSERT : RUN_GET;
    }
    if (slot->kind != RUN_INSERT)
        slot->record = lane->options->load
                           ? load_record(lane)
                           : chooser_next(&lane->chooser, &lane->random, now_ns - lane->begin_ns);
    if (slot->kind == RUN_PUT || slot->kind == RUN_INSERT)
        prepare_value(lane, slot);
}

static int post(struct ycsb_lane *lane, struct ycsb_slot *slot)
{
    const struct profile *profile = lane->options->profile;
    char key[WORKLOAD_MAX_KEY_BYTES];
    uint32_t key_bytes = workload_key(profile, slot->record, key);
    int error;

    if (slot->request == RUN_PUT)
        error = rowan_post_put(lane->rowan, key, key_bytes, slot->value, slot->value_bytes,
                               on_completion, slot);
    else
        error = rowan_post_get(lane->rowan, key, key_bytes, slot->value, profile->max_value_bytes,
                               on_completion, slot);
    if (error == ROWAN_EAGAIN)
        return error;
    lane->result->counts.sent[slot->request] += error == 0;
    slot->status = error;
    if (error)
        push(&lane->done, slot);
    return 0;
}

uint64_t lane_next_ns(const struct ycsb_lane *lane)
{
    if (lane->halfway)
        return 0;
    if (!lane->idle || lane->left == 0)
        return UINT64_MAX;
    return (uint64_t)lane->next_ns;
}

/* Dates the operation and counts it as begun. */
static void begin(struct ycsb_lane *lane, struct ycsb_slot *slot, uint64_t now_ns)
{
    slot->prepared = false;
    slot->start_ns = now_ns;
    if (lane->interval_ns > 0) {
        slot->start_ns = (uint64_t)lane->next_ns;
        lane->next_ns += lane->interval_ns;
    }
    slot->request_ns = slot->start_ns;
    lane->busy++;
    lane->left -= slot->start_ns >= lane->count_ns;
}

void lane_fill(struct ycsb_lane *lane, uint64_t now_ns)
{
    while (lane->halfway) {
        struct ycsb_slot *slot = lane->halfway, *next = slot->next;

        if (post(lane, slot) != 0)
            return;
        slot->request_ns = now_ns;
        lane->halfway = next;
    }
    while (lane_next_ns(lane) <= now_ns) {
        struct ycsb_slot *slot = lane->idle, *next = slot->next;

        if (!slot->prepared)
            prepare(lane, slot, now_ns);
        if (post(lane, slot) != 0)
            return;
        lane->idle = next;
        begin(lane, slot, now_ns);
    }
}

void lane_stop(struct ycsb_lane *lane, uint64_t stop_ns, uint64_t now_ns)
{
    while (lane->left > 0 && lane->interval_ns > 0 && lane->next_ns < (double)stop_ns) {
        const uint64_t due_ns = (uint64_t)lane->next_ns;

        lane->next_ns += lane->interval_ns;
        if (due_ns < lane->count_ns)
            continue;
        lane->left--;
        lane->result->counts.not_begun++;
        const enum run_kind kind = choose_kind(lane);
        histogram_add(&lane->result->latencies[kind], now_ns - due_ns);
        if (kind == RUN_RMW) /* its read was due, too; its write was not yet */
            histogram_add(&lane->result->latencies[RUN_GET], now_ns - due_ns);
    }
    lane->left = 0;
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
    if (!lane->acked || slot->request != RUN_PUT || slot->status)
        return 0;
    lane->acked[lane->acked_count++] =
        (struct acked_record){.record = slot->record, .version = slot->version, .seed = slot->seed};
    return lane->acked_count == ACKED_RECORDS ? lane_flush_acked(lane, now_ns) : 0;
}

/* --- figures --- */

/* The request of `slot` has ended, well if `ok`. */
static void count_request(struct ycsb_lane *lane, const struct ycsb_slot *slot, bool ok,
                          uint64_t now_ns)
{
    enum run_kind kind = slot->kind == RUN_RMW ? slot->request : slot->kind;

    lane->settled++;
    if (!ok)
        return;
    lane->result->counts.answered[slot->request]++;
    if (slot->start_ns < lane->count_ns) {
        lane->result->counts.warm_up[kind]++;
        return;
    }
    lane->result->counts.not_found += slot->status == ROWAN_ENOTFOUND;
    histogram_add(&lane->result->latencies[kind], now_ns - slot->request_ns);
}

/* The operation has ended with this request. */
static void count(struct ycsb_lane *lane, const struct ycsb_slot *slot, bool ok, uint64_t now_ns)
{
    struct run_counts *counts = &lane->result->counts;

    if (!ok) {
        counts->errors++;
        counts->errors_by[-slot->status % RUN_ERRORS]++;
    } else if (slot->start_ns < lane->count_ns) {
        counts->warm_up_operations++;
        counts->warm_up[RUN_RMW] += slot->kind == RUN_RMW;
    } else {
        counts->operations++;
        if (slot->kind == RUN_RMW)
            histogram_add(&lane->result->latencies[RUN_RMW], now_ns - slot->start_ns);
    }
}

static void settle_slot(struct ycsb_lane *lane, struct ycsb_slot *slot, uint64_t now_ns)
{
    bool ok = slot->status == 0 || (slot->status == ROWAN_ENOTFOUND && slot->request == RUN_GET);

    count_request(lane, slot, ok, now_ns);
    if (ok && slot->kind == RUN_RMW && slot->request == RUN_GET) {
        prepare_value(lane, slot);
        push(&lane->halfway, slot);
        return;
    }
    if (ok && slot->kind == RUN_INSERT) {
        slot->owed = false;
        inserts_acknowledge(lane->options->choice.inserts, slot->record);
    }
    count(lane, slot, ok, now_ns);
    push(&lane->idle, slot);
    lane->busy--;
}

static void settle(struct ycsb_lane *lane, uint64_t now_ns)
{
    while (lane->done) {
        struct ycsb_slot *slot = lane->done;
        int error = keep_acked(lane, slot, now_ns);

        if (error)
            lane->error = error;
        lane->done = slot->next;
        settle_slot(lane, slot, now_ns);
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

/* What the lane may do: of a load its part of this process's share of the places. */
static void set_work(struct ycsb_lane *lane, const struct run_options *options, uint32_t index)
{
    uint64_t work = options->operations, first = 0;

    if (options->load) {
        first = part(options->choice.records, options->share, options->shares);
        work = part(options->choice.records, options->share + 1, options->shares) - first;
        if (options->operations && options->operations < work)
            work = options->operations;
    }
    lane->next_place = first + part(work, index, options->connections);
    lane->left = options->load || work
                     ? first + part(work, index + 1, options->connections) - lane->next_place
                     : UINT64_MAX;
}

int lane_init(struct ycsb_lane *lane, const struct run_options *options, uint32_t index)
{
    uint32_t value_bytes = (options->profile->max_value_bytes + 63) & ~UINT32_C(63);

    lane->options = options;
    set_work(lane, options, index);
    double sum = 0;
    for (int kind = 0; kind < RUN_KINDS; kind++) {
        sum += options->mix[kind];
        lane->below[kind] = (uint64_t)(sum * 4294967296.0 + 0.5);
    }
    lane->salt = workload_mix(options->choice.seed,
                              (uint64_t)options->share * RUN_MAX_CONNECTIONS + index + 1);
    if (options->rate > 0)
        lane->interval_ns = 1e9 * options->connections / options->rate;
    random_init(&lane->random, workload_mix(lane->salt, 0));
    chooser_init(&lane->chooser, &options->choice);
    lane->slots = calloc(options->session.depth, sizeof *lane->slots);
    lane->values = calloc(options->session.depth, value_bytes ? value_bytes : 1);
    if (options->acked_fd >= 0)
        lane->acked = calloc(ACKED_RECORDS, sizeof *lane->acked);
    if (!lane->slots || !lane->values || (options->acked_fd >= 0 && !lane->acked))
        return ROWAN_ENOMEM;
    for (uint32_t i = 0; i < options->session.depth; i++) {
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

void lane_start(struct ycsb_lane *lane, uint32_t index, uint64_t now_ns)
{
    /* The lanes' operations start at even intervals. */
    if (lane->interval_ns > 0)
        lane->next_ns =
            (double)now_ns + lane->interval_ns * index / (double)lane->options->connections;
    lane->acked_ns = now_ns;
    lane->begin_ns = now_ns;
    lane->count_ns = now_ns + lane->options->warm_up_ns;
}
