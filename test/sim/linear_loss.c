/* Each part of the history is given to linear_check by itself, behind a put that makes what the part may begin with.
 *
 * Beginnings that need not be tried one by one: a version that nobody behind the loss was told, and that no put_if
 * with unknown outcome expects, is as good as any other such.
 */
#include "test/sim/linear_loss.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"

/* Calls and answers move up by so much: room for the put that a part begins with. */
enum { FIRST_ANSWER = 1, SHIFT = 2 };

struct part {
    const struct history_op *all;
    size_t all_count;
    uint64_t from_ns, to_ns;           /* 0; UINT64_MAX: no loss there */
    uint64_t from_version, to_version; /* likewise */
    struct history_op *ops;            /* ops[0]: what it begins with */
    size_t *numbers;                   /* in `all` */
    size_t count;                      /* with ops[0] */
};

static bool is_write(const struct history_op *op)
{
    return op->kind != HISTORY_GET;
}

static bool is_open(const struct history_op *op)
{
    return op->outcome == HISTORY_OPEN || op->outcome == HISTORY_UNKNOWN;
}

/* A version that it was told: there was such a one. */
static uint64_t told(const struct history_op *op)
{
    return op->outcome == HISTORY_DONE || op->outcome == HISTORY_MISMATCH ? op->version : 0;
}

/* May it have taken effect in the part? What is open may do so at any time. */
static bool meets(const struct part *part, const struct history_op *op)
{
    return op->called_ns <= part->to_ns && (is_open(op) || op->answered_ns >= part->from_ns);
}

static bool is_inside(const struct part *part, const struct history_op *op)
{
    return op->called_ns >= part->from_ns && op->answered != 0 && op->answered_ns <= part->to_ns;
}

/* What of the operation belongs to the part; false: nothing. */
static bool take(const struct part *part, struct history_op *op)
{
    uint64_t version = told(op);
    if (op->outcome == HISTORY_REJECTED || !meets(part, op))
        return false;
    if (is_open(op))
        return is_write(op);
    if (is_write(op) && op->outcome == HISTORY_DONE && version < part->to_version && version)
        return version >= part->from_version;
    if (is_write(op) && op->outcome == HISTORY_DONE && version) {
        /* The loss may have taken it back before the retry that was answered, and somebody may have seen it. */
        op->outcome = HISTORY_UNKNOWN;
        return true;
    }
    if (is_inside(part, op))
        return true;
    if (version >= part->from_version && version < part->to_version)
        return part->to_ns == UINT64_MAX || op->answered_ns <= part->to_ns;
    if (op->kind != HISTORY_DELETE || op->outcome != HISTORY_DONE)
        return false;
    op->outcome = HISTORY_UNKNOWN;
    return true;
}

static void gather(struct part *part)
{
    part->count = 1;
    for (size_t i = 0; i < part->all_count; i++) {
        struct history_op op = part->all[i];
        if (!take(part, &op))
            continue;
        op.called += SHIFT;
        op.answered += op.answered ? SHIFT : 0;
        part->ops[part->count] = op;
        part->numbers[part->count++] = i;
    }
}

/* A write was told a version that belongs to another time. */
static bool check_times(const struct part *part, struct linear_result *out)
{
    for (size_t i = 0; i < part->all_count; i++) {
        const struct history_op *op = &part->all[i];
        uint64_t version = is_write(op) && op->outcome == HISTORY_DONE ? op->version : 0;
        if (version < part->from_version || version >= part->to_version || version == 0 ||
            meets(part, op))
            continue;
        *out = (struct linear_result){.verdict = LINEAR_NO, .stuck = i};
        snprintf(out->why, sizeof out->why,
                 "a write was told version %lu:%lu, of before or behind a loss on whose other side "
                 "it was",
                 version >> 40, version & ((UINT64_C(1) << 40) - 1));
        return false;
    }
    return true;
}

/* --- beginnings --- */

/* The value of a version of before: 0: nobody knows it. False: nobody can have written it. */
static bool find_value(const struct part *part, uint64_t version, uint64_t *value)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < part->all_count; i++) {
        const struct history_op *op = &part->all[i];
        if (told(op) != version || op->kind == HISTORY_DELETE ||
            (op->kind == HISTORY_PUT_IF && op->outcome == HISTORY_MISMATCH))
            continue;
        if (is_write(op)) {
            *value = op->value;
            return op->called_ns <= part->from_ns;
        }
        seen = op->value ? op->value : seen;
    }
    *value = seen;
    for (size_t i = 0; i < part->all_count; i++) {
        const struct history_op *op = &part->all[i];
        if (is_write(op) && op->kind != HISTORY_DELETE && is_open(op) &&
            op->called_ns <= part->from_ns && (seen == 0 || op->value == seen))
            return true;
    }
    return false;
}

static void check_from(const struct part *part, uint64_t version, uint64_t value,
                       uint64_t max_states, struct linear_result *out)
{
    part->ops[0] = (struct history_op){.kind = HISTORY_PUT,
                                       .outcome = HISTORY_DONE,
                                       .called = 0,
                                       .answered = FIRST_ANSWER,
                                       .value = value,
                                       .version = version};
    size_t first = version ? 0 : 1;
    struct linear_result result;
    linear_check(part->ops + first, part->count - first, max_states, &result);
    result.states += out->states;
    /* The operation that a wrong history is stuck at; never the first one: nothing comes before that. */
    result.stuck = result.verdict == LINEAR_NO ? part->numbers[result.stuck + first] : 0;
    if (out->verdict == LINEAR_TOO_LONG && result.verdict == LINEAR_NO)
        out->states = result.states;
    else
        *out = result;
}

/* The versions of before that somebody in the part was told, or expects. */
static uint64_t mentioned(const struct part *part, size_t number, bool *sure)
{
    const struct history_op *op = &part->ops[number];
    bool found = op->kind == HISTORY_PUT_IF && op->outcome == HISTORY_DONE;
    uint64_t version =
        op->kind == HISTORY_PUT_IF && (found || is_open(op)) ? op->expected : told(op);
    *sure = !is_open(op);
    return version < part->from_version ? version : 0;
}

/* Behind a loss that nobody was told a version of before: whatever explains the rest. */
static void try_beginnings(struct part *part, uint64_t max_states, struct linear_result *out,
                           uint64_t *began)
{
    check_from(part, 0, 0, max_states, out);
    if (out->verdict == LINEAR_YES)
        *began = 0;
    else
        check_from(part, part->from_version - 1, 0, max_states, out);
    for (size_t i = 1; i < part->count && out->verdict != LINEAR_YES; i++) {
        bool sure;
        uint64_t version = mentioned(part, i, &sure), value;
        if (version && find_value(part, version, &value))
            check_from(part, version, value, max_states, out);
    }
}

/* `*began`: the version that it began with; 0: no value; UINT64_MAX: nobody knows. */
static void check_part(struct part *part, uint64_t max_states, struct linear_result *out,
                       uint64_t *began)
{
    uint64_t version = 0, value = 0;
    *out = (struct linear_result){.verdict = LINEAR_NO};
    *began = UINT64_MAX;
    for (size_t i = 1; i < part->count && !version; i++) {
        bool sure;
        version = mentioned(part, i, &sure);
        version = sure ? version : 0;
        out->stuck = part->numbers[i];
    }
    if (!version && part->from_version) {
        try_beginnings(part, max_states, out, began);
        return;
    }
    *began = version;
    if (!version || find_value(part, version, &value))
        check_from(part, version, value, max_states, out);
    else
        snprintf(out->why, sizeof out->why,
                 "version %lu:%lu is there behind a loss, and nobody can have written it before",
                 version >> 40, version & ((UINT64_C(1) << 40) - 1));
}

/* Did the key go back for sure? That there was no value may also be the work of a delete. */
static bool went_back(const struct part *part, uint64_t began)
{
    uint64_t highest = 0;
    bool deletes = false;
    for (size_t i = 0; i < part->all_count; i++) {
        const struct history_op *op = &part->all[i];
        deletes |= op->kind == HISTORY_DELETE && op->outcome != HISTORY_REJECTED;
        if (op->answered && op->answered_ns < part->from_ns && told(op) > highest)
            highest = told(op);
    }
    if (began)
        return began < highest;
    bool absent = false;
    for (size_t i = 1; i < part->count; i++)
        absent |= part->ops[i].outcome == HISTORY_ABSENT;
    return highest && absent && !deletes;
}

void linear_check_losses(const struct history_op *ops, size_t count,
                         const struct linear_loss *losses, uint32_t loss_count, uint64_t max_states,
                         struct linear_result *out, uint32_t *turned_back)
{
    uint64_t states = 0;
    if (turned_back)
        *turned_back = 0;
    if (loss_count == 0) {
        linear_check(ops, count, max_states, out);
        return;
    }
    struct part part = {.all = ops, .all_count = count};
    part.ops = calloc(count + 1, sizeof *part.ops);
    part.numbers = calloc(count + 1, sizeof *part.numbers);
    ASSERT(part.ops && part.numbers);
    for (uint32_t i = 0; i <= loss_count; i++) {
        uint64_t began;
        part.from_ns = i ? losses[i - 1].at_ns : 0;
        part.from_version = i ? losses[i - 1].version : 0;
        part.to_ns = i < loss_count ? losses[i].at_ns : UINT64_MAX;
        part.to_version = i < loss_count ? losses[i].version : UINT64_MAX;
        if (!check_times(&part, out))
            break;
        gather(&part);
        check_part(&part, max_states, out, &began);
        states += out->states;
        if (out->verdict != LINEAR_YES)
            break;
        if (turned_back && i > 0 && began != UINT64_MAX)
            *turned_back += went_back(&part, began);
    }
    out->states = states;
    free(part.ops);
    free(part.numbers);
}
