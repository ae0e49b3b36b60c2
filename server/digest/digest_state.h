/* digest_state.h - the inside of a digest role: digest.c's and digest_scan.c's, and shown to those that check it
 * (test/sim). */
#ifndef SERVER_DIGEST_STATE_H
#define SERVER_DIGEST_STATE_H

#include "server/digest/digest.h"
#include "server/shard/apply.h"
#include "server/shard/join.h"
#include "server/store/log.h"

enum { DIGEST_ASKED = 2 }; /* questions about records that wait */

#define DIGEST_NOWHERE UINT32_MAX /* no position in a segment */

/* How soon to look at the open segment: nobody wakes a digest role for what lands in it. */
#define DIGEST_LOOK_MIN_NS (2 * NS_PER_MS)
#define DIGEST_LOOK_MAX_NS (64 * NS_PER_MS)
#define DIGEST_END_NS      (20 * NS_PER_MS)

/* How long to wait in front of a place that is not whole, and between two scans from the first gap. */
#define DIGEST_PATIENCE_NS (50 * NS_PER_MS)

/* Passes over all that has landed (digest_catch_up.c), numbered from 1. */
struct digest_catch_up {
    uint64_t asked, begun, done; /* the highest; at most one has begun and is not done */
    bool reached; /* the scan has come to the end of what has landed in the current segment */
    struct blog_segment
        *ahead;        /* then: the segment behind that which is looked at; NULL: none yet */
    uint32_t position; /* in it */
    uint64_t upto;     /* no segment behind this one is looked at */
};

struct digest {
    struct server_common *common;
    uint32_t number;
    struct role role;
    struct reclaim_role reclaim;
    uint64_t epoch; /* of this poll: what it finds is held since then */
    bool has_all;   /* each shard that was handed out to it has been taken */
    struct shard_state *shards[STORE_SHARD_IDS]; /* by id; those this role owns */
    struct shard_list owned;                     /* the same, a list */
    uint32_t frozen;                             /* of these, those that are split */
    struct join join;
    bool join_ready;
    struct log log; /* of joined entries, and of those that come by message */
    uint64_t
        kept_from; /* D10: full segments of it, from that allocation on, are not committed yet; 0: none */
    uint64_t ends_ns; /* E8: when it is closed; 0: nothing in it has to be */
    bool copied;      /* something was joined there that may not be fenced */
    struct queries queries;
    struct queries stores;        /* QUERY_STORE, oldest first */
    _Atomic uint64_t stores_from; /* digest_stores_from */
    _Atomic uint32_t *halves;     /* by segment: entries of which a part lies there (E7) */
    struct queries waiting;       /* QUERY_SUFFIX, until the scan has caught up */
    uint64_t look_after_ns;       /* interval of the next look; 0: wait to be woken */
    uint64_t look_ns;             /* when */
    bool stuck;                   /* in front of a block that found no space or memory (D2) */
    uint64_t now_ns;

    /* The scan (digest_scan.c). Positions are bytes of the current segment. */
    struct blog_segment *current; /* NULL: the backup log has not begun */
    struct entry_scan scan;       /* of it */
    uint32_t gap;                 /* the first place that was stepped over; NOWHERE: none */
    uint32_t reached;             /* gaps in front of it have been waited for */
    uint64_t
        wait_ns; /* since when the scan waits in front of a place that is not whole; 0: it does not */
    uint32_t ahead; /* how far what is behind that place was searched for a whole block; 0: not */
    uint64_t again_ns;       /* when it went back to the first gap last, or met that */
    uint64_t again_after_ns; /* how long after that it does without a question */

    struct digest_catch_up catch_up;

    struct acknowledged_clients acknowledged;
    uint64_t age_ns; /* when what is kept of clients' operations becomes older (digest_tail.c) */

    struct shard_list releasing; /* asked back */
    struct shard_list missing;   /* shards that lack committed versions */
    struct counter entries, fetches;
    uint8_t key[ENTRY_MAX_KEY_BYTES];
};

/* A whole block, and what the stages of a scan have found out about it. */
struct digest_block {
    struct entry_header header;
    uint32_t offset;                   /* in the segment */
    struct shard_state *shard;         /* if it is of an entry that this role applies; else NULL */
    const uint8_t *key;                /* if `shard`, and the entry is this one block */
    uint64_t hash;                     /* of that */
    const struct index_bucket *bucket; /* likewise: index_prefetch */
    struct index_hint hint;            /* likewise: index_prefetch_entry */
};

/* --- digest.c --- */

/* A whole entry that came by message becomes a part of the replica. Errors: ROWAN_ENOMEM. */
int digest_apply(struct digest *digest, struct shard_state *shard, const struct apply_entry *entry);

/* Applies a whole block of the current segment. Errors: it cannot be applied now; come back to it. */
int digest_apply_block(struct digest *digest, const struct digest_block *block);

/* The shard of the entry that the block belongs to, if this role applies such entries; else NULL. */
struct shard_state *digest_shard_of(const struct digest *digest, const struct entry_header *header);

/* A segment is about to be closed: one that was scanned to its end, whose number is `left`, or (0) the full one of the log. */
void digest_close_segment(struct digest *digest, uint64_t left);

/* The log is about to be closed, or a shard has left the role while segments of the log were kept. `context` is the role. */
void digest_log_closes(void *context);

/* Raises the shard's settled version, as far as that goes. */
void digest_settle(struct digest *digest, struct shard_state *shard);

/* --- digest_missing.c --- */

/* The scan goes back to what it stepped over: what is committed by now, it will have passed. */
void digest_seek(struct digest *digest);

/* Asks for what is missing, after a scan of all places where it may be. True if there is more to do at once. */
bool digest_seek_missing(struct digest *digest, uint64_t *wake_ns);

/* An answer came in vain, or may be lost: if something is still missing then, the next question is due after the shortest
 * interval. */
void digest_ask_soon(struct digest *digest, struct shard_state *shard);

/* --- digest_tail.c --- */

/* The shard is this role's from now on. */
void digest_tail_take(struct digest *digest, struct shard_state *shard);

/* What was added is settled, up to there. */
void digest_tail_settled(struct shard_state *shard);

/* The primary says that these versions are gone. */
void digest_tail_gone(struct shard_state *shard, const struct prefix_range *range);

/* Now and then. */
void digest_tail_age(struct digest *digest);

/* A question about completion records is answered. False: there was none. */
bool digest_tail_answer(struct digest *digest);

/* digest_tail_leave: the shard is not this role's any more; this server is going to lead it. Its suffix is sorted, and
 * its completion records are complete, as far as was known here. */
void digest_tail_leave(struct shard_state *shard);

/* --- digest_catch_up.c --- */

/* digest_catch_up_begin: a ticket for digest_caught_up, which is true once everything that had landed when this was called
 * is applied, as far as it is whole: of the open segment, too, and without waiting in front of what is not. Tickets rise. */
uint64_t digest_catch_up_begin(struct digest *digest);
static inline bool digest_caught_up(const struct digest *digest, uint64_t ticket)
{
    return digest->catch_up.done >= ticket;
}

/* Before, and behind digest_scan_some: true if anything was done. */
void digest_catch_up_start(struct digest *digest);
bool digest_catch_up_step(struct digest *digest);

/* The scan goes on without waiting. */
static inline bool digest_hurries(const struct digest *digest)
{
    return digest->catch_up.begun > digest->catch_up.done && !digest->catch_up.reached;
}

/* --- digest_store.c --- */

/* Entries came by message: queues them. */
void digest_store(struct digest *digest, struct query *query);

/* Goes on with them; true if anything moved. Lowers *wake_ns. */
bool digest_store_poll(struct digest *digest, uint64_t *wake_ns);

/* What must not be committed may be less from now on, or more: digest_stores_from. */
void digest_store_release(struct digest *digest);

/* Nobody goes on with what has come in part. */
void digest_store_drop(struct digest *digest, struct shard_state *shard);

/* Since which epoch are there entries that were stored and not applied yet? RECLAIM_NOTHING: there are none. */
uint64_t digest_store_held(const struct digest *digest);

/* --- digest_release.c --- */

/* The control role asks for a shard. */
void digest_release(struct digest *digest, const struct command_release *release);

/* Returns those of which all that has landed is applied. True if it did anything, or has more to do at once. */
bool digest_release_poll(struct digest *digest);

/* --- digest_scan.c --- */

/* Begins with a segment. */
void digest_enter(struct digest *digest, struct blog_segment *segment);

/* A bounded part of the scan; false if there was nothing to do. */
bool digest_scan_some(struct digest *digest);

/* Back to the first gap. */
void digest_scan_again(struct digest *digest);

/* Is the scan on its way back from the first gap? */
static inline bool digest_is_behind(const struct digest *digest)
{
    return digest->scan.position < digest->reached;
}

#endif
