/* offload.c - a helper thread for blocking system calls. Jobs live in a fixed table; job n has slot
 * n mod 256. A semaphore counts the jobs that the helper may take.
 *
 * O1 done <= posted <= done + 256: a slot is written only when the job that had it is done.
 * O2 The semaphore is raised once for each job, and once more by destroy: a helper that wakes and
 *    finds every posted job done has been told to end.
 */
#include "common/reactor/offload.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/reactor/reactor.h"
#include "common/reactor/thread.h"

enum { JOB_SLOTS = 256 };

struct job {
    offload_function *run;
    void *argument;
};

struct offload {
    struct job jobs[JOB_SLOTS];
    _Atomic uint64_t posted; /* written by the owner */
    _Atomic uint64_t done;   /* written by the helper */
    struct reactor *reactor;
    sem_t waiting;
    pthread_t thread;
};

static void wait_for_job(struct offload *offload)
{
    while (sem_wait(&offload->waiting) != 0)
        ASSERT(errno == EINTR);
}

static void *run_helper(void *argument)
{
    struct offload *offload = argument;
    uint64_t done = 0;

    for (;;) {
        struct job job;

        wait_for_job(offload);
        if (atomic_load_explicit(&offload->posted, memory_order_acquire) == done)
            return NULL; /* O2 */
        job = offload->jobs[(done + 1) % JOB_SLOTS];
        job.run(job.argument);
        done++;
        atomic_store_explicit(&offload->done, done, memory_order_release);
        if (offload->reactor != NULL)
            reactor_wake(offload->reactor);
    }
}

int offload_create(const char *name, struct offload **out)
{
    struct offload *offload;
    int failed;

    offload = calloc(1, sizeof(*offload));
    if (offload == NULL)
        goto no_memory;
    failed = sem_init(&offload->waiting, 0, 0);
    ASSERT(failed == 0); /* sem_init(3): only a start value over the limit can fail */
    if (thread_start(&offload->thread, name, run_helper, offload))
        goto no_thread;
    *out = offload;
    return 0;

no_thread:
    sem_destroy(&offload->waiting);
    free(offload);
no_memory:
    return ROWAN_ENOMEM;
}

void offload_destroy(struct offload *offload)
{
    if (offload == NULL)
        return;
    sem_post(&offload->waiting);
    pthread_join(offload->thread, NULL);
    ASSERT(atomic_load(&offload->done) == atomic_load(&offload->posted));
    sem_destroy(&offload->waiting);
    free(offload);
}

void offload_set_reactor(struct offload *offload, struct reactor *reactor)
{
    ASSERT(atomic_load_explicit(&offload->posted, memory_order_relaxed) == 0);
    offload->reactor = reactor;
}

int offload_post(struct offload *offload, offload_function *run, void *argument, uint64_t *job)
{
    uint64_t posted = atomic_load_explicit(&offload->posted, memory_order_relaxed);

    if (posted - offload_done(offload) >= JOB_SLOTS)
        return ROWAN_EAGAIN; /* O1 */
    posted++;
    offload->jobs[posted % JOB_SLOTS] = (struct job){.run = run, .argument = argument};
    atomic_store_explicit(&offload->posted, posted, memory_order_release);
    sem_post(&offload->waiting);
    *job = posted;
    return 0;
}

uint64_t offload_done(const struct offload *offload)
{
    return atomic_load_explicit(&offload->done, memory_order_acquire);
}
