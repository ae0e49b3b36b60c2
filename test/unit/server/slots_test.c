/* A server as a backup whose landing zone receives in slots (fabric.h, F6) and senders leave gaps: how its digest role gets past them, and comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/entry/entry.h"
#include "landing.h"
#include "server/digest/digest.h"

static struct digest *digest_of(const struct stage *stage)
{
    return server_poller(stage->server, server_roles(stage->server) - 1).role;
}

/* The landing zone's blocks lie in slots: what is behind one in its slot is waited for by nobody. */
static void entries_in_slots_are_digested_as_they_come(void **state)
{
    struct stage *stage = *state;

    stage_close(stage);
    stage_start(stage, 256);
    stage->fabric->head.caps.landing_stride = 256;
    stage_begin(stage);
    struct landing landing = landing_begin(stage);

    for (uint64_t i = 1; i <= 40; i++)
        landing_put(&landing, i);
    const uint64_t empty = landing.offset;

    landing.offset += 256; /* of a slow sender */
    landing_put(&landing, 42);
    stage_run(stage);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 40));
    const uint64_t behind = landing.offset;

    landing.offset = empty;
    landing_put(&landing, 41);
    landing.offset = behind;
    assert_int_equal(landing_ask(&landing).version, version_make(1, 42));
    landing_commit(&landing, STAGE_BACKED, version_make(1, 42));
    stage_pass(stage, 200 * NS_PER_MS);
    landing_assert_no_fetch(&landing);
}

/* --- gaps that many senders left --- */

enum { RUNS = 40, RUN = 8, SLOT = 256, FIRST = RUNS * RUN, LAST = 2 * FIRST };

/* Every second run of slots is empty: what is sent first, up to FIRST, lies behind them. */
struct runs {
    struct landing landing;
    uint64_t holes[RUNS];
    uint64_t end;
};

static struct landing slots_begin(struct stage *stage)
{
    stage_close(stage);
    stage_start(stage, SLOT);
    stage->fabric->head.caps.landing_stride = SLOT;
    stage_begin(stage);
    return landing_begin(stage);
}

static struct runs runs_begin(struct stage *stage)
{
    struct runs runs = {.landing = slots_begin(stage)};

    for (uint64_t run = 0; run < RUNS; run++) {
        runs.holes[run] = runs.landing.offset;
        runs.landing.offset += RUN * SLOT;
        for (uint64_t i = 1; i <= RUN; i++)
            landing_put(&runs.landing, run * RUN + i);
    }
    runs.end = runs.landing.offset;
    landing_ask(&runs.landing);
    return runs;
}

/* The idle one sends after all. */
static void runs_fill(struct runs *runs, uint64_t run)
{
    runs->landing.offset = runs->holes[run];
    for (uint64_t i = 1; i <= RUN; i++)
        landing_put(&runs->landing, FIRST + run * RUN + i);
    runs->landing.offset = runs->end;
}

/* The patience, until it is noticed; then all have waited for it once more. */
static void gaps_that_were_waited_for_are_passed_over_together(void **state)
{
    struct stage *stage = *state;
    struct runs runs = runs_begin(stage);

    assert_int_equal(landing_ask(&runs.landing).version, 0);
    stage_pass(stage, 200 * NS_PER_MS);
    assert_int_equal(landing_ask(&runs.landing).version, version_make(1, FIRST));
}

static void a_gap_behind_what_was_seen_is_waited_for(void **state)
{
    struct stage *stage = *state;
    struct runs runs = runs_begin(stage);

    stage_pass(stage, 200 * NS_PER_MS);
    landing_put(&runs.landing, FIRST + 1);
    const uint64_t empty = runs.landing.offset;

    runs.landing.offset += SLOT;
    landing_put(&runs.landing, FIRST + 3);
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(landing_ask(&runs.landing).version, version_make(1, FIRST + 1));
        stage_pass(stage, NS_PER_MS);
    }
    runs.landing.offset = empty;
    landing_put(&runs.landing, FIRST + 2);
    landing_ask(&runs.landing);
    assert_int_equal(landing_ask(&runs.landing).version, version_make(1, FIRST + 3));
}

static void what_lands_late_in_many_gaps_is_found_and_not_asked_for(void **state)
{
    struct stage *stage = *state;
    struct runs runs = runs_begin(stage);

    stage_pass(stage, 200 * NS_PER_MS);
    for (uint64_t run = RUNS; run-- > 0;)
        runs_fill(&runs, run);
    landing_commit(&runs.landing, STAGE_BACKED, version_make(1, LAST));
    landing_ask(&runs.landing);
    stage_pass(stage, NS_PER_S);
    landing_assert_no_fetch(&runs.landing);
    struct landing_said said = landing_ask(&runs.landing);

    assert_false(said.missing || said.busy);
    assert_int_equal(said.commit, version_make(1, LAST));
    assert_int_equal(digest_entries(digest_of(stage)), LAST); /* none of them twice */
}

/* Others leave new gaps all the time: the old ones are looked at all the same. */
static void new_gaps_do_not_put_off_the_look_at_old_ones(void **state)
{
    struct stage *stage = *state;
    struct runs runs = runs_begin(stage);

    stage_pass(stage, 3600 * NS_PER_S);
    runs.landing.offset = runs.holes[1];
    landing_put(&runs.landing, FIRST + 1);
    landing_commit(&runs.landing, STAGE_BACKED, version_make(1, FIRST + 1));
    runs.landing.offset = runs.end;
    for (uint64_t i = 2; i <= 20; i++) {
        runs.landing.offset += SLOT;
        landing_put(&runs.landing, FIRST + i);
        stage_run(stage);
        stage_pass(stage, 50 * NS_PER_MS); /* so there is one each 50 ms */
    }
    assert_int_equal(landing_ask(&runs.landing).commit, version_make(1, FIRST + 1));
}

static void empty_runs_between_blocks_only_delay(void **state)
{
    struct stage *stage = *state;
    struct runs runs = runs_begin(stage);
    struct landing landing = runs.landing;
    const uint64_t last = LAST;

    stage_pass(stage, 10 * NS_PER_S);
    assert_int_equal(landing_ask(&landing).version, version_make(1, FIRST));
    for (uint64_t run = 0; run < RUNS; run++)
        runs_fill(&runs, run);
    assert_true(puppet_seal(stage->fabric, STAGE_CONTROL));
    landing.offset = stage->fabric->posts[stage->fabric->sealed].offset;
    landing_commit(&landing, STAGE_BACKED, version_make(1, last));
    stage_pass(stage, 10 * NS_PER_S);
    landing_assert_no_fetch(&landing);
    struct landing_said said = landing_ask(&landing);

    assert_false(said.missing || said.busy);
    assert_int_equal(said.commit, version_make(1, last));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, stage_setup, stage_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(entries_in_slots_are_digested_as_they_come),
        TEST(gaps_that_were_waited_for_are_passed_over_together),
        TEST(a_gap_behind_what_was_seen_is_waited_for),
        TEST(what_lands_late_in_many_gaps_is_found_and_not_asked_for),
        TEST(new_gaps_do_not_put_off_the_look_at_old_ones),
        TEST(empty_runs_between_blocks_only_delay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
