/* store_layout.h - the bytes of a server's PM, shared by store.c (segments and replicas) and
 * store_format.c (whose it is, and its last run). store.h shows where each part lies. Little-endian. */
#ifndef SERVER_STORE_LAYOUT_H
#define SERVER_STORE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "server/store/store.h"

enum {
    SUPERBLOCK_BYTES = 512,
    HEAD_BYTES = 4096, /* superblock and run records */
    RUN_OFFSET = 1024, /* of slot 0; each slot in a sector of its own */
    RUN_STRIDE = 512,
    RUN_BYTES = 64,
    META_OFFSET = HEAD_BYTES,
    META_BYTES = 8,
    ROW_BYTES = 16,
    TABLE_ALIGN = 4096,
};

#define STORE_MAGIC UINT64_C(0x31564b4e41574f52) /* "ROWANKV1" */

struct superblock {
    uint64_t magic;
    uint32_t format_version;
    uint32_t server;
    uint64_t cluster;
    uint64_t segments;
    uint32_t segment_bytes;
    uint32_t shard_ids;
    uint64_t replica_offset;
    uint64_t segment_offset;
    uint8_t zero[452];
    uint32_t checksum; /* CRC32C of all before it */
};
_Static_assert(sizeof(struct superblock) == SUPERBLOCK_BYTES, "superblock");
_Static_assert(offsetof(struct superblock, cluster) == 16, "superblock");
_Static_assert(offsetof(struct superblock, segment_offset) == 48, "superblock");
_Static_assert(offsetof(struct superblock, checksum) == SUPERBLOCK_BYTES - 4, "superblock");

/* A run record. One with an even sequence lies in slot 0, one with an odd sequence in slot 1. */
struct run_slot {
    uint64_t sequence; /* 1 or more */
    uint64_t incarnation;
    uint8_t boot_id[STORE_BOOT_ID_BYTES];
    uint32_t durability;          /* enum pm_durability */
    uint32_t possibly_incomplete; /* 0 or 1 */
    uint8_t zero[20];
    uint32_t checksum; /* CRC32C of all before it */
};
_Static_assert(sizeof(struct run_slot) == RUN_BYTES, "run record");
_Static_assert(offsetof(struct run_slot, durability) == 32, "run record");
_Static_assert(offsetof(struct run_slot, checksum) == RUN_BYTES - 4, "run record");
_Static_assert(RUN_OFFSET >= SUPERBLOCK_BYTES && RUN_OFFSET + 2 * RUN_STRIDE <= HEAD_BYTES,
               "the head holds both");

/* A row of the replica table. */
struct row {
    uint64_t word; /* state (8 bits) | first epoch (24) | checksum (32) */
    uint64_t first_allocation;
};
_Static_assert(sizeof(struct row) == ROW_BYTES, "row");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "PM is little-endian");

/* The superblock, checked. Errors: those of store_read_identity. */
int superblock_read(const struct pm *pm, struct superblock *block);

#endif
