/* Jobs of a shard's owner, taken back by the control role on another thread. */
#include "common/reactor/reactor.h"
#include "server/note.h"
#include "test/lib/unit.h"

enum { JOBS = 20000, AT_A_TIME = 4 /* in a list */ };

struct run {
    struct inbox outbox;
    _Atomic uint32_t taken;
};

/* Like the control role: it frees what comes back at once. */
static enum poll_result take_back(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct run *run = role;
    struct note note;
    bool any = false;

    (void)now_ns;
    (void)wake_ns;
    while (note_pop(&run->outbox, &note)) {
        memset(note.job, 0xff, sizeof *note.job);
        free(note.job);
        atomic_fetch_add(&run->taken, 1);
        any = true;
    }
    return any ? POLL_BUSY : POLL_IDLE;
}

static void push_some(struct run *run)
{
    struct digest_jobs jobs = {0};

    for (uint32_t i = 0; i < AT_A_TIME; i++) {
        struct digest_job *job = calloc(1, sizeof *job);

        assert_non_null(job);
        digest_jobs_add(&jobs, job, NULL);
    }
    while (digest_jobs_poll(&jobs, &run->outbox, NULL, NULL))
        ;
    assert_null(jobs.first);
    assert_null(jobs.last);
}

TEST(a_finished_digest_belongs_to_who_asked_for_it)
{
    struct run run = {0};
    const struct reactor_options options = {.name = "control", .clock = clock_system(), .cpu = -1};
    const struct poller poller = {"control", take_back, &run};
    struct reactor *reactor;

    assert_int_equal(inbox_init(&run.outbox, 64), 0);
    assert_int_equal(reactor_create(&options, &reactor), 0);
    assert_int_equal(reactor_add_poller(reactor, &poller), 0);
    inbox_set_reactor(&run.outbox, reactor);
    assert_int_equal(reactor_start(reactor), 0);
    for (uint32_t i = 0; i < JOBS; i += AT_A_TIME)
        push_some(&run);
    while (atomic_load(&run.taken) < JOBS)
        ;
    reactor_stop(reactor);
    reactor_join(reactor);
    reactor_destroy(reactor);
    inbox_fini(&run.outbox);
}

UNIT_MAIN(NULL, NULL)
