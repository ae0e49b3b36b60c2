/* balance.h - which shard moves next, so that no server has much more load than others (design, section 6, "Resharding").
 * Pure: (configuration, loads) -> a plan (plan.h).
 *
 * A server whose load, divided by its cores, is 30 % (balance-above) above the average of all is overloaded, if that lasts for 2 s or a shard
 * was seen to become hot (loads.h); one that is less than 10 % busy never is. Then its hottest shards are to move, and those of
 * who has most after that, until all are within 5 % of the average, or no move lowers the highest load by a fortieth of the
 * average: a list of steps, decided by what was known at one moment. Where a server has less than 60 % of the average, as one
 * that was just added, another one is overloaded 5 % above it. One decision may not reach 5 %, as a server takes part in one
 * filling at a time: the next ones go on until all are within 5 %, or there was nothing to do for longer than shards rest. What
 * keeps it calm is the band between 30 % and 5 %, and that a shard rests for 10 s behind a change of it.
 *
 * A shard that has more load than a server should have is split where that is halved, as soon as its server is overloaded; its
 * children are new shards, which may move once they have all (split.h). Where it cannot be split, shards move as if it were
 * not too hot.
 *
 * Where no load asks for more, space does: a server with more than 60 % of its space in use, and 20 % of that more than another one,
 * gives it a shard, one at a time.
 *
 * A full backup is the better target: it leads at once. Another server is taken only if the highest load ends 5 % of the
 * average lower for it. A server is the source of one filling at a time, and the target of one.
 */
#ifndef CM_BALANCE_H
#define CM_BALANCE_H

#include "cm/loads.h"
#include "cm/state.h"

#define BALANCE_REST_NS (10 * NS_PER_S)

enum {
    BALANCE_STEPS = 32, /* of one decision, at most */
    BALANCE_ABOVE = 30, /* per cent */
};

/* All zeros at first. */
struct balance {
    uint16_t passed;     /* the shard that was passed over last for want of space, and where to; */
    uint32_t passed_at;  /* server 0: none was */
    uint64_t since_ns;   /* a server is overloaded; 0: none is */
    uint64_t decided_ns; /* steps were; 0: never */
    uint64_t going_ns;   /* until then steps are taken that were begun, down to 5 % */
    uint64_t split_ns;   /* no shard is split before: one could not be. The caller's */
    uint32_t above;      /* instead of BALANCE_ABOVE, unless it is 0. The caller's */
};

enum balance_found {
    BALANCE_NOTHING,
    BALANCE_DECIDED, /* `plans`, each of another shard: to be carried out together */
    BALANCE_PASSED, /* none; and the plan, a move, would be one if its target had the space. Once for each. */
};

enum balance_found balance_decide(struct balance *balance, const struct cluster_config *config,
                                  const struct loads *loads, uint64_t now_ns,
                                  struct cm_plan plans[BALANCE_STEPS], uint32_t *count);

#endif
