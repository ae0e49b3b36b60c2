/* work.h - how much a shard asks of the server that holds it, and where in it the requests go. Its owner counts, the control
 * role reads, and reports to the manager (control_load.c), which moves and splits shards by it (cm/balance.h).
 *
 * Work is relative: what an owner's time was spent on. Slots and keys are sampled; the keys by the method of Metwally,
 * Agrawal and El Abbadi (Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005), whose few counters
 * find every key that has more than one WORK_HOT_KEYS-th of the samples.
 */
#ifndef SERVER_WORK_H
#define SERVER_WORK_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    /* In the proportion of the instructions that they take: 750, 2084 and 580 in test/bench/instructions.txt. */
    WORK_GET = 4,
    WORK_WRITE = 11,
    WORK_APPLY = 3, /* an entry, at a backup */
    WORK_HOT_KEYS = 8,
    WORK_KEY_WORDS = 4, /* of a hot key its first 32 bytes are kept */
};

/* Written by the owner, read by the control role: its words may be of two keys for a moment. */
struct work_key {
    _Atomic uint64_t hash; /* 0: none */
    _Atomic uint32_t samples, bytes;
    _Atomic uint64_t words[WORK_KEY_WORDS];
};

/* What the samples since some seconds ago say. */
struct work_spread {
    uint32_t samples;
    uint16_t
        split; /* the slot at which the shard falls into the most even halves; 0: it is a single slot, or has no samples */
    uint16_t hot_slot; /* that has most of them */
    uint32_t hot_samples;
    uint32_t key_samples;             /* of the hottest key, at most */
    char key[WORK_KEY_WORDS * 8 + 1]; /* what of it can be printed; "": none stands out */
};

struct work {
    _Atomic uint64_t done;
    uint16_t first_slot;
    uint32_t slot_count;
    _Atomic uint32_t *slots; /* samples by slot; both sides write it, so one may get lost */
    struct work_key keys[WORK_HOT_KEYS];

    /* The control role's. */
    uint64_t told;             /* of `done`, what it has reported */
    uint32_t told_epoch;       /* of the shard, then */
    uint32_t load;             /* millionths of a core, as it was reported last */
    struct work_spread spread; /* likewise */
};

/* Errors: ROWAN_ENOMEM. */
int work_init(struct work *work, uint16_t first_slot, uint16_t last_slot);
void work_fini(struct work *work);

/* The next two are the owner's. */
static inline void work_add(struct work *work, uint32_t weight)
{
    atomic_store_explicit(&work->done,
                          atomic_load_explicit(&work->done, memory_order_relaxed) + weight,
                          memory_order_relaxed);
}
void work_sample(struct work *work, uint64_t hash, const void *key, uint32_t bytes);

/* The control role's: sets `spread` by the samples, and halves them, so that old ones fade. */
void work_look(struct work *work);

#endif
