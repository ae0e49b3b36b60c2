/* The checkers where a fence or a power loss decides: what counts as stored, and what does not any more. */
#include "checks_stage.h"
#include "test/lib/unit.h"

TEST(a_write_that_no_fence_covers_is_found)
{
    struct checks_stage stage;
    checks_stage_open(&stage, 12, NULL);
    checks_stage_run(&stage, 0);
    struct checks_stage_entry entry = checks_stage_last_entry(&stage);
    entry.header.version += 1000;
    entry.header.client_id = 0;
    for (uint32_t server = 1; server <= 3; server++)
        checks_stage_store(&stage, server, &entry, 0, ENTRY_MAX_BLOCK_LIMIT);
    checks_acknowledged(stage.checks, entry.key, entry.header.version);
    checks_stage_expect(&stage, "C2");
    checks_stage_close(&stage);
}

TEST(an_entry_that_the_power_took_is_missed)
{
    struct checks_stage stage;
    checks_stage_open(&stage, 13, NULL);
    checks_stage_run(&stage, 0);
    struct checks_stage_entry entry = checks_stage_last_entry(&stage);
    entry.header.version += 1000;
    entry.header.client_id = 0;
    for (uint32_t server = 1; server <= 3; server++)
        checks_stage_store(&stage, server, &entry, 0, ENTRY_MAX_BLOCK_LIMIT);
    /* Until the power takes it. */
    const uint8_t *at = pm_at(&stage.cluster->servers[0].pm->pm, checks_stage_hole(&stage, 1));
    while (memcmp(at, entry.block, entry.bytes) == 0) {
        sim_cluster_kill_server(stage.cluster, 1, &stage.random);
        if (memcmp(at, entry.block, entry.bytes) == 0) {
            entry.header.version++;
            stage.hole += 1024;
            at += 1024;
            assert_true(stage.hole < STORE_SEGMENT_BYTES);
            checks_stage_store(&stage, 1, &entry, 0, ENTRY_MAX_BLOCK_LIMIT);
        }
    }
    checks_stage_expect(&stage, NULL);
    checks_acknowledged(stage.checks, entry.key, entry.header.version);
    checks_stage_expect(&stage, "C2");
    checks_stage_close(&stage);
}

TEST(a_client_is_served_twice_also_while_the_first_fence_is_under_way)
{
    struct checks_stage stage;
    checks_stage_open(&stage, 25, NULL);
    checks_stage_run(&stage, 0);
    struct checks_stage_entry entry = checks_stage_last_entry(&stage);
    entry.header.version += 1000;
    entry.header.operation += 1000;
    checks_stage_store(&stage, 1, &entry, 0, ENTRY_MAX_BLOCK_LIMIT);
    assert_false(
        sim_pm_is_durable(stage.cluster->servers[0].pm, checks_stage_hole(&stage, 1), entry.bytes));
    checks_stage_expect(&stage, NULL);
    entry.header.version++;
    stage.hole += 1024;
    checks_stage_store(&stage, 2, &entry, 0, ENTRY_MAX_BLOCK_LIMIT);
    checks_stage_expect(&stage, "once");
    checks_stage_close(&stage);
}

TEST(an_operation_that_the_power_took_may_be_done_again)
{
    struct checks_stage stage;
    checks_stage_open(&stage, 26, NULL);
    checks_stage_run(&stage, 0);
    struct checks_stage_entry entry = checks_stage_last_entry(&stage);
    entry.header.version += 1000;
    const uint8_t *at;
    do {
        entry.header.version++;
        entry.header.operation += 1000;
        stage.hole += 1024;
        at = pm_at(&stage.cluster->servers[0].pm->pm, checks_stage_hole(&stage, 1));
        assert_true(stage.hole < STORE_SEGMENT_BYTES);
        checks_stage_store(&stage, 1, &entry, 0, ENTRY_MAX_BLOCK_LIMIT);
        sim_cluster_kill_server(stage.cluster, 1, &stage.random);
    } while (memcmp(at, entry.block, entry.bytes) == 0);
    entry.header.version++;
    stage.hole += 1024;
    checks_stage_store(&stage, 1, &entry, 0, ENTRY_MAX_BLOCK_LIMIT);
    checks_stage_expect(&stage, NULL);
    checks_stage_close(&stage);
}

UNIT_MAIN(NULL, NULL)
