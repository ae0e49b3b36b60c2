/* filling_rate_test.c - how fast is copied to a replica that fills, and what waits for that. */
#define TEST_FIXTURE open_stage, stage_teardown
#define TEST_STATE   struct stage *stage

#include "filling.h"
#include "server/worker/worker_fill.h"

/* As many messages as there are are passed on; returns what is left behind them. */
static uint64_t copy_for(struct stage *stage, uint64_t ns)
{
    for (uint64_t at = 0; at < ns; at += 10 * NS_PER_MS) {
        stage_land_all(stage);
        stage_pass(stage, 10 * NS_PER_MS);
    }
    return left_to_fill(stage);
}

static void set_rate(struct stage *stage, uint64_t bytes)
{
    const struct server_options options = {.fill_rate = bytes, .stop_timeout_ns = NS_PER_S};
    server_tune(stage->server, &options);
}

static void fill_slowly(struct stage *stage, uint32_t value_bytes)
{
    static const uint8_t value[60 << 10];
    struct puppet_conn *client = stage_client(stage);
    for (unsigned i = 0; i < 100; i++) {
        char key[32];
        const int count = snprintf(key, sizeof key, "{%s}%u", stage_key_of(LED), i);
        stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)count, value, value_bytes, 0);
        stage_run(stage);
    }
    set_rate(stage, 64 << 10);
    change(stage, LED, FILLS);
}

TEST(copying_keeps_to_the_rate_that_was_set_last)
{
    fill_slowly(stage, 4096);
    const uint64_t left =
        copy_for(stage, NS_PER_S); /* a message has more than 128 KiB: two seconds */
    assert_in_range(left, 50, 75);
    assert_int_equal(copy_for(stage, NS_PER_S / 2), left);
    const uint64_t later = copy_for(stage, 2 * NS_PER_S);
    assert_in_range(later, 25, left - 25);
    set_rate(stage, 0);
    assert_int_equal(copy_for(stage, NS_PER_S), 0);
    assert_true(tells_filled(stage, LED, 2));
}

static void get_short(struct stage *stage)
{
    stage->fabric->unquiet = true;
    while (atomic_load(&worker_of(stage)->common->space) == SPACE_ENOUGH) {
        assert_true(puppet_seal(stage->fabric, STAGE_CONTROL));
        stage_run(stage);
    }
}

/* Or no segment would become free for as long as the rate wants, and puts would be refused. */
TEST(where_this_server_is_short_of_space_what_was_gathered_goes_at_once)
{
    fill_slowly(stage, 60 << 10); /* not all that is gathered has space in a message */
    const struct worker *worker = worker_of(stage);
    const uint64_t left = copy_for(stage, NS_PER_S);
    assert_int_not_equal(worker_fill_held(worker), RECLAIM_NOTHING);
    get_short(stage);
    copy_for(stage, NS_PER_S / 10);
    assert_int_equal(worker_fill_held(worker), RECLAIM_NOTHING);
    assert_in_range(copy_for(stage, NS_PER_S), 1, left - 1);
}

UNIT_MAIN(NULL, NULL)
