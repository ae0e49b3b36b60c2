/* A later configuration at a server, from its coming until it is committed: the test plays the CM, server 2 and a
 * client. */
#define TEST_FIXTURE open_stage, stage_teardown

#include "common/base/error.h"
#include "common/cluster/control.h"
#include "landing.h"
#include "test/lib/unit.h"

enum { LED = 0 };

static struct puppet_conn *cm(struct stage *stage)
{
    return puppet_find(stage->fabric, STAGE_CONTROL, "puppet:cm");
}

/* The term of the last Adopted since the last call; 0: there was none. */
static uint64_t adopted(struct stage *stage)
{
    const struct puppet_sent *sent;
    uint64_t term = 0;

    while ((sent = puppet_take(stage->fabric))) {
        Rowan__ControlMessage *message;
        uint32_t tag;

        if (sent->conn != cm(stage) || control_decode(sent->data, sent->bytes, &tag, &message))
            continue;
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_ADOPTED)
            term = message->adopted->term;
        control_free(message);
    }
    return term;
}

static int open_stage(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);

    assert_non_null(stage);
    stage_start(stage, STAGE_BLOCK_LIMIT);
    stage->config->manager = 9;
    stage->config->lease_ms = CLUSTER_MAX_LEASE_MS;
    assert_int_equal(cluster_finish(stage->config), 0);
    stage_begin(stage);
    stage_grant(stage);
    *state = stage;
    return 0;
}

/* The next configuration: without server 2, whose shard this server leads from then on. */
static struct cluster_config *without_peer(const struct stage *stage)
{
    struct cluster_config *config = cluster_create(1, stage->config->shard_count);

    assert_non_null(config);
    config->term = stage->config->term + 1;
    config->cluster = stage->config->cluster;
    config->block_limit = stage->config->block_limit;
    config->replicas = 2;
    config->has_secret = true;
    config->manager = 9;
    config->lease_ms = CLUSTER_MAX_LEASE_MS;
    config->members[0] = stage->config->members[0];
    for (uint32_t i = 0; i < config->shard_count; i++) {
        config->shards[i] = stage->config->shards[i];
        config->shards[i].epoch++;
        config->shards[i].primary = 1;
        config->shards[i].backup_count = 0;
        memset(config->shards[i].backups, 0, sizeof config->shards[i].backups);
    }
    assert_int_equal(cluster_finish(config), 0);
    return config;
}

/* Requests are for epochs of this configuration from now on. */
static void follow(struct stage *stage, struct cluster_config *config)
{
    cluster_release(stage->config);
    stage->config = config;
}

/* The next reply to the client, whatever else was sent. */
static struct message_reply next_reply(struct stage *stage)
{
    const struct puppet_sent *sent;
    struct message_reply reply;
    const uint8_t *value;

    while ((sent = puppet_take(stage->fabric))) {
        if (message_parse_reply(sent->data, sent->bytes, &reply, &value))
            return reply;
    }
    fail_msg("there was no reply");
    return reply;
}

static int status_of_put(struct stage *stage, struct puppet_conn *client, uint32_t shard)
{
    stage_put(stage, client, stage_key_of(shard));
    stage_run(stage);
    return next_reply(stage).status;
}

TEST(nothing_is_served_before_its_configuration_is_committed)
{
    struct stage *stage = *state;
    struct puppet_conn *client = stage_client(stage);

    assert_int_equal(adopted(stage), 1);
    assert_int_equal(status_of_put(stage, client, LED), ROWAN_EBUSY);
    stage_commit(stage, 2);
    assert_int_equal(status_of_put(stage, client, LED), ROWAN_EBUSY);
    stage_commit(stage, 1);
    stage_put(stage, client, stage_key_of(LED));
    stage_land_all(stage);
    assert_int_equal(next_reply(stage).status, 0);
}

TEST(a_write_in_flight_waits_for_those_that_stay_and_its_epoch_goes_on_until_the_commit)
{
    struct stage *stage = *state;
    struct puppet_conn *client = stage_client(stage);

    stage_commit(stage, 1);
    assert_int_equal(adopted(stage), 1);
    const uint32_t operation = stage_put(stage, client, stage_key_of(LED));
    stage_run(stage);
    assert_true(stage_is_quiet(stage));

    struct cluster_config *next = without_peer(stage);
    stage_configure_for(stage, next, 0);
    stage_run(stage);
    assert_true(stage_is_quiet(stage)); /* no Adopted either */
    puppet_shut_out(stage->fabric, STAGE_CONTROL, 2, 0);
    stage_run(stage);
    const struct message_reply reply = next_reply(stage);
    assert_int_equal(reply.operation, operation);
    assert_int_equal(reply.status, 0);
    assert_int_equal(reply.version, version_make(1, 1));
    assert_null(puppet_find(stage->fabric, STAGE_WORKER, "puppet:2"));

    assert_int_equal(status_of_put(stage, client, LED), 0);
    follow(stage, next);
    assert_int_equal(status_of_put(stage, client, LED), ROWAN_EBUSY);
    stage_commit(stage, 1);
    assert_int_equal(status_of_put(stage, client, LED), ROWAN_EBUSY);
    stage_commit(stage, 2);
    stage_put(stage, client, stage_key_of(LED));
    stage_run(stage);
    assert_int_equal(next_reply(stage).version, version_make(2, 1));
}

TEST(adopted_is_said_when_it_is_durable)
{
    struct stage *stage = *state;

    (void)adopted(stage);
    struct cluster_config *next = without_peer(stage);
    stage_hold_fences(stage, true);
    stage_configure_for(stage, next, 0);
    puppet_shut_out(stage->fabric, STAGE_CONTROL, 2, 0);
    stage_run(stage);
    puppet_shut_out(stage->fabric, STAGE_CONTROL, 2, 0);
    stage_run(stage);
    assert_int_equal(adopted(stage), 0);
    stage_hold_fences(stage, false);
    stage_pass(stage, 10 * NS_PER_MS);
    assert_int_equal(adopted(stage), 2);
    cluster_release(next);
}

TEST(a_promoted_shard_has_what_landed_and_is_served_when_that_is_committed)
{
    struct stage *stage = *state;
    struct puppet_conn *client = stage_client(stage);

    stage_commit(stage, 1);
    struct landing landing = landing_begin(stage);
    landing_put(&landing, 1);
    struct cluster_config *next = without_peer(stage);
    stage_configure_for(stage, next, 0);
    stage_run(stage);
    puppet_shut_out(stage->fabric, STAGE_CONTROL, 2, 0);
    stage_pass(stage, 100 * NS_PER_MS);
    assert_int_equal(adopted(stage), 2);
    follow(stage, next);
    assert_int_equal(status_of_put(stage, client, STAGE_BACKED), ROWAN_EBUSY);
    stage_commit(stage, 2);
    stage_get(stage, client, stage_key_of(STAGE_BACKED));
    stage_run(stage);
    const struct message_reply reply = next_reply(stage);
    assert_int_equal(reply.status, 0);
    assert_int_equal(reply.version, version_make(1, 1));
    assert_int_equal(status_of_put(stage, client, STAGE_BACKED), 0);
}

TEST(a_newer_configuration_takes_the_place_of_one_that_is_not_adopted)
{
    struct stage *stage = *state;
    struct puppet_conn *client = stage_client(stage);

    stage_commit(stage, 1);
    (void)adopted(stage);
    follow(stage, without_peer(stage));
    stage_configure_for(stage, stage->config, 0);
    stage_run(stage);
    struct cluster_config *newest = cluster_copy(stage->config);
    newest->term++;
    for (uint32_t i = 0; i < newest->shard_count; i++)
        newest->shards[i].epoch++;
    assert_int_equal(cluster_finish(newest), 0);
    stage_configure_for(stage, newest, 0);
    puppet_shut_out(stage->fabric, STAGE_CONTROL, 2, 0);
    stage_pass(stage, 100 * NS_PER_MS);
    assert_int_equal(adopted(stage), 3);
    stage_commit(stage, 2);
    assert_int_equal(status_of_put(stage, client, STAGE_BACKED), ROWAN_EEPOCH);
    stage_commit(stage, 3);
    follow(stage, newest);
    for (uint32_t shard = 0; shard <= STAGE_BACKED; shard++) {
        stage_put(stage, client, stage_key_of(shard));
        stage_run(stage);
        assert_int_equal(next_reply(stage).version, version_make(3, 1));
    }
}

UNIT_MAIN(NULL, NULL)
