/* Readers that follow a word while another thread takes away what it leads to, and uses the place again. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "server/store/reclaim.h"
#include "test/lib/unit.h"

enum { READERS = 3, PLACES = 4, WORDS = 8, REUSES = 20000, KEPT_POLLS = 3 };

struct stage {
    struct reclaim reclaim;
    struct reclaim_role roles[READERS];
    uint64_t places[PLACES]
                   [WORDS]; /* all words of one are equal, odd while the index may name it */
    _Atomic uint32_t index; /* the place to read */
    _Atomic uint32_t entered;
    _Atomic bool ended;
    _Atomic uint64_t wrong, kept;
};

struct reader {
    struct stage *stage;
    uint32_t number;
};

/* Plain reads: if the algorithm lets a place go too early, the thread sanitizer sees it as well. */
static uint64_t is_wrong(const uint64_t *words)
{
    uint64_t wrong = words[0] % 2 == 0;

    for (unsigned i = 1; i < WORDS; i++)
        wrong += words[i] != words[0];
    return wrong;
}

static const uint64_t *follow(struct stage *stage)
{
    return stage->places[atomic_load_explicit(&stage->index, memory_order_acquire)];
}

/* Polls; now and then it keeps for a few polls what it found. */
static void *read_run(void *argument)
{
    const struct reader *reader = argument;
    struct stage *stage = reader->stage;
    struct reclaim_role *role = &stage->roles[reader->number];
    uint64_t wrong = 0, kept = 0, polls = 0;

    reclaim_leave(role, RECLAIM_NOTHING);
    atomic_fetch_add(&stage->entered, 1);
    while (!atomic_load_explicit(&stage->ended, memory_order_relaxed)) {
        const uint64_t since = reclaim_enter(&stage->reclaim, role);
        const uint64_t *found = follow(stage);

        wrong += is_wrong(found);
        if (++polls % 8 == reader->number) {
            const uint64_t value = found[0];

            for (unsigned i = 0; i < KEPT_POLLS; i++) {
                reclaim_leave(role, since);
                sched_yield();
                reclaim_enter(&stage->reclaim, role);
                wrong += is_wrong(found) + (found[0] != value);
            }
            kept++;
        }
        reclaim_leave(role, RECLAIM_NOTHING);
        if (polls % 64 == 0)
            sched_yield();
    }
    atomic_fetch_add(&stage->wrong, wrong);
    atomic_fetch_add(&stage->kept, kept);
    return NULL;
}

static void fill(uint64_t *words, uint64_t value)
{
    for (unsigned i = 0; i < WORDS; i++)
        words[i] = value;
}

/* Moves the index on, retires the old place, and poisons it as soon as nobody needs it. */
static void reuse(struct stage *stage)
{
    for (uint64_t i = 1; i <= REUSES; i++) {
        const uint32_t old = atomic_load_explicit(&stage->index, memory_order_relaxed);
        const uint32_t next = (old + 1) % PLACES;

        fill(stage->places[next], 2 * i + 1);
        atomic_store_explicit(&stage->index, next, memory_order_release);
        const uint64_t ticket = reclaim_retire(&stage->reclaim);
        while (!reclaim_is_over(&stage->reclaim, ticket))
            sched_yield();
        fill(stage->places[old], 0);
    }
}

TEST(nobody_reads_a_place_that_is_used_again)
{
    static struct stage stage;
    pthread_t threads[READERS];
    struct reader readers[READERS];

    reclaim_init(&stage.reclaim);
    fill(stage.places[0], 1);
    for (uint32_t i = 0; i < READERS; i++)
        reclaim_join(&stage.reclaim, &stage.roles[i]);
    for (uint32_t i = 0; i < READERS; i++) {
        readers[i] = (struct reader){&stage, i};
        assert_int_equal(pthread_create(&threads[i], NULL, read_run, &readers[i]), 0);
    }
    while (atomic_load(&stage.entered) < READERS)
        sched_yield();
    reuse(&stage);
    atomic_store(&stage.ended, true);
    for (uint32_t i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_true(atomic_load(&stage.kept) > 0);
    assert_int_equal(atomic_load(&stage.wrong), 0);
}

UNIT_MAIN(NULL, NULL)
