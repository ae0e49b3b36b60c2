/* Put, get and delete through the whole system in one thread: every role, no socket, no clock of
 * the host. What random operations find is in workload_test.c. */
#include "stage.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "common/base/error.h"
#include "common/base/log.h"
#include "test/lib/unit.h"

enum { MIB = 1 << 20 };

static struct sim_cluster *create(const struct sim_cluster_options *options)
{
    return sim_cluster_create(options);
}

static void assert_got(struct sim_cluster *cluster, uint32_t client, const char *key,
                       const char *value)
{
    char got[64];
    size_t bytes;
    assert_int_equal(sim_get(cluster, client, key, strlen(key), got, sizeof got, &bytes, NULL), 0);
    assert_int_equal(bytes, strlen(value));
    assert_memory_equal(got, value, bytes);
}

static void assert_missing(struct sim_cluster *cluster, uint32_t client, const char *key)
{
    char got[64];
    assert_int_equal(sim_get(cluster, client, key, strlen(key), got, sizeof got, NULL, NULL),
                     ROWAN_ENOTFOUND);
}

/* --- single operations --- */

TEST(what_was_put_is_got_until_it_is_deleted)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){.clients = 2});
    uint64_t version, got;
    assert_missing(cluster, 0, "key");
    assert_int_equal(sim_put(cluster, 0, "key", 3, "value", 5, &version), 0);
    assert_got(cluster, 0, "key", "value");
    assert_got(cluster, 1, "key", "value");
    assert_int_equal(sim_get(cluster, 0, "key", 3, NULL, 0, NULL, &got), ROWAN_EBUFFER);
    assert_true(version > 0 && version == got);
    assert_int_equal(sim_del(cluster, 1, "key", 3), 0);
    assert_missing(cluster, 0, "key");
    assert_int_equal(sim_del(cluster, 0, "key", 3), ROWAN_ENOTFOUND);
    stage_finish(cluster, 0);
}

TEST(overwriting_gives_the_new_value_and_a_higher_version)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){0});
    uint64_t first, second;
    assert_int_equal(sim_put(cluster, 0, "key", 3, "old", 3, &first), 0);
    assert_int_equal(sim_put(cluster, 0, "key", 3, "newer", 5, &second), 0);
    assert_true(second > first);
    assert_got(cluster, 0, "key", "newer");
    stage_finish(cluster, 1);
}

TEST(conditional_puts_succeed_at_the_expected_version_only)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){0});
    uint64_t version, there;
    assert_int_equal(sim_put_if(cluster, 0, "key", 3, "a", 1, 7, &there), ROWAN_EVERSION);
    assert_int_equal(there, 0);
    assert_int_equal(sim_put_if(cluster, 0, "key", 3, "a", 1, 0, &version), 0);
    assert_int_equal(sim_put_if(cluster, 0, "key", 3, "b", 1, 0, &there), ROWAN_EVERSION);
    assert_true(there == version);
    assert_got(cluster, 0, "key", "a");
    assert_int_equal(sim_put_if(cluster, 0, "key", 3, "c", 1, version, NULL), 0);
    assert_got(cluster, 0, "key", "c");
    assert_int_equal(sim_del(cluster, 0, "key", 3), 0);
    assert_int_equal(sim_put_if(cluster, 0, "key", 3, "d", 1, version, &there), ROWAN_EVERSION);
    assert_int_equal(there, 0);
    assert_int_equal(sim_put_if(cluster, 0, "key", 3, "e", 1, 0, NULL), 0);
    assert_got(cluster, 0, "key", "e");
    stage_finish(cluster, 1);
}

static void round_trip(struct sim_cluster *cluster, uint32_t key_bytes, uint32_t value_bytes)
{
    uint8_t *key = malloc(key_bytes), *value = malloc(value_bytes + 1), *got = malloc(MIB);
    assert_true(key && value && got);
    memset(key, 'a' + (int)(value_bytes % 26), key_bytes);
    for (uint32_t i = 0; i < value_bytes; i++)
        value[i] = (uint8_t)(i * 31 + i / 251);
    size_t bytes;
    assert_int_equal(sim_put(cluster, 0, key, key_bytes, value, value_bytes, NULL), 0);
    assert_int_equal(sim_get(cluster, 0, key, key_bytes, got, MIB, &bytes, NULL), 0);
    assert_int_equal(bytes, value_bytes);
    assert_memory_equal(got, value, value_bytes);
    free(got);
    free(value);
    free(key);
}

TEST(every_size_comes_back_whatever_the_block_limit_is)
{
    static const uint32_t limits[] = {65536, 1024, 256};
    static const uint32_t values[] = {0, 1, 1000, 65536, MIB};
    for (size_t i = 0; i < 3; i++) {
        struct sim_cluster *cluster =
            create(&(struct sim_cluster_options){.block_limit = limits[i]});
        for (size_t j = 0; j < 5; j++) {
            round_trip(cluster, 1, values[j]);
            round_trip(cluster, 1024, values[j]);
        }
        stage_finish(cluster, 10);
    }
}

TEST(a_small_buffer_is_told_the_size)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){0});
    char got[4] = "abc";
    size_t bytes;
    assert_int_equal(sim_put(cluster, 0, "key", 3, "0123456789", 10, NULL), 0);
    assert_int_equal(sim_get(cluster, 0, "key", 3, got, sizeof got, &bytes, NULL), ROWAN_EBUFFER);
    assert_int_equal(bytes, 10);
    assert_string_equal(got, "abc");
    stage_finish(cluster, 1);
}

/* --- replication --- */

TEST(puts_are_acknowledged_while_a_backup_is_stopped)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){.one_sided = true});
    struct stage_answers answers = {0};
    char key[24];
    stage_key(cluster, 1, 0, key);
    assert_int_equal(sim_put(cluster, 0, key, strlen(key), "old", 3, NULL), 0);
    cluster->servers[1].process.stopped = cluster->servers[2].process.stopped = true;
    for (uint32_t i = 0; i < 60; i++) {
        stage_key(cluster, 1, i, key);
        stage_post_put(cluster, 0, key, "new", 3, &answers);
    }
    stage_settle(cluster, &answers);
    assert_int_equal(answers.good, 60);
    cluster->servers[1].process.stopped = cluster->servers[2].process.stopped = false;
    stage_finish(cluster, 60);
}

TEST(puts_wait_for_a_dry_landing_zone_and_none_fails)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){.landing_segments = 2,
                                                                       .pm_bytes = 512 << 20,
                                                                       .replicas = 2,
                                                                       .servers = 2,
                                                                       .one_sided = true});
    struct stage_answers answers = {0};
    uint8_t *value = calloc(1, MIB);
    char key[24];
    assert_non_null(value);
    cluster->servers[1].process.stopped = true;
    for (uint32_t i = 0; i < 30; i++) {
        stage_key(cluster, 1, i, key);
        stage_post_put(cluster, 0, key, value, MIB - 1000, &answers);
    }
    sim_cluster_run_for(cluster, NS_PER_S);
    /* A segment holds 3 of them and pads of the 4th's size. */
    assert_in_range(answers.good, 6, 8);
    assert_int_equal(answers.failed, 0);
    assert_true(sim_network_counts(cluster->network).dry > 0);
    cluster->servers[1].process.stopped = false;
    stage_settle(cluster, &answers);
    assert_int_equal(answers.good, 30);
    free(value);
    stage_finish(cluster, 30);
}

TEST(a_read_does_not_see_a_write_that_a_backup_has_not)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){.clients = 2});
    struct stage_answers answers = {0};
    char key[24], other[24];
    stage_key(cluster, 1, 0, key);
    stage_key(cluster, 1, 1, other);
    assert_int_equal(sim_put(cluster, 0, key, strlen(key), "old", 3, NULL), 0);
    sim_network_part(cluster->network, cluster->servers[0].process.address,
                     cluster->servers[2].process.address);
    stage_post_put(cluster, 0, key, "new", 3, &answers);
    stage_post_put(cluster, 0, other, "new", 3, &answers);
    sim_cluster_run_for(cluster, NS_PER_S);
    assert_int_equal(answers.outstanding, 2);
    assert_got(cluster, 1, key, "old");
    assert_missing(cluster, 1, other);
    sim_network_join(cluster->network);
    stage_settle(cluster, &answers);
    assert_int_equal(answers.good, 2);
    assert_got(cluster, 1, key, "new");
    assert_got(cluster, 1, other, "new");
    stage_finish(cluster, 2);
}

static void a_put_waits_until_it_is_durable(struct sim_cluster *cluster, uint32_t server)
{
    struct stage_answers answers = {0};
    char key[24];
    stage_key(cluster, 1, 0, key);
    assert_int_equal(sim_put(cluster, 0, key, strlen(key), "old", 3, NULL), 0);
    cluster->servers[server - 1].pm->fence_ns = NS_PER_S;
    stage_post_put(cluster, 0, key, "new", 3, &answers);
    sim_cluster_run_for(cluster, NS_PER_S / 2);
    assert_int_equal(answers.outstanding, 1);
    assert_got(cluster, 1, key, "old");
    stage_settle(cluster, &answers);
    assert_int_equal(answers.good, 1);
    assert_got(cluster, 1, key, "new");
    stage_finish(cluster, 1);
}

TEST(a_put_waits_until_it_is_durable_on_each_server)
{
    for (uint32_t server = 1; server <= 3; server++)
        a_put_waits_until_it_is_durable(create(&(struct sim_cluster_options){.clients = 2}),
                                        server);
}

TEST(writes_in_flight_on_a_broken_connection_are_sent_again)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct sim_cluster *cluster =
            create(&(struct sim_cluster_options){.seed = seed, .max_delay_ns = NS_PER_MS});
        struct stage_answers answers = {0};
        for (uint32_t i = 0; i < 40; i++) {
            char key[24];
            stage_key(cluster, 1, i % 20, key);
            stage_post_put(cluster, 0, key, "value", 5, &answers);
        }
        sim_cluster_run_for(cluster, 100 * seed * NS_PER_US);
        for (uint32_t i = 1; i < 3; i++)
            sim_network_break(cluster->network, cluster->servers[0].process.address,
                              cluster->servers[i].process.address);
        stage_settle(cluster, &answers);
        assert_int_equal(answers.good, 40);
        stage_finish(cluster, 20);
    }
}

/* --- races --- */

enum { INCREMENTS = 50 };

struct counter {
    struct sim_cluster *cluster;
    uint32_t client;
    uint32_t done, lost;
    uint32_t value; /* of the object, then as put */
};

static void read_counter(struct counter *counter);

static void on_increment(const struct rowan_completion *completion)
{
    struct counter *counter = completion->context;
    assert_true(completion->status == 0 || completion->status == ROWAN_EVERSION);
    counter->done += completion->status == 0;
    counter->lost += completion->status == ROWAN_EVERSION;
    if (counter->done < INCREMENTS)
        read_counter(counter);
}

static void on_counter(const struct rowan_completion *completion)
{
    struct counter *counter = completion->context;
    assert_true(completion->status == 0 || completion->status == ROWAN_ENOTFOUND);
    if (completion->status)
        counter->value = 0;
    counter->value++;
    const struct session_request request = {
        .type = MESSAGE_PUT_IF,
        .key = "counter",
        .key_bytes = 7,
        .value = &counter->value,
        .value_bytes = sizeof counter->value,
        .expected = completion->status ? 0 : completion->version,
        .callback = on_increment,
        .context = counter,
    };
    assert_int_equal(session_post(counter->cluster->clients[counter->client].session, &request), 0);
}

static void read_counter(struct counter *counter)
{
    const struct session_request request = {.type = MESSAGE_GET,
                                            .key = "counter",
                                            .key_bytes = 7,
                                            .room = &counter->value,
                                            .room_bytes = sizeof counter->value,
                                            .callback = on_counter,
                                            .context = counter};
    assert_int_equal(session_post(counter->cluster->clients[counter->client].session, &request), 0);
}

static bool counters_are_done(void *context)
{
    const struct counter *counters = context;
    return counters[0].done == INCREMENTS && counters[1].done == INCREMENTS;
}

TEST(racing_conditional_puts_count_exactly)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){
        .clients = 2, .max_delay_ns = 100 * NS_PER_US, .fence_ns = 10 * NS_PER_US});
    struct counter counters[2];
    for (uint32_t i = 0; i < 2; i++) {
        counters[i] = (struct counter){.cluster = cluster, .client = i};
        read_counter(&counters[i]);
    }
    assert_true(sim_cluster_run(cluster, counters_are_done, counters, 60 * NS_PER_S));
    assert_true(counters[0].lost + counters[1].lost > 0);
    uint32_t value;
    assert_int_equal(sim_get(cluster, 0, "counter", 7, &value, sizeof value, NULL, NULL), 0);
    assert_int_equal(value, 2 * INCREMENTS);
    stage_finish(cluster, 1);
}

struct stream {
    struct sim_cluster *cluster;
    uint32_t client;
    bool over;
    uint32_t outstanding, good;
};

static void post_stream(struct stream *stream);

static void on_stream(const struct rowan_completion *completion)
{
    struct stream *stream = completion->context;
    stream->outstanding--;
    stream->good += completion->status == 0;
    if (!stream->over)
        post_stream(stream);
}

static void post_stream(struct stream *stream)
{
    const struct session_request request = {.type = MESSAGE_PUT,
                                            .key = "key",
                                            .key_bytes = 3,
                                            .value = "stream",
                                            .value_bytes = 6,
                                            .callback = on_stream,
                                            .context = stream};
    assert_int_equal(session_post(stream->cluster->clients[stream->client].session, &request), 0);
    stream->outstanding++;
}

enum { STREAMS = 4 };

static bool streams_are_out(void *context)
{
    const struct stream *streams = context;
    uint32_t outstanding = 0;
    for (int i = 0; i < STREAMS; i++)
        outstanding += streams[i].outstanding;
    return outstanding == 0;
}

TEST(a_conditional_put_is_not_kept_waiting_by_streams_of_puts)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){
        .clients = 1 + STREAMS, .max_delay_ns = NS_PER_MS, .fence_ns = NS_PER_MS});
    struct stream streams[STREAMS];
    for (uint32_t i = 0; i < STREAMS; i++) {
        streams[i] = (struct stream){.cluster = cluster, .client = 1 + i};
        for (int j = 0; j < 16; j++)
            post_stream(&streams[i]);
    }
    sim_cluster_run_for(cluster, 10 * NS_PER_MS);
    uint64_t start_ns = cluster->clock.now_ns;
    assert_int_equal(sim_put_if(cluster, 0, "key", 3, "a", 1, 7, NULL), ROWAN_EVERSION);
    assert_int_equal(sim_del(cluster, 0, "key", 3), 0);
    assert_true(cluster->clock.now_ns - start_ns < 50 * NS_PER_MS);
    for (int i = 0; i < STREAMS; i++)
        streams[i].over = true;
    assert_true(sim_cluster_run(cluster, streams_are_out, streams, NS_PER_S));
    for (int i = 0; i < STREAMS; i++)
        assert_true(streams[i].good > 16);
    assert_int_equal(sim_put(cluster, 0, "key", 3, "a", 1, NULL), 0);
    stage_finish(cluster, 1);
}

/* --- limits --- */

TEST(a_full_server_refuses_writes_and_goes_on_reading)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){.pm_bytes = 80 << 20});
    uint8_t *value = calloc(1, MIB), *got = malloc(MIB);
    assert_true(value && got);
    uint64_t put = 0;
    int error = 0;
    for (uint32_t i = 0; i < 1000 && !error; i++) {
        memset(value, (int)i, MIB);
        error = sim_put(cluster, 0, &i, sizeof i, value, MIB, NULL);
        put += !error;
    }
    assert_int_equal(error, ROWAN_EFULL);
    assert_true(put > 5);
    for (uint32_t i = 0; i < put; i++) {
        size_t bytes;
        memset(value, (int)i, MIB);
        assert_int_equal(sim_get(cluster, 0, &i, sizeof i, got, MIB, &bytes, NULL), 0);
        assert_memory_equal(got, value, bytes);
    }
    free(got);
    free(value);
    stage_finish(cluster, put);
}

/* The backup stands still while each batch is on its way, so it says "full" as late as it can. */
static void fill_a_backup(uint64_t its_pm_bytes)
{
    enum { BATCH = 48 };
    struct sim_cluster *cluster =
        create(&(struct sim_cluster_options){.servers = 2,
                                             .shards = 1,
                                             .pm_bytes = 512 << 20,
                                             .last_pm_bytes = its_pm_bytes,
                                             .max_delay_ns = 20 * NS_PER_US});
    struct stage_answers answers = {0};
    uint8_t *value = calloc(1, MIB);
    char key[24];
    assert_non_null(value);
    for (uint32_t batch = 0; answers.failed == 0; batch++) {
        cluster->servers[1].process.stopped = true;
        for (uint32_t i = 0; i < BATCH; i++) {
            stage_key(cluster, 1, batch * BATCH + i, key);
            stage_post_put(cluster, 0, key, value, MIB - 1000, &answers);
        }
        sim_cluster_run_for(cluster, 100 * NS_PER_MS);
        cluster->servers[1].process.stopped = false;
        stage_settle(cluster, &answers);
    }
    assert_int_equal(answers.status, ROWAN_EFULL);
    free(value);
    stage_finish(cluster, answers.good);
}

TEST(a_backup_that_fills_up_takes_in_what_is_on_the_way)
{
    for (uint64_t segments = 25; segments < 38; segments += 3)
        fill_a_backup(segments * FABRIC_SEGMENT_BYTES);
}

/* --- clients that do not behave --- */

TEST(garbage_closes_its_own_connection_only)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){0});
    struct stage_stranger stranger;
    char key[24];
    stage_key(cluster, 1, 0, key);
    assert_int_equal(sim_put(cluster, 0, key, strlen(key), "value", 5, NULL), 0);
    stage_stranger_open(&stranger, cluster, 1, 0);
    uint64_t connected = sim_network_counts(cluster->network).connected;
    stage_stranger_send(&stranger, "this is no request", 18);
    for (int round = 0; round < 1000 && stranger.conn; round++)
        stage_stranger_step(&stranger);
    assert_null(stranger.conn);
    assert_got(cluster, 0, key, "value");
    assert_int_equal(sim_network_counts(cluster->network).connected, connected);
    stage_stranger_close(&stranger);
    stage_finish(cluster, 1);
}

TEST(a_client_that_asks_and_goes_harms_nobody)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){0});
    char key[24];
    stage_key(cluster, 1, 0, key);
    assert_int_equal(sim_put(cluster, 0, key, strlen(key), "value", 5, NULL), 0);
    for (int i = 0; i < 10; i++) { /* the seed decides whether the request arrives */
        struct stage_stranger stranger;
        stage_stranger_open(&stranger, cluster, 1, 0);
        stage_stranger_send_get(&stranger, key);
        stage_stranger_close(&stranger);
        sim_cluster_run_for(cluster, 10 * NS_PER_MS);
    }
    assert_got(cluster, 0, key, "value");
    stage_finish(cluster, 1);
}

TEST(a_client_that_does_not_read_harms_nobody)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){.max_messages = 16});
    struct stage_stranger stranger;
    char key[24];
    stage_key(cluster, 1, 0, key);
    assert_int_equal(sim_put(cluster, 0, key, strlen(key), "value", 5, NULL), 0);
    stage_stranger_open(&stranger, cluster, 1, 0);
    for (int i = 0; i < 16; i++) {
        stage_stranger_send_get(&stranger, key);
        stage_stranger_step(&stranger);
    }
    for (int i = 0; i < 16; i++)
        stage_stranger_step(&stranger);
    assert_int_equal(stranger.messages, 16);
    for (int i = 0; i < 16; i++)
        stage_stranger_send_get(&stranger, key);
    for (int i = 0; i < 100; i++)
        stage_stranger_step(&stranger);
    assert_int_equal(stranger.messages, 16);
    assert_got(cluster, 0, key, "value");
    assert_int_equal(sim_put(cluster, 0, key, strlen(key), "newer", 5, NULL), 0);
    stage_stranger_close(&stranger);
    stage_finish(cluster, 1);
}

int main(void)
{
    log_set_level(getenv("SIM_LOG") ? LOG_DEBUG : LOG_ERROR);
    return unit_run(NULL, NULL);
}
