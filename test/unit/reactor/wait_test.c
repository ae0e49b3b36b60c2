/* wait_test.c - a thread that polls for itself sleeps, and no wake-up is lost. */
#define TEST_FIXTURE set_up, tear_down

#include <sys/eventfd.h>

#include "common/reactor/wait.h"
#include "test/lib/unit.h"

enum { STUCK_SECONDS = 20 }; /* then the test is killed: it should not have slept */

static int fd;
static bool armed;
static unsigned polls;
static enum poll_result answer;
static uint64_t role_wake_ns;
static bool work_comes; /* between the arming and the sleep */

static void arm(void *context)
{
    (void)context;
    assert_false(armed);
    armed = true;
}

static void disarm(void *context)
{
    uint64_t count;

    (void)context;
    assert_true(armed);
    armed = false;
    assert_true(read(fd, &count, sizeof count) == sizeof count || !work_comes);
}

static enum poll_result poll_role(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    const uint64_t one = 1;

    (void)role;
    assert_true(armed && now_ns > 0);
    polls++;
    if (role_wake_ns < *wake_ns)
        *wake_ns = role_wake_ns;
    if (work_comes) /* whoever brings it sees that the source is armed */
        assert_int_equal(write(fd, &one, sizeof one), sizeof one);
    return answer;
}

static int set_up(void **state)
{
    (void)state;
    fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    polls = 0;
    answer = POLL_IDLE;
    role_wake_ns = WAKE_NEVER;
    work_comes = false;
    alarm(STUCK_SECONDS);
    return fd < 0;
}

static int tear_down(void **state)
{
    (void)state;
    alarm(0);
    return close(fd);
}

static void run_wait(uint64_t until_ns)
{
    const struct event_source source = {.fd = fd, .arm = arm, .disarm = disarm};

    assert_int_equal(event_source_wait(&source, clock_system(), poll_role, NULL, until_ns), 0);
    assert_int_equal(polls, 1);
    assert_false(armed);
}

TEST(work_met_by_the_poll_after_the_arming_ends_it_without_sleep)
{
    answer = POLL_BUSY;
    run_wait(WAKE_NEVER);
}

TEST(work_that_comes_after_that_poll_wakes_it)
{
    work_comes = true;
    run_wait(WAKE_NEVER);
}

TEST(it_ends_at_the_callers_time)
{
    uint64_t until_ns = clock_now_ns(clock_system()) + 20 * NS_PER_MS;

    run_wait(until_ns);
    assert_true(clock_now_ns(clock_system()) >= until_ns);
}

TEST(it_ends_at_the_roles_time)
{
    role_wake_ns = clock_now_ns(clock_system()) + 20 * NS_PER_MS;
    run_wait(WAKE_NEVER);
    assert_true(clock_now_ns(clock_system()) >= role_wake_ns);
}

TEST(a_time_that_has_passed_is_no_sleep)
{
    run_wait(1);
}

static int rang;

static void arm_other(void *context)
{
    (*(int *)context)++;
}

static void disarm_other(void *context)
{
    (*(int *)context)--;
}

static enum poll_result poll_other(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    (void)role, (void)now_ns, (void)wake_ns;
    polls++;
    return POLL_IDLE;
}

/* The last of three sources: the others have no work, and a descriptor that stays silent. */
TEST(work_at_any_of_several_sources_ends_the_sleep)
{
    const int quiet = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const struct event_source source = {.fd = fd, .arm = arm, .disarm = disarm};
    const struct event_source others = {
        .fd = quiet, .arm = arm_other, .disarm = disarm_other, .context = &rang};
    const struct waiter waiters[] = {
        {&others, poll_other, NULL}, {&others, poll_other, NULL}, {&source, poll_role, NULL}};

    assert_true(quiet >= 0);
    rang = 0;
    for (int met_by_poll = 0; met_by_poll < 2; met_by_poll++) {
        polls = 0;
        work_comes = !met_by_poll;
        answer = met_by_poll ? POLL_BUSY : POLL_IDLE;
        assert_int_equal(event_sources_wait(waiters, 3, clock_system(), WAKE_NEVER), 0);
        assert_int_equal(polls, 3);
        assert_int_equal(rang, 0);
        assert_false(armed);
    }
    close(quiet);
}

UNIT_MAIN(NULL, NULL)
