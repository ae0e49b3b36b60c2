/* threaded_pm_test.c - several threads store and fence in one map. The sync is replaced by one that
 * copies each thread's word into an image of the medium: a ticket that is done means that the image
 * has what its thread stored before. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "common/pm/pm.h"
#include "common/pm/pm_map.h"
#include "test/lib/temp_dir.h"
#include "test/lib/unit.h"

enum { THREADS = 4, ROUNDS = 2000, WORD_STRIDE = 64, MAP_BYTES = 4096 };

static const uint8_t *map_base;
static _Atomic uint64_t image[THREADS];

static int sync_to_image(int fd)
{
    (void)fd;
    for (size_t i = 0; i < THREADS; i++) {
        const uint64_t *word = (const uint64_t *)(const void *)(map_base + i * WORD_STRIDE);

        atomic_store(&image[i], __atomic_load_n(word, __ATOMIC_ACQUIRE));
        sched_yield(); /* lets stores and fences fall between the words */
    }
    return 0;
}

struct storer {
    struct pm *pm;
    uint64_t number;
    uint64_t lost; /* rounds whose store was not in the image when its ticket was done */
    int error;
};

static void *run_storer(void *argument)
{
    struct storer *storer = argument;

    for (uint64_t round = 1; round <= ROUNDS; round++) {
        struct pm_ticket ticket;
        int done;

        pm_store(storer->pm, storer->number * WORD_STRIDE, &round, sizeof(round));
        ticket = pm_fence_start(storer->pm);
        while ((done = pm_fence_done(storer->pm, ticket)) == 0)
            sched_yield();
        if (done < 0)
            storer->error = done;
        if (atomic_load(&image[storer->number]) < round)
            storer->lost++;
    }
    return NULL;
}

TEST(a_done_ticket_covers_what_its_thread_stored_before)
{
    struct temp_dir dir;
    struct storer storers[THREADS];
    pthread_t threads[THREADS];
    struct pm_open_options options = {.bytes = MAP_BYTES, .create = 1, .durability = PM_FENCE};
    struct pm *pm;

    temp_dir_init(&dir);
    options.path = temp_dir_at(&dir, "pm");
    assert_int_equal(pm_open(&options, &pm), 0);
    map_base = pm->base;
    pm_file_set_sync(pm, sync_to_image);
    for (size_t i = 0; i < THREADS; i++) {
        storers[i] = (struct storer){.pm = pm, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, run_storer, &storers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(storers[i].error, 0);
        assert_int_equal(storers[i].lost, 0);
    }
    assert_true(pm_sync_count(pm) >= ROUNDS);
    assert_true(pm_sync_count(pm) <= THREADS * ROUNDS);
    pm_close(pm);
    temp_dir_fini(&dir);
}

UNIT_MAIN(NULL, NULL)
