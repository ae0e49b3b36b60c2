/* first_test.c - balance of the first configuration, for every size of cluster. */
#include "cm/first.h"
#include "common/base/error.h"
#include "test/lib/unit.h"

static struct registrations registrations;

static void register_members(struct cm_state_options *options, uint32_t workers)
{
    registrations = (struct registrations){0};
    for (uint32_t i = 0; i < options->server_count; i++) {
        options->servers[i] = 10 + 3 * i;
        struct cm_join join = {.server = options->servers[i],
                               .incarnation = 500 + i,
                               .workers = workers,
                               .block_limit = 4096 + 64 * i};
        snprintf(join.address, sizeof join.address, "shm:/run/%u", i);
        registrations_add(&registrations, i, &join, 1);
    }
}

static struct cluster_config *place(uint32_t member_count, uint32_t workers, uint32_t replicas,
                                    uint32_t shards)
{
    struct cm_state_options options = {.cluster = 5,
                                       .incarnation = 6,
                                       .secret = {1, 2, 3},
                                       .server_count = member_count,
                                       .replicas = replicas,
                                       .shards = shards};
    register_members(&options, workers);
    struct cluster_config *config = first_place(&options, &registrations);
    assert_int_equal(config->member_count, member_count);
    assert_int_equal(config->block_limit, 4096);
    for (uint32_t i = 0; i < member_count; i++) {
        const struct member member = join_member(&registrations.entries[i].join);
        assert_memory_equal(&config->members[i], &member, sizeof member);
    }
    return config;
}

static void assert_level(const uint32_t *counts, uint32_t count)
{
    uint32_t low = UINT32_MAX, high = 0;
    for (uint32_t i = 0; i < count; i++) {
        low = counts[i] < low ? counts[i] : low;
        high = counts[i] > high ? counts[i] : high;
    }
    assert_true(high - low <= 1);
}

static uint32_t position(const struct cluster_config *config, uint32_t server)
{
    return (uint32_t)(cluster_member(config, server) - config->members);
}

static void check_balance(const struct cluster_config *config)
{
    uint32_t led[CLUSTER_MAX_MEMBERS] = {0}, backed[CLUSTER_MAX_MEMBERS] = {0};
    uint32_t owned[CLUSTER_MAX_MEMBERS][CLUSTER_MAX_WORKERS] = {{0}};
    uint32_t slots_low = SLOT_COUNT, slots_high = 0;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        uint32_t slots = shard->last_slot - shard->first_slot + 1u;
        slots_low = slots < slots_low ? slots : slots_low;
        slots_high = slots > slots_high ? slots : slots_high;
        uint32_t leader = position(config, shard->primary);
        led[leader]++;
        owned[leader][shard->worker]++;
        assert_int_equal(shard->backup_count, config->replicas - 1);
        assert_int_equal(shard->filling_count, 0);
        assert_int_equal(shard->epoch, 1);
        for (uint32_t j = 0; j < shard->backup_count; j++)
            backed[position(config, shard->backups[j])]++;
    }
    assert_true(slots_high - slots_low <= 1);
    assert_level(led, config->member_count);
    assert_level(backed, config->member_count);
    for (uint32_t i = 0; i < config->member_count; i++)
        assert_level(owned[i], config->members[i].workers);
}

TEST(every_size_of_cluster_is_balanced)
{
    static const uint32_t shards[] = {0, 1, 2, 3, 7, 24, 100, 1000};
    for (uint32_t members = 1; members <= CLUSTER_MAX_MEMBERS; members++) {
        for (uint32_t replicas = 1; replicas <= CLUSTER_MAX_REPLICAS && replicas <= members;
             replicas++) {
            for (size_t i = 0; i < sizeof shards / sizeof shards[0]; i++) {
                struct cluster_config *config = place(members, 3, replicas, shards[i]);
                check_balance(config);
                cluster_release(config);
            }
        }
    }
}

/* One server's shards must not all be backed by the same ones: a failure would double their load.
 */
TEST(the_shards_of_one_server_are_backed_by_all_others)
{
    for (uint32_t members = 3; members <= 9; members++) {
        struct cluster_config *config = place(members, 4, 3, 0);
        uint32_t pairs[CLUSTER_MAX_MEMBERS][CLUSTER_MAX_MEMBERS] = {{0}};
        for (uint32_t i = 0; i < config->shard_count; i++) {
            const struct shard *shard = &config->shards[i];
            for (uint32_t j = 0; j < shard->backup_count; j++)
                pairs[position(config, shard->primary)][position(config, shard->backups[j])]++;
        }
        for (uint32_t a = 0; a < members; a++) {
            for (uint32_t b = 0; b < members; b++) {
                if (a != b)
                    assert_true(pairs[a][b] > 0);
            }
        }
        cluster_release(config);
    }
}

TEST(the_default_is_eight_shards_for_each_server_or_one_for_each_worker)
{
    struct cluster_config *config = place(3, 2, 3, 0);
    assert_int_equal(config->shard_count, 24);
    cluster_release(config);
    config = place(3, 24, 3, 0);
    assert_int_equal(config->shard_count, 72);
    cluster_release(config);
}

TEST(the_first_configuration_has_what_was_wished)
{
    struct cluster_config *config = place(3, 2, 2, 16384);
    assert_int_equal(config->term, 1);
    assert_int_equal(config->cluster, 5);
    assert_int_equal(config->block_limit, 4096);
    assert_int_equal(config->replicas, 2);
    assert_int_equal(config->shard_count, 16384);
    assert_int_equal(config->next_client_id, CLUSTER_FIRST_CLIENT_ID);
    assert_true(config->has_secret);
    assert_memory_equal(config->secret, "\1\2\3\0", 4);
    cluster_release(config);
}

UNIT_MAIN(NULL, NULL)
