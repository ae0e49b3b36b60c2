/* Commit versions and the fetch of what never arrived, in a whole cluster in one thread. What a server
 * holds is read from its PM, as a restart would. */
#include "stage.h"

#include "common/base/log.h"
#include "common/cluster/control.h"
#include "common/entry/commit.h"
#include "common/entry/entry.h"
#include "test/lib/unit.h"

#define SPREAD_NS (15 * NS_PER_MS)

/* --- what lies in a server's PM --- */

typedef void visit_block(void *context, const struct entry_header *header, uint8_t *at);

/* Every whole block in every segment of the map. */
static void visit_blocks(const struct sim_cluster *cluster, uint32_t server, visit_block *visit,
                         void *context)
{
    const struct cluster_config *config = sim_cluster_config(cluster);
    const struct entry_format format = {.seed = cluster_seed(config),
                                        .block_limit = config->block_limit};
    const struct pm *pm = &cluster->servers[server - 1].pm->pm;
    for (uint64_t at = 0; at + FABRIC_SEGMENT_BYTES <= pm->bytes; at += FABRIC_SEGMENT_BYTES) {
        struct entry_scan scan;
        struct entry_header header;
        uint32_t offset, bytes;
        enum entry_scan_result result;
        entry_scan_init(&scan, &format, pm->base + at, FABRIC_SEGMENT_BYTES, 0);
        do {
            result = entry_scan_next(&scan, false, &header, &offset, &bytes);
            if (result == ENTRY_SCAN_BLOCK)
                visit(context, &header, pm->base + at + offset);
        } while (result != ENTRY_SCAN_END);
    }
}

struct told {
    uint32_t sender; /* only its entries; 0: all */
    uint32_t entries, rows;
    uint64_t versions[4096]; /* the highest, by shard */
};

static void note_commit(void *context, const struct entry_header *header, uint8_t *at)
{
    struct told *told = context;
    struct commit_value value;
    if (header->type != ENTRY_COMMIT_VERSIONS ||
        (told->sender && header->client_id != told->sender))
        return;
    assert_int_equal(commit_decode(at + ENTRY_HEADER_BYTES, header->value_bytes, &value), 0);
    told->entries++;
    for (uint32_t i = 0; i < value.shards; i++) {
        const struct commit_shard row = commit_shard_at(&value, i);
        assert_true(row.shard < 4096);
        told->rows++;
        if (row.version > told->versions[row.shard])
            told->versions[row.shard] = row.version;
    }
}

static const struct told *told_at(const struct sim_cluster *cluster, uint32_t server,
                                  uint32_t sender)
{
    static struct told told;
    memset(&told, 0, sizeof told);
    told.sender = sender;
    visit_blocks(cluster, server, note_commit, &told);
    return &told;
}

static const struct shard *shard_of(const struct sim_cluster *cluster, const char *key)
{
    return cluster_shard_of_slot(sim_cluster_config(cluster),
                                 slot_of_key(key, (uint32_t)strlen(key)));
}

/* --- what a server says of itself --- */

struct said {
    uint64_t fetches;
    uint32_t missing; /* shards */
};

static struct said ask(struct sim_cluster *cluster, uint32_t server)
{
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    struct fabric_conn *conn;
    struct said said = {0};
    bool answered = false;
    assert_int_equal(sim_fabric_open(cluster->network, NULL, &fabric), 0);
    assert_int_equal(fabric_endpoint_open(fabric, 0, &endpoint), 0);
    fabric_endpoint_identity(endpoint, &(struct fabric_identity){.kind = FABRIC_CLIENT});
    assert_int_equal(fabric_connect(endpoint, cluster->servers[server - 1].process.address,
                                    cluster->options.workers, 0, &conn),
                     0);
    for (unsigned round = 0; round < 10000 && !answered; round++) {
        struct fabric_event event;
        sim_cluster_step(cluster);
        if (!fabric_poll(endpoint, cluster->clock.now_ns, &event, 1))
            continue;
        if (event.kind == FABRIC_CONNECTED) {
            Rowan__ControlMessage message = ROWAN__CONTROL_MESSAGE__INIT;
            Rowan__GetStatus get = ROWAN__GET_STATUS__INIT;
            uint8_t bytes[64];
            message.body_case = ROWAN__CONTROL_MESSAGE__BODY_GET_STATUS;
            message.get_status = &get;
            const struct fabric_iov iov = {
                bytes, (uint32_t)control_encode(1, &message, bytes, sizeof bytes)};
            assert_int_equal(fabric_send(conn, &iov, 1), 0);
            fabric_flush(endpoint);
            continue;
        }
        Rowan__ControlMessage *message;
        uint32_t tag;
        assert_int_equal(event.kind, FABRIC_MESSAGE);
        assert_int_equal(control_decode(event.data, event.bytes, &tag, &message), 0);
        assert_int_equal(message->body_case, ROWAN__CONTROL_MESSAGE__BODY_SERVER_STATUS);
        said.fetches = message->server_status->fetches;
        for (size_t i = 0; i < message->server_status->n_shards; i++)
            said.missing += message->server_status->shards[i]->missing ? 1 : 0;
        control_free(message);
        fabric_message_release(conn, event.message);
        answered = true;
    }
    assert_true(answered);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    return said;
}

/* --- spreading --- */

TEST(commit_versions_reach_the_backups_within_15_ms_and_the_delay)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        const uint64_t delay_ns = 2 * NS_PER_MS;
        struct sim_cluster *cluster = sim_cluster_create(
            &(struct sim_cluster_options){.seed = seed, .max_delay_ns = delay_ns});
        char key[24];
        stage_key(cluster, 1, 0, key);
        const struct shard *shard = shard_of(cluster, key);
        for (unsigned i = 0; i < 5; i++) {
            uint64_t version;
            assert_int_equal(sim_put(cluster, 0, key, strlen(key), "value", 5, &version), 0);
            sim_cluster_run_for(cluster, SPREAD_NS + 2 * delay_ns);
            for (uint32_t server = 1; server <= 3; server++)
                assert_int_equal(told_at(cluster, server, 1)->versions[shard->id], version);
        }
        stage_finish(cluster, 1);
    }
}

TEST(an_idle_cluster_writes_nothing)
{
    struct sim_cluster *cluster = sim_cluster_create(&(struct sim_cluster_options){
        .seed = 2, .workers = 2, .digests = 2, .max_delay_ns = 100 * NS_PER_US});
    struct sim_workload_result result;
    sim_workload_run(cluster, &(struct sim_workload_options){.seed = 2}, &result);
    assert_true(result.right);
    sim_cluster_run_for(cluster, 3 * NS_PER_S);
    uint64_t stores = 0, fences = 0;
    uint64_t blocks = sim_network_counts(cluster->network).blocks;
    for (uint32_t i = 0; i < 3; i++) {
        stores += cluster->servers[i].pm->stores;
        fences += cluster->servers[i].pm->fences;
    }
    sim_cluster_run_for(cluster, 10 * NS_PER_S);
    for (uint32_t i = 0; i < 3; i++) {
        stores -= cluster->servers[i].pm->stores;
        fences -= cluster->servers[i].pm->fences;
    }
    assert_int_equal(stores, 0);
    assert_int_equal(fences, 0);
    assert_int_equal(sim_network_counts(cluster->network).blocks, blocks);
    for (uint32_t server = 1; server <= 3; server++) {
        struct said said = ask(cluster, server);
        assert_int_equal(said.fetches, 0);
        assert_int_equal(said.missing, 0);
    }
    stage_finish(cluster, result.objects);
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

/* A version that one backup does not have is not committed, though the others do; nor is a later one. */
TEST(a_backup_that_is_cut_off_holds_the_resolved_prefix)
{
    struct sim_cluster *cluster = sim_cluster_create(
        &(struct sim_cluster_options){.seed = 4, .max_delay_ns = 50 * NS_PER_US});
    struct stage_answers answers = {0};
    uint64_t version;
    char key[24];
    stage_key(cluster, 1, 0, key);
    const struct shard *shard = shard_of(cluster, key);
    assert_int_equal(sim_put(cluster, 0, key, strlen(key), "first", 5, &version), 0);
    sim_network_part(cluster->network, cluster->servers[0].process.address,
                     cluster->servers[2].process.address);
    for (unsigned i = 0; i < 10; i++)
        stage_post_put(cluster, 0, key, "value", 5, &answers);
    sim_cluster_run_for(cluster, NS_PER_S);
    assert_int_equal(answers.outstanding, 10);
    assert_int_equal(told_at(cluster, 1, 1)->versions[shard->id], version);
    assert_int_equal(told_at(cluster, 2, 1)->versions[shard->id], version);
    sim_network_join(cluster->network);
    stage_settle(cluster, &answers);
    sim_cluster_run_for(cluster, 2 * SPREAD_NS);
    for (uint32_t server = 1; server <= 3; server++)
        assert_int_equal(told_at(cluster, server, 1)->versions[shard->id], version + 10);
    stage_finish(cluster, 1);
}

/* --- what never arrived --- */

struct victim {
    uint16_t shard;
    uint64_t version;
    uint16_t block; /* of an entry of several */
    uint32_t hits;
};

static void flip(void *context, const struct entry_header *header, uint8_t *at)
{
    struct victim *victim = context;
    if (header->type != ENTRY_PUT || header->shard != victim->shard ||
        header->version != victim->version || header->block != victim->block)
        return;
    at[ENTRY_HEADER_BYTES] ^= 0x10;
    victim->hits++;
}

/* Server 3 stands still while entries land in its PM, and one is hit before it is digested. The primary
 * answers only after that was seen to be missing. */
static void lose_one(uint64_t seed, uint32_t value_bytes, uint32_t behind)
{
    struct sim_cluster *cluster = sim_cluster_create(&(struct sim_cluster_options){
        .seed = seed, .block_limit = 1024, .max_delay_ns = 50 * NS_PER_US, .one_sided = true});
    uint8_t *value = calloc(1, value_bytes + 1);
    struct victim victim = {0};
    char key[24];
    assert_non_null(value);
    stage_key(cluster, 1, 0, key);
    victim.shard = shard_of(cluster, key)->id;
    victim.block = value_bytes > 3000 ? 2 : 0;
    sim_cluster_run_for(cluster, NS_PER_S);
    cluster->servers[2].process.stopped = true;
    assert_int_equal(sim_put(cluster, 0, key, strlen(key), value, value_bytes, &victim.version), 0);
    for (uint32_t i = 1; i <= behind; i++) {
        stage_key(cluster, 1, i, key);
        assert_int_equal(sim_put(cluster, 0, key, strlen(key), "value", 5, NULL), 0);
    }
    sim_cluster_run_for(cluster, 2 * SPREAD_NS);
    visit_blocks(cluster, 3, flip, &victim);
    assert_int_equal(victim.hits, 1);
    cluster->servers[0].process.stopped = true;
    cluster->servers[2].process.stopped = false;
    struct said said = {0};
    for (unsigned i = 0; i < 200 && said.fetches == 0; i++) {
        said = ask(cluster, 3);
        sim_cluster_run_for(cluster, NS_PER_MS);
    }
    assert_int_equal(said.fetches, 1);
    assert_int_equal(said.missing, 1);
    cluster->servers[0].process.stopped = false;
    /* The cluster is idle, and asks for and gets what is missing all the same. */
    sim_cluster_run_for(cluster, NS_PER_S / 2);
    said = ask(cluster, 3);
    assert_int_equal(said.missing, 0);
    assert_int_equal(said.fetches, 1);
    assert_int_equal(ask(cluster, 2).fetches, 0);
    free(value);
    stage_finish(cluster, behind + 1);
}

TEST(a_block_that_is_hit_before_it_was_digested_is_fetched)
{
    lose_one(1, 5, 0);
    lose_one(2, 5, 20);
    lose_one(3, 5000, 0);
    lose_one(4, 5000, 50);
}

static void cut_connections(struct sim_cluster *cluster, struct random *random)
{
    uint64_t a = random_below(random, cluster->options.servers);
    uint64_t b = random_below(random, cluster->options.servers);
    if (a != b && random_below(random, 8) == 0)
        sim_network_break(cluster->network, cluster->servers[a].process.address,
                          cluster->servers[b].process.address);
}

/* Entries of many blocks, cut in the middle, sent again, landed twice. */
TEST(broken_connections_leave_no_false_hole)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct sim_cluster *cluster =
            sim_cluster_create(&(struct sim_cluster_options){.seed = seed,
                                                             .workers = 2,
                                                             .clients = 2,
                                                             .max_delay_ns = 100 * NS_PER_US,
                                                             .block_limit = 256,
                                                             .fence_ns = 10 * NS_PER_US});
        struct sim_workload_result result;
        sim_workload_run(cluster,
                         &(struct sim_workload_options){.seed = seed,
                                                        .operations = 1500,
                                                        .max_value_bytes = 3000,
                                                        .disturb = cut_connections},
                         &result);
        if (!result.right)
            print_error("%s\n", result.why);
        assert_true(result.right);
        sim_cluster_run_for(cluster, NS_PER_S);
        for (uint32_t server = 1; server <= 3; server++) {
            struct said said = ask(cluster, server);
            assert_int_equal(said.fetches, 0);
            assert_int_equal(said.missing, 0);
            for (uint32_t other = 1; other <= 3; other++)
                assert_true(told_at(cluster, other, server)->rows > 0);
        }
        stage_finish(cluster, result.objects);
    }
}

int main(void)
{
    log_set_level(getenv("SIM_LOG") ? LOG_DEBUG : LOG_ERROR);
    return unit_run(NULL, NULL);
}
