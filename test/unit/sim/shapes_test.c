/* Clusters of shapes that rowan-sim does not draw, through crashes, power losses, cuts and stops, the checkers looking
 * on: one server, one replica and as many as there are servers, blocks and segments of any size. And one that fills up.
 *
 * SIM_SEEDS=FROM:TO in the environment chooses the seeds. */
#include "checks_stage.h"
#include "test/lib/unit.h"
#include "test/sim/linear.h"

static uint32_t draw(struct random *random, uint32_t bound)
{
    return (uint32_t)random_below(random, bound);
}

static struct sim_cluster_options draw_shape(uint64_t seed)
{
    static const uint32_t limits[] = {256, 1024, 4096}, fences_us[] = {1, 20, 200, 2000};
    struct sim_cluster_options shape = CHECKS_STAGE_SHAPE;
    struct random random;
    random_init(&random, seed);
    shape.servers = 1 + draw(&random, 5);
    shape.replicas = 1 + draw(&random, shape.servers);
    shape.shards = shape.servers * (1 + draw(&random, 4));
    shape.workers = 1 + draw(&random, 4);
    shape.digests = 1 + draw(&random, 3);
    shape.clients = 1 + draw(&random, 4);
    shape.max_messages = draw(&random, 2) ? 3 : 0;
    shape.landing_segments = 2 + draw(&random, 3);
    shape.block_limit = limits[draw(&random, 3)];
    shape.max_delay_ns = draw(&random, 200) * NS_PER_US;
    shape.fence_ns = fences_us[draw(&random, 4)] * NS_PER_US;
    shape.drift_ppm = draw(&random, 2) * 10000;
    shape.one_sided = draw(&random, 2);
    shape.pm_bytes = 48 << 20;
    shape.timeout_ns = 60 * NS_PER_S;
    return shape;
}

TEST(any_shape_is_right_through_crashes_and_power_losses)
{
    uint64_t from = 1, to = 12;
    uint32_t crashes = 0, power_losses = 0;
    const char *seeds = getenv("SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%lu:%lu", &from, &to), 2);
    for (uint64_t seed = from; seed <= to; seed++) {
        const struct sim_cluster_options shape = draw_shape(seed);
        print_message("# seed %lu\n", seed);
        checks_stage_open(&stage, seed, &shape);
        checks_stage_run(&stage, CHECKS_STAGE_FAULTS | CHECKS_STAGE_STOPS);
        checks_stage_expect(&stage, NULL);
        crashes += stage.crashes;
        power_losses += stage.power_losses;
        checks_stage_close(&stage);
    }
    assert_true(crashes > to - from && power_losses > 0);
}

static void assert_linearizable(void)
{
    const struct history *history = &stage.history;
    struct history_op *ops = calloc(history->count, sizeof *ops);
    for (uint32_t key = 0; key < load_keys(stage.load); key++) {
        struct linear_result result;
        size_t count = 0;
        for (size_t i = 0; i < history->count; i++) {
            if (history->ops[i].key == key)
                ops[count++] = history->ops[i];
        }
        linear_check(ops, count, 0, &result);
        if (result.verdict != LINEAR_YES)
            fail_msg("key %u: %s", key, result.why);
    }
    free(ops);
}

TEST(a_cluster_that_fills_up_stays_right)
{
    struct sim_cluster_options shape = CHECKS_STAGE_SHAPE;
    const struct load_options load = {.operations = 3000,
                                      .keys = 1000, /* more than there is space for */
                                      .hot_keys = 4,
                                      .depth = 8,
                                      .mean_pause_ns = NS_PER_MS,
                                      .max_value_bytes = 32000,
                                      .long_in = 2,
                                      .gets = 40,
                                      .puts = 30,
                                      .put_ifs = 20,
                                      .deletes = 10,
                                      .may_fill = true};
    shape.workers = 2;
    shape.pm_bytes = 14 << 20;
    checks_stage_open_load(&stage, 1, 128 << 10, &shape, &load);
    while (!load_is_over(stage.load))
        checks_stage_step(&stage);
    checks_stage_settle(&stage);
    load_read_all(stage.load);
    checks_stage_settle(&stage);
    checks_stage_expect(&stage, NULL);
    uint32_t full = 0;
    for (size_t i = 0; i < stage.history.count; i++)
        full += stage.history.ops[i].outcome == HISTORY_REJECTED;
    assert_true(full > 100);
    assert_linearizable();
    checks_stage_close(&stage);
}

UNIT_MAIN(NULL, NULL)
