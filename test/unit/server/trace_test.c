/* What is kept of followed operations, through trace.h. */
#include "server/worker/trace.h"

#include "common/base/clock.h"
#include "proto/message.h"
#include "test/lib/unit.h"

#define MINUTE_NS (60 * NS_PER_S)

static void add(struct traces *traces, uint64_t minute, uint64_t total_ns)
{
    traces_add(traces, &(struct trace){.type = MESSAGE_PUT,
                                       .end_ns = minute * MINUTE_NS + 1,
                                       .total_ns = total_ns});
}

/* How many are kept of that minute and the one before that took from `first` to `last`. */
static uint32_t kept(const struct traces *traces, uint64_t minute, uint64_t first, uint64_t last)
{
    struct trace found[TRACE_ROWS];
    const uint32_t count = traces_read(traces, minute * MINUTE_NS, found);
    uint32_t inside = 0;
    for (uint32_t i = 0; i < count; i++)
        inside += found[i].total_ns >= first && found[i].total_ns <= last;
    return inside;
}

TEST(the_slowest_of_this_minute_and_the_one_before_are_kept)
{
    struct traces *traces = calloc(1, sizeof *traces);
    assert_non_null(traces);
    for (uint64_t i = 0; i < 5 * TRACE_SLOWEST; i++)
        add(traces, 7, 1000 + i * 37 % (5 * TRACE_SLOWEST));
    assert_int_equal(kept(traces, 7, 0, UINT64_MAX), TRACE_SLOWEST);
    assert_int_equal(kept(traces, 7, 1000 + 4 * TRACE_SLOWEST, 1000 + 5 * TRACE_SLOWEST),
                     TRACE_SLOWEST);
    add(traces, 8, 1); /* far faster, but of another minute */
    assert_int_equal(kept(traces, 8, 0, UINT64_MAX), TRACE_SLOWEST + 1);
    add(traces, 9, 2);
    assert_int_equal(kept(traces, 9, 0, UINT64_MAX), 2);
    add(traces, 11, 3);
    assert_int_equal(kept(traces, 11, 0, UINT64_MAX), 1);
    assert_int_equal(kept(traces, 12, 0, UINT64_MAX), 1);
    assert_int_equal(kept(traces, 13, 0, UINT64_MAX), 0); /* and nothing was added since */
    free(traces);
}

UNIT_MAIN(NULL, NULL)
