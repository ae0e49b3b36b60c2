/* Rows first, then segment by segment. An entry that is found damaged is believed as to its shard if its header is sound,
 * and if nothing else lies in the space that it takes; what of its space is torn, too, is its own. Whether its key is of
 * that shard is for the configuration to say (damage.h).
 */
#include "server/store/verify.h"

#include "common/cluster/slot.h"
#include "server/store/torn.h"

enum { VERIFY_STEP_BYTES = 1 << 20 };

static void add(struct verify *verify, uint64_t offset)
{
    if (verify->places++ == 0)
        verify->first_offset = offset;
}

/* --- rows --- */

static void verify_rows(struct verify *verify)
{
    for (uint32_t shard = 0; shard < STORE_SHARD_IDS; shard++) {
        struct row rows[2];
        enum row_copy copies[2];
        const int counts =
            rows_choose(verify->pm, &verify->geometry, (uint16_t)shard, rows, copies);
        if (counts >= 0 && copies[counts] != ROW_TORN)
            continue;
        add(verify, verify->geometry.replicas[0] + shard * ROW_BYTES);
        damage_add(&verify->damage, (uint16_t)shard, DAMAGE_NO_SLOT);
    }
}

/* --- segments --- */

/* Might an entry begin in the space of the one at `position`? */
static bool is_alone(const struct verify *verify, uint32_t position, uint32_t bytes)
{
    struct entry_header header;
    const uint8_t *key;
    uint32_t other;
    for (uint32_t at = position + ENTRY_ALIGN; at < position + bytes; at += ENTRY_ALIGN) {
        if (entry_guess(&verify->format, verify->scan.base + at, STORE_SEGMENT_BYTES - at, &header,
                        &key, &other))
            return false;
    }
    return true;
}

static void found_place(void *context, uint32_t position)
{
    struct verify *verify = context;
    const uint8_t *at = verify->scan.base + position;
    struct entry_header header;
    const uint8_t *key;
    uint32_t bytes;
    if (!verify->is_whole)
        verify->torn = true;
    if (!verify->is_whole || position < verify->claimed)
        return;
    add(verify, (uint64_t)(at - verify->pm->base));
    const bool sound =
        entry_guess(&verify->format, at, STORE_SEGMENT_BYTES - position, &header, &key, &bytes) &&
        is_alone(verify, position, bytes);
    if (sound && (header.type == ENTRY_PUT || header.type == ENTRY_DELETE))
        damage_add(&verify->damage, header.shard, slot_of_key(key, header.key_bytes));
    else if (!sound || header.type != ENTRY_COMMIT_VERSIONS || header.key_bytes > 0)
        verify->damage.all = true; /* commit versions say nothing any more in a COMMITTED segment */
    if (sound)
        verify->claimed = position + bytes;
}

/* Is the segment COMMITTED or closed, or, as long as nothing is found torn, another one with entries? A checkpoint's is not of interest: a
 * start that does not find it whole does without it. */
static bool is_read(struct verify *verify, uint64_t segment)
{
    uint64_t words[2];
    struct segment_meta meta;
    if (metas_choose(verify->pm, &verify->geometry, segment, words, &meta) == METAS_DAMAGED ||
        meta.owner == OWNER_CHECKPOINT)
        return false;
    verify->is_whole = meta.state == SEGMENT_COMMITTED || meta.closed;
    return verify->is_whole ||
           (!verify->torn && (meta.state == SEGMENT_USING || meta.state == SEGMENT_USED));
}

static bool enter(struct verify *verify)
{
    while (verify->segment < verify->block.segments && !is_read(verify, verify->segment))
        verify->segment++;
    if (verify->segment == verify->block.segments)
        return false;
    entry_scan_init(
        &verify->scan, &verify->format,
        pm_at(verify->pm, verify->geometry.segments + verify->segment * STORE_SEGMENT_BYTES),
        STORE_SEGMENT_BYTES, 0);
    verify->inside = true;
    verify->claimed = 0;
    return true;
}

/* --- all --- */

void verify_begin(struct verify *verify, const struct pm *pm)
{
    *verify = (struct verify){.pm = pm};
    (void)superblock_read(pm, &verify->block); /* its caller has done that */
    verify->geometry = store_geometry(verify->block.segments);
    verify->format = (struct entry_format){verify->block.entry_seed, verify->block.block_limit};
    verify_rows(verify);
}

bool verify_step(struct verify *verify)
{
    if (!verify->inside && !enter(verify))
        return true;
    if (torn_step(&verify->scan, VERIFY_STEP_BYTES, found_place, verify)) {
        verify->inside = false;
        verify->segment++;
    }
    return false;
}
