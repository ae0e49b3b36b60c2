/* keys_test.c - what proofs and tickets are made with, before, while and after that is drawn anew. */
#define TEST_FIXTURE set_up, tear_down

#include <string.h>

#include "common/base/error.h"
#include "common/base/version.h"
#include "common/cluster/cluster.h"
#include "test/lib/unit.h"

static struct cluster_config *config;
static const struct cluster_drawn drawn = {.proof = {1}, .tickets = {2}},
                                  again = {.proof = {3}, .tickets = {4}};

static int set_up(void **state)
{
    (void)state;
    config = cluster_create(1, 1);
    config->term = config->cluster = config->replicas = 1;
    config->block_limit = 1024;
    config->has_secret = true;
    memset(config->secret, 9, sizeof config->secret);
    config->next_client_id = 1025;
    config->members[0] =
        (struct member){.server = 1, .incarnation = 5, .workers = 1, .address = "shm:/s"};
    config->shards[0] = (struct shard){.last_slot = SLOT_COUNT - 1, .epoch = 1, .primary = 1};
    return cluster_finish(config);
}

static int tear_down(void **state)
{
    (void)state;
    cluster_release(config);
    return 0;
}

static void is(const uint8_t *key, const uint8_t *wanted)
{
    assert_memory_equal(key, wanted, CLUSTER_SECRET_BYTES);
}

TEST(without_a_rotation_all_of_them_are_the_secret)
{
    is(cluster_proof(config), config->secret);
    is(cluster_ticket_key(config, 7), config->secret);
    is(cluster_cover(config), config->secret);
    assert_null(cluster_former_proof(config));
    assert_int_equal(cluster_format(config), VERSION_CONFIGURATION_LOWEST);
}

TEST(the_first_rotation_leaves_the_secret_to_the_checksums_and_to_the_tickets_of_before)
{
    const uint32_t seed = cluster_seed(config);
    cluster_rotate(config, &drawn, false);
    is(cluster_proof(config), drawn.proof);
    is(cluster_former_proof(config), config->secret);
    is(cluster_ticket_key(config, 1024), config->secret);
    is(cluster_ticket_key(config, 1025), drawn.tickets);
    is(cluster_cover(config), drawn.tickets);
    assert_int_equal(cluster_seed(config), seed);
    cluster_rotated(config);
    assert_null(cluster_former_proof(config));
    is(cluster_proof(config), drawn.proof);
}

TEST(later_ones_keep_the_key_of_tickets_unless_the_cluster_was_open)
{
    cluster_rotate(config, &drawn, true);
    cluster_rotated(config);
    config->next_client_id = 2049;
    cluster_rotate(config, &again, false);
    is(cluster_proof(config), again.proof);
    is(cluster_former_proof(config), drawn.proof);
    is(cluster_ticket_key(config, 7), drawn.tickets); /* the secret makes none any more */
    is(cluster_ticket_key(config, 2049), drawn.tickets);
    cluster_rotate(config, &again, true);
    is(cluster_ticket_key(config, 2048), drawn.tickets);
    is(cluster_ticket_key(config, 2049), again.tickets);
}

TEST(they_go_where_the_secret_goes_and_no_further)
{
    uint8_t bytes[1000];
    struct cluster_config *decoded;
    cluster_rotate(config, &drawn, true);
    config->keys.rotation = 77;
    for (unsigned i = 0; i < 2; i++) {
        size_t count = cluster_encode(config, true, bytes, sizeof bytes);
        assert_non_null(
            memmem(bytes, count, (const uint8_t[]){0x48, VERSION_CONFIGURATION_KEYS}, 2));
        assert_int_equal(cluster_decode(bytes, count, &decoded), 0);
        assert_memory_equal(&decoded->keys, &config->keys, sizeof config->keys);
        struct cluster_config *copy = cluster_copy(decoded);
        assert_memory_equal(&copy->keys, &config->keys, sizeof config->keys);
        cluster_release(copy);
        cluster_release(decoded);
        count = cluster_encode(config, false, bytes, sizeof bytes);
        assert_null(memmem(bytes, count, config->keys.proof, CLUSTER_SECRET_BYTES));
        assert_null(memmem(bytes, count, config->keys.tickets, CLUSTER_SECRET_BYTES));
        assert_null(memmem(bytes, count, config->secret, CLUSTER_SECRET_BYTES));
        assert_int_equal(cluster_decode(bytes, count, &decoded), 0);
        assert_false(decoded->keys.drawn);
        cluster_release(decoded);
        cluster_rotated(config);
        config->keys.former_below = 0;
        memset(config->keys.former_tickets, 0, sizeof config->keys.former_tickets);
    }
}

/* Field 18 as it must not be; the last one that stands there is merged with those before. */
TEST(keys_that_are_not_right_are_refused)
{
    static const struct {
        uint8_t bytes[8], count;
    } bad[] = {
        {{0x92, 1, 3, 0x0a, 1, 5}, 6},       /* a proof of one byte */
        {{0x92, 1, 3, 0x12, 1, 5}, 6},       /* a former one */
        {{0x92, 1, 3, 0x1a, 1, 5}, 6},       /* a key of tickets */
        {{0x92, 1, 3, 0x28, 0xff, 0x0f}, 6}, /* ids whose key is not there */
    };
    uint8_t bytes[1000];
    struct cluster_config *decoded;
    cluster_rotate(config, &drawn, false);
    cluster_rotated(config);
    cluster_rotate(config, &again, false);
    cluster_rotated(config);
    const size_t count = cluster_encode(config, true, bytes, sizeof bytes);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memcpy(bytes + count, bad[i].bytes, bad[i].count);
        assert_int_equal(cluster_decode(bytes, count + bad[i].count, &decoded), ROWAN_EFORMAT);
    }
    config->has_secret = false; /* and keys without the secret */
    assert_int_equal(
        cluster_decode(bytes, cluster_encode(config, true, bytes, sizeof bytes), &decoded),
        ROWAN_EFORMAT);
}

UNIT_MAIN(NULL, NULL)
