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

/* --- the stranger --- */

void stage_stranger_open(struct stage_stranger *stranger, struct sim_cluster *cluster,
                         uint32_t server, uint32_t endpoint)
{
    *stranger = (struct stage_stranger){.cluster = cluster};
    assert_int_equal(sim_fabric_open(cluster->network, NULL, &stranger->fabric), 0);
    assert_int_equal(fabric_endpoint_open(stranger->fabric, 0, &stranger->endpoint), 0);
    fabric_endpoint_identity(stranger->endpoint,
                             &(struct fabric_identity){.kind = FABRIC_CLIENT, .id = 999});
    assert_int_equal(fabric_connect(stranger->endpoint,
                                    cluster->servers[server - 1].process.address, endpoint, 0,
                                    &stranger->conn),
                     0);
    for (int round = 0; round < 1000 && !stranger->connected; round++)
        stage_stranger_step(stranger);
    assert_true(stranger->connected);
}

void stage_stranger_close(struct stage_stranger *stranger)
{
    fabric_endpoint_close(stranger->endpoint);
    fabric_close(stranger->fabric);
}

void stage_stranger_send(struct stage_stranger *stranger, const void *data, uint32_t bytes)
{
    const struct fabric_iov iov = {.data = data, .bytes = bytes};
    assert_int_equal(fabric_send(stranger->conn, &iov, 1), 0);
    fabric_flush(stranger->endpoint);
}

void stage_stranger_send_get(struct stage_stranger *stranger, const char *key)
{
    uint32_t key_bytes = (uint32_t)strlen(key);
    const struct shard *shard =
        cluster_shard_of_slot(sim_cluster_config(stranger->cluster), slot_of_key(key, key_bytes));
    struct message_request header = {.type = MESSAGE_GET,
                                     .layout = MESSAGE_LAYOUT,
                                     .shard = shard->id,
                                     .epoch = shard->epoch,
                                     .client_id = 999,
                                     .operation = 1,
                                     .lowest_unanswered = 1,
                                     .key_bytes = (uint16_t)key_bytes};
    uint8_t bytes[sizeof header + 24];
    memcpy(bytes, &header, sizeof header);
    memcpy(bytes + sizeof header, key, key_bytes);
    stage_stranger_send(stranger, bytes, (uint32_t)sizeof header + key_bytes);
}

void stage_stranger_step(struct stage_stranger *stranger)
{
    struct fabric_event events[16];
    sim_cluster_step(stranger->cluster);
    unsigned count = fabric_poll(stranger->endpoint, stranger->cluster->clock.now_ns, events, 16);
    for (unsigned i = 0; i < count; i++) {
        stranger->connected |= events[i].kind == FABRIC_CONNECTED;
        stranger->messages += events[i].kind == FABRIC_MESSAGE;
        if (events[i].kind == FABRIC_CLOSED)
            stranger->conn = NULL;
    }
    fabric_flush(stranger->endpoint);
}
