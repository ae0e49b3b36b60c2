/* digest_state.h - the inside of a digest role: digest.c's and digest_scan.c's, and shown to those that check it
 * (test/sim). */
#ifndef SERVER_DIGEST_STATE_H
#define SERVER_DIGEST_STATE_H

#include "server/digest/digest.h"
#include "server/digest/taken.h"
#include "server/shard/join.h"
#include "server/store/log.h"

#define DIGEST_NOWHERE UINT32_MAX /* no position in a segment */

/* How soon to look at the open segment again: nobody wakes a digest role for what lands in it. And at gaps. */
#define DIGEST_LOOK_MIN_NS (2 * NS_PER_MS)
#define DIGEST_LOOK_MAX_NS (64 * NS_PER_MS)

/* Positions are bytes of the current segment. */
struct digest {
    struct server_common *common;
    uint32_t number;
    struct inbox inbox, outbox;
    struct shard_state *shards[STORE_SHARD_IDS]; /* by id; those this role owns */
    struct blog_segment *current;                /* NULL: the backup log has not begun */
    struct entry_scan scan;                      /* of the current segment */
    struct join join;
    bool join_ready;
    struct log log; /* of joined entries */
    struct digest_jobs jobs;
    struct tail_jobs tails;
    uint64_t look_after_ns; /* interval of the next look; 0: wait to be woken */
    uint64_t look_ns;       /* when */
    bool stuck;             /* in front of a block that found no space or memory (D2) */
    uint64_t now_ns;

    /* Passing over (digest_scan.c). */
    uint32_t stop;      /* where the scan of the open segment stopped; NOWHERE: it did not */
    uint64_t stop_ns;   /* since when, or when it was looked ahead from there last */
    uint32_t seen;      /* the furthest whole block that a look ahead met */
    uint32_t waited;    /* what is not whole in front of it has been waited for */
    uint64_t seen_ns;   /* when was looked ahead for these last */
    struct taken taken; /* of the current segment */
    uint32_t gap;       /* first position that was passed over and not taken; NOWHERE: none */
    bool looking;       /* at the gaps: on from there */
    uint32_t look_position;
    uint64_t look_gaps_ns;           /* when, at the earliest */
    uint64_t seek_ns, seek_after_ns; /* when to look without a question, how long after that */
    uint32_t reached; /* before the scan went back: what lies in front of it is not missing yet */

    struct shard_state *missing; /* shards that lack committed versions */
    _Atomic uint64_t entries, fetches;
    uint8_t key[ENTRY_MAX_KEY_BYTES];
};

/* --- digest.c --- */

/* Takes a whole block that lies at that offset of the PM. Errors: it cannot be taken now; look at it again. */
int digest_take_block(struct digest *digest, const struct entry_header *header, uint64_t offset);

/* --- digest_scan.c --- */

/* Begins with a segment. */
void digest_enter(struct digest *digest, struct blog_segment *segment);

/* A bounded part of the scan; false if there was nothing to do. */
bool digest_scan_some(struct digest *digest);

/* The next part of a look at all gaps, from the first if none has begun. FOUND: a block in one of them was whole
 * by now and is taken; more may be. */
enum digest_look { DIGEST_LOOK_GOES_ON, DIGEST_LOOK_FOUND, DIGEST_LOOK_DONE };
enum digest_look digest_look_on(struct digest *digest);

#endif
