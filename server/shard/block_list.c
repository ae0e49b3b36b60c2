/* Blocks on their way into a message. */
#include "server/shard/block_list.h"

#include <string.h>

#include "common/base/error.h"
#include "common/base/fault.h"
#include "server/store/store.h"

static bool is_full(const struct block_list *list, uint32_t more_bytes)
{
    return list->count == BLOCK_LIST_BLOCKS || list->bytes + more_bytes > BLOCK_LIST_BYTES ||
           (list->count > 0 && FAULT(SHORT_BATCH));
}

bool block_list_append(struct block_list *list, const struct entry_format *format,
                       const struct entry_header *header, const uint8_t *at, uint32_t *block)
{
    for (uint32_t i = 0; i < header->blocks; i++) {
        const uint32_t bytes = entry_block_bytes(format, header->key_bytes, header->value_bytes, i);
        if (i >= *block) {
            if (is_full(list, bytes)) {
                *block = i;
                return false;
            }
            memcpy(list->data + list->bytes, at, bytes);
            list->bytes += bytes;
            list->count++;
        }
        at += bytes;
    }
    return true;
}

int block_list_add(struct block_list *list, const struct pm *pm, const struct entry_format *format,
                   uint16_t shard, uint64_t version, uint64_t offset, uint32_t *block)
{
    struct entry_header header;
    if (offset == 0)
        return 1;
    const uint64_t room = STORE_SEGMENT_BYTES - offset % STORE_SEGMENT_BYTES;
    if (entry_verify(format, pm_at(pm, offset), room, &header) || header.shard != shard ||
        header.version != version)
        return ROWAN_EDAMAGED;
    return block_list_append(list, format, &header, pm_at(pm, offset), block);
}
