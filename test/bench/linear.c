/* linear - what it costs to judge a long history of one hot key: good ones of several shapes, and the same
 * with an end that makes them bad, so that everything before it is searched for another way. */
#include <inttypes.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "test/lib/register_history.h"
#include "test/sim/linear.h"

static const char *const verdicts[] = {"good", "bad", "too long"};

/* False: no verdict. */
static bool judge(const char *name, const struct history *history)
{
    struct linear_result result;
    uint64_t start_ns = clock_now_ns(clock_system());
    linear_check(history->ops, history->count, 0, &result);
    uint64_t took_us = (clock_now_ns(clock_system()) - start_ns) / NS_PER_US;
    printf("%-44s %-8s %10" PRIu64 " %8" PRIu64 ".%" PRIu64 "\n", name, verdicts[result.verdict],
           result.states, took_us / 1000, took_us % 1000 / 100);
    return result.verdict != LINEAR_TOO_LONG;
}

int main(void)
{
    bool all = true;
    printf("%-44s %-8s %10s %10s\n", "10,000 operations, 50 of unknown outcome", "verdict",
           "states", "ms");
    for (size_t i = 0; i < register_shape_count; i++) {
        struct history history;
        register_history(&register_shapes[i].options, &history);
        all &= judge(register_shapes[i].name, &history);
        register_history_end_badly(&history);
        all &= judge("  with a bad end", &history);
        history_fini(&history);
    }
    return all ? 0 : 1;
}
