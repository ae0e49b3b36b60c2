/* commit.c - the rows of an ENTRY_COMMIT_VERSIONS entry's value, written and read.
 *
 * A value comes from bytes that a checksum admitted, which says who wrote them, not that they make
 * sense: the counts must give exactly the value's length, and reserved bytes must be zero.
 */
#include "common/entry/commit.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"

struct raw_head {
    uint16_t shards, parts, clients, part;
};

struct raw_shard {
    uint16_t shard;
    uint8_t zero[6];
    uint64_t version;
};

_Static_assert(sizeof(struct raw_head) == COMMIT_HEAD_BYTES, "commit layout");
_Static_assert(sizeof(struct raw_shard) == COMMIT_SHARD_BYTES, "commit layout");
_Static_assert(sizeof(struct commit_client) == COMMIT_CLIENT_BYTES, "commit layout");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "a big-endian host needs byte swaps here");

uint32_t commit_encode(const struct commit_shard *shards, uint32_t shard_count,
                       const struct commit_client *clients, uint32_t client_count, void *out)
{
    uint8_t *at = out;
    ASSERT(shard_count <= COMMIT_MAX_ROWS && client_count <= COMMIT_MAX_ROWS);
    const struct raw_head head = {.shards = (uint16_t)shard_count,
                                  .clients = (uint16_t)client_count};
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (uint32_t i = 0; i < shard_count; i++) {
        const struct raw_shard row = {.shard = shards[i].shard, .version = shards[i].version};
        memcpy(at, &row, sizeof row);
        at += sizeof row;
    }
    if (client_count > 0)
        memcpy(at, clients, client_count * sizeof *clients);
    return commit_bytes(shard_count, client_count);
}

void commit_make_part(void *value, struct commit_part part)
{
    ASSERT(part.part < part.parts);
    struct raw_head head;
    memcpy(&head, value, sizeof head);
    head.part = part.part;
    head.parts = part.parts;
    memcpy(value, &head, sizeof head);
}

static struct raw_shard shard_row(const struct commit_value *value, uint32_t i)
{
    struct raw_shard row;
    memcpy(&row, value->bytes + COMMIT_HEAD_BYTES + (size_t)i * sizeof row, sizeof row);
    return row;
}

int commit_decode(const void *bytes, uint32_t count, struct commit_value *out,
                  struct commit_part *part)
{
    static const uint8_t zero[6];
    struct raw_head head;
    if (count < sizeof head)
        return ROWAN_EFORMAT;
    memcpy(&head, bytes, sizeof head);
    if (commit_bytes(head.shards, head.clients) != count ||
        (part ? head.part >= head.parts : head.parts != 0 || head.part != 0))
        return ROWAN_EFORMAT;
    const struct commit_value value = {
        .shards = head.shards, .clients = head.clients, .bytes = bytes};
    for (uint32_t i = 0; i < value.shards; i++) {
        const struct raw_shard row = shard_row(&value, i);
        if (memcmp(row.zero, zero, sizeof zero) != 0)
            return ROWAN_EFORMAT;
    }
    *out = value;
    if (part)
        *part = (struct commit_part){.part = head.part, .parts = head.parts};
    return 0;
}

struct commit_shard commit_shard_at(const struct commit_value *value, uint32_t i)
{
    ASSERT(i < value->shards);
    const struct raw_shard row = shard_row(value, i);
    return (struct commit_shard){.shard = row.shard, .version = row.version};
}

struct commit_client commit_client_at(const struct commit_value *value, uint32_t i)
{
    ASSERT(i < value->clients);
    struct commit_client row;
    memcpy(&row, value->bytes + commit_bytes(value->shards, i), sizeof row);
    return row;
}
