/* Index, contiguous prefix, highest version and completion records of a replica follow from the entries that were
 * applied to it, and from the commit versions.
 *
 * Invariants:
 *  A1  The result does not depend on the order of entries, nor on how often each comes: the index keeps the highest
 *      version of a key, the prefix and the records are sets. So nobody has to know what was applied before. What
 *      must be counted once may not be counted here.
 *  A2  What may fail for want of memory comes first and leaves all as it was; only a record, which comes last, may be
 *      lost.
 *  A3  A version is in the contiguous prefix only after the entry is in the index, or when it is gone (digest_store.c, E5).
 */
#include "server/shard/apply.h"

#include "common/base/error.h"

enum { APPLY_ROWS = 256 }; /* of completion records, at a time */

struct apply_entry apply_describe(const struct pm *pm, const struct entry_format *format,
                                  const struct entry_header *header, uint64_t offset, void *room)
{
    const uint8_t *key = entry_key_in_place(format, header, pm_at(pm, offset), room);
    return apply_make(header, offset, key, index_hash(key, header->key_bytes),
                      (struct index_hint){0});
}

uint64_t apply_promote(struct shard_state *shard)
{
    struct completed *completed = &shard->completed;
    suffix_sort(&shard->suffix); /* what is settled leaves for `completed` */
    uint64_t lost = completed->lost;
    for (uint32_t i = 0; i < completed->count; i++) {
        const struct completed_item *item = &completed->items[i];
        lost += records_add(&shard->records, item->client, item->operation, item->version) != 0;
    }
    for (uint32_t i = 0; i < shard->suffix.count; i++) {
        const struct suffix_item *item = &shard->suffix.items[i];
        lost += records_add(&shard->records, item->client, item->operation, item->version) != 0;
    }
    completed_clear(completed);
    *completed = (struct completed){0};
    shard->suffix.completed = NULL;
    return lost;
}

void apply_depose(struct shard_state *shard)
{
    struct records_row rows[APPLY_ROWS];
    struct records_cursor cursor = {0};
    bool over = false;
    while (!over) {
        const int count = records_list(&shard->records, &cursor, rows, APPLY_ROWS, &over);
        if (count < 0) { /* a bucket has more: it does not happen */
            shard->completed.lost += records_count(&shard->records);
            break;
        }
        for (int i = 0; i < count; i++) {
            if (rows[i].version) /* else a client, and its lowest unanswered number */
                completed_add(&shard->completed, rows[i].client, rows[i].operation,
                              rows[i].version);
        }
    }
    records_fini(&shard->records);
}

bool apply_commit(struct shard_state *shard, uint64_t version)
{
    if (version <= atomic_load_explicit(&shard->commit, memory_order_relaxed))
        return false;
    atomic_store_explicit(&shard->commit, version, memory_order_release); /* D11 in digest.c */
    prefix_settle(&shard->prefix, version_epoch(version));
    return true;
}

int apply_decode_commits(const struct entry_header *header, const uint8_t *at,
                         struct commit_value *rows, struct commit_part *part)
{
    if (header->blocks != 1 || header->key_bytes != 0)
        return ROWAN_EFORMAT;
    return commit_decode(at + ENTRY_HEADER_BYTES, header->value_bytes, rows, part);
}
