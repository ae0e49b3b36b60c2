#include "stage.h"

#include "test/lib/asserts.h"
#include "test/sim/digests.h"

#define SETTLE_NS (5 * NS_PER_S)

void stage_finish(struct sim_cluster *cluster, uint64_t objects)
{
    struct sim_digests digests;
    bool agree = sim_digests_agree(cluster, 2 * NS_PER_S, NULL, NULL, &digests);
    if (!agree)
        print_error("%s\n", digests.why);
    assert_true(agree);
    assert_int_equal(digests.objects, objects);
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        assert_int_equal(server_error(cluster->servers[i].server), 0);
    sim_cluster_destroy(cluster);
}

void stage_key(const struct sim_cluster *cluster, uint32_t server, uint32_t number, char *key)
{
    const struct cluster_config *config = sim_cluster_config(cluster);
    for (uint32_t i = 0;; i++) {
        uint32_t bytes = (uint32_t)snprintf(key, 24, "key-%u", i);
        if (cluster_shard_of_slot(config, slot_of_key(key, bytes))->primary == server &&
            number-- == 0)
            return;
    }
}

/* --- puts --- */

static void count_answer(const struct rowan_completion *completion)
{
    struct stage_answers *answers = completion->context;
    answers->outstanding--;
    answers->good += completion->status == 0;
    answers->failed += completion->status != 0;
    if (completion->status)
        answers->status = completion->status;
}

void stage_post_put(struct sim_cluster *cluster, uint32_t client, const char *key,
                    const void *value, size_t value_bytes, struct stage_answers *answers)
{
    const struct session_request request = {.type = MESSAGE_PUT,
                                            .key = key,
                                            .key_bytes = strlen(key),
                                            .value = value,
                                            .value_bytes = value_bytes,
                                            .callback = count_answer,
                                            .context = answers};
    assert_int_equal(session_post(cluster->clients[client].session, &request), 0);
    answers->outstanding++;
}

static bool none_outstanding(void *context)
{
    return ((const struct stage_answers *)context)->outstanding == 0;
}

void stage_settle(struct sim_cluster *cluster, const struct stage_answers *answers)
{
    assert_true(sim_cluster_run(cluster, none_outstanding, (void *)(uintptr_t)answers, SETTLE_NS));
}
