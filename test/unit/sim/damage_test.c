/* Bits that were flipped in the PM of a server while it did not run. */
#include "stage.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "common/base/error.h"
#include "common/entry/entry.h"
#include "server/store/store_layout.h"
#include "test/lib/unit.h"
#include "test/sim/sim_fault.h"
#include "test/sim/sim_log.h"

enum { KEYS = 40 };

static struct sim_cluster *open_cluster(void)
{
    fabric_segment_bytes = 128 << 10;
    sim_fault_begin(NULL);
    struct sim_cluster_options options = {.seed = 1,
                                          .shards = 2,
                                          .block_limit = 4096,
                                          .pm_bytes = 32 << 20,
                                          .max_delay_ns = 50 * NS_PER_US,
                                          .fence_ns = 100 * NS_PER_US};
    options.journal = journal_create(NULL, getenv("SIM_LOG") ? stderr : NULL);
    sim_log_journal(options.journal);
    return sim_cluster_create(&options);
}

/* Its replicas agree and hold so many objects, and it is destroyed. */
static void finish(struct sim_cluster *cluster, uint64_t objects)
{
    struct journal *journal = cluster->options.journal;
    stage_finish(cluster, objects);
    sim_log_journal(NULL);
    journal_destroy(journal);
}

static void put_keys(struct sim_cluster *cluster, uint32_t from, uint32_t to, uint32_t round)
{
    for (uint32_t i = from; i < to; i++) {
        char key[24];
        stage_key(cluster, 1, i, key);
        assert_int_equal(sim_put(cluster, 0, key, strlen(key), &round, sizeof round, NULL), 0);
    }
    sim_cluster_run_for(cluster, 100 * NS_PER_MS); /* the commit versions, too */
}

static void assert_keys(struct sim_cluster *cluster, uint32_t from, uint32_t to, uint32_t round)
{
    for (uint32_t i = from; i < to; i++) {
        char key[24];
        uint32_t got = 0;
        size_t bytes;
        stage_key(cluster, 1, i, key);
        assert_int_equal(sim_get(cluster, 0, key, strlen(key), &got, sizeof got, &bytes, NULL), 0);
        assert_int_equal(got, round);
    }
}

/* A bit of each entry of the key in the PM of the server; returns how many. */
static uint32_t flip(struct sim_cluster *cluster, uint32_t server, uint32_t number, uint32_t lead)
{
    const struct entry_format format = {.seed = cluster_seed(sim_cluster_config(cluster)),
                                        .block_limit = cluster->options.block_limit};
    struct pm *pm = &cluster->servers[server - 1].pm->pm;
    char key[24];
    uint32_t flipped = 0;
    stage_key(cluster, lead, number, key);
    for (uint64_t at = 0; at < pm->bytes; at += ENTRY_ALIGN) {
        struct entry_header header;
        uint32_t bytes;
        if (entry_decode(&format, pm_at(pm, at), pm->bytes - at, &header, &bytes) ||
            !entry_key_equals(&format, pm_at(pm, at), key, (uint32_t)strlen(key)))
            continue;
        pm->base[at + ENTRY_HEADER_BYTES + strlen(key)] ^= 1; /* of the value */
        flipped++;
    }
    return flipped;
}

/* What the replica row of shard 0 says. */
static uint64_t settled(struct sim_cluster *cluster, uint32_t server)
{
    const struct pm *pm = &cluster->servers[server - 1].pm->pm;
    struct row row;
    assert_int_equal(
        row_read(pm, store_geometry(store_segments_in(pm->bytes)).replicas[0], 0, &row), ROW_WHOLE);
    return row.settled;
}

static void restart(struct sim_cluster *cluster)
{
    sim_cluster_restart(cluster, false);
    sim_cluster_run_for(cluster, 2 * NS_PER_S);
}

TEST(what_the_primary_cannot_read_any_more_comes_from_a_backup)
{
    struct sim_cluster *cluster = open_cluster();
    put_keys(cluster, 0, KEYS, 1);
    put_keys(cluster, 0, 1, 2);
    put_keys(cluster, KEYS / 2, KEYS / 2 + 1, 2);
    assert_true(flip(cluster, 1, KEYS / 2, 1) > 0);
    sim_cluster_crash(cluster);
    restart(cluster);
    assert_keys(cluster, 1, KEYS / 2, 1);
    assert_keys(cluster, KEYS / 2, KEYS / 2 + 1, 2);
    finish(cluster, KEYS);
}

/* Servers 2 and 3 have settled what server 1, whose own log is open, has not: they keep no list of it. */
TEST(what_others_have_settled_is_found_there)
{
    static const uint8_t value[3000];
    struct sim_cluster *cluster = open_cluster();
    put_keys(cluster, 0, KEYS, 1);
    for (uint32_t i = 0; i < 4 * KEYS; i++) {
        char key[24];
        stage_key(cluster, 2, i, key);
        assert_int_equal(sim_put(cluster, 0, key, strlen(key), value, sizeof value, NULL), 0);
    }
    sim_cluster_run_for(cluster, NS_PER_S);
    assert_true(settled(cluster, 1) == version_make(1, 0) &&
                settled(cluster, 3) > settled(cluster, 1));
    assert_true(flip(cluster, 1, KEYS / 2, 1) == 1);
    sim_cluster_crash(cluster);
    restart(cluster);
    assert_keys(cluster, 0, KEYS, 1);
    finish(cluster, 5 * KEYS);
}

TEST(a_hole_of_a_backup_is_filled_in_the_next_epoch)
{
    struct sim_cluster *cluster = open_cluster();
    put_keys(cluster, 0, KEYS, 1);
    assert_true(flip(cluster, 2, KEYS / 2, 1) > 0);
    sim_cluster_crash(cluster);
    restart(cluster);
    finish(cluster, KEYS);
}

/* What was put before is committed. */
static struct sim_cluster *open_committed(void)
{
    struct sim_cluster *cluster = open_cluster();
    put_keys(cluster, 0, KEYS, 1);
    sim_cluster_crash(cluster);
    restart(cluster);
    return cluster;
}

static uint32_t replicas(const struct sim_cluster *cluster, uint16_t shard)
{
    return cluster_shard(sim_cluster_config(cluster), shard)->backup_count + 1;
}

TEST(a_damaged_replica_is_left_out_of_that_shard_if_another_is_whole)
{
    struct sim_cluster *cluster = open_committed();
    assert_true(flip(cluster, 1, 3, 1) > 0 && flip(cluster, 2, 4, 1) > 0);
    sim_cluster_crash(cluster);
    restart(cluster);
    const struct shard *shard = cluster_shard(sim_cluster_config(cluster), 0);
    assert_true(replicas(cluster, 0) == 1 && shard->primary == 3 && !shard->possibly_incomplete);
    assert_int_equal(replicas(cluster, 1), 3);
    for (uint32_t i = 0; i < KEYS; i++) { /* now they are led by server 3 */
        char key[24];
        uint32_t got = 0;
        stage_key(cluster, 3, i, key);
        assert_int_equal(sim_get(cluster, 0, key, strlen(key), &got, sizeof got, NULL, NULL), 0);
    }
    finish(cluster, KEYS);
}

TEST(if_all_are_damaged_what_is_left_is_served_and_the_loss_is_told_once)
{
    struct sim_cluster *cluster = open_committed();
    assert_true(flip(cluster, 1, 3, 1) > 0 && flip(cluster, 2, 3, 1) > 0 &&
                flip(cluster, 3, 3, 1) > 0 && flip(cluster, 1, 4, 1) > 0);
    sim_cluster_crash(cluster);
    restart(cluster);
    assert_true(cluster_shard(sim_cluster_config(cluster), 0)->possibly_incomplete);
    assert_false(cluster_shard(sim_cluster_config(cluster), 1)->possibly_incomplete);
    assert_int_equal(replicas(cluster, 0), 3);
    assert_keys(cluster, 0, 3, 1);
    assert_keys(cluster, 4, KEYS, 1);
    for (uint32_t i = 0; i < 2; i++) { /* the damaged places are void: they count no more */
        sim_cluster_crash(cluster);
        restart(cluster);
        assert_int_equal(replicas(cluster, 0), 3);
    }
    finish(cluster, KEYS - 1);
}

UNIT_MAIN(NULL, NULL)
