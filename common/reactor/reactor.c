/* reactor.c - polls roles on one thread, and sleeps in ppoll when all have been idle long enough.
 * While a role is busy the loop is polls and one clock read a round: no system call, no atomic
 * write.
 *
 * W1 A wake-up is not lost. Sleeper and waker both do a read-modify-write on `sleep`. If the
 * waker's comes first, the sleeper's acquires what the waker published and the poll after it sees
 * it; if the sleeper's comes first, the waker reads SLEEPING and writes the eventfd. Two operations
 * on one object order themselves without a stand-alone fence.
 *
 * W2 Only the waker that moves SLEEPING to NOTIFIED writes the eventfd: one system call per sleep. A
 * later waker that finds NOTIFIED is ordered before the move to AWAKE, so its work is seen too.
 *
 * W3 Sources are armed exactly from before the last poll until after the sleep.
 *
 *    AWAKE --(sleeper: try_sleep)--> SLEEPING --(waker: reactor_wake)--> NOTIFIED
 *      ^                                |                                   |
 *      +------(sleeper: try_sleep)------+-----------------------------------+
 */
#include "common/reactor/reactor.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/reactor/wait.h"

enum { NAME_BYTES = 16 };

#define WINDOW_NS (20 * NS_PER_MS) /* in which it is measured how long polls are busy */

enum sleep_state { AWAKE, SLEEPING, NOTIFIED };

struct turn {
    struct poller poller;
    uint64_t busy_ns; /* of this window, by the reactor's clock */
};

struct reactor {
    char name[NAME_BYTES];
    struct clock *clock;
    _Atomic uint64_t spin_ns;
    int cpu;
    struct turn *turns;
    size_t turn_count;
    uint64_t window_ns, slept_ns, cpu_ns; /* its begin; of it; the thread's, at the begin */
    struct event_source *sources;
    size_t source_count;
    struct pollfd *waits; /* the wake-up's fd, then those of the sources */
    int wake_fd;
    bool started;
    pthread_t thread;
    _Atomic bool stopping; /* set once, never cleared */
    _Atomic uint32_t sleep;
};

int reactor_create(const struct reactor_options *options, struct reactor **out)
{
    struct reactor *reactor = calloc(1, sizeof(*reactor));
    int error = ROWAN_ENOMEM;

    ASSERT(strlen(options->name) < NAME_BYTES);
    if (reactor == NULL)
        return error;
    reactor->waits = calloc(1, sizeof(*reactor->waits));
    if (reactor->waits == NULL)
        goto failed;
    error = ROWAN_EIO;
    reactor->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (reactor->wake_fd < 0)
        goto failed;
    reactor->waits[0] = (struct pollfd){.fd = reactor->wake_fd, .events = POLLIN};
    snprintf(reactor->name, sizeof(reactor->name), "%s", options->name);
    reactor->clock = options->clock;
    reactor->spin_ns = options->spin_ns;
    reactor->cpu = options->cpu;
    *out = reactor;
    return 0;

failed:
    free(reactor->waits);
    free(reactor);
    return error;
}

void reactor_destroy(struct reactor *reactor)
{
    if (reactor == NULL)
        return;
    ASSERT(!reactor->started);
    close(reactor->wake_fd);
    free(reactor->waits);
    free(reactor->sources);
    free(reactor->turns);
    free(reactor);
}

int reactor_add_poller(struct reactor *reactor, const struct poller *poller)
{
    struct turn *grown = realloc(reactor->turns, (reactor->turn_count + 1) * sizeof(*grown));

    ASSERT(!reactor->started);
    if (grown == NULL)
        return ROWAN_ENOMEM;
    reactor->turns = grown;
    reactor->turns[reactor->turn_count++] = (struct turn){.poller = *poller};
    return 0;
}

int reactor_add_source(struct reactor *reactor, const struct event_source *source)
{
    const size_t count = reactor->source_count + 1;
    struct event_source *sources = realloc(reactor->sources, count * sizeof(*sources));
    struct pollfd *waits = NULL;

    ASSERT(!reactor->started);
    if (sources != NULL) {
        reactor->sources = sources;
        waits = realloc(reactor->waits, (1 + count) * sizeof(*waits));
    }
    if (waits == NULL)
        return ROWAN_ENOMEM;
    reactor->waits = waits;
    waits[count] = (struct pollfd){.fd = source->fd, .events = POLLIN};
    sources[reactor->source_count++] = *source;
    return 0;
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec cpu;
    ASSERT(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu) == 0);
    return (uint64_t)cpu.tv_sec * NS_PER_S + (uint64_t)cpu.tv_nsec;
}

/* Of the time that busy polls took by the clock the thread had a processor for as large a part as of all that it was awake. */
static void close_window(struct reactor *reactor, uint64_t now_ns)
{
    const uint64_t cpu_ns = thread_cpu_ns(), used_ns = cpu_ns - reactor->cpu_ns,
                   awake_ns = now_ns - reactor->window_ns - reactor->slept_ns;
    const double share = used_ns < awake_ns ? (double)used_ns / (double)awake_ns : 1;

    for (size_t i = 0; i < reactor->turn_count; i++) {
        struct turn *turn = &reactor->turns[i];
        if (turn->poller.busy_ns)
            atomic_fetch_add_explicit(turn->poller.busy_ns,
                                      (uint64_t)((double)turn->busy_ns * share),
                                      memory_order_relaxed);
        turn->busy_ns = 0;
    }
    reactor->window_ns = now_ns;
    reactor->cpu_ns = cpu_ns;
    reactor->slept_ns = 0;
}

static enum poll_result poll_roles(struct reactor *reactor, uint64_t now_ns, uint64_t *wake_ns)
{
    enum poll_result result = POLL_IDLE;
    uint64_t since_ns = now_ns;

    *wake_ns = WAKE_NEVER;
    for (size_t i = 0; i < reactor->turn_count; i++) {
        struct turn *turn = &reactor->turns[i];

        if (turn->poller.poll(turn->poller.role, now_ns, wake_ns) != POLL_BUSY)
            continue;
        result = POLL_BUSY;
        if (turn->poller.busy_ns) { /* with the polls in front of it that found nothing */
            const uint64_t until_ns = clock_now_ns(reactor->clock);
            turn->busy_ns += until_ns - since_ns;
            since_ns = until_ns;
        }
    }
    return result;
}

static void drain_wake_fd(struct reactor *reactor)
{
    uint64_t count;
    ssize_t got = read(reactor->wake_fd, &count, sizeof(count));

    ASSERT(got == (ssize_t)sizeof(count) || errno == EAGAIN || errno == EINTR);
}

/* Every role was idle for long enough: one last poll with all sources armed, then sleep. */
static void try_sleep(struct reactor *reactor)
{
    uint64_t wake_ns;
    bool readable = false;

    for (size_t i = 0; i < reactor->source_count; i++)
        reactor->sources[i].arm(reactor->sources[i].context);
    atomic_exchange_explicit(&reactor->sleep, SLEEPING, memory_order_seq_cst); /* W1 */
    if (poll_roles(reactor, clock_now_ns(reactor->clock), &wake_ns) == POLL_IDLE &&
        !atomic_load_explicit(&reactor->stopping, memory_order_acquire)) {
        const uint64_t since_ns = clock_now_ns(reactor->clock);
        const int found =
            wait_readable(reactor->waits, 1 + reactor->source_count, reactor->clock, wake_ns);

        ASSERT(found >= 0);
        readable = found > 0 && reactor->waits[0].revents != 0;
        reactor->slept_ns += clock_now_ns(reactor->clock) - since_ns;
    }
    /* W2: an exchange, not a store, so that what a second waker published is acquired. A waker between
     * its exchange and its write leaves the fd readable: the next sleep ends at once and drains it. */
    if (atomic_exchange_explicit(&reactor->sleep, AWAKE, memory_order_seq_cst) == NOTIFIED ||
        readable)
        drain_wake_fd(reactor);
    for (size_t i = 0; i < reactor->source_count; i++)
        reactor->sources[i].disarm(reactor->sources[i].context);
}

static void pin_thread(const struct reactor *reactor)
{
    cpu_set_t cpus;
    int failed;

    if (reactor->cpu < 0)
        return;
    CPU_ZERO(&cpus);
    CPU_SET((unsigned)reactor->cpu, &cpus);
    failed = pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
    if (failed != 0)
        log_event(LOG_WARN, "reactor_not_pinned", "reactor=%s cpu=%d reason=\"%s\"", reactor->name,
                  reactor->cpu, strerror(failed));
}

void reactor_run(struct reactor *reactor)
{
    uint64_t idle_since_ns = 0;
    unsigned yields = 0;
    bool idle = false;

    pin_thread(reactor);
    close_window(reactor, clock_now_ns(reactor->clock));
    while (!atomic_load_explicit(&reactor->stopping, memory_order_acquire)) {
        uint64_t now_ns = clock_now_ns(reactor->clock);
        uint64_t wake_ns;

        if (now_ns - reactor->window_ns >= WINDOW_NS)
            close_window(reactor, now_ns);
        if (poll_roles(reactor, now_ns, &wake_ns) == POLL_BUSY) {
            idle = false;
            yields = 0;
            continue;
        }
        if (!idle) {
            idle = true;
            idle_since_ns = now_ns;
        }
        if (now_ns - idle_since_ns <
            atomic_load_explicit(&reactor->spin_ns, memory_order_relaxed)) {
            __builtin_ia32_pause();
            continue;
        }
        if (yields++ < WAIT_YIELDS) {
            wait_yield();
            continue;
        }
        try_sleep(reactor);
        idle = false;
        yields = 0;
    }
}

void reactor_spin(struct reactor *reactor, uint64_t spin_ns)
{
    atomic_store_explicit(&reactor->spin_ns, spin_ns, memory_order_relaxed);
}

static void *run_thread(void *argument)
{
    reactor_run(argument);
    return NULL;
}

int reactor_start(struct reactor *reactor)
{
    ASSERT(!reactor->started);
    if (pthread_create(&reactor->thread, NULL, run_thread, reactor) != 0)
        return ROWAN_ENOMEM;
    pthread_setname_np(reactor->thread, reactor->name);
    reactor->started = true;
    return 0;
}

void reactor_join(struct reactor *reactor)
{
    ASSERT(reactor->started);
    pthread_join(reactor->thread, NULL);
    reactor->started = false;
}

/* A full counter is the only way this write can fail, and then the fd is readable as wanted. */
static void write_wake_fd(struct reactor *reactor)
{
    const uint64_t one = 1;
    ssize_t written = write(reactor->wake_fd, &one, sizeof(one));

    ASSERT(written == (ssize_t)sizeof(one) || errno == EAGAIN);
}

void reactor_stop(struct reactor *reactor)
{
    int errno_before = errno; /* a signal handler must leave it as it was */

    atomic_store_explicit(&reactor->stopping, true, memory_order_release);
    write_wake_fd(reactor);
    errno = errno_before;
}

void reactor_wake(struct reactor *reactor)
{
    uint32_t expected = SLEEPING;

    /* Adding nothing is a read that takes its place in the order of writes (W1). */
    if (atomic_fetch_add_explicit(&reactor->sleep, 0, memory_order_seq_cst) != SLEEPING)
        return;
    if (atomic_compare_exchange_strong_explicit(&reactor->sleep, &expected, NOTIFIED,
                                                memory_order_seq_cst, memory_order_relaxed))
        write_wake_fd(reactor); /* W2 */
}
