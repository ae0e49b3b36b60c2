/* join.h - the blocks of long entries that a digest role has seen and not yet joined.
 *
 * An entry larger than the block limit lands as blocks, with other senders' blocks between them.
 * Blocks of one connection land in order (F1), so at most one entry of each sender is still landing.
 * Other incomplete entries are left over: of connections that broke, whose entries were sent again
 * whole. The table holds twice as many entries as a landing zone has senders, and when it is full the oldest
 * goes: most likely a left-over. If it was none, its version is missing, and is fetched from the primary
 * (digest.c, D4).
 */
#ifndef SERVER_JOIN_H
#define SERVER_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/entry/entry.h"
#include "common/fabric/fabric.h"
#include "server/store/log.h"

enum { JOIN_ENTRIES = 2 * FABRIC_MAX_ZONE_SENDERS };

/* An entry whose blocks lie one behind the other, as a scan meets them. All zeros: none. */
struct join_piece {
    struct entry_header header; /* of its first block */
    uint64_t start, next; /* in the map; next: behind the last block that was met, `block` - 1 */
    uint32_t block;
};

/* join_piece_add: the block of `bytes` at `offset` was met. True: it ends a whole entry, which begins at `start`. */
bool join_piece_add(struct join_piece *piece, const struct entry_header *header, uint64_t offset,
                    uint32_t bytes);

struct join_entry {
    struct join *join;
    uint16_t shard;
    uint16_t blocks, found;
    uint64_t version;  /* 0: free */
    uint64_t age;      /* when it was opened */
    uint64_t *offsets; /* of its blocks in the map; 0: not seen */
};

struct join {
    uint32_t max_blocks;
    uint64_t clock;
    uint32_t used; /* entries that are not free */
    uint64_t *memory;
    struct join_entry entries[JOIN_ENTRIES];
};

/* Errors: ROWAN_ENOMEM. */
int join_init(struct join *join, const struct entry_format *format);
void join_fini(struct join *join);

/* join_add: remembers a block. Returns its entry when all blocks are there (it stays in the table
 * until join_remove), else NULL. */
struct join_entry *join_add(struct join *join, const struct entry_header *header, uint64_t offset);
void join_remove(struct join_entry *entry);

/* join_drop: forgets the shard's entries up to this version. */
void join_drop(struct join *join, uint16_t shard, uint64_t version);

/* Are all blocks of this place of the table there? */
static inline bool join_is_whole(const struct join_entry *entry)
{
    return entry->version != 0 && entry->found == entry->blocks;
}

/* Of an entry whose blocks are all there; `header` is that of one of them. join_key: the key, in place
 * if it is whole in the first block, else copied to `buffer` (ENTRY_MAX_KEY_BYTES).
 * join_is_contiguous: do the blocks lie one behind the other in one segment? join_copy: copies them
 * so into `log`, where the entry has its blocks from then on; stored, not fenced. Errors: ROWAN_EFULL. */
const uint8_t *join_key(const struct join_entry *entry, const struct entry_format *format,
                        const struct entry_header *header, const struct pm *pm, uint8_t *buffer);
bool join_is_contiguous(const struct join_entry *entry, const struct entry_format *format,
                        const struct entry_header *header);
/* join_keep_piece: forgets all blocks but that of `header` and those that lie in one piece in front of it, in its segment. */
void join_keep_piece(struct join_entry *entry, const struct entry_format *format,
                     const struct entry_header *header);
int join_copy(struct join_entry *entry, const struct entry_format *format,
              const struct entry_header *header, struct log *log, uint64_t *offset);

#endif
