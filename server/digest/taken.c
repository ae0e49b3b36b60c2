/* What was taken of a segment, word by word. */
#include "server/digest/taken.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/entry/entry.h"

enum { WORD_BITS = 64 };

static uint32_t words_of(const struct taken *taken)
{
    return (taken->bytes / ENTRY_ALIGN + WORD_BITS - 1) / WORD_BITS;
}

int taken_init(struct taken *taken, uint32_t bytes)
{
    *taken = (struct taken){.bytes = bytes};
    taken->words = calloc(words_of(taken), sizeof *taken->words);
    return taken->words ? 0 : ROWAN_ENOMEM;
}

void taken_fini(struct taken *taken)
{
    free(taken->words);
    taken->words = NULL;
}

void taken_clear(struct taken *taken)
{
    memset(taken->words, 0, words_of(taken) * sizeof *taken->words);
}

/* Bits [bit % 64, 64) of a word. */
static uint64_t bits_from(uint32_t bit)
{
    return UINT64_MAX << bit % WORD_BITS;
}

void taken_add(struct taken *taken, uint32_t from, uint32_t end)
{
    ASSERT(from <= end && end <= taken->bytes && from % ENTRY_ALIGN == 0 && end % ENTRY_ALIGN == 0);
    uint32_t bit = from / ENTRY_ALIGN;
    const uint32_t last = end / ENTRY_ALIGN;
    while (bit < last) {
        uint64_t bits = bits_from(bit);
        const uint32_t next = (bit / WORD_BITS + 1) * WORD_BITS;
        if (next > last)
            bits &= ~bits_from(last);
        taken->words[bit / WORD_BITS] |= bits;
        bit = next;
    }
}

uint32_t taken_find(const struct taken *taken, uint32_t from, uint32_t end, bool is_taken)
{
    ASSERT(end <= taken->bytes && from % ENTRY_ALIGN == 0 && end % ENTRY_ALIGN == 0);
    const uint64_t flip = is_taken ? 0 : UINT64_MAX;
    uint32_t bit = from / ENTRY_ALIGN;
    const uint32_t last = end / ENTRY_ALIGN;
    while (bit < last) {
        const uint64_t bits = (taken->words[bit / WORD_BITS] ^ flip) & bits_from(bit);
        if (bits != 0) {
            bit = bit / WORD_BITS * WORD_BITS + (uint32_t)__builtin_ctzll(bits);
            break;
        }
        bit = (bit / WORD_BITS + 1) * WORD_BITS;
    }
    return bit < last ? bit * ENTRY_ALIGN : end;
}
