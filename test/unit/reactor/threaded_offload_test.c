#define TEST_FIXTURE reset_tasks, NULL

#include <semaphore.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/reactor/offload.h"
#include "common/reactor/reactor.h"
#include "test/lib/unit.h"
#include "test/lib/wait.h"

enum { SLOTS = 256 };

struct journal {
    unsigned count;
    unsigned entries[2 * SLOTS];
};

/* One job: waits for `gate` if it has one, then writes its number down. */
struct task {
    struct journal *journal;
    sem_t *gate;
    unsigned number;
};

static struct journal journal; /* not atomic: offload_done must make it visible */
static struct task tasks[2 * SLOTS];

static void run_task(void *argument)
{
    struct task *task = argument;

    if (task->gate != NULL)
        sem_wait(task->gate);
    task->journal->entries[task->journal->count++] = task->number;
}

static int reset_tasks(void **state)
{
    (void)state;
    journal.count = 0;
    for (unsigned i = 0; i < 2 * SLOTS; i++)
        tasks[i] = (struct task){.journal = &journal, .number = i};
    return 0;
}

TEST(jobs_run_in_the_order_they_were_posted)
{
    struct offload *offload;
    uint64_t job;

    assert_int_equal(offload_create("offload", &offload), 0);
    assert_int_equal(offload_done(offload), 0);
    for (unsigned i = 0; i < 2 * SLOTS; i++) {
        if (i >= SLOTS)
            assert_true(WAIT_FOR(offload_done(offload) > i - SLOTS));
        assert_int_equal(offload_post(offload, run_task, &tasks[i], &job), 0);
        assert_int_equal(job, i + 1);
    }
    assert_true(WAIT_FOR(offload_done(offload) == 2 * SLOTS));
    assert_int_equal(journal.count, 2 * SLOTS);
    for (unsigned i = 0; i < 2 * SLOTS; i++)
        assert_int_equal(journal.entries[i], i);
    offload_destroy(offload);
}

TEST(what_a_done_job_wrote_is_visible_while_later_jobs_run)
{
    struct offload *offload;
    struct journal first = {0};
    sem_t gate;
    uint64_t job;

    sem_init(&gate, 0, 0);
    tasks[0].journal = &first;
    tasks[1].gate = &gate;
    assert_int_equal(offload_create("offload", &offload), 0);
    assert_int_equal(offload_post(offload, run_task, &tasks[0], &job), 0);
    assert_int_equal(offload_post(offload, run_task, &tasks[1], &job), 0);
    assert_true(WAIT_FOR(offload_done(offload) == 1));
    assert_int_equal(first.count, 1);
    assert_int_equal(offload_done(offload), 1); /* the second waits at its gate */
    sem_post(&gate);
    assert_true(WAIT_FOR(offload_done(offload) == 2));
    offload_destroy(offload);
    sem_destroy(&gate);
}

TEST(the_job_behind_256_waiting_ones_is_refused)
{
    struct offload *offload;
    sem_t gate;
    uint64_t job = 0;

    sem_init(&gate, 0, 0);
    tasks[0].gate = &gate;
    assert_int_equal(offload_create("offload", &offload), 0);
    for (unsigned i = 0; i < SLOTS; i++)
        assert_int_equal(offload_post(offload, run_task, &tasks[i], &job), 0);
    assert_int_equal(offload_post(offload, run_task, &tasks[SLOTS], &job), ROWAN_EAGAIN);
    assert_int_equal(job, SLOTS);
    sem_post(&gate);
    assert_true(WAIT_FOR(offload_done(offload) > 0));
    assert_int_equal(offload_post(offload, run_task, &tasks[SLOTS], &job), 0);
    assert_int_equal(job, SLOTS + 1);
    offload_destroy(offload);
    assert_int_equal(journal.count, SLOTS + 1);
    assert_int_equal(journal.entries[SLOTS], SLOTS);
    sem_destroy(&gate);
}

TEST(destroy_waits_for_all_posted_jobs)
{
    struct offload *offload;
    uint64_t job;

    assert_int_equal(offload_create("offload", &offload), 0);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(offload_post(offload, run_task, &tasks[i], &job), 0);
    offload_destroy(offload);
    assert_int_equal(journal.count, 100);
    offload_destroy(NULL);
}

/* Posts a job when the one before is done, and sleeps in between: only the wake-up of the helper
 * moves it on. */
struct chain {
    struct offload *offload;
    struct reactor *reactor;
    uint64_t job;
    uint64_t deadline_ns;
    bool late;
};

enum { CHAIN_JOBS = 2000 };

static void run_nothing(void *argument)
{
    (void)argument;
}

static enum poll_result poll_chain(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct chain *chain = role;

    if (chain->deadline_ns < *wake_ns)
        *wake_ns = chain->deadline_ns;
    chain->late = now_ns >= chain->deadline_ns;
    if (chain->late || chain->job == CHAIN_JOBS)
        reactor_stop(chain->reactor);
    else if (offload_done(chain->offload) == chain->job)
        offload_post(chain->offload, run_nothing, NULL, &chain->job);
    return POLL_IDLE;
}

TEST(a_job_that_is_done_wakes_the_sleeping_reactor)
{
    const struct reactor_options options = {"chain", clock_system(), 0, -1};
    struct chain chain = {.deadline_ns = clock_now_ns(clock_system()) + 60 * NS_PER_S};
    struct poller poller = {"chain", poll_chain, &chain, NULL};

    assert_int_equal(offload_create("offload", &chain.offload), 0);
    assert_int_equal(reactor_create(&options, &chain.reactor), 0);
    offload_set_reactor(chain.offload, chain.reactor);
    assert_int_equal(reactor_add_poller(chain.reactor, &poller), 0);
    reactor_run(chain.reactor);
    assert_false(chain.late);
    assert_int_equal(chain.job, CHAIN_JOBS);
    offload_destroy(chain.offload); /* before the reactor it wakes */
    reactor_destroy(chain.reactor);
}

UNIT_MAIN(NULL, NULL)
