/* Drives a session against the fake fabric. CM requests are answered here; those to servers wait
 * for the test in fake->sent. */
#include "stage.h"
#include "common/base/version.h"
#include "common/cluster/control.h"
#include "test/lib/asserts.h"

struct cluster_config *stage_config(uint64_t term)
{
    struct cluster_config *config = cluster_create(2, 4);

    assert_non_null(config);
    config->term = term;
    config->cluster = 77;
    config->block_limit = 65536;
    config->replicas = 2;
    config->next_client_id = 1000;
    for (uint32_t i = 0; i < 2; i++) {
        config->members[i] = (struct member){.server = i + 1, .incarnation = 100 + i, .workers = 2};
        snprintf(config->members[i].address, sizeof config->members[i].address, "fake:%u", i + 1);
    }
    for (uint32_t i = 0; i < 4; i++)
        config->shards[i] = (struct shard){.id = (uint16_t)(10 + i),
                                           .first_slot = (uint16_t)(i * 4096),
                                           .last_slot = (uint16_t)(i * 4096 + 4095),
                                           .epoch = (uint32_t)term + i,
                                           .primary = 1 + i / 2,
                                           .worker = i % 2,
                                           .backup_count = 1,
                                           .backups = {2 - i / 2}};
    assert_int_equal(cluster_finish(config), 0);
    return config;
}

static void reply_control(struct fake_conn *conn, uint32_t tag, Rowan__ControlMessage *message)
{
    static uint8_t bytes[CONTROL_MAX_BYTES];
    size_t count = control_encode(tag, message, bytes, sizeof bytes);

    assert_true(count > 0);
    fake_reply(conn, bytes, (uint32_t)count, NULL, 0);
}

static bool leads(const struct stage *stage, const struct fake_conn *conn)
{
    return stage->leader && strcmp(conn->address, stage->leader) == 0;
}

static void send_config(struct stage *stage, struct fake_conn *conn, uint32_t tag,
                        uint64_t known_term)
{
    static uint8_t bytes[CONTROL_MAX_BYTES];
    Rowan__ControlMessage message = ROWAN__CONTROL_MESSAGE__INIT;
    Rowan__ConfigurationIs is = ROWAN__CONFIGURATION_IS__INIT;

    if (stage->config && stage->config->term > known_term) {
        is.configuration.data = bytes;
        is.configuration.len = cluster_encode(stage->config, false, bytes, sizeof bytes - 2);
        assert_true(is.configuration.len > 0);
        if (stage->later_format) { /* field 9; the last one counts */
            memcpy(bytes + is.configuration.len,
                   (const uint8_t[]){0x48, VERSION_CONFIGURATION_HIGHEST + 1}, 2);
            is.configuration.len += 2;
        }
    }
    message.body_case = ROWAN__CONTROL_MESSAGE__BODY_CONFIGURATION_IS;
    message.configuration_is = &is;
    is.not_leading = !leads(stage, conn);
    reply_control(conn, tag, &message);
}

void stage_refuse(struct fake_conn *conn, uint32_t tag, int error)
{
    Rowan__Failure failure = ROWAN__FAILURE__INIT;

    failure.error = error;
    reply_control(conn, tag, &CONTROL_MESSAGE(FAILURE, failure, &failure));
}

static void answer_cm(struct stage *stage, const struct fake_sent *sent)
{
    Rowan__ControlMessage *request;
    Rowan__ControlMessage message = ROWAN__CONTROL_MESSAGE__INIT;
    Rowan__ClientIdIs id = ROWAN__CLIENT_ID_IS__INIT;
    uint32_t tag;

    assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &request), 0);
    if (request->body_case == ROWAN__CONTROL_MESSAGE__BODY_NEW_CLIENT_ID) {
        stage->asked_id++;
        const int error = leads(stage, sent->conn) ? stage->id_error : ROWAN_ENOTLEADING;

        if (error) {
            stage_refuse(sent->conn, tag, error);
        } else {
            message.body_case = ROWAN__CONTROL_MESSAGE__BODY_CLIENT_ID_IS;
            message.client_id_is = &id;
            id.client_id = stage->reads && request->new_client_id->unless_reader ? 0 : ++stage->ids;
            reply_control(sent->conn, tag, &message);
        }
    } else {
        assert_int_equal(request->body_case, ROWAN__CONTROL_MESSAGE__BODY_GET_CONFIGURATION);
        stage->asked_config++;
        if (!stage->cm_silent)
            send_config(stage, sent->conn, tag, request->get_configuration->known_term);
    }
    control_free(request);
}

/* True if the next message is for the CM, which answered it. */
static bool serve_cm(struct stage *stage)
{
    struct fake_fabric *fake = stage->fake;

    if (fake->taken == fake->flushed ||
        strncmp(fake->sent[fake->taken].conn->address, STAGE_CM, strlen(STAGE_CM)) != 0)
        return false;
    struct fake_sent *sent = fake_take(fake);

    if (!sent->conn->over)
        answer_cm(stage, sent);
    return true;
}

void stage_run(struct stage *stage)
{
    bool moved = true;

    while (moved) {
        stage->wake_ns = WAKE_NEVER;
        moved = session_poll(stage->session, stage->now_ns, &stage->wake_ns) == POLL_BUSY;
        while (serve_cm(stage))
            moved = true;
        moved |= stage->fake->event_head != stage->fake->event_tail;
    }
}

void stage_run_after(struct stage *stage, uint64_t ns)
{
    stage->now_ns += ns;
    stage_run(stage);
}

/* The processes that the configuration names run. */
static void run_servers(struct stage *stage)
{
    for (uint32_t i = 0; i < stage->config->member_count; i++)
        stage->fake->incarnations[stage->config->members[i].server] =
            stage->config->members[i].incarnation;
}

void stage_open(struct stage *stage, uint32_t depth, uint32_t operations_per_id)
{
    struct session_options options = {
        .depth = depth, .timeout_ns = STAGE_TIMEOUT_NS, .operations_per_id = operations_per_id};

    *stage = (struct stage){.now_ns = NS_PER_S, .leader = STAGE_CM};
    stage->fake = fake_create();
    stage->config = stage_config(5);
    run_servers(stage);
    assert_int_equal(session_create(&stage->fake->endpoint, STAGE_CM, &options, &stage->session),
                     0);
    stage_run(stage);
    assert_true(session_ready(stage->session));
}

void stage_close(struct stage *stage)
{
    session_destroy(stage->session);
    cluster_release(stage->config);
    fake_destroy(stage->fake);
}

void stage_push(struct stage *stage, struct cluster_config *config)
{
    cluster_release(stage->config);
    stage->config = config;
    run_servers(stage);
    send_config(stage, fake_find(stage->fake, STAGE_CM, 0), 0, 0);
}

const char *stage_key(unsigned shard, char *room, unsigned number)
{
    for (unsigned i = 0;; i++) {
        int bytes = snprintf(room, 32, "key-%u-%u", number, i);

        if (slot_of_key(room, (uint32_t)bytes) / 4096 == shard)
            return room;
    }
}

bool stage_quiet(struct stage *stage)
{
    while (serve_cm(stage))
        ;
    return stage->fake->taken == stage->fake->flushed;
}

struct request stage_request(struct stage *stage)
{
    struct request request;
    struct fake_sent *sent;

    while (serve_cm(stage))
        ;
    sent = fake_take(stage->fake);
    assert_non_null(sent);
    request.conn = sent->conn;
    assert_true(message_parse_request(sent->data, sent->bytes, &request.head, &request.key,
                                      &request.value));
    return request;
}

void stage_answer(struct request *request, int status, uint64_t version, uint64_t term,
                  const void *value, uint32_t value_bytes)
{
    struct message_reply reply = {.type = MESSAGE_REPLY,
                                  .layout = MESSAGE_LAYOUT,
                                  .status = (int16_t)status,
                                  .operation = request->head.operation,
                                  .tag = request->head.tag,
                                  .value_bytes = value_bytes,
                                  .version = version,
                                  .term = term};

    fake_reply(request->conn, &reply, sizeof reply, value, value_bytes);
}
