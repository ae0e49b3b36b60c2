/* Threads that allocate at the same time. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "common/base/error.h"
#include "server/store/store.h"
#include "test/lib/heap_pm.h"
#include "test/lib/unit.h"
#include "test/unit/server/format.h"

enum { THREADS = 4, SEGMENTS = 2000, ROUNDS = 20000, HELD = 3 };

static const struct store_identity IDENTITY = {.cluster = 1, .server = 2};

struct stage {
    struct heap_pm *heap;
    struct store *store;
    _Atomic uint32_t holders[SEGMENTS]; /* threads that hold it now */
    _Atomic uint64_t wrong;
    _Atomic uint32_t next_thread;
};

static void stage_init(struct stage *stage)
{
    *stage = (struct stage){0};
    stage->heap = heap_pm_create((uint64_t)(SEGMENTS + 3) * STORE_SEGMENT_BYTES);
    assert_true(store_segments_in(stage->heap->pm.bytes) == SEGMENTS);
    assert_int_equal(store_format(&stage->heap->pm, &IDENTITY), 0);
    assert_int_equal(store_open(&stage->heap->pm, &IDENTITY, &stage->store), 0);
}

static void stage_fini(struct stage *stage)
{
    store_close(stage->store);
    heap_pm_destroy(stage->heap);
}

static void run_threads(struct stage *stage, void *(*run)(void *))
{
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, stage), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* Gives the thread its number, and lets all begin together. */
static uint32_t join_in(struct stage *stage)
{
    uint32_t number = atomic_fetch_add(&stage->next_thread, 1);
    while (atomic_load(&stage->next_thread) < THREADS)
        sched_yield();
    return number;
}

static void *take_all_run(void *argument)
{
    struct stage *stage = argument;
    uint32_t number = join_in(stage);
    uint64_t segment;
    while (store_allocate(stage->store, OWNER_CLEAN, number, &segment) == 0) {
        if (atomic_fetch_add(&stage->holders[segment], 1) != 0)
            atomic_fetch_add(&stage->wrong, 1);
        if (store_meta(stage->store, segment).owner_number != number)
            atomic_fetch_add(&stage->wrong, 1);
    }
    return NULL;
}

TEST(four_threads_get_every_segment_once)
{
    for (unsigned round = 0; round < 100; round++) {
        static struct stage stage;
        stage_init(&stage);
        run_threads(&stage, take_all_run);
        assert_true(atomic_load(&stage.wrong) == 0);
        for (unsigned i = 0; i < SEGMENTS; i++)
            assert_true(atomic_load(&stage.holders[i]) == 1);
        assert_true(store_segments_free(stage.store) == 0);
        assert_true(store_segments_owned(stage.store, OWNER_CLEAN) == SEGMENTS);
        stage_fini(&stage);
    }
}

/* Takes some, gives them back, and goes on; the store is never full. */
static void *take_and_give_run(void *argument)
{
    struct stage *stage = argument;
    uint32_t number = join_in(stage);
    uint64_t wrong = 0, last = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t segments[HELD];
        for (unsigned i = 0; i < HELD; i++) {
            if (store_allocate(stage->store, OWNER_DIGEST, number, &segments[i]) != 0)
                return atomic_fetch_add(&stage->wrong, 1), NULL;
            wrong += atomic_fetch_add(&stage->holders[segments[i]], 1) != 0;
            uint64_t allocation = store_meta(stage->store, segments[i]).allocation;
            wrong += allocation <= last;
            last = allocation;
        }
        for (unsigned i = 0; i < HELD; i++) {
            store_transition(stage->store, segments[i], SEGMENT_DIRTY);
            atomic_fetch_sub(&stage->holders[segments[i]], 1);
            store_transition(stage->store, segments[i], SEGMENT_FREE);
        }
    }
    atomic_fetch_add(&stage->wrong, wrong);
    return NULL;
}

TEST(segments_that_come_and_go_have_one_holder_and_the_counts_stay_right)
{
    static struct stage stage;
    stage_init(&stage);
    run_threads(&stage, take_and_give_run);
    assert_true(atomic_load(&stage.wrong) == 0);
    assert_true(store_segments_free(stage.store) == SEGMENTS);
    assert_true(store_segments_owned(stage.store, OWNER_NONE) == SEGMENTS);
    assert_true(store_segments_owned(stage.store, OWNER_DIGEST) == 0);

    /* PM says the same as the mirror. */
    store_close(stage.store);
    assert_int_equal(store_open(&stage.heap->pm, &IDENTITY, &stage.store), 0);
    assert_true(store_segments_free(stage.store) == SEGMENTS);
    uint64_t segment;
    assert_int_equal(store_allocate(stage.store, OWNER_CLEAN, 0, &segment), 0);
    assert_true(store_meta(stage.store, segment).allocation > (uint64_t)THREADS * ROUNDS);
    stage_fini(&stage);
}

/* Takes what it may, and looks at once what is left. */
static void *take_and_look_run(void *argument)
{
    struct stage *stage = argument;
    const uint32_t number = join_in(stage);
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t segment;
        const int error = store_allocate(stage->store, OWNER_WORKER, number, &segment);
        if (store_segments_free(stage->store) < STORE_CLEAN_SEGMENTS + STORE_DIGEST_SEGMENTS)
            atomic_fetch_add(&stage->wrong, 1);
        if (error)
            continue;
        store_transition(stage->store, segment, SEGMENT_DIRTY);
        store_transition(stage->store, segment, SEGMENT_FREE);
    }
    return NULL;
}

TEST(workers_that_allocate_together_leave_what_is_the_cleaners)
{
    static struct stage stage;
    uint64_t segment;
    stage_init(&stage);
    while (store_segments_free(stage.store) > STORE_CLEAN_SEGMENTS + STORE_DIGEST_SEGMENTS + 1)
        assert_int_equal(store_allocate(stage.store, OWNER_CLEAN, 0, &segment), 0);
    run_threads(&stage, take_and_look_run);
    assert_true(atomic_load(&stage.wrong) == 0);
    stage_fini(&stage);
}

UNIT_MAIN(NULL, NULL)
