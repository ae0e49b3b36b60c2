/* Threads, and the connections (lanes, lane.c) that are spread over them; nothing is shared while they
 * run but a counter for the progress line.
 *
 * A closed loop reads the clock for each completion (lane.c), a paced one once for each lane's turn: after
 * a poll, for what the poll completed and for what is posted next. So the latency of the latter includes
 * the time from its turn's clock read to the next poll that sends.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "client/rowan.h"
#include "common/base/clock.h"
#include "tools/rowan-ycsb/lane.h"
#include "tools/rowan-ycsb/runner.h"
#include "tools/tool.h"

enum { WAIT_US = 100000, ACKED_WAIT_US = 5000 };

_Static_assert(RUN_MAX_LANES == ROWAN_MAX_WAIT, "a thread waits for all its lanes");

struct ycsb_worker {
    const struct run_options *options;
    struct ycsb_crew *crew;
    pthread_t thread;
    struct ycsb_lane *lanes; /* of them all, those from `first` are this thread's */
    struct rowan *sessions[RUN_MAX_LANES];
    uint32_t first, lane_count;
    int error;
    uint64_t run_ns;
    _Alignas(64) _Atomic uint64_t completed; /* for the progress line */
    _Atomic uint64_t failed;
};

/* All threads. */
struct ycsb_crew {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t opened, running;
    bool started, aborted;
    uint64_t start_ns, stop_ns;          /* stop_ns 0: when the operations are done */
    uint64_t shown_operations, shown_ns; /* in the last progress line; since the start */
};

/* --- the loop --- */

/* One turn of each lane. Returns how many operations completed, or an error. */
static int turn(struct ycsb_worker *worker, uint64_t *now_ns)
{
    uint64_t completed = 0, failed = 0;
    int moved = 0;

    for (uint32_t i = 0; i < worker->lane_count; i++) {
        struct ycsb_lane *lane = &worker->lanes[i];

        if (worker->crew->stop_ns && *now_ns >= worker->crew->stop_ns)
            lane->left = 0;
        lane_fill(lane, *now_ns);
        int error = rowan_poll(lane->rowan, NULL, 0, 0);

        *now_ns = clock_now_ns(clock_system());
        if (error >= 0)
            error = lane_settle(lane, *now_ns);
        if (error < 0)
            return error;
        moved += error;
        completed += lane->result.operations;
        failed += lane->result.errors;
    }
    atomic_store_explicit(&worker->completed, completed, memory_order_relaxed);
    atomic_store_explicit(&worker->failed, failed, memory_order_relaxed);
    return moved;
}

static bool is_done(const struct ycsb_worker *worker)
{
    for (uint32_t i = 0; i < worker->lane_count; i++) {
        if (!lane_is_done(&worker->lanes[i]))
            return false;
    }
    return true;
}

/* Until an answer comes or an operation is due. */
static int wait_turn(struct ycsb_worker *worker, uint64_t now_ns)
{
    uint64_t until_ns =
        now_ns + (worker->options->acked_fd >= 0 ? ACKED_WAIT_US : WAIT_US) * NS_PER_US;

    for (uint32_t i = 0; i < worker->lane_count; i++) {
        uint64_t next_ns = lane_next_ns(&worker->lanes[i]);

        if (next_ns < until_ns)
            until_ns = next_ns;
    }
    if (until_ns <= now_ns)
        return 0;
    return rowan_wait_any(worker->sessions, worker->lane_count,
                          (int64_t)((until_ns - now_ns) / NS_PER_US));
}

static void loop(struct ycsb_worker *worker)
{
    uint64_t now_ns = worker->crew->start_ns;

    for (uint32_t i = 0; i < worker->lane_count; i++)
        lane_start(&worker->lanes[i], worker->first + i, now_ns);
    prctl(PR_SET_TIMERSLACK, 1); /* ns: else the kernel may delay paced operations by 50 us */
    do {
        int moved = turn(worker, &now_ns);

        if (moved == 0)
            moved = wait_turn(worker, now_ns);
        if (moved < 0)
            worker->error = moved;
    } while (!worker->error && !is_done(worker));
    for (uint32_t i = 0; i < worker->lane_count && !worker->error; i++)
        worker->error = lane_flush_acked(&worker->lanes[i], now_ns);
    worker->run_ns = now_ns - worker->crew->start_ns;
}

static void open_sessions(struct ycsb_worker *worker)
{
    for (uint32_t i = 0; i < worker->lane_count && !worker->error; i++) {
        worker->error = lane_open(&worker->lanes[i]);
        worker->sessions[i] = worker->lanes[i].rowan;
    }
}

/* Reports that the sessions are open (or could not be), and waits for the start. False: do not run. */
static bool wait_start(struct ycsb_worker *worker)
{
    struct ycsb_crew *crew = worker->crew;
    bool go;

    pthread_mutex_lock(&crew->lock);
    crew->opened++;
    crew->aborted |= worker->error != 0;
    pthread_cond_broadcast(&crew->changed);
    while (!crew->started)
        pthread_cond_wait(&crew->changed, &crew->lock);
    go = !crew->aborted;
    pthread_mutex_unlock(&crew->lock);
    return go;
}

static void *run_worker(void *argument)
{
    struct ycsb_worker *worker = argument;
    struct ycsb_crew *crew = worker->crew;

    open_sessions(worker);
    if (wait_start(worker))
        loop(worker);
    pthread_mutex_lock(&crew->lock);
    crew->running--;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

/* --- all threads --- */

static void show(const struct run_options *options, struct ycsb_worker *workers,
                 struct ycsb_crew *crew, const struct progress *progress, uint64_t run_ns)
{
    uint64_t completed = 0, failed = 0;
    uint64_t whole = options->load && !options->operations ? options->records : options->operations;

    for (uint32_t i = 0; i < options->threads; i++) {
        completed += atomic_load_explicit(&workers[i].completed, memory_order_relaxed);
        failed += atomic_load_explicit(&workers[i].failed, memory_order_relaxed);
    }
    double rate =
        (double)(completed - crew->shown_operations) * 1e9 / (double)(run_ns - crew->shown_ns);
    double percent = whole ? 100 * (double)completed / (double)whole
                           : 100 * (double)run_ns / (double)options->run_ns;

    progress_line(progress, "%s: %3.0f %%, %.0f s, %llu operations, %.0f a second, %llu errors",
                  options->name, percent, (double)run_ns / 1e9, (unsigned long long)completed, rate,
                  (unsigned long long)failed);
    crew->shown_operations = completed;
    crew->shown_ns = run_ns;
}

/* Waits for all threads; has the crew's lock except while it sleeps. */
static void supervise(const struct run_options *options, struct ycsb_worker *workers,
                      struct ycsb_crew *crew)
{
    struct clock *clock = clock_system();
    struct progress progress;

    progress_init(&progress, crew->start_ns);
    while (crew->running > 0) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&crew->changed, &crew->lock, &until);
        uint64_t now_ns = clock_now_ns(clock);

        if (crew->running > 0 && progress_due(&progress, now_ns))
            show(options, workers, crew, &progress, now_ns - crew->start_ns);
    }
    progress_end(&progress);
}

static void start_and_wait(const struct run_options *options, struct ycsb_worker *workers,
                           struct ycsb_crew *crew, uint32_t threads)
{
    pthread_mutex_lock(&crew->lock);
    while (crew->opened < threads)
        pthread_cond_wait(&crew->changed, &crew->lock);
    crew->start_ns = clock_now_ns(clock_system());
    crew->stop_ns = options->run_ns ? crew->start_ns + options->run_ns : 0;
    crew->aborted |= threads < options->threads;
    crew->started = true;
    pthread_cond_broadcast(&crew->changed);
    if (threads == options->threads)
        supervise(options, workers, crew);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
}

static int gather(const struct run_options *options, const struct ycsb_worker *workers,
                  const struct ycsb_lane *lanes, struct run_result *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < options->threads; i++) {
        if (workers[i].error)
            return workers[i].error;
        out->run_ns = workers[i].run_ns > out->run_ns ? workers[i].run_ns : out->run_ns;
    }
    for (uint32_t i = 0; i < options->connections; i++) {
        const struct run_result *one = &lanes[i].result;

        for (int kind = 0; kind < RUN_KINDS; kind++)
            histogram_merge(&out->latencies[kind], &one->latencies[kind]);
        for (int error = 0; error < RUN_ERRORS; error++)
            out->errors_by[error] += one->errors_by[error];
        out->operations += one->operations;
        out->not_found += one->not_found;
        out->errors += one->errors;
    }
    return 0;
}

/* Starts the threads, waits for their end. Errors: what opening or running met. */
static int run_threads(const struct run_options *options, struct ycsb_worker *workers,
                       struct ycsb_lane *lanes)
{
    struct ycsb_crew crew = {.lock = PTHREAD_MUTEX_INITIALIZER,
                             .changed = PTHREAD_COND_INITIALIZER,
                             .running = options->threads};
    uint32_t threads = 0;

    memset(workers, 0, options->threads * sizeof *workers);
    while (threads < options->threads) {
        struct ycsb_worker *worker = &workers[threads];
        uint64_t end = (uint64_t)options->connections * (threads + 1) / options->threads;

        worker->options = options;
        worker->crew = &crew;
        worker->first = (uint32_t)((uint64_t)options->connections * threads / options->threads);
        worker->lane_count = (uint32_t)end - worker->first;
        worker->lanes = lanes + worker->first;
        if (pthread_create(&worker->thread, NULL, run_worker, worker) != 0)
            break;
        threads++;
    }
    start_and_wait(options, workers, &crew, threads);
    return threads < options->threads ? ROWAN_ENOMEM : 0;
}

int runner_run(const struct run_options *options, struct run_result *out)
{
    struct ycsb_worker *workers =
        aligned_alloc(_Alignof(struct ycsb_worker), options->threads * sizeof *workers);
    struct ycsb_lane *lanes = calloc(options->connections, sizeof *lanes);
    int error = workers && lanes ? 0 : ROWAN_ENOMEM;
    uint32_t made = 0;

    while (!error && made < options->connections) {
        error = lane_init(&lanes[made], options, made);
        made++;
    }
    if (!error)
        error = run_threads(options, workers, lanes);
    if (!error)
        error = gather(options, workers, lanes, out);
    while (made > 0)
        lane_fini(&lanes[--made]);
    free(lanes);
    free(workers);
    return error;
}
