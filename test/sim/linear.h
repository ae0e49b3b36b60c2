/* linear.h - is the history of one key linearizable? (Herlihy and Wing 1990.)
 *
 * A search for an order of all operations in which each has its effect between its call and its
 * answer and the answers are those of one register with a version. Wing and Gong's search (1993),
 * with Lowe's memory of visited states (2017), so that no state is looked at twice. It is exact: no
 * order is left out but one that could be changed into another that is looked at. The cost of a state
 * grows with the number of put_ifs and deletes under way, and of writes with unknown outcome.
 *
 * The register: absent, or a value and a version. A put or put_if that takes effect gives a version
 * above every earlier one of the key's (the servers promise that, design section 5); a delete makes it
 * absent, and the next version is above that of the delete.
 */
#ifndef SIM_LINEAR_H
#define SIM_LINEAR_H

#include "test/sim/history.h"

enum linear_verdict {
    LINEAR_YES,
    LINEAR_NO,
    LINEAR_TOO_LONG, /* `max_states` were visited without a verdict */
};

struct linear_result {
    enum linear_verdict verdict;
    uint64_t states; /* visited */
    /* Not YES: how far the best attempt came, and the operation that fitted nowhere behind it (its
     * position in `ops`). */
    size_t placed, stuck;
    char why[256];
};

/* The search takes this much memory at most; more is LINEAR_TOO_LONG. */
#define LINEAR_MOST_BYTES (UINT64_C(1) << 29)

/* `ops`: all operations of one key since it had no value, in the order of their calls; not changed.
 * `max_states` 0: 10 million. Aborts without memory. */
void linear_check(const struct history_op *ops, size_t count, uint64_t max_states,
                  struct linear_result *out);

#endif
