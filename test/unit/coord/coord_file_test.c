/* coord_file_test.c - the file backend through coord_open_file: versions, watches and leadership of
 * several handles on one directory, and what it makes of files that a crash or a disk left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/base/error.h"
#include "common/coord/coord.h"
#include "test/lib/temp_dir.h"
#include "test/lib/wait.h"

static struct temp_dir dir;

static int setup(void **state)
{
    (void)state;
    temp_dir_init(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_dir_fini(&dir);
    return 0;
}

/* What a handle has answered. */
struct owner {
    struct coord *coord;
    bool answered;
    int error;
    uint64_t version;
    size_t bytes;
    uint8_t value[COORD_MAX_VALUE_BYTES];
    unsigned changes;
    unsigned wins;
    unsigned losses;
};

static struct owner alice, bob;

static void on_read(void *context, int error, const void *value, size_t bytes, uint64_t version)
{
    struct owner *owner = context;

    owner->answered = true;
    owner->error = error;
    owner->version = version;
    owner->bytes = bytes;
    assert_true(bytes <= sizeof(owner->value));
    if (bytes > 0)
        memcpy(owner->value, value, bytes);
}

static void on_cas(void *context, int error, uint64_t version)
{
    struct owner *owner = context;

    owner->answered = true;
    owner->error = error;
    owner->version = version;
}

static void on_change(void *context)
{
    ((struct owner *)context)->changes++;
}

static void on_leader(void *context, bool leader)
{
    struct owner *owner = context;

    if (leader)
        owner->wins++;
    else
        owner->losses++;
}

static void open_owner(struct owner *owner)
{
    memset(owner, 0, sizeof(*owner));
    assert_int_equal(coord_open_file(dir.path, NULL, &owner->coord), 0);
}

static enum poll_result poll_owner(struct owner *owner)
{
    uint64_t wake_ns = WAKE_NEVER;

    return coord_poll(owner->coord, clock_now_ns(clock_system()), &wake_ns);
}

static bool is_answered(struct owner *owner)
{
    poll_owner(owner);
    return owner->answered;
}

static int read_value(struct owner *owner)
{
    owner->answered = false;
    assert_int_equal(coord_read(owner->coord, on_read, owner), 0);
    assert_true(WAIT_FOR(is_answered(owner)));
    return owner->error;
}

static int cas_value(struct owner *owner, uint64_t expected, const void *value, size_t bytes)
{
    owner->answered = false;
    assert_int_equal(coord_cas(owner->coord, expected, value, bytes, on_cas, owner), 0);
    assert_true(WAIT_FOR(is_answered(owner)));
    return owner->error;
}

static size_t load_file(const char *name, uint8_t *bytes, size_t room)
{
    int fd = open(temp_dir_at(&dir, name), O_RDONLY);
    ssize_t got;

    assert_true(fd >= 0);
    got = read(fd, bytes, room);
    assert_true(got >= 0);
    close(fd);
    return (size_t)got;
}

static void save_file(const char *name, const uint8_t *bytes, size_t count)
{
    int fd = open(temp_dir_at(&dir, name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
}

static void a_fresh_directory_has_version_0_and_no_value(void **state)
{
    (void)state;
    open_owner(&alice);
    alice.version = 99;
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(alice.version, 0);
    assert_int_equal(alice.bytes, 0);
    coord_close(alice.coord);
}

static void a_value_goes_up_one_version_with_each_compare_and_set(void **state)
{
    (void)state;
    open_owner(&alice);
    open_owner(&bob);
    assert_int_equal(cas_value(&alice, 0, "first", 5), 0);
    assert_int_equal(alice.version, 1);
    assert_int_equal(cas_value(&bob, 1, "", 0), 0);
    assert_int_equal(bob.version, 2);
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(alice.version, 2);
    assert_int_equal(alice.bytes, 0);
    assert_int_equal(cas_value(&alice, 2, "third", 5), 0);
    coord_close(alice.coord);
    coord_close(bob.coord);

    open_owner(&bob); /* it outlives its handles */
    assert_int_equal(read_value(&bob), 0);
    assert_int_equal(bob.version, 3);
    assert_int_equal(bob.bytes, 5);
    assert_memory_equal(bob.value, "third", 5);
    coord_close(bob.coord);
}

static void a_compare_and_set_of_another_version_changes_nothing(void **state)
{
    const uint64_t wrong[] = {0, 1, 3, UINT64_MAX};

    (void)state;
    open_owner(&alice);
    assert_int_equal(cas_value(&alice, 1, "too early", 9), ROWAN_EVERSION);
    assert_int_equal(cas_value(&alice, 0, "one", 3), 0);
    assert_int_equal(cas_value(&alice, 1, "two", 3), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(cas_value(&alice, wrong[i], "wrong", 5), ROWAN_EVERSION);
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(alice.version, 2);
    assert_memory_equal(alice.value, "two", 3);
    coord_close(alice.coord);
}

static void the_largest_value_fits_and_a_larger_one_is_refused(void **state)
{
    static uint8_t value[COORD_MAX_VALUE_BYTES + 1];

    (void)state;
    for (size_t i = 0; i < sizeof(value); i++)
        value[i] = (uint8_t)(i * 7 + i / 255);
    open_owner(&alice);
    assert_int_equal(coord_cas(alice.coord, 0, value, sizeof(value), on_cas, &alice),
                     ROWAN_EINVALID);
    assert_int_equal(cas_value(&alice, 0, value, COORD_MAX_VALUE_BYTES), 0);
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(alice.bytes, COORD_MAX_VALUE_BYTES);
    assert_memory_equal(alice.value, value, COORD_MAX_VALUE_BYTES);
    coord_close(alice.coord);
}

static void one_operation_of_each_kind_may_be_outstanding(void **state)
{
    (void)state;
    open_owner(&alice);
    assert_int_equal(coord_read(alice.coord, on_read, &alice), 0);
    assert_int_equal(coord_read(alice.coord, on_read, &alice), ROWAN_EAGAIN);
    assert_int_equal(coord_cas(alice.coord, 0, "x", 1, on_cas, &bob), 0);
    assert_int_equal(coord_cas(alice.coord, 0, "x", 1, on_cas, &bob), ROWAN_EAGAIN);
    assert_int_equal(coord_watch(alice.coord, on_change, &alice), 0);
    assert_int_equal(coord_watch(alice.coord, on_change, &alice), ROWAN_EAGAIN);
    assert_int_equal(coord_elect(alice.coord, on_leader, &alice), 0);
    assert_int_equal(coord_elect(alice.coord, on_leader, &alice), ROWAN_EAGAIN);
    coord_close(alice.coord);
}

static void a_missing_or_closed_directory_is_refused(void **state)
{
    struct coord *coord = NULL;
    const uid_t user = geteuid();

    (void)state;
    assert_int_equal(coord_open_file(temp_dir_at(&dir, "no"), NULL, &coord), ROWAN_ENOTFOUND);
    save_file("plain", NULL, 0);
    assert_int_equal(coord_open_file(temp_dir_at(&dir, "plain"), NULL, &coord), ROWAN_ENOTFOUND);
    assert_int_equal(chmod(dir.path, 0555), 0);
    if (user == 0)
        assert_int_equal(seteuid(65534), 0); /* root may everything */
    assert_int_equal(coord_open_file(dir.path, NULL, &coord), ROWAN_EPERMISSION);
    if (user == 0)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(dir.path, 0700), 0);
    assert_null(coord);
}

/* Made by a script of its own from the layout in coord_store.h. */
static const uint8_t golden[] = {0x52, 0x57, 0x43, 0x4f, 0x4f, 0x52, 0x44, 0x31, 0x07, 0x00,
                                 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00,
                                 0x4c, 0xbb, 0x71, 0x9a, 0x00, 0x00, 0x00, 0x00, 0x1d, 0xba,
                                 0xcd, 0x75, 0x68, 0x65, 0x6c, 0x6c, 0x6f};

static void the_value_file_has_its_written_format(void **state)
{
    uint8_t bytes[sizeof(golden) + 1];

    (void)state;
    save_file("value", golden, sizeof(golden));
    open_owner(&alice);
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(alice.version, 7);
    assert_int_equal(alice.bytes, 5);
    assert_memory_equal(alice.value, "hello", 5);

    for (uint64_t version = 7; version > 0; version--) {
        if (version == 7)
            assert_int_equal(unlink(temp_dir_at(&dir, "value")), 0);
        assert_int_equal(cas_value(&alice, 7 - version, "hello", 5), 0);
    }
    assert_int_equal(load_file("value", bytes, sizeof(bytes)), sizeof(golden));
    assert_memory_equal(bytes, golden, sizeof(golden));
    coord_close(alice.coord);
}

static void every_damaged_byte_is_reported(void **state)
{
    uint8_t bytes[sizeof(golden) + 1];

    (void)state;
    open_owner(&alice);
    for (size_t i = 0; i < sizeof(golden); i++) {
        memcpy(bytes, golden, sizeof(golden));
        bytes[i] ^= 0x10;
        save_file("value", bytes, sizeof(golden));
        assert_int_equal(read_value(&alice), ROWAN_EFORMAT);
        assert_int_equal(alice.bytes, 0);
        if (i < sizeof(golden) - 5)
            assert_int_equal(cas_value(&alice, 7, "new", 3), ROWAN_EFORMAT);
    }
    coord_close(alice.coord);
}

static void a_cut_or_extended_value_file_is_reported(void **state)
{
    uint8_t bytes[sizeof(golden) + 1] = {0};

    (void)state;
    memcpy(bytes, golden, sizeof(golden));
    open_owner(&alice);
    for (size_t count = 0; count <= sizeof(bytes); count++) {
        save_file("value", bytes, count);
        assert_int_equal(read_value(&alice), count == sizeof(golden) ? 0 : ROWAN_EFORMAT);
    }
    coord_close(alice.coord);
}

static void what_a_crash_left_of_the_next_value_is_ignored(void **state)
{
    static const uint8_t half[5000] = "RWCOORD1 and no more";

    (void)state;
    open_owner(&alice);
    assert_int_equal(cas_value(&alice, 0, "one", 3), 0);
    save_file("value.new", half, sizeof(half));
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(alice.version, 1);
    assert_memory_equal(alice.value, "one", 3);
    assert_int_equal(cas_value(&alice, 1, "two", 3), 0);
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(alice.version, 2);
    assert_memory_equal(alice.value, "two", 3);
    assert_int_not_equal(access(temp_dir_at(&dir, "value.new"), F_OK), 0);
    coord_close(alice.coord);
}

/* Takes and holds the lock of `name` as another process would. */
static int hold_lock(const char *name)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(temp_dir_at(&dir, name), O_RDWR | O_CREAT, 0600);

    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    return fd;
}

static void a_compare_and_set_waits_for_the_one_before_it(void **state)
{
    int lock_fd = hold_lock("value.lock");

    (void)state;
    open_owner(&alice);
    assert_int_equal(coord_cas(alice.coord, 0, "one", 3, on_cas, &alice), 0);
    for (int posted = 0; posted < 3; posted++) { /* tried and put off, three times */
        assert_true(WAIT_FOR(poll_owner(&alice) == POLL_BUSY));
        assert_false(alice.answered);
    }
    close(lock_fd);
    assert_true(WAIT_FOR(is_answered(&alice)));
    assert_int_equal(alice.error, 0);
    assert_int_equal(alice.version, 1);
    coord_close(alice.coord);
}

static void close_does_not_wait_for_another_process(void **state)
{
    int lock_fd = hold_lock("value.lock");

    (void)state;
    open_owner(&alice);
    assert_int_equal(coord_cas(alice.coord, 0, "one", 3, on_cas, &alice), 0);
    assert_true(WAIT_FOR(poll_owner(&alice) == POLL_BUSY));
    coord_close(alice.coord);
    assert_false(alice.answered);
    close(lock_fd);
}

/* Raises the number in the value by one, however often others are first. */
struct counter {
    struct owner *owner;
    unsigned raised;
};

static void step_counter(struct counter *counter, unsigned goal)
{
    struct owner *owner = counter->owner;

    poll_owner(owner);
    if (!owner->answered)
        return;
    owner->answered = false;
    if (owner->bytes == SIZE_MAX) { /* a compare-and-set was answered */
        assert_true(owner->error == 0 || owner->error == ROWAN_EVERSION);
        counter->raised += owner->error == 0;
        owner->bytes = 0;
        if (counter->raised < goal)
            assert_int_equal(coord_read(owner->coord, on_read, owner), 0);
    } else {
        unsigned number = 0;
        uint64_t version = owner->version;

        assert_int_equal(owner->error, 0);
        if (owner->bytes > 0)
            memcpy(&number, owner->value, sizeof(number));
        number++;
        owner->bytes = SIZE_MAX;
        assert_int_equal(coord_cas(owner->coord, version, &number, sizeof(number), on_cas, owner),
                         0);
    }
}

static void racing_compare_and_sets_lose_no_update(void **state)
{
    struct counter counters[2] = {{.owner = &alice}, {.owner = &bob}};
    const unsigned goal = 100;
    uint64_t end_ns = clock_now_ns(clock_system()) + 2 * WAIT_DEADLINE_NS;
    unsigned number;

    (void)state;
    open_owner(&alice);
    open_owner(&bob);
    assert_int_equal(coord_read(alice.coord, on_read, &alice), 0);
    assert_int_equal(coord_read(bob.coord, on_read, &bob), 0);
    while (counters[0].raised < goal || counters[1].raised < goal) {
        step_counter(&counters[0], goal);
        step_counter(&counters[1], goal);
        assert_true(clock_now_ns(clock_system()) < end_ns);
    }
    assert_int_equal(read_value(&alice), 0);
    memcpy(&number, alice.value, sizeof(number));
    assert_int_equal(number, 2 * goal);
    assert_int_equal(alice.version, 2 * goal);
    coord_close(alice.coord);
    coord_close(bob.coord);
}

static bool has_changed(struct owner *owner)
{
    poll_owner(owner);
    return owner->changes > 0;
}

static void a_watch_fires_once_after_another_handles_compare_and_set(void **state)
{
    (void)state;
    open_owner(&alice);
    open_owner(&bob);
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(coord_watch(alice.coord, on_change, &alice), 0);
    assert_int_equal(cas_value(&bob, 0, "one", 3), 0);
    assert_true(WAIT_FOR(has_changed(&alice)));

    /* Used up: it says nothing of the next, until it is set again. */
    assert_int_equal(cas_value(&bob, 1, "two", 3), 0);
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(alice.changes, 1);
    assert_int_equal(coord_watch(alice.coord, on_change, &alice), 0);
    assert_int_equal(cas_value(&bob, 2, "three", 5), 0);
    alice.changes = 0;
    assert_true(WAIT_FOR(has_changed(&alice)));
    coord_close(alice.coord);
    coord_close(bob.coord);
}

static void a_change_between_read_and_watch_is_not_missed(void **state)
{
    (void)state;
    open_owner(&alice);
    open_owner(&bob);
    assert_int_equal(cas_value(&bob, 0, "one", 3), 0);
    assert_int_equal(read_value(&alice), 0);
    assert_int_equal(cas_value(&bob, 1, "two", 3), 0);
    assert_int_equal(coord_watch(alice.coord, on_change, &alice), 0);
    assert_true(WAIT_FOR(has_changed(&alice)));
    coord_close(alice.coord);
    coord_close(bob.coord);
}

static void a_watch_stays_silent_while_nothing_changes(void **state)
{
    const uint64_t period_ns = 100 * NS_PER_MS;
    uint64_t now_ns = 0, wake_ns;

    (void)state;
    open_owner(&alice);
    assert_int_equal(cas_value(&alice, 0, "one", 3), 0);
    assert_int_equal(coord_watch(alice.coord, on_change, &alice), 0);
    for (int look = 0; look < 5; look++) {
        wake_ns = WAKE_NEVER;
        assert_int_equal(coord_poll(alice.coord, now_ns, &wake_ns), POLL_BUSY); /* posted */
        assert_true(WAIT_FOR(coord_poll(alice.coord, now_ns, &wake_ns) == POLL_BUSY));     /* answered */
        now_ns += period_ns;
        assert_int_equal(wake_ns, now_ns);
        assert_int_equal(alice.changes, 0);
    }
    coord_close(alice.coord);
}

static void a_damaged_value_fires_a_watch(void **state)
{
    uint8_t bytes[sizeof(golden)];

    (void)state;
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

static bool has_won(struct owner *owner)
{
    poll_owner(owner);
    return owner->wins > owner->losses;
}

static bool has_lost(struct owner *owner)
{
    poll_owner(owner);
    return owner->losses > 0;
}

/* Lets `owner` try for leadership `times` times. */
static void let_try(struct owner *owner, int times)
{
    for (int i = 0; i < 2 * times; i++) /* posted, ended */
        assert_true(WAIT_FOR(poll_owner(owner) == POLL_BUSY));
}

static void leadership_moves_on_when_the_leader_closes(void **state)
{
    (void)state;
    open_owner(&alice);
    open_owner(&bob);
    assert_int_equal(coord_elect(alice.coord, on_leader, &alice), 0);
    assert_true(WAIT_FOR(has_won(&alice)));
    assert_int_equal(coord_elect(bob.coord, on_leader, &bob), 0);
    let_try(&bob, 2);
    let_try(&alice, 2);
    assert_int_equal(bob.wins, 0);
    assert_int_equal(alice.wins, 1);
    assert_int_equal(alice.losses, 0);
    coord_close(alice.coord);
    assert_int_equal(alice.losses, 0);
    assert_true(WAIT_FOR(has_won(&bob)));
    coord_close(bob.coord);
}

static void leadership_moves_on_when_the_leaders_process_is_killed(void **state)
{
    int ready[2];
    char byte;
    pid_t child;

    (void)state;
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

static void a_leader_whose_lock_file_was_replaced_is_told_that_it_lost(void **state)
{
    int lock_fd;

    (void)state;
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

/* Asks once, from inside a reactor that sleeps whenever it can, and waits for the answer. */
struct asking_role {
    struct owner *owner;
    struct reactor *reactor;
    uint64_t deadline_ns; /* 0: not asked */
};

static enum poll_result poll_asking(void *argument, uint64_t now_ns, uint64_t *wake_ns)
{
    struct asking_role *role = argument;

    if (role->deadline_ns == 0) {
        role->deadline_ns = now_ns + WAIT_DEADLINE_NS;
        coord_read(role->owner->coord, on_read, role->owner);
    }
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

static void an_answer_wakes_the_reactor(void **state)
{
    struct reactor_options options = {.name = "test", .clock = clock_system(), .cpu = -1};
    struct asking_role role = {.owner = &alice};
    const uint64_t start_ns = clock_now_ns(clock_system());

    (void)state;
    memset(&alice, 0, sizeof(alice));
    assert_int_equal(reactor_create(&options, &role.reactor), 0);
    assert_int_equal(coord_open_file(dir.path, role.reactor, &alice.coord), 0);
    /* The coord is polled first, so what is asked after it waits for a wake-up. */
    assert_int_equal(reactor_add_poller(role.reactor, &(struct poller){.name = "coord",
                                                                       .poll = poll_coord,
                                                                       .role = alice.coord}),
                     0);
    assert_int_equal(
        reactor_add_poller(role.reactor,
                           &(struct poller){.name = "asking", .poll = poll_asking, .role = &role}),
        0);
    reactor_run(role.reactor);
    assert_true(alice.answered);
    assert_int_equal(alice.error, 0);
    assert_true(clock_now_ns(clock_system()) - start_ns < WAIT_DEADLINE_NS);
    coord_close(alice.coord);
    reactor_destroy(role.reactor);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_fresh_directory_has_version_0_and_no_value),
        TEST(a_value_goes_up_one_version_with_each_compare_and_set),
        TEST(a_compare_and_set_of_another_version_changes_nothing),
        TEST(the_largest_value_fits_and_a_larger_one_is_refused),
        TEST(one_operation_of_each_kind_may_be_outstanding),
        TEST(a_missing_or_closed_directory_is_refused),
        TEST(the_value_file_has_its_written_format),
        TEST(every_damaged_byte_is_reported),
        TEST(a_cut_or_extended_value_file_is_reported),
        TEST(what_a_crash_left_of_the_next_value_is_ignored),
        TEST(a_compare_and_set_waits_for_the_one_before_it),
        TEST(close_does_not_wait_for_another_process),
        TEST(racing_compare_and_sets_lose_no_update),
        TEST(a_watch_fires_once_after_another_handles_compare_and_set),
        TEST(a_change_between_read_and_watch_is_not_missed),
        TEST(a_watch_stays_silent_while_nothing_changes),
        TEST(a_damaged_value_fires_a_watch),
        TEST(leadership_moves_on_when_the_leader_closes),
        TEST(leadership_moves_on_when_the_leaders_process_is_killed),
        TEST(a_leader_whose_lock_file_was_replaced_is_told_that_it_lost),
        TEST(an_answer_wakes_the_reactor),
    };

    return cmocka_run_group_tests_name("coord_file", tests, NULL, NULL);
}
