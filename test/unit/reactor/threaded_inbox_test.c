#include <pthread.h>
#include <sched.h>

#include "common/reactor/inbox.h"
#include "test/lib/unit.h"

enum { ITEMS = 200000, CAPACITY = 64 };

static uint64_t numbers[ITEMS]; /* not atomic: the inbox must make them visible */

TEST(a_full_inbox_refuses_and_an_empty_one_has_nothing)
{
    struct inbox inbox;
    int items[5];

    assert_int_equal(inbox_init(&inbox, 4), 0);
    assert_null(inbox_pop(&inbox));
    for (unsigned i = 0; i < 4; i++)
        assert_true(inbox_push(&inbox, &items[i]));
    assert_false(inbox_push(&inbox, &items[4]));
    for (unsigned i = 0; i < 4; i++)
        assert_ptr_equal(inbox_pop(&inbox), &items[i]);
    assert_null(inbox_pop(&inbox));
    assert_true(inbox_push(&inbox, &items[4]));
    assert_ptr_equal(inbox_pop(&inbox), &items[4]);
    inbox_fini(&inbox);
}

TEST(order_and_capacity_hold_when_the_counters_wrap)
{
    struct inbox inbox;
    int items[9];

    assert_int_equal(inbox_init(&inbox, 8), 0);
    atomic_store(&inbox.ring.head, UINT32_MAX - 3); /* as after 2^32 - 4 items */
    atomic_store(&inbox.ring.tail, UINT32_MAX - 3);
    for (unsigned i = 0; i < 8; i++)
        assert_true(inbox_push(&inbox, &items[i]));
    assert_false(inbox_push(&inbox, &items[8]));
    for (unsigned i = 0; i < 8; i++)
        assert_ptr_equal(inbox_pop(&inbox), &items[i]);
    assert_null(inbox_pop(&inbox));
    inbox_fini(&inbox);
}

static void *push_numbers(void *argument)
{
    struct inbox *inbox = argument;

    for (uint64_t i = 0; i < ITEMS; i++) {
        numbers[i] = i + 1;
        while (!inbox_push(inbox, &numbers[i]))
            sched_yield();
    }
    return NULL;
}

TEST(two_threads_hand_over_all_items_in_order_and_whole)
{
    struct inbox inbox;
    pthread_t producer;
    uint64_t wrong = 0;

    assert_int_equal(inbox_init(&inbox, CAPACITY), 0);
    assert_int_equal(pthread_create(&producer, NULL, push_numbers, &inbox), 0);
    for (uint64_t i = 0; i < ITEMS; i++) {
        uint64_t *number;

        while ((number = inbox_pop(&inbox)) == NULL)
            sched_yield();
        wrong += *number != i + 1;
        *number = 0; /* the consumer's now */
    }
    pthread_join(producer, NULL);
    assert_int_equal(wrong, 0);
    assert_null(inbox_pop(&inbox));
    inbox_fini(&inbox);
}

UNIT_MAIN(NULL, NULL)
