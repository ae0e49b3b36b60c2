/* fair_test.c - what one stopped backup holds up leaves free space for writes that it does not back (H14).
 */
#define TEST_FIXTURE open_cluster, NULL

#include "stage.h"
#include "test/lib/unit.h"

enum { PRIMARY = 1, STOPPED = 3, HEALTHY = 2 };
enum { FLOODERS = 5, FLOOD = 1024, WELL = FLOODERS /* the client that writes elsewhere */ };
enum { LARGE_BYTES = (1 << 20) - 1000, DRYING_BYTES = 60000 };

static uint8_t value[LARGE_BYTES];
static struct sim_cluster *cluster;
static uint32_t keys_used; /* of shards that the stopped server backs */

static int open_cluster(void **state)
{
    (void)state;
    keys_used = 0;
    cluster = sim_cluster_create(&(struct sim_cluster_options){.seed = 1,
                                                               .one_sided = true,
                                                               .replicas = 2,
                                                               .clients = FLOODERS + 1,
                                                               .depth = FLOOD,
                                                               .landing_segments = 2,
                                                               .timeout_ns = 60 * NS_PER_S});
    return 0;
}

/* The number-th key that PRIMARY leads and `backup` backs. */
static void key_on(uint32_t backup, uint32_t number, char key[24])
{
    const struct cluster_config *config = sim_cluster_config(cluster);

    for (uint32_t i = 0;; i++) {
        uint32_t bytes = (uint32_t)snprintf(key, 24, "key-%u", i);
        const struct shard *shard = cluster_shard_of_slot(config, slot_of_key(key, bytes));

        assert_int_equal(shard->backup_count, 1);
        if (shard->primary == PRIMARY && shard->backups[0] == backup && number-- == 0)
            return;
    }
}

static void flood(uint32_t client, uint32_t puts, uint32_t bytes, struct stage_answers *answers)
{
    char key[24];

    for (uint32_t i = 0; i < puts; i++) {
        key_on(STOPPED, keys_used++ % 500, key);
        stage_post_put(cluster, client, key, value, bytes, answers);
    }
}

/* The stopped server's landing zone takes what is sent until it is dry. */
static void stop_and_dry(struct stage_answers *answers)
{
    cluster->servers[STOPPED - 1].process.stopped = true;
    while (answers->outstanding == 0) {
        assert_true(answers->good < 1000);
        flood(0, 1, DRYING_BYTES, answers);
        sim_cluster_run_for(cluster, 20 * NS_PER_MS);
    }
}

static void writes_elsewhere_go_on(uint32_t bytes)
{
    struct stage_answers answers = {0};
    char key[24];

    for (uint32_t i = 0; i < 20; i++) {
        key_on(HEALTHY, i, key);
        stage_post_put(cluster, WELL, key, value, bytes, &answers);
        sim_cluster_run_for(cluster, 10 * NS_PER_MS);
        assert_int_equal(answers.good, i + 1);
    }
}

static void finish(const struct stage_answers *answers)
{
    assert_true(answers->outstanding > 0); /* it did hold something up */
    assert_int_equal(answers->failed, 0);
    cluster->servers[STOPPED - 1].process.stopped = false;
    stage_settle(cluster, answers);
    assert_int_equal(answers->failed, 0);
    stage_finish(cluster, (keys_used < 500 ? keys_used : 500) + 20);
}

TEST(large_writes_to_a_stopped_backup_leave_space_for_others)
{
    struct stage_answers answers = {0};

    stop_and_dry(&answers);
    flood(1, 12, LARGE_BYTES, &answers);
    sim_cluster_run_for(cluster, 100 * NS_PER_MS);
    writes_elsewhere_go_on(LARGE_BYTES);
    finish(&answers);
}

TEST(many_writes_to_a_stopped_backup_leave_space_for_others)
{
    struct stage_answers answers = {0};

    stop_and_dry(&answers);
    for (uint32_t client = 0; client < FLOODERS; client++)
        flood(client, FLOOD - 1, 10, &answers);
    sim_cluster_run_for(cluster, 100 * NS_PER_MS);
    writes_elsewhere_go_on(10);
    finish(&answers);
}

STAGE_MAIN
