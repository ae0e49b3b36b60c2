/* cluster_test.c - the rules of a configuration, each broken once; its protobuf form. */
#define TEST_FIXTURE set_up, tear_down

#include "common/base/crc.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/version.h"
#include "common/cluster/cluster.h"
#include "common/coord/coord.h"
#include "test/lib/unit.h"

enum { ROOM = 2 << 20 };

/* Members 1, 4, 9; shards 7, 3, 500 (ids that do not rise); not finished. */
static struct cluster_config *example(void)
{
    struct cluster_config *config = cluster_create(3, 3);
    assert_non_null(config);
    config->term = 12;
    config->cluster = 0xfedcba9876543210;
    config->block_limit = 65536;
    config->replicas = 3;
    config->has_secret = true;
    for (uint8_t i = 0; i < CLUSTER_SECRET_BYTES; i++)
        config->secret[i] = (uint8_t)(i * 17);
    config->next_client_id = 2049;
    config->balance = BALANCE_DRY_RUN;

    static const uint32_t servers[] = {1, 4, 9};
    for (uint32_t i = 0; i < 3; i++) {
        struct member *member = &config->members[i];
        member->server = servers[i];
        member->incarnation = UINT64_MAX - i;
        member->workers = 2 + i;
        snprintf(member->address, sizeof member->address, "shm:/run/rowan/server %u", servers[i]);
    }
    static const struct shard shards[] = {
        {.id = 7,
         .first_slot = 0,
         .last_slot = 99,
         .epoch = 1,
         .primary = 1,
         .worker = 1,
         .backup_count = 2,
         .backups = {4, 9}},
        {.id = 3,
         .first_slot = 100,
         .last_slot = 100,
         .epoch = (1 << 24) - 1,
         .primary = 9,
         .worker = 3,
         .backup_count = 1,
         .backups = {1},
         .filling_count = 1,
         .filling = {4},
         .move_from = 1,
         .move_to = 4,
         .possibly_incomplete = true},
        {.id = 500,
         .first_slot = 101,
         .last_slot = SLOT_COUNT - 1,
         .epoch = 77,
         .primary = 4,
         .worker = 0},
    };
    memcpy(config->shards, shards, sizeof shards);
    return config;
}

static struct cluster_config *config; /* the example, and its bytes with the secret */
static uint8_t bytes[1000];
static size_t count;

static int set_up(void **state)
{
    (void)state;
    config = example();
    assert_int_equal(cluster_finish(config), ROWAN_OK);
    count = cluster_encode(config, true, bytes, sizeof bytes);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cluster_release(config);
    return 0;
}

static struct cluster_config *with_leases(struct cluster_config *of)
{
    of->manager = 77;
    of->lease_ms = 500;
    return of;
}

TEST(a_right_configuration_is_found_by_slot_server_and_id)
{

    assert_int_equal(cluster_shard_of_slot(config, 0)->id, 7);
    assert_int_equal(cluster_shard_of_slot(config, 99)->id, 7);
    assert_int_equal(cluster_shard_of_slot(config, 100)->id, 3);
    assert_int_equal(cluster_shard_of_slot(config, 101)->id, 500);
    assert_int_equal(cluster_shard_of_slot(config, SLOT_COUNT - 1)->id, 500);

    assert_ptr_equal(cluster_member(config, 1), &config->members[0]);
    assert_ptr_equal(cluster_member(config, 4), &config->members[1]);
    assert_ptr_equal(cluster_member(config, 9), &config->members[2]);
    assert_null(cluster_member(config, 0));
    assert_null(cluster_member(config, 5));
    assert_null(cluster_member(config, 10));

    assert_ptr_equal(cluster_shard(config, 7), &config->shards[0]);
    assert_ptr_equal(cluster_shard(config, 3), &config->shards[1]);
    assert_ptr_equal(cluster_shard(config, 500), &config->shards[2]);
    assert_null(cluster_shard(config, 0));
    assert_null(cluster_shard(config, 4));
    assert_null(cluster_shard(config, UINT16_MAX));

    assert_true(shard_has_backup(&config->shards[0], 9));
    assert_false(shard_has_backup(&config->shards[0], 1));
    assert_false(shard_has_backup(&config->shards[1], 4)); /* it is filling */
}

/* The example with one rule broken. */
#define REFUSED(...)                                                                               \
    do {                                                                                           \
        struct cluster_config *c = example();                                                      \
        __VA_ARGS__;                                                                               \
        if (cluster_finish(c) != ROWAN_EFORMAT)                                                    \
            fail_msg("a configuration was taken with %s", #__VA_ARGS__);                           \
        cluster_release(c);                                                                        \
    } while (0)

TEST(a_configuration_with_any_rule_broken_is_refused)
{
    REFUSED(c->term = 0);
    REFUSED(c->cluster = 0);
    REFUSED(c->block_limit = 0);
    REFUSED(c->block_limit = 4095);
    REFUSED(c->replicas = 0);
    REFUSED(c->replicas = CLUSTER_MAX_REPLICAS + 1);
    REFUSED(c->balance = BALANCE_MODES);
    REFUSED(c->lease_ms = 500);
    REFUSED(c->manager = 1);
    REFUSED(c->manager = 1; c->lease_ms = CLUSTER_MIN_LEASE_MS - 1);
    REFUSED(c->manager = 1; c->lease_ms = CLUSTER_MAX_LEASE_MS + 1);
    REFUSED(c->members[0].kept = true);
    REFUSED(with_leases(c)->members[0].kept = true); /* a primary, its backups run */
    REFUSED(with_leases(c)->members[2].kept = true); /* a backup, likewise */
    REFUSED(with_leases(c)->members[1].kept = true; c->shards[0].backup_count = 0); /* filling */
    REFUSED(c->members[0].server = 0);
    REFUSED(c->members[0].server = 5);
    REFUSED(c->members[1].server = 1);
    REFUSED(c->members[2].server = CLUSTER_MAX_SERVER + 1;
            c->shards[0].backups[1] = CLUSTER_MAX_SERVER + 1;
            c->shards[1].primary = CLUSTER_MAX_SERVER + 1);
    REFUSED(c->members[1].incarnation = 0);
    REFUSED(c->members[0].workers = 0);
    REFUSED(c->members[0].workers = 65);
    REFUSED(c->members[0].address[0] = '\0');
    REFUSED(c->members[0].address[5] = '\n');
    REFUSED(memset(c->members[0].address, 'a', sizeof c->members[0].address));
    REFUSED(c->shards[0].first_slot = 1);
    REFUSED(c->shards[2].first_slot = 102);
    REFUSED(c->shards[2].first_slot = 100);
    REFUSED(c->shards[2].last_slot = SLOT_COUNT - 2);
    REFUSED(c->shards[2].last_slot = SLOT_COUNT);
    REFUSED(c->shards[1].last_slot = 99);
    REFUSED(c->shards[2].id = 7);
    REFUSED(c->shards[1].epoch = 0);
    REFUSED(c->shards[1].epoch = 1 << 24);
    REFUSED(c->shards[1].primary = 2);
    REFUSED(c->shards[0].worker = 2);
    REFUSED(c->shards[2].backup_count = 7);
    REFUSED(c->shards[2].filling_count = 7);
    REFUSED(c->shards[0].filling_count = CLUSTER_MAX_REPLICAS - 2);
    REFUSED(c->shards[0].backups[1] = 8);
    REFUSED(c->shards[1].filling[0] = 8);
    REFUSED(c->shards[0].backups[0] = 1);
    REFUSED(c->shards[0].backups[1] = 4);
    REFUSED(c->shards[1].filling[0] = 1);
    REFUSED(c->shards[1].move_to = 1); /* that leaves */
    REFUSED(c->shards[0].move_from = 4);
    REFUSED(c->shards[0].move_from = 4; c->shards[0].move_to = 7);
    REFUSED(c->shards[1].filling[0] = 9);
}

/* Shard 500 of the example is split at slot 1000, into itself and shard 8; 501 is the row of what it was. */
static struct cluster_config *split_example(void)
{
    struct cluster_config *plain = example(), *made;
    assert_int_equal(cluster_finish(plain), ROWAN_OK);
    made = cluster_copy_for(plain, 3, 5);
    struct shard *shards = made->shards;
    shards[2].backup_count = 2;
    shards[2].backups[0] = 9;
    shards[2].backups[1] = 1;
    shards[4] = shards[3] = shards[2];
    shards[2].last_slot = 999;
    shards[3].id = 8;
    shards[3].first_slot = 1000;
    shards[4].id = 501;
    shards[4].split = SPLIT_PARENT;
    made->next_shard = 8;
    made->epoch_floor = 76;
    cluster_release(plain);
    return made;
}

#define SPLIT_REFUSED(...)                                                                         \
    do {                                                                                           \
        struct cluster_config *c = split_example();                                                \
        struct shard *low = &c->shards[2], *high = low + 1, *parent = high + 1;                    \
        (void)low, (void)high, (void)parent;                                                       \
        __VA_ARGS__;                                                                               \
        if (cluster_finish(c) != ROWAN_EFORMAT)                                                    \
            fail_msg("a split was taken with %s", #__VA_ARGS__);                                   \
        cluster_release(c);                                                                        \
    } while (0)

TEST(a_split_with_any_rule_broken_is_refused)
{
    struct shard swapped;
    SPLIT_REFUSED(swapped = *high; *high = *parent; *parent = swapped);
    SPLIT_REFUSED(parent->split = SPLIT_ENDED + 1);
    SPLIT_REFUSED(parent->split = SPLIT_NONE);
    SPLIT_REFUSED(parent->id = 500);
    SPLIT_REFUSED(parent->id = CLUSTER_MAX_SHARDS);
    SPLIT_REFUSED(high->primary = 9; high->backups[0] = 4);
    SPLIT_REFUSED(high->backup_count = 1);
    SPLIT_REFUSED(high->backups[0] = 1; high->backups[1] = 9);
    SPLIT_REFUSED(high->worker = 1);
    SPLIT_REFUSED(for (struct shard *s = low; s <= parent; s++) s->backup_count = 1;
                  high->filling[high->filling_count++] = 1);
    SPLIT_REFUSED(for (struct shard *s = low; s <= parent; s++) s->backup_count = 1;
                  parent->filling[parent->filling_count++] = 1);
    SPLIT_REFUSED(parent->first_slot++); /* the first child reaches beyond it */
    SPLIT_REFUSED(parent->last_slot--);
}

TEST(a_parent_is_found_by_its_children_until_it_is_ended_and_serves_no_slot)
{
    struct cluster_config *made = split_example();
    assert_int_equal(cluster_finish(made), ROWAN_OK);
    const struct shard *parent = cluster_shard(made, 501);
    assert_int_equal(made->served_count, 4);
    assert_ptr_equal(cluster_parent(made, cluster_shard(made, 500)), parent);
    assert_ptr_equal(cluster_parent(made, cluster_shard(made, 8)), parent);
    assert_null(cluster_parent(made, cluster_shard(made, 3)));
    assert_null(cluster_parent(made, parent));
    assert_int_equal(cluster_shard_of_slot(made, 999)->id, 500);
    assert_int_equal(cluster_shard_of_slot(made, 1000)->id, 8);
    made->shards[4].split = SPLIT_ENDED;
    made->shards[4].backup_count = 0;
    assert_int_equal(cluster_finish(made), ROWAN_OK);
    assert_null(cluster_parent(made, cluster_shard(made, 8)));
    cluster_release(made);
}

TEST(a_configuration_without_shards_is_refused)
{
    struct cluster_config *made = cluster_create(0, 0);
    made->term = made->cluster = made->replicas = 1;
    made->block_limit = 64;
    assert_int_equal(cluster_finish(made), ROWAN_EFORMAT);
    cluster_release(made);
}

TEST(counts_above_the_limits_are_refused)
{
    assert_null(cluster_create(CLUSTER_MAX_MEMBERS + 1, 1));
    assert_null(cluster_create(1, CLUSTER_MAX_SHARDS + 1));
}

static void assert_same(const struct cluster_config *a, const struct cluster_config *b)
{
    assert_int_equal(a->term, b->term);
    assert_int_equal(a->cluster, b->cluster);
    assert_int_equal(a->block_limit, b->block_limit);
    assert_int_equal(a->replicas, b->replicas);
    assert_int_equal(a->next_client_id, b->next_client_id);
    assert_int_equal(a->balance, b->balance);
    assert_int_equal(a->next_shard, b->next_shard);
    assert_int_equal(a->epoch_floor, b->epoch_floor);
    assert_int_equal(a->served_count, b->served_count);
    assert_int_equal(a->member_count, b->member_count);
    assert_int_equal(a->shard_count, b->shard_count);
    for (uint32_t i = 0; i < a->member_count; i++) {
        assert_int_equal(a->members[i].server, b->members[i].server);
        assert_int_equal(a->members[i].incarnation, b->members[i].incarnation);
        assert_int_equal(a->members[i].workers, b->members[i].workers);
        assert_string_equal(a->members[i].address, b->members[i].address);
    }
    assert_memory_equal(a->shards, b->shards, a->shard_count * sizeof a->shards[0]);
    assert_memory_equal(a->shard_of_slot, b->shard_of_slot, sizeof a->shard_of_slot);
    assert_true(users_equal(a->users, b->users));
}

TEST(what_is_encoded_decodes_to_the_same)
{
    struct cluster_config *decoded;
    assert_true(count > 0);
    assert_int_equal(count, cluster_encoded_bytes(config, true));
    assert_int_equal(cluster_decode(bytes, count, &decoded), ROWAN_OK);
    assert_same(config, decoded);
    assert_true(decoded->has_secret);
    assert_memory_equal(decoded->secret, config->secret, CLUSTER_SECRET_BYTES);
    assert_ptr_equal(cluster_shard(decoded, 3), &decoded->shards[1]);
    assert_int_equal(cluster_seed(decoded), crc32c(0, config->secret, CLUSTER_SECRET_BYTES));
    cluster_release(decoded);
}

static struct users *many_users(uint32_t number)
{
    struct users *users = users_create(number);
    assert_non_null(users);
    for (uint32_t i = 0; i < number; i++) {
        struct user *user = &users->list[i];
        snprintf(user->name, sizeof user->name, "%032u", i);
        user->role = USER_ADMIN;
        user->prefix_bytes = USER_PREFIX_BYTES;
        memset(user->prefix, 0xff, sizeof user->prefix);
        memset(&user->verifier, 0xff, sizeof user->verifier);
        user->verifier.rounds = SCRAM_MAX_ROUNDS;
    }
    users->required = number > 0;
    return users;
}

TEST(users_go_with_the_secret_only_and_older_versions_read_what_has_none)
{
    struct cluster_config *decoded, *copy;
    static const uint8_t format_3[] = {0x48, 3}, format_1[] = {0x48, 1}; /* field 9 */
    config->users = many_users(2);
    count = cluster_encode(config, true, bytes, sizeof bytes);
    assert_non_null(memmem(bytes, count, format_3, 2));
    assert_int_equal(cluster_decode(bytes, count, &decoded), ROWAN_OK);
    assert_same(config, decoded);
    copy = cluster_copy(decoded);
    cluster_release(decoded);
    assert_same(config, copy);
    cluster_release(copy);
    for (size_t cut = 0; cut < count; cut++) {
        if (!cluster_decode(bytes, cut, &decoded))
            cluster_release(decoded); /* behind a whole part */
    }
    count = cluster_encode(config, false, bytes, sizeof bytes);
    assert_non_null(memmem(bytes, count, format_1, 2));
    assert_int_equal(cluster_decode(bytes, count, &decoded), ROWAN_OK);
    assert_null(decoded->users);
    cluster_release(decoded);
}

TEST(users_that_are_not_right_are_refused)
{
    struct cluster_config *decoded;
    config->users = many_users(2);
    config->users->list[1] = config->users->list[0];
    assert_int_equal(cluster_finish(config), ROWAN_EFORMAT);
    count = cluster_encode(config, true, bytes, sizeof bytes);
    assert_int_equal(cluster_decode(bytes, count, &decoded), ROWAN_EFORMAT);
    config->users->list[1].verifier.rounds = 1;
    count = cluster_encode(config, true, bytes, sizeof bytes);
    assert_int_equal(cluster_decode(bytes, count, &decoded), ROWAN_EFORMAT);
    config->users->count = 0; /* and logins required */
    count = cluster_encode(config, true, bytes, sizeof bytes);
    assert_int_equal(cluster_decode(bytes, count, &decoded), ROWAN_EFORMAT);
}

TEST(a_split_decodes_and_is_copied_to_the_same)
{
    struct cluster_config *made = split_example(), *decoded, *copy;
    assert_int_equal(cluster_finish(made), ROWAN_OK);
    count = cluster_encode(made, true, bytes, sizeof bytes);
    assert_int_equal(cluster_decode(bytes, count, &decoded), ROWAN_OK);
    assert_same(made, decoded);
    copy = cluster_copy(made);
    assert_same(made, copy);
    cluster_release(copy);
    cluster_release(decoded);
    cluster_release(made);
}

/* Field 9 of one without leases says format 1: programs that know of none read it. */
TEST(a_configuration_with_leases_says_so_in_its_format)
{
    struct cluster_config *decoded;
    assert_non_null(memmem(bytes, count, (const uint8_t[]){0x48, 1}, 2));
    with_leases(config)->members[1].kept = true;
    config->shards[0].backup_count = 1; /* server 9 */
    config->shards[0].backups[0] = 9;
    config->shards[1].filling_count = 0;
    shard_mend_move(&config->shards[1]);
    assert_int_equal(cluster_finish(config), ROWAN_OK);
    assert_true(shard_is_kept(config, cluster_shard(config, 500)));
    assert_false(shard_is_kept(config, cluster_shard(config, 7)));
    count = cluster_encode(config, true, bytes, sizeof bytes);
    assert_non_null(memmem(bytes, count, (const uint8_t[]){0x48, 2}, 2));
    assert_int_equal(cluster_decode(bytes, count, &decoded), ROWAN_OK);
    struct cluster_config *copy = cluster_copy(decoded);
    assert_int_equal(copy->manager, 77);
    assert_int_equal(copy->lease_ms, 500);
    assert_true(copy->members[1].kept && !copy->members[0].kept);
    cluster_release(copy);
    cluster_release(decoded);
}

TEST(clients_do_not_get_the_secret)
{
    struct cluster_config *decoded;
    count = cluster_encode(config, false, bytes, sizeof bytes);
    assert_int_equal(count, cluster_encoded_bytes(config, false));
    assert_int_equal(count, cluster_encoded_bytes(config, true) - 18);
    assert_null(memmem(bytes, count, config->secret, CLUSTER_SECRET_BYTES));
    assert_int_equal(cluster_decode(bytes, count, &decoded), ROWAN_OK);
    assert_same(config, decoded);
    assert_false(decoded->has_secret);
    cluster_release(decoded);
}

TEST(encoding_into_too_little_room_writes_nothing)
{
    uint8_t untouched[1000];
    memset(bytes, 0xa5, sizeof bytes);
    memset(untouched, 0xa5, sizeof untouched);
    count = cluster_encoded_bytes(config, true);
    assert_int_equal(cluster_encode(config, true, bytes, count - 1), 0);
    assert_memory_equal(bytes, untouched, sizeof bytes);
    assert_int_equal(cluster_encode(config, true, bytes, count), count);
}

TEST(a_copy_lives_on_when_the_original_is_gone)
{
    struct cluster_config *made = example(), *keep = example();
    assert_int_equal(cluster_finish(made), ROWAN_OK);
    assert_int_equal(cluster_finish(keep), ROWAN_OK);
    struct cluster_config *copy = cluster_copy(made);
    assert_ptr_equal(cluster_hold(made), made);
    cluster_release(made);
    assert_int_equal(made->term, 12); /* one reference is left */
    cluster_release(made);
    assert_same(copy, keep);
    assert_ptr_equal(cluster_shard(copy, 3), &copy->shards[1]);
    cluster_release(copy);
    cluster_release(keep);
    cluster_release(NULL);
}

/* Every field as long on the wire as its limit allows. */
static struct cluster_config *largest(void)
{
    struct cluster_config *made = cluster_create(CLUSTER_MAX_MEMBERS, CLUSTER_MAX_SHARDS);
    assert_non_null(made);
    made->term = made->cluster = UINT64_MAX;
    made->block_limit = UINT32_MAX - 63;
    made->replicas = CLUSTER_MAX_REPLICAS;
    made->has_secret = true;
    made->next_client_id = UINT32_MAX;
    made->manager = UINT64_MAX;
    made->lease_ms = CLUSTER_MAX_LEASE_MS;
    made->balance = BALANCE_DRY_RUN;
    made->next_shard = CLUSTER_MAX_SHARDS - 1;
    made->epoch_floor = CLUSTER_MAX_EPOCH;
    made->users = many_users(USERS_MAX);
    made->keys = (struct cluster_keys){.drawn = true, .changing = true, .former_below = UINT32_MAX};
    for (uint32_t i = 0; i < CLUSTER_MAX_MEMBERS; i++) {
        struct member *member = &made->members[i];
        member->server = CLUSTER_MAX_SERVER - CLUSTER_MAX_MEMBERS + 1 + i;
        member->incarnation = UINT64_MAX;
        member->workers = CLUSTER_MAX_WORKERS;
        memset(member->address, 'a', CLUSTER_MAX_ADDRESS_BYTES);
    }
    for (uint32_t i = 0; i < CLUSTER_MAX_SHARDS; i++) {
        struct shard *shard = &made->shards[i];
        shard->id = (uint16_t)(CLUSTER_MAX_SHARDS - 1 - i);
        shard->first_slot = shard->last_slot = (uint16_t)i;
        shard->epoch = (1 << 24) - 1;
        shard->primary = made->members[0].server;
        shard->worker = CLUSTER_MAX_WORKERS - 1;
        shard->possibly_incomplete = true;
        shard->backup_count = shard->filling_count = (CLUSTER_MAX_REPLICAS - 1) / 2;
        for (uint32_t j = 0; j < shard->backup_count; j++) {
            shard->backups[j] = made->members[1 + j].server;
            shard->filling[j] = made->members[20 + j].server;
        }
        shard->move_from = shard->primary;
        shard->move_to = shard->filling[0];
    }
    assert_int_equal(cluster_finish(made), ROWAN_OK);
    return made;
}

TEST(the_largest_configuration_fits_the_coordination_service)
{
    struct cluster_config *made = largest(), *decoded;
    uint8_t *data = malloc(ROOM);
    size_t made_bytes = cluster_encode(made, true, data, ROOM);
    print_message("# largest configuration: %zu bytes of %d\n", made_bytes, COORD_MAX_VALUE_BYTES);
    assert_true(made_bytes > 0 && made_bytes <= COORD_MAX_VALUE_BYTES);
    assert_int_equal(cluster_decode(data, made_bytes, &decoded), ROWAN_OK);
    assert_same(made, decoded);
    cluster_release(decoded);
    cluster_release(made);
    free(data);
}

/* Cut anywhere: its last shard is missing or broken then. */
TEST(a_cut_configuration_is_refused)
{
    for (size_t cut = 0; cut < count; cut++) {
        struct cluster_config *decoded = NULL;
        uint8_t *exact = malloc(cut > 0 ? cut : 1); /* for the sanitizer to see an overrun */
        memcpy(exact, bytes, cut);
        assert_int_equal(cluster_decode(exact, cut, &decoded), ROWAN_EFORMAT);
        assert_null(decoded);
        free(exact);
    }
}

TEST(garbage_is_refused_or_obeys_the_rules)
{
    uint8_t damaged[1000];
    struct random random;
    random_init(&random, 1);
    for (int i = 0; i < 20000; i++) {
        memcpy(damaged, bytes, count);
        for (uint64_t hits = 1 + random_below(&random, 4); hits > 0; hits--)
            damaged[random_below(&random, count)] = (uint8_t)random_u64(&random);
        struct cluster_config *decoded = NULL;
        if (cluster_decode(damaged, count, &decoded)) {
            assert_null(decoded);
            continue;
        }
        assert_int_equal(cluster_finish(decoded), ROWAN_OK);
        cluster_release(decoded);
    }
}

TEST(a_secret_of_another_length_is_refused)
{
    struct cluster_config *decoded = NULL;
    count = cluster_encode(config, false, bytes, sizeof bytes);
    static const uint8_t short_secret[] = {0x2a, 0x02, 1, 2}; /* field 5, 2 bytes */
    memcpy(bytes + count, short_secret, sizeof short_secret);
    assert_int_equal(cluster_decode(bytes, count + sizeof short_secret, &decoded), ROWAN_EFORMAT);
}

/* Field 9: the last one that stands there counts. */
TEST(a_configuration_of_another_format_is_not_called_damaged)
{
    struct cluster_config *decoded = NULL;
    for (uint8_t format = 0; format <= VERSION_CONFIGURATION_HIGHEST + 1; format++) {
        memcpy(bytes + count, (const uint8_t[]){0x48, format}, 2);
        int error = format > VERSION_CONFIGURATION_HIGHEST
                        ? ROWAN_EINCOMPATIBLE
                        : ROWAN_OK; /* 0: as if it were not there */
        assert_int_equal(cluster_decode(bytes, count + 2, &decoded), error);
        if (!error)
            cluster_release(decoded);
    }
}

/* Server 1 is kept for one shard, which server 4 holds as well. Clients of any version get it as a shard that waits. */
TEST(a_shard_with_kept_and_running_replicas_is_told_to_members_and_to_clients)
{
    struct cluster_config *mixed = cluster_copy(config), *decoded = NULL;
    mixed->lease_ms = 500;
    mixed->manager = 5;
    mixed->members[0].kept = true;
    for (uint32_t i = 0; i < mixed->shard_count; i++) {
        struct shard *row = &mixed->shards[i];
        row->primary = i == 0 ? 1 : 4;
        row->filling_count = row->move_from = row->move_to = row->worker = 0;
        row->backup_count = i == 0;
        row->backups[0] = 4;
    }
    cluster_finished(mixed);
    assert_true(mixed->mixed);
    struct cluster_config *copy = cluster_copy(mixed);
    assert_true(copy->mixed);
    cluster_release(copy);
    for (uint32_t secret = 0; secret < 2; secret++) {
        count = cluster_encode(mixed, secret, bytes, sizeof bytes);
        assert_int_equal(cluster_decode(bytes, count, &decoded), ROWAN_OK);
        assert_true(shard_is_kept(decoded, &decoded->shards[0]));
        assert_int_equal(cluster_member(decoded, 1)->kept, secret);
        assert_false(shard_is_kept(decoded, &decoded->shards[1]));
        cluster_release(decoded);
    }
    cluster_release(mixed);
}

UNIT_MAIN(NULL, NULL)
