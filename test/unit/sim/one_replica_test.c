/* Entries that the end of a whole cluster left on some replicas only: each case made by hand. A put
 * is in flight when everything ends; its session lives on and asks again. That the answer names a
 * version of the old epoch shows that the entry itself was found, and not written anew. */
#include "stage.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/entry/entry.h"
#include "server/store/store.h"
#include "test/lib/unit.h"

enum { BLOCK_LIMIT = 1024 };
#define PM_BYTES  ((uint64_t)192 << 20)
#define ANSWER_NS (30 * NS_PER_S)

struct put {
    char key[24];
    uint8_t *value;
    size_t value_bytes;
    bool done;
    struct rowan_completion completion;
};

static struct sim_cluster *create(uint32_t servers)
{
    return sim_cluster_create(&(struct sim_cluster_options){.servers = servers,
                                                            .replicas = servers,
                                                            .seed = 7,
                                                            .shards = 6,
                                                            .block_limit = BLOCK_LIMIT,
                                                            .pm_bytes = PM_BYTES,
                                                            .timeout_ns = 60 * NS_PER_S,
                                                            .max_delay_ns = NS_PER_MS});
}

static void on_done(const struct rowan_completion *completion)
{
    struct put *put = completion->context;
    put->done = true;
    put->completion = *completion;
}

static bool is_done(void *context)
{
    return ((struct put *)context)->done;
}

/* A put of a key whose shard server 1 leads. */
static void start_put(struct sim_cluster *cluster, struct put *put, size_t value_bytes)
{
    *put = (struct put){.value_bytes = value_bytes, .value = malloc(value_bytes)};
    assert_non_null(put->value);
    for (size_t i = 0; i < value_bytes; i++)
        put->value[i] = (uint8_t)('a' + i % 23);
    stage_key(cluster, 1, 3, put->key);
    const struct session_request request = {.type = MESSAGE_PUT,
                                            .key = put->key,
                                            .key_bytes = strlen(put->key),
                                            .value = put->value,
                                            .value_bytes = value_bytes,
                                            .callback = on_done,
                                            .context = put};
    assert_int_equal(session_post(cluster->clients[0].session, &request), 0);
}

/* The place of the key's entry in a server's PM, or NULL. */
static uint8_t *find_entry(struct sim_cluster *cluster, uint32_t server, const struct put *put)
{
    const struct pm *pm = &cluster->servers[server - 1].pm->pm;
    const uint8_t *from = pm->base + STORE_SEGMENT_BYTES;
    uint8_t *found = memmem(from, pm->bytes - STORE_SEGMENT_BYTES, put->key, strlen(put->key));
    return found ? found - ENTRY_HEADER_BYTES : NULL;
}

/* As if its stores had not reached the medium. */
static void erase_entry(struct sim_cluster *cluster, uint32_t server, const struct put *put)
{
    const struct entry_format format = {.block_limit = BLOCK_LIMIT};
    uint8_t *at = find_entry(cluster, server, put);
    assert_non_null(at);
    memset(at, 0, entry_bytes(&format, (uint32_t)strlen(put->key), (uint32_t)put->value_bytes));
    assert_null(find_entry(cluster, server, put));
}

static void run_until_landed(struct sim_cluster *cluster, uint64_t blocks)
{
    while (sim_network_counts(cluster->network).blocks < blocks)
        sim_cluster_step(cluster);
}

/* The whole cluster comes back, and everybody has the entry that somebody had. */
static void restart_and_finish(struct sim_cluster *cluster, struct put *put, bool found)
{
    sim_network_join(cluster->network);
    sim_cluster_restart(cluster, true);
    assert_true(sim_cluster_run(cluster, is_done, put, ANSWER_NS));
    assert_int_equal(put->completion.status, 0);
    assert_int_equal(version_epoch(put->completion.version), found ? 1 : 2);
    uint8_t *got = malloc(put->value_bytes);
    size_t bytes;
    assert_non_null(got);
    assert_int_equal(
        sim_get(cluster, 0, put->key, strlen(put->key), got, put->value_bytes, &bytes, NULL), 0);
    assert_int_equal(bytes, put->value_bytes);
    assert_memory_equal(got, put->value, bytes);
    for (uint32_t server = 1; server <= cluster->options.servers; server++)
        assert_non_null(find_entry(cluster, server, put));
    free(got);
    free(put->value);
    stage_finish(cluster, 1);
}

TEST(an_entry_that_only_the_primary_has_is_found)
{
    struct sim_cluster *cluster = create(2);
    struct put put;
    sim_network_part(cluster->network, cluster->servers[0].process.address,
                     cluster->servers[1].process.address);
    start_put(cluster, &put, 16);
    sim_cluster_run_for(cluster, 100 * NS_PER_MS);
    assert_false(put.done);
    sim_cluster_crash(cluster);
    assert_non_null(find_entry(cluster, 1, &put));
    assert_null(find_entry(cluster, 2, &put));
    restart_and_finish(cluster, &put, true);
}

/* The backup has got it, and the primary's own copy was not on its medium yet. */
TEST(an_entry_that_only_the_backup_has_is_found)
{
    struct sim_cluster *cluster = create(2);
    struct put put;
    uint64_t blocks = sim_network_counts(cluster->network).blocks;
    start_put(cluster, &put, 16);
    run_until_landed(cluster, blocks + 1);
    assert_false(put.done);
    sim_cluster_crash(cluster);
    erase_entry(cluster, 1, &put);
    assert_non_null(find_entry(cluster, 2, &put));
    restart_and_finish(cluster, &put, true);
}

static void one_of_two_backups_is_enough(size_t value_bytes, uint64_t blocks)
{
    struct sim_cluster *cluster = create(3);
    struct put put;
    sim_network_part(cluster->network, cluster->servers[0].process.address,
                     cluster->servers[2].process.address);
    blocks += sim_network_counts(cluster->network).blocks;
    start_put(cluster, &put, value_bytes);
    run_until_landed(cluster, blocks);
    assert_false(put.done);
    sim_cluster_crash(cluster);
    erase_entry(cluster, 1, &put);
    assert_non_null(find_entry(cluster, 2, &put));
    assert_null(find_entry(cluster, 3, &put));
    restart_and_finish(cluster, &put, true);
}

TEST(an_entry_that_only_one_of_two_backups_has_is_found)
{
    one_of_two_backups_is_enough(16, 1);
}

/* Longer than one answer of the backup. */
TEST(a_long_entry_that_only_one_backup_has_is_found)
{
    const struct entry_format format = {.block_limit = BLOCK_LIMIT};
    one_of_two_backups_is_enough(700000, entry_blocks(&format, 5, 700000));
}

TEST(an_entry_that_the_primary_and_one_backup_have_is_found)
{
    struct sim_cluster *cluster = create(3);
    struct put put;
    sim_network_part(cluster->network, cluster->servers[0].process.address,
                     cluster->servers[2].process.address);
    start_put(cluster, &put, 16);
    sim_cluster_run_for(cluster, 100 * NS_PER_MS);
    assert_false(put.done);
    sim_cluster_crash(cluster);
    assert_non_null(find_entry(cluster, 1, &put));
    assert_non_null(find_entry(cluster, 2, &put));
    assert_null(find_entry(cluster, 3, &put));
    restart_and_finish(cluster, &put, true);
}

TEST(an_entry_that_nobody_has_is_written_anew)
{
    struct sim_cluster *cluster = create(2);
    struct put put;
    sim_network_part(cluster->network, cluster->servers[0].process.address,
                     cluster->servers[1].process.address);
    start_put(cluster, &put, 16);
    sim_cluster_run_for(cluster, 100 * NS_PER_MS);
    sim_cluster_crash(cluster);
    erase_entry(cluster, 1, &put);
    restart_and_finish(cluster, &put, false);
}

/* The next start comes in the midst of this one, again and again. */
TEST(a_start_may_end_at_any_moment)
{
    struct sim_cluster *cluster = create(3);
    struct put put;
    sim_network_part(cluster->network, cluster->servers[0].process.address,
                     cluster->servers[2].process.address);
    uint64_t blocks = sim_network_counts(cluster->network).blocks;
    start_put(cluster, &put, 16);
    run_until_landed(cluster, blocks + 1);
    sim_cluster_crash(cluster);
    erase_entry(cluster, 1, &put);
    sim_network_join(cluster->network);
    for (uint32_t rounds = 1; rounds < 60 && !put.done; rounds += 2) {
        sim_cluster_restart(cluster, rounds % 3 == 0);
        for (uint32_t i = 0; i < rounds * 8 && !put.done; i++)
            sim_cluster_step(cluster);
        sim_cluster_crash(cluster);
    }
    restart_and_finish(cluster, &put, true);
}

int main(void)
{
    if (!getenv("SIM_LOG"))
        log_set_level(LOG_ERROR);
    return unit_run(NULL, NULL);
}
