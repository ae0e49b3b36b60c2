/* crew.c - the sending threads of one run, each a reactor, and the thread that times them.
 *
 *   phase:  CONNECT -- all threads are ready --> WARM_UP --> MEASURE --> DRAIN -- nothing is outstanding --> end
 *
 * The timing thread moves the phase; each thread sees it at its next turn. What completes after a thread saw MEASURE
 * counts, to the last operation of DRAIN, and the run lasts as long. So the rate is right, whatever is outstanding at
 * both ends, and on a loaded machine each thread has figures, though it may not run while others measure.
 *
 * The clock is read once in a turn, behind the poll: for what the poll completed and for what is posted next. So an
 * operation's time includes the wait for the flush at the end of its thread's turn.
 */
#include "test/bench/fabric/crew.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"

enum { EVENTS = 64, CONNECTING = 32 /* at a time, of a thread */ };
enum phase { PHASE_CONNECT, PHASE_WARM_UP, PHASE_MEASURE, PHASE_DRAIN };

#define PATIENCE_NS (10 * NS_PER_S)
#define CHECK_NS    (50 * NS_PER_MS)
#define RETRY_NS    NS_PER_MS

/* One sender: a connection with up to `depth` operations outstanding. */
struct bench_lane {
    struct fabric_conn *conn;
    const struct crew_options *options;
    bool starved;          /* the fabric answered ROWAN_EAGAIN */
    uint32_t added;        /* blocks of the batch that is being made */
    uint64_t posted, done; /* operations (of MODE_ROWAN: batches) */
    const uint8_t *source; /* what is sent does not change */
    uint64_t source_at;
    uint32_t oldest, next; /* places in starts_ns, a ring of `depth`; a division would cost more */
    uint64_t *starts_ns;   /* when the outstanding ones were posted */
};

struct bench_crew {
    const struct crew_options *options;
    _Atomic int phase;
    _Atomic uint32_t ready; /* threads of which all connections are */
};

struct bench_worker {
    struct bench_crew *crew;
    uint32_t lane_count;
    struct bench_lane *lanes;
    struct fabric_endpoint *endpoint;
    struct reactor *reactor;
    enum phase seen;
    uint32_t opened, ready, starved;
    uint64_t progress_ns; /* when something completed or connected */
    uint64_t operations, full, cpu_ns;
    struct histogram latency_ns;
    struct fabric_event events[EVENTS];
};

static uint64_t now(void)
{
    return clock_now_ns(clock_system());
}

/* --- posting --- */

static const uint8_t *next_source(struct bench_lane *lane)
{
    const uint32_t bytes = lane->options->bytes;

    if (lane->source_at + bytes > lane->options->source_bytes)
        lane->source_at = 0;
    const uint8_t *source = lane->source + lane->source_at;

    lane->source_at += (bytes + FABRIC_STRIDE - 1) / FABRIC_STRIDE * FABRIC_STRIDE;
    return source;
}

static int post_batch(struct bench_lane *lane)
{
    while (lane->added < lane->options->batch) {
        int error = fabric_rowan_add(lane->conn, next_source(lane), lane->options->bytes);

        if (error)
            return error;
        lane->added++;
    }
    lane->added = 0;
    return fabric_rowan_post(lane->conn, lane->posted);
}

static int post_message(struct bench_lane *lane)
{
    const struct fabric_iov iov = {.data = next_source(lane), .bytes = lane->options->bytes};

    return fabric_send(lane->conn, &iov, 1);
}

static int post(struct bench_lane *lane)
{
    return lane->options->mode == MODE_ROWAN ? post_batch(lane) : post_message(lane);
}

/* As many as `depth` allows, or as the fabric takes. */
static void fill_lane(struct bench_worker *worker, struct bench_lane *lane, uint64_t now_ns)
{
    worker->starved -= lane->starved;
    lane->starved = false;
    while (lane->posted - lane->done < lane->options->depth) {
        int error = post(lane);

        if (error == ROWAN_EAGAIN) {
            lane->starved = true;
            worker->starved++;
            worker->full++;
            return;
        }
        bench_check(error, "sender");
        lane->starts_ns[lane->next] = now_ns;
        lane->next = lane->next + 1 == lane->options->depth ? 0 : lane->next + 1;
        lane->posted++;
    }
}

/* The lanes that are starved, or all. */
static void fill_lanes(struct bench_worker *worker, bool all, uint64_t now_ns)
{
    for (uint32_t i = 0; i < worker->lane_count; i++) {
        if (all || worker->lanes[i].starved)
            fill_lane(worker, &worker->lanes[i], now_ns);
    }
}

/* --- connecting --- */

static void open_lanes(struct bench_worker *worker)
{
    while (worker->opened < worker->lane_count && worker->opened - worker->ready < CONNECTING) {
        struct bench_lane *lane = &worker->lanes[worker->opened++];

        bench_check(fabric_connect(worker->endpoint, worker->crew->options->control->address, 0, 0,
                                   &lane->conn),
                    "sender");
        lane->conn->user = lane;
    }
}

static void lane_is_ready(struct bench_worker *worker)
{
    if (++worker->ready == worker->lane_count)
        atomic_fetch_add_explicit(&worker->crew->ready, 1, memory_order_release);
}

static void connected(struct bench_worker *worker, struct bench_lane *lane)
{
    if (lane->options->mode == MODE_ROWAN)
        bench_check(lane->conn->has_zone ? 0 : ROWAN_EUNSUPPORTED, "landing zone");
    lane_is_ready(worker);
}

/* --- the loop --- */

/* Operation `number`, which must be the oldest, is done. */
static void complete(struct bench_worker *worker, struct bench_lane *lane, uint64_t number,
                     uint64_t now_ns)
{
    bench_check(lane->done < lane->posted && number == lane->done ? 0 : ROWAN_EFORMAT, "sender");
    if (worker->seen >= PHASE_MEASURE)
        histogram_add(&worker->latency_ns, now_ns - lane->starts_ns[lane->oldest]);
    lane->oldest = lane->oldest + 1 == lane->options->depth ? 0 : lane->oldest + 1;
    lane->done++;
    worker->operations += lane->options->mode == MODE_ROWAN ? lane->options->batch : 1;
    if (worker->seen != PHASE_DRAIN)
        fill_lane(worker, lane, now_ns);
}

static void handle_message(struct bench_worker *worker, struct bench_lane *lane,
                           const struct fabric_event *event, uint64_t now_ns)
{
    bench_check(event->bytes == lane->options->bytes ? 0 : ROWAN_EFORMAT, "echo");
    fabric_message_release(event->conn, event->message);
    complete(worker, lane, lane->done, now_ns);
}

static void handle_event(struct bench_worker *worker, const struct fabric_event *event,
                         uint64_t now_ns)
{
    struct bench_lane *lane = event->conn->user;

    worker->progress_ns = now_ns;
    switch (event->kind) {
    case FABRIC_CONNECTED:
        connected(worker, lane);
        break;
    case FABRIC_CLOSED:
        bench_check(event->error ? event->error : ROWAN_ECLOSED, "sender");
        break;
    case FABRIC_MESSAGE:
        handle_message(worker, lane, event, now_ns);
        break;
    case FABRIC_LANDED:
        complete(worker, lane, event->context, now_ns);
        break;
    default:
        break;
    }
}

static void enter_phase(struct bench_worker *worker, uint64_t now_ns)
{
    const enum phase phase =
        (enum phase)atomic_load_explicit(&worker->crew->phase, memory_order_acquire);

    if (phase == worker->seen)
        return;
    worker->progress_ns = now_ns;
    if (worker->seen == PHASE_CONNECT)
        fill_lanes(worker, true, now_ns);
    if (worker->seen < PHASE_MEASURE && phase >= PHASE_MEASURE) {
        worker->cpu_ns = cpu_time_all_ns();
        worker->operations = 0;
        worker->full = 0;
    }
    worker->seen = phase;
}

static bool is_drained(const struct bench_worker *worker)
{
    for (uint32_t i = 0; i < worker->lane_count; i++) {
        if (worker->lanes[i].posted != worker->lanes[i].done)
            return false;
    }
    return true;
}

static enum poll_result worker_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct bench_worker *worker = role;
    const unsigned count = fabric_poll(worker->endpoint, now_ns, worker->events, EVENTS);

    if (count > 0)
        now_ns = now();
    enter_phase(worker, now_ns);
    if (worker->starved > 0 && worker->seen != PHASE_DRAIN)
        fill_lanes(worker, false, now_ns);
    for (unsigned i = 0; i < count; i++)
        handle_event(worker, &worker->events[i], now_ns);
    open_lanes(worker);
    fabric_flush(worker->endpoint);
    if (worker->seen == PHASE_DRAIN && is_drained(worker)) {
        worker->cpu_ns = cpu_time_all_ns() - worker->cpu_ns;
        reactor_stop(worker->reactor);
        return POLL_BUSY;
    }
    /* One that only waits for the others to connect is not late. */
    if (now_ns > worker->progress_ns + PATIENCE_NS &&
        !(worker->seen == PHASE_CONNECT && worker->ready == worker->lane_count))
        bench_fail("sender", "nothing completed for 10 s");
    wake_at(wake_ns, now_ns + (worker->starved > 0 ? RETRY_NS : CHECK_NS));
    return count > 0 ? POLL_BUSY : POLL_IDLE;
}

/* --- all of it --- */

static void open_worker(struct bench_crew *crew, struct bench_worker *worker, uint32_t number)
{
    const struct crew_options *options = crew->options;
    const bool echo = options->mode == MODE_MESSAGE;
    /* No incarnation: a thread has a connection for each of its senders, none of which is a newer one of another. */
    const struct fabric_identity identity = {.cluster = 1,
                                             .term = 1,
                                             .id = 2 + number,
                                             .role = echo ? WIRE_ECHO : WIRE_BLOCKS,
                                             .kind = echo ? FABRIC_CLIENT : FABRIC_SERVER};
    const uint32_t first = options->senders * number / options->threads;

    worker->crew = crew;
    worker->lane_count = options->senders * (number + 1) / options->threads - first;
    worker->lanes = calloc(worker->lane_count, sizeof *worker->lanes);
    bench_check(worker->lanes ? 0 : ROWAN_ENOMEM, "sender");
    for (uint32_t i = 0; i < worker->lane_count; i++) {
        worker->lanes[i] =
            (struct bench_lane){.options = options,
                                .source = options->source + number * options->source_bytes,
                                .starts_ns = calloc(options->depth, sizeof(uint64_t))};
        bench_check(worker->lanes[i].starts_ns ? 0 : ROWAN_ENOMEM, "sender");
    }
    worker->progress_ns = now();
    bench_check(fabric_endpoint_open(options->fabric, number, &worker->endpoint), "sender");
    fabric_endpoint_identity(worker->endpoint, &identity);
    worker->reactor =
        bench_reactor("sender", worker->endpoint, options->spin_ns, worker_poll, worker);
    bench_check(reactor_start(worker->reactor), "sender");
}

static void close_worker(struct bench_worker *worker)
{
    fabric_endpoint_close(worker->endpoint);
    reactor_destroy(worker->reactor);
    for (uint32_t i = 0; i < worker->lane_count; i++)
        free(worker->lanes[i].starts_ns);
    free(worker->lanes);
}

static void enter(struct bench_crew *crew, enum phase phase, const struct bench_worker *workers)
{
    atomic_store_explicit(&crew->phase, phase, memory_order_release);
    for (uint32_t i = 0; i < crew->options->threads; i++)
        reactor_wake(workers[i].reactor);
}

/* The receiver is asked before MEASURE and after DRAIN. */
static void time_run(struct bench_crew *crew, const struct bench_worker *workers,
                     struct crew_result *out)
{
    const struct crew_options *options = crew->options;

    while (atomic_load_explicit(&crew->ready, memory_order_acquire) < options->threads)
        bench_pause(NS_PER_MS); /* worker_poll ends it */
    enter(crew, PHASE_WARM_UP, workers);
    bench_pause(options->run_ns / 2);
    const struct wire_facts before = control_ask(options->control);
    const uint64_t start_ns = now();

    enter(crew, PHASE_MEASURE, workers);
    bench_pause(options->run_ns);
    enter(crew, PHASE_DRAIN, workers);
    for (uint32_t i = 0; i < options->threads; i++)
        reactor_join(workers[i].reactor);
    out->run_ns = now() - start_ns;
    out->receiver = control_ask(options->control);
    out->receiver.user_ns -= before.user_ns;
    out->receiver.all_ns -= before.all_ns;
    out->receiver.zeroing_ns -= before.zeroing_ns;
    out->receiver.segments -= before.segments;
    out->receiver.busy_polls -= before.busy_polls;
}

void crew_run(const struct crew_options *options, struct crew_result *out)
{
    struct bench_crew crew = {.options = options};
    struct bench_worker *workers = calloc(options->threads, sizeof *workers);

    bench_check(workers ? 0 : ROWAN_ENOMEM, "sender");
    memset(out, 0, sizeof *out);
    histogram_reset(&out->latency_ns);
    for (uint32_t i = 0; i < options->threads; i++)
        open_worker(&crew, &workers[i], i);
    time_run(&crew, workers, out);
    for (uint32_t i = 0; i < options->threads; i++) {
        out->operations += workers[i].operations;
        out->full += workers[i].full;
        out->sender_ns += workers[i].cpu_ns;
        histogram_merge(&out->latency_ns, &workers[i].latency_ns);
        close_worker(&workers[i]);
    }
    control_wait_quiet(options->control);
    free(workers);
}
