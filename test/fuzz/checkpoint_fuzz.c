/* checkpoint_fuzz.c - checkpoint_decode on arbitrary bytes: the first is the kind, the rest the value. What it admits lies
 * inside it. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "server/store/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct checkpoint_value *value)
{
    uint64_t sum = 0, item;
    struct checkpoint_segment segment;
    struct checkpoint_record record;
    for (uint32_t i = 0; i < value->count; i++) {
        if (value->kind == CHECKPOINT_SEGMENTS)
            checkpoint_row(value, i, &segment, sizeof segment);
        else if (value->kind == CHECKPOINT_RECORDS)
            checkpoint_row(value, i, &record, sizeof record);
        else
            sum += value->counts[i];
    }
    ASSERT(value->kind != CHECKPOINT_BUCKETS || sum == value->items);
    for (uint32_t i = 0; i < value->items; i++)
        checkpoint_row(value, i, &item, sizeof item);
}

/* Its items and counts encode to the very same bytes. */
static void encode_again(const struct checkpoint_value *value, const uint8_t *bytes, uint32_t size)
{
    uint8_t *again = malloc(size);
    if (!again)
        return;
    memcpy(again + CHECKPOINT_BUCKETS_HEAD, value->rows, value->items * CHECKPOINT_ITEM_BYTES);
    ASSERT(checkpoint_buckets_encode(value->first_bucket, value->count, value->items, value->counts,
                                     again) == size);
    ASSERT(memcmp(again, bytes, size) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const uint32_t bytes = (uint32_t)size - 1;
    const struct entry_header header = {.client_id = data[0], .value_bytes = bytes};
    uint8_t *copy = malloc(bytes + 1); /* of exactly that length, but for one that is never read */
    struct checkpoint_value value;
    if (!copy)
        return 0;
    memcpy(copy + 1, data + 1, bytes);
    if (checkpoint_decode(&header, copy + 1, &value) == 0) {
        read_all(&value);
        if (value.kind == CHECKPOINT_BUCKETS)
            encode_again(&value, copy + 1, bytes);
    }
    free(copy);
    return 0;
}
