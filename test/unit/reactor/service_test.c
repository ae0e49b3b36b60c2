/* What a service manager is told, by a clock of the test's own. The test is the service manager. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/reactor/service.h"
#include "test/lib/unit.h"

#define ROUND_NS    (10 * NS_PER_MS)
#define WATCHDOG_NS (800 * NS_PER_MS)

static uint64_t now;
static int manager = -1;
static bool serving;

static uint64_t read_now(struct clock *clock)
{
    (void)clock;
    return now;
}

static struct clock test_clock = {read_now};

/* One that runs so many rounds, each ROUND_NS long; it serves from a round on, counted backwards. */
struct rounds {
    struct reactor *reactor;
    uint32_t left, serves_at;
    uint32_t ready, alive;       /* what was heard */
    uint64_t ready_ns, alive_ns; /* when it was last */
};

static void hear(struct rounds *rounds)
{
    char text[64];
    ssize_t got;
    while ((got = recv(manager, text, sizeof text - 1, MSG_DONTWAIT)) > 0) {
        text[got] = '\0';
        if (strcmp(text, "READY=1") == 0)
            rounds->ready++, rounds->ready_ns = now;
        else if (strcmp(text, "WATCHDOG=1") == 0)
            rounds->alive++, rounds->alive_ns = now;
        else
            fail_msg("%s", text);
    }
}

static enum poll_result poll_round(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct rounds *rounds = role;
    (void)now_ns;
    (void)wake_ns;
    hear(rounds);
    now += ROUND_NS;
    serving |= rounds->left == rounds->serves_at;
    if (--rounds->left == 0)
        reactor_stop(rounds->reactor);
    return POLL_BUSY;
}

static void open_reactor(struct rounds *rounds, uint32_t count, uint32_t serves_at)
{
    const struct reactor_options options = {"test", &test_clock, 0, -1};
    *rounds = (struct rounds){.left = count, .serves_at = serves_at};
    assert_int_equal(reactor_create(&options, &rounds->reactor), 0);
    assert_int_equal(
        reactor_add_poller(rounds->reactor, &(struct poller){"round", poll_round, rounds, NULL}),
        0);
}

static bool serves(const void *context)
{
    return *(const bool *)context;
}

static int open_manager(void **state)
{
    char text[32];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)state;
    manager = socket(AF_UNIX, SOCK_DGRAM, 0);
    const int bytes = snprintf(address.sun_path + 1, sizeof address.sun_path - 1,
                               "rowan-service-%d", (int)getpid());
    const socklen_t length =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
    if (manager < 0 || bind(manager, (struct sockaddr *)&address, length))
        return -1;
    address.sun_path[0] = '@'; /* as systemd writes an abstract name */
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    snprintf(text, sizeof text, "%lu", WATCHDOG_NS / NS_PER_US);
    setenv("WATCHDOG_USEC", text, 1);
    now = NS_PER_S;
    serving = false;
    return 0;
}

static int close_manager(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    return close(manager);
}

TEST_WITH(it_is_ready_once_it_serves_and_goes_on_four_times_in_the_watchdogs_time, open_manager,
          close_manager)
{
    struct rounds rounds;
    struct service *service;
    open_reactor(&rounds, 1000, 500);
    assert_int_equal(service_attach(&rounds.reactor, 1, serves, &serving, &service), 0);
    reactor_run(rounds.reactor);
    assert_int_equal(rounds.ready, 1);
    assert_in_range(rounds.ready_ns, NS_PER_S + 500 * ROUND_NS, NS_PER_S + 520 * ROUND_NS);
    assert_in_range(rounds.alive, 1000 * ROUND_NS / (WATCHDOG_NS / 2),
                    1000 * ROUND_NS / (WATCHDOG_NS / 4));
    service_detach(service);
    reactor_destroy(rounds.reactor);
}

TEST_WITH(a_thread_that_stands_still_is_not_said_to_go_on, open_manager, close_manager)
{
    struct rounds first, second;
    struct service *service;
    open_reactor(&first, 1000, 0);
    open_reactor(&second, 3, 0);
    struct reactor *reactors[] = {first.reactor, second.reactor};
    assert_int_equal(service_attach(reactors, 2, NULL, NULL, &service), 0);
    reactor_run(second.reactor);
    const uint64_t still_ns = now;
    reactor_run(first.reactor);
    assert_int_equal(first.ready, 1);
    assert_in_range(first.alive, 1, 3);
    assert_in_range(first.alive_ns, still_ns, still_ns + WATCHDOG_NS / 2 + ROUND_NS);
    service_detach(service);
    reactor_destroy(first.reactor);
    reactor_destroy(second.reactor);
}

TEST(without_a_service_manager_there_is_nothing_to_tell)
{
    struct rounds rounds;
    struct service *service;
    open_reactor(&rounds, 1, 0);
    assert_int_equal(service_attach(&rounds.reactor, 1, NULL, NULL, &service), 0);
    assert_null(service);
    service_detach(service);
    reactor_destroy(rounds.reactor);
}

UNIT_MAIN(NULL, NULL)
