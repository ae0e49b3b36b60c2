/* block_list.h - entries on their way into a control message: the places of their blocks in PM, as many as one message
 * holds (SuffixIs and StoreEntries of control.proto). The bytes are read when the message is encoded, and not kept.
 */
#ifndef SERVER_BLOCK_LIST_H
#define SERVER_BLOCK_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "common/entry/entry.h"
#include "common/pm/pm.h"

/* Far below CONTROL_MAX_BYTES, also with what protobuf puts around each block. */
enum { BLOCK_LIST_BLOCKS = 1024, BLOCK_LIST_BYTES = 256 << 10 };

struct block_list {
    uint32_t count, bytes;
    struct block_place {
        uint64_t offset; /* in the map */
        uint32_t bytes;
    } places[BLOCK_LIST_BLOCKS];
};

/* block_list_add: adds the blocks from *block on of the contiguous entry at `offset`, all of which are checked now; none if
 * that is 0 (suffix.h). 1: the last is in. 0: the list is full, and *block is the first that is not. Errors: ROWAN_EDAMAGED (also if another entry lies
 * there), and nothing was added. */
int block_list_add(struct block_list *list, const struct pm *pm, const struct entry_format *format,
                   uint16_t shard, uint64_t version, uint64_t offset, uint32_t *block);

/* The same as protobuf wants it, in `data` (BLOCK_LIST_BLOCKS). */
void block_list_data(const struct block_list *list, const struct pm *pm, ProtobufCBinaryData *data);

#endif
