/* linear_loss.h - the history of a key that a loss may have turned back: power that failed on all its replicas, where
 * nothing was fenced.
 *
 * A loss cuts the history in two, each of which is that of a register (linear.h). The first one ends with whatever
 * was written last. The second one begins with any state that the key may have had before: a version that a write
 * asked for before the loss gave, or no value. Which one it was, what was told behind the loss must agree upon.
 *
 * It is as exact as what was told: what took effect is on the side of its version. Of what was asked before a loss and
 * answered behind it, and was told no version or one of before, nobody knows the side: as an observation it is left
 * out; a write of which it is not known that it took effect before the loss may do so once on each side, as its
 * completion record may be lost, too.
 */
#ifndef SIM_LINEAR_LOSS_H
#define SIM_LINEAR_LOSS_H

#include "test/sim/linear.h"

/* A moment at which nobody served the key: versions of before are lower than `version`, later ones higher. */
struct linear_loss {
    uint64_t at_ns;
    uint64_t version;
};

/* As linear_check. `losses` in their order; none: the same. `*turned_back` (may be NULL): so many times the key had an
 * older version, or none, behind a loss than one that was acknowledged or seen before; as far as somebody looked. */
void linear_check_losses(const struct history_op *ops, size_t count,
                         const struct linear_loss *losses, uint32_t loss_count, uint64_t max_states,
                         struct linear_result *out, uint32_t *turned_back);

#endif
