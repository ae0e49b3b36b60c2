/* clean_state.h - the inside of the clean role: clean.c and its other files share it, and test/sim looks at it. */
#ifndef SERVER_CLEAN_STATE_H
#define SERVER_CLEAN_STATE_H

#include "server/clean/clean.h"
#include "server/shard/join.h"
#include "server/shard/records_question.h"
#include "server/shard/records_table.h"
#include "server/store/checkpoint.h"
#include "server/store/log.h"

enum {
    CLEAN_VICTIMS = 16, /* under way at a time */
    CLEAN_CLOSING = 4,  /* segments of the log that are full and not checked */
    CLEAN_CLIENTS = 4096,
    CLEAN_NEEDS = 64, /* shards of which a victim waits for a commit version */
};

/* In the order in which they come (clean.c). */
enum victim_step {
    VICTIM_SCAN,   /* what is live is copied */
    VICTIM_COMMIT, /* superseders of entries in it are not committed yet */
    VICTIM_COPIED, /* the segments with the copies are not checked yet */
    VICTIM_GRACE,  /* somebody may still hold an offset */
    VICTIM_DIRTY,  /* that it is DIRTY is not durable yet, or somebody still reads it */
    VICTIM_ZERO,
    VICTIM_ZEROED, /* that it is zero is not durable yet */
};

/* An operation of which this run has written a stub (K8). */
struct clean_stub {
    struct records_item item;
    uint16_t shard;
};

/* What is at or below that version of the shard supersedes, once it is committed. */
struct clean_needed {
    uint16_t shard;
    uint64_t version;
};

struct victim {
    enum victim_step step;
    uint64_t segment;
    uint64_t
        copies; /* the last segment of the log, by number, in which a copy lies; 0: there is none */
    uint64_t ticket; /* GRACE, DIRTY: of reclaim_retire */
    struct pm_ticket fence;
    uint32_t position;  /* ZERO */
    bool of_checkpoint; /* GRACE is its first step: it held nothing else */

    uint64_t exposures; /* of the server, when its last scan began (K9) */
    uint64_t tidies;    /* the pass for tombstones that has found it; 0: none */

    /* SCAN, COMMIT */
    bool keep; /* nothing is waited for: what is not superseded by a committed version is copied */
    uint32_t need_count;
    struct clean_needed needs[CLEAN_NEEDS];
    uint64_t until_ns; /* COMMIT */
};

/* A segment that cannot be emptied: no victim until then, or until fewer items lead there. */
struct clean_parked {
    uint64_t until_ns;
    uint64_t items; /* if it is for what cannot be read: so many did; else 0 */
    bool stuck;     /* it holds what cannot be read (V5), as far as one try can tell */
    uint32_t
        named; /* nor while the suffix of a shard may name what it holds: 1 + the shard's id; 0: of none (K9) */
};

/* A full segment of the log: fenced, then read once more. */
struct clean_closing {
    uint64_t number; /* of the log's segments */
    uint32_t tail;   /* bytes in it */
    struct pm_ticket fence;
    struct entry_scan scan;
};

/* What the owner of a shard told of a client. */
struct clean_client {
    uint32_t client;  /* 0: nobody told */
    uint32_t lowest;  /* nobody asks for its operations below */
    uint32_t owner;   /* who told: its number */
    uint64_t victims; /* how many were begun by then */
};

/* A copy whose index item could not be swapped yet, because the index grows. */
struct clean_swap {
    struct index *index; /* NULL: none */
    uint64_t hash, from, to;
};

/* Between two looks for tombstones that may go. */
#ifdef ROWAN_SIM /* test/sim chooses: many passes within a run, or none */
extern uint64_t clean_tombstones_ns;
#define TOMBSTONES_MIN_NS clean_tombstones_ns
#else
#define TOMBSTONES_MIN_NS NS_PER_S
#endif

/* In the order in which they come (clean_tombstones.c). */
enum clean_tombstones_step {
    TOMBSTONES_REST,
    TOMBSTONES_CLEAR,
    TOMBSTONES_GATHER,
    TOMBSTONES_SEARCH,
    TOMBSTONES_REMOVE,
    TOMBSTONES_TIDY,
};

/* Of a shard, in this pass. */
struct clean_tombstone_bounds {
    uint64_t settled; /* everywhere, when it began */
    uint64_t newest;  /* version of its candidates; 0: there is none */
    uint64_t unknown; /* the lowest version of which the key could not be read; 0: there is none */
};

struct clean_tombstones {
    enum clean_tombstones_step step;
    uint64_t *sought, *met; /* maps: a bit by hash (B4); 16 KiB for a segment, 32 MiB at most */
    struct clean_tombstone_bounds *bounds; /* by shard; 1.5 MiB */
    uint32_t words, shift;                 /* of each map; from a hash to a bit */
    uint32_t cleared;                      /* words */
    uint64_t pass;                         /* the number of this one; the first is 1 */
    bool *gathered;                        /* by segment: GATHER has read it */
    bool *tidy;                            /* by segment: to be cleaned in TIDY */
    uint64_t since;                        /* allocations up to that one are of before this pass */
    uint64_t count;                        /* candidates */
    uint64_t removed;                      /* items, in this pass or the last */
    uint64_t tidied;                       /* segments, likewise */
    _Atomic bool hopes;                    /* a pass is on its way, or was not in vain */
    uint64_t read_ns;                      /* how long it has read, up to the last poll */
    uint64_t polled_ns;                    /* that one */
    bool reading;                          /* it did then */

    uint64_t segment; /* `scan` is in, if `inside`, else the next */
    bool inside;
    struct entry_scan scan;

    bool wanted;      /* there may be something to do */
    bool quiet;       /* nothing was written for a while */
    uint64_t written; /* a sum of versions, when it was looked last */
    uint64_t periods; /* of the control role, by then */
    uint64_t ended_ns, look_ns, wait_ns;
};

/* How often it is looked whether a checkpoint is worth its bytes, the least time between two, while others write and else,
 * and how many segments must have become committed. */
#ifdef ROWAN_SIM /* test/sim chooses: many within a run, or none */
extern uint64_t clean_checkpoint_ns;
#define CHECKPOINT_LOOK_NS clean_checkpoint_ns
#define CHECKPOINT_MIN_NS  clean_checkpoint_ns
#define CHECKPOINT_BUSY_NS clean_checkpoint_ns
enum { CHECKPOINT_LEAST = 1 };
#else
#define CHECKPOINT_LOOK_NS NS_PER_S
#define CHECKPOINT_MIN_NS  (5 * NS_PER_S)
#define CHECKPOINT_BUSY_NS (30 * NS_PER_S)
enum { CHECKPOINT_LEAST = 8 };
#endif

/* In the order in which they come (clean_checkpoint.c). */
enum clean_checkpoint_step {
    CHECKPOINT_REST,
    CHECKPOINT_COVERED,      /* the segments that it covers are written down */
    CHECKPOINT_SHARDS,       /* the next shard is to begin */
    CHECKPOINT_ITEMS,        /* its index is written, and does not grow meanwhile */
    CHECKPOINT_COMMIT,       /* what it leads to outside of covered segments is not committed yet */
    CHECKPOINT_RECORDS_TOLD, /* its owner tells its completion records */
    CHECKPOINT_FENCE,
    CHECKPOINT_ENDED, /* END is not durable yet */
};

struct clean_checkpoint {
    enum clean_checkpoint_step step;
    uint64_t id; /* of the one that is written */
    struct log log;
    uint32_t blocks, step_bytes; /* written: in all, in this poll */
    bool *covers;                /* by segment */
    uint64_t covers_of; /* the checkpoint that `covers` is of, once it is whole; 0: of none */
    uint64_t segment;   /* of these, the next to be written */
    uint32_t shard;
    uint64_t bucket, buckets; /* of the shard's index: the next, how many */
    uint64_t until_ns;        /* COMMIT */
    uint64_t newest;          /* version that items of the shard lead to in no covered segment */
    bool leads;               /* a worker of this server leads the shard, as was written */
    struct pm_ticket fence;
    struct records_question question;
    bool asking; /* the owner has it, or has answered it */
    bool drops;  /* there may be segments that no checkpoint needs any more */

    bool wanted; /* there may be something to do */
    uint64_t periods, written_versions;
    uint64_t look_ns, begun_ns; /* the next look; the last checkpoint, 0: there was none */
    struct counter written;     /* checkpoints, since the start */

    _Alignas(8) uint8_t value[CHECKPOINT_VALUE_BYTES];
    _Alignas(8) uint8_t block[CHECKPOINT_BLOCK_BYTES];
};

struct clean {
    struct server_common *common;
    _Atomic uint32_t live_percent;
    _Atomic bool checkpoints; /* are to be written */
    struct role role;
    struct shard_state *shards[STORE_SHARD_IDS]; /* by id; read only */
    uint32_t owners[STORE_SHARD_IDS];            /* by id: the worker that leads it */
    struct inbox *questions[STORE_SHARD_IDS];    /* by id: its owner's (records_ask) */
    uint32_t numbers[STORE_SHARD_IDS];           /* by id: its owner's, among all of this server */
    bool led[STORE_SHARD_IDS];                   /* by id: one of our workers leads it */
    uint32_t leads[UINT8_MAX + 1];               /* by number: shards that this worker leads */
    struct shard_list leaving; /* that have left the server: a list by owned_link, */
    uint64_t leaving_cursor;   /* and how far the index of the first was walked (clean_forget.c) */
    bool started;
    uint64_t now_ns;

    struct victim victims[CLEAN_VICTIMS];
    uint32_t victim_count;
    struct clean_parked *parked; /* by segment */
    uint64_t run; /* allocations up to that one are of earlier runs, and of the start */

    struct counter freed; /* segments, since the start */

    /* Does it help? (clean.c, is_in_vain) */
    uint64_t emptied; /* victims that held entries, freed since the start */
    uint64_t emptied_before, filled_before;
    uint64_t rest_ns, rest_until_ns, rest_look_ns;

    /* The scan of the victim in VICTIM_SCAN. */
    struct entry_scan scan;
    struct join_piece entry; /* that the scan of the victim is in */
    uint32_t
        exposed; /* blocks above their shard's settled version that do not end a whole entry (K6) */
    uint32_t named; /* as in struct clean_parked */
    bool looks;     /* it is the scan in front of that: for what suffixes may name */
    struct clean_swap swap;

    /* Completion records (clean_records.c). */
    struct clean_client clients[CLEAN_CLIENTS];
    struct records_question question;
    bool asking;                /* an owner has it, or has answered it */
    uint32_t asked;             /* which: its number */
    uint64_t victims_begun;     /* and shards that changed owners */
    struct records_table stubs; /* of struct clean_stub; 40 B each with its bucket */

    struct clean_tombstones tombstones;
    struct clean_checkpoint checkpoint;

    struct log log;
    bool is_short;                               /* the last reservation found no space */
    struct clean_closing closing[CLEAN_CLOSING]; /* oldest first */
    uint32_t closing_count;
    uint32_t zero_bytes; /* that may be zeroed in this poll */
    uint64_t checked;    /* segments of the log, by number, up to which all are durable and whole */

    uint8_t key[ENTRY_MAX_KEY_BYTES];
};

/* How badly space is needed. TIDY: not at all, but a pass has found segments to be cleaned. */
enum clean_need { CLEAN_REST, CLEAN_TIDY, CLEAN_STEADY, CLEAN_URGENT };
enum clean_need clean_need(const struct clean *clean);

/* Space in the log. Errors: ROWAN_EFULL. */
int clean_reserve(struct clean *clean, uint32_t bytes, uint64_t *offset);

/* May so many segments be taken for what is not needed, without getting to the reserve? */
bool clean_may_take(const struct clean *clean, uint64_t segments);

/* It changes with each write that this server completes as a primary, or digests as a backup. */
uint64_t clean_written(const struct clean *clean);

/* --- clean_forget.c --- */

/* The shard is another role's, and may be read. */
void clean_read(struct clean *clean, const struct command_read *read);

/* The shard has left the server, and is this role's: nothing of it counts any more on return, and it is freed in steps. */
void clean_forget(struct clean *clean, struct shard_state *shard);

/* A step of that. True if there was something to do. */
bool clean_forget_some(struct clean *clean);
void clean_forget_close(struct clean *clean);

/* --- clean_choose.c --- */

/* NULL: it is none. */
const struct victim *clean_victim(const struct clean *clean, uint64_t segment);

/* Would CLEAN_VICTIMS of them fill a quarter of what they free? Reads a word of each segment. */
bool clean_gives_much(const struct clean *clean);

/* The segment that is best cleaned next; false: none is worth it. */
bool clean_choose(const struct clean *clean, enum clean_need need, uint64_t *segment);

/* --- clean_records.c --- */

/* False: a worker is still asked. */
bool clean_records_poll(struct clean *clean);

enum clean_record {
    CLEAN_RECORD_NONE,
    CLEAN_RECORD_NEEDED, /* a stub has to stay */
    CLEAN_RECORD_ASKED   /* come back */
};

/* Of an entry or stub that goes. */
enum clean_record clean_record(struct clean *clean, const struct victim *victim,
                               const struct entry_header *header);

/* K8. clean_record_is_copied: has this run written a stub for that operation? It may not be durable yet.
 * clean_record_copied: it has now. Both of a victim of before this run; of others they know nothing. */
bool clean_record_is_copied(const struct clean *clean, const struct victim *victim,
                            const struct entry_header *header);
void clean_record_copied(struct clean *clean, const struct victim *victim,
                         const struct entry_header *header);

/* --- clean_tombstones.c --- */

/* Errors: ROWAN_ENOMEM. */
int clean_tombstones_init(struct clean *clean);
void clean_tombstones_fini(struct clean *clean);

/* A bounded part of a pass, about `bytes` read; 0: there is no time for it. In each poll. True if it did anything. */
bool clean_tombstones_poll(struct clean *clean, uint32_t bytes, uint64_t *wake_ns);

/* This entry was copied; superseded: the index does not lead to it. */
void clean_tombstones_copied(struct clean *clean, const struct entry_header *header, uint64_t hash,
                             bool superseded);

/* --- clean_checkpoint.c --- */

/* Errors: ROWAN_ENOMEM. */
int clean_checkpoint_init(struct clean *clean);
void clean_checkpoint_fini(struct clean *clean);

/* A bounded part of writing one. In each poll. True if it did anything. */
bool clean_checkpoint_poll(struct clean *clean, uint64_t *wake_ns);

/* One that is being written is dropped. */
void clean_checkpoint_abort(struct clean *clean);

/* --- clean_copy.c --- */

void clean_copy_begin(struct clean *clean, struct victim *victim);

/* clean_copy_tell: of which shards something that is live there cannot be read. No victim is being scanned. */
void clean_copy_tell(struct clean *clean, struct victim *victim);

/* K9: may a suffix name something of that shard in a COMMITTED segment? */
static inline bool clean_is_exposed(const struct clean *clean, uint32_t id)
{
    const struct shard_state *shard = clean->shards[id];
    return shard && atomic_load_explicit(&shard->exposed, memory_order_acquire) != UINT64_MAX;
}

/* Are all superseders that were waited for committed? ROWAN_EAGAIN: an epoch has ended meanwhile, and they may be
 * gone. */
int clean_copy_is_committed(const struct clean *clean, const struct victim *victim);

enum clean_copied {
    CLEAN_MORE, /* there is more to do at once */
    CLEAN_WAIT, /* for space, a check, an index that grows */
    CLEAN_DONE, /* nothing in the victim is live */
    CLEAN_STUCK /* something in it is live, and cannot be copied */
};

/* A bounded part of the scan, `bytes` at most. */
enum clean_copied clean_copy(struct clean *clean, struct victim *victim, uint32_t bytes);

#endif
