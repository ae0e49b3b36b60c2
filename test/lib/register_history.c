#include "test/lib/register_history.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"

enum { SOON = 20, SHORT_VALUES = 4 };

struct reg {
    bool present;
    uint64_t value, version;
    uint64_t floor; /* versions so far */
};

struct slot {
    enum { IDLE, CALLED, EFFECTIVE } state;
    size_t number;
    bool unknown;
    enum history_outcome outcome;
    uint64_t value, version;
    uint64_t seen; /* the version that the client saw last */
};

/* An effect still to come. */
struct pending {
    size_t number;
    uint64_t at; /* event */
};

struct making {
    const struct register_options *options;
    struct history *history;
    struct random random;
    struct reg reg;
    struct slot *slots;
    struct pending *pending;
    uint32_t pending_count, called, unknowns, values;
};

static uint64_t next_version(struct making *making)
{
    uint64_t gap = making->options->version_gap ? making->options->version_gap : 1;
    making->reg.floor += 1 + random_below(&making->random, gap);
    return making->reg.floor;
}

static void take_effect(struct making *making, const struct history_op *op, struct slot *slot)
{
    struct reg *reg = &making->reg;
    slot->value = slot->version = 0;
    slot->outcome = HISTORY_DONE;
    if ((op->kind == HISTORY_GET || op->kind == HISTORY_DELETE) && !reg->present) {
        slot->outcome = HISTORY_ABSENT;
        return;
    }
    if (op->kind == HISTORY_GET) {
        slot->value = reg->value;
        slot->version = reg->version;
        uint32_t unseen_in = making->options->unseen_in;
        if (unseen_in && random_below(&making->random, unseen_in) == 0)
            slot->value = 0;
        return;
    }
    if (op->kind == HISTORY_DELETE) {
        uint64_t version = next_version(making);
        reg->present = false;
        if (making->options->tell_deletes)
            slot->version = version;
        return;
    }
    uint64_t version = reg->present ? reg->version : 0;
    if (op->kind == HISTORY_PUT_IF && op->expected != version) {
        slot->outcome = HISTORY_MISMATCH;
        slot->version = version;
        return;
    }
    reg->present = true;
    reg->value = op->value;
    reg->version = slot->version = next_version(making);
}

static uint64_t pick_expected(struct making *making, const struct slot *slot)
{
    switch (random_below(&making->random, 6)) {
    case 0:
        return 0;
    case 1:
        return 1 + random_below(&making->random, making->reg.floor + 2);
    default:
        return slot->seen;
    }
}

static void call(struct making *making, struct slot *slot, uint32_t client)
{
    const struct register_options *options = making->options;
    uint64_t weights[] = {options->gets, options->puts, options->put_ifs, options->deletes};
    uint64_t drawn =
        random_below(&making->random, weights[0] + weights[1] + weights[2] + weights[3]);
    struct history_op op = {.client = client};
    while (drawn >= weights[op.kind])
        drawn -= weights[op.kind++];
    if (op.kind == HISTORY_PUT || op.kind == HISTORY_PUT_IF) {
        op.value = 100 + making->values++;
        if (options->short_in && random_below(&making->random, options->short_in) == 0)
            op.value = 1 + random_below(&making->random, SHORT_VALUES);
    }
    if (op.kind == HISTORY_PUT_IF)
        op.expected = pick_expected(making, slot);
    slot->number = history_call(making->history, &op);
    slot->state = CALLED;
    making->called++;
    slot->unknown =
        op.kind != HISTORY_GET &&
        making->unknowns < (uint64_t)making->called * options->unknowns / options->operations;
    making->unknowns += slot->unknown;
}

/* When an effect nobody is told of happens; 0: never. */
static uint64_t draw_fate(struct making *making)
{
    uint64_t now = making->history->events, end = 2 * (uint64_t)making->options->operations;
    enum register_fate fate = making->options->fate;
    if (fate == REGISTER_MIXED)
        fate = (enum register_fate)(REGISTER_NEVER + random_below(&making->random, 4));
    uint64_t left = end > now ? end - now : 1;
    switch (fate) {
    case REGISTER_SOON:
        return now + random_below(&making->random, SOON);
    case REGISTER_LATE:
        return now + random_below(&making->random, left);
    case REGISTER_LAST:
        return now + left - random_below(&making->random, left / 10 + 1);
    default:
        return 0;
    }
}

static void advance(struct making *making, struct slot *slot)
{
    struct history *history = making->history;
    struct history_op *op = &history->ops[slot->number];
    if (slot->unknown) {
        uint64_t at = draw_fate(making);
        if (at)
            making->pending[making->pending_count++] = (struct pending){slot->number, at};
        if (random_below(&making->random, 2))
            history_answer(history, slot->number, HISTORY_UNKNOWN, 0, 0, 0);
        slot->state = IDLE;
    } else if (slot->state == CALLED) {
        take_effect(making, op, slot);
        slot->state = EFFECTIVE;
    } else {
        history_answer(history, slot->number, slot->outcome, slot->value, slot->version, 0);
        if (slot->version)
            slot->seen = slot->version;
        slot->state = IDLE;
    }
}

static void run_pending(struct making *making)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < making->pending_count; i++) {
        struct slot nobody;
        if (making->pending[i].at <= making->history->events)
            take_effect(making, &making->history->ops[making->pending[i].number], &nobody);
        else
            making->pending[kept++] = making->pending[i];
    }
    making->pending_count = kept;
}

void register_history(const struct register_options *options, struct history *out)
{
    struct making making = {.options = options, .history = out};
    uint32_t busy = 0;
    random_init(&making.random, options->seed);
    history_init(out);
    making.slots = calloc(options->clients, sizeof *making.slots);
    making.pending = calloc(options->operations + 1, sizeof *making.pending);
    ASSERT(making.slots && making.pending);
    while (making.called < options->operations || busy) {
        uint32_t client = (uint32_t)random_below(&making.random, options->clients);
        struct slot *slot = &making.slots[client];
        run_pending(&making);
        if (slot->state != IDLE) {
            advance(&making, slot);
            busy -= slot->state == IDLE;
        } else if (making.called < options->operations) {
            call(&making, slot, client);
            busy++;
        }
    }
    free(making.slots);
    free(making.pending);
}

/* --- shapes --- */

#define SHAPE(of_clients, of_unknowns, ...)                                                        \
    {                                                                                              \
        .seed = 1, .operations = 10000, .clients = of_clients, .unknowns = of_unknowns,            \
        __VA_ARGS__                                                                                \
    }
#define EVEN    .gets = 4, .puts = 2, .put_ifs = 2, .deletes = 2
#define PUTS    .gets = 4, .puts = 5, .put_ifs = 1
#define DELETES .gets = 2, .puts = 3, .deletes = 5

const struct register_shape register_shapes[] = {
    {"5 clients, mixed", SHAPE(5, 50, EVEN)},
    {"20 clients, mixed", SHAPE(20, 50, EVEN)},
    {"100 clients, mixed", SHAPE(100, 50, EVEN)},
    {"puts, unknown ones never seen", SHAPE(20, 50, PUTS, .fate = REGISTER_NEVER)},
    {"puts, unknown ones seen at the end", SHAPE(20, 50, PUTS, .fate = REGISTER_LAST)},
    {"puts, four values, a version in two unseen",
     SHAPE(20, 50, PUTS, .fate = REGISTER_LATE, .short_in = 1, .unseen_in = 2)},
    {"deletes, unknown ones of no effect", SHAPE(20, 50, DELETES, .fate = REGISTER_NEVER)},
    {"deletes, unknown ones at any time", SHAPE(20, 50, DELETES, .fate = REGISTER_LATE)},
    {"deletes, unknown ones at the end", SHAPE(20, 50, DELETES, .fate = REGISTER_LAST)},
    {"deletes and put_ifs, four values",
     SHAPE(20, 50, .gets = 2, .puts = 2, .put_ifs = 4, .deletes = 4, .short_in = 1)},
    {"deletes that tell, unknown ones at any time",
     SHAPE(20, 50, DELETES, .fate = REGISTER_LATE, .tell_deletes = true)},
    {"no gets", SHAPE(20, 50, .puts = 2, .put_ifs = 2, .deletes = 3)},
    {"500 unknown, mixed", SHAPE(20, 500, EVEN)},
    {"every second write unknown", SHAPE(20, 3000, EVEN)},
};
const size_t register_shape_count = sizeof register_shapes / sizeof register_shapes[0];

/* --- spoiling --- */

static void append(struct history *history, struct history_op op)
{
    size_t number = history_call(history, &op);
    history_answer(history, number, op.outcome, op.value, op.version, 0);
}

void register_history_end_badly(struct history *history)
{
    uint64_t highest = 0;
    for (size_t i = 0; i < history->count; i++) {
        if (history->ops[i].version > highest)
            highest = history->ops[i].version;
    }
    struct history_op put = {.kind = HISTORY_PUT,
                             .outcome = HISTORY_DONE,
                             .value = UINT64_MAX,
                             .version = highest + history->count};
    struct history_op get = put;
    get.kind = HISTORY_GET;
    append(history, put);
    append(history, (struct history_op){.kind = HISTORY_GET, .outcome = HISTORY_ABSENT});
    append(history, get);
}

static void spoil_answer(struct history_op *op, const struct history_op *other,
                         struct random *random)
{
    if (op->outcome == HISTORY_MISMATCH || op->outcome == HISTORY_DONE) {
        if ((op->kind == HISTORY_DELETE && !op->version) ||
            (op->kind == HISTORY_GET && random_below(random, 3) == 0))
            op->outcome = HISTORY_ABSENT;
        else if (random_below(random, 2))
            op->version = other->version;
        else
            op->version =
                op->version && random_below(random, 2) ? op->version - 1 : op->version + 1;
        if (op->outcome == HISTORY_ABSENT)
            op->value = op->version = 0;
    } else if (op->outcome == HISTORY_ABSENT) {
        op->outcome = HISTORY_DONE;
        if (op->kind == HISTORY_GET) {
            op->value = other->value;
            op->version = other->version;
        }
    }
}

void register_history_spoil(struct history *history, struct random *random)
{
    struct history_op *op = &history->ops[random_below(random, history->count)];
    const struct history_op *other = &history->ops[random_below(random, history->count)];
    switch (random_below(random, 6)) {
    case 0: /* real time gets finer, and one operation shorter */
        for (size_t i = 0; i < history->count; i++) {
            history->ops[i].called *= 4;
            history->ops[i].answered *= 4;
        }
        if (op->answered)
            op->answered = op->called + 1;
        break;
    case 1:
        if (op->kind == HISTORY_PUT_IF)
            op->expected = random_below(random, 2) ? other->version : 0;
        break;
    case 2:
        if (op->kind != HISTORY_DELETE && op->value && other->value)
            op->value = other->value;
        break;
    case 3: /* a write nobody was told of after all */
        if (op->kind != HISTORY_GET && op->outcome != HISTORY_OPEN) {
            op->outcome = random_below(random, 2) ? HISTORY_UNKNOWN : HISTORY_REJECTED;
            op->version = 0;
        }
        break;
    default:
        spoil_answer(op, other, random);
        break;
    }
}

/* --- every order --- */

struct trial {
    const struct history_op *ops;
    size_t count;
    bool *placed;
    uint64_t highest; /* of all versions that occur */
};

static bool is_known(const struct history_op *op)
{
    return op->outcome == HISTORY_DONE || op->outcome == HISTORY_ABSENT ||
           op->outcome == HISTORY_MISMATCH;
}

static bool may_be_next(const struct trial *trial, const struct history_op *op)
{
    for (size_t i = 0; i < trial->count; i++) {
        if (!trial->placed[i] && is_known(&trial->ops[i]) && trial->ops[i].answered < op->called)
            return false;
    }
    return true;
}

/* Does the register answer so, and if it gives a version, `version`? */
static bool answers(struct reg *reg, const struct history_op *op, uint64_t version)
{
    uint64_t present = reg->present ? reg->version : 0;
    bool told = is_known(op);
    if (op->kind == HISTORY_GET) {
        if (op->outcome == HISTORY_ABSENT)
            return !reg->present;
        return reg->present && op->version == reg->version &&
               (op->value == 0 || op->value == reg->value);
    }
    if (op->kind == HISTORY_DELETE) {
        if (told && op->outcome == HISTORY_ABSENT)
            return !reg->present;
        if (!reg->present || (version && version <= reg->floor))
            return false;
        reg->present = false;
        reg->floor = version ? version : reg->floor + 1;
        return true;
    }
    if (op->outcome == HISTORY_MISMATCH)
        return op->version == present && op->version != op->expected;
    if (op->kind == HISTORY_PUT_IF && op->expected != present)
        return false;
    if (version <= reg->floor)
        return false;
    *reg = (struct reg){true, op->value, version, version};
    return true;
}

static bool try_next(struct trial *trial, struct reg reg);

static bool try_op(struct trial *trial, struct reg reg, size_t number)
{
    const struct history_op *op = &trial->ops[number];
    if (is_known(op) || op->kind == HISTORY_DELETE)
        return answers(&reg, op, op->version) && try_next(trial, reg);
    /* Any version; above the highest they are all the same. */
    uint64_t last = trial->highest > reg.floor ? trial->highest + 1 : reg.floor + 1;
    for (uint64_t version = reg.floor + 1; version <= last; version++) {
        struct reg after = reg;
        if (answers(&after, op, version) && try_next(trial, after))
            return true;
    }
    return false;
}

static bool try_next(struct trial *trial, struct reg reg)
{
    bool all = true;
    for (size_t i = 0; i < trial->count; i++)
        all &= trial->placed[i] || !is_known(&trial->ops[i]);
    if (all)
        return true;
    for (size_t i = 0; i < trial->count; i++) {
        const struct history_op *op = &trial->ops[i];
        if (trial->placed[i] || op->outcome == HISTORY_REJECTED || !may_be_next(trial, op))
            continue;
        if (op->kind == HISTORY_GET && !is_known(op))
            continue;
        trial->placed[i] = true;
        if (try_op(trial, reg, i))
            return true;
        trial->placed[i] = false;
    }
    return false;
}

bool register_history_is_linear(const struct history_op *ops, size_t count)
{
    struct trial trial = {.ops = ops, .count = count, .placed = calloc(count + 1, sizeof(bool))};
    ASSERT(trial.placed);
    for (size_t i = 0; i < count; i++) {
        if (ops[i].version > trial.highest)
            trial.highest = ops[i].version;
        if (ops[i].expected > trial.highest)
            trial.highest = ops[i].expected;
    }
    bool linear = try_next(&trial, (struct reg){0});
    free(trial.placed);
    return linear;
}
