/* What lands at a backup, and what it says of that. */
#include "landing.h"

#include "common/entry/commit.h"
#include "test/lib/asserts.h"

struct landing landing_begin(struct stage *stage)
{
    const struct fabric_identity id = {
        .cluster = 77, .id = 2, .incarnation = 101, .kind = FABRIC_SERVER};
    struct landing landing = {
        .stage = stage,
        .peer = puppet_accept(stage->fabric, STAGE_CONTROL, &id),
        .tool = stage_tool(stage),
        .offset = stage->fabric->posts[stage->fabric->sealed].offset,
    };

    assert_non_null(landing.peer);
    stage_run(stage);
    stage->fabric->taken = stage->fabric->sent_count;
    return landing;
}

struct landing landing_return(struct stage *stage)
{
    stage_return(stage);
    return landing_begin(stage);
}

struct landing landing_with_all(struct stage *stage, const uint64_t *counters, size_t count)
{
    struct landing landing = landing_begin(stage);

    for (size_t i = 0; i < count; i++)
        landing_put(&landing, counters[i]);
    return landing;
}

uint64_t landing_block(struct landing *landing, struct entry_header header, const char *key,
                       const void *value)
{
    static _Alignas(64) uint8_t block[ENTRY_MAX_BLOCK_LIMIT];
    const struct entry_format format = stage_format(landing->stage);
    uint64_t offset = landing->offset;
    uint32_t bytes = entry_encode_block(&format, &header, key, value, block);

    pm_store(&landing->stage->heap->pm, offset, block, bytes);
    const uint32_t stride = landing->stage->fabric->head.caps.landing_stride;
    landing->offset += (bytes + stride - 1) & ~(stride - 1);
    return offset;
}

uint64_t landing_put_of(struct landing *landing, uint64_t counter, uint32_t client,
                        uint32_t operation)
{
    const char *key = stage_key_of(STAGE_BACKED);

    return landing_block(landing,
                         (struct entry_header){.type = ENTRY_PUT,
                                               .shard = STAGE_BACKED,
                                               .version = version_make(1, counter),
                                               .key_bytes = (uint16_t)strlen(key),
                                               .value_bytes = 5,
                                               .blocks = 1,
                                               .client_id = client,
                                               .operation = operation},
                         key, "value");
}

uint64_t landing_put(struct landing *landing, uint64_t counter)
{
    return landing_put_of(landing, counter, 0, 0);
}

void landing_long(struct landing *landing, uint64_t version, uint32_t value_bytes, uint64_t between)
{
    static uint8_t value[ENTRY_MAX_VALUE_BYTES];
    const struct entry_format format = stage_format(landing->stage);
    const char *key = stage_key_of(STAGE_BACKED);
    struct entry_header header = {.type = ENTRY_PUT,
                                  .shard = STAGE_BACKED,
                                  .version = version,
                                  .key_bytes = (uint16_t)strlen(key),
                                  .value_bytes = value_bytes};

    header.blocks = (uint16_t)entry_blocks(&format, header.key_bytes, value_bytes);
    for (; header.block < header.blocks; header.block++) {
        landing_block(landing, header, key, value);
        if (between && header.block == 0)
            landing_commit(landing, STAGE_BACKED, between);
    }
}

void landing_value(struct landing *landing, const void *value, uint32_t bytes)
{
    landing_block(
        landing,
        (struct entry_header){
            .type = ENTRY_COMMIT_VERSIONS, .value_bytes = bytes, .blocks = 1, .client_id = 2},
        NULL, value);
}

void landing_commit(struct landing *landing, uint16_t shard, uint64_t version)
{
    uint8_t value[64];
    const struct commit_shard row = {shard, version};

    landing_value(landing, value, commit_encode(&row, 1, NULL, 0, value));
}

void landing_seal(struct landing *landing)
{
    struct puppet_fabric *fabric = landing->stage->fabric;

    assert_true(puppet_seal(fabric, STAGE_CONTROL));
    stage_run(landing->stage);
    landing->offset = fabric->posts[fabric->sealed].offset;
}

bool landing_next_fetch(struct landing *landing, uint64_t *first, uint64_t *last)
{
    const struct puppet_sent *sent;
    bool found = false;

    while (!found && (sent = puppet_take(landing->stage->fabric))) {
        Rowan__ControlMessage *message;
        uint32_t tag;

        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FETCH) {
            assert_ptr_equal(sent->conn, landing->peer);
            assert_int_equal(message->fetch->shard, STAGE_BACKED);
            *first = message->fetch->first;
            *last = message->fetch->last;
            found = true;
        }
        control_free(message);
    }
    return found;
}

void landing_assert_fetch(struct landing *landing, uint64_t first, uint64_t last)
{
    uint64_t asked_first, asked_last;

    assert_true(landing_next_fetch(landing, &asked_first, &asked_last));
    assert_int_equal(asked_first, version_make(1, first));
    assert_int_equal(asked_last, version_make(1, last));
}

void landing_assert_no_fetch(struct landing *landing)
{
    uint64_t first, last;

    assert_false(landing_next_fetch(landing, &first, &last));
}

struct landing_said landing_ask(struct landing *landing)
{
    struct stage *stage = landing->stage;
    struct landing_said said = {.version = UINT64_MAX};

    stage_run(stage); /* all that has landed is digested before control answers */
    uint32_t before = stage->fabric->sent_count;
    Rowan__GetStatus get = ROWAN__GET_STATUS__INIT;
    Rowan__GetChecksum digest = ROWAN__GET_CHECKSUM__INIT;

    digest.shard = STAGE_BACKED;
    stage_tell(landing->tool, 7, &CONTROL_MESSAGE(GET_STATUS, get_status, &get));
    stage_tell(landing->tool, 7, &CONTROL_MESSAGE(GET_CHECKSUM, get_checksum, &digest));
    stage_run(stage);
    for (uint32_t i = before; i < stage->fabric->sent_count; i++) {
        const struct puppet_sent *sent = &stage->fabric->sent[i];
        Rowan__ControlMessage *message;
        uint32_t tag;

        if (sent->conn != landing->tool)
            continue;
        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_CHECKSUM_IS) {
            said.busy = message->checksum_is->busy;
            assert_int_equal(said.missing, message->checksum_is->missing);
        }
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SERVER_STATUS) {
            said.full = message->server_status->full;
            said.segments_free = message->server_status->segments_free;
            said.segments_used = message->server_status->segments_used;
            said.segments_committed = message->server_status->segments_committed;
        }
        for (size_t j = 0; message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SERVER_STATUS &&
                           j < message->server_status->n_shards;
             j++) {
            const Rowan__ShardStatus *shard = message->server_status->shards[j];

            if (shard->id != STAGE_BACKED)
                continue;
            said.missing = shard->missing;
            said.commit = shard->commit;
            said.version = shard->version;
            said.settled = shard->settled;
        }
        control_free(message);
    }
    assert_true(said.version != UINT64_MAX);
    return said;
}
