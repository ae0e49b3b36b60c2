/* Jobs of a shard's owner, taken back by the control role on another thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "server/note.h"

enum { JOBS = 20000, AT_A_TIME = 4 };

struct run {
    struct inbox outbox;
    uint32_t taken;
};

/* Like control_admin_done: it frees what comes back at once. */
static void *take_back(void *argument)
{
    struct run *run = argument;
    struct note note;

    while (run->taken < JOBS) {
        if (!note_pop(&run->outbox, &note))
            continue;
        memset(note.job, 0xff, sizeof *note.job);
        free(note.job);
        run->taken++;
    }
    return NULL;
}

static void a_finished_digest_belongs_to_who_asked_for_it(void **state)
{
    struct run run = {0};
    struct digest_jobs jobs = {0};
    pthread_t thread;

    (void)state;
    assert_int_equal(inbox_init(&run.outbox, 64), 0);
    assert_int_equal(pthread_create(&thread, NULL, take_back, &run), 0);
    for (uint32_t i = 0; i < JOBS; i += AT_A_TIME) {
        for (uint32_t k = 0; k < AT_A_TIME; k++) {
            struct digest_job *job = calloc(1, sizeof *job);

            assert_non_null(job);
            digest_jobs_add(&jobs, job, NULL);
        }
        while (digest_jobs_poll(&jobs, &run.outbox, NULL, NULL))
            ;
        assert_null(jobs.first);
        assert_null(jobs.last);
    }
    pthread_join(thread, NULL);
    assert_int_equal(run.taken, JOBS);
    inbox_fini(&run.outbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_finished_digest_belongs_to_who_asked_for_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
