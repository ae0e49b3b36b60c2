/* What memory.h says, in two words that are looked at together by nobody: each is right by itself. */
#include "common/base/memory.h"

#include <stdlib.h>

_Atomic size_t memory_least;
static _Atomic uint64_t refused;

uint64_t memory_refused(void)
{
    return atomic_load_explicit(&refused, memory_order_relaxed);
}

void memory_asked_slow(bool given, size_t bytes)
{
    const size_t least = memory_short();
    if (!given)
        atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
    if (given && bytes >= least)
        atomic_store_explicit(&memory_least, 0, memory_order_relaxed);
    else if (!given && bytes <= MEMORY_SMALL_BYTES && (least == 0 || bytes < least))
        atomic_store_explicit(&memory_least, bytes ? bytes : 1, memory_order_relaxed);
}

void memory_try(void)
{
    void *volatile memory = malloc(memory_short());
    free(memory);
}
