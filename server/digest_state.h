/* digest_state.h - the inside of a digest role: digest.c's, and shown to those that check it (test/sim). */
#ifndef SERVER_DIGEST_STATE_H
#define SERVER_DIGEST_STATE_H

#include "server/digest.h"
#include "server/join.h"
#include "server/log.h"

enum {
    DIGEST_GAPS = 16, /* that are remembered; of further ones a commit version makes it ask */
};

/* Was passed over: positions in the segment, the second is that of a whole block. */
struct gap {
    uint32_t start, end;
};

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
    uint32_t stop;    /* where the scan of the open segment stopped; NOWHERE: it did not */
    uint64_t stop_ns; /* since when, or when it was looked ahead from there last */
    struct gap gaps[DIGEST_GAPS]; /* rising */
    uint32_t gap_count;
    bool looking; /* at the gaps: at this one next, from there or from its start */
    uint32_t look_gap, look_position;
    uint64_t look_gaps_ns;           /* when, at the earliest */
    uint64_t seek_ns, seek_after_ns; /* when to look without a question, how long after that */
    uint32_t reached; /* before the scan went back: what lies in front of it is not missing yet */
    struct shard_state *missing; /* shards that lack committed versions */
    _Atomic uint64_t entries, fetches;
    uint8_t key[ENTRY_MAX_KEY_BYTES];
};

#endif
