/* A walk from whole block to whole block. */
#include "server/store/torn.h"

bool torn_is_zero(const void *at, size_t bytes)
{
    const uint8_t *first = at;
    return bytes == 0 || (first[0] == 0 && memcmp(first, first + 1, bytes - 1) == 0);
}

bool torn_step(struct entry_scan *scan, uint32_t bytes, torn_found *found, void *context)
{
    const uint32_t from = scan->position;
    while (scan->position - from < bytes) {
        struct entry_header header;
        uint32_t offset, block_bytes;
        const enum entry_scan_result result =
            entry_scan_next(scan, true, &header, &offset, &block_bytes);
        if (result == ENTRY_SCAN_END)
            return true;
        if (result == ENTRY_SCAN_BLOCK)
            continue;
        if (!torn_is_zero(scan->base + scan->position, ENTRY_ALIGN))
            found(context, scan->position);
        scan->position += ENTRY_ALIGN;
    }
    return false;
}

void torn_void(struct pm *pm, const struct entry_format *format, uint64_t offset)
{
    uint8_t pad[ENTRY_ALIGN];
    const struct entry_header header = {.type = ENTRY_PAD, .blocks = 1};
    entry_encode_block(format, &header, NULL, NULL, pad);
    pm_store(pm, offset, pad, sizeof pad);
}
