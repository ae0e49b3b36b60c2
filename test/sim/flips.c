/* Which bits flip is drawn block by block, so that a flip rarely meets what nobody uses. */
#include "test/sim/flips.h"

#include "server/store/store_layout.h"

enum { MOST_FLIPS = 6, TRIES = 16 };

struct flipping {
    struct sim_server *server;
    struct pm *pm;
    struct random *random;
    struct superblock block;
    struct store_geometry at;
};

/* A bit of the bytes. */
static bool flip(const struct flipping *flipping, uint64_t offset, uint32_t bytes)
{
    struct sim_server *server = flipping->server;
    const uint64_t at = offset + random_below(flipping->random, bytes);
    if (!sim_pm_is_durable(server->pm, at, 1))
        return false;
    flipping->pm->base[at] ^= (uint8_t)(1 << random_below(flipping->random, 8));
    if (server->flipped)
        server->flipped(server->lost_context, at, flipping->pm->base + at, 1);
    return true;
}

/* --- what is kept twice --- */

static bool flip_table(const struct flipping *flipping)
{
    const uint64_t copy = random_below(flipping->random, 2);
    switch (random_below(flipping->random, 3)) {
    case 0: /* the other one may be damaged still, if the server ended before it mended that */
        return superblock_is_whole(flipping->pm, !copy, &flipping->block) &&
               flip(flipping, copy ? HEAD_SECOND_OFFSET : 0, SUPERBLOCK_BYTES);
    case 1: /* the checkers read the first */
        return flip(flipping,
                    flipping->at.metas[1] +
                        random_below(flipping->random, flipping->block.segments) * META_BYTES,
                    META_BYTES);
    default:
        return flip(flipping,
                    flipping->at.replicas[copy] + random_below(flipping->random, 8) * ROW_BYTES,
                    ROW_BYTES);
    }
}

/* --- entries --- */

static bool is_settled(const struct flipping *flipping, const struct entry_header *header)
{
    struct row rows[2];
    enum row_copy copies[2];
    const int counts = rows_choose(flipping->pm, &flipping->at, header->shard, rows, copies);
    return counts < 0 || header->version <= row_decode(&rows[counts], false).settled;
}

static bool may_flip(const struct flipping *flipping, enum segment_state state,
                     const struct entry_header *header)
{
    if (state == SEGMENT_COMMITTED || header->type == ENTRY_COMMIT_VERSIONS)
        return true;
    return (header->type == ENTRY_PUT || header->type == ENTRY_DELETE) &&
           !is_settled(flipping, header);
}

/* One of the segment's blocks. */
static bool flip_block(const struct flipping *flipping, uint64_t segment, enum segment_state state)
{
    const struct entry_format format = {flipping->block.entry_seed, flipping->block.block_limit};
    const uint64_t start = flipping->at.segments + segment * STORE_SEGMENT_BYTES;
    struct entry_scan scan;
    struct entry_header header, found = {.type = 0};
    uint32_t offset, bytes, at = 0, at_bytes = 0, seen = 0;
    enum entry_scan_result result;
    entry_scan_init(&scan, &format, pm_at(flipping->pm, start), STORE_SEGMENT_BYTES, 0);
    while ((result = entry_scan_next(&scan, false, &header, &offset, &bytes)) != ENTRY_SCAN_END) {
        if (result != ENTRY_SCAN_BLOCK || random_below(flipping->random, ++seen) > 0)
            continue;
        found = header;
        at = offset;
        at_bytes = bytes;
    }
    return seen > 0 && may_flip(flipping, state, &found) && flip(flipping, start + at, at_bytes);
}

static enum segment_state state_of(const struct flipping *flipping, uint64_t segment)
{
    struct segment_meta meta;
    uint64_t words[2];
    return metas_choose(flipping->pm, &flipping->at, segment, words, &meta) == METAS_DAMAGED
               ? SEGMENT_DIRTY
           : meta.closed ? SEGMENT_COMMITTED /* damage counts there, too */
                         : meta.state;
}

static bool flip_entry(const struct flipping *flipping)
{
    uint64_t chosen = 0, seen = 0;
    for (uint64_t i = 0; i < flipping->block.segments; i++) {
        const enum segment_state state = state_of(flipping, i);
        if (state != SEGMENT_FREE && state != SEGMENT_DIRTY &&
            random_below(flipping->random, ++seen) == 0)
            chosen = i;
    }
    return seen > 0 && flip_block(flipping, chosen, state_of(flipping, chosen));
}

uint32_t flips_make(struct sim_server *server, struct random *random)
{
    struct flipping flipping = {.server = server, .pm = &server->pm->pm, .random = random};
    uint32_t count = 0;
    if (superblock_read(flipping.pm, &flipping.block))
        return 0;
    flipping.at = store_geometry(flipping.block.segments);
    const bool table = random_below(random, 3) == 0;
    const uint64_t wanted = 1 + random_below(random, MOST_FLIPS);
    if (table) /* more of them might meet both copies */
        count += flip_table(&flipping);
    for (uint32_t i = 0; count < wanted && i < TRIES; i++)
        count += flip_entry(&flipping);
    return count;
}
