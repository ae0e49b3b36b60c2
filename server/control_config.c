/* The CM and the configuration: joins, asks, applies what comes, hands it to the other roles.
 *
 * The first configuration opens the store and the landing zone and creates the shards. Its order
 * matters: every digest role has its shards before it sees the first segment, and no peer is
 * admitted before that, so no entry can land for a shard that nobody here knows (design, H16).
 *
 * In this version a shard keeps its primary, backups and epoch for good; a configuration that says
 * otherwise ends the server with a sentence, as serving on would be wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "server/control_state.h"

/* --- talking to the CM --- */

static void send_to_cm(struct control *control, const Rowan__ControlMessage *message)
{
    uint8_t buffer[CONTROL_REPLY_BYTES];
    size_t bytes = control_encode(0, message, buffer, sizeof buffer);
    ASSERT(bytes > 0);
    struct fabric_iov iov = {.data = buffer, .bytes = (uint32_t)bytes};
    int error = fabric_send(control->cm_conn, &iov, 1, FABRIC_COPY, 0);
    if (error)
        log_event(LOG_WARN, "cm_send_failed", "error=%s", error_name(error));
}

/* Reports for duty; the connection is asked for later configurations at the same time. */
static void join(struct control *control)
{
    const struct fabric_caps *caps = fabric_caps(control->common->fabric);
    Rowan__Join body = ROWAN__JOIN__INIT;
    body.server = control->common->server;
    body.incarnation = control->common->incarnation;
    body.workers = control->options.workers;
    body.address = control->address;
    body.block_limit = caps->block_limit;
    body.fabric = (char *)(uintptr_t)caps->backend;
    body.durability = (char *)(uintptr_t)pm_durability_name(control->common->pm->durability);
    Rowan__ControlMessage message = ROWAN__CONTROL_MESSAGE__INIT;
    message.body_case = ROWAN__CONTROL_MESSAGE__BODY_JOIN;
    message.join = &body;
    send_to_cm(control, &message);
    control->join_again_ns = control->now_ns + CONTROL_JOIN_AGAIN_NS;
}

/* The report may have found no room, or the CM no memory. */
static void repeat_join(struct control *control, uint64_t *wake_ns)
{
    if (!control->cm_connected || control->joined)
        return;
    if (control->now_ns >= control->join_again_ns)
        join(control);
    if (control->join_again_ns < *wake_ns)
        *wake_ns = control->join_again_ns;
}

static void connect_to_cm(struct control *control, uint64_t *wake_ns)
{
    if (control->cm_conn)
        return;
    if (control->now_ns >= control->cm_retry_ns) {
        fabric_endpoint_identity(
            control->endpoint,
            &(struct fabric_identity){.cluster = control->config ? control->config->cluster : 0,
                                      .term = control->config ? control->config->term : 0,
                                      .incarnation = control->common->incarnation,
                                      .id = control->common->server,
                                      .kind = FABRIC_SERVER});
        int error = fabric_connect(control->endpoint, control->cm, 0, 0, &control->cm_conn);
        if (!error)
            return;
        control->cm_conn = NULL;
        log_event(LOG_WARN, "cm_connect_failed", "error=%s", error_name(error));
        control->cm_retry_ns = control->now_ns + CONTROL_CM_RETRY_NS;
    }
    if (control->cm_retry_ns < *wake_ns)
        *wake_ns = control->cm_retry_ns;
}

/* --- applying a configuration --- */

static bool holds_shard(const struct shard *row, uint32_t server)
{
    return row->primary == server || shard_has_backup(row, server);
}

static int hand_out_shard(struct control *control, const struct shard *row)
{
    struct server_common *common = control->common;
    struct shard_state *shard;
    int error = shard_state_create(common->pm, &common->format, row, common->server, &shard);
    if (error)
        return error;
    store_replica_set(common->store, row->id,
                      &(struct replica_row){.state = REPLICA_FULL, .first_epoch = row->epoch});
    struct inbox *inbox = shard->primary
                              ? worker_inbox(control->workers[row->worker])
                              : digest_inbox(control->digests[row->id % control->options.digests]);
    error = note_push(inbox, &(struct note){.kind = NOTE_SHARD, .shard = shard});
    if (error) {
        shard_state_destroy(shard);
        return error;
    }
    control->shards[row - control->config->shards] = shard;
    return 0;
}

static int hand_out_config(struct control *control)
{
    for (uint32_t i = 0; i < control->options.workers; i++) {
        struct note note = {.kind = NOTE_CONFIG, .config = cluster_hold(control->config)};
        int error = note_push(worker_inbox(control->workers[i]), &note);
        if (error) {
            cluster_release(control->config);
            return error;
        }
    }
    return 0;
}

static int hand_out_shards(struct control *control)
{
    control->shards = calloc(control->config->shard_count, sizeof(struct shard_state *));
    if (!control->shards)
        return ROWAN_ENOMEM;
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        const struct shard *row = &control->config->shards[i];
        if (!holds_shard(row, control->common->server))
            continue;
        int error = hand_out_shard(control, row);
        if (error)
            return error;
    }
    return 0;
}

static struct store_identity store_owner(const struct control *control,
                                         const struct cluster_config *config)
{
    return (struct store_identity){.cluster = config->cluster,
                                   .server = control->common->server,
                                   .incarnation = control->common->incarnation};
}

static int open_store(struct control *control, const struct cluster_config *config)
{
    struct server_common *common = control->common;
    const struct store_identity identity = store_owner(control, config);
    int error = store_open(common->pm, &identity, &common->store);
    if (error)
        return error;
    common->format =
        (struct entry_format){.seed = cluster_seed(config), .block_limit = config->block_limit};
    return 0;
}

/* Blocks that this server can encode, and its fabric can send. */
static int check_block_limit(const struct control *control, const struct cluster_config *config)
{
    uint32_t most = fabric_caps(control->common->fabric)->block_limit;
    if (most > ENTRY_MAX_BLOCK_LIMIT)
        most = ENTRY_MAX_BLOCK_LIMIT;
    return config->block_limit >= ENTRY_MIN_BLOCK_LIMIT && config->block_limit <= most
               ? 0
               : ROWAN_EUNSUPPORTED;
}

/* The first configuration takes effect when the store is formatted: until then no peer is admitted.
 * A newer one that comes meanwhile takes its place. */
static void prepare_first(struct control *control, struct cluster_config *config)
{
    if (control->coming) {
        cluster_release(control->coming);
        control->coming = config;
        return;
    }
    int error = check_block_limit(control, config);
    const struct store_identity identity = store_owner(control, config);
    if (!error)
        error = store_format_start(control->common->pm, &identity, &control->format);
    if (error) {
        cluster_release(config);
        server_fail(control->common, error, "the first configuration cannot be used");
        return;
    }
    control->coming = config;
}

static void apply_first(struct control *control, struct cluster_config *config)
{
    control->config = config;
    int error = open_store(control, config);
    if (!error)
        error = hand_out_config(control);
    if (!error)
        error = hand_out_shards(control);
    if (!error)
        error = control_zone_open(control);
    if (error)
        server_fail(control->common, error, "the first configuration could not be applied");
}

/* Does the new configuration leave every shard where it was? */
static bool keeps_shards(const struct cluster_config *old, const struct cluster_config *new)
{
    if (old->shard_count != new->shard_count)
        return false;
    for (uint32_t i = 0; i < old->shard_count; i++) {
        const struct shard *a = &old->shards[i], *b = &new->shards[i];
        if (a->id != b->id || a->first_slot != b->first_slot || a->last_slot != b->last_slot ||
            a->epoch != b->epoch || a->primary != b->primary || a->worker != b->worker ||
            a->backup_count != b->backup_count ||
            memcmp(a->backups, b->backups, a->backup_count * sizeof a->backups[0]) != 0)
            return false;
    }
    return true;
}

static void apply_next(struct control *control, struct cluster_config *config)
{
    if (!keeps_shards(control->config, config)) {
        cluster_release(config);
        server_fail(control->common, ROWAN_EUNSUPPORTED,
                    "the configuration moved shards, which this version cannot do");
        return;
    }
    cluster_release(control->config);
    control->config = config;
    int error = hand_out_config(control);
    if (error)
        server_fail(control->common, error, "the configuration could not be handed on");
}

static void apply(struct control *control, struct cluster_config *config)
{
    const struct member *self = cluster_member(config, control->common->server);
    bool valid = config->has_secret && self && self->incarnation == control->common->incarnation &&
                 self->workers == control->options.workers;
    const struct cluster_config *known = control->config ? control->config : control->coming;
    if (!valid || (known && (config->term <= known->term || config->cluster != known->cluster))) {
        log_event(LOG_DEBUG, "configuration_ignored", "term=%lu", config->term);
        cluster_release(config);
        return;
    }
    log_event(LOG_INFO, "configuration", "term=%lu members=%u shards=%u", config->term,
              config->member_count, config->shard_count);
    if (control->config)
        apply_next(control, config);
    else
        prepare_first(control, config);
}

bool control_config_poll(struct control *control, uint64_t *wake_ns)
{
    connect_to_cm(control, wake_ns);
    repeat_join(control, wake_ns);
    if (!control->coming)
        return false;
    int done = store_format_poll(&control->format);
    if (done == 0)
        return false;
    struct cluster_config *config = control->coming;
    control->coming = NULL;
    if (done == 1) {
        apply_first(control, config);
        return true;
    }
    cluster_release(config);
    server_fail(control->common, done, "a sync of the PM file failed");
    return false;
}

/* --- events of the connection to the CM --- */

static void cm_message(struct control *control, const struct fabric_event *event)
{
    Rowan__ControlMessage *message;
    uint32_t tag;
    int error = control_decode(event->data, event->bytes, &tag, &message);
    fabric_message_release(event->conn, event->message);
    if (error) {
        log_event(LOG_WARN, "cm_garbage", "error=%s", error_name(error));
        return;
    }
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FAILURE) {
        error = message->failure->error < 0 ? message->failure->error : ROWAN_EREFUSED;
        server_fail(control->common, error, message->failure->detail);
    } else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_CONFIGURATION_IS &&
               message->configuration_is->configuration.len > 0) {
        const ProtobufCBinaryData *bytes = &message->configuration_is->configuration;
        struct cluster_config *config;
        control->joined = true;
        error = cluster_decode(bytes->data, bytes->len, &config);
        if (error)
            log_event(LOG_WARN, "configuration_damaged", "error=%s", error_name(error));
        else
            apply(control, config);
    }
    control_free(message);
}

void control_config_event(struct control *control, const struct fabric_event *event)
{
    if (event->kind == FABRIC_CONNECTED) {
        control->cm_connected = true;
        control->joined = false;
        log_event(LOG_INFO, "cm_connected", "address=%s", control->cm);
        join(control);
    } else if (event->kind == FABRIC_CLOSED) {
        if (control->cm_connected || event->error != ROWAN_EUNREACHABLE)
            log_event(LOG_WARN, "cm_lost", "error=%s", error_name(event->error));
        control->cm_connected = false;
        control->cm_conn = NULL;
        control->cm_retry_ns = control->now_ns + CONTROL_CM_RETRY_NS;
    } else if (event->kind == FABRIC_MESSAGE) {
        cm_message(control, event);
    }
}
