/* store_layout.h - the bytes of a server's PM, shared by store.c (segments), store_replica.c (replicas),
 * store_format.c (whose it is, and its last run), store_config.c (the configuration) and store_void.c (void ranges). store.h shows where each part lies. Little-endian. */
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
    META_BYTES = 8,
    ROW_BYTES = 64,
    VOID_BYTES = 32,
    REPLICA_TABLE_BYTES = STORE_SHARD_IDS * ROW_BYTES,
    HEAD_SECOND_OFFSET = HEAD_BYTES + REPLICA_TABLE_BYTES,
    META_OFFSET = HEAD_SECOND_OFFSET + HEAD_BYTES,
    TABLE_ALIGN = 4096,
    CONFIG_HEAD_BYTES = 64,
    CONFIG_COPY_BYTES = STORE_CONFIG_MAX_BYTES + TABLE_ALIGN,
    VOID_TABLE_BYTES = STORE_VOIDS * VOID_BYTES,
};

#define OWNER_KINDS    ((unsigned)OWNER_CHECKPOINT + 1)
#define SEGMENT_STATES ((unsigned)SEGMENT_COMMITTED + 1)
#define STORE_MAGIC    UINT64_C(0x31564b4e41574f52) /* "ROWANKV1" */

struct superblock {
    uint64_t magic;
    uint32_t format_version;
    uint32_t server;
    uint64_t cluster;
    uint64_t segments;
    uint32_t segment_bytes;
    uint32_t shard_ids;
    uint64_t segment_offset;
    uint32_t entry_seed;
    uint32_t block_limit;
    uint8_t zero[452];
    uint32_t checksum; /* CRC32C of all before it */
};
_Static_assert(sizeof(struct superblock) == SUPERBLOCK_BYTES, "superblock");
_Static_assert(offsetof(struct superblock, cluster) == 16, "superblock");
_Static_assert(offsetof(struct superblock, segment_offset) == 40, "superblock");
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

/* The head of a copy of the configuration, which lies behind it. All zeros: never written. */
struct config_head {
    uint64_t term;       /* 1 or more; of two whole copies the higher one counts */
    uint32_t byte_count; /* of the encoded configuration, 1 to STORE_CONFIG_MAX_BYTES */
    uint8_t zero[48];
    uint32_t checksum; /* CRC32C of all before it, then of the configuration */
};
_Static_assert(sizeof(struct config_head) == CONFIG_HEAD_BYTES, "configuration");
_Static_assert(offsetof(struct config_head, checksum) == CONFIG_HEAD_BYTES - 4, "configuration");
_Static_assert(CONFIG_HEAD_BYTES + STORE_CONFIG_MAX_BYTES <= CONFIG_COPY_BYTES, "a copy holds it");

/* A row of the replica table. All zeros: never written. */
/* Two parts with a checksum each: the first changes when a configuration gives or takes the shard, the other one all
 * the time. */
struct row {
    uint32_t state; /* enum replica_state, but for REPLICA_DAMAGED */
    uint32_t first_epoch;
    uint64_t first_allocation;
    uint8_t zero[4];
    uint32_t checksum; /* CRC32C of the shard's id (2 bytes), then of all before it */
    uint64_t sequence; /* 1 or more; of two whole copies the higher one counts */
    uint64_t settled;
    uint8_t zeros[20];         /* for what failover will keep */
    uint32_t settled_checksum; /* likewise, of all before it */
};
_Static_assert(sizeof(struct row) == ROW_BYTES, "row");
_Static_assert(offsetof(struct row, checksum) == 20, "row");
_Static_assert(offsetof(struct row, settled) == 32, "row");
_Static_assert(offsetof(struct row, settled_checksum) == ROW_BYTES - 4, "row");
/* A row of the void table. All zeros: unused. */
struct void_row {
    uint64_t segment;
    uint64_t allocation; /* of the segment, when the range became void */
    uint32_t from;       /* in the segment */
    uint32_t bytes;      /* 1 or more */
    uint8_t zero[4];
    uint32_t checksum; /* CRC32C of all before it */
};
_Static_assert(sizeof(struct void_row) == VOID_BYTES, "void row");
_Static_assert(offsetof(struct void_row, from) == 16, "void row");
_Static_assert(offsetof(struct void_row, checksum) == VOID_BYTES - 4, "void row");
_Static_assert(VOID_TABLE_BYTES % TABLE_ALIGN == 0, "void table");

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "PM is little-endian");

/* Where the parts lie, in bytes from the start of the map. [2]: the two copies. */
struct store_geometry {
    uint64_t metas[2];
    uint64_t replicas[2];
    uint64_t configs[2];
    uint64_t voids[2];
    uint64_t segments;
};
struct store_geometry store_geometry(uint64_t segments);

/* The superblock that counts. Errors: those of store_read_identity; then *block is one that tells why. */
int superblock_read(const struct pm *pm, struct superblock *block);

/* Is this copy of the superblock (0 or 1) whole, and equal to `block`? */
bool superblock_is_whole(const struct pm *pm, unsigned copy, const struct superblock *block);

/* superblock_mend: stores `block` over a copy that is not whole. Not fenced: whole or not, the other one counts. */
void superblock_mend(struct pm *pm, const struct superblock *block);

/* run_read: one copy (0 or 1) of the run record of slot `parity`. */
enum run_copy { RUN_UNUSED, RUN_WHOLE, RUN_DAMAGED };
enum run_copy run_read(const struct pm *pm, unsigned copy, uint64_t parity, struct run_slot *slot);

/* config_read: one copy of the configuration, that at `place`; its bytes lie behind the head. It tells none of the last kind, which
 * is whole, too. */
enum config_copy {
    CONFIG_COPY_UNUSED,
    CONFIG_COPY_WHOLE,
    CONFIG_COPY_DAMAGED,
    CONFIG_COPY_OF_OTHER_VERSION
};
enum config_copy config_read(const struct pm *pm, uint64_t place, struct config_head *head);

/* void_read: row `number` of the void table at `table`. TORN: by a crash before its fence, or damaged. */
enum void_copy { VOID_UNUSED, VOID_WHOLE, VOID_TORN };
enum void_copy void_read(const struct pm *pm, uint64_t table, uint32_t number,
                         struct void_row *row);

/* Does it speak of the segment as it is used now? */
bool void_is_of(const struct void_row *row, uint64_t segment, const struct segment_meta *meta);

/* --- meta words --- */

#define META_ALLOCATION_MAX ((UINT64_C(1) << 40) - 1)

#define META_UNUSED 0 /* as in a new table: FREE, never allocated. The only word without a check */

uint64_t meta_encode(uint64_t segment, const struct segment_meta *meta);

/* Of a word that meta_encode made, as all of the mirror in DRAM are (store-1). */
struct segment_meta meta_unpack(uint64_t word);

/* False: these are not bytes that meta_encode gives for this segment. */
bool meta_decode(uint64_t segment, uint64_t word, struct segment_meta *out);

/* metas_choose: reads a segment's two words, and tells what they say. Of two whole ones the later counts. A whole one
 * counts beside a damaged one, but not if it says FREE: then the damaged one may have said that it holds entries. */
enum meta_copies {
    METAS_WHOLE,
    METAS_ONE_DAMAGED, /* the other one is in *out */
    METAS_DAMAGED      /* nobody can tell what the segment is; *out may be anything */
};
enum meta_copies metas_choose(const struct pm *pm, const struct store_geometry *at,
                              uint64_t segment, uint64_t words[2], struct segment_meta *out);

/* --- rows --- */

/* row_read: one copy of a row, of the table at `table`. ROW_TORN: its first part is whole, the other one is not. */
enum row_copy { ROW_UNUSED, ROW_WHOLE, ROW_TORN, ROW_DAMAGED };
enum row_copy row_read(const struct pm *pm, uint64_t table, uint16_t shard, struct row *row);

/* row_decode: of a whole one, of one that was never written, or, `torn`, of such a one. */
struct replica_row row_decode(const struct row *row, bool torn);

/* rows_choose: reads both copies of a row, and tells which counts; -1: both are damaged. */
int rows_choose(const struct pm *pm, const struct store_geometry *at, uint16_t shard,
                struct row rows[2], enum row_copy copies[2]);

#endif
