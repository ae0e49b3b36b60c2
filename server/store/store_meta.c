/* The words of the segment meta table: their bytes, and what two copies of a word say together.
 *
 * That a segment is closed is said by a bit of its owner's number that no number reaches: a version that does not know it takes it for a
 * part of the number, of which little depends in a segment of an earlier run, and may leave it in another state.
 */
#include "common/base/assert.h"
#include "common/base/crc.h"
#include "server/store/store_layout.h"

enum { META_CLOSED = 1 << 7 };

const char *const segment_state_names[] = {"free", "dirty", "using", "used", "committed"};
const char *const segment_owner_names[] = {"none",    "worker", "backup_log", "digest",
                                           "unknown", "clean",  "checkpoint"};

/* Of a word's first 7 bytes and the segment's number, so that a word in another's place is no right one. */
static uint64_t checked(uint64_t segment, uint64_t word)
{
    uint8_t covered[7 + 4];
    memcpy(covered, &word, 7);
    memcpy(covered + 7, &segment, 4);
    return (uint64_t)crc8_autosar(covered, sizeof(covered)) << 56 | (word & UINT64_MAX >> 8);
}

uint64_t meta_encode(uint64_t segment, const struct segment_meta *meta)
{
    ASSERT(meta->owner_number < META_CLOSED && meta->allocation <= META_ALLOCATION_MAX);
    const uint64_t number = meta->owner_number | (meta->closed ? META_CLOSED : 0);
    uint64_t word =
        (uint64_t)meta->state | (uint64_t)meta->owner << 4 | number << 8 | meta->allocation << 16;
    return word == META_UNUSED ? word : checked(segment, word);
}

struct segment_meta meta_unpack(uint64_t word)
{
    const enum segment_state state = (enum segment_state)(word & 0xf);
    const uint32_t number = (uint32_t)(word >> 8 & 0xff);
    return (struct segment_meta){.state = state,
                                 .owner = (enum segment_owner)(word >> 4 & 0xf),
                                 .closed = number >= META_CLOSED && state == SEGMENT_USED,
                                 .owner_number = number % META_CLOSED,
                                 .allocation = word >> 16 & META_ALLOCATION_MAX};
}

bool meta_decode(uint64_t segment, uint64_t word, struct segment_meta *out)
{
    const struct segment_meta meta = meta_unpack(word);
    bool idle = meta.state == SEGMENT_FREE || meta.state == SEGMENT_DIRTY;
    if ((word != META_UNUSED && word != checked(segment, word)) || meta.state > SEGMENT_COMMITTED ||
        meta.owner >= OWNER_KINDS || idle != (meta.owner == OWNER_NONE))
        return false;
    *out = meta;
    return true;
}

/* The states in the order in which a segment has them under one allocation number (store-4). */
static bool is_later(const struct segment_meta *a, const struct segment_meta *b)
{
    static const uint8_t order[] = {[SEGMENT_USING] = 0,
                                    [SEGMENT_USED] = 1,
                                    [SEGMENT_COMMITTED] = 2,
                                    [SEGMENT_DIRTY] = 3,
                                    [SEGMENT_FREE] = 4};
    if (a->allocation != b->allocation)
        return a->allocation > b->allocation;
    return a->state != b->state ? order[a->state] > order[b->state] : a->closed > b->closed;
}

enum meta_copies metas_choose(const struct pm *pm, const struct store_geometry *at,
                              uint64_t segment, uint64_t words[2], struct segment_meta *out)
{
    struct segment_meta metas[2];
    bool whole[2];
    for (unsigned i = 0; i < 2; i++) {
        memcpy(&words[i], pm_at(pm, at->metas[i] + segment * META_BYTES), META_BYTES);
        whole[i] = meta_decode(segment, words[i], &metas[i]);
    }
    if (whole[0] && whole[1]) {
        *out = metas[is_later(&metas[1], &metas[0])];
        return METAS_WHOLE;
    }
    if (!whole[0] && !whole[1])
        return METAS_DAMAGED;
    *out = metas[whole[1]];
    return out->state == SEGMENT_FREE ? METAS_DAMAGED : METAS_ONE_DAMAGED;
}
