/* linear_seen.h - inside linear.c: the states that the search has left behind.
 *
 * A state is its place, which is compared as a whole, and what it has used up: the least version that
 * the next write may not have, and a set of writes with unknown outcome. Where a search found no way on, it
 * finds none from the same place with more used up, so such a state counts as seen.
 */
#ifndef SIM_LINEAR_SEEN_H
#define SIM_LINEAR_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct linear_seen_slot;

struct linear_seen {
    uint32_t used_words;
    uint64_t count;
    uint64_t *words; /* of all states, one behind another */
    size_t word_count, word_room;
    struct linear_seen_slot *slots; /* a power of two of them, half of them empty at least */
    size_t slot_count;
};

void linear_seen_init(struct linear_seen *seen, uint32_t used_words);
void linear_seen_fini(struct linear_seen *seen);
size_t linear_seen_bytes(const struct linear_seen *seen);

/* True: the state is new, and is kept. */
bool linear_seen_add(struct linear_seen *seen, const uint64_t *place, uint32_t place_words,
                     uint64_t floor, const uint64_t *used);

#endif
