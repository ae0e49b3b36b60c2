/* The table of incomplete long entries: small, searched linearly; long entries are rare. */
#include "server/shard/join.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"

bool join_piece_add(struct join_piece *piece, const struct entry_header *header, uint64_t offset,
                    uint32_t bytes)
{
    if (header->block == 0)
        *piece = (struct join_piece){.header = *header, .start = offset, .next = offset};
    if (offset != piece->next || header->block != piece->block ||
        header->shard != piece->header.shard || header->version != piece->header.version)
        return false;
    piece->block++;
    piece->next = offset + bytes;
    return piece->block == header->blocks;
}

int join_init(struct join *join, const struct entry_format *format)
{
    memset(join, 0, sizeof *join);
    join->max_blocks = entry_blocks(format, ENTRY_MAX_KEY_BYTES, ENTRY_MAX_VALUE_BYTES);
    join->memory = calloc((size_t)JOIN_ENTRIES * join->max_blocks, sizeof *join->memory);
    if (!join->memory)
        return ROWAN_ENOMEM;
    for (uint32_t i = 0; i < JOIN_ENTRIES; i++) {
        join->entries[i].join = join;
        join->entries[i].offsets = join->memory + (size_t)i * join->max_blocks;
    }
    return 0;
}

void join_fini(struct join *join)
{
    free(join->memory);
    join->memory = NULL;
}

static struct join_entry *find(struct join *join, const struct entry_header *header)
{
    struct join_entry *oldest = &join->entries[0];
    for (uint32_t i = 0; i < JOIN_ENTRIES; i++) {
        struct join_entry *entry = &join->entries[i];
        if (entry->version == header->version && entry->shard == header->shard)
            return entry;
        if (oldest->version != 0 && (entry->version == 0 || entry->age < oldest->age))
            oldest = entry;
    }
    join_remove(oldest);
    join->used++;
    oldest->shard = header->shard;
    oldest->version = header->version;
    oldest->blocks = header->blocks;
    oldest->age = ++join->clock;
    return oldest;
}

struct join_entry *join_add(struct join *join, const struct entry_header *header, uint64_t offset)
{
    ASSERT(header->version != 0 && header->blocks <= join->max_blocks);
    struct join_entry *entry = find(join, header);
    /* A block that came again replaces the older one: the newer copies lie closer together. But not in an entry that
     * could not be applied, and may have been copied for it. */
    if (entry->found < entry->blocks) {
        entry->found = (uint16_t)(entry->found + (entry->offsets[header->block] == 0));
        entry->offsets[header->block] = offset;
    }
    return join_is_whole(entry) ? entry : NULL;
}

void join_remove(struct join_entry *entry)
{
    entry->join->used -= entry->version != 0;
    memset(entry->offsets, 0, entry->blocks * sizeof *entry->offsets);
    entry->version = 0;
    entry->found = 0;
    entry->blocks = 0;
}

void join_drop(struct join *join, uint16_t shard, uint64_t version)
{
    for (uint32_t i = 0; join->used > 0 && i < JOIN_ENTRIES; i++) {
        struct join_entry *entry = &join->entries[i];
        if (entry->version != 0 && entry->shard == shard && entry->version <= version)
            join_remove(entry);
    }
}

const uint8_t *join_key(const struct join_entry *entry, const struct entry_format *format,
                        const struct entry_header *header, const struct pm *pm, uint8_t *buffer)
{
    const uint32_t capacity = format->block_limit - ENTRY_HEADER_BYTES;
    const uint32_t bytes = header->key_bytes;
    if (bytes <= capacity)
        return pm_at(pm, entry->offsets[0] + ENTRY_HEADER_BYTES);
    for (uint32_t block = 0, from = 0; from < bytes; block++, from += capacity)
        memcpy(buffer + from, pm_at(pm, entry->offsets[block] + ENTRY_HEADER_BYTES),
               bytes - from < capacity ? bytes - from : capacity);
    return buffer;
}

/* Does the block lie behind the one before it, in the same segment? Segments are aligned to their size. */
static bool is_behind(const struct join_entry *entry, const struct entry_format *format,
                      const struct entry_header *header, uint32_t block)
{
    const uint64_t before = entry->offsets[block - 1];
    const uint32_t bytes =
        entry_block_bytes(format, header->key_bytes, header->value_bytes, block - 1);
    return entry->offsets[block] == before + bytes &&
           entry->offsets[block] / STORE_SEGMENT_BYTES == before / STORE_SEGMENT_BYTES;
}

bool join_is_contiguous(const struct join_entry *entry, const struct entry_format *format,
                        const struct entry_header *header)
{
    uint32_t block = 1;
    while (block < entry->blocks && is_behind(entry, format, header, block))
        block++;
    return block >= entry->blocks;
}

void join_keep_piece(struct join_entry *entry, const struct entry_format *format,
                     const struct entry_header *header)
{
    const uint32_t last = header->block;
    uint32_t first = last;
    while (first > 0 && is_behind(entry, format, header, first))
        first--;
    memset(entry->offsets, 0, first * sizeof *entry->offsets);
    memset(&entry->offsets[last + 1], 0, (entry->blocks - last - 1) * sizeof *entry->offsets);
    entry->found = (uint16_t)(last + 1 - first);
}

int join_copy(struct join_entry *entry, const struct entry_format *format,
              const struct entry_header *header, struct log *log, uint64_t *offset)
{
    struct pm *pm = store_pm(log->store);
    int error =
        log_reserve(log, entry_bytes(format, header->key_bytes, header->value_bytes), offset);
    if (error)
        return error;
    uint64_t to = *offset;
    for (uint32_t block = 0; block < entry->blocks; block++) {
        uint32_t bytes = entry_block_bytes(format, header->key_bytes, header->value_bytes, block);
        pm_store(pm, to, pm_at(pm, entry->offsets[block]), bytes);
        entry->offsets[block] = to;
        to += bytes;
    }
    return 0;
}
