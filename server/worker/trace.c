/* trace.c - see trace.h. */
#include "server/worker/trace.h"

#include <string.h>

#include "common/base/clock.h"

enum { TRIES = 4 };

#define MINUTE_NS (60 * NS_PER_S)

/* Stores of the words are releases, loads acquires: who sees one of a change sees the odd number as well. */
static void write_row(struct trace_row *row, const struct trace *trace)
{
    uint64_t words[TRACE_WORDS];
    const uint32_t sequence = atomic_load_explicit(&row->sequence, memory_order_relaxed);
    memcpy(words, trace, sizeof words);
    atomic_store_explicit(&row->sequence, sequence + 1, memory_order_relaxed);
    for (uint32_t i = 0; i < TRACE_WORDS; i++)
        atomic_store_explicit(&row->words[i], words[i], memory_order_release);
    atomic_store_explicit(&row->sequence, sequence + 2, memory_order_release);
}

static bool read_row(const struct trace_row *row, struct trace *out)
{
    uint64_t words[TRACE_WORDS];
    const uint32_t before = atomic_load_explicit(&row->sequence, memory_order_acquire);
    for (uint32_t i = 0; i < TRACE_WORDS; i++)
        words[i] = atomic_load_explicit(&row->words[i], memory_order_acquire);
    if (before % 2 || atomic_load_explicit(&row->sequence, memory_order_relaxed) != before)
        return false;
    memcpy(out, words, sizeof words);
    return true;
}

static void clear(struct traces *traces, uint32_t half)
{
    for (uint32_t i = 0; i < TRACE_SLOWEST; i++) {
        if (traces->total_ns[half][i])
            write_row(&traces->rows[half][i], &(struct trace){0});
        traces->total_ns[half][i] = 0;
    }
}

static void turn(struct traces *traces, uint64_t minute)
{
    if (minute == traces->minute)
        return;
    if (minute != traces->minute + 1)
        clear(traces, traces->current);
    traces->current ^= 1;
    clear(traces, traces->current);
    traces->minute = minute;
}

void traces_add(struct traces *traces, const struct trace *trace)
{
    counter_add(&traces->followed, 1);
    turn(traces, trace->end_ns / MINUTE_NS);
    uint64_t *totals = traces->total_ns[traces->current];
    uint32_t least = 0;
    for (uint32_t i = 1; i < TRACE_SLOWEST; i++) {
        if (totals[i] < totals[least])
            least = i;
    }
    if (trace->total_ns <= totals[least])
        return;
    totals[least] = trace->total_ns;
    write_row(&traces->rows[traces->current][least], trace);
}

uint32_t traces_read(const struct traces *traces, uint64_t now_ns, struct trace out[TRACE_ROWS])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < TRACE_ROWS; i++) {
        const struct trace_row *row = &traces->rows[i / TRACE_SLOWEST][i % TRACE_SLOWEST];
        bool whole = false;
        for (uint32_t try = 0; try < TRIES && !whole; try++)
            whole = read_row(row, &out[count]);
        count +=
            whole && out[count].end_ns && out[count].end_ns / MINUTE_NS + 1 >= now_ns / MINUTE_NS;
    }
    return count;
}
