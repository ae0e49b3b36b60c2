/* coord_watch_test.c - watches and leadership of the file backend, and that an answer ends the
 * sleep of its owner. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "test/lib/unit.h"
#include "test/unit/coord/coord_fixture.h"

static struct owner bob;

static bool has_changed(struct owner *owner)
{
    poll_owner(owner);
    return owner->changes > 0;
}

TEST(a_watch_stays_silent_while_nothing_changes)
{
    const uint64_t period_ns = 100 * NS_PER_MS;
    uint64_t now_ns = 0, wake_ns;

    open_owner(&alice);
    assert_int_equal(cas_value(&alice, 0, "one", 3), 0);
    assert_int_equal(coord_watch(alice.coord, on_change, &alice), 0);
    for (int look = 0; look < 5; look++) {
        wake_ns = WAKE_NEVER;
        assert_int_equal(coord_poll(alice.coord, now_ns, &wake_ns), POLL_BUSY); /* posted */
        assert_true(
            WAIT_FOR(coord_poll(alice.coord, now_ns, &wake_ns) == POLL_BUSY)); /* answered */
        now_ns += period_ns;
        assert_int_equal(wake_ns, now_ns);
        assert_int_equal(alice.changes, 0);
    }
    coord_close(alice.coord);
}

TEST(a_damaged_value_fires_a_watch)
{
    uint8_t bytes[sizeof(golden)];

    save_file("value", golden, sizeof(golden));
    open_owner(&alice);
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(coord_watch(alice.coord, on_change, &alice), 0);
    memcpy(bytes, golden, sizeof(golden));
    bytes[8]++;
    save_file("value", bytes, sizeof(golden));
    assert_true(WAIT_FOR(has_changed(&alice)));
    coord_close(alice.coord);
}

/* Lets `owner` try for leadership `times` times. */
static void let_try(struct owner *owner, int times)
{
    for (int i = 0; i < 2 * times; i++) /* posted, ended */
        assert_true(WAIT_FOR(poll_owner(owner) == POLL_BUSY));
}

TEST(leadership_moves_on_when_the_leaders_process_is_killed)
{
    int ready[2];
    char byte;
    pid_t child;

    assert_int_equal(pipe(ready), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no process */
        open_owner(&alice);
        if (coord_elect(alice.coord, on_leader, &alice) != 0)
            _exit(1);
        while (!has_won(&alice))
            wait_pause();
        if (write(ready[1], "w", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    open_owner(&bob);
    assert_int_equal(coord_elect(bob.coord, on_leader, &bob), 0);
    let_try(&bob, 2);
    assert_int_equal(bob.wins, 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(WAIT_FOR(has_won(&bob)));
    coord_close(bob.coord);
}

TEST(a_leader_whose_lock_file_was_replaced_is_told_that_it_lost)
{
    int lock_fd;

    open_owner(&alice);
    assert_int_equal(coord_elect(alice.coord, on_leader, &alice), 0);
    assert_true(WAIT_FOR(has_won(&alice)));
    assert_int_equal(unlink(temp_dir_at(&dir, "lock")), 0);
    lock_fd = hold_lock("lock");
    assert_true(WAIT_FOR(has_lost(&alice)));
    let_try(&alice, 2);
    assert_int_equal(alice.wins, 1);
    close(lock_fd);
    assert_true(WAIT_FOR(has_won(&alice)));
    coord_close(alice.coord);
}

/* Asks at its poll number `ask_at`, inside a reactor that sleeps whenever it can, and waits for the
 * answer. */
struct asking_role {
    struct owner *owner;
    struct reactor *reactor;
    unsigned ask_at;
    unsigned polls;
    uint64_t deadline_ns; /* 0: not asked */
};

static enum poll_result poll_asking(void *argument, uint64_t now_ns, uint64_t *wake_ns)
{
    struct asking_role *role = argument;

    role->polls++;
    if (role->deadline_ns == 0)
        role->deadline_ns = now_ns + WAIT_DEADLINE_NS;
    if (role->polls == role->ask_at)
        assert_int_equal(coord_read(role->owner->coord, on_read, role->owner), 0);
    if (role->owner->answered || now_ns >= role->deadline_ns)
        reactor_stop(role->reactor);
    if (*wake_ns > role->deadline_ns)
        *wake_ns = role->deadline_ns;
    return POLL_IDLE;
}

static enum poll_result poll_coord(void *coord, uint64_t now_ns, uint64_t *wake_ns)
{
    return coord_poll(coord, now_ns, wake_ns);
}

static void run_asking_reactor(unsigned ask_at)
{
    struct reactor_options options = {.name = "test", .clock = clock_system(), .cpu = -1};
    struct asking_role role = {.owner = &alice, .ask_at = ask_at};
    struct poller asking = {.name = "asking", .poll = poll_asking, .role = &role};
    struct poller coord = {.name = "coord", .poll = poll_coord};
    const uint64_t start_ns = clock_now_ns(clock_system());

    memset(&alice, 0, sizeof(alice));
    assert_int_equal(reactor_create(&options, &role.reactor), 0);
    assert_int_equal(coord_open_file(dir.path, role.reactor, &alice.coord), 0);
    coord.role = alice.coord;
    /* The coord is polled first, so what is asked after its poll waits for the next round. */
    assert_int_equal(reactor_add_poller(role.reactor, &coord), 0);
    assert_int_equal(reactor_add_poller(role.reactor, &asking), 0);
    reactor_run(role.reactor);
    assert_true(alice.answered);
    assert_int_equal(alice.error, 0);
    assert_true(clock_now_ns(clock_system()) - start_ns < WAIT_DEADLINE_NS);
    coord_close(alice.coord);
    reactor_destroy(role.reactor);
}

TEST(an_answer_wakes_the_reactor)
{
    run_asking_reactor(1);
}

/* The second poll is the last before the reactor sleeps. */
TEST(asking_wakes_the_reactor)
{
    run_asking_reactor(2);
}

UNIT_MAIN(NULL, NULL)
