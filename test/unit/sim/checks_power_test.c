/* The checkers where a fence or a power loss decides: what counts as stored, and what does not any more. */
#define TEST_FIXTURE checks_stage_set_up, checks_stage_tear_down

#include "checks_stage.h"
#include "test/lib/unit.h"

TEST(a_write_that_no_fence_covers_is_found)
{
    struct checks_stage_entry entry = checks_stage_new_entry(&stage);
    for (uint32_t server = 1; server <= 3; server++)
        checks_stage_store_whole(&stage, server, &entry);
    checks_acknowledged(stage.checks, entry.key, entry.header.version);
    checks_stage_expect(&stage, "C2");
}

TEST(an_entry_that_the_power_took_is_missed)
{
    struct checks_stage_entry entry = checks_stage_new_entry(&stage);
    for (uint32_t server = 1; server <= 3; server++)
        checks_stage_store_whole(&stage, server, &entry);
    /* Until the power takes it. */
    const uint8_t *at = pm_at(&stage.cluster->servers[0].pm->pm, checks_stage_hole(&stage, 1));
    while (memcmp(at, entry.block, entry.bytes) == 0) {
        sim_cluster_kill_server(stage.cluster, 1, &stage.random);
        if (memcmp(at, entry.block, entry.bytes) == 0) {
            entry.header.version++;
            stage.hole += 1024;
            at += 1024;
            assert_true(stage.hole < STORE_SEGMENT_BYTES);
            checks_stage_store_whole(&stage, 1, &entry);
        }
    }
    checks_stage_expect(&stage, NULL);
    checks_acknowledged(stage.checks, entry.key, entry.header.version);
    checks_stage_expect(&stage, "C2");
}

TEST(a_client_is_served_twice_also_while_the_first_fence_is_under_way)
{
    struct checks_stage_entry entry = checks_stage_last_entry(&stage);
    entry.header.version += 1000;
    entry.header.operation += 1000;
    checks_stage_store_whole(&stage, 1, &entry);
    assert_false(
        sim_pm_is_durable(stage.cluster->servers[0].pm, checks_stage_hole(&stage, 1), entry.bytes));
    checks_stage_expect(&stage, NULL);
    entry.header.version++;
    stage.hole += 1024;
    checks_stage_store_whole(&stage, 2, &entry);
    checks_stage_expect(&stage, "once");
}

TEST(an_operation_that_the_power_took_may_be_done_again)
{
    struct checks_stage_entry entry = checks_stage_last_entry(&stage);
    entry.header.version += 1000;
    const uint8_t *at;
    do {
        entry.header.version++;
        entry.header.operation += 1000;
        stage.hole += 1024;
        at = pm_at(&stage.cluster->servers[0].pm->pm, checks_stage_hole(&stage, 1));
        assert_true(stage.hole < STORE_SEGMENT_BYTES);
        checks_stage_store_whole(&stage, 1, &entry);
        sim_cluster_kill_server(stage.cluster, 1, &stage.random);
    } while (memcmp(at, entry.block, entry.bytes) == 0);
    entry.header.version++;
    stage.hole += 1024;
    checks_stage_store_whole(&stage, 1, &entry);
    checks_stage_expect(&stage, NULL);
}

UNIT_MAIN(NULL, NULL)
