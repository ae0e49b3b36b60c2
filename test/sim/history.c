#include "test/sim/history.h"

#include <stdlib.h>

#include "common/base/assert.h"

enum { FIRST_ROOM = 1024 };

void history_init(struct history *history)
{
    *history = (struct history){0};
}

void history_fini(struct history *history)
{
    free(history->ops);
    *history = (struct history){0};
}

size_t history_call(struct history *history, const struct history_op *op)
{
    if (history->count == history->room) {
        history->room = history->room ? 2 * history->room : FIRST_ROOM;
        history->ops = realloc(history->ops, history->room * sizeof *history->ops);
        ASSERT(history->ops);
    }
    struct history_op *taken = &history->ops[history->count];
    *taken = *op;
    taken->outcome = HISTORY_OPEN;
    taken->called = ++history->events;
    taken->answered = 0;
    return history->count++;
}

void history_answer(struct history *history, size_t number, enum history_outcome outcome,
                    uint64_t value, uint64_t version, uint64_t now_ns)
{
    ASSERT(number < history->count && outcome != HISTORY_OPEN);
    struct history_op *op = &history->ops[number];
    ASSERT(op->outcome == HISTORY_OPEN);
    op->outcome = outcome;
    op->answered = ++history->events;
    op->answered_ns = now_ns;
    op->version = version;
    if (op->kind == HISTORY_GET)
        op->value = value;
}
