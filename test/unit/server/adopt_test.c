/* A later configuration at a server, from its coming until it is committed: the test plays the CM, server 2 and a
 * client. */
#define TEST_FIXTURE open_stage, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "common/cluster/control.h"
#include "landing.h"
#include "server/control/control_state.h"
#include "test/lib/unit.h"

enum { LED = 0, LANDED = 300 /* more than a digest role looks at in one poll */ };

/* The term of the last Adopted since the last call; 0: there was none. */
static uint64_t adopted(struct stage *stage)
{
    const Rowan__ControlMessage *message;
    uint64_t term = 0;
    while ((message = stage_message(stage, stage_cm(stage), NULL)))
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_ADOPTED)
            term = message->adopted->term;
    return term;
}

static int open_stage(void **state)
{
    struct stage *stage = stage_new(state);
    stage_start(stage, STAGE_BLOCK_LIMIT);
    stage->config->manager = 9;
    stage->config->lease_ms = CLUSTER_MAX_LEASE_MS;
    assert_int_equal(cluster_finish(stage->config), 0);
    stage_begin(stage);
    stage_grant(stage);
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

enum plan { LEADS_NOT, LEADS, LEFT, FILLS };

/* The next configuration but `skipped`: what this server is of that shard. The other member is the other replica. */
static struct cluster_config *planned(const struct cluster_config *before, uint32_t shard,
                                      enum plan plan, uint32_t skipped)
{
    struct cluster_config *config = cluster_copy(before);
    struct shard *row = &config->shards[shard];
    const uint32_t other = config->members[1].server;
    assert_non_null(config);
    config->term += 1 + skipped;
    row->epoch += 1 + skipped;
    row->primary = plan == LEADS ? 1 : other;
    row->backup_count = plan == LEADS || plan == LEADS_NOT;
    row->backups[0] = row->backup_count == 0 ? 0 : plan == LEADS ? other : 1;
    row->filling_count = plan == FILLS;
    row->filling[0] = plan == FILLS;
    row->worker = 0;
    assert_int_equal(cluster_finish(config), 0);
    return config;
}

/* It comes, and is the stage's from now on. */
static void come(struct stage *stage, struct cluster_config *config)
{
    follow(stage, config);
    stage_configure_for(stage, config, 0);
    stage_pass(stage, 10 * NS_PER_MS);
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
    struct puppet_conn *client = stage_client(stage);
    assert_int_equal(adopted(stage), 1);
    assert_int_equal(status_of_put(stage, client, LED), ROWAN_EBUSY);
    stage_commit(stage, 2);
    assert_int_equal(status_of_put(stage, client, LED), ROWAN_EBUSY);
    stage_commit(stage, 1);
    stage_put_lands(stage, client, stage_key_of(LED));
    assert_int_equal(next_reply(stage).status, 0);
}

/* The first configuration is in force, and a put of LED on its way. Returns its operation. */
static uint32_t put_in_flight(struct stage *stage, struct puppet_conn *client)
{
    stage_commit(stage, 1);
    (void)adopted(stage);
    const uint32_t operation = stage_put(stage, client, stage_key_of(LED));
    stage_run(stage);
    return operation;
}

TEST(a_write_in_flight_waits_for_those_that_stay_and_its_epoch_goes_on_until_the_commit)
{
    struct puppet_conn *client = stage_client(stage);
    const uint32_t operation = put_in_flight(stage, client);
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

/* While the epoch before ends a configuration comes that changes another shard. */
TEST(a_committed_epoch_waits_for_no_later_configuration)
{
    struct puppet_conn *client = stage_client(stage);
    put_in_flight(stage, client);
    come(stage, planned(stage->config, LED, LEADS, 0));
    assert_int_equal(adopted(stage), 2);
    stage_commit(stage, 2);
    stage_run(stage);
    come(stage, planned(stage->config, STAGE_BACKED, LEADS_NOT, 0));
    assert_int_equal(adopted(stage), 3);
    stage_land_all(stage);
    stage_answer_suffixes(stage, 0);
    stage_land_all(stage);
    assert_int_equal(next_reply(stage).version, version_make(1, 1));
    stage_put_lands(stage, client, stage_key_of(LED));
    assert_int_equal(next_reply(stage).version, version_make(2, 1));
}

TEST(adopted_is_said_when_it_is_durable)
{
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

TEST(adopted_is_said_when_each_role_has_adopted_it)
{
    enum { CONTROL, WORKER, DIGEST, CLEAN, ROLES };
    uint64_t wake_ns;
    assert_int_equal(adopted(stage), 1);
    assert_int_equal(server_roles(stage->server), ROLES);
    struct cluster_config *next = cluster_copy(stage->config);
    next->term++;
    follow(stage, next);
    stage_configure_for(stage, next, 0);
    for (uint32_t i = 0; i < 50 * ROLES; i++, stage->now_ns += NS_PER_MS) {
        const struct poller poller = server_poller(stage->server, i % ROLES);
        if (i % ROLES != WORKER)
            poller.poll(poller.role, stage->now_ns, &wake_ns);
    }
    assert_int_equal(adopted(stage), 0);
    stage_pass(stage, 10 * NS_PER_MS);
    assert_int_equal(adopted(stage), 2);
}

TEST(a_promoted_shard_has_what_landed_and_is_served_when_that_is_committed)
{
    struct puppet_conn *client = stage_client(stage);
    stage_commit(stage, 1);
    struct landing landing = landing_begin(stage);
    struct control *control = server_poller(stage->server, 0).role;
    struct shard_state *shard = control->shards[STAGE_BACKED];
    shard_expose(shard, version_make(1, 0), &control->common->exposures);
    struct cluster_config *next = without_peer(stage);
    stage_configure_for(stage, next, 0);
    stage_run(stage);
    for (uint32_t counter = 1; counter <= LANDED; counter++)
        landing_put(&landing, counter);
    puppet_shut_out(stage->fabric, STAGE_CONTROL, 2, 0);
    stage_pass(stage, 100 * NS_PER_MS);
    assert_int_equal(adopted(stage), 2);
    assert_true(atomic_load(&shard->exposed) == version_make(1, 0)); /* until it is reconciled */
    follow(stage, next);
    assert_int_equal(status_of_put(stage, client, STAGE_BACKED), ROWAN_EBUSY);
    stage_commit(stage, 2);
    stage_get(stage, client, stage_key_of(STAGE_BACKED));
    stage_run(stage);
    const struct message_reply reply = next_reply(stage);
    assert_int_equal(reply.status, 0);
    assert_int_equal(reply.version, version_make(1, LANDED));
    assert_int_equal(status_of_put(stage, client, STAGE_BACKED), 0);
    assert_true(atomic_load(&shard->exposed) == UINT64_MAX);
}

TEST(a_newer_configuration_takes_the_place_of_one_that_is_not_adopted)
{
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

/* --- shards that change their primary, or leave, while their servers go on --- */

static const struct shard_state *held(const struct stage *stage, uint32_t shard)
{
    const struct control *control = server_poller(stage->server, 0).role;
    return control->shards[shard];
}

static struct replica_row row_of(const struct stage *stage, uint32_t shard)
{
    const struct control *control = server_poller(stage->server, 0).role;
    return store_replica(control->common->store, (uint16_t)shard);
}

/* What this server shows server 2, which leads LED in epoch 2. */
struct shown {
    uint64_t commit, prefix;
    size_t blocks;
    struct entry_header first; /* of these */
};

static struct shown ask_suffix(struct landing *landing, uint64_t after)
{
    struct stage *stage = landing->stage;
    Rowan__GetSuffix body = ROWAN__GET_SUFFIX__INIT;
    struct shown shown = {0};
    body.shard = LED;
    body.epoch = 2;
    body.after = after;
    stage->fabric->taken = stage->fabric->sent_count;
    stage_tell(landing->peer, 7, &CONTROL_MESSAGE(GET_SUFFIX, get_suffix, &body));
    stage_pass(stage, NS_PER_S);
    const Rowan__ControlMessage *message;
    bool found = false;
    while (!found && (message = stage_message(stage, landing->peer, NULL))) {
        found = message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SUFFIX_IS;
        if (found) {
            shown.commit = message->suffix_is->commit;
            shown.prefix = message->suffix_is->prefix;
            shown.blocks = message->suffix_is->n_blocks;
            if (shown.blocks)
                entry_peek(message->suffix_is->blocks[0].data, &shown.first);
        }
    }
    assert_true(found);
    return shown;
}

TEST(what_is_kept_free_for_senders_follows_how_many_there_are)
{
    const struct control *control = server_poller(stage->server, 0).role;
    const uint64_t before = atomic_load(&control->common->reserve);
    come(stage, without_peer(stage));
    assert_in_range(atomic_load(&control->common->reserve), 1, before - 1);
}

TEST(a_deposed_primary_answers_when_its_writes_have_landed_and_shows_them_as_a_backup)
{
    struct puppet_conn *client = stage_client(stage);
    const uint32_t operation = put_in_flight(stage, client);
    struct cluster_config *next = planned(stage->config, LED, LEADS_NOT, 0);
    stage_configure_for(stage, next, 0);
    stage_pass(stage, 10 * NS_PER_MS);
    assert_int_equal(adopted(stage), 0);
    assert_int_equal(status_of_put(stage, client, LED), ROWAN_ENOTMINE);
    stage_land_all(stage);
    const struct message_reply reply = next_reply(stage);
    assert_int_equal(reply.operation, operation);
    assert_int_equal(reply.status, 0);
    stage_pass(stage, 10 * NS_PER_MS);
    assert_int_equal(adopted(stage), 2);
    follow(stage, next);
    struct landing landing = landing_begin(stage);
    struct shown shown = ask_suffix(&landing, QUERY_SUFFIX_NONE);
    assert_int_equal(shown.commit, version_make(1, 1));
    assert_int_equal(shown.prefix, version_make(1, 1));
    shown = ask_suffix(&landing, version_make(1, 0));
    assert_int_equal(shown.blocks, 1);
    assert_int_equal(shown.first.version, version_make(1, 1));

    stage_commit(stage, 2);
    come(stage, planned(stage->config, LED, LEADS, 0));
    stage_commit(stage, 3);
    stage_pass(stage, 10 * NS_PER_MS);
    stage_answer_suffixes(stage, version_make(1, 1));
    stage_land_all(stage);
    stage->operations = operation - 1; /* the client has not heard of it, and asks again */
    stage_put_lands(stage, client, stage_key_of(LED));
    assert_int_equal(next_reply(stage).version, version_make(1, 1));
}

TEST(a_write_that_may_have_landed_is_in_doubt_and_in_the_suffix_of_the_deposed_primary)
{
    struct puppet_conn *client = stage_client(stage);
    const uint32_t operation = put_in_flight(stage, client);
    come(stage, planned(stage->config, LED, LEADS_NOT, 0));
    puppet_close(stage->peer, ROWAN_ECLOSED);
    stage_run(stage);
    assert_int_equal(adopted(stage), 0); /* it may still land */
    stage_pass(stage, NS_PER_S);
    stage->peer = puppet_find(stage->fabric, STAGE_WORKER, "puppet:2");
    const uint32_t blocks = stage->fabric->log_count;
    puppet_connected(stage->peer, true);
    stage_pass(stage, 10 * NS_PER_MS);
    assert_int_equal(stage->fabric->log_count, blocks); /* it is not sent again */
    assert_int_equal(adopted(stage), 2);
    assert_false(puppet_lives(stage->fabric, STAGE_WORKER, client));
    struct landing landing = landing_begin(stage);
    const struct shown shown = ask_suffix(&landing, version_make(1, 0));
    assert_int_equal(shown.commit, version_make(1, 0));
    assert_int_equal(shown.blocks, 1);
    assert_int_equal(shown.first.operation, operation);
}

TEST(a_connection_on_which_nothing_lands_for_a_lease_holds_up_no_deposed_primary)
{
    struct puppet_conn *client = stage_client(stage), *before = stage->peer;
    put_in_flight(stage, client);
    come(stage, planned(stage->config, LED, LEADS_NOT, 0));
    assert_true(puppet_lives(stage->fabric, STAGE_WORKER, before));
    stage_pass(stage, (CLUSTER_MAX_LEASE_MS + 1000) * NS_PER_MS);
    assert_false(puppet_lives(stage->fabric, STAGE_WORKER, before));
    assert_int_equal(adopted(stage), 0);
    puppet_connected(puppet_find(stage->fabric, STAGE_WORKER, "puppet:2"), true);
    stage_pass(stage, 10 * NS_PER_MS);
    assert_int_equal(adopted(stage), 2);
}

TEST(a_server_that_is_kept_only_holds_up_no_deposed_primary)
{
    struct puppet_conn *client = stage_client(stage);
    put_in_flight(stage, client);
    struct cluster_config *next = planned(stage->config, LED, LEFT, 0);
    next->members[1].kept = true;
    for (uint32_t i = 0; i < next->shard_count; i++) {
        if (i == LED)
            continue;
        next->shards[i].primary = 1;
        next->shards[i].backup_count = 0;
        next->shards[i].epoch = 2;
    }
    assert_int_equal(cluster_finish(next), 0);
    come(stage, next);
    puppet_shut_out(stage->fabric, STAGE_CONTROL, 2, 0);
    puppet_close(stage->peer, ROWAN_ECLOSED);
    stage_pass(stage, (CLUSTER_MAX_LEASE_MS + 1000) * NS_PER_MS);
    assert_int_equal(adopted(stage), 2);
    assert_false(puppet_lives(stage->fabric, STAGE_WORKER, client));
}

TEST(a_shard_whose_primary_stays_is_promoted_with_all_that_it_sent_until_the_commit)
{
    struct puppet_conn *client = stage_client(stage);
    stage_commit(stage, 1);
    struct landing landing = landing_begin(stage);
    come(stage, planned(stage->config, STAGE_BACKED, LEADS, 0));
    assert_int_equal(adopted(stage), 2);
    assert_int_equal(status_of_put(stage, client, STAGE_BACKED), ROWAN_EBUSY);
    landing_put(&landing, 1);
    stage_commit(stage, 2);
    stage_pass(stage, 100 * NS_PER_MS);
    stage_answer_suffixes(stage, version_make(1, 0));
    stage_land_all(stage);
    stage_get(stage, client, stage_key_of(STAGE_BACKED));
    stage_run(stage);
    const struct message_reply reply = next_reply(stage);
    assert_int_equal(reply.status, 0);
    assert_int_equal(reply.version, version_make(1, 1));
}

/* Server 3 takes the place of server 2, and has been told that this is committed; this server has not. */
TEST(a_shard_stays_with_its_digest_role_while_anybody_may_send_who_led_it_in_what_was_adopted)
{
    struct puppet_conn *client = stage_client(stage);
    const char *key = stage_key_of(STAGE_BACKED);
    const struct entry_header put = {.type = ENTRY_PUT,
                                     .shard = STAGE_BACKED,
                                     .version = version_make(2, 1),
                                     .key_bytes = (uint16_t)strlen(key),
                                     .value_bytes = 5,
                                     .blocks = 1};
    stage_commit(stage, 1);
    struct landing landing = landing_begin(stage);
    struct cluster_config *next = cluster_copy(stage->config);
    next->term++;
    next->members[1].server = 3;
    next->members[1].incarnation = 300;
    snprintf(next->members[1].address, sizeof next->members[1].address, "puppet:3");
    for (uint32_t i = 0; i < next->shard_count; i++) {
        struct shard *row = &next->shards[i];
        *(row->primary == 2 ? &row->primary : &row->backups[0]) = 3;
        row->epoch++;
    }
    assert_int_equal(cluster_finish(next), 0);
    come(stage, next);
    puppet_shut_out(stage->fabric, STAGE_CONTROL, 2, 0);
    stage_pass(stage, 100 * NS_PER_MS);
    assert_int_equal(adopted(stage), 2);

    come(stage, planned(stage->config, STAGE_BACKED, LEADS, 0));
    assert_int_equal(adopted(stage), 3);
    landing_block(&landing, put, key, "value");
    next = cluster_copy(stage->config); /* now server 3 ends */
    next->term++;
    next->member_count = 1;
    for (uint32_t i = 0; i < next->shard_count; i++) {
        next->shards[i].backup_count = 0;
        next->shards[i].epoch++;
    }
    assert_int_equal(cluster_finish(next), 0);
    come(stage, next);
    puppet_shut_out(stage->fabric, STAGE_CONTROL, 3, 0);
    stage_pass(stage, 100 * NS_PER_MS);
    assert_int_equal(adopted(stage), 4);
    stage_commit(stage, 4);
    stage_get(stage, client, key);
    stage_run(stage);
    assert_int_equal(next_reply(stage).version, put.version);
}

TEST(a_shard_that_is_led_here_again_by_the_newest_configuration_returns_to_its_worker)
{
    struct puppet_conn *client = stage_client(stage);
    put_in_flight(stage, client);
    come(stage, planned(stage->config, LED, LEADS_NOT, 0));
    come(stage, planned(stage->config, LED, LEADS, 0));
    assert_int_equal(adopted(stage), 0);
    stage_land_all(stage);
    assert_int_equal(next_reply(stage).status, 0);
    stage_pass(stage, 10 * NS_PER_MS);
    assert_int_equal(adopted(stage), 3);
    assert_int_equal(status_of_put(stage, client, LED), ROWAN_EBUSY);
    stage_commit(stage, 3);
    stage_pass(stage, 10 * NS_PER_MS);
    stage_answer_suffixes(stage, version_make(1, 1));
    stage_land_all(stage);
    stage_put_lands(stage, client, stage_key_of(LED));
    assert_int_equal(next_reply(stage).version, version_make(3, 1));
}

TEST(a_write_in_doubt_is_not_carried_out_again_where_a_worker_here_is_to_lead_again)
{
    struct puppet_conn *client = stage_client(stage);
    const uint32_t id = client->id;
    put_in_flight(stage, client);
    come(stage, planned(stage->config, LED, LEADS_NOT, 0));
    come(stage, planned(stage->config, LED, LEADS, 0));
    puppet_close(stage->peer, ROWAN_ECLOSED);
    stage_pass(stage, NS_PER_S);
    stage->peer = puppet_find(stage->fabric, STAGE_WORKER, "puppet:2");
    puppet_connected(stage->peer, true);
    stage_pass(stage, 10 * NS_PER_MS);
    assert_int_equal(adopted(stage), 3);
    stage_commit(stage, 3);
    stage_pass(stage, 10 * NS_PER_MS);
    stage_answer_suffixes(stage, version_make(1, 0));
    assert_true(stage_confirm(stage, 0));
    stage_land_all(stage);
    client = stage_client_again(stage, id);
    stage->fabric->taken = stage->fabric->sent_count;
    stage->operations = 0;
    stage_put_lands(stage, client, stage_key_of(LED));
    assert_int_equal(next_reply(stage).version, version_make(1, 1));
}

TEST(a_replica_that_leaves_is_none_and_holds_up_nothing_and_comes_back_as_another)
{
    stage_commit(stage, 1);
    struct landing landing = landing_begin(stage);
    landing_put(&landing, 1);
    landing_seal(&landing);
    stage_pass(stage, NS_PER_S);
    assert_int_equal(index_items(held(stage, STAGE_BACKED)->index), 1);
    assert_int_equal(landing_ask(&landing).segments_committed, 0);
    (void)adopted(stage);
    come(stage, planned(stage->config, STAGE_BACKED, LEFT, 0));
    assert_int_equal(adopted(stage), 2);
    assert_null(held(stage, STAGE_BACKED));
    assert_int_equal(row_of(stage, STAGE_BACKED).state, REPLICA_NONE);
    stage_commit(stage, 2);
    landing_put(&landing, 2); /* late */
    landing_seal(&landing);
    stage_pass(stage, NS_PER_S);
    const struct control *control = server_poller(stage->server, 0).role;
    assert_true(store_segments_with(control->common->store, SEGMENT_COMMITTED) > 0);
    assert_int_equal(
        live_items(store_live(control->common->store),
                   store_segment_at(control->common->store, stage->fabric->posts[0].offset)),
        0);

    come(stage, planned(stage->config, STAGE_BACKED, FILLS, 0));
    assert_int_equal(adopted(stage), 3);
    landing_put(&landing, 3); /* of epoch 1 */
    stage_pass(stage, NS_PER_S);
    assert_int_equal(index_items(held(stage, STAGE_BACKED)->index), 0);
    assert_int_equal(row_of(stage, STAGE_BACKED).state, REPLICA_FILLING);
    assert_int_equal(row_of(stage, STAGE_BACKED).first_epoch, 3);
}

TEST(a_replica_that_fills_begins_anew_if_a_configuration_may_have_been_missed)
{
    stage_commit(stage, 1);
    come(stage, planned(stage->config, STAGE_BACKED, FILLS, 0));
    assert_int_equal(row_of(stage, STAGE_BACKED).first_epoch, 2);
    come(stage, planned(stage->config, STAGE_BACKED, FILLS, 0));
    assert_int_equal(row_of(stage, STAGE_BACKED).first_epoch, 2);
    come(stage, planned(stage->config, STAGE_BACKED, FILLS, 1));
    assert_int_equal(row_of(stage, STAGE_BACKED).first_epoch, 5);
    assert_int_equal(held(stage, STAGE_BACKED)->first_epoch, 5);
    assert_int_equal(adopted(stage), 5);
}

UNIT_MAIN(NULL, NULL)
