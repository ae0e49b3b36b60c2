/* checks.h - the design's invariants (section 7), looked at from outside while a run goes on.
 *
 *  C1  At most one server serves a shard at any moment.
 *  C2  An acknowledged entry is durable on every full replica of the configuration it was acknowledged in.
 *  C3  A replica's index never points to a version older than one it has shown.
 *  C6  Committed segments hold only entries that all full replicas of that shard hold.
 *  C7  A term's decision is in the coordination service before anybody acts on it.
 *  C9  No two different entries share (shard, version).
 * Where nothing is fenced, a power loss may take what was acknowledged, and then only, and it is said ("loss").
 * C4 and C5 come with reuse (part 5); C8 is test/sim/digests.h, once all is quiet. And: no role ends
 * its server or the CM; when all is quiet nothing is left over (operations, messages,
 * completion records, segments); no two sessions get one client id.
 */
#ifndef SIM_CHECKS_H
#define SIM_CHECKS_H

#include "test/sim/cluster.h"
#include "test/sim/failure.h"
#include "test/sim/load.h"

struct checks;

/* Watches every store into every PM of the cluster from now on, and across restarts. */
struct checks *checks_create(struct sim_cluster *cluster, struct load *load,
                             struct failure *failure);
void checks_destroy(struct checks *checks);

/* checks_expect_flips: bits of a PM will flip (flips.h): logs may tell so. */
void checks_expect_flips(struct checks *checks);

/* After a round: C1, C7; C3 and C6 now and then. */
void checks_step(struct checks *checks);

/* A load_acknowledged: C2. */
void checks_acknowledged(void *checks, uint32_t key, uint64_t version);

/* A load_seen: C2. */
void checks_seen(void *checks, uint32_t key, uint64_t version);

/* Does a server say that it is full? What runs write fits. */
bool checks_full(const struct checks *checks);

/* Index items of all servers that lead to tombstones. */
uint64_t checks_tombstones(const struct checks *checks);

/* When all is quiet: does every backup know its primary's commit versions, and is that all that is resolved? What is not
 * so yet should be soon: `lag` then tells of the first shard. Backups whose digest role was made to lose blocks are not
 * looked at: it may have lost commit versions. */
struct checks_lag {
    uint32_t shard;
    uint32_t primary, backup; /* backup 0: the primary itself is behind */
    char why[200];
};
bool checks_commits_agree(const struct checks *checks, struct checks_lag *lag);

/* The moments at which the key may have gone back to an older version, in their order; their number is returned. */
struct linear_loss;
uint32_t checks_losses(const struct checks *checks, uint32_t key, struct linear_loss *out,
                       uint32_t room);

/* When all is quiet and every operation has its answer. */
void checks_leftovers(struct checks *checks);

struct checks_counts {
    uint64_t blocks;          /* that were stored or landed */
    uint64_t acknowledged;    /* for C2 */
    uint64_t looks;           /* at index items, for C3 */
    uint64_t longs, joined;   /* entries of several blocks: written by a primary; put together */
    uint64_t losses;          /* of a shard: acknowledged writes may have been lost */
    uint64_t cleaned;         /* segments that held something and were given up */
    uint64_t tombstones;      /* last copies that went, no older version being left */
    uint64_t from_checkpoint; /* starts that took index items of one */
    uint64_t promoted;        /* shards that got another primary, of those before */
    uint64_t refilled;        /* replicas that filled and became full */
    uint64_t split_off;       /* shards, from others */
};
struct checks_counts checks_counts(const struct checks *checks);

#endif
