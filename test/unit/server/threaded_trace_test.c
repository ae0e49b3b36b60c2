/* Followed operations that one thread adds while another one reads them. */
#include "common/base/clock.h"
#include "server/worker/trace.h"
#include "test/lib/unit.h"

#include <pthread.h>

enum { READS = 20000 };

struct run {
    struct traces traces;
    _Atomic bool over;
};

/* All of a trace is told by its total. */
static void *add(void *of)
{
    struct run *run = of;
    for (uint64_t i = 1; !atomic_load_explicit(&run->over, memory_order_relaxed); i++) {
        struct trace trace = {
            .end_ns = 1, .queue_ns = i, .total_ns = i, .value_bytes = (uint32_t)i};
        memset(trace.key, (int)(i & 0xff), sizeof trace.key);
        traces_add(&run->traces, &trace);
    }
    return NULL;
}

TEST(what_is_read_while_it_changes_is_one_operation)
{
    struct run *run = calloc(1, sizeof *run);
    struct trace found[TRACE_ROWS];
    uint64_t highest = 0;
    pthread_t writer;
    assert_non_null(run);
    assert_int_equal(pthread_create(&writer, NULL, add, run), 0);
    /* The writer may not have begun yet. */
    for (unsigned i = 0; i < READS || highest <= TRACE_ROWS; i++) {
        const uint32_t count = traces_read(&run->traces, 0, found);
        for (uint32_t at = 0; at < count; at++) {
            const struct trace *trace = &found[at];
            assert_int_equal(trace->queue_ns, trace->total_ns);
            assert_int_equal(trace->value_bytes, (uint32_t)trace->total_ns);
            assert_int_equal(trace->key[0], trace->total_ns & 0xff);
            assert_int_equal(trace->key[TRACE_KEY_BYTES - 1], trace->total_ns & 0xff);
            highest = trace->total_ns > highest ? trace->total_ns : highest;
        }
    }
    atomic_store(&run->over, true);
    pthread_join(writer, NULL);
    free(run);
}

UNIT_MAIN(NULL, NULL)
