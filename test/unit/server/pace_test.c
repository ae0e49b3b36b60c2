/* Steps in the background beside clients' requests, through pace.h: turn by turn. */
#include "server/worker/pace.h"
#include "test/lib/unit.h"

#define POLL_NS (10 * NS_PER_US)

/* Polls for a second, `turn_ns` after one that did a step and POLL_NS after one that rested; returns how many steps there
 * were. */
static unsigned steps(uint64_t turn_ns, bool clients)
{
    struct pace pace = {0};
    uint64_t now_ns = NS_PER_S;
    unsigned count = 0;
    while (now_ns < 2 * NS_PER_S) {
        uint64_t wake_ns = WAKE_NEVER;
        const bool may = pace_may_step(&pace, clients, now_ns, &wake_ns);
        assert_true(may || (wake_ns > now_ns && wake_ns <= now_ns + turn_ns));
        count += may;
        now_ns += may ? turn_ns : POLL_NS;
    }
    return count;
}

TEST(where_nobody_asks_each_turn_is_a_step)
{
    assert_int_equal(steps(5 * NS_PER_MS, false), 200);
}

TEST(beside_clients_steps_take_half_of_the_time)
{
    assert_int_equal(steps(5 * NS_PER_MS, true), 100);
    assert_int_equal(steps(POLL_NS, true), 50000);
}

TEST(the_rest_ends_when_the_clients_are_silent)
{
    struct pace pace = {0};
    uint64_t now_ns = NS_PER_S, wake_ns = WAKE_NEVER;
    assert_true(pace_may_step(&pace, true, now_ns, &wake_ns));
    now_ns += PACE_CLIENTS_NS / 4 * 3;
    assert_false(pace_may_step(&pace, false, now_ns, &wake_ns));
    assert_int_equal(wake_ns, NS_PER_S + PACE_CLIENTS_NS);
    assert_false(pace_may_step(&pace, false, wake_ns - 1, &wake_ns));
    assert_true(pace_may_step(&pace, false, NS_PER_S + PACE_CLIENTS_NS, &wake_ns));
}

TEST(a_thread_that_stood_still_does_not_rest_as_long)
{
    struct pace pace = {0};
    uint64_t now_ns = NS_PER_S, wake_ns = WAKE_NEVER;
    assert_true(pace_may_step(&pace, true, now_ns, &wake_ns));
    now_ns += 3600 * NS_PER_S;
    assert_false(pace_may_step(&pace, true, now_ns, &wake_ns));
    assert_false(pace_may_step(&pace, true, now_ns + PACE_REST_NS - 1, &wake_ns));
    assert_true(pace_may_step(&pace, true, now_ns + PACE_REST_NS, &wake_ns));
}

/* The thread may have slept. */
TEST(after_a_poll_without_anything_to_do_there_is_no_rest)
{
    struct pace pace = {0};
    uint64_t wake_ns = WAKE_NEVER;
    assert_true(pace_may_step(&pace, true, NS_PER_S, &wake_ns));
    pace.stepped = false;
    assert_true(pace_may_step(&pace, true, 2 * NS_PER_S, &wake_ns));
}

UNIT_MAIN(NULL, NULL)
