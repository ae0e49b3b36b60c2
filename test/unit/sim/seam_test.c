/* Put, get and delete through the whole system in one thread: every role, no socket, no clock of
 * the host. Random operations are those of rowan-sim and of shapes_test.c. */
#include "stage.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "common/base/error.h"
#include "test/lib/unit.h"

enum { MIB = 1 << 20 };

/* --- sizes --- */

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
            sim_cluster_create(&(struct sim_cluster_options){.block_limit = limits[i]});
        for (size_t j = 0; j < 5; j++) {
            round_trip(cluster, 1, values[j]);
            round_trip(cluster, 1024, values[j]);
        }
        stage_finish(cluster, 10);
    }
}

/* --- races --- */

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
    struct sim_cluster *cluster = sim_cluster_create(&(struct sim_cluster_options){
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

/* The backup stands still while each batch is on its way, so it says "full" as late as it can. */
static void fill_a_backup(uint64_t its_pm_bytes)
{
    enum { BATCH = 48 };
    struct sim_cluster *cluster =
        sim_cluster_create(&(struct sim_cluster_options){.servers = 2,
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

STAGE_MAIN
