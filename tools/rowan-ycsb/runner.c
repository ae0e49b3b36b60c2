/* Each thread owns a session, a table of slots and its figures; nothing is shared while it runs but
 * a counter for the progress line.
 *
 * The clock is read once a round: after a poll, for what the poll completed and for what is posted
 * next. So a latency includes the time from its round's clock read to the next poll that sends.
 *
 * An acknowledged write is counted only after its record went to the file's buffer, and the buffer
 * goes to the file every ACKED_FLUSH_NS or ACKED_RECORDS records.
 */
#include "client/rowan.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "tools/rowan-ycsb/acked.h"
#include "tools/rowan-ycsb/runner.h"

enum { ACKED_RECORDS = 4096, POLL_MS = 100, ACKED_POLL_MS = 5, OPEN_TIMEOUT_MS = 10000 };

#define ACKED_FLUSH_NS (5 * NS_PER_MS)
#define LIVE_LINE_NS   (1 * NS_PER_S)
#define SPARSE_LINE_NS (10 * NS_PER_S)

struct worker;

struct slot {
    struct worker *worker;
    enum run_kind kind;
    bool prepared; /* and not posted yet */
    int status;
    uint32_t value_bytes;
    uint64_t record, seed, version, start_ns;
    uint8_t *value;
};

struct worker {
    const struct run_options *options;
    struct crew *crew;
    pthread_t thread;
    struct rowan *rowan;
    struct random random;
    struct slot *slots;
    uint8_t *values;
    struct slot **idle; /* a stack */
    uint32_t idle_count;
    struct slot **done; /* completed by the last poll */
    uint32_t done_count;
    uint64_t next_record, left; /* load: the next one; how many operations may still begin */
    uint64_t salt, writes;      /* value seeds */
    uint64_t put_below;         /* of 2^32 */
    struct acked_record *acked;
    uint32_t acked_count;
    uint64_t acked_ns; /* when the buffer was written */
    int error;
    struct run_result result;
    _Alignas(64) _Atomic uint64_t completed; /* for the progress line */
    _Atomic uint64_t failed;
};

/* All threads. */
struct crew {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t opened, running;
    bool started, aborted;
    uint64_t start_ns, stop_ns; /* stop_ns 0: when the operations are done */
};

/* --- progress --- */

void progress_init(struct progress *progress, uint64_t now_ns)
{
    progress->live = isatty(STDERR_FILENO);
    progress->next_ns = now_ns + (progress->live ? LIVE_LINE_NS : SPARSE_LINE_NS);
}

bool progress_due(struct progress *progress, uint64_t now_ns)
{
    if (now_ns < progress->next_ns)
        return false;
    progress->next_ns = now_ns + (progress->live ? LIVE_LINE_NS : SPARSE_LINE_NS);
    return true;
}

void progress_line(const struct progress *progress, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    if (progress->live)
        fputs("\r\x1b[K", stderr);
    vfprintf(stderr, format, arguments);
    if (!progress->live)
        fputc('\n', stderr);
    va_end(arguments);
}

void progress_end(const struct progress *progress)
{
    if (progress->live)
        fputs("\r\x1b[K", stderr);
}

/* --- one operation --- */

static void on_completion(const struct rowan_completion *completion)
{
    struct slot *slot = completion->context;
    struct worker *worker = slot->worker;

    slot->status = completion->status;
    slot->version = completion->version;
    worker->done[worker->done_count++] = slot;
}

static uint64_t choose_record(struct worker *worker)
{
    const struct run_options *options = worker->options;

    if (options->load)
        return worker->next_record++;
    if (!options->zipf)
        return zipf_scale(random_u64(&worker->random), options->records);
    return zipf_scramble(zipf_rank(options->zipf, random_unit(&worker->random)), options->records);
}

static void prepare(struct worker *worker, struct slot *slot)
{
    bool put = worker->options->load || (uint32_t)random_u64(&worker->random) < worker->put_below;

    slot->kind = put ? RUN_PUT : RUN_GET;
    slot->record = choose_record(worker);
    slot->prepared = true;
    if (!put)
        return;
    slot->seed = workload_mix(worker->salt, worker->writes++);
    slot->value_bytes = workload_value_bytes(worker->options->profile, slot->record, slot->seed);
    workload_value(slot->record, slot->seed, slot->value, slot->value_bytes);
}

static int post(struct worker *worker, struct slot *slot)
{
    const struct profile *profile = worker->options->profile;
    char key[WORKLOAD_MAX_KEY_BYTES];
    uint32_t key_bytes = workload_key(profile, slot->record, key);

    if (slot->kind == RUN_PUT)
        return rowan_post_put(worker->rowan, key, key_bytes, slot->value, slot->value_bytes,
                              on_completion, slot);
    return rowan_post_get(worker->rowan, key, key_bytes, slot->value, profile->max_value_bytes,
                          on_completion, slot);
}

/* Posts into all idle slots. */
static void fill(struct worker *worker, uint64_t now_ns)
{
    while (worker->idle_count > 0 && worker->left > 0) {
        struct slot *slot = worker->idle[worker->idle_count - 1];

        if (!slot->prepared)
            prepare(worker, slot);
        int error = post(worker, slot);

        if (error == ROWAN_EAGAIN)
            return;
        slot->prepared = false;
        slot->start_ns = now_ns;
        worker->idle_count--;
        worker->left--;
        if (error) {
            slot->status = error;
            worker->done[worker->done_count++] = slot;
        }
    }
}

/* --- acknowledged writes --- */

static int flush_acked(struct worker *worker, uint64_t now_ns)
{
    int error = 0;

    if (worker->acked_count > 0)
        error = acked_append(worker->options->acked_fd, worker->acked, worker->acked_count);
    worker->acked_count = 0;
    worker->acked_ns = now_ns;
    return error;
}

static int note_acked(struct worker *worker, const struct slot *slot, uint64_t now_ns)
{
    if (!worker->acked || slot->kind != RUN_PUT || slot->status)
        return 0;
    worker->acked[worker->acked_count++] =
        (struct acked_record){.record = slot->record, .version = slot->version, .seed = slot->seed};
    return worker->acked_count == ACKED_RECORDS ? flush_acked(worker, now_ns) : 0;
}

/* --- the loop --- */

static void count(struct worker *worker, const struct slot *slot, uint64_t now_ns)
{
    struct run_result *result = &worker->result;

    if (slot->status && !(slot->status == ROWAN_ENOTFOUND && slot->kind == RUN_GET)) {
        result->errors++;
        result->errors_by[-slot->status % RUN_ERRORS]++;
        return;
    }
    result->operations++;
    result->not_found += slot->status == ROWAN_ENOTFOUND;
    histogram_add(&result->latencies[slot->kind], now_ns - slot->start_ns);
}

static void settle(struct worker *worker, uint64_t now_ns)
{
    for (uint32_t i = 0; i < worker->done_count; i++) {
        struct slot *slot = worker->done[i];
        int error = note_acked(worker, slot, now_ns);

        if (error)
            worker->error = error;
        count(worker, slot, now_ns);
        worker->idle[worker->idle_count++] = slot;
    }
    worker->done_count = 0;
    atomic_store_explicit(&worker->completed, worker->result.operations, memory_order_relaxed);
    atomic_store_explicit(&worker->failed, worker->result.errors, memory_order_relaxed);
}

static void loop(struct worker *worker)
{
    struct clock *clock = clock_system();
    uint64_t stop_ns = worker->crew->stop_ns;
    int poll_ms = worker->acked ? ACKED_POLL_MS : POLL_MS;
    uint64_t now_ns = clock_now_ns(clock);

    while (!worker->error) {
        if (stop_ns && now_ns >= stop_ns)
            worker->left = 0;
        fill(worker, now_ns);
        if (worker->idle_count + worker->done_count == worker->options->depth &&
            worker->done_count == 0 && worker->left == 0)
            break;
        int error = rowan_poll(worker->rowan, NULL, 0, worker->done_count ? 0 : poll_ms);

        if (error < 0)
            worker->error = error;
        now_ns = clock_now_ns(clock);
        settle(worker, now_ns);
        if (worker->acked && now_ns - worker->acked_ns >= ACKED_FLUSH_NS &&
            (error = flush_acked(worker, now_ns)) != 0)
            worker->error = error;
    }
    if (worker->acked && !worker->error)
        worker->error = flush_acked(worker, now_ns);
    worker->result.run_ns = now_ns - worker->crew->start_ns;
}

static int open_session(struct worker *worker)
{
    struct rowan_options options;

    rowan_options_init(&options);
    options.cm = worker->options->cm;
    options.depth = worker->options->depth;
    options.timeout_ms = worker->options->timeout_ms;
    options.open_timeout_ms = OPEN_TIMEOUT_MS;
    options.spin_us = worker->options->spin_us;
    return rowan_open(&options, &worker->rowan);
}

/* Tells that this session is open (or could not be), and waits for the start. False: do not run. */
static bool wait_start(struct worker *worker)
{
    struct crew *crew = worker->crew;
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
    struct worker *worker = argument;
    struct crew *crew = worker->crew;

    worker->error = open_session(worker);
    if (wait_start(worker))
        loop(worker);
    rowan_close(worker->rowan);
    pthread_mutex_lock(&crew->lock);
    crew->running--;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

/* --- all threads --- */

static uint64_t part(uint64_t whole, uint32_t index, uint32_t parts)
{
    return (uint64_t)((unsigned __int128)whole * index / parts);
}

static int worker_init(struct worker *worker, const struct run_options *options, struct crew *crew,
                       uint32_t index)
{
    uint64_t work = options->load ? options->records : options->operations;
    uint32_t room = (options->profile->max_value_bytes + 63) & ~UINT32_C(63);

    if (options->load && options->operations && options->operations < work)
        work = options->operations;
    worker->options = options;
    worker->crew = crew;
    worker->next_record = part(work, index, options->threads);
    worker->left =
        work ? part(work, index + 1, options->threads) - worker->next_record : UINT64_MAX;
    worker->salt = workload_mix(options->seed, index + 1);
    worker->put_below = (uint64_t)(options->puts * 4294967296.0);
    random_init(&worker->random, workload_mix(worker->salt, 0));
    worker->slots = calloc(options->depth, sizeof *worker->slots);
    worker->values = calloc(options->depth, room ? room : 1);
    worker->idle = calloc(options->depth, sizeof(struct slot *));
    worker->done = calloc(options->depth, sizeof(struct slot *));
    if (options->acked_fd >= 0)
        worker->acked = calloc(ACKED_RECORDS, sizeof *worker->acked);
    if (!worker->slots || !worker->values || !worker->idle || !worker->done ||
        (options->acked_fd >= 0 && !worker->acked))
        return ROWAN_ENOMEM;
    for (uint32_t i = 0; i < options->depth; i++) {
        worker->slots[i] =
            (struct slot){.worker = worker, .value = worker->values + (size_t)i * room};
        worker->idle[worker->idle_count++] = &worker->slots[i];
    }
    return 0;
}

static void worker_fini(struct worker *worker)
{
    free(worker->acked);
    free(worker->done);
    free(worker->idle);
    free(worker->values);
    free(worker->slots);
}

static void show(const struct run_options *options, struct worker *workers,
                 struct progress *progress, uint64_t run_ns, uint64_t *before, uint64_t *before_ns)
{
    uint64_t completed = 0, failed = 0;
    uint64_t whole = options->load && !options->operations ? options->records : options->operations;

    for (uint32_t i = 0; i < options->threads; i++) {
        completed += atomic_load_explicit(&workers[i].completed, memory_order_relaxed);
        failed += atomic_load_explicit(&workers[i].failed, memory_order_relaxed);
    }
    double rate = (double)(completed - *before) * 1e9 / (double)(run_ns - *before_ns);
    double percent = whole ? 100 * (double)completed / (double)whole
                           : 100 * (double)run_ns / (double)options->run_ns;

    progress_line(progress, "%s: %3.0f %%, %.0f s, %llu operations, %.0f a second, %llu errors",
                  options->name, percent, (double)run_ns / 1e9, (unsigned long long)completed, rate,
                  (unsigned long long)failed);
    *before = completed;
    *before_ns = run_ns;
}

/* Waits for all threads, holding the crew's lock but while it sleeps. */
static void supervise(const struct run_options *options, struct worker *workers, struct crew *crew)
{
    struct clock *clock = clock_system();
    uint64_t before = 0, before_ns = 0;
    struct progress progress;

    progress_init(&progress, crew->start_ns);
    while (crew->running > 0) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&crew->changed, &crew->lock, &until);
        uint64_t now_ns = clock_now_ns(clock);

        if (crew->running > 0 && progress_due(&progress, now_ns))
            show(options, workers, &progress, now_ns - crew->start_ns, &before, &before_ns);
    }
    progress_end(&progress);
}

static void start_and_wait(const struct run_options *options, struct worker *workers,
                           struct crew *crew, uint32_t threads)
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

static int gather(const struct run_options *options, const struct worker *workers,
                  struct run_result *out)
{
    for (uint32_t i = 0; i < options->threads; i++) {
        const struct run_result *one = &workers[i].result;

        if (workers[i].error)
            return workers[i].error;
        for (int kind = 0; kind < RUN_KINDS; kind++)
            histogram_merge(&out->latencies[kind], &one->latencies[kind]);
        for (int error = 0; error < RUN_ERRORS; error++)
            out->errors_by[error] += one->errors_by[error];
        out->operations += one->operations;
        out->not_found += one->not_found;
        out->errors += one->errors;
        out->run_ns = one->run_ns > out->run_ns ? one->run_ns : out->run_ns;
    }
    return 0;
}

int runner_run(const struct run_options *options, struct run_result *out)
{
    struct worker *workers =
        aligned_alloc(_Alignof(struct worker), options->threads * sizeof *workers);
    struct crew crew = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    uint32_t threads = 0;
    int error = 0;

    if (!workers)
        return ROWAN_ENOMEM;
    memset(workers, 0, options->threads * sizeof *workers);
    for (uint32_t i = 0; i < options->threads && !error; i++)
        error = worker_init(&workers[i], options, &crew, i);
    crew.running = options->threads;
    while (!error && threads < options->threads) {
        if (pthread_create(&workers[threads].thread, NULL, run_worker, &workers[threads]) != 0)
            error = ROWAN_ENOMEM;
        else
            threads++;
    }
    start_and_wait(options, workers, &crew, threads);
    memset(out, 0, sizeof *out);
    if (!error)
        error = gather(options, workers, out);
    for (uint32_t i = 0; i < options->threads; i++)
        worker_fini(&workers[i]);
    free(workers);
    return error;
}
