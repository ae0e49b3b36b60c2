/* store.h - a server's PM: superblock, segment meta table, replica table, configuration, void table, then 4 MiB segments.
 *
 * The layout, in bytes from the start of the map (all little-endian):
 *   0        superblock, 512: magic (8), format version (4), server (4), cluster (8), segments (8),
 *            segment bytes (4), shard ids (4), offset of the segments (8), the entries' seed (4) and
 *            block limit (4), zeros, CRC32C (4)
 *   1024     run record, slot 0, 64: sequence (8), incarnation (8), boot id (16), durability (4),
 *            possibly incomplete (4), zeros, CRC32C (4)
 *   1536     run record, slot 1
 *   4096     replica table, 4 MiB: one 64-byte row a shard id (65536 of them): state (4), first epoch (4),
 *            first allocation (8), zeros (4), CRC32C (4), sequence (8), settled (8), zeros (20), CRC32C (4)
 *   4198400  superblock and run records, second copies
 *   4202496  segment meta table: one 8-byte word a segment
 *   ...      configuration, 1 MiB + 4096, 4096-aligned: term (8), bytes (4), zeros, CRC32C (4) of that and of the
 *            encoded configuration, which follows at 64
 *   ...      void table, 32 KiB: 1024 rows of 32 bytes: segment (8), allocation (8), from (4), bytes (4), zeros (4),
 *            CRC32C (4)
 *   ...      replica table, second copy
 *   ...      segment meta table, second copy
 *   ...      configuration, second copy
 *   ...      void table, second copy
 *   ...      segments, aligned to 4 MiB
 *
 * A segment's meta is one word, so one store commits each transition. All zeros: free, never used. Else
 *   state (4 bits) | owner kind (4) | owner number (8) | allocation sequence (40) | check (8): CRC-8/AUTOSAR of
 *   the first 7 bytes and the segment's number (4 bytes)
 *
 * Free means zeroed and fenced. A crash leaves what was not free dirty.
 */
#ifndef SERVER_STORE_H
#define SERVER_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/entry/entry.h"
#include "common/fabric/fabric.h"
#include "common/pm/pm.h"

#define STORE_SEGMENT_BYTES FABRIC_SEGMENT_BYTES

enum {
    STORE_SHARD_IDS = 65536,
    STORE_BOOT_ID_BYTES = 16,
    STORE_VOIDS =
        1024, /* void ranges: a sender has one claim at a time, and there are FABRIC_MAX_ZONE_SENDERS */
    STORE_CONFIG_MAX_BYTES =
        1 << 20, /* more than the largest that the coordination service takes */
};

enum segment_state {
    SEGMENT_FREE = 0,
    SEGMENT_DIRTY = 1,     /* to be zeroed before it is free */
    SEGMENT_USING = 2,     /* has space for entries */
    SEGMENT_USED = 3,      /* no space; some entries may not be on all replicas */
    SEGMENT_COMMITTED = 4, /* no space; every entry is on all replicas */
};

enum segment_owner {
    OWNER_NONE = 0,
    OWNER_WORKER = 1,
    OWNER_BACKUP_LOG = 2,
    OWNER_DIGEST = 3,
    OWNER_UNKNOWN =
        4, /* both copies of its meta were damaged: it counts as USED, under a new number */
    OWNER_CLEAN = 5,
    OWNER_CHECKPOINT = 6, /* the clean role's alone, in every state */
};

/* "committed", "backup_log": as in the text and the JSON of all programs. */
extern const char *const segment_state_names[SEGMENT_COMMITTED + 1];
extern const char *const segment_owner_names[OWNER_CHECKPOINT + 1];

struct segment_meta {
    enum segment_state state;
    enum segment_owner owner;
    uint32_t owner_number;
    uint64_t allocation; /* rises with every allocation of this server; 40 bits */
    bool closed;         /* USED: what was torn is void, so what is not whole is damage (torn.h) */
};

struct store_identity {
    uint64_t cluster;
    uint32_t server;
    struct entry_format
        format; /* of its entries: kept for who reads them without the cluster (server/check).
                                   No opener compares it */
};

/* A run of a server on this PM. Written when a configuration has named the run's incarnation and the
 * run has scanned all data of the one before; nothing else of the run is written earlier. */
struct store_run {
    uint64_t sequence; /* 1 or more; the highest is the last run's */
    uint64_t incarnation;
    uint8_t boot_id[STORE_BOOT_ID_BYTES]; /* of the host */
    enum pm_durability durability;
    bool possibly_incomplete; /* it began on data that may lack acknowledged writes, and has not yet
                                 reconciled it with the other replicas' */
};

enum replica_state {
    REPLICA_NONE = 0,
    REPLICA_FILLING = 1,
    REPLICA_FULL = 2,
    REPLICA_DAMAGED = 3, /* both copies of the row are: nobody can tell what it said. Never set */
};

struct replica_row {
    enum replica_state state;
    uint32_t first_epoch;
    uint64_t first_allocation;
    uint64_t
        settled; /* a version: up to which this replica is contiguous, the commit version has been
                         told, and every segment in which such an entry first arrived is sealed and
                         digested. 0: none */
    bool
        torn; /* what was settled is not known any more: a host's crash in a run that did not fence, or damage */
};

struct store;

/* store_segments_in: how many segments fit a map of `pm_bytes`; 0 if not even one. */
uint64_t store_segments_in(uint64_t pm_bytes);

/* Formatting needs two syncs, with every durability: without its superblock a map can never be opened again. So a role
 * does it in steps. */
struct store_format {
    struct pm *pm;
    struct pm_ticket ticket;
    bool committed; /* the magic is stored; else the rest is */
};

/* store_format_start: begins to make a new store on a map that is all zeros. Errors: ROWAN_EINVALID
 * (too small), ROWAN_EEXISTS (a superblock is there). */
int store_format_start(struct pm *pm, const struct store_identity *identity,
                       struct store_format *out);

/* store_format_poll: 1 when the store is there and durable, 0 not yet, ROWAN_EIO. */
int store_format_poll(struct store_format *format);

/* store_read_identity: whose store is this? Checks magic, format version, checksum and geometry.
 * Errors: ROWAN_ENOTFOUND (all zeros: never formatted), EFORMAT, EDAMAGED. */
int store_read_identity(const struct pm *pm, struct store_identity *out);

/* store_is_blank: is everything behind the superblock of a map that was never formatted zero? So it is
 * in a new file; on a device it need not be. Reads all of it: for start-up. */
bool store_is_blank(const struct pm *pm);

/* store_why: the sentence that tells an operator why store_read_identity answered `error`. */
void store_why(const struct pm *pm, int error, char *why, size_t why_bytes);

/* store_read_run: the last run, of a map for which store_read_identity answered 0. Errors:
 * ROWAN_ENOTFOUND (formatted, but no run wrote its record: it holds no data), EDAMAGED. */
int store_read_run(const struct pm *pm, struct store_run *out);

/* store_run_is_incomplete: may the data that this run left lack writes that it acknowledged? Yes if
 * it was incomplete before, or if the run did not fence and the host's boot id is another one now. */
bool store_run_is_incomplete(const struct store_run *run,
                             const uint8_t boot_id[STORE_BOOT_ID_BYTES]);

/* store_run_write: this run's record becomes the last; its `sequence` is filled in. Stored, not
 * fenced: the run may begin when a sync started after this call is done, with every durability: of two records that
 * are both torn nobody could read any. Errors: ROWAN_EDAMAGED. */
int store_run_write(struct pm *pm, struct store_run *run);

/* The newest configuration that this server adopted, as common/cluster encodes it, with the secret. */
struct store_config {
    uint64_t term;
    const void *bytes; /* in the map: until the next store_config_start */
    uint32_t byte_count;
};

/* store_config_read: of a map for which store_read_identity answered 0; else its errors. Others: ROWAN_ENOTFOUND (none
 * was stored), EDAMAGED (no copy is whole). `out` is untouched then. */
int store_config_read(const struct pm *pm, struct store_config *out);

struct store_config_write {
    struct pm *pm;
    uint64_t term;
    uint64_t from, to; /* places of the copies; `to` 0: both are stored */
    uint32_t byte_count;
    struct pm_ticket ticket;
};

/* store_config_start: begins to store a configuration, whose term is above that of the stored one. One is under way at a
 * time. `bytes` are the caller's again on return. Errors: those of store_read_identity. */
int store_config_start(struct pm *pm, const struct store_config *config,
                       struct store_config_write *out);

/* store_config_poll: 1 when both copies are durable, with every durability; 0 not yet, ROWAN_EIO. */
int store_config_poll(struct store_config_write *write);

/* store_open: the map must belong to this cluster and server. `pm` outlives the store. What is left of
 * a damaged pair of copies is stored over the other one, and the log says how many there were.
 * Errors: those of store_read_identity, ROWAN_ECLUSTER, ENOMEM. */
int store_open(struct pm *pm, const struct store_identity *identity, struct store **out);
void store_close(struct store *store);

struct pm *store_pm(const struct store *store);
uint64_t store_segments(const struct store *store);
uint64_t store_segments_free(const struct store *store);
uint64_t store_segments_with(const struct store *store, enum segment_state state);
uint64_t store_segments_owned(const struct store *store, enum segment_owner owner);

/* Segments that were allocated since the open; OWNER_NONE: by all. */
uint64_t store_segments_allocated(const struct store *store, enum segment_owner owner);

/* The place of a segment in the map, and the segment of a place. */
uint64_t store_segment_offset(const struct store *store, uint64_t segment);
uint64_t store_segment_at(const struct store *store, uint64_t offset);

/* The last allocation number that was given; never 0. */
uint64_t store_allocations(const struct store *store);

/* What of the segments is live (live.h). */
struct live;
const struct live *store_live(const struct store *store);

/* The last free segments are the clean role's: without one to copy to it could make none (H13). In front of them one is
 * the digest roles', who must be able to store what they have fetched, and one more the workers', for commit versions:
 * without either nothing is settled, so nothing cleaned. The landing zone leaves all of these. */
enum { STORE_CLEAN_SEGMENTS = 2, STORE_DIGEST_SEGMENTS = 1, STORE_WORKER_SEGMENTS = 1 };

/* store_allocate: makes a free segment USING. Its meta is stored but not fenced: the first fence
 * that makes an entry in it durable makes it durable, too. Never blocks; any thread.
 * Errors: ROWAN_EFULL. */
int store_allocate(struct store *store, enum segment_owner owner, uint32_t owner_number,
                   uint64_t *segment);

/* store_transition: DIRTY->FREE, USING->USED, USED->COMMITTED, USING->COMMITTED, and any->DIRTY;
 * any other is a mistake of the programmer. The segment's owner only. */
void store_transition(struct store *store, uint64_t segment, enum segment_state state);

/* store_mark_closed: the USED segment is closed: says so in PM, by the caller's next fence. All of it is whole, durably. */
void store_mark_closed(struct store *store, uint64_t segment);
struct segment_meta store_meta(const struct store *store, uint64_t segment);

/* store_set_owner: the segment, which is not FREE or DIRTY, counts as that owner's. Before anybody else uses the store. */
void store_set_owner(struct store *store, uint64_t segment, enum segment_owner owner);

/* store_segment_is_zero: are `bytes` of a segment from `from` all zero? Reads them. */
bool store_segment_is_zero(const struct store *store, uint64_t segment, uint32_t from,
                           uint32_t bytes);

/* store_void_add: whatever is or will be stored in `bytes` of a segment from `from` does not count, as soon as a fence
 * started after this call is done: the next open zeroes them before anybody reads them. One thread uses the void table
 * (the control role). Errors: ROWAN_ETOOMANY, and nothing has changed. */
int store_void_add(struct store *store, uint64_t segment, uint32_t from, uint32_t bytes);

/* store_void_drop: nothing of the segment is void any more: it was zeroed, that is fenced, and nobody can store there. */
void store_void_drop(struct store *store, uint64_t segment);

/* The replica table. One thread uses it (the control role). store_replica tells what was set last, at once.
 * store_replica_set touches DRAM only, so set as often as you like; a start of the server after a crash sees
 * the row as it was set or as it was before, until store_replica_sync has answered 1. */
struct replica_row store_replica(const struct store *store, uint16_t shard);
void store_replica_set(struct store *store, uint16_t shard, const struct replica_row *row);

/* store_replica_sync: a step of bringing all rows set so far to PM, in two fences. 1: they are durable there, in
 * both copies; 0: not yet, call again (a fence that is done wakes as always); ROWAN_EIO. Who sets rows all
 * the time never sees 1: set the next ones when it does. */
int store_replica_sync(struct store *store);

#endif
