/* Threads, and the connections (lanes, lane.c) that are spread over them; nothing is shared while they
 * run but a counter for the progress line and, once a second, the latencies.
 *
 * A closed loop reads the clock for each completion (lane.c), a paced one once for each lane's turn: after
 * a poll, for what the poll completed and for what is posted next. So the latency of the latter includes
 * the time from its turn's clock read to the next poll that sends.
 *
 * With a log of histograms the main thread ends an interval each second, by a new number of it. Each
 * thread sees that in its next turn and adds its latencies to the crew's; when all have, the main thread
 * writes them. What a thread completed between the number and its turn is in the interval before.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "common/base/clock.h"
#include "tools/rowan-ycsb/lane.h"
#include "tools/rowan-ycsb/runner.h"
#include "tools/tool.h"

enum { WAIT_US = 100000, ACKED_WAIT_US = 5000 };

_Static_assert(RUN_MAX_LANES == ROWAN_MAX_WAIT, "a thread waits for all its lanes");

const char *const run_kinds[RUN_KINDS] = {"put", "get", "insert", "rmw"};

struct ycsb_worker {
    const struct run_options *options;
    struct ycsb_crew *crew;
    pthread_t thread;
    struct ycsb_lane *lanes; /* of them all, those from `first` are this thread's */
    struct rowan *sessions[RUN_MAX_LANES];
    uint32_t first, lane_count;
    int error;
    uint64_t end_ns;
    uint32_t interval; /* whose latencies are in `result` */
    struct run_result result;
    _Alignas(64) _Atomic uint64_t completed; /* for the progress line */
    _Atomic uint64_t failed;
};

/* All threads. */
struct ycsb_crew {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t opened, running;
    bool started, aborted;
    uint64_t start_ns, count_ns,
        stop_ns; /* count_ns: end of the warm-up; stop_ns 0: when the operations are done */
    uint64_t shown_operations, shown_ns;   /* in the last progress line; since the start */
    _Atomic uint32_t interval;             /* its number */
    uint32_t missing;                      /* threads that have not handed over the last one */
    uint64_t from_ns, to_ns;               /* of the last one */
    struct histogram latencies[RUN_KINDS]; /* handed over, of the last one */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* --- the loop --- */

/* Adds the thread's latencies to the crew's. Holds the crew's lock. */
static void hand_over(struct ycsb_worker *worker)
{
    struct ycsb_crew *crew = worker->crew;
    uint32_t interval = atomic_load_explicit(&crew->interval, memory_order_relaxed);

    for (int kind = 0; kind < RUN_KINDS; kind++) {
        histogram_merge(&crew->latencies[kind], &worker->result.latencies[kind]);
        histogram_reset(&worker->result.latencies[kind]);
    }
    crew->missing -= worker->interval != interval;
    worker->interval = interval;
    if (crew->missing == 0)
        pthread_cond_broadcast(&crew->changed);
}

static void note_interval(struct ycsb_worker *worker)
{
    struct ycsb_crew *crew = worker->crew;

    if (atomic_load_explicit(&crew->interval, memory_order_relaxed) == worker->interval)
        return;
    pthread_mutex_lock(&crew->lock);
    hand_over(worker);
    pthread_mutex_unlock(&crew->lock);
}

/* One turn of each lane. Returns how many operations completed, or an error. */
static int turn(struct ycsb_worker *worker, uint64_t *now_ns)
{
    const uint64_t stop_ns = interrupted ? *now_ns : worker->crew->stop_ns;
    int moved = 0;

    note_interval(worker);
    for (uint32_t i = 0; i < worker->lane_count; i++) {
        struct ycsb_lane *lane = &worker->lanes[i];

        if (stop_ns && *now_ns >= stop_ns)
            lane_stop(lane, stop_ns, *now_ns);
        lane_fill(lane, *now_ns);
        int error = rowan_poll(lane->rowan, NULL, 0, 0);

        *now_ns = clock_now_ns(clock_system());
        if (error >= 0)
            error = lane_settle(lane, *now_ns);
        if (error < 0)
            return error;
        moved += error;
    }
    atomic_store_explicit(&worker->completed,
                          worker->result.counts.operations +
                              worker->result.counts.warm_up_operations,
                          memory_order_relaxed);
    atomic_store_explicit(&worker->failed, worker->result.counts.errors, memory_order_relaxed);
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
    bool last;
    do {
        last = interrupted;
        int moved = turn(worker, &now_ns);

        if (moved == 0 && !last)
            moved = wait_turn(worker, now_ns);
        if (moved < 0)
            worker->error = moved;
    } while (!worker->error && !last && !is_done(worker));
    for (uint32_t i = 0; i < worker->lane_count && !worker->error; i++)
        worker->error = lane_flush_acked(&worker->lanes[i], now_ns);
    worker->end_ns = now_ns;
}

static void open_sessions(struct ycsb_worker *worker)
{
    for (uint32_t i = 0; i < worker->lane_count && !worker->error; i++) {
        worker->error = rowan_open(&worker->options->session, &worker->lanes[i].rowan);
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
    hand_over(worker);
    crew->running--;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

/* --- all threads --- */

static void show(const struct run_options *options, struct ycsb_worker *workers,
                 struct ycsb_crew *crew, uint64_t run_ns)
{
    uint64_t completed = 0, failed = 0;
    uint64_t whole = options->operations;

    if (options->load && !whole)
        whole = options->choice.records / options->shares;

    for (uint32_t i = 0; i < options->threads; i++) {
        completed += atomic_load_explicit(&workers[i].completed, memory_order_relaxed);
        failed += atomic_load_explicit(&workers[i].failed, memory_order_relaxed);
    }
    double rate =
        (double)(completed - crew->shown_operations) * 1e9 / (double)(run_ns - crew->shown_ns);
    double percent = whole ? 100 * (double)completed / (double)whole
                           : 100 * (double)run_ns / (double)(options->warm_up_ns + options->run_ns);

    progress_line("%s: %3.0f %%, %.0f s, %llu operations, %.0f a second, %llu errors",
                  options->name, percent, (double)run_ns / 1e9, (unsigned long long)completed, rate,
                  (unsigned long long)failed);
    crew->shown_operations = completed;
    crew->shown_ns = run_ns;
}

/* Writes what all threads have handed over of the last interval, and counts it as of the run. */
static void end_interval(const struct run_options *options, struct ycsb_crew *crew,
                         struct run_result *out)
{
    for (int kind = 0; kind < RUN_KINDS; kind++) {
        if (options->log)
            hdr_log_interval(options->log, run_kinds[kind], crew->from_ns - crew->count_ns,
                             crew->to_ns - crew->count_ns, &crew->latencies[kind]);
        histogram_merge(&out->latencies[kind], &crew->latencies[kind]);
        histogram_reset(&crew->latencies[kind]);
    }
    crew->from_ns = crew->to_ns;
}

/* Asks the threads for their latencies up to now. */
static void begin_interval(struct ycsb_crew *crew, uint64_t now_ns)
{
    crew->to_ns = now_ns;
    crew->missing = crew->running;
    atomic_fetch_add_explicit(&crew->interval, 1, memory_order_relaxed);
}

/* Waits for all threads; has the crew's lock except while it sleeps. */
static void supervise(const struct run_options *options, struct ycsb_worker *workers,
                      struct ycsb_crew *crew, struct run_result *out)
{
    struct clock *clock = clock_system();
    uint64_t next_ns = crew->count_ns + NS_PER_S;

    progress_due(crew->start_ns);
    while (crew->running > 0) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&crew->changed, &crew->lock, &until);
        uint64_t now_ns = clock_now_ns(clock);

        if (crew->missing == 0 && crew->to_ns > crew->from_ns)
            end_interval(options, crew, out);
        if (options->log && crew->missing == 0 && now_ns >= next_ns) {
            begin_interval(crew, now_ns);
            next_ns = now_ns + NS_PER_S;
        }
        if (crew->running > 0 && progress_due(now_ns))
            show(options, workers, crew, now_ns - crew->start_ns);
    }
    progress_end();
}

/* Milliseconds since 1970. */
static uint64_t epoch_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / NS_PER_MS;
}

static void start_and_wait(const struct run_options *options, struct ycsb_worker *workers,
                           struct ycsb_crew *crew, uint32_t threads, struct run_result *out)
{
    pthread_mutex_lock(&crew->lock);
    while (crew->opened < threads)
        pthread_cond_wait(&crew->changed, &crew->lock);
    crew->start_ns = clock_now_ns(clock_system());
    crew->count_ns = crew->start_ns + options->warm_up_ns;
    crew->from_ns = crew->to_ns = crew->count_ns;
    crew->stop_ns = options->run_ns ? crew->count_ns + options->run_ns : 0;
    out->started_ms = epoch_ms() + options->warm_up_ns / NS_PER_MS;
    if (options->log)
        hdr_log_start(options->log, out->started_ms);
    crew->aborted |= threads < options->threads;
    crew->started = true;
    pthread_cond_broadcast(&crew->changed);
    if (threads == options->threads) {
        /* The next one ends the program. */
        sigaction(SIGINT,
                  &(struct sigaction){.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND},
                  NULL);
        supervise(options, workers, crew, out);
    }
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
}

static int gather(const struct run_options *options, const struct ycsb_worker *workers,
                  struct ycsb_crew *crew, struct run_result *out)
{
    for (uint32_t i = 0; i < options->threads; i++) {
        const uint64_t *one = (const uint64_t *)&workers[i].result.counts;

        if (workers[i].error)
            return workers[i].error;
        if (workers[i].end_ns > crew->to_ns)
            crew->to_ns = workers[i].end_ns;
        for (size_t count = 0; count < sizeof out->counts / sizeof *one; count++)
            ((uint64_t *)&out->counts)[count] += one[count];
    }
    out->run_ns = crew->to_ns - crew->count_ns;
    out->interrupted = interrupted;
    out->ended_ms = out->started_ms + out->run_ns / NS_PER_MS;
    end_interval(options, crew, out);
    return 0;
}

/* Starts the threads, waits for their end. Errors: what opening or running met. */
static int run_threads(const struct run_options *options, struct ycsb_worker *workers,
                       struct ycsb_lane *lanes, struct ycsb_crew *crew, struct run_result *out)
{
    uint32_t threads = 0;

    while (threads < options->threads) {
        struct ycsb_worker *worker = &workers[threads];
        uint64_t end = (uint64_t)options->connections * (threads + 1) / options->threads;

        worker->options = options;
        worker->crew = crew;
        worker->first = (uint32_t)((uint64_t)options->connections * threads / options->threads);
        worker->lane_count = (uint32_t)end - worker->first;
        worker->lanes = lanes + worker->first;
        for (uint32_t i = 0; i < worker->lane_count; i++)
            worker->lanes[i].result = &worker->result;
        if (pthread_create(&worker->thread, NULL, run_worker, worker) != 0)
            break;
        threads++;
    }
    start_and_wait(options, workers, crew, threads, out);
    return threads < options->threads ? ROWAN_ENOMEM : gather(options, workers, crew, out);
}

int runner_run(const struct run_options *options, struct run_result *out)
{
    struct ycsb_worker *workers =
        aligned_alloc(_Alignof(struct ycsb_worker), options->threads * sizeof *workers);
    struct ycsb_lane *lanes = calloc(options->connections, sizeof *lanes);
    struct ycsb_crew *crew = calloc(1, sizeof *crew);
    int error = workers && lanes && crew ? 0 : ROWAN_ENOMEM;
    uint32_t made = 0;

    memset(out, 0, sizeof *out);
    while (!error && made < options->connections) {
        error = lane_init(&lanes[made], options, made);
        made++;
    }
    if (!error) {
        memset(workers, 0, options->threads * sizeof *workers);
        pthread_mutex_init(&crew->lock, NULL);
        pthread_cond_init(&crew->changed, NULL);
        crew->running = options->threads;
        error = run_threads(options, workers, lanes, crew, out);
    }
    while (made > 0)
        lane_fini(&lanes[--made]);
    free(crew);
    free(lanes);
    free(workers);
    return error;
}
