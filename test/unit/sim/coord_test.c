/* coord_test.c - the simulated coordination service: what it does to its owners, a promise a test. What every
 * backend must do is in test/unit/coord/coord_sim_test.c. */
#include "common/base/error.h"
#include "test/lib/coord_owner.h"
#include "test/lib/unit.h"
#include "test/sim/sim_coord.h"

#define DELAY_NS   (10 * NS_PER_MS)
#define SESSION_NS (2 * NS_PER_S)
#define TICK_NS    (100 * NS_PER_US)

enum { OWNERS = 2, SEEDS = 40 };

static struct sim_clock clock_;
static struct sim_registry *registry;
static struct owner alice, bob;

static void open_world(uint64_t seed, uint64_t session_ns, uint32_t lost_reply)
{
    sim_clock_init(&clock_);
    registry = sim_registry_create(&(struct sim_registry_options){.clock = &clock_,
                                                                  .seed = seed,
                                                                  .max_delay_ns = DELAY_NS,
                                                                  .session_ns = session_ns,
                                                                  .lost_reply = lost_reply});
    alice = (struct owner){.coord = sim_coord_open(registry)};
    bob = (struct owner){.coord = sim_coord_open(registry)};
}

static void close_owner(struct owner *owner)
{
    coord_close(owner->coord);
    owner->coord = NULL;
}

static void close_world(void)
{
    close_owner(&alice);
    close_owner(&bob);
    sim_registry_destroy(registry);
}

static void poll_now(struct owner *owner)
{
    uint64_t wake_ns = WAKE_NEVER;
    if (owner->coord)
        coord_poll(owner->coord, clock_.now_ns, &wake_ns);
}

static void tick(void)
{
    clock_.now_ns += TICK_NS;
    poll_now(&alice);
    poll_now(&bob);
}

static void run_for(uint64_t ns)
{
    for (uint64_t end_ns = clock_.now_ns + ns; clock_.now_ns < end_ns;)
        tick();
}

static void run_until(const unsigned *count, unsigned least)
{
    for (uint64_t end_ns = clock_.now_ns + 2 * SESSION_NS; *count < least;) {
        assert_true(clock_.now_ns < end_ns);
        tick();
    }
}

static uint64_t stored(void)
{
    const void *value;
    size_t bytes;
    return sim_registry_value(registry, &value, &bytes);
}

static void ask_read(struct owner *owner)
{
    assert_int_equal(coord_read(owner->coord, on_read, owner), 0);
}

static uint64_t read_version(struct owner *owner)
{
    ask_read(owner);
    run_until(&owner->reads, owner->reads + 1);
    assert_int_equal(owner->error, 0);
    return owner->version;
}

static void ask_cas(struct owner *owner, uint64_t expected)
{
    assert_int_equal(coord_cas(owner->coord, expected, "value", 5, on_cas, owner), 0);
}

static int cas(struct owner *owner, uint64_t expected)
{
    ask_cas(owner, expected);
    run_until(&owner->stores, owner->stores + 1);
    return owner->error;
}

static void watch(struct owner *owner)
{
    assert_int_equal(coord_watch(owner->coord, on_change, owner), 0);
}

static void elect(struct owner *owner)
{
    assert_int_equal(coord_elect(owner->coord, on_leader, owner), 0);
}

/* --- time --- */

TEST(an_answer_takes_a_way_there_and_a_way_back)
{
    uint64_t longest_ns = 0;
    open_world(1, 0, 0);
    for (int i = 0; i < 200; i++) {
        uint64_t start_ns = clock_.now_ns;
        read_version(&alice);
        uint64_t took_ns = clock_.now_ns - start_ns;
        assert_true(took_ns <= 2 * (DELAY_NS + TICK_NS));
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
    }
    assert_true(longest_ns > DELAY_NS * 3 / 2);
    close_world();
}

/* With a session to keep, too. */
TEST(a_clock_that_jumps_to_what_is_next_misses_nothing)
{
    open_world(2, SESSION_NS, 2);
    elect(&alice);
    watch(&alice);
    for (unsigned i = 0; i < 200; i++) {
        uint64_t start_ns = clock_.now_ns;
        ask_cas(&bob, stored());
        for (unsigned want = bob.stores + 1; bob.stores < want;) {
            poll_now(&alice);
            poll_now(&bob);
            uint64_t next_ns = sim_registry_next_ns(registry);
            assert_true(next_ns > clock_.now_ns && next_ns < clock_.now_ns + SESSION_NS);
            if (bob.stores < want)
                clock_.now_ns = next_ns;
        }
        assert_true(clock_.now_ns - start_ns <= 2 * DELAY_NS);
        for (int idle = 0; idle < 10; idle++) {
            poll_now(&alice);
            poll_now(&bob);
            clock_.now_ns = sim_registry_next_ns(registry);
        }
    }
    assert_true(alice.leads && alice.changes == 1);
    assert_int_equal(sim_registry_counts(registry).expired, 0);
    close_world();
}

/* --- reads and watches --- */

TEST(a_read_may_be_one_change_behind_for_as_long_as_a_letter_travels)
{
    unsigned old = 0;
    open_world(3, 0, 0);
    read_version(&bob);
    for (uint64_t version = 0; version < 200; version++) {
        assert_int_equal(cas(&alice, version), 0);
        uint64_t seen = read_version(&bob);
        assert_true(seen == version || seen == version + 1);
        old += seen == version;
        run_for(DELAY_NS);
        assert_true(read_version(&bob) == version + 1);
    }
    assert_true(old > 20 && old < 180);
    close_world();
}

TEST(a_handle_has_seen_what_was_stored_when_it_was_opened)
{
    open_world(4, 0, 0);
    for (uint64_t version = 0; version < 100; version++) {
        assert_int_equal(cas(&alice, version), 0);
        close_owner(&bob);
        bob.coord = sim_coord_open(registry);
        assert_int_equal(read_version(&bob), version + 1);
    }
    close_world();
}

TEST(a_watch_fires_late_and_may_be_one_change_behind)
{
    unsigned late = 0, behind = 0;
    open_world(5, 0, 0);
    for (uint64_t version = 0; version < 200; version += 2) {
        assert_int_equal(read_version(&bob), version);
        watch(&bob);
        run_for(3 * DELAY_NS);
        unsigned changes = bob.changes, stores = alice.stores;
        ask_cas(&alice, version);
        while (stored() == version)
            tick();
        uint64_t change_ns = clock_.now_ns;
        run_until(&alice.stores, stores + 1);
        ask_cas(&alice, version + 1);
        run_until(&bob.changes, changes + 1);
        late += clock_.now_ns > change_ns + DELAY_NS / 2;
        ask_read(&bob);
        run_until(&bob.reads, bob.reads + 1);
        assert_true(bob.version > version);
        behind += bob.version < stored();
        run_for(3 * DELAY_NS);
        assert_int_equal(bob.changes, changes + 1);
    }
    assert_true(late > 10 && behind > 10);
    close_world();
}

/* --- lost replies --- */

TEST(a_lost_reply_leaves_the_effect_or_none)
{
    enum { TIMES = 200 };
    open_world(6, 0, 1);
    for (unsigned i = 0; i < TIMES; i++) {
        assert_int_equal(cas(&alice, stored()), ROWAN_EUNKNOWN);
        run_for(2 * DELAY_NS);
    }
    struct sim_registry_counts counts = sim_registry_counts(registry);
    assert_int_equal(counts.lost_effects + counts.lost_writes, TIMES);
    assert_int_equal(counts.lost_effects, counts.writes);
    assert_int_equal(counts.writes, stored());
    assert_true(counts.writes > TIMES / 4 && counts.lost_writes > TIMES / 4);
    close_world();
}

TEST(an_unknown_compare_and_set_may_win_after_it_was_answered)
{
    unsigned before = 0, after = 0;
    open_world(7, 0, 1);
    for (unsigned i = 0; i < 200; i++) {
        uint64_t version = stored();
        assert_int_equal(cas(&alice, version), ROWAN_EUNKNOWN);
        bool won = stored() > version;
        run_for(DELAY_NS);
        before += won;
        after += !won && stored() > version;
    }
    assert_true(before > 20 && after > 10);
    close_world();
}

/* --- partitioned handles --- */

TEST(a_partitioned_handle_changes_nothing_and_is_told_unknown)
{
    open_world(9, SESSION_NS, 0);
    assert_int_equal(cas(&alice, 0), 0);
    sim_coord_partition(alice.coord, true);
    assert_int_equal(cas(&alice, 1), ROWAN_EUNKNOWN);
    assert_int_equal(stored(), 1);
    assert_int_equal(sim_registry_counts(registry).lost_writes, 1);
    sim_coord_partition(alice.coord, false);
    assert_int_equal(cas(&alice, 1), 0);
    close_world();
}

TEST(what_is_under_way_when_a_handle_is_partitioned_may_arrive)
{
    unsigned arrived = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        open_world(seed, SESSION_NS, 0);
        ask_cas(&alice, 0);
        tick();
        assert_int_equal(alice.stores, 0);
        sim_coord_partition(alice.coord, true);
        run_until(&alice.stores, 1);
        assert_int_equal(alice.error, ROWAN_EUNKNOWN);
        struct sim_registry_counts counts = sim_registry_counts(registry);
        assert_int_equal(counts.lost_effects, stored());
        assert_int_equal(counts.lost_effects + counts.lost_writes, 1);
        arrived += stored() == 1;
        close_world();
    }
    assert_true(arrived > SEEDS / 4 && arrived < SEEDS * 3 / 4);
}

TEST(a_read_and_a_watch_outlast_a_partition)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        open_world(seed, SESSION_NS, 0);
        ask_read(&alice);
        watch(&alice);
        run_for(seed * NS_PER_MS / 2);
        unsigned reads = alice.reads;
        sim_coord_partition(alice.coord, true);
        assert_int_equal(cas(&bob, 0), 0);
        run_for(seed % 2 ? 2 * SESSION_NS : 2 * DELAY_NS);
        assert_int_equal(alice.reads + alice.changes, reads);
        sim_coord_partition(alice.coord, false);
        run_until(&alice.changes, 1);
        if (!reads)
            run_until(&alice.reads, 1);
        assert_int_equal(read_version(&alice), 1);
        close_world();
    }
}

/* --- sessions --- */

TEST(a_partitioned_leader_believes_it_leads_until_it_is_joined)
{
    open_world(10, SESSION_NS, 0);
    elect(&alice);
    run_for(3 * DELAY_NS);
    elect(&bob);
    sim_coord_partition(alice.coord, true);
    run_for(SESSION_NS / 2);
    assert_false(bob.leads);
    run_for(SESSION_NS);
    assert_true(alice.leads && bob.leads);
    sim_coord_partition(alice.coord, false);
    run_for(3 * DELAY_NS);
    assert_false(alice.leads);
    assert_int_equal(sim_registry_counts(registry).expired, 1);
    close_world();
}

TEST(who_lost_leadership_stands_again)
{
    open_world(11, SESSION_NS, 0);
    elect(&alice);
    run_for(3 * DELAY_NS);
    elect(&bob);
    sim_coord_expire(alice.coord);
    run_for(4 * DELAY_NS);
    assert_true(bob.leads && !alice.leads);
    close_owner(&bob);
    run_for(2 * SESSION_NS);
    assert_true(alice.leads);
    close_world();
}

TEST(who_leads_reads_all_that_was_stored_before_it_led)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        open_world(seed, SESSION_NS, 0);
        elect(&alice);
        run_for(3 * DELAY_NS);
        elect(&bob);
        assert_int_equal(read_version(&bob), 0);
        ask_cas(&alice, 0);
        while (stored() == 0)
            tick();
        sim_coord_expire(alice.coord);
        while (!bob.leads)
            tick();
        assert_int_equal(read_version(&bob), 1);
        close_world();
    }
}

TEST(what_an_ended_session_asks_has_no_effect)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        open_world(seed, SESSION_NS, 0);
        elect(&alice);
        run_for(3 * DELAY_NS);
        sim_coord_expire(alice.coord);
        ask_cas(&alice, 0);
        poll_now(&alice);
        assert_true(alice.leads); /* it does not know */
        run_until(&alice.stores, 1);
        assert_int_equal(alice.error, ROWAN_EUNKNOWN);
        run_for(3 * DELAY_NS);
        assert_int_equal(stored(), 0);
        close_world();
    }
}

TEST(an_owner_that_is_not_polled_loses_its_session)
{
    open_world(12, SESSION_NS, 0);
    elect(&alice);
    run_for(3 * DELAY_NS);
    elect(&bob);
    for (uint64_t end_ns = clock_.now_ns + 2 * SESSION_NS; clock_.now_ns < end_ns;) {
        clock_.now_ns += TICK_NS;
        poll_now(&bob);
    }
    assert_true(alice.leads && bob.leads);
    run_for(2 * DELAY_NS);
    assert_false(alice.leads);
    close_world();
}

TEST(a_session_outlives_its_closed_handle)
{
    open_world(13, SESSION_NS, 0);
    elect(&alice);
    run_for(3 * DELAY_NS);
    elect(&bob);
    run_for(3 * DELAY_NS);
    close_owner(&alice);
    run_for(SESSION_NS - DELAY_NS);
    assert_false(bob.leads);
    run_for(SESSION_NS);
    assert_true(bob.leads);
    assert_int_equal(sim_registry_counts(registry).expired, 0);
    close_world();
}

TEST(a_compare_and_set_outlives_its_closed_handle)
{
    open_world(14, SESSION_NS, 0);
    ask_cas(&alice, 0);
    poll_now(&alice);
    close_owner(&alice);
    assert_int_equal(stored(), 0);
    run_for(DELAY_NS + TICK_NS);
    assert_int_equal(stored(), 1);
    assert_int_equal(alice.stores, 0);
    close_world();
}

UNIT_MAIN(NULL, NULL)
