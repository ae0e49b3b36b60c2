/* apply.h - the one way in which an entry becomes part of a replica, whoever has it: the digest of what landed, a
 * start, log reconciliation, filling, or the primary's own completion (design, section 4).
 *
 * The caller has checked the entry, all of it lies in one piece at its offset (or `apart` is set), and the caller owns the shard. What
 * only some callers keep (the uncommitted suffix, who is to be answered) stays theirs.
 */
#ifndef SERVER_APPLY_H
#define SERVER_APPLY_H

#include <stdint.h>

#include "common/entry/commit.h"
#include "server/shard/shard.h"

/* A put or a delete, and what was found out about it on the way. */
struct apply_entry {
    uint64_t version;
    uint64_t offset;        /* in the map */
    uint64_t hash;          /* index_hash of the key */
    struct index_hint hint; /* of that */
    const uint8_t *key;
    uint32_t key_bytes;
    uint32_t client_id, operation; /* 0: nobody asks for it again */
    bool
        apart; /* its blocks do not lie in one piece; the index has this version, or a higher one */
};

/* The entry at `offset` with that header and key. */
static inline struct apply_entry apply_make(const struct entry_header *header, uint64_t offset,
                                            const uint8_t *key, uint64_t hash,
                                            struct index_hint hint)
{
    return (struct apply_entry){.version = header->version,
                                .offset = offset,
                                .hash = hash,
                                .hint = hint,
                                .key = key,
                                .key_bytes = header->key_bytes,
                                .client_id = header->client_id,
                                .operation = header->operation};
}

/* As an item of the uncommitted suffix. */
static inline struct suffix_item apply_item(const struct apply_entry *entry)
{
    return (struct suffix_item){.version = entry->version,
                                .offset = entry->apart ? 0 : entry->offset,
                                .client = entry->client_id,
                                .operation = entry->operation};
}

/* The entry with that header which lies in one piece at `offset`. `room` (ENTRY_MAX_KEY_BYTES) is for a key that
 * blocks part; the result may point into it. */
struct apply_entry apply_describe(const struct pm *pm, const struct entry_format *format,
                                  const struct entry_header *header, uint64_t offset, void *room);

/* apply_entry: on return the entry is part of the replica. The same one again changes nothing. Returns 1 if it was not applied
 * before, as far as the prefix and the index know, else 0. Errors: ROWAN_ENOMEM (the index), and nothing changed. Inlined, as it
 * is most of the digest of an entry. */
static inline __attribute__((always_inline)) int apply_entry(struct shard_state *shard,
                                                             const struct apply_entry *entry)
{
    uint64_t previous;
    int result = index_update_hinted(shard->index, entry->hint, entry->hash, entry->key,
                                     entry->key_bytes, entry->version, entry->offset, &previous);
    if (result < 0)
        return result; /* A2 */
    if (result != INDEX_OLDER)
        live_indexed(shard->live, entry->offset, previous);
    const bool arrived = prefix_add(&shard->prefix, entry->version);
    if (entry->version > atomic_load_explicit(&shard->version, memory_order_relaxed))
        atomic_store_explicit(&shard->version, entry->version, memory_order_relaxed);
    return arrived || result != INDEX_OLDER;
}

/* apply_promote: at a backup that is to lead the shard. What its suffix and `completed` know becomes completion records;
 * `completed` is empty then. Returns how many were lost: a retry of one of these would be carried out again. */
uint64_t apply_promote(struct shard_state *shard);

/* apply_depose: the inverse, at a replica that a worker led until now: its completion records go to `completed`. Those that
 * find no place there are lost, and counted by it. */
void apply_depose(struct shard_state *shard);

/* apply_commit: the commit version `version` of the shard was met; true if it is higher than all before. */
bool apply_commit(struct shard_state *shard, uint64_t version);

/* The rows of the block of commit versions with that header at `at`; `part` and errors: as commit_decode. */
int apply_decode_commits(const struct entry_header *header, const uint8_t *at,
                         struct commit_value *rows, struct commit_part *part);

#endif
