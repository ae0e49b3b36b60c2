/* An open-addressing table of positions in one array of words. States of one place share a hash, and
 * stand in one run of slots. */
#include "test/sim/linear_seen.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"

enum { FIRST_SLOTS = 1024, FIRST_WORDS = 8192 };

struct linear_seen_slot {
    uint64_t hash;
    uint64_t at; /* + 1; 0: empty. There: words of the place, place, floor, used */
};

void linear_seen_init(struct linear_seen *seen, uint32_t used_words)
{
    *seen = (struct linear_seen){
        .used_words = used_words, .slot_count = FIRST_SLOTS, .word_room = FIRST_WORDS};
    seen->slots = calloc(seen->slot_count, sizeof *seen->slots);
    seen->words = malloc(seen->word_room * sizeof *seen->words);
    ASSERT(seen->slots && seen->words);
}

void linear_seen_fini(struct linear_seen *seen)
{
    free(seen->slots);
    free(seen->words);
    *seen = (struct linear_seen){0};
}

size_t linear_seen_bytes(const struct linear_seen *seen)
{
    return seen->word_room * sizeof *seen->words + seen->slot_count * sizeof *seen->slots;
}

/* splitmix64's finalizer over the words. */
static uint64_t hash_place(const uint64_t *place, uint32_t words)
{
    uint64_t hash = words;
    for (uint32_t i = 0; i < words; i++) {
        hash = (hash ^ place[i]) + UINT64_C(0x9e3779b97f4a7c15);
        hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
        hash ^= hash >> 31;
    }
    return hash;
}

static void grow_slots(struct linear_seen *seen)
{
    size_t old_count = seen->slot_count;
    struct linear_seen_slot *old = seen->slots;
    seen->slot_count *= 2;
    seen->slots = calloc(seen->slot_count, sizeof *seen->slots);
    ASSERT(seen->slots);
    for (size_t i = 0; i < old_count; i++) {
        if (!old[i].at)
            continue;
        size_t slot = old[i].hash & (seen->slot_count - 1);
        while (seen->slots[slot].at)
            slot = (slot + 1) & (seen->slot_count - 1);
        seen->slots[slot] = old[i];
    }
    free(old);
}

/* Is what is known of this state true of ours? */
static bool covers(const struct linear_seen *seen, const uint64_t *state, const uint64_t *place,
                   uint32_t place_words, uint64_t floor, const uint64_t *used)
{
    if (state[0] != place_words || memcmp(state + 1, place, place_words * sizeof *place) != 0)
        return false;
    const uint64_t *its_used = state + 1 + place_words + 1;
    if (state[1 + place_words] > floor)
        return false;
    for (uint32_t i = 0; i < seen->used_words; i++) {
        if (its_used[i] & ~used[i])
            return false;
    }
    return true;
}

static uint64_t store(struct linear_seen *seen, const uint64_t *place, uint32_t place_words,
                      uint64_t floor, const uint64_t *used)
{
    size_t words = (size_t)place_words + 2 + seen->used_words;
    while (seen->word_count + words > seen->word_room) {
        seen->word_room *= 2;
        seen->words = realloc(seen->words, seen->word_room * sizeof *seen->words);
        ASSERT(seen->words);
    }
    uint64_t *state = seen->words + seen->word_count;
    *state++ = place_words;
    memcpy(state, place, place_words * sizeof *place);
    state += place_words;
    *state++ = floor;
    if (seen->used_words)
        memcpy(state, used, seen->used_words * sizeof *used);
    uint64_t at = seen->word_count;
    seen->word_count += words;
    return at;
}

bool linear_seen_add(struct linear_seen *seen, const uint64_t *place, uint32_t place_words,
                     uint64_t floor, const uint64_t *used)
{
    uint64_t hash = hash_place(place, place_words);
    size_t slot = hash & (seen->slot_count - 1);
    for (; seen->slots[slot].at; slot = (slot + 1) & (seen->slot_count - 1)) {
        const struct linear_seen_slot *taken = &seen->slots[slot];
        if (taken->hash == hash &&
            covers(seen, seen->words + taken->at - 1, place, place_words, floor, used))
            return false;
    }
    seen->slots[slot] = (struct linear_seen_slot){
        .hash = hash, .at = store(seen, place, place_words, floor, used) + 1};
    if (++seen->count > seen->slot_count / 2)
        grow_slots(seen);
    return true;
}
