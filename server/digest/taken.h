/* taken.h - which places of one segment hold what a digest role has taken: a bit for each 64 B. Pure, one
 * thread; nothing is allocated but at the start. Positions are bytes of the segment, multiples of ENTRY_ALIGN.
 */
#ifndef SERVER_TAKEN_H
#define SERVER_TAKEN_H

#include <stdbool.h>
#include <stdint.h>

struct taken {
    uint64_t *words;
    uint32_t bytes; /* of the segment */
};

/* Nothing of a segment of `bytes` is taken. Errors: ROWAN_ENOMEM. */
int taken_init(struct taken *taken, uint32_t bytes);
void taken_fini(struct taken *taken);

/* Of another segment: nothing is taken. */
void taken_clear(struct taken *taken);

/* [from, end) is. */
void taken_add(struct taken *taken, uint32_t from, uint32_t end);

/* The first place of [from, end) that is taken, or that is not; `end` if there is none. */
uint32_t taken_find(const struct taken *taken, uint32_t from, uint32_t end, bool is_taken);

#endif
