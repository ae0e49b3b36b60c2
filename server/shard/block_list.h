/* block_list.h - entries on their way into a control message: their blocks, one behind the other, as many as one message
 * holds (SuffixIs and StoreEntries of control.proto).
 */
#ifndef SERVER_BLOCK_LIST_H
#define SERVER_BLOCK_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/entry/entry.h"
#include "common/pm/pm.h"

/* Far below CONTROL_MAX_BYTES, also with what protobuf puts around each block. */
enum { BLOCK_LIST_BLOCKS = 1024, BLOCK_LIST_MOST_BYTES = 256 << 10 };
#ifdef ROWAN_SIM /* test/sim chooses: of small messages many entries need several */
extern uint32_t block_list_bytes;
#define BLOCK_LIST_BYTES block_list_bytes
#else
#define BLOCK_LIST_BYTES ((uint32_t)BLOCK_LIST_MOST_BYTES)
#endif

struct block_list {
    uint8_t *data; /* BLOCK_LIST_BYTES, the caller's */
    uint32_t count, bytes;
};

/* block_list_append: copies the blocks from *block on of the contiguous entry at `at`, whose header that is. False: the list
 * is full, and *block is the first that is not in. */
bool block_list_append(struct block_list *list, const struct entry_format *format,
                       const struct entry_header *header, const uint8_t *at, uint32_t *block);

/* block_list_add: likewise, of the entry at `offset`, all of which is checked now; nothing if that is 0 (suffix.h). 1: the
 * last block is in. 0: the list is full. Errors: ROWAN_EDAMAGED (also if another entry lies there), and nothing was added. */
int block_list_add(struct block_list *list, const struct pm *pm, const struct entry_format *format,
                   uint16_t shard, uint64_t version, uint64_t offset, uint32_t *block);

#endif
