#include <pthread.h>
#include <sched.h>

#include "common/base/ring.h"
#include "test/lib/unit.h"

enum { ITEMS = 200000, CAPACITY = 64 };

static uint64_t numbers[ITEMS]; /* not atomic: the ring must make them visible */

TEST(a_full_ring_refuses_and_an_empty_one_has_nothing)
{
    struct ring ring;
    int items[5];

    assert_int_equal(ring_init(&ring, 4), 0);
    assert_null(ring_pop(&ring));
    for (unsigned i = 0; i < 4; i++)
        assert_true(ring_push(&ring, &items[i]));
    assert_false(ring_push(&ring, &items[4]));
    for (unsigned i = 0; i < 4; i++)
        assert_ptr_equal(ring_pop(&ring), &items[i]);
    assert_null(ring_pop(&ring));
    assert_true(ring_push(&ring, &items[4]));
    assert_ptr_equal(ring_pop(&ring), &items[4]);
    ring_fini(&ring);
}

TEST(order_and_capacity_hold_when_the_counters_wrap)
{
    struct ring ring;
    int items[9];

    assert_int_equal(ring_init(&ring, 8), 0);
    atomic_store(&ring.head, UINT32_MAX - 3); /* as after 2^32 - 4 items */
    atomic_store(&ring.tail, UINT32_MAX - 3);
    for (unsigned i = 0; i < 8; i++)
        assert_true(ring_push(&ring, &items[i]));
    assert_false(ring_push(&ring, &items[8]));
    for (unsigned i = 0; i < 8; i++)
        assert_ptr_equal(ring_pop(&ring), &items[i]);
    assert_null(ring_pop(&ring));
    ring_fini(&ring);
}

static void *push_numbers(void *argument)
{
    struct ring *ring = argument;

    for (uint64_t i = 0; i < ITEMS; i++) {
        numbers[i] = i + 1;
        while (!ring_push(ring, &numbers[i]))
            sched_yield();
    }
    return NULL;
}

TEST(two_threads_hand_over_all_items_in_order_and_whole)
{
    struct ring ring;
    pthread_t producer;
    uint64_t wrong = 0;

    assert_int_equal(ring_init(&ring, CAPACITY), 0);
    assert_int_equal(pthread_create(&producer, NULL, push_numbers, &ring), 0);
    for (uint64_t i = 0; i < ITEMS; i++) {
        uint64_t *number;

        while ((number = ring_pop(&ring)) == NULL)
            sched_yield();
        wrong += *number != i + 1;
        *number = 0; /* the consumer's now */
    }
    pthread_join(producer, NULL);
    assert_int_equal(wrong, 0);
    assert_null(ring_pop(&ring));
    ring_fini(&ring);
}

UNIT_MAIN(NULL, NULL)
