/* The checkers: each finds what was broken for it, and nothing in a run in which nothing was. */
#define TEST_FIXTURE checks_stage_set_up, checks_stage_tear_down

#include "checks_stage.h"
#include "common/base/crc.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "server/control/control_state.h"
#include "server/store/store_layout.h"
#include "server/worker/worker_state.h"
#include "test/lib/unit.h"
#include "test/sim/mutant.h"
#include "test/sim/sim_fault.h"
#include "test/sim/sim_log.h"

/* As what the digest role of that server does not see. The sites are off then. */
static void lose_one_block(const char *node)
{
    struct sim_fault_options options = {.seed = 1};
    options.one_in[FAULT_BLOCK_LOST] = 1;
    sim_fault_begin(&options);
    sim_log_node(node);
    assert_true(fault_fires(FAULT_BLOCK_LOST));
    sim_fault_end();
    assert_false(fault_fires(FAULT_BLOCK_LOST));
}

/* --- nothing is broken --- */

TEST_WITH(a_run_without_a_defect_passes, NULL, NULL)
{
    checks_stage_open(&stage, 1, NULL);
    checks_stage_run(&stage, CHECKS_STAGE_FAULTS);
    checks_leftovers(stage.checks);
    checks_stage_expect(&stage, NULL);
    struct checks_counts counts = checks_counts(stage.checks);
    assert_true(counts.blocks > 3 * counts.acknowledged && counts.acknowledged > 500);
    assert_true(counts.looks > 1000);
    assert_true(stage.crashes > 2 && stage.power_losses > 2);
    checks_stage_close(&stage);
}

/* --- entries --- */

TEST(two_entries_with_one_version_are_found)
{
    struct checks_stage_entry entry = checks_stage_last_entry(&stage);
    entry.header.operation += 1;
    checks_stage_store_whole(&stage, 2, &entry);
    checks_stage_expect(&stage, "C9");
}

/* A cut takes the last commit versions of a shard with it, and they are never told again. */
TEST(a_backup_that_was_not_told_is_found)
{
    struct checks_lag lag;
    assert_true(checks_commits_agree(stage.checks, &lag));
    const struct shard *shard = &stage.checks->config->shards[2];
    struct control *control =
        server_poller(stage.cluster->servers[shard->backups[1] - 1].server, 0).role;
    atomic_fetch_sub(&control->shards[2]->commit, 1);
    assert_false(checks_commits_agree(stage.checks, &lag));
    assert_int_equal(lag.shard, shard->id);
    atomic_fetch_add(&control->shards[2]->commit, 1);
    assert_true(checks_commits_agree(stage.checks, &lag));
    /* And a primary that tells less, or more, than it has resolved. */
    control = server_poller(stage.cluster->servers[shard->primary - 1].server, 0).role;
    atomic_fetch_add(&control->shards[2]->version, 1);
    assert_false(checks_commits_agree(stage.checks, &lag));
    atomic_fetch_sub(&control->shards[2]->version, 2);
    assert_false(checks_commits_agree(stage.checks, &lag));
    atomic_fetch_add(&control->shards[2]->version, 1);
    /* Whose digest role lost blocks, lost commit versions perhaps. */
    control = server_poller(stage.cluster->servers[shard->backups[1] - 1].server, 0).role;
    atomic_fetch_sub(&control->shards[2]->commit, 1);
    lose_one_block(stage.cluster->servers[shard->backups[1] - 1].process.name);
    assert_true(checks_commits_agree(stage.checks, &lag));
}

TEST(a_block_may_land_in_pieces)
{
    uint64_t blocks = checks_counts(stage.checks).blocks;
    struct checks_stage_entry entry = checks_stage_new_entry(&stage);
    for (uint32_t at = 0; at < 128; at += 8)
        checks_stage_store(&stage, 1, &entry, at, 8);
    assert_int_equal(checks_counts(stage.checks).blocks, blocks + 1);
    /* And half of one, for ever. */
    entry.header.version += 1;
    stage.hole += 128;
    checks_stage_store(&stage, 1, &entry, 0, 16);
    stage.hole += 64;
    checks_stage_store(&stage, 1, &entry, 0, 72);
    stage.hole += 128;
    checks_stage_store(&stage, 1, &entry, 0, 128);
    assert_int_equal(checks_counts(stage.checks).blocks, blocks + 2);
    checks_stage_expect(&stage, NULL);
}

/* The first piece is all of it, as it lands in zeros. */
TEST(the_last_zeros_of_a_block_may_come_later)
{
    static const uint8_t zeros[64];
    uint8_t block[128];
    struct entry_header header = checks_stage_last_entry(&stage).header;
    header.version += 1000;
    header.client_id = 0;
    header.key_bytes = 1;
    header.value_bytes = sizeof zeros;
    const struct entry_format *format = &checks_stage_worker(&stage, 1)->common->format;
    assert_int_equal(entry_encode_block(format, &header, (const uint8_t *)"k", zeros, block),
                     sizeof block);
    struct pm *pm = &stage.cluster->servers[0].pm->pm;
    uint64_t at = checks_stage_hole(&stage, 1);
    pm_store(pm, at, block, 64);
    pm_store(pm, at + 64, block + 64, 64);
    checks_stage_expect(&stage, NULL);
    /* But over more than it, they are a wipe. */
    pm_store(pm, at + 64, (const uint8_t[128]){0}, 128);
    checks_stage_expect(&stage, "C4");
}

/* --- segments --- */

TEST(a_store_over_a_block_is_found)
{
    struct checks_stage_entry entry = checks_stage_last_entry(&stage);
    pm_store(&stage.cluster->servers[entry.server - 1].pm->pm, entry.offset + 64, "\7", 1);
    checks_stage_expect(&stage, "C4");
}

TEST(a_store_into_a_free_segment_is_found)
{
    struct checks_stage_entry entry = checks_stage_last_entry(&stage);
    entry.header.version += 1000;
    stage.hole_state = SEGMENT_FREE;
    checks_stage_store_whole(&stage, 1, &entry);
    checks_stage_expect(&stage, "C4");
}

TEST(a_store_in_the_middle_of_nothing_is_found)
{
    struct checks_stage_entry entry = checks_stage_last_entry(&stage);
    stage.hole += 24;
    checks_stage_store(&stage, 1, &entry, 0, 40);
    checks_stage_expect(&stage, "C4");
}

TEST(zeros_over_a_log_are_found)
{
    stage.hole = 0;
    uint64_t offset = checks_stage_hole(&stage, 1);
    pm_zero(&stage.cluster->servers[0].pm->pm, offset, STORE_SEGMENT_BYTES);
    checks_stage_expect(&stage, "C4");
}

/* The segment with the hole of the first server. */
static uint64_t segment_of_hole(void)
{
    return (checks_stage_hole(&stage, 1) - stage.checks->servers[0].segment_offset) /
           STORE_SEGMENT_BYTES;
}

static void commit_hole(void)
{
    const uint64_t segment = segment_of_hole();
    struct segment_meta meta = checks_segment_meta(&stage.checks->servers[0], segment);
    meta.state = SEGMENT_COMMITTED;
    uint64_t word = meta_encode(segment, &meta);
    pm_store(&stage.cluster->servers[0].pm->pm, META_OFFSET + segment * META_BYTES, &word, 8);
}

TEST(a_segment_that_is_committed_too_early_is_found)
{
    struct checks_stage_entry entry = checks_stage_new_entry(&stage);
    checks_stage_store_whole(&stage, 1, &entry);
    commit_hole();
    checks_stage_rounds(&stage, 20000);
    checks_stage_expect(&stage, "C6");
}

TEST(what_lies_in_a_void_is_no_entry_that_others_lack)
{
    struct checks_stage_entry entry = checks_stage_new_entry(&stage);
    struct pm *pm = &stage.cluster->servers[0].pm->pm;
    const struct store_geometry at = store_geometry(stage.checks->servers[0].segments);
    const struct segment_meta meta =
        checks_segment_meta(&stage.checks->servers[0], segment_of_hole());
    struct void_row row = {.segment = segment_of_hole(),
                           .allocation = meta.allocation,
                           .from = (uint32_t)stage.hole,
                           .bytes = entry.bytes};
    row.checksum = crc32c(0, &row, offsetof(struct void_row, checksum));
    for (unsigned i = 0; i < 2; i++)
        pm_store(pm, at.voids[i], &row, sizeof row);
    checks_stage_store_whole(&stage, 1, &entry);
    commit_hole();
    checks_stage_rounds(&stage, 20000);
    checks_stage_expect(&stage, NULL);
}

/* --- acknowledged writes --- */

TEST(a_write_that_nobody_stored_is_found)
{
    checks_acknowledged(stage.checks, 0, version_make(1, 100000));
    checks_stage_expect(&stage, "C2");
}

TEST(a_write_that_one_replica_lacks_is_found)
{
    struct checks_stage_entry entry = checks_stage_new_entry(&stage);
    for (uint32_t server = 1; server <= 3; server++) {
        checks_stage_expect(&stage, NULL);
        checks_stage_store_whole(&stage, server, &entry);
    }
    checks_stage_fence(&stage);
    checks_acknowledged(stage.checks, entry.key, entry.header.version);
    checks_stage_expect(&stage, NULL);
    entry.header.version++;
    stage.hole += 1024;
    for (uint32_t server = 1; server <= 2; server++)
        checks_stage_store_whole(&stage, server, &entry);
    checks_stage_fence(&stage);
    checks_seen(stage.checks, entry.key, entry.header.version);
    checks_stage_expect(&stage, "C2");
}

TEST(a_replica_that_was_filled_may_have_a_newer_write_in_place_of_one_of_an_earlier_epoch)
{
    struct checks_stage_entry entry = checks_stage_new_entry(&stage);
    const uint64_t version = entry.header.version;
    const uint16_t shard = entry.header.shard;
    for (uint32_t server = 1; server <= 2; server++)
        checks_stage_store_whole(&stage, server, &entry);
    entry.header.version++;
    stage.hole += 1024;
    for (uint32_t server = 1; server <= 2; server++)
        checks_stage_store_whole(&stage, server, &entry);
    uint32_t *copied = &stage.checks->copied_epochs[2][shard];
    *copied = version_epoch(version) + 1;
    checks_stage_fence(&stage);
    assert_false(checks_is_held(stage.checks, checks_entry(stage.checks, shard, version), 2));
    checks_stage_store_whole(&stage, 3, &entry);
    checks_stage_fence(&stage);
    assert_true(checks_is_held(stage.checks, checks_entry(stage.checks, shard, version), 2));
    *copied = version_epoch(version); /* what is written while it is copied to is sent to it */
    assert_false(checks_is_held(stage.checks, checks_entry(stage.checks, shard, version), 2));
}

/* --- where a fence or a power loss decides --- */

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

/* --- what servers show, who serves --- */

TEST_WITH(two_servers_of_one_shard_are_found, NULL, NULL)
{
    checks_stage_open(&stage, 15, NULL);
    const struct shard *shard = &sim_cluster_config(stage.cluster)->shards[0];
    struct worker *of = checks_stage_worker(&stage, shard->primary);
    struct worker *other = checks_stage_worker(&stage, shard->primary % 3 + 1);
    checks_stage_rounds(&stage, 100);
    checks_stage_expect(&stage, NULL);
    other->shards[shard->id] = of->shards[shard->id];
    for (int i = 0; i < 10; i++)
        checks_step(stage.checks);
    other->shards[shard->id] = NULL;
    checks_stage_expect(&stage, "C1");
    checks_stage_close(&stage);
}

TEST_WITH(a_server_that_ends_is_found, NULL, NULL)
{
    checks_stage_open(&stage, 17, NULL);
    struct control *control = server_poller(stage.cluster->servers[1].server, 0).role;
    server_fail(control->common, ROWAN_ENOMEM, "it has had enough");
    checks_step(stage.checks);
    checks_stage_expect(&stage, "error");
    checks_stage_close(&stage);
    checks_stage_open(&stage, 17, NULL);
    control = server_poller(stage.cluster->servers[2].server, 0).role;
    server_fail(control->common, ROWAN_EREFUSED, "it is not a member");
    checks_step(stage.checks);
    checks_stage_expect(&stage, "error");
    checks_stage_close(&stage);
}

TEST_WITH(a_log_that_tells_of_damage_is_heard, NULL, NULL)
{
    checks_stage_open(&stage, 18, NULL);
    log_event(LOG_INFO, "recovered", "shards=1 strange=0 zeroed=3");
    log_event(LOG_INFO, "fine", "shard=1");
    checks_stage_expect(&stage, NULL);
    log_event(LOG_INFO, "recovered", "shards=1 strange=4 zeroed=3");
    checks_stage_expect(&stage, "unprovoked");
    checks_stage_close(&stage);
    checks_stage_open(&stage, 18, NULL);
    log_event(LOG_WARN, "versions_missing", "shard=3 first=%lx", 7ul);
    checks_stage_expect(&stage, "unprovoked");
    assert_int_equal(stage.failure.shard, 3);
    checks_stage_close(&stage);
    checks_stage_open(&stage, 18, NULL);
    log_event(LOG_WARN, "pm_full", "segments=256 free=3");
    checks_stage_expect(&stage, "unprovoked");
    checks_stage_close(&stage);
}

/* --- power losses without fences --- */

/* All hosts are rebooted, and had time to write everything. `first_ran_on`: as if that of server 1 had not been. */
static void reboot_hosts(bool first_ran_on)
{
    struct sim_cluster_options shape = CHECKS_STAGE_SHAPE;
    shape.durability = PM_NONE;
    checks_stage_open(&stage, 30, &shape);
    checks_stage_rounds(&stage, 2000);
    sim_cluster_crash(stage.cluster);
    sim_cluster_restart(stage.cluster, true);
    stage.cluster->servers[0].boots -= first_ran_on;
    checks_stage_run(&stage, 0);
}

TEST_WITH(possible_loss_is_right_though_a_reboot_took_nothing, NULL, NULL)
{
    reboot_hosts(false);
    checks_stage_expect(&stage, NULL);
    assert_true(sim_cluster_config(stage.cluster)->shards[0].possibly_incomplete);
    log_event(LOG_WARN, "versions_lost", "shard=3 first=%lx", 7ul);
    checks_stage_expect(&stage, "unprovoked");
    checks_stage_close(&stage);
}

TEST_WITH(possible_loss_beside_a_host_that_ran_all_the_time_is_found, NULL, NULL)
{
    reboot_hosts(true);
    checks_stage_expect(&stage, "loss");
    checks_stage_close(&stage);
    checks_stage_open(&stage, 30, NULL);
    log_event(LOG_ERROR, "possible_loss", "shards=1");
    checks_stage_expect(&stage, "unprovoked");
    checks_stage_close(&stage);
}

TEST_WITH(a_client_id_that_is_given_twice_is_found, NULL, NULL)
{
    checks_stage_open(&stage, 29, NULL);
    checks_stage_rounds(&stage, 10);
    checks_stage_expect(&stage, NULL);
    stage.checks->client_ids[1] = 0; /* as if it got what it has just now */
    checks_step(stage.checks);
    checks_stage_expect(&stage, "ids");
    checks_stage_close(&stage);
}

/* --- lost blocks --- */

/* What a digest role does not see comes again, behind newer versions. */
static void lose_blocks(uint64_t seed)
{
    struct sim_fault_options options = {.seed = seed};
    options.one_in[FAULT_BLOCK_LOST] = 60;
    options.one_in[FAULT_SHORT_BATCH] = 3;
    sim_fault_begin(&options);
}

/* The blocks of a long entry may be missed just before the faults of a run end, and the commit version come after. But
 * they are missed where the site fired, and by no other server, nor by the process that starts there next. */
static void lose_block_of_server_2(bool elsewhere)
{
    checks_stage_open(&stage, 23, NULL);
    lose_one_block("server-2");
    log_event(LOG_WARN, "versions_missing", "shard=3 first=%lx", 7ul);
    checks_stage_expect(&stage, NULL);
    if (elsewhere) {
        sim_log_node("server-1");
    } else {
        sim_cluster_kill_server(stage.cluster, 2, NULL);
        sim_cluster_start_server(stage.cluster, 2);
        checks_step(stage.checks);
        checks_stage_expect(&stage, NULL);
        sim_log_node("server-2");
    }
    log_event(LOG_WARN, "versions_missing", "shard=3 first=%lx", 7ul);
    sim_log_node(NULL);
    checks_stage_expect(&stage, "unprovoked");
    checks_stage_close(&stage);
}

TEST_WITH(a_block_lost_before_the_faults_end_is_excused_after, NULL, NULL)
{
    lose_block_of_server_2(true);
    lose_block_of_server_2(false);
}

TEST_WITH(an_older_entry_that_comes_again_does_no_harm, NULL, NULL)
{
    checks_stage_open(&stage, 21, NULL);
    lose_blocks(21);
    checks_stage_run(&stage, 0);
    assert_true(sim_fault_count(FAULT_BLOCK_LOST) > 5);
    checks_leftovers(stage.checks);
    checks_stage_expect(&stage, NULL);
    checks_stage_close(&stage);

    sim_mutant_set(MUTANT_ORDER_IGNORED);
    checks_stage_open(&stage, 21, NULL);
    lose_blocks(21);
    checks_stage_run(&stage, 0);
    sim_mutant_set(MUTANT_COUNT);
    checks_stage_expect(&stage, "C3");
    checks_stage_close(&stage);
}

UNIT_MAIN(NULL, NULL)
