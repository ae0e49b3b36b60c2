/* zipf.h - numbers in [0, count) by Zipf's law, drawn with the method of Gray et al., "Quickly
 * generating billion-record synthetic databases" (SIGMOD 1994), and scattered over the range by a
 * hash, as YCSB's scrambled Zipfian does it. Threads share one while nobody changes it. */
#ifndef YCSB_ZIPF_H
#define YCSB_ZIPF_H

#include <stdint.h>

#define ZIPF_THETA 0.99

struct zipf {
    uint64_t count;
    double zetan; /* the sum of 1 / i^ZIPF_THETA for i of 1 to count */
    double alpha;
    double eta;
    double second; /* below it, times zetan, lie the first two ranks */
};

void zipf_init(struct zipf *zipf, uint64_t count);

/* The same with more ranks, from the sum of those that there were: a few powers. */
void zipf_grow(struct zipf *zipf, uint64_t count);

/* The rank (0 is the most frequent) of a draw, `unit` being uniform in [0, 1). */
uint64_t zipf_rank(const struct zipf *zipf, double unit);

/* Where a rank lies: FNV-1a of its eight bytes, reduced to [0, count). */
uint64_t zipf_scramble(uint64_t rank, uint64_t count);

/* `random` scaled to [0, count) by its high bits, without a division. */
static inline uint64_t zipf_scale(uint64_t random, uint64_t count)
{
    return (uint64_t)(((unsigned __int128)random * count) >> 64);
}

#endif
