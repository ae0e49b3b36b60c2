/* Compares the digests of a shard's replicas, one shard after another. A replica that is busy or
 * behind is asked again when the clock has moved on, which it does not while anybody is busy, with an answer too;
 * equal versions with different digests end the comparison at once.
 */
#include "test/sim/digests.h"

#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/cluster/control.h"

enum { REQUEST_ROOM = 64 };

struct answer {
    bool asked, come, failed, busy;
    uint64_t digest, objects, version, damaged;
};

struct asker {
    struct sim_cluster *cluster;
    sim_digests_step *step; /* NULL: sim_cluster_step */
    void *step_context;
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    struct fabric_conn *conns[SIM_MAX_SERVERS];
    bool connected[SIM_MAX_SERVERS];
    struct answer answers[SIM_MAX_SERVERS]; /* of the present round */
    uint32_t round;                         /* the tag of its requests */
};

/* Also again, after a server's end: the answer that was on its way does not come. */
static void connect_to(struct asker *asker, uint32_t index)
{
    const struct sim_cluster *cluster = asker->cluster;
    asker->connected[index] = asker->answers[index].asked = false;
    int error = fabric_connect(asker->endpoint, cluster->servers[index].process.address,
                               cluster->options.workers, index, &asker->conns[index]);
    ASSERT(!error);
}

static void open_asker(struct asker *asker, struct sim_cluster *cluster)
{
    *asker = (struct asker){.cluster = cluster};
    int error = sim_fabric_open(cluster->network, NULL, &asker->fabric);
    ASSERT(!error);
    error = fabric_endpoint_open(asker->fabric, 0, &asker->endpoint);
    ASSERT(!error);
    fabric_endpoint_identity(asker->endpoint, &(struct fabric_identity){.kind = FABRIC_CLIENT});
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        connect_to(asker, i);
}

static void close_asker(struct asker *asker)
{
    fabric_endpoint_close(asker->endpoint);
    fabric_close(asker->fabric);
}

static void take_answer(struct asker *asker, const struct fabric_event *event)
{
    Rowan__ControlMessage *message;
    uint32_t tag;
    int error = control_decode(event->data, event->bytes, &tag, &message);
    ASSERT(!error);
    struct answer *answer = &asker->answers[(uintptr_t)event->conn->user];
    if (tag == asker->round) {
        answer->come = true;
        answer->failed = message->body_case != ROWAN__CONTROL_MESSAGE__BODY_CHECKSUM_IS;
        if (!answer->failed) {
            answer->busy = message->checksum_is->busy;
            answer->digest = message->checksum_is->checksum;
            answer->objects = message->checksum_is->objects;
            answer->version = message->checksum_is->version;
            answer->damaged = message->checksum_is->damaged;
        }
    }
    control_free(message);
}

static void poll_asker(struct asker *asker)
{
    struct fabric_event events[16];
    unsigned count = fabric_poll(asker->endpoint, asker->cluster->clock.now_ns, events, 16);
    for (unsigned i = 0; i < count; i++) {
        const struct fabric_event *event = &events[i];
        ASSERT(event->kind == FABRIC_CONNECTED || event->kind == FABRIC_MESSAGE ||
               event->kind == FABRIC_CLOSED);
        if (event->kind == FABRIC_MESSAGE) {
            take_answer(asker, event);
            fabric_message_release(event->conn, event->message);
        } else if (event->kind == FABRIC_CLOSED) {
            connect_to(asker, (uint32_t)event->context);
        } else {
            event->conn->user = (void *)(uintptr_t)event->context;
            asker->connected[event->context] = true;
        }
    }
    fabric_flush(asker->endpoint);
}

static void step_all(struct asker *asker)
{
    if (asker->step)
        asker->step(asker->step_context);
    else
        sim_cluster_step(asker->cluster);
    poll_asker(asker);
}

static void ask(struct asker *asker, uint32_t server, uint16_t shard)
{
    Rowan__GetChecksum body = ROWAN__GET_CHECKSUM__INIT;
    body.shard = shard;
    Rowan__ControlMessage message = ROWAN__CONTROL_MESSAGE__INIT;
    message.body_case = ROWAN__CONTROL_MESSAGE__BODY_GET_CHECKSUM;
    message.get_checksum = &body;
    uint8_t buffer[REQUEST_ROOM];
    size_t bytes = control_encode(asker->round, &message, buffer, sizeof buffer);
    ASSERT(bytes > 0);
    const struct fabric_iov iov = {.data = buffer, .bytes = (uint32_t)bytes};
    asker->answers[server - 1].asked =
        asker->connected[server - 1] && fabric_send(asker->conns[server - 1], &iov, 1) == 0;
}

static bool all_come(const struct asker *asker)
{
    for (uint32_t i = 0; i < SIM_MAX_SERVERS; i++) {
        if (asker->answers[i].asked && !asker->answers[i].come)
            return false;
    }
    return true;
}

/* One question to every replica of the shard. True if all have answered for the same version. */
static bool ask_round(struct asker *asker, const struct shard *shard, uint64_t end_ns)
{
    memset(asker->answers, 0, sizeof asker->answers);
    asker->round++;
    ask(asker, shard->primary, shard->id);
    for (uint32_t i = 0; i < shard->backup_count; i++)
        ask(asker, shard->backups[i], shard->id);
    fabric_flush(asker->endpoint);
    do {
        step_all(asker);
    } while (!all_come(asker) && asker->cluster->clock.now_ns <= end_ns);
    const struct answer *primary = &asker->answers[shard->primary - 1];
    uint32_t same = 0;
    for (uint32_t i = 0; i < SIM_MAX_SERVERS; i++) {
        const struct answer *answer = &asker->answers[i];
        same +=
            answer->come && !answer->failed && !answer->busy && answer->version == primary->version;
    }
    return same == shard->backup_count + 1;
}

static bool compare(const struct asker *asker, const struct shard *shard, struct sim_digests *out)
{
    const struct answer *primary = &asker->answers[shard->primary - 1];
    for (uint32_t i = 0; i < SIM_MAX_SERVERS; i++) {
        const struct answer *answer = &asker->answers[i];
        if (!answer->come)
            continue;
        out->replicas++;
        if (answer->digest == primary->digest && answer->objects == primary->objects &&
            answer->damaged == 0)
            continue;
        snprintf(
            out->why, sizeof out->why,
            "shard %u: server %u has %lu objects, %lu damaged, digest %lx; the primary %lu, %lx",
            shard->id, i + 1, answer->objects, answer->damaged, answer->digest, primary->objects,
            primary->digest);
        return false;
    }
    out->objects += primary->objects;
    return true;
}

static void tell_behind(const struct asker *asker, const struct shard *shard,
                        struct sim_digests *out)
{
    int used =
        snprintf(out->why, sizeof out->why, "shard %u: no common version in time:", shard->id);
    for (uint32_t i = 0; i < SIM_MAX_SERVERS; i++) {
        const struct answer *answer = &asker->answers[i];
        if (answer->asked && used > 0 && (size_t)used < sizeof out->why)
            used += snprintf(out->why + used, sizeof out->why - (size_t)used, " %u:%lx%s", i + 1,
                             answer->version,
                             !answer->come    ? " silent"
                             : answer->failed ? " failed"
                             : answer->busy   ? " busy"
                                              : "");
    }
}

static bool all_connected(const struct asker *asker)
{
    for (uint32_t i = 0; i < asker->cluster->options.servers; i++) {
        if (!asker->connected[i])
            return false;
    }
    return true;
}

/* There may be another configuration meanwhile. The shards are the same. */
static bool compare_shards(struct asker *asker, uint64_t limit_ns, struct sim_digests *out)
{
    const struct sim_cluster *cluster = asker->cluster;
    const uint32_t count = sim_cluster_config(cluster)->shard_count;
    for (uint32_t i = 0; i < count; i++) {
        struct shard shard = sim_cluster_config(cluster)->shards[i];
        bool level = false;
        const uint64_t end_ns = cluster->clock.now_ns + limit_ns;
        while (!level && cluster->clock.now_ns <= end_ns) {
            const uint64_t asked_ns = cluster->clock.now_ns;
            shard = sim_cluster_config(cluster)->shards[i];
            level = ask_round(asker, &shard, end_ns);
            while (!level && cluster->clock.now_ns == asked_ns)
                step_all(asker);
        }
        out->late = !level;
        if (!level)
            tell_behind(asker, &shard, out);
        if (!level || !compare(asker, &shard, out))
            return false;
    }
    return true;
}

bool sim_digests_agree(struct sim_cluster *cluster, uint64_t limit_ns, sim_digests_step *step,
                       void *context, struct sim_digests *out)
{
    struct asker asker;
    open_asker(&asker, cluster);
    asker.step = step;
    asker.step_context = context;
    *out = (struct sim_digests){0};
    uint64_t end_ns = cluster->clock.now_ns + limit_ns;
    while (!all_connected(&asker) && cluster->clock.now_ns <= end_ns) {
        step_all(&asker);
    }
    out->late = !all_connected(&asker);
    if (out->late) {
        snprintf(out->why, sizeof out->why, "a server does not take connections");
        close_asker(&asker);
        return false;
    }
    bool agree = compare_shards(&asker, limit_ns, out);
    close_asker(&asker);
    return agree;
}
