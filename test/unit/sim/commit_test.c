/* How commit versions spread in a whole cluster in one thread. What a server holds is read from its PM, as a restart
 * would. */
#include "stage.h"

#include "common/entry/commit.h"
#include "common/entry/entry.h"
#include "test/lib/unit.h"

#define SPREAD_NS (15 * NS_PER_MS)

/* --- what lies in a server's PM --- */

struct told {
    uint32_t entries, rows;
    uint64_t versions[4096]; /* the highest, by shard */
};

static void note_commit(struct told *told, uint32_t sender, const struct entry_header *header,
                        const uint8_t *at)
{
    struct commit_value value;
    struct commit_part part;
    if (header->type != ENTRY_COMMIT_VERSIONS || (sender && header->client_id != sender) ||
        commit_decode(at + ENTRY_HEADER_BYTES, header->value_bytes, &value, &part) == 0)
        return;
    assert_int_equal(commit_decode(at + ENTRY_HEADER_BYTES, header->value_bytes, &value, NULL), 0);
    told->entries++;
    for (uint32_t i = 0; i < value.shards; i++) {
        const struct commit_shard row = commit_shard_at(&value, i);
        assert_true(row.shard < 4096);
        told->rows++;
        if (row.version > told->versions[row.shard])
            told->versions[row.shard] = row.version;
    }
}

/* What that sender, or all if it is 0, told by any whole block in any segment of the server's map. */
static const struct told *told_at(const struct sim_cluster *cluster, uint32_t server,
                                  uint32_t sender)
{
    static struct told told;
    const struct cluster_config *config = sim_cluster_config(cluster);
    const struct entry_format format = {.seed = cluster_seed(config),
                                        .block_limit = config->block_limit};
    const struct pm *pm = &cluster->servers[server - 1].pm->pm;
    memset(&told, 0, sizeof told);
    for (uint64_t at = 0; at + FABRIC_SEGMENT_BYTES <= pm->bytes; at += FABRIC_SEGMENT_BYTES) {
        struct entry_scan scan;
        struct entry_header header;
        uint32_t offset, bytes;
        enum entry_scan_result result;
        entry_scan_init(&scan, &format, pm->base + at, FABRIC_SEGMENT_BYTES, 0);
        while ((result = entry_scan_next(&scan, false, &header, &offset, &bytes)) !=
               ENTRY_SCAN_END) {
            if (result == ENTRY_SCAN_BLOCK)
                note_commit(&told, sender, &header, pm->base + at + offset);
        }
    }
    return &told;
}

static const struct shard *shard_of(const struct sim_cluster *cluster, const char *key)
{
    return cluster_shard_of_slot(sim_cluster_config(cluster),
                                 slot_of_key(key, (uint32_t)strlen(key)));
}

/* All shards of a server change within the time that is waited for more: they share entries, of as many
 * rows as a block holds. */
static void many_shards_change_at_once(uint32_t block_limit, uint32_t most_entries)
{
    enum { SHARDS = 600 };
    struct sim_cluster *cluster = sim_cluster_create(&(struct sim_cluster_options){
        .seed = 3, .shards = SHARDS, .depth = 1024, .block_limit = block_limit});
    struct stage_answers answers = {0};
    static bool written[SHARDS];
    memset(written, 0, sizeof written);
    char key[24];
    for (uint32_t i = 0, found = 0; found < SHARDS; i++) {
        snprintf(key, sizeof key, "key-%u", i);
        const struct shard *shard = shard_of(cluster, key);
        if (written[shard->id])
            continue;
        written[shard->id] = true;
        found++;
        stage_post_put(cluster, 0, key, "value", 5, &answers);
        if (found % 256 == 0)
            stage_settle(cluster, &answers);
    }
    stage_settle(cluster, &answers);
    assert_int_equal(answers.good, SHARDS);
    sim_cluster_run_for(cluster, 3 * SPREAD_NS);
    for (uint32_t server = 1; server <= 3; server++) {
        const struct told *told = told_at(cluster, server, server);
        uint32_t led = 0;
        for (uint16_t id = 0; id < SHARDS; id++) {
            bool leads = cluster_shard(sim_cluster_config(cluster), id)->primary == server;
            assert_int_equal(told->versions[id], leads ? version_make(1, 1) : 0);
            led += leads;
        }
        assert_int_equal(told->rows, led);
        assert_in_range(told->entries, 1, most_entries);
        told = told_at(cluster, server, 0); /* of all, as a backup of all */
        for (uint16_t id = 0; id < SHARDS; id++)
            assert_int_equal(told->versions[id], version_make(1, 1));
    }
    stage_finish(cluster, SHARDS);
}

TEST(two_hundred_shards_of_a_server_are_spread_in_few_entries)
{
    many_shards_change_at_once(65536, 3);
    many_shards_change_at_once(256, 20);
}

STAGE_MAIN
