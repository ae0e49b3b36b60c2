/* SIGHUP to a process whose reactor sleeps, works, or does not run yet. */
#include <signal.h>

#include "common/base/error.h"
#include "common/reactor/reload.h"
#include "test/lib/unit.h"

static uint64_t level;
static const struct config_key keys[] = {
    {"level", CONFIG_U64 | CONFIG_LIVE, 0, "1", 1, 9, NULL, "a level"}};
static const struct config_spec spec = {.program = "p", .keys = keys, .key_count = 1};
static char *words[] = {(char *)(uintptr_t) "p", NULL};
static struct reactor *reactor;
static bool sleeps;
static unsigned rounds;

static void apply(void *context)
{
    (void)context;
    reactor_stop(reactor);
}

static struct config_live live = {.spec = &spec,
                                  .argc = 1,
                                  .argv = words,
                                  .settings = &level,
                                  .settings_bytes = sizeof level,
                                  .apply = apply};

/* The second of two processes' threads would do it from outside: here the role itself sends it, and then has nothing to do. */
static enum poll_result poll_round(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    (void)role;
    (void)now_ns;
    (void)wake_ns;
    if (++rounds == 3)
        assert_int_equal(raise(SIGHUP), 0);
    return sleeps ? POLL_IDLE : POLL_BUSY;
}

/* Until the settings were read again, or for ever. */
static void run(bool sleeping, bool before)
{
    const struct reactor_options options = {"test", clock_system(), 0, -1};
    level = 5;
    sleeps = sleeping;
    rounds = before ? 3 : 0;
    assert_int_equal(reload_catch(&live), 0);
    if (before)
        assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(reactor_create(&options, &reactor), 0);
    assert_int_equal(reactor_add_poller(reactor, &(struct poller){"round", poll_round, NULL, NULL}),
                     0);
    assert_int_equal(reload_attach(reactor), 0);
    reactor_run(reactor);
    assert_int_equal(level, 1);
    reload_ignore();
    reactor_destroy(reactor);
}

TEST(a_signal_is_answered_by_a_reactor_that_works)
{
    run(false, false);
}

TEST(a_signal_is_answered_by_a_reactor_that_has_nothing_to_do)
{
    run(true, false);
}

TEST(a_signal_that_came_before_the_reactor_is_answered_by_it)
{
    run(true, true);
}

TEST(a_signal_at_the_end_does_nothing)
{
    reload_ignore();
    assert_int_equal(raise(SIGHUP), 0);
}

UNIT_MAIN(NULL, NULL)
