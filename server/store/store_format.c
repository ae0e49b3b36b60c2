/* Whose PM it is, and who ran on it last: geometry, superblock, run records.
 *
 * Crash-safe steps. An aligned 8-byte word lands whole; between two fences words land in any order.
 *
 * Superblock and run records lie in two copies each; damage of either loses nothing.
 *
 *  Format
 *   1. Store the superblocks without their magic. The tables are zeros: all FREE, no replica, no run.
 *   2. Fence.
 *   3. Store the magic, twice. Either COMMITS: before it, the map counts as never formatted.
 *   4. Fence.
 *  Run record (only when everything the run relies on is durable: see control_open.c)
 *   1. Store both copies of the new one into the slot that does not hold the last one. A right checksum COMMITS.
 *   2. Fence.
 *      If both are torn, the last one still counts: the same start over again. A store whose very first record is
 *      torn has never run.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/base/crc.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/version.h"
#include "server/store/store_layout.h"

/* --- geometry --- */

static uint64_t round_up(uint64_t bytes, uint64_t align)
{
    return (bytes + align - 1) / align * align;
}

struct store_geometry store_geometry(uint64_t segments)
{
    uint64_t meta_bytes = round_up(segments * META_BYTES, TABLE_ALIGN);
    struct store_geometry at = {.metas[0] = META_OFFSET, .replicas[0] = HEAD_BYTES};
    at.configs[0] = at.metas[0] + meta_bytes;
    at.voids[0] = at.configs[0] + CONFIG_COPY_BYTES;
    at.replicas[1] = at.voids[0] + VOID_TABLE_BYTES;
    at.metas[1] = at.replicas[1] + REPLICA_TABLE_BYTES;
    at.configs[1] = at.metas[1] + meta_bytes;
    at.voids[1] = at.configs[1] + CONFIG_COPY_BYTES;
    at.segments = round_up(at.voids[1] + VOID_TABLE_BYTES, STORE_SEGMENT_BYTES);
    return at;
}

uint64_t store_segments_in(uint64_t pm_bytes)
{
    uint64_t whole = pm_bytes / STORE_SEGMENT_BYTES;
    uint64_t segments = whole;
    /* The replica tables take two segments; the rest one up to 125,952, and another one for each 262,144 more. */
    while (segments > 0 &&
           store_geometry(segments).segments / STORE_SEGMENT_BYTES + segments > whole)
        segments--;
    return segments;
}

/* --- superblock --- */

static void superblock_fill(struct superblock *block, const struct store_identity *identity,
                            uint64_t segments)
{
    *block = (struct superblock){
        .magic = STORE_MAGIC,
        .format_version = VERSION_PM_HIGHEST,
        .server = identity->server,
        .cluster = identity->cluster,
        .segments = segments,
        .segment_bytes = STORE_SEGMENT_BYTES,
        .shard_ids = STORE_SHARD_IDS,
        .segment_offset = store_geometry(segments).segments,
        .entry_seed = identity->format.seed,
        .block_limit = identity->format.block_limit,
    };
    block->checksum = crc32c(0, block, offsetof(struct superblock, checksum));
}

static bool format_is_read(const struct superblock *block)
{
    return block->format_version >= VERSION_PM_LOWEST &&
           block->format_version <= VERSION_PM_HIGHEST;
}

static bool checksum_is_right(const struct superblock *block)
{
    return block->checksum == crc32c(0, block, offsetof(struct superblock, checksum));
}

static int superblock_check(const struct superblock *block, uint64_t pm_bytes)
{
    if (block->magic != STORE_MAGIC || !format_is_read(block))
        return ROWAN_EFORMAT;
    if (!checksum_is_right(block))
        return ROWAN_EDAMAGED;
    uint64_t segments = block->segments;
    if (segments == 0 || segments > store_segments_in(pm_bytes) ||
        block->segment_bytes != STORE_SEGMENT_BYTES || block->shard_ids != STORE_SHARD_IDS ||
        block->segment_offset != store_geometry(segments).segments)
        return ROWAN_EFORMAT;
    return 0;
}

static bool is_zero(const struct pm *pm, uint64_t from, uint64_t to)
{
    return bytes_are_zero(pm_at(pm, from), to - from);
}

bool store_is_blank(const struct pm *pm)
{
    const uint64_t second_end = HEAD_SECOND_OFFSET + HEAD_BYTES;
    return pm->bytes > second_end && is_zero(pm, HEAD_BYTES, HEAD_SECOND_OFFSET) &&
           is_zero(pm, second_end, pm->bytes);
}

static const uint64_t head_offset[2] = {0, HEAD_SECOND_OFFSET};

/* May the second copy stand for the first? Not if something else was written over the first, or another version was. */
static bool is_damaged(const struct superblock *first, const struct superblock *second)
{
    if (first->magic == STORE_MAGIC)
        return !checksum_is_right(first);
    return first->magic == 0 || memcmp(&first->format_version, &second->format_version,
                                       sizeof(*first) - sizeof(first->magic)) == 0;
}

int superblock_read(const struct pm *pm, struct superblock *block)
{
    struct superblock copies[2];
    *block = (struct superblock){.magic = 0};
    if (pm->bytes < HEAD_SECOND_OFFSET + HEAD_BYTES)
        return ROWAN_EFORMAT;
    for (unsigned i = 0; i < 2; i++)
        memcpy(&copies[i], pm_at(pm, head_offset[i]), sizeof(copies[i]));
    *block = copies[0];
    int error = superblock_check(&copies[0], pm->bytes);
    if (error == 0)
        return 0;
    if (superblock_check(&copies[1], pm->bytes) == 0 && is_damaged(&copies[0], &copies[1])) {
        *block = copies[1];
        return 0;
    }
    if (copies[0].magic != 0)
        return error;
    /* If a word of a segment is not zero, the missing superblock is a lost one, and the map is not empty. */
    const uint64_t metas_end = META_OFFSET + store_segments_in(pm->bytes) * META_BYTES;
    return copies[1].magic != STORE_MAGIC && is_zero(pm, META_OFFSET, metas_end) ? ROWAN_ENOTFOUND
                                                                                 : ROWAN_EDAMAGED;
}

bool superblock_is_whole(const struct pm *pm, unsigned copy, const struct superblock *block)
{
    return memcmp(pm_at(pm, head_offset[copy]), block, sizeof(*block)) == 0;
}

void superblock_mend(struct pm *pm, const struct superblock *block)
{
    for (unsigned i = 0; i < 2; i++) {
        if (superblock_is_whole(pm, i, block))
            continue;
        log_event(LOG_WARN, "superblock_mended", "copy=%u", i);
        pm_store(pm, head_offset[i], block, sizeof(*block));
    }
}

int store_format_start(struct pm *pm, const struct store_identity *identity,
                       struct store_format *out)
{
    uint64_t segments = store_segments_in(pm->bytes);
    if (segments == 0)
        return ROWAN_EINVALID;
    struct superblock block;
    if (superblock_read(pm, &block) != ROWAN_ENOTFOUND)
        return ROWAN_EEXISTS;

    superblock_fill(&block, identity, segments);
    for (unsigned i = 0; i < 2; i++)
        pm_store(pm, head_offset[i] + sizeof(block.magic), &block.format_version,
                 sizeof(block) - sizeof(block.magic));
    *out = (struct store_format){.pm = pm, .ticket = pm_sync_start(pm)};
    return 0;
}

int store_format_poll(struct store_format *format)
{
    int done = pm_sync_done(format->pm, format->ticket);
    if (done != 1 || format->committed)
        return done;
    const uint64_t magic = STORE_MAGIC;
    for (unsigned i = 0; i < 2; i++)
        pm_store(format->pm, head_offset[i] + offsetof(struct superblock, magic), &magic,
                 sizeof(magic));
    format->ticket = pm_sync_start(format->pm);
    format->committed = true;
    return pm_sync_done(format->pm, format->ticket);
}

int store_read_identity(const struct pm *pm, struct store_identity *out)
{
    struct superblock block;
    int error = superblock_read(pm, &block);
    if (error)
        return error;
    *out = (struct store_identity){
        .cluster = block.cluster,
        .server = block.server,
        .format = {.seed = block.entry_seed, .block_limit = block.block_limit}};
    return 0;
}

void store_why(const struct pm *pm, int error, char *why, size_t why_bytes)
{
    struct superblock block;
    char known[24];
    (void)superblock_read(pm, &block); /* its answer is `error` */
    if (error == ROWAN_EDAMAGED)
        snprintf(why, why_bytes,
                 "both copies of its superblock are damaged: nobody can tell what it held");
    else if (error == ROWAN_EFORMAT && block.magic != STORE_MAGIC)
        snprintf(why, why_bytes, "it holds something else than a Rowan-KV server's data");
    else if (error == ROWAN_EFORMAT && !format_is_read(&block))
        snprintf(why, why_bytes, "made by %s version: its format is %u, this version reads %s",
                 block.format_version > VERSION_PM_HIGHEST ? "a newer" : "an older",
                 block.format_version, version_text(VERSION_RANGE(PM), known, sizeof known));
    else if (error == ROWAN_EFORMAT)
        snprintf(why, why_bytes,
                 "%lu MiB are too few: it was made with %lu segments of 4 MiB and their tables",
                 pm->bytes >> 20, block.segments);
    else
        snprintf(why, why_bytes, "%s", error_sentence(error));
}

/* --- runs --- */

static uint64_t run_offset(unsigned copy, uint64_t sequence)
{
    return head_offset[copy] + RUN_OFFSET + sequence % 2 * RUN_STRIDE;
}

static bool run_is_valid(const struct run_slot *slot, uint64_t parity)
{
    return slot->checksum == crc32c(0, slot, offsetof(struct run_slot, checksum)) &&
           slot->sequence != 0 && slot->sequence % 2 == parity && slot->durability <= PM_NONE &&
           slot->possibly_incomplete <= 1;
}

enum run_copy run_read(const struct pm *pm, unsigned copy, uint64_t parity, struct run_slot *slot)
{
    memcpy(slot, pm_at(pm, run_offset(copy, parity)), sizeof(*slot));
    if (bytes_are_zero(slot, sizeof(*slot)))
        return RUN_UNUSED;
    return run_is_valid(slot, parity) ? RUN_WHOLE : RUN_DAMAGED;
}

int store_read_run(const struct pm *pm, struct store_run *out)
{
    struct run_slot last = {.sequence = 0};
    bool damaged = false;
    for (unsigned i = 0; i < 4; i++) {
        struct run_slot slot;
        enum run_copy state = run_read(pm, i / 2, i % 2, &slot);
        /* The first record goes to slot 1. If slot 0 is empty and slot 1 torn, no run was recorded. */
        damaged |= state == RUN_DAMAGED && i % 2 == 0;
        if (state == RUN_WHOLE && slot.sequence > last.sequence)
            last = slot;
    }
    if (last.sequence == 0)
        return damaged ? ROWAN_EDAMAGED : ROWAN_ENOTFOUND;
    *out = (struct store_run){.sequence = last.sequence,
                              .incarnation = last.incarnation,
                              .durability = (enum pm_durability)last.durability,
                              .possibly_incomplete = last.possibly_incomplete};
    memcpy(out->boot_id, last.boot_id, sizeof(out->boot_id));
    return 0;
}

bool store_run_is_incomplete(const struct store_run *run,
                             const uint8_t boot_id[STORE_BOOT_ID_BYTES])
{
    return run->possibly_incomplete || (run->durability != PM_FENCE &&
                                        memcmp(run->boot_id, boot_id, sizeof(run->boot_id)) != 0);
}

int store_run_write(struct pm *pm, struct store_run *run)
{
    struct store_run last = {.sequence = 0};
    int error = store_read_run(pm, &last);
    if (error && error != ROWAN_ENOTFOUND)
        return error;
    run->sequence = last.sequence + 1;
    struct run_slot slot = {.sequence = run->sequence,
                            .incarnation = run->incarnation,
                            .durability = (uint32_t)run->durability,
                            .possibly_incomplete = run->possibly_incomplete};
    memcpy(slot.boot_id, run->boot_id, sizeof(slot.boot_id));
    slot.checksum = crc32c(0, &slot, offsetof(struct run_slot, checksum));
    for (unsigned i = 0; i < 2; i++)
        pm_store(pm, run_offset(i, run->sequence), &slot, sizeof(slot));
    return 0;
}
