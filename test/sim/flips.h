/* flips.h - bits that flip in the PM of a server that is down.
 *
 * Only where the promise holds that a whole replica makes up for it: what is COMMITTED or closed, entries above the settled version,
 * and one copy of what is kept twice. Entries at or below it in another segment are left alone: their
 * loss is not noticed (server/store/verify.h).
 */
#ifndef SIM_FLIPS_H
#define SIM_FLIPS_H

#include "common/base/random.h"
#include "test/sim/cluster.h"

/* Some bits; returns how many. What the power did not keep yet is left alone, too. */
uint32_t flips_make(struct sim_server *server, struct random *random);

#endif
