/* workload.h - keys and values of the load: computed from numbers alone, so that any thread, and a later
 * `check`, computes the same ones. */
#ifndef YCSB_WORKLOAD_H
#define YCSB_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

enum {
    WORKLOAD_NAME_BYTES = 32,
    WORKLOAD_SIZES = 1 << 12, /* steps in which a distribution of sizes is cut */
    WORKLOAD_KEY_DIGITS = 7,  /* base 32: they keep the key unique */
    WORKLOAD_MAX_KEY_BYTES = 128,
    WORKLOAD_FIXED_KEY_BYTES = 16,
};

#define WORKLOAD_MAX_RECORDS (UINT64_C(1) << 5 * WORKLOAD_KEY_DIGITS)

/* Sizes of keys and values. Immutable after profile_create: threads share one. */
struct profile {
    char name[WORKLOAD_NAME_BYTES];
    uint32_t max_value_bytes;
    uint16_t key_bytes[WORKLOAD_SIZES]; /* the sizes of equally many objects each */
    uint32_t value_bytes[WORKLOAD_SIZES];
};

/* profile_create: "zippydb", "up2x", "udb" (normal distributions with the means and deviations of
 * Cao et al., "Characterizing, Modeling, and Benchmarking RocksDB Key-Value Workloads at Facebook",
 * FAST '20, table 2, p. 215), or "fixed:N" (keys of 16 bytes, values of N). The figures were compared with
 * a transcription of that table, not with the paper itself; the sums of the means are also those that
 * the Rowan paper quotes. That sizes are distributed normally is our assumption. The mean is that of
 * the paper also where sizes below the least are cut off. Freed with free(). Errors: ROWAN_EINVALID, ROWAN_ENOMEM. */
int profile_create(const char *name, struct profile **out);

/* The key of a record: text, unique, at most WORKLOAD_MAX_KEY_BYTES. Returns its bytes. */
uint32_t workload_key(const struct profile *profile, uint64_t record, char *out);

/* The value that write number `seed` gave the record. */
uint32_t workload_value_bytes(const struct profile *profile, uint64_t record, uint64_t seed);
void workload_value(uint64_t record, uint64_t seed, void *out, uint32_t bytes);

/* 64 bits that look random, from two numbers (splitmix64's finaliser). */
static inline uint64_t workload_mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b;

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

#endif
