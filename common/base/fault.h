/* fault.h - fault sites, for the simulator (test/sim).
 *
 * A fault site makes something happen often that is rare otherwise, and that the code around it must be
 * ready for at any time: a batch of one, an allocation that fails, a role that is late.
 *
 * They exist only where ROWAN_SIM is defined, in the simulator's own build of the modules. In what
 * ships each is the constant false: no code, no data, no symbol (test/checks/no_fault_sites.py).
 * The simulator's seed decides which sites fire, and when.
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>

/* X(NAME, "what happens") */
#define FAULT_SITES(X)                                                                             \
    X(SHORT_BATCH, "a role handles few events or steps in one poll")                               \
    X(LATE_ROLE, "a role does nothing in this poll")                                               \
    X(EARLY_ROLL, "a log starts a new segment before the old one is full")                         \
    X(NO_SEGMENT, "a free segment is refused")                                                     \
    X(NO_MEMORY, "an allocation is refused")                                                       \
    X(NO_ROOM, "a table or queue says that it is full")                                            \
    X(LATE_SPLIT, "an index that is due to grow does not yet")                                     \
    X(BLOCK_LOST,                                                                                  \
      "a digest role takes a whole block that commit versions tell of for a damaged one")          \
    X(ANSWER_LOST, "a worker takes it that entries were confirmed for a failure")                  \
    X(HOLD_OFFSET, "a worker brings what it has found for a backup much later")                    \
    X(NO_RECORD, "a backup has no memory for more completion records")                             \
    X(NEWS, "a server asks the manager what only a later version knows")

#define FAULT_ENUM(name, text) FAULT_##name,

enum fault_site { FAULT_SITES(FAULT_ENUM) FAULT_SITE_COUNT };

#ifdef ROWAN_SIM
bool fault_fires(enum fault_site site);
#define FAULT(name) fault_fires(FAULT_##name)
#else
#define FAULT(name) ((void)FAULT_##name, false)
#endif

#endif
