/* recover.h - what a server does with its PM at a start, before it serves: zeroes what is dirty,
 * scans the data of earlier runs once, and makes the state of every shard it holds (design, section
 * 6, cold start). On an empty store it only makes the states.
 *
 * Driven by the control role, in bounded steps. Other roles may take part in the scan, each on its own thread. It reads
 * nothing but PM and the configuration.
 */
#ifndef SERVER_RECOVER_H
#define SERVER_RECOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cluster/cluster.h"
#include "common/cluster/damage.h"
#include "server/common.h"
#include "server/shard/shard.h"

struct recover_options {
    struct server_common *common;        /* with store and format; outlives the recovery */
    const struct cluster_config *config; /* names this server's incarnation; copied from */
    bool had_data;                       /* the store was there when the server started */
    bool had_run;                        /* and has a run record */
    bool rebooted;                       /* the host was restarted since that run */
    bool possibly_incomplete;            /* see store.h */
    bool verified;                       /* nothing is torn or damaged (verify.h) */
    const struct damage
        *damage;    /* NULL, or of which shards they are incomplete; until recover_create returns */
    uint32_t parts; /* roles that take part, control among them; 0 is 1 */
};

struct recover_counts {   /* recover_counts: all of one type */
    uint64_t segments;    /* scanned */
    uint64_t zeroed;      /* segments that were not free, or not zeros as they should */
    uint64_t released;    /* segments in which nothing had landed */
    uint64_t restored;    /* index items of a checkpoint */
    uint64_t entries;     /* applied, repeats included */
    uint64_t records;     /* stubs of cleaned entries that gave a completion record */
    uint64_t passed_over; /* whole blocks of shards, or epochs of shards, that are not held */
    uint64_t strange;     /* whole blocks of an epoch that is not over yet: never applied */
    uint64_t copied;      /* entries whose blocks lay apart */
    uint64_t voided;      /* places that were torn or damaged (torn.h) */
};

struct recover;

/* Errors: ROWAN_ENOMEM; EDAMAGED: a shard's data should be here and is not, `why` says it. */
int recover_create(const struct recover_options *options, struct recover **out, char *why,
                   size_t why_bytes);

/* The part of the scan that another role polls with recover_help: 1 to parts - 1. The start ends only when all have. */
struct recover_part;
struct recover_part *recover_part(struct recover *recover, uint32_t number);

/* recover_help: a step of a part, by its role; true if it did anything. *part becomes NULL when it is over: then the
 * role no longer holds anything of the start. Any thread; errors are told by recover_poll. */
bool recover_help(struct recover_part **part, uint64_t now_ns, uint64_t *wake_ns);

/* Of so many segments that are to be scanned, how many are. */
void recover_progress(const struct recover *recover, uint64_t *scanned, uint64_t *segments);

/* recover_poll: one step, by control: a step of the first part among them. 1: done. All data found is in the shards' states, and the states of
 * segments and the replica rows are durable. No peer may have been admitted before. 0: more to do, at
 * once if *busy, else when a fence is done, or at *wake_ns. Errors: ROWAN_ENOMEM EFULL (no segment to join the
 * blocks of a long entry in) EIO EDAMAGED (the checkpoint reads back otherwise than before). */
int recover_poll(struct recover *recover, uint64_t now_ns, uint64_t *wake_ns, bool *busy);

/* recover_take: the state of a shard, once recovery is done: the caller's from now on. NULL: not held.
 * A shard that this server leads, of an epoch above 1, is `recovering`: it is to be reconciled first. */
struct shard_state *recover_take(struct recover *recover, uint16_t shard);

struct recover_counts recover_counts(const struct recover *recover);

/* Destroys the states that nobody took. NULL is fine. */
void recover_destroy(struct recover *recover);

#endif
