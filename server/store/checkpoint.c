/* The values of a checkpoint's blocks: every length is checked before what it tells of is read. */
#include "server/store/checkpoint.h"

#include <string.h>

#include "common/base/error.h"

static int decode_buckets(const uint8_t *value, uint32_t bytes, struct checkpoint_value *out)
{
    if (bytes < CHECKPOINT_BUCKETS_HEAD)
        return ROWAN_EFORMAT;
    memcpy(&out->first_bucket, value, sizeof out->first_bucket);
    memcpy(&out->count, value + 8, sizeof out->count);
    memcpy(&out->items, value + 12, sizeof out->items);
    if (CHECKPOINT_BUCKETS_HEAD + (uint64_t)out->items * CHECKPOINT_ITEM_BYTES + out->count !=
        bytes)
        return ROWAN_EFORMAT;
    out->rows = value + CHECKPOINT_BUCKETS_HEAD;
    out->counts = out->rows + out->items * CHECKPOINT_ITEM_BYTES;
    uint64_t items = 0;
    for (uint32_t i = 0; i < out->count; i++)
        items += out->counts[i];
    return items == out->items ? 0 : ROWAN_EFORMAT;
}

int checkpoint_decode(const struct entry_header *header, const uint8_t *value,
                      struct checkpoint_value *out)
{
    const uint32_t bytes = header->value_bytes;
    *out =
        (struct checkpoint_value){.kind = (enum checkpoint_kind)header->client_id, .rows = value};
    switch (header->client_id) {
    case CHECKPOINT_SEGMENTS:
        out->count = bytes / CHECKPOINT_SEGMENT_BYTES;
        return bytes % CHECKPOINT_SEGMENT_BYTES == 0 ? 0 : ROWAN_EFORMAT;
    case CHECKPOINT_SHARD:
        if (bytes != sizeof out->shard)
            return ROWAN_EFORMAT;
        memcpy(&out->shard, value, sizeof out->shard);
        return 0;
    case CHECKPOINT_BUCKETS:
        return decode_buckets(value, bytes, out);
    case CHECKPOINT_RECORDS:
        out->count = bytes / CHECKPOINT_RECORD_BYTES;
        return bytes % CHECKPOINT_RECORD_BYTES == 0 ? 0 : ROWAN_EFORMAT;
    case CHECKPOINT_END:
        return bytes == 0 ? 0 : ROWAN_EFORMAT;
    default:
        return ROWAN_EFORMAT;
    }
}

void checkpoint_row(const struct checkpoint_value *value, uint32_t i, void *row, uint32_t bytes)
{
    memcpy(row, value->rows + (uint64_t)i * bytes, bytes);
}

uint32_t checkpoint_buckets_encode(uint64_t first, uint32_t count, uint32_t items,
                                   const uint8_t *counts, uint8_t *value)
{
    memcpy(value, &first, sizeof first);
    memcpy(value + 8, &count, sizeof count);
    memcpy(value + 12, &items, sizeof items);
    const uint32_t end = CHECKPOINT_BUCKETS_HEAD + items * CHECKPOINT_ITEM_BYTES;
    memcpy(value + end, counts, count);
    return end + count;
}
