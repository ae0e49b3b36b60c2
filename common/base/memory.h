/* memory.h - whether the system refuses memory to this process. In what ships the linker leads each request through
 * memory_calls.c, which tells it here; elsewhere nothing is refused, as far as is known here. Any thread.
 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who gets less than this can do nothing for long; who gets no more has to make do without a larger table. */
enum { MEMORY_SMALL_BYTES = 64 << 10 };

extern _Atomic size_t memory_least; /* memory_short */

/* memory_refused: how many requests were. memory_short: the size of the least small one that was refused, as long as none of
 * that size was given since; 0: there is enough. memory_try: asks for as much, and gives it back: whoever waits for the end of
 * a shortage that nobody else would notice. */
uint64_t memory_refused(void);
static inline size_t memory_short(void)
{
    return atomic_load_explicit(&memory_least, memory_order_relaxed);
}
void memory_try(void);

/* The outcome of a request, for memory_calls.c. */
void memory_asked_slow(bool given, size_t bytes);
static inline void memory_asked(bool given, size_t bytes)
{
    if (!given || memory_short())
        memory_asked_slow(given, bytes);
}

#endif
