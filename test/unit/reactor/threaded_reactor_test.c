/* Roles of a few lines on one or two reactors. A lost wake-up leaves a role asleep until its
 * deadline a minute later, which it reports. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "common/base/clock.h"
#include "common/reactor/inbox.h"
#include "common/reactor/reactor.h"
#include "common/reactor/wait.h"
#include "test/lib/fail_call.h"
#include "test/lib/unit.h"
#include "test/lib/wait.h"

enum { ROUND_TRIPS = 100000 };

#define LOST_NS (120 * NS_PER_S)

static struct reactor *create_reactor(struct clock *clock, uint64_t spin_ns, poll_function *poll,
                                      void *role)
{
    const struct reactor_options options = {"test", clock, spin_ns, -1};
    const struct poller poller = {"role", poll, role, NULL};
    struct reactor *reactor;

    assert_int_equal(reactor_create(&options, &reactor), 0);
    assert_int_equal(reactor_add_poller(reactor, &poller), 0);
    return reactor;
}

/* Returns what comes to it, until the ball has come `left` times. */
struct player {
    struct inbox inbox;
    struct player *other;
    struct reactor *reactor;
    uint64_t deadline_ns;
    unsigned left;
    bool late;
    bool refused;
};

static enum poll_result poll_player(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct player *player = role;
    uint64_t *ball = inbox_pop(&player->inbox);

    if (player->deadline_ns < *wake_ns)
        *wake_ns = player->deadline_ns;
    if (now_ns >= player->deadline_ns) {
        player->late = true;
        reactor_stop(player->reactor);
    }
    if (ball == NULL)
        return POLL_IDLE;
    player->deadline_ns =
        now_ns + LOST_NS; /* of this wake-up, not of all: the machine may be busy */
    ++*ball;              /* not atomic: the inbox must make it visible */
    if (!inbox_push(&player->other->inbox, ball))
        player->refused = true;
    if (--player->left == 0)
        reactor_stop(player->reactor);
    return POLL_BUSY;
}

static void play(uint64_t spin_ns)
{
    struct player players[2] = {{.left = ROUND_TRIPS}, {.left = ROUND_TRIPS}};
    uint64_t ball = 0;

    for (unsigned i = 0; i < 2; i++) {
        struct player *player = &players[i];

        player->other = &players[1 - i];
        player->deadline_ns = clock_now_ns(clock_system()) + LOST_NS;
        player->reactor = create_reactor(clock_system(), spin_ns, poll_player, player);
        assert_int_equal(inbox_init(&player->inbox, 1), 0);
        inbox_set_reactor(&player->inbox, player->reactor);
    }
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(reactor_start(players[i].reactor), 0);
    assert_true(inbox_push(&players[0].inbox, &ball));
    for (unsigned i = 0; i < 2; i++)
        reactor_join(players[i].reactor);
    assert_int_equal(ball, 2 * ROUND_TRIPS);
    for (unsigned i = 0; i < 2; i++) {
        assert_false(players[i].late);
        assert_false(players[i].refused);
        reactor_destroy(players[i].reactor);
        inbox_fini(&players[i].inbox);
    }
}

TEST(no_wake_up_is_lost_between_reactors_that_sleep_at_once)
{
    play(0);
}

/* Spinning for about as long as the other side needs makes pushes meet every moment of falling
 * asleep. */
TEST(no_wake_up_is_lost_between_reactors_that_are_just_falling_asleep)
{
    play(5 * NS_PER_US);
}

/* Many threads write down what they did and wake; the role must see all of it. */
enum { WAKERS = 3, WAKES = 5000 };

struct crowd {
    struct reactor *reactor;
    _Atomic uint64_t done[WAKERS];
    _Atomic uint64_t seen;
    uint64_t deadline_ns;
    bool late;
};

struct waker {
    struct crowd *crowd;
    unsigned number;
    pthread_t thread;
};

static enum poll_result poll_crowd(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct crowd *crowd = role;
    uint64_t sum = 0;

    *wake_ns = crowd->deadline_ns;
    for (unsigned i = 0; i < WAKERS; i++)
        sum += atomic_load_explicit(&crowd->done[i], memory_order_acquire);
    atomic_store_explicit(&crowd->seen, sum, memory_order_release);
    crowd->late = now_ns >= crowd->deadline_ns;
    if (crowd->late || sum == WAKERS * WAKES)
        reactor_stop(crowd->reactor);
    return POLL_IDLE;
}

static void *wake_often(void *argument)
{
    struct waker *waker = argument;

    for (uint64_t i = 1; i <= WAKES; i++) {
        atomic_store_explicit(&waker->crowd->done[waker->number], i, memory_order_release);
        reactor_wake(waker->crowd->reactor);
    }
    return NULL;
}

TEST(what_several_threads_published_is_seen_after_their_wake_ups)
{
    struct crowd crowd = {.deadline_ns = clock_now_ns(clock_system()) + 120 * NS_PER_S};
    struct waker wakers[WAKERS];

    crowd.reactor = create_reactor(clock_system(), 0, poll_crowd, &crowd);
    for (unsigned i = 0; i < WAKERS; i++) {
        wakers[i] = (struct waker){.crowd = &crowd, .number = i};
        assert_int_equal(pthread_create(&wakers[i].thread, NULL, wake_often, &wakers[i]), 0);
    }
    reactor_run(crowd.reactor);
    for (unsigned i = 0; i < WAKERS; i++)
        pthread_join(wakers[i].thread, NULL);
    assert_false(crowd.late);
    assert_int_equal(crowd.seen, WAKERS * WAKES);
    reactor_destroy(crowd.reactor);
}

/* Asks to be woken at times 5 ms apart. */
struct timer {
    struct reactor *reactor;
    uint64_t due_ns;
    unsigned left;
    unsigned polls;
};

static enum poll_result poll_timer(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct timer *timer = role;

    timer->polls++;
    if (timer->due_ns == 0)
        timer->due_ns = now_ns + 5 * NS_PER_MS;
    if (timer->left > 0 &&
        now_ns >= timer->due_ns) { /* it may be polled once more after it stopped */
        timer->due_ns += 5 * NS_PER_MS;
        if (--timer->left == 0)
            reactor_stop(timer->reactor);
    }
    if (timer->due_ns < *wake_ns)
        *wake_ns = timer->due_ns;
    return POLL_IDLE;
}

static enum poll_result poll_patient(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    (void)role;
    if (now_ns + 3600 * NS_PER_S < *wake_ns)
        *wake_ns = now_ns + 3600 * NS_PER_S;
    return POLL_IDLE;
}

TEST(the_earliest_deadline_ends_the_sleep_and_no_poll_is_wasted)
{
    const struct poller patient = {"patient", poll_patient, NULL, NULL};
    struct timer timer = {.left = 20};

    timer.reactor = create_reactor(clock_system(), 0, poll_timer, &timer);
    assert_int_equal(reactor_add_poller(timer.reactor, &patient), 0);
    reactor_run(timer.reactor);
    assert_int_equal(timer.left, 0);
    /* Two polls a sleep, one sleep a deadline; a spinning loop would have thousands. */
    assert_in_range(timer.polls, 20, 200);
    reactor_destroy(timer.reactor);
}

TEST(whatever_call_fails_a_reactor_says_so_or_keeps_its_deadlines)
{
    const struct reactor_options options = {"swept", clock_system(), 0, 0};
    bool more = true;

    for (uint32_t nth = 1; more; nth++) {
        struct timer timer = {.left = 2};
        const struct poller poller = {"timer", poll_timer, &timer, NULL};

        fail_call(nth);
        int error = reactor_create(&options, &timer.reactor);
        if (!error)
            error = reactor_add_poller(timer.reactor, &poller);
        if (!error)
            error = reactor_start(timer.reactor);
        if (!error)
            reactor_join(timer.reactor);
        more = fail_stop();
        reactor_destroy(timer.reactor);
        assert_true(more || !error);
        assert_int_equal(timer.left, error ? 2 : 0);
    }
}

static enum poll_result poll_counting(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    (void)now_ns;
    (void)wake_ns;
    atomic_fetch_add((_Atomic unsigned *)role, 1);
    return POLL_IDLE;
}

TEST(another_thread_stops_a_reactor_that_would_sleep_for_ever)
{
    _Atomic unsigned polls = 0;
    struct reactor *reactor = create_reactor(clock_system(), 0, poll_counting, &polls);

    assert_int_equal(reactor_start(reactor), 0);
    assert_true(WAIT_FOR(atomic_load(&polls) >= 2)); /* the second one is the last before sleep */
    reactor_stop(reactor);
    reactor_join(reactor);
    reactor_destroy(reactor);
}

TEST(a_stop_that_comes_before_the_start_is_not_forgotten)
{
    _Atomic unsigned polls = 0;
    struct reactor *reactor = create_reactor(clock_system(), 0, poll_counting, &polls);

    reactor_stop(reactor);
    reactor_run(reactor);
    assert_int_equal(atomic_load(&polls), 0);
    reactor_destroy(reactor);
}

static struct reactor *signalled;

static void stop_signalled(int number)
{
    (void)number;
    reactor_stop(signalled);
}

static enum poll_result poll_raising(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    (void)role;
    (void)now_ns;
    (void)wake_ns;
    raise(SIGUSR1);
    return POLL_IDLE;
}

TEST(a_signal_handler_may_stop_a_reactor)
{
    signalled = create_reactor(clock_system(), 0, poll_raising, NULL);
    signal(SIGUSR1, stop_signalled);
    reactor_run(signalled);
    signal(SIGUSR1, SIG_DFL);
    reactor_destroy(signalled);
}

/* A clock that moves 1 ns a read, and a source that notes when it is armed. */
struct fake_clock {
    struct clock clock;
    uint64_t now_ns;
};

static uint64_t fake_now_ns(struct clock *clock)
{
    return ++((struct fake_clock *)clock)->now_ns;
}

struct bell {
    struct fake_clock clock;
    struct reactor *reactor;
    int fd;
    _Atomic bool armed;
    unsigned arms;
    unsigned disarms;
    bool work;                 /* to do, but fd says nothing of it */
    bool ring_work_on_arming;  /* work comes while the sources are being armed */
    bool publish_in_last_poll; /* work comes when the last poll before sleep has looked */
    unsigned busy_left;
    unsigned polls_before_arming;
    uint64_t heard;
};

static void arm_bell(void *context)
{
    struct bell *bell = context;

    bell->arms++;
    bell->work = bell->ring_work_on_arming;
    atomic_store(&bell->armed, true);
}

static void disarm_bell(void *context)
{
    struct bell *bell = context;
    uint64_t count;

    bell->disarms++;
    atomic_store(&bell->armed, false);
    if (read(bell->fd, &count, sizeof(count)) == (ssize_t)sizeof(count))
        bell->heard += count;
}

static enum poll_result poll_bell(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct bell *bell = role;

    (void)now_ns;
    (void)wake_ns;
    if (bell->heard > 0 || bell->work) {
        reactor_stop(bell->reactor);
        return POLL_BUSY;
    }
    if (bell->publish_in_last_poll && atomic_load(&bell->armed)) {
        bell->work = true;
        reactor_wake(bell->reactor);
        return POLL_IDLE;
    }
    if (bell->arms == 0)
        bell->polls_before_arming++;
    if (bell->busy_left == 0)
        return POLL_IDLE;
    bell->busy_left--;
    return POLL_BUSY;
}

static void init_bell(struct bell *bell, uint64_t spin_ns)
{
    const struct event_source source = {
        .fd = eventfd(0, EFD_NONBLOCK), .arm = arm_bell, .disarm = disarm_bell, .context = bell};

    *bell = (struct bell){.fd = source.fd, .clock = {.clock = {fake_now_ns}}};
    bell->reactor = create_reactor(&bell->clock.clock, spin_ns, poll_bell, bell);
    assert_true(bell->fd >= 0);
    assert_int_equal(reactor_add_source(bell->reactor, &source), 0);
}

static void fini_bell(struct bell *bell)
{
    assert_int_equal(bell->arms, bell->disarms);
    assert_false(atomic_load(&bell->armed));
    reactor_destroy(bell->reactor);
    close(bell->fd);
}

TEST(a_source_that_becomes_readable_ends_the_sleep)
{
    const uint64_t one = 1;
    struct bell bell;

    init_bell(&bell, 0);
    assert_int_equal(reactor_start(bell.reactor), 0);
    assert_true(WAIT_FOR(atomic_load(&bell.armed)));
    assert_int_equal(write(bell.fd, &one, sizeof(one)), sizeof(one));
    reactor_join(bell.reactor);
    assert_int_equal(bell.heard, 1);
    fini_bell(&bell);
}

TEST(work_that_comes_while_sources_are_armed_is_found_by_the_last_poll)
{
    struct bell bell;

    init_bell(&bell, 0);
    bell.ring_work_on_arming = true;
    reactor_run(bell.reactor); /* would sleep for ever without that poll */
    assert_int_equal(bell.arms, 1);
    fini_bell(&bell);
}

/* What another thread's push does in the worst moment, done by the role itself. */
TEST(a_wake_up_between_the_last_look_and_the_sleep_ends_the_sleep)
{
    struct bell bell;

    init_bell(&bell, 0);
    bell.publish_in_last_poll = true;
    reactor_run(bell.reactor);
    assert_true(bell.work);
    fini_bell(&bell);
}

TEST(a_busy_reactor_arms_nothing_and_an_idle_one_spins_first)
{
    struct bell bell;

    init_bell(&bell, 1000); /* a read of the clock a round: 1000 rounds */
    bell.busy_left = 5000;
    bell.ring_work_on_arming = true;
    reactor_run(bell.reactor);
    assert_int_equal(bell.polls_before_arming, 5000 + 1001 + WAIT_YIELDS);
    assert_int_equal(bell.arms, 1);
    fini_bell(&bell);
}

UNIT_MAIN(NULL, NULL)
