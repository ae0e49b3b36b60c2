/* crew.c - the sending threads of one run, and the thread that times them.
 *
 *   phase:  CONNECT -- all threads are ready --> WARM_UP --> MEASURE --> DRAIN -- nothing is outstanding --> end
 *
 * The timing thread moves the phase; each thread sees it at its next turn. Operations are counted by each
 * thread and read by the timing thread, with the clock, at both ends of MEASURE, so that a rate does not
 * depend on when a thread saw the phase. A histogram holds what completed while its thread saw MEASURE.
 * On a loaded machine a thread may not run for longer than the run shall last. So MEASURE goes on until each thread has
 * completed something in it, and somebody has since the receiver's figures were taken: else there would be no figures.
 *
 * The clock is read once in a turn, behind the poll: for what the poll completed and for what is posted next.
 */
#include "tools/fabric-bench/crew.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/reactor/wait.h"

enum { EVENTS = 64, CONNECTING = 32 /* at a time, of a thread */ };
enum phase { PHASE_CONNECT, PHASE_WARM_UP, PHASE_MEASURE, PHASE_DRAIN };

#define PATIENCE_NS (10 * NS_PER_S)
#define CHECK_NS    (50 * NS_PER_MS)
#define RETRY_NS    NS_PER_MS
#define MORE_NS     NS_PER_MS

struct bench_crew {
    const struct crew_options *options;
    _Atomic int phase;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    uint32_t ready;
    int error;
};

/* Of a sending thread, at one end of the measured time. */
struct bench_sample {
    struct cpu_time cpu;
    uint64_t full;
};

struct bench_worker {
    _Alignas(64) _Atomic uint64_t operations;
    _Atomic bool measured; /* the histogram holds something */
    struct bench_crew *crew;
    pthread_t thread;
    uint32_t number, lane_count;
    struct bench_lane *lanes;
    struct fabric_endpoint *endpoint;
    struct event_source source;
    enum phase seen;
    bool reported; /* that all its connections are ready */
    uint32_t opened, ready, starved;
    uint64_t count; /* as `operations` */
    uint64_t progress_ns;
    int error;
    struct bench_sample before, after;
    struct histogram latency_ns;
    struct fabric_event events[EVENTS];
};

static uint64_t now(void)
{
    return clock_now_ns(clock_system());
}

static struct bench_sample take_sample(const struct bench_worker *worker)
{
    struct bench_sample sample = {.cpu = cpu_time_now()};
    for (uint32_t i = 0; i < worker->lane_count; i++)
        sample.full += worker->lanes[i].full;
    return sample;
}

/* --- connecting --- */

static int open_lanes(struct bench_worker *worker)
{
    while (worker->opened < worker->lane_count && worker->opened - worker->ready < CONNECTING) {
        struct bench_lane *lane = &worker->lanes[worker->opened];
        int error = fabric_connect(worker->endpoint, worker->crew->options->address, 0,
                                   worker->opened, &lane->conn);

        if (error)
            return error;
        lane->conn->user = lane;
        worker->opened++;
    }
    return 0;
}

static int ask_grant(struct bench_lane *lane)
{
    lane->grant_bytes = lane_grant_bytes(lane);
    lane->asking = true;
    const struct wire_ask ask = {.magic = WIRE_MAGIC, .value = lane->grant_bytes};
    const struct fabric_iov iov = {.data = &ask, .bytes = sizeof ask};
    return fabric_send(lane->conn, &iov, 1);
}

static int apply_grant(struct bench_worker *worker, struct bench_lane *lane,
                       const struct fabric_event *event)
{
    struct wire_grant reply;

    if (event->bytes != sizeof reply)
        return ROWAN_EFORMAT;
    memcpy(&reply, event->data, sizeof reply);
    if (reply.magic != WIRE_MAGIC || reply.error > 0 || reply.error < -1000)
        return ROWAN_EFORMAT;
    if (reply.error)
        return (int)reply.error;
    lane->grant = reply.grant;
    lane->asking = false;
    worker->ready++;
    return 0;
}

static int connected(struct bench_worker *worker, struct bench_lane *lane, uint64_t now_ns)
{
    worker->progress_ns = now_ns;
    if (lane->mode != MODE_MESSAGE && !lane->conn->has_zone)
        return ROWAN_EUNSUPPORTED;
    if (lane->mode == MODE_WRITE)
        return ask_grant(lane);
    worker->ready++;
    return 0;
}

/* --- the loop --- */

static int refill(struct bench_worker *worker, struct bench_lane *lane, uint64_t now_ns)
{
    const bool was = lane->starved;
    int error = lane_fill(lane, now_ns);

    worker->starved += lane->starved;
    worker->starved -= was;
    return error;
}

static int complete(struct bench_worker *worker, struct bench_lane *lane, uint64_t number,
                    uint64_t now_ns)
{
    uint64_t start_ns;
    int error = lane_complete(lane, number, &start_ns);

    if (error)
        return error;
    worker->count += lane->batch;
    worker->progress_ns = now_ns;
    if (worker->seen == PHASE_MEASURE) {
        histogram_add(&worker->latency_ns, now_ns - start_ns);
        atomic_store_explicit(&worker->measured, true, memory_order_release);
    }
    return worker->seen == PHASE_DRAIN ? 0 : refill(worker, lane, now_ns);
}

static int handle_message(struct bench_worker *worker, struct bench_lane *lane,
                          const struct fabric_event *event, uint64_t now_ns)
{
    const uint32_t bytes = event->bytes;
    int error;

    if (lane->asking) {
        error = apply_grant(worker, lane, event);
        fabric_message_release(event->conn, event->message);
        return error;
    }
    fabric_message_release(event->conn, event->message);
    if (lane->mode != MODE_MESSAGE || bytes != lane->bytes)
        return ROWAN_EFORMAT;
    return complete(worker, lane, lane->done, now_ns);
}

static int handle_event(struct bench_worker *worker, const struct fabric_event *event,
                        uint64_t now_ns)
{
    struct bench_lane *lane = event->conn->user;

    switch (event->kind) {
    case FABRIC_CONNECTED:
        return connected(worker, lane, now_ns);
    case FABRIC_CLOSED:
        return event->error ? event->error : ROWAN_ECLOSED;
    case FABRIC_MESSAGE:
        return handle_message(worker, lane, event, now_ns);
    case FABRIC_LANDED:
    case FABRIC_WRITTEN:
        return complete(worker, lane, event->context, now_ns);
    default:
        return 0;
    }
}

/* The lanes that are starved, or all. */
static int fill(struct bench_worker *worker, bool all, uint64_t now_ns)
{
    int error = 0;
    for (uint32_t i = 0; i < worker->lane_count && !error; i++) {
        if (all || worker->lanes[i].starved)
            error = refill(worker, &worker->lanes[i], now_ns);
    }
    return error;
}

/* Does what a new phase needs; `seen` is the phase that this thread is in. */
static int enter_phase(struct bench_worker *worker, uint64_t now_ns)
{
    const enum phase phase =
        (enum phase)atomic_load_explicit(&worker->crew->phase, memory_order_acquire);
    int error = 0;

    if (phase == worker->seen)
        return 0;
    if (worker->seen == PHASE_CONNECT && phase != PHASE_DRAIN) {
        worker->progress_ns = now_ns;
        error = fill(worker, true, now_ns);
    }
    if (phase == PHASE_MEASURE)
        worker->before = take_sample(worker);
    else if (phase == PHASE_DRAIN)
        worker->after = take_sample(worker);
    worker->seen = phase;
    return error;
}

static enum poll_result worker_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct bench_worker *worker = role;
    const unsigned count = fabric_poll(worker->endpoint, now_ns, worker->events, EVENTS);
    int error = worker->error;

    if (count > 0)
        now_ns = now();
    if (!error)
        error = enter_phase(worker, now_ns);
    if (!error && worker->starved > 0 && worker->seen != PHASE_DRAIN)
        error = fill(worker, false, now_ns);
    for (unsigned i = 0; i < count && !error; i++)
        error = handle_event(worker, &worker->events[i], now_ns);
    if (!error && worker->seen == PHASE_CONNECT)
        error = open_lanes(worker);
    fabric_flush(worker->endpoint);
    atomic_store_explicit(&worker->operations, worker->count, memory_order_relaxed);
    if (worker->starved > 0)
        wake_at(wake_ns, now_ns + RETRY_NS);
    worker->error = error;
    return count > 0 || error ? POLL_BUSY : POLL_IDLE;
}

static bool is_drained(const struct bench_worker *worker)
{
    for (uint32_t i = 0; i < worker->lane_count; i++) {
        if (worker->lanes[i].posted != worker->lanes[i].done)
            return false;
    }
    return true;
}

static void report_ready(struct bench_worker *worker)
{
    struct bench_crew *crew = worker->crew;
    if (worker->reported || worker->ready < worker->lane_count)
        return;
    worker->reported = true;
    pthread_mutex_lock(&crew->lock);
    crew->ready++;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
}

/* Nothing has completed, nor connected, for PATIENCE_NS, and the thread does not only wait for the others to connect. */
static bool is_late(const struct bench_worker *worker, uint64_t now_ns)
{
    return now_ns > worker->progress_ns + PATIENCE_NS &&
           !(worker->seen == PHASE_CONNECT && worker->reported);
}

static void loop(struct bench_worker *worker)
{
    struct clock *clock = clock_system();
    uint64_t busy_ns = now();

    worker->progress_ns = busy_ns;
    while (!worker->error && !(worker->seen == PHASE_DRAIN && is_drained(worker))) {
        uint64_t now_ns = clock_now_ns(clock), wake_ns = WAKE_NEVER;

        if (worker_poll(worker, now_ns, &wake_ns) == POLL_BUSY) {
            busy_ns = now_ns;
        } else if (now_ns - busy_ns >= worker->crew->options->spin_ns ||
                   worker->seen == PHASE_CONNECT) {
            int error =
                event_source_wait(&worker->source, clock, worker_poll, worker, now_ns + CHECK_NS);

            if (!worker->error)
                worker->error = error;
            busy_ns = clock_now_ns(clock);
        }
        report_ready(worker);
        if (!worker->error && is_late(worker, now_ns))
            worker->error = ROWAN_ETIMEDOUT;
    }
}

static void *run_worker(void *argument)
{
    struct bench_worker *worker = argument;
    struct bench_crew *crew = worker->crew;
    /* No incarnation: a thread has a connection for each of its senders, none of which is a newer one of another. */
    const struct fabric_identity identity = {
        .cluster = 1,
        .term = 1,
        .id = 2 + worker->number,
        .role = worker->crew->options->mode == MODE_MESSAGE ? WIRE_ECHO : WIRE_BLOCKS,
        .kind = worker->crew->options->mode == MODE_MESSAGE ? FABRIC_CLIENT : FABRIC_SERVER};

    worker->error =
        fabric_endpoint_open(worker->crew->options->fabric, worker->number, &worker->endpoint);
    if (!worker->error) {
        fabric_endpoint_identity(worker->endpoint, &identity);
        fabric_endpoint_source(worker->endpoint, &worker->source);
        loop(worker);
    }
    fabric_endpoint_close(worker->endpoint);
    pthread_mutex_lock(&crew->lock);
    if (worker->error && !crew->error)
        crew->error = worker->error;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

/* --- the timing thread --- */

/* Waits until `ready` threads are ready, or until `until_ns`. Errors: those of the threads, ROWAN_EUNKNOWN: a
 * signal. */
static int wait_crew(struct bench_crew *crew, uint32_t ready, uint64_t until_ns)
{
    int error = 0;

    pthread_mutex_lock(&crew->lock);
    while (!error && crew->ready < ready && now() < until_ns) {
        const uint64_t left_ns = until_ns - now() < CHECK_NS ? until_ns - now() : CHECK_NS;
        struct timespec until;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)left_ns;
        until.tv_sec += until.tv_nsec / (long)NS_PER_S;
        until.tv_nsec %= (long)NS_PER_S;
        pthread_cond_clockwait(&crew->changed, &crew->lock, CLOCK_MONOTONIC, &until);
        error = crew->error;
        if (!error && atomic_load_explicit(crew->options->stop, memory_order_relaxed))
            error = ROWAN_EUNKNOWN;
    }
    pthread_mutex_unlock(&crew->lock);
    return error;
}

static uint64_t sum_operations(const struct bench_worker *workers, uint32_t threads)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < threads; i++)
        sum += atomic_load_explicit(&workers[i].operations, memory_order_relaxed);
    return sum;
}

struct moment {
    uint64_t now_ns, operations;  /* when the phase changed */
    uint64_t receiver_operations; /* when the receiver answered */
    struct wire_facts receiver;
};

/* The receiver is asked while all threads work: behind the begin of MEASURE, and before that of DRAIN. */
static int enter(const struct crew_options *options, struct bench_crew *crew, enum phase phase,
                 const struct bench_worker *workers, struct moment *out)
{
    out->operations = sum_operations(workers, options->threads);
    out->now_ns = now();
    if (phase == PHASE_MEASURE)
        atomic_store_explicit(&crew->phase, phase, memory_order_release);
    int error = control_ask(options->control, &out->receiver);
    out->receiver_operations = sum_operations(workers, options->threads);
    atomic_store_explicit(&crew->phase, phase, memory_order_release);
    return error;
}

static void subtract(const struct moment *first, const struct moment *last, struct crew_result *out)
{
    const struct wire_facts *a = &first->receiver, *b = &last->receiver;

    out->operations = last->operations - first->operations;
    out->run_ns = last->now_ns - first->now_ns;
    out->receiver_operations = last->receiver_operations - first->receiver_operations;
    out->receiver = *b;
    out->receiver.cpu = (struct cpu_time){0};
    cpu_time_add(&out->receiver.cpu, &a->cpu, &b->cpu);
    out->receiver.zeroing_ns -= a->zeroing_ns;
    out->receiver.segments -= a->segments;
    out->receiver.sleeps -= a->sleeps;
    out->receiver.busy_polls -= a->busy_polls;
}

static bool has_figures(const struct crew_options *options, const struct bench_worker *workers,
                        const struct moment *first)
{
    bool all = sum_operations(workers, options->threads) > first->receiver_operations;

    for (uint32_t i = 0; i < options->threads && all; i++)
        all = atomic_load_explicit(&workers[i].measured, memory_order_acquire);
    return all;
}

static int time_run(const struct crew_options *options, struct bench_crew *crew,
                    const struct bench_worker *workers, struct crew_result *out)
{
    struct moment first, last;
    int error = wait_crew(crew, options->threads, WAKE_NEVER);

    if (error)
        return error;
    atomic_store_explicit(&crew->phase, PHASE_WARM_UP, memory_order_release);
    error = wait_crew(crew, UINT32_MAX, now() + options->warm_up_ns);
    if (!error)
        error = enter(options, crew, PHASE_MEASURE, workers, &first);
    if (!error)
        error = wait_crew(crew, UINT32_MAX, now() + options->run_ns);
    while (!error && !has_figures(options, workers, &first)) /* is_late ends it */
        error = wait_crew(crew, UINT32_MAX, now() + MORE_NS);
    if (!error)
        error = enter(options, crew, PHASE_DRAIN, workers, &last);
    if (!error)
        subtract(&first, &last, out);
    return error;
}

/* --- all of it --- */

/* Lanes of one thread. Returns the first one's number. */
static uint32_t init_lanes(const struct crew_options *options, struct bench_lane *lanes,
                           uint64_t *starts_ns, uint32_t thread)
{
    const uint8_t *source = options->source + thread * options->source_bytes;
    const uint32_t first = options->senders * thread / options->threads;
    const uint32_t end = options->senders * (thread + 1) / options->threads;

    for (uint32_t i = first; i < end; i++)
        lanes[i] = (struct bench_lane){.mode = options->mode,
                                       .bytes = options->bytes,
                                       .batch = options->mode == MODE_ROWAN ? options->batch : 1,
                                       .depth = options->depth,
                                       .source = source,
                                       .source_bytes = options->source_bytes,
                                       .starts_ns = starts_ns + (uint64_t)i * options->depth};
    return first;
}

static void gather(const struct bench_worker *workers, uint32_t threads, struct crew_result *out)
{
    histogram_reset(&out->latency_ns);
    out->full = 0;
    out->sender = (struct cpu_time){0};
    for (uint32_t i = 0; i < threads; i++) {
        const struct bench_worker *worker = &workers[i];

        histogram_merge(&out->latency_ns, &worker->latency_ns);
        out->full += worker->after.full - worker->before.full;
        cpu_time_add(&out->sender, &worker->before.cpu, &worker->after.cpu);
    }
}

static int run_threads(const struct crew_options *options, struct bench_worker *workers,
                       struct bench_lane *lanes, uint64_t *starts_ns, struct crew_result *out)
{
    struct bench_crew crew = {
        .options = options, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    uint32_t threads = 0;
    int error = 0;

    for (; threads < options->threads; threads++) {
        struct bench_worker *worker = &workers[threads];
        const uint32_t first = init_lanes(options, lanes, starts_ns, threads);

        worker->crew = &crew;
        worker->number = threads;
        worker->lanes = lanes + first;
        worker->lane_count = options->senders * (threads + 1) / options->threads - first;
        if (pthread_create(&worker->thread, NULL, run_worker, worker) != 0) {
            error = ROWAN_ENOMEM;
            break;
        }
    }
    if (!error)
        error = time_run(options, &crew, workers, out);
    atomic_store_explicit(&crew.phase, PHASE_DRAIN, memory_order_release);
    for (uint32_t i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    if (!error)
        error = crew.error;
    if (!error)
        gather(workers, threads, out);
    return error;
}

int crew_run(const struct crew_options *options, struct crew_result *out)
{
    struct bench_worker *workers =
        aligned_alloc(_Alignof(struct bench_worker), options->threads * sizeof *workers);
    struct bench_lane *lanes = calloc(options->senders, sizeof *lanes);
    uint64_t *starts_ns = calloc((size_t)options->senders * options->depth, sizeof *starts_ns);
    int error = workers && lanes && starts_ns ? 0 : ROWAN_ENOMEM;

    if (!error) {
        memset(workers, 0, options->threads * sizeof *workers);
        error = run_threads(options, workers, lanes, starts_ns, out);
    }
    if (!error)
        error = control_wait_quiet(options->control);
    free(starts_ns);
    free(lanes);
    free(workers);
    return error;
}
