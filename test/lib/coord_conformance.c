/* coord_conformance.c - see coord_conformance.h. A read may be a little old, so a case that wants to see another
 * handle's write reads until it does. */
#define TEST_FIXTURE open_owners, close_owners

#include "test/lib/coord_conformance.h"

#include "common/base/error.h"
#include "test/lib/coord_owner.h"
#include "test/lib/unit.h"

#define DEADLINE_NS (60 * NS_PER_S)

enum { OWNERS = 3 };

static const struct coord_backend *backend;
static struct owner owners[OWNERS];
static struct owner *const alice = &owners[0], *const bob = &owners[1], *const carol = &owners[2];

static int open_owners(void **state)
{
    backend = *state;
    print_message("# %s\n", backend->name);
    backend->start(backend->context);
    memset(owners, 0, sizeof owners);
    for (int i = 0; i < OWNERS; i++)
        owners[i].coord = backend->open(backend->context);
    return 0;
}

static void close_owner(struct owner *owner)
{
    coord_close(owner->coord);
    owner->coord = NULL;
}

static int close_owners(void **state)
{
    (void)state;
    for (int i = 0; i < OWNERS; i++)
        close_owner(&owners[i]);
    backend->stop(backend->context);
    return 0;
}

static uint64_t poll_owners(void)
{
    uint64_t now_ns = backend->tick(backend->context), wake_ns = WAKE_NEVER;
    for (int i = 0; i < OWNERS; i++) {
        if (owners[i].coord)
            coord_poll(owners[i].coord, now_ns, &wake_ns);
    }
    return now_ns;
}

/* Polls until *count is at least `least`. */
static void wait_for(const unsigned *count, unsigned least)
{
    uint64_t end_ns = poll_owners() + DEADLINE_NS;
    while (*count < least && poll_owners() < end_ns)
        ;
    assert_true(*count >= least);
}

/* So that whatever is on its way has come. */
static void let_pass(uint64_t ns)
{
    uint64_t end_ns = poll_owners() + ns;
    while (poll_owners() < end_ns)
        ;
}

static void read_newest(struct owner *owner)
{
    assert_int_equal(coord_read(owner->coord, on_read, owner), 0);
    wait_for(&owner->reads, owner->reads + 1);
    assert_int_equal(owner->error, 0);
}

static void read_until(struct owner *owner, uint64_t version)
{
    uint64_t end_ns = poll_owners() + DEADLINE_NS;
    do
        read_newest(owner);
    while (owner->version < version && poll_owners() < end_ns);
    assert_int_equal(owner->version, version);
}

static int cas(struct owner *owner, uint64_t expected, const char *text)
{
    assert_int_equal(coord_cas(owner->coord, expected, text, strlen(text), on_cas, owner), 0);
    wait_for(&owner->stores, owner->stores + 1);
    return owner->error;
}

/* --- the value --- */

TEST(what_was_never_written_has_version_0)
{
    alice->version = 99;
    read_newest(alice);
    assert_int_equal(alice->version, 0);
    assert_int_equal(alice->bytes, 0);
}

TEST(a_value_goes_up_one_version_with_each_compare_and_set)
{
    assert_int_equal(cas(alice, 0, "first"), 0);
    assert_int_equal(alice->version, 1);
    assert_int_equal(cas(bob, 1, ""), 0);
    assert_int_equal(bob->version, 2);
    read_until(alice, 2);
    assert_int_equal(alice->bytes, 0);
    assert_int_equal(cas(alice, 2, "third"), 0);
    read_until(bob, 3);
    assert_int_equal(bob->bytes, 5);
    assert_memory_equal(bob->value, "third", 5);
}

TEST(a_value_outlives_its_handles)
{
    assert_int_equal(cas(alice, 0, "kept"), 0);
    for (int i = 0; i < OWNERS; i++)
        close_owner(&owners[i]);
    bob->coord = backend->open(backend->context);
    read_until(bob, 1);
    assert_memory_equal(bob->value, "kept", 4);
}

TEST(a_compare_and_set_of_another_version_changes_nothing)
{
    const uint64_t wrong[] = {0, 1, 3, UINT64_MAX};
    assert_int_equal(cas(alice, 1, "too early"), ROWAN_EVERSION);
    assert_int_equal(cas(alice, 0, "one"), 0);
    assert_int_equal(cas(alice, 1, "two"), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(cas(bob, wrong[i], "wrong"), ROWAN_EVERSION);
    let_pass(NS_PER_MS);
    read_until(bob, 2);
    assert_memory_equal(bob->value, "two", 3);
}

TEST(what_a_handle_stored_it_reads)
{
    for (uint64_t version = 0; version < 20; version++) {
        assert_int_equal(cas(alice, version, "mine"), 0);
        read_newest(alice);
        assert_int_equal(alice->version, version + 1);
    }
}

TEST(what_a_handle_has_read_it_never_reads_older)
{
    uint64_t seen = 0;
    for (uint64_t version = 0; version < 20; version++) {
        assert_int_equal(cas(alice, version, "newer"), 0);
        read_newest(bob);
        assert_true(bob->version >= seen && bob->version <= version + 1);
        seen = bob->version;
    }
}

TEST(the_largest_value_fits_and_a_larger_one_is_refused)
{
    static uint8_t value[COORD_MAX_VALUE_BYTES + 1];
    for (size_t i = 0; i < sizeof value; i++)
        value[i] = (uint8_t)(i * 7 + i / 255);
    assert_int_equal(coord_cas(alice->coord, 0, value, sizeof value, on_cas, alice),
                     ROWAN_EINVALID);
    assert_int_equal(coord_cas(alice->coord, 0, value, COORD_MAX_VALUE_BYTES, on_cas, alice), 0);
    wait_for(&alice->stores, 1);
    assert_int_equal(alice->error, 0);
    read_until(bob, 1);
    assert_int_equal(bob->bytes, COORD_MAX_VALUE_BYTES);
    assert_memory_equal(bob->value, value, COORD_MAX_VALUE_BYTES);
}

TEST(one_operation_of_each_kind_may_be_outstanding)
{
    for (int round = 0; round < 2; round++) {
        assert_int_equal(coord_read(alice->coord, on_read, alice), 0);
        assert_int_equal(coord_read(alice->coord, on_read, alice), ROWAN_EAGAIN);
        assert_int_equal(coord_cas(alice->coord, 7, "x", 1, on_cas, bob), 0);
        assert_int_equal(coord_cas(alice->coord, 7, "x", 1, on_cas, bob), ROWAN_EAGAIN);
        wait_for(&alice->reads, (unsigned)round + 1);
        wait_for(&bob->stores, (unsigned)round + 1);
        assert_int_equal(bob->error, ROWAN_EVERSION);
    }
    assert_int_equal(coord_watch(alice->coord, on_change, alice), 0);
    assert_int_equal(coord_watch(alice->coord, on_change, alice), ROWAN_EAGAIN);
    assert_int_equal(coord_elect(alice->coord, on_leader, alice), 0);
    assert_int_equal(coord_elect(alice->coord, on_leader, alice), ROWAN_EAGAIN);
}

TEST(close_drops_what_is_outstanding)
{
    assert_int_equal(coord_read(alice->coord, on_read, alice), 0);
    assert_int_equal(coord_cas(alice->coord, 0, "x", 1, on_cas, alice), 0);
    assert_int_equal(coord_watch(alice->coord, on_change, alice), 0);
    assert_int_equal(coord_elect(alice->coord, on_leader, alice), 0);
    close_owner(alice);
    let_pass(300 * NS_PER_MS);
    assert_int_equal(alice->reads + alice->stores + alice->changes + alice->wins, 0);
}

/* Each raises the number in the value by one, however often others are first. */
TEST(racing_compare_and_sets_lose_no_update)
{
    enum { GOAL = 50 };
    unsigned raised[OWNERS] = {0}, reads[OWNERS] = {0}, stores[OWNERS] = {0}, number = 0;
    for (int i = 0; i < OWNERS; i++)
        assert_int_equal(coord_read(owners[i].coord, on_read, &owners[i]), 0);
    uint64_t end_ns = poll_owners() + DEADLINE_NS;
    while (raised[0] < GOAL || raised[1] < GOAL || raised[2] < GOAL) {
        assert_true(poll_owners() < end_ns);
        for (int i = 0; i < OWNERS; i++) {
            struct owner *owner = &owners[i];
            if (owner->reads > reads[i]) {
                reads[i]++;
                number = 0;
                memcpy(&number, owner->value, owner->bytes);
                number++;
                assert_int_equal(
                    coord_cas(owner->coord, owner->version, &number, sizeof number, on_cas, owner),
                    0);
            } else if (owner->stores > stores[i]) {
                stores[i]++;
                assert_true(owner->error == 0 || owner->error == ROWAN_EVERSION);
                raised[i] += owner->error == 0;
                if (raised[i] < GOAL)
                    assert_int_equal(coord_read(owner->coord, on_read, owner), 0);
            }
        }
    }
    read_until(alice, OWNERS * GOAL);
    memcpy(&number, alice->value, sizeof number);
    assert_int_equal(number, OWNERS * GOAL);
}

/* --- watches --- */

TEST(a_watch_fires_once_after_another_handles_compare_and_set)
{
    read_newest(alice);
    assert_int_equal(coord_watch(alice->coord, on_change, alice), 0);
    let_pass(200 * NS_PER_MS);
    assert_int_equal(alice->changes, 0);
    assert_int_equal(cas(bob, 0, "one"), 0);
    wait_for(&alice->changes, 1);
    assert_int_equal(cas(bob, 1, "two"), 0); /* used up */
    let_pass(200 * NS_PER_MS);
    assert_int_equal(alice->changes, 1);
    assert_int_equal(coord_watch(alice->coord, on_change, alice), 0);
    wait_for(&alice->changes, 2);
}

TEST(a_change_between_read_and_watch_is_not_missed)
{
    assert_int_equal(cas(bob, 0, "one"), 0);
    read_until(alice, 1);
    assert_int_equal(cas(bob, 1, "two"), 0);
    assert_int_equal(coord_watch(alice->coord, on_change, alice), 0);
    wait_for(&alice->changes, 1);
}

TEST(who_watches_and_reads_again_sees_the_last_value)
{
    assert_int_equal(coord_watch(alice->coord, on_change, alice), 0);
    unsigned seen = 0;
    for (uint64_t version = 0; version < 20; version++) {
        assert_int_equal(cas(bob, version, "next"), 0);
        for (int round = 0; round < 3; round++) {
            poll_owners();
            if (alice->changes == seen)
                continue;
            seen++;
            assert_int_equal(coord_watch(alice->coord, on_change, alice), 0);
            read_newest(alice);
        }
    }
    while (alice->version < 20) { /* or a change was missed */
        wait_for(&alice->changes, seen + 1);
        seen++;
        assert_int_equal(coord_watch(alice->coord, on_change, alice), 0);
        read_newest(alice);
    }
}

/* --- the leader --- */

TEST(one_leads_and_the_next_when_it_closes)
{
    for (int i = 0; i < OWNERS; i++) {
        assert_int_equal(coord_elect(owners[i].coord, on_leader, &owners[i]), 0);
        if (i == 0)
            wait_for(&alice->wins, 1);
    }
    let_pass(400 * NS_PER_MS);
    assert_int_equal(alice->wins, 1);
    assert_int_equal(alice->losses + bob->wins + carol->wins, 0);
    close_owner(alice);
    uint64_t end_ns = poll_owners() + DEADLINE_NS;
    while (bob->wins + carol->wins == 0 && poll_owners() < end_ns)
        ;
    let_pass(400 * NS_PER_MS);
    assert_int_equal(bob->wins + carol->wins, 1);
    close_owner(bob->wins ? bob : carol);
    wait_for(&(bob->wins ? carol : bob)->wins, 1);
    assert_int_equal(alice->losses + bob->losses + carol->losses, 0);
}

int coord_conformance_run(const char *group, const struct coord_backend *backends, unsigned count)
{
    const size_t cases = unit_list(unit_cases, NULL, NULL);
    struct CMUnitTest *all = calloc(count * cases, sizeof *all);
    assert_non_null(all);
    for (unsigned i = 0; i < count; i++)
        unit_list(unit_cases, (void *)(uintptr_t)&backends[i], all + i * cases);
    int failed = _cmocka_run_group_tests(group, all, count * cases, NULL, NULL);
    free(all);
    return failed;
}
