/* query.h - a question about one shard, on its way through the server that is asked: from the control
 * role, which has the connection, to the shard's owner, and back.
 *
 *   QUERY_CHECKSUM  the checksum of what is live (design, invariant C8), from a primary or a backup; its
 *                   owner walks the index in bounded steps
 *   QUERY_SUFFIX    a backup's uncommitted suffix, asked for by the worker that leads the shard (design,
 *                   section 6, log reconciliation)
 *   QUERY_STORE     entries that a backup has asked for or lacks, sent by the worker that leads the shard; the digest
 *                   role that owns it stores what is lacking (digest_store.c), and that it is durable is the answer
 *   QUERY_TRACE     where a key lies, from a primary or a backup
 *
 * Made and freed by the control role; an owner frees what is left with it at its end.
 */
#ifndef SERVER_QUERY_H
#define SERVER_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/cluster/control.h"
#include "common/entry/entry.h"
#include "common/pm/pm.h"
#include "server/common.h"
#include "server/shard/block_list.h"
#include "server/shard/shard.h"

#define QUERY_SUFFIX_NONE UINT64_MAX /* `after` of a question for the figures alone */

enum {
    QUERY_KEY_BYTES = 64,
    /* That are gone, in one message: ranges, and versions in all of them. */
    QUERY_GONE_RANGES = 256,
    QUERY_GONE_VERSIONS = 4096,
};

struct control_link;

enum query_kind { QUERY_CHECKSUM, QUERY_SUFFIX, QUERY_STORE, QUERY_TRACE };

struct query_checksum {
    Rowan__ChecksumIs is; /* the answer, but for the key */
    uint64_t cursor;
    uint32_t key_bytes; /* of the damaged object's key, as far as it can be read and is kept */
    uint8_t key[QUERY_KEY_BYTES];
};

struct query_suffix {
    /* the question */
    uint32_t epoch, block;
    uint64_t asked_commit, after, cursor;
    uint64_t ticket; /* the digest role's: digest_catch_up_begin */
    /* the answer */
    uint64_t commit, prefix, settled, next_cursor;
    uint32_t next_block;
    struct block_list blocks; /* in `data` of the query */
};

struct query_store {
    uint32_t epoch, bytes; /* of the blocks in `data` */
    uint32_t gone;         /* ranges behind them */
    bool last;             /* all was copied (control.proto) */
    /* the owner's */
    bool begun;    /* some of it may be stored: */
    uint64_t from; /* the allocation number of its log's first segment that may have some of it */
    /* The segment, plus 1, of an entry of which an earlier message brought a part; 0: none */
    uint64_t half;
    uint64_t since;            /* the epoch in which it began (reclaim.h) */
    uint32_t position, blocks; /* so much was looked at */
    bool stored;               /* all that was lacking; `ticket` says whether it is durable */
    struct pm_ticket ticket;
    uint64_t open; /* the allocation number of the segment that is to be closed first; 0: none */
    uint32_t count, applied;
    uint64_t whole[BLOCK_LIST_BLOCKS]; /* offsets of entries whose last block was stored */
};

struct query_trace {
    Rowan__TraceIs is; /* the answer, but for what only the control role knows */
    uint32_t key_bytes;
    uint8_t key[ENTRY_MAX_KEY_BYTES];
};

struct query {
    enum query_kind kind;
    uint16_t shard;
    /* control's */
    struct control_link *link; /* of the asker; NULL when it has gone */
    uint32_t tag;
    bool returned;
    /* the owner's, then control's again */
    bool answered;
    struct shard_state *state; /* NULL: the shard is not here */
    int error;                 /* there is no answer because of it */
    struct {
        struct query *next, *prev;
    } place; /* among the owner's */
    union {
        struct query_checksum checksum;
        struct query_suffix suffix;
        struct query_store store;
        struct query_trace trace;
    };
    /* Blocks, one behind the other. QUERY_STORE: unchecked; behind them ranges of versions (struct prefix_range) that are
     * gone, of which only the numbers are checked. QUERY_SUFFIX, unless only figures are wanted: room for
     * BLOCK_LIST_BYTES; as they are sent by another role, later, they are not left where they lie (reclaim.h). */
    _Alignas(8) uint8_t data[];
};

/* Those that an owner has to answer, one after another. */
struct queries {
    struct query *first, *last;
};

/* query_begin: queues `query` with the owner; `state` is NULL when the shard is not here. */
void query_begin(struct queries *queries, struct query *query, struct shard_state *state);

/* query_step: a bounded step of an answer; true when it is there. */
bool query_step(struct query *query, struct server_common *common);

/* queries_refuse: whose shard goes to another owner is answered with ROWAN_EAGAIN, and names it no more. */
void queries_refuse(struct queries *queries, const struct shard_state *state);

void queries_drop(struct queries *queries);

#endif
