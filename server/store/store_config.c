/* The newest configuration that this server adopted: what is left of it should the coordination service lose it.
 *
 *  O1 A stored configuration is never followed by one of a lower or the same term.
 *
 * Crash-safe steps. Between two fences bytes land in any order; the checksum tells whether all have.
 *
 *  Configuration
 *   1. Store head and bytes over the copy that does not count. A right checksum COMMITS.
 *   2. Sync.
 *   3. Store the same over the other copy. Until 2 is done that one may be the only whole one.
 *   4. Sync. From now on damage of either copy loses nothing.
 *      After a crash before, the newer of the whole copies counts; the next configuration is stored over the other one.
 */
#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/base/crc.h"
#include "common/base/error.h"
#include "server/store/store_layout.h"

static uint32_t checksum_of(const struct config_head *head, const void *bytes)
{
    return crc32c(crc32c(0, head, offsetof(struct config_head, checksum)), bytes, head->byte_count);
}

enum config_copy config_read(const struct pm *pm, uint64_t place, struct config_head *head)
{
    memcpy(head, pm_at(pm, place), sizeof(*head));
    if (bytes_are_zero(head, sizeof(*head)))
        return CONFIG_COPY_UNUSED;
    const bool whole = head->term != 0 && head->byte_count >= 1 &&
                       head->byte_count <= STORE_CONFIG_MAX_BYTES &&
                       head->checksum == checksum_of(head, pm_at(pm, place + CONFIG_HEAD_BYTES));
    return whole ? CONFIG_COPY_WHOLE : CONFIG_COPY_DAMAGED;
}

/* Which copy counts; -1: none. */
static int choose(const struct pm *pm, const uint64_t places[2], struct config_head heads[2],
                  enum config_copy copies[2])
{
    int counts = -1;
    for (int i = 0; i < 2; i++) {
        copies[i] = config_read(pm, places[i], &heads[i]);
        if (copies[i] == CONFIG_COPY_WHOLE && (counts < 0 || heads[i].term > heads[counts].term))
            counts = i;
    }
    return counts;
}

int store_config_read(const struct pm *pm, struct store_config *out)
{
    struct superblock block;
    struct config_head heads[2];
    enum config_copy copies[2];
    int error = superblock_read(pm, &block);
    if (error)
        return error;
    const struct store_geometry at = store_geometry(block.segments);
    const int counts = choose(pm, at.configs, heads, copies);
    if (counts < 0)
        return copies[0] == CONFIG_COPY_UNUSED && copies[1] == CONFIG_COPY_UNUSED ? ROWAN_ENOTFOUND
                                                                                  : ROWAN_EDAMAGED;
    *out = (struct store_config){.term = heads[counts].term,
                                 .bytes = pm_at(pm, at.configs[counts] + CONFIG_HEAD_BYTES),
                                 .byte_count = heads[counts].byte_count};
    return 0;
}

int store_config_start(struct pm *pm, const struct store_config *config,
                       struct store_config_write *out)
{
    struct superblock block;
    struct config_head heads[2];
    enum config_copy copies[2];
    int error = superblock_read(pm, &block);
    if (error)
        return error;
    const struct store_geometry at = store_geometry(block.segments);
    const int counts = choose(pm, at.configs, heads, copies);
    ASSERT(counts < 0 || config->term > heads[counts].term); /* O1 */
    ASSERT(config->byte_count >= 1 && config->byte_count <= STORE_CONFIG_MAX_BYTES);

    struct config_head head = {.term = config->term, .byte_count = config->byte_count};
    head.checksum = checksum_of(&head, config->bytes);
    *out = (struct store_config_write){.pm = pm,
                                       .term = config->term,
                                       .from = at.configs[counts == 0],
                                       .to = at.configs[counts != 0],
                                       .byte_count = config->byte_count};
    pm_store(pm, out->from, &head, sizeof(head));
    pm_store(pm, out->from + CONFIG_HEAD_BYTES, config->bytes, config->byte_count);
    out->ticket = pm_sync_start(pm);
    return 0;
}

int store_config_poll(struct store_config_write *write)
{
    int done = pm_sync_done(write->pm, write->ticket);
    if (done != 1 || write->to == 0)
        return done;
    pm_store(write->pm, write->to, pm_at(write->pm, write->from),
             CONFIG_HEAD_BYTES + write->byte_count);
    write->to = 0;
    write->ticket = pm_sync_start(write->pm);
    return pm_sync_done(write->pm, write->ticket);
}
