/* threaded_coord_test.c - two owners on two threads, each with its handle on one directory, raise
 * one number by compare-and-set. */
#include <pthread.h>
#include <sys/stat.h>

#include "common/base/error.h"
#include "common/coord/coord.h"
#include "test/lib/temp_dir.h"
#include "test/lib/unit.h"
#include "test/lib/wait.h"

enum { OWNERS = 2, GOAL = 50 };

struct owner {
    struct coord *coord;
    unsigned raised;
    unsigned number; /* of the last read */
    int error;       /* the first that was none of the expected; no assert off the main thread */
};

static void on_read(void *context, int error, const void *value, size_t bytes, uint64_t version);

static void on_cas(void *context, int error, uint64_t version)
{
    struct owner *owner = context;

    (void)version;
    if (error == 0)
        owner->raised++;
    else if (error != ROWAN_EVERSION)
        owner->error = error;
    if (owner->raised < GOAL && !owner->error)
        owner->error = coord_read(owner->coord, on_read, owner);
}

static void on_read(void *context, int error, const void *value, size_t bytes, uint64_t version)
{
    struct owner *owner = context;

    owner->number = 0;
    if (bytes == sizeof(owner->number))
        memcpy(&owner->number, value, bytes);
    owner->number++;
    if (!error)
        error =
            coord_cas(owner->coord, version, &owner->number, sizeof(owner->number), on_cas, owner);
    if (error)
        owner->error = error;
}

static void *run_owner(void *argument)
{
    struct owner *owner = argument;
    const uint64_t end_ns = clock_now_ns(clock_system()) + 2 * WAIT_DEADLINE_NS;

    owner->error = coord_read(owner->coord, on_read, owner);
    while (owner->raised < GOAL && !owner->error) {
        uint64_t now_ns = clock_now_ns(clock_system()), wake_ns = WAKE_NEVER;

        if (coord_poll(owner->coord, now_ns, &wake_ns) == POLL_IDLE)
            wait_pause();
        if (now_ns > end_ns)
            owner->error = ROWAN_ETIMEDOUT;
    }
    return NULL;
}

TEST(owners_on_threads_lose_no_update)
{
    struct temp_dir dir;
    struct owner owners[OWNERS] = {0}, reader = {.raised = GOAL};
    pthread_t threads[OWNERS];
    uint64_t wake_ns = WAKE_NEVER;

    temp_dir_init(&dir);
    for (int i = 0; i < OWNERS; i++) {
        assert_int_equal(coord_open_file(dir.path, NULL, &owners[i].coord), 0);
        assert_int_equal(pthread_create(&threads[i], NULL, run_owner, &owners[i]), 0);
    }
    for (int i = 0; i < OWNERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(owners[i].error, 0);
        coord_close(owners[i].coord);
    }
    assert_int_equal(coord_open_file(dir.path, NULL, &reader.coord), 0);
    assert_int_equal(coord_read(reader.coord, on_read, &reader), 0);
    assert_true(WAIT_FOR((coord_poll(reader.coord, 0, &wake_ns), reader.number > 0)));
    assert_int_equal(reader.error, 0);
    assert_int_equal(reader.number, OWNERS * GOAL + 1); /* on_read adds one */
    coord_close(reader.coord);
    temp_dir_fini(&dir);
}

UNIT_MAIN(NULL, NULL)
