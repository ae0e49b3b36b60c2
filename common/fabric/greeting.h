/* greeting.h - what the greetings (handshakes) of backends have in common on the wire: who speaks, and which layouts
 * of the bytes behind the greeting he speaks. A greeting begins with 8 bytes of magic and then the layouts: so much
 * never changes, and any two versions can tell each other why they do not understand each other.
 */
#ifndef FABRIC_GREETING_H
#define FABRIC_GREETING_H

#include <assert.h>

#include "common/fabric/fabric.h"

/* All between the two. */
struct greeting_layouts {
    uint32_t lowest, highest;
};

/* Who speaks is told by a struct fabric_identity as it lies in memory; `kind` is 0 of an acceptor that does not know yet
 * who it is. */
static_assert(sizeof(struct greeting_layouts) == 8 && sizeof(struct fabric_identity) == 40 &&
                  offsetof(struct fabric_identity, id) == 24 &&
                  offsetof(struct fabric_identity, kind) == 32 &&
                  offsetof(struct fabric_identity, messages) == 36,
              "wire layout");

/* greeting_choose: the highest layout that both sides speak; both find the same. `what`: of which bytes, for the log.
 * Errors: ROWAN_EINCOMPATIBLE (there is none, and a line of the log names both ranges). */
int greeting_choose(const char *what, struct greeting_layouts ours, struct greeting_layouts theirs,
                    uint32_t *out);

/* Errors: ROWAN_EFORMAT (of no kind that we know), EINCOMPATIBLE (no layout of messages in common with `endpoint`). */
int greeting_unpack(const struct fabric_endpoint *endpoint, const struct fabric_identity *wire,
                    struct fabric_identity *out);

/* Why the peer refuses, as its greeting says: a code of ours, or that is nonsense. */
int greeting_refusal(int32_t error);

#endif
