/* recover_state.h - the inside of a start: recover.c's and recover_apply.c's. */
#ifndef SERVER_RECOVER_STATE_H
#define SERVER_RECOVER_STATE_H

#include "server/shard/join.h"
#include "server/shard/recover.h"
#include "server/shard/recover_clients.h"
#include "server/shard/recover_places.h"
#include "server/store/log.h"
#include "server/store/wipe.h"

enum recover_phase {
    RECOVER_WIPE,
    RECOVER_CLIENTS,
    RECOVER_SCAN,
    RECOVER_SETTLE,
    RECOVER_FENCE,
    RECOVER_DONE
};

struct recover_shard {
    struct shard_state *state;
    struct suffix copies; /* in digest and clean logs: long entries, and those that the prefix is to
                             count; sorted once these logs are scanned */
    uint32_t counted;     /* of `copies`, how many were added to the prefix, in order */
    struct suffix made;   /* copied by this start; few, not sorted */
};

/* A copy of a long entry, of which the blocks in front of `offset` were met. */
struct recover_copy {
    uint16_t shard, block; /* the next block */
    uint64_t version, start, offset;
};

struct recover {
    struct server_common *common;
    enum recover_phase phase;
    struct recover_shard *shards; /* those held, in the order of their ids */
    uint32_t shard_count;
    struct recover_shard **by_id; /* STORE_SHARD_IDS; NULL: not held */
    struct wipe wipe;
    struct recover_place *places; /* R2, R3 */
    uint64_t place_count, place;
    bool in_segment;
    bool blocks_seen; /* in the current segment */
    bool in_copies;   /* R2: digest and clean logs are being scanned */
    bool possibly_incomplete;
    struct entry_scan scan;
    struct recover_copy copy;
    struct recover_clients clients;
    uint64_t heads; /* segments whose heads are still to be read for CLIENTS */
    struct join join;
    struct log log; /* of joined entries */
    struct pm_ticket ticket;
    struct recover_counts counts;
    uint64_t records_lost;
    uint8_t key[ENTRY_MAX_KEY_BYTES];
};

/* --- recover_apply.c --- */

/* A whole block at `offset` in the map counts for what it is. Errors: those of recover_poll. */
int recover_block(struct recover *recover, const struct entry_header *header, uint64_t offset);

/* The segments of copies are scanned (R2). Errors: those of recover_poll. */
int recover_pieces(struct recover *recover);

/* Adds copies below `version` to the prefix: their blocks may be nowhere else any more. */
void recover_count_copies(struct recover_shard *of, uint64_t version);

#endif
