/* A walk from whole block to whole block. */
#include "server/store/torn.h"

#include "common/base/bytes.h"

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
        if (!bytes_are_zero(scan->base + scan->position, ENTRY_ALIGN))
            found(context, scan->position);
        scan->position += ENTRY_ALIGN;
    }
    return false;
}

struct voiding {
    struct pm *pm;
    const struct entry_scan *scan;
    uint64_t *voided;
};

static void void_place(void *context, uint32_t position)
{
    const struct voiding *in = context;
    uint8_t pad[ENTRY_ALIGN];
    const struct entry_header header = {.type = ENTRY_PAD, .blocks = 1};
    entry_encode_block(in->scan->format, &header, NULL, NULL, pad);
    pm_store(in->pm, (uint64_t)(in->scan->base - in->pm->base) + position, pad, sizeof pad);
    (*in->voided)++;
}

bool torn_void_step(struct pm *pm, struct entry_scan *scan, uint32_t bytes, uint64_t *voided)
{
    return torn_step(scan, bytes, void_place, &(struct voiding){pm, scan, voided});
}
