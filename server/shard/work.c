/* work.c - see work.h. */
#include "server/shard/work.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/cluster/slot.h"

int work_init(struct work *work, uint16_t first_slot, uint16_t last_slot)
{
    work->first_slot = first_slot;
    work->slot_count = (uint32_t)last_slot - first_slot + 1;
    work->slots = calloc(work->slot_count, sizeof *work->slots);
    return work->slots ? ROWAN_OK : ROWAN_ENOMEM;
}

void work_fini(struct work *work)
{
    free(work->slots);
}

static uint32_t read_count(const _Atomic uint32_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static void write_count(_Atomic uint32_t *count, uint32_t value)
{
    atomic_store_explicit(count, value, memory_order_relaxed);
}

static void keep_key(struct work_key *at, uint64_t hash, const void *key, uint32_t bytes)
{
    uint64_t words[WORK_KEY_WORDS] = {0};
    memcpy(words, key, bytes < sizeof words ? bytes : sizeof words);
    atomic_store_explicit(&at->hash, hash, memory_order_relaxed);
    write_count(&at->bytes, bytes);
    for (int i = 0; i < WORK_KEY_WORDS; i++)
        atomic_store_explicit(&at->words[i], words[i], memory_order_relaxed);
}

void work_sample(struct work *work, uint64_t hash, const void *key, uint32_t bytes)
{
    const uint32_t at = (uint32_t)slot_of_key(key, bytes) - work->first_slot;
    if (at >= work->slot_count) /* of a client whose map is wrong */
        return;
    write_count(&work->slots[at], read_count(&work->slots[at]) + 1);
    struct work_key *least = &work->keys[0];
    for (uint32_t i = 0; i < WORK_HOT_KEYS; i++) {
        struct work_key *one = &work->keys[i];
        if (atomic_load_explicit(&one->hash, memory_order_relaxed) == hash) {
            write_count(&one->samples, read_count(&one->samples) + 1);
            return;
        }
        if (read_count(&one->samples) < read_count(&least->samples))
            least = one;
    }
    keep_key(least, hash, key, bytes);
    write_count(&least->samples, read_count(&least->samples) + 1);
}

static void fade(struct work *work, struct work_spread *out)
{
    for (uint32_t i = 0; i < work->slot_count; i++) {
        const uint32_t samples = read_count(&work->slots[i]);
        if (samples == 0)
            continue;
        write_count(&work->slots[i], samples / 2);
        if (samples > out->hot_samples) {
            out->hot_samples = samples;
            out->hot_slot = (uint16_t)(work->first_slot + i);
        }
    }
}

static void find_key(struct work *work, struct work_spread *out)
{
    const struct work_key *most = NULL;
    for (uint32_t i = 0; i < WORK_HOT_KEYS; i++) {
        const uint32_t samples = read_count(&work->keys[i].samples);
        write_count(&work->keys[i].samples, samples / 2);
        if (samples > out->key_samples) {
            out->key_samples = samples;
            most = &work->keys[i];
        }
    }
    if (out->key_samples <= out->samples / WORK_HOT_KEYS)
        return;
    uint64_t words[WORK_KEY_WORDS];
    for (int i = 0; i < WORK_KEY_WORDS; i++)
        words[i] = atomic_load_explicit(&most->words[i], memory_order_relaxed);
    memcpy(out->key, words, sizeof words);
    for (uint32_t i = 0; i < sizeof words && i < read_count(&most->bytes); i++) {
        if (out->key[i] < ' ' || out->key[i] > '~')
            out->key[i] = '?';
    }
}

void work_look(struct work *work)
{
    struct work_spread *out = &work->spread;
    *out = (struct work_spread){0};
    uint32_t below = 0, best = UINT32_MAX, all = 0;
    for (uint32_t i = 0; i < work->slot_count; i++)
        all += read_count(&work->slots[i]);
    for (uint32_t i = 1; i < work->slot_count && all > 0; i++) {
        below += read_count(&work->slots[i - 1]);
        const uint32_t uneven = 2 * below > all ? 2 * below - all : all - 2 * below;
        /* Of slots without load the one next to those that have it: so a hot slot is alone after two splits. */
        if (uneven < best || (uneven == best && 2 * below <= all)) {
            best = uneven;
            out->split = (uint16_t)(work->first_slot + i);
        }
    }
    out->samples = all;
    fade(work, out);
    find_key(work, out);
}
