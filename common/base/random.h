/* random.h - seeded pseudo-random numbers (xoshiro256**, Blackman and Vigna 2018, seeded by
 * splitmix64). Not for secrets: those come from random_entropy. One thread per state. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct random {
    uint64_t s[4];
};

void random_init(struct random *random, uint64_t seed);
uint64_t random_u64(struct random *random);

/* Uniform in [0, bound), without modulo bias; bound > 0. */
uint64_t random_below(struct random *random, uint64_t bound);

/* Uniform in [0, 1). */
double random_unit(struct random *random);

/* Fills `out`, at most 256 bytes, from the operating system's entropy. For `main` functions: incarnations, secrets. */
void random_entropy(void *out, size_t bytes);

#endif
