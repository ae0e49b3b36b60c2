/* recover_state.h - the inside of a start: that of recover.c and recover_*.c.
 *
 * A start has parts, one for each reactor, which a role there polls: of control the first, of other roles the rest. Every
 * shard belongs to one part, which alone writes its state.
 */
#ifndef SERVER_RECOVER_STATE_H
#define SERVER_RECOVER_STATE_H

#include "common/base/clock.h"
#include "server/shard/join.h"
#include "server/shard/recover.h"
#include "server/shard/recover_clients.h"
#include "server/store/checkpoint.h"
#include "server/store/log.h"
#include "server/store/wipe.h"

/* Until a part looks again at what the others have done. */
#define RECOVER_WAIT_NS NS_PER_MS

enum { RECOVER_STAGE_BLOCKS = 16 }; /* that go through the stages of application together */

enum recover_phase {
    RECOVER_WIPE,
    RECOVER_CLIENTS,
    RECOVER_CHECKPOINT,
    RECOVER_SCAN,
    RECOVER_SETTLE,
    RECOVER_FENCE,
    RECOVER_DONE
};

struct recover_shard {
    struct shard_state *state;
    const struct recover_part *part;
    struct suffix copies; /* in digest and clean logs: long entries, and those that the prefix is to
                             count; sorted once these logs are scanned */
    uint32_t counted;     /* of `copies`, how many were added to the prefix, in order */
    struct suffix made;   /* copied by this start; few, not sorted */
    uint64_t buckets;     /* of its index, as the checkpoint has it */
};

/* A whole block. */
struct recover_found {
    struct entry_header header;
    uint64_t offset; /* in the map */
    uint64_t hash;   /* index_hash of the key, of a put or delete of one block */
};

/* All blocks of a segment that count. Who scans it fills the list; then all parts read it. */
struct recover_list {
    _Atomic uint64_t filled; /* the list is that of the place before this one; 0: of none */
    uint32_t count;
    struct recover_found *blocks; /* one for each 64 B of a segment */
};

/* A block that a part applies, and what the stages in front of that have found out. */
struct recover_block {
    const struct recover_found *found;
    struct recover_shard *shard; /* NULL: commit versions, of many */
    const struct index_bucket *bucket;
    struct index_hint hint;
};

/* A segment that is to be scanned. */
struct recover_place {
    uint64_t order;
    uint64_t segment;
    bool has_copies;    /* of a digest or clean log; and a checkpoint's, which comes before these */
    bool of_checkpoint; /* (store/checkpoint.h) */
};

struct recover_part {
    struct recover *recover;
    uint32_t number;
    _Atomic bool over; /* it touches nothing any more; set last */
    int error;         /* then */

    /* The segment being scanned, for all parts. */
    bool in_segment;
    bool blocks_seen;
    bool torn_seen;   /* then it is gone through once more */
    uint64_t scanned; /* its place */
    struct entry_scan scan;

    /* Application, of its own shards. */
    _Atomic uint64_t applied; /* of places in front of it no list is needed any more */
    uint32_t position;        /* in the list of that place */
    bool in_copies;           /* R2: it is of a digest or clean log */
    struct join_piece copy;
    struct recover_block chosen[RECOVER_STAGE_BLOCKS]; /* of those in front of `position` */
    uint32_t chosen_count, chosen_next; /* those from `chosen_next` on are not applied yet */
    struct join join;
    uint32_t checkpoint_blocks; /* met by its scan */
    uint32_t *restored; /* by segment: items of a checkpoint that are not counted as live yet */
    struct recover_counts counts;
    uint64_t records_lost;
    uint8_t key[ENTRY_MAX_KEY_BYTES];
};

struct recover {
    struct server_common *common;
    enum recover_phase phase;
    struct recover_shard *shards; /* those held, in the order of their ids */
    uint32_t shard_count;
    struct recover_shard **by_id; /* STORE_SHARD_IDS; NULL: not held */
    struct wipe wipe;
    struct recover_place *places; /* R2, R3 */
    uint64_t place_count;
    struct recover_clients clients;
    bool needs_all;                        /* data are damaged, or may be incomplete (R11) */
    struct recover_checkpoint *checkpoint; /* while one is looked for */
    struct checkpoint_segment
        *covered; /* by segment, by the checkpoint that is used, or zeros; NULL: none is */
    uint64_t covered_count;
    uint32_t checkpoint_blocks; /* of it */
    uint64_t heads;             /* segments whose heads are still to be read for CLIENTS */
    struct pm_ticket ticket;
    uint64_t begun_ns, told_ns; /* by the clock: the scan; the last line about its progress */

    _Atomic bool scanning;      /* all parts may begin */
    _Atomic uint64_t next;      /* the first place that nobody has begun to scan */
    struct recover_list *lists; /* of place n at n % list_count */
    uint32_t list_count;
    struct recover_part *parts;
    uint32_t part_count;
    struct log log;             /* of joined entries, of all parts; */
    _Atomic bool log_is_in_use; /* by one of them (R10) */
};

/* Where the key of a put or delete of one block is. */
static inline const uint8_t *recover_key(const struct recover *recover, uint64_t offset)
{
    return (const uint8_t *)pm_at(recover->common->pm, offset) + ENTRY_HEADER_BYTES;
}

/* --- recover_row.c --- */

/* May the data lack something of that shard? */
bool recover_is_incomplete(const struct recover_options *options, uint16_t shard);

/* recover_row_read: what a start takes from the shard's row in the replica table, or gives it: first epoch, first
 * allocation, and as settled where the contiguous prefix begins: (first epoch, 0) at least. Errors: ROWAN_EDAMAGED (its data
 * should be here, and are not). */
int recover_row_read(const struct recover_options *options, const struct shard *shard,
                     struct replica_row *row);

/* recover_row_write: a shard that is held (`state`) gets a row; another one (NULL) loses it: what it left here is dead
 * (H15). */
void recover_row_write(struct store *store, uint16_t shard, const struct shard_state *state);

/* --- recover.c --- */

/* The segments of checkpoints, or all others that may hold entries: first digest logs, then what a cleaner wrote, then the
 * rest, each in the order of allocation. The caller frees *out. Errors: ROWAN_ENOMEM. */
int recover_places(const struct store *store, bool of_checkpoints, struct recover_place **out,
                   uint64_t *count);

/* --- recover_apply.c --- */

/* Does the part apply this block? Fills found and shard of *block. To be asked once of each block: it counts. */
bool recover_choose(struct recover_part *part, const struct recover_found *found,
                    struct recover_block *block);

/* The block counts for what it is. Errors: those of recover_poll; EAGAIN: nothing was done, come back (R10). */
int recover_block(struct recover_part *part, const struct recover_block *block);

/* The segments of copies are scanned (R2). Errors: those of recover_poll; EAGAIN: come back for the rest (R10). */
int recover_pieces(struct recover_part *part);

/* Adds copies below `version` to the prefix: their blocks may be nowhere else any more. */
void recover_count_copies(struct recover_shard *of, uint64_t version);

/* --- recover_checkpoint.c --- */

/* There is none: its segments are like others. Before places are asked for. */
void recover_checkpoint_disown(struct store *store);

/* Errors: ROWAN_ENOMEM; recover_checkpoint_close frees what there is. */
int recover_checkpoint_open(struct recover *recover);
void recover_checkpoint_close(struct recover *recover);

/* A bounded step of looking for one, before the scan. 1: it is over; the places are those that are to be scanned. Errors:
 * ROWAN_ENOMEM. */
int recover_checkpoint_step(struct recover *recover);

/* Once all parts are over: what it has restored is live. Errors: ROWAN_EDAMAGED (a block of it was not met again). */
int recover_checkpoint_settle(const struct recover *recover);

/* A block of it, of that shard. Errors: ROWAN_ENOMEM, EDAMAGED. */
int recover_checkpoint_apply(struct recover_part *part, struct recover_shard *of,
                             const struct recover_found *found);

/* --- recover_scan.c --- */

/* Errors: ROWAN_ENOMEM; recover_scan_close frees what there is. */
int recover_scan_open(struct recover *recover, uint32_t parts);
void recover_scan_close(struct recover *recover);

/* A segment was scanned, or is not to be. True: nothing had landed in it, and it is free. */
bool recover_leave(struct recover *recover, uint64_t segment, bool may_be_empty);

#endif
