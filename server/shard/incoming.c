/* An entry that comes block by block. */
#include "server/shard/incoming.h"

#include "common/base/error.h"

static int begin(struct incoming *incoming, struct log *log, const struct entry_format *format,
                 const struct entry_header *header, bool is_here)
{
    const bool again = incoming->coming && !incoming->skipped && !is_here &&
                       entry_is_same(&incoming->header, header);
    uint64_t start = incoming->start;
    incoming->coming = false;
    if (!again && !is_here) {
        int error =
            log_reserve(log, entry_bytes(format, header->key_bytes, header->value_bytes), &start);
        if (error)
            return error;
    }
    *incoming = (struct incoming){
        .coming = true, .skipped = is_here, .header = *header, .start = start, .offset = start};
    return 0;
}

int incoming_take(struct incoming *incoming, struct log *log, const struct entry_format *format,
                  const struct entry_header *header, const void *block, bool is_here)
{
    int error = 0;
    if (header->block == 0)
        error = begin(incoming, log, format, header, is_here);
    else if (!incoming->coming || header->block != incoming->next_block ||
             !entry_is_same(&incoming->header, header))
        error = ROWAN_EAGAIN;
    if (error)
        return error;
    if (!incoming->skipped) {
        const uint32_t bytes =
            entry_block_bytes(format, header->key_bytes, header->value_bytes, header->block);
        pm_store(store_pm(log->store), incoming->offset, block, bytes);
        incoming->offset += bytes;
    }
    incoming->coming = ++incoming->next_block < header->blocks;
    return !incoming->coming;
}
