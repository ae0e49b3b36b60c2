/* random.c - xoshiro256** and what is made from it; the operating system's entropy. */
#include "common/base/random.h"

#include <sys/random.h>

#include "common/base/assert.h"

/* splitmix64 (Steele, Lea, Flood 2014): spreads a small seed over the whole state. */
static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t x, unsigned bits)
{
    return (x << bits) | (x >> (64 - bits));
}

void random_init(struct random *random, uint64_t seed)
{
    for (unsigned i = 0; i < 4; i++)
        random->s[i] = splitmix64(&seed);
}

uint64_t random_u64(struct random *random)
{
    uint64_t *s = random->s;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

/* Lemire, "Fast random integer generation in an interval" (2019): the high half of a product is
 * uniform once the few low halves that would favour some results are drawn again. */
uint64_t random_below(struct random *random, uint64_t bound)
{
    unsigned __int128 product;
    uint64_t rejected;

    ASSERT(bound > 0);
    product = (unsigned __int128)random_u64(random) * bound;
    if ((uint64_t)product < bound) {
        rejected = (0 - bound) % bound;
        while ((uint64_t)product < rejected)
            product = (unsigned __int128)random_u64(random) * bound;
    }
    return (uint64_t)(product >> 64);
}

double random_unit(struct random *random)
{
    return (double)(random_u64(random) >> 11) * 0x1p-53;
}

void random_entropy(void *out, size_t bytes)
{
    const int failed = getentropy(out, bytes);

    ASSERT(failed == 0); /* getentropy(3): so few bytes into a good buffer cannot fail */
}
