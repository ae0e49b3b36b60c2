/* Drives a server over the puppet fabric. */
#include "stage.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/cluster/control.h"
#include "server/shard/query.h"
#include "test/lib/asserts.h"

static struct cluster_config *make_config(uint32_t block_limit)
{
    struct cluster_config *config = cluster_create(2, 4);

    assert_non_null(config);
    config->term = 1;
    config->cluster = 77;
    config->block_limit = block_limit;
    config->replicas = 2;
    config->has_secret = true;
    for (uint32_t i = 0; i < 2; i++) {
        config->members[i] = (struct member){.server = i + 1, .incarnation = 100 + i, .workers = 1};
        snprintf(config->members[i].address, sizeof config->members[i].address, "puppet:%u", i + 1);
    }
    for (uint32_t i = 0; i < 4; i++)
        config->shards[i] = (struct shard){.id = (uint16_t)i,
                                           .first_slot = (uint16_t)(i * 4096),
                                           .last_slot = (uint16_t)(i * 4096 + 4095),
                                           .epoch = 1,
                                           .primary = i < 3 ? 1 : 2,
                                           .backup_count = 1,
                                           .backups = {i < 3 ? 2 : 1}};
    assert_int_equal(cluster_finish(config), 0);
    return config;
}

struct puppet_conn *stage_cm(const struct stage *stage)
{
    return puppet_find(stage->fabric, STAGE_CONTROL, "puppet:cm");
}

struct digest *stage_digest(const struct stage *stage)
{
    return server_poller(stage->server, 2).role;
}

uint32_t stage_join_tag(const struct stage *stage)
{
    const struct puppet_conn *cm = stage_cm(stage);

    for (uint32_t i = stage->fabric->sent_count; i > 0; i--) {
        const struct puppet_sent *sent = &stage->fabric->sent[i - 1];
        Rowan__ControlMessage *message;
        uint32_t tag;

        if (sent->conn != cm)
            continue;
        /* Twice: a test may let one call fail (test/lib/fail_call.h). */
        if (control_decode(sent->data, sent->bytes, &tag, &message))
            assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        const bool joins = message->body_case == ROWAN__CONTROL_MESSAGE__BODY_JOIN;

        control_free(message);
        if (joins)
            return tag;
    }
    fail_msg("the server has not joined");
    return 0;
}

void stage_tell(struct puppet_conn *conn, uint32_t tag, const Rowan__ControlMessage *message)
{
    static uint8_t bytes[CONTROL_MAX_BYTES];
    const size_t count = control_encode(tag, message, bytes, sizeof bytes);

    assert_true(count > 0);
    puppet_message(conn, bytes, (uint32_t)count, NULL, 0, NULL, 0);
}

void stage_cm_tells(struct stage *stage, uint32_t tag, const Rowan__ControlMessage *message)
{
    stage_tell(stage_cm(stage), tag, message);
    stage_run(stage);
}

void stage_commit(struct stage *stage, uint64_t term)
{
    Rowan__Committed body = ROWAN__COMMITTED__INIT;

    body.term = term;
    stage_cm_tells(stage, 0, &CONTROL_MESSAGE(COMMITTED, committed, &body));
}

void stage_grant(struct stage *stage)
{
    const struct puppet_conn *cm = stage_cm(stage);
    Rowan__LeaseIs body = ROWAN__LEASE_IS__INIT;
    uint32_t renewal = 0;

    for (uint32_t i = 0; i < stage->fabric->sent_count; i++) {
        const struct puppet_sent *sent = &stage->fabric->sent[i];
        Rowan__ControlMessage *message;
        uint32_t tag;

        if (sent->conn != cm || control_decode(sent->data, sent->bytes, &tag, &message))
            continue;
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_RENEW)
            renewal = tag;
        control_free(message);
    }
    assert_true(renewal > 0);
    body.manager = stage->config->manager;
    body.manager_ns = 1;
    body.granted = true;
    stage_cm_tells(stage, renewal, &CONTROL_MESSAGE(LEASE_IS, lease_is, &body));
}

void stage_configure(struct stage *stage, const struct cluster_config *config)
{
    stage_configure_for(stage, config, stage_join_tag(stage));
}

void stage_adopt(struct stage *stage)
{
    stage_configure(stage, stage->config);
    stage_run(stage);
}

void stage_configure_for(struct stage *stage, const struct cluster_config *config, uint32_t tag)
{
    static uint8_t packed[CONTROL_MAX_BYTES];
    Rowan__ConfigurationIs is = ROWAN__CONFIGURATION_IS__INIT;

    for (uint32_t i = 0; i < config->member_count; i++)
        stage->fabric->incarnations[config->members[i].server] = config->members[i].incarnation;
    is.configuration.data = packed;
    is.configuration.len = cluster_encode(config, true, packed, sizeof packed);
    assert_true(is.configuration.len > 0);
    stage_tell(stage_cm(stage), tag, &CONTROL_MESSAGE(CONFIGURATION_IS, configuration_is, &is));
}

void stage_poll(struct stage *stage)
{
    uint64_t wake_ns = WAKE_NEVER;

    for (uint32_t i = 0; i < server_roles(stage->server); i++) {
        struct poller poller = server_poller(stage->server, i);

        poller.poll(poller.role, stage->now_ns, &wake_ns);
    }
}

void stage_run(struct stage *stage)
{
    bool busy = true;

    while (busy) {
        busy = false;
        stage->wake_ns = WAKE_NEVER;
        for (uint32_t i = 0; i < server_roles(stage->server); i++) {
            struct poller poller = server_poller(stage->server, i);

            busy |= poller.poll(poller.role, stage->now_ns, &stage->wake_ns) == POLL_BUSY;
        }
    }
}

void stage_pass(struct stage *stage, uint64_t ns)
{
    uint64_t end_ns = stage->now_ns + ns;

    stage_run(stage);
    while (stage->now_ns < end_ns) {
        assert_true(stage->wake_ns > stage->now_ns);
        stage->now_ns = stage->wake_ns < end_ns ? stage->wake_ns : end_ns;
        stage_run(stage);
    }
}

struct entry_format stage_format(const struct stage *stage)
{
    return (struct entry_format){.seed = cluster_seed(stage->config),
                                 .block_limit = stage->config->block_limit};
}

const char *stage_key_of(uint32_t shard)
{
    static char key[32];

    for (unsigned i = 0;; i++) {
        int bytes = snprintf(key, sizeof key, "key-%u", i);

        if (slot_of_key(key, (uint32_t)bytes) / 4096 == shard)
            return key;
    }
}

static uint64_t read_clock(struct clock *clock)
{
    const struct stage *stage =
        (const struct stage *)((const char *)clock - offsetof(struct stage, clock));

    return stage->now_ns + stage->later_ns;
}

int stage_try(struct stage *stage, uint32_t block_limit)
{
    struct server_options options = {.server = 1,
                                     .incarnation = 100 * (uint64_t)++stage->starts,
                                     .clock = &stage->clock,
                                     .cm = stage->managers,
                                     .address = "puppet:1",
                                     .workers = 1,
                                     .digests = 1,
                                     .reactors = 1,
                                     .landing_segments = 2,
                                     .stop_timeout_ns = 10 * NS_PER_S};

    options.boot_id[0] = stage->boot;
    stage->fabric = puppet_create(block_limit);
    stage->confirmed = 0;
    stage->server = NULL;
    int error = server_create(&options, &stage->fabric->head, &stage->heap->pm, &stage->server);
    if (error)
        return error;
    stage_run(stage);
    puppet_connected(stage_cm(stage), false);
    stage_run(stage);
    return 0;
}

void stage_start(struct stage *stage, uint32_t block_limit)
{
    stage_start_among(stage, block_limit, "puppet:cm");
}

void stage_start_among(struct stage *stage, uint32_t block_limit, const char *managers)
{
    *stage =
        (struct stage){.now_ns = NS_PER_S, .clock = {.now_ns = read_clock}, .managers = managers};
    stage->heap = heap_pm_create(128 << 20);
    stage->pm_ops = *stage->heap->pm.ops;
    stage->heap->pm.ops = &stage->pm_ops;
    assert_int_equal(stage_try(stage, block_limit), 0);
    stage->config = make_config(block_limit);
}

void stage_end(struct stage *stage)
{
    struct cluster_config *config = cluster_copy(stage->config);

    assert_non_null(config);
    server_destroy(stage->server);
    puppet_destroy(stage->fabric);
    config->term++;
    config->members[0].incarnation = 100 * (uint64_t)(stage->starts + 1);
    for (uint32_t i = 0; i < config->shard_count; i++)
        config->shards[i].epoch++;
    cluster_release(stage->config);
    stage->config = config;
}

void stage_restart(struct stage *stage)
{
    stage_end(stage);
    assert_int_equal(stage_try(stage, stage->config->block_limit), 0);
}

static void connect_peer(struct stage *stage)
{
    stage->peer = puppet_find(stage->fabric, STAGE_WORKER, "puppet:2");
    if (stage->peer)
        puppet_connected(stage->peer, true);
    stage_run(stage);
}

void stage_begin(struct stage *stage)
{
    stage_adopt(stage);
    stage_adopt(stage); /* it reports again when it serves */
    connect_peer(stage);
}

void stage_return(struct stage *stage)
{
    stage_restart(stage);
    stage_begin(stage);
}

void stage_open(struct stage *stage, uint32_t block_limit)
{
    stage_start(stage, block_limit);
    stage_begin(stage);
    stage->fabric->taken = stage->fabric->sent_count;
}

void stage_close(struct stage *stage)
{
    server_destroy(stage->server);
    heap_pm_destroy(stage->heap);
    puppet_destroy(stage->fabric);
    cluster_release(stage->config);
}

void stage_reopen(struct stage *stage)
{
    const uint32_t block_limit = stage->config->block_limit;
    stage_close(stage);
    memset(stage, 0, sizeof *stage);
    stage_open(stage, block_limit);
}

struct stage *stage_new(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);

    assert_non_null(stage);
    log_set_level(LOG_ERROR);
    *state = stage;
    return stage;
}

int stage_setup(void **state)
{
    stage_open(stage_new(state), STAGE_BLOCK_LIMIT);
    return 0;
}

int stage_teardown(void **state)
{
    stage_close(*state);
    free(*state);
    return 0;
}

static int fence_never_done(struct pm *pm, struct pm_ticket ticket)
{
    (void)pm;
    (void)ticket;
    return 0;
}

static int fence_done(struct pm *pm, struct pm_ticket ticket)
{
    (void)pm;
    (void)ticket;
    return 1;
}

void stage_hold_fences(struct stage *stage, bool hold)
{
    stage->pm_ops.fence_done = hold ? fence_never_done : fence_done;
}

static int fence_failed(struct pm *pm, struct pm_ticket ticket)
{
    (void)pm;
    (void)ticket;
    return ROWAN_EIO;
}

void stage_fail_fences(struct stage *stage)
{
    stage->pm_ops.fence_done = fence_failed;
}

static struct puppet_conn *connect_to(struct stage *stage, uint32_t endpoint, uint32_t id)
{
    const struct fabric_identity peer = {.cluster = 77, .id = id, .kind = FABRIC_CLIENT};
    struct puppet_conn *conn = puppet_accept(stage->fabric, endpoint, &peer);

    assert_non_null(conn);
    stage_run(stage);
    return conn;
}

struct puppet_conn *stage_client(struct stage *stage)
{
    return connect_to(stage, STAGE_WORKER, 1000 + ++stage->clients);
}

struct puppet_conn *stage_client_again(struct stage *stage, uint32_t id)
{
    return connect_to(stage, STAGE_WORKER, id);
}

struct puppet_conn *stage_tool(struct stage *stage)
{
    return connect_to(stage, STAGE_CONTROL, 0);
}

void stage_send(struct stage *stage, struct puppet_conn *client,
                const struct message_request *request, const void *key, const void *value)
{
    struct message_request sent = *request;
    const struct shard *shard =
        cluster_shard_of_slot(stage->config, slot_of_key(key, request->key_bytes));

    sent.layout = MESSAGE_LAYOUT;
    sent.shard = shard->id;
    sent.epoch = shard->epoch;
    sent.client_id = client->id;
    puppet_message(client, &sent, sizeof sent, key, sent.key_bytes, value, sent.value_bytes);
}

uint32_t stage_ask(struct stage *stage, struct puppet_conn *client, enum message_type type,
                   const void *key, uint32_t key_bytes, const void *value, uint32_t value_bytes,
                   uint64_t expected)
{
    const struct message_request request = {.type = (uint8_t)type,
                                            .operation = ++stage->operations,
                                            .key_bytes = (uint16_t)key_bytes,
                                            .value_bytes = value_bytes,
                                            .expected = expected};

    stage_send(stage, client, &request, key, value);
    return request.operation;
}

uint32_t stage_put(struct stage *stage, struct puppet_conn *client, const char *key)
{
    return stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)strlen(key), "value", 5, 0);
}

uint32_t stage_put_if(struct stage *stage, struct puppet_conn *client, const char *key,
                      uint64_t expected)
{
    return stage_ask(stage, client, MESSAGE_PUT_IF, key, (uint32_t)strlen(key), "value", 5,
                     expected);
}

uint32_t stage_get(struct stage *stage, struct puppet_conn *client, const char *key)
{
    return stage_ask(stage, client, MESSAGE_GET, key, (uint32_t)strlen(key), NULL, 0, 0);
}

struct message_reply stage_reply(struct stage *stage)
{
    const struct puppet_sent *sent = puppet_take(stage->fabric);
    struct message_reply reply;
    const uint8_t *value;

    assert_non_null(sent);
    assert_true(message_parse_reply(sent->data, sent->bytes, &reply, &value));
    return reply;
}

bool stage_is_quiet(struct stage *stage)
{
    return stage->fabric->taken == stage->fabric->sent_count;
}

/* The message of entries at that place of what the server sent, or NULL. */
static Rowan__ControlMessage *entries_at(const struct stage *stage, uint32_t place, uint32_t *tag)
{
    const struct puppet_sent *sent = &stage->fabric->sent[place];
    Rowan__ControlMessage *message;

    if (sent->conn != stage->peer || control_decode(sent->data, sent->bytes, tag, &message))
        return NULL;
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_STORE_ENTRIES)
        return message;
    control_free(message);
    return NULL;
}

const Rowan__ControlMessage *stage_message(struct stage *stage, const struct puppet_conn *conn,
                                           uint32_t *tag)
{
    static Rowan__ControlMessage *message;
    const struct puppet_sent *sent;
    uint32_t unused;

    control_free(message);
    message = NULL;
    while ((sent = puppet_take(stage->fabric))) {
        if (sent->conn == conn &&
            !control_decode(sent->data, sent->bytes, tag ? tag : &unused, &message))
            return message;
    }
    return NULL;
}

static void answer_suffix(struct stage *stage, uint32_t tag, const Rowan__GetSuffix *asked,
                          uint64_t commit)
{
    Rowan__SuffixIs body = ROWAN__SUFFIX_IS__INIT;

    body.shard = asked->shard;
    body.epoch = asked->epoch;
    body.commit = body.prefix = commit ? commit : asked->commit;
    stage_tell(stage->peer, tag, &CONTROL_MESSAGE(SUFFIX_IS, suffix_is, &body));
}

uint32_t stage_answer_suffixes(struct stage *stage, uint64_t commit)
{
    uint32_t suffixes = 0, tag;

    stage_run(stage);
    for (uint32_t i = 0; i < stage->fabric->sent_count; i++) {
        const struct puppet_sent *sent = &stage->fabric->sent[i];
        Rowan__ControlMessage *message;

        if (sent->conn != stage->peer || control_decode(sent->data, sent->bytes, &tag, &message))
            continue;
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_SUFFIX) {
            answer_suffix(stage, tag, message->get_suffix, commit);
            suffixes += message->get_suffix->after != QUERY_SUFFIX_NONE;
        }
        control_free(message);
        stage_run(stage);
    }
    return suffixes;
}

bool stage_confirm(struct stage *stage, int error)
{
    bool any = false;

    while (stage->confirmed < stage->fabric->sent_count) {
        uint32_t tag;
        Rowan__ControlMessage *entries = entries_at(stage, stage->confirmed++, &tag);
        Rowan__EntriesStored stored = ROWAN__ENTRIES_STORED__INIT;
        Rowan__Failure failure = ROWAN__FAILURE__INIT;

        if (!entries)
            continue;
        stored.shard = entries->store_entries->shard;
        stored.epoch = entries->store_entries->epoch;
        failure.error = error;
        stage_tell(stage->peer, tag,
                   error ? &CONTROL_MESSAGE(FAILURE, failure, &failure)
                         : &CONTROL_MESSAGE(ENTRIES_STORED, entries_stored, &stored));
        control_free(entries);
        any = true;
    }
    return any;
}

uint32_t stage_brought(const struct stage *stage, uint32_t from, const uint8_t **bytes)
{
    static _Alignas(64) uint8_t blocks[8 << 20];
    uint32_t count = 0;

    for (; from < stage->fabric->sent_count; from++) {
        uint32_t tag;
        Rowan__ControlMessage *message = entries_at(stage, from, &tag);

        for (size_t i = 0; message && i < message->store_entries->n_blocks; i++) {
            const ProtobufCBinaryData *block = &message->store_entries->blocks[i];

            assert_true(count + block->len <= sizeof blocks);
            memcpy(blocks + count, block->data, block->len);
            count += (uint32_t)block->len;
        }
        control_free(message);
    }
    *bytes = blocks;
    return count;
}

void stage_land_all(struct stage *stage)
{
    do
        stage_run(stage);
    while (puppet_land(stage->peer) || stage_confirm(stage, 0));
}

uint32_t stage_put_lands(struct stage *stage, struct puppet_conn *client, const char *key)
{
    const uint32_t operation = stage_put(stage, client, key);

    stage_land_all(stage);
    return operation;
}

void stage_land_done(struct stage *stage)
{
    stage_land_all(stage);
    assert_int_equal(stage_reply(stage).status, 0);
}

void stage_reconnect_peer(struct stage *stage)
{
    puppet_close(stage->peer, ROWAN_ECLOSED);
    stage_run(stage);
    stage->now_ns += NS_PER_S;
    stage_run(stage);
    stage->peer = puppet_find(stage->fabric, STAGE_WORKER, "puppet:2");
    assert_non_null(stage->peer);
    puppet_connected(stage->peer, true);
}
