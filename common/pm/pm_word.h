/* pm_word.h - the aligned 8-byte word, the unit that a crash leaves whole and that protocols
 * publish with. One word is stored by one instruction. Longer copies are left to memcpy and
 * libpmem: on x86-64 both move aligned words whole. */
#ifndef PM_PM_WORD_H
#define PM_PM_WORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline bool is_one_word(uint64_t offset, size_t bytes)
{
    return bytes == sizeof(uint64_t) && offset % sizeof(uint64_t) == 0;
}

static inline void store_word(uint8_t *target, const void *source)
{
    uint64_t word;

    memcpy(&word, source, sizeof(word));
    __atomic_store_n((uint64_t *)(void *)target, word, __ATOMIC_RELEASE);
}

#endif
