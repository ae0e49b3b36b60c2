/* The search. A state is what has been placed and what the register holds; a move places the next
 * operation that changes the register. `linear_plan` has sorted the operations into groups by the
 * versions that they were told.
 *
 * An operation may be placed next if no operation that is still to be placed was answered before its
 * call (Wing and Gong). Of all orders that allows, these are enough:
 *
 *  L1  What only looks, and fits to what the register holds, is placed at once. If an order places it later,
 *      it can as well be placed here: it changes nothing, and nobody has to come before it. (One that was
 *      told a version fits to that version alone, so that it is the same one later.)
 *  L2  Groups follow each other by version, and a group is left only when all of it is placed: its
 *      version never comes back. After the group that a put_if DONE expected comes that put_if.
 *  L3  A write with unknown outcome is placed only where the next operation that is placed needs its
 *      effect, or nowhere. Whatever is placed looks at the register first, but for an unconditional put
 *      and a delete with unknown outcome. So if what follows such a write W does not need it, it is one of
 *      these two, or a delete DONE that would have found what was there before W. It hides W's effect, and
 *      the order without W is right, too: it asks less of versions. (A delete with unknown outcome that hides
 *      a put of an absent key goes with it; one that finds nothing is no write.)
 *      It may be placed as late as it is needed, because its answer sets it no end.
 *  L4  Of deletes DONE that may be next, the one that was answered first is placed: they do the same, so
 *      in an order that places another one here the two can change places.
 *  L5  Of writes with unknown outcome that write the same value, a put_if whose condition holds here
 *      goes before a put, and of equal ones the one that was called first. A put_if that expects a version
 *      has no other place than this; one that expects absence can change places with the put. Values that
 *      no group without writer shows are all the same (class 0). Deletes are all the same.
 *  L6  A put with unknown outcome that nobody sees (M_HIDDEN_DELETE) serves only a delete DONE of an absent
 *      key, or a put_if with unknown outcome that expects a version nobody was told
 *      (M_BETWEEN). One is enough for either: of two in a row the first would do alone. Of such put_ifs that
 *      would open the same group any one will do: behind it none of them has a place.
 *
 * Versions are whole numbers and where nobody told what a delete's or a hidden put's is, it takes the least
 * that is possible, `floor`, and the next group's must be above it.
 *
 *   PRESENT (group complete) --opened by its writer, or a write with unknown outcome--> PRESENT (next group)
 *      |  ^          |                                                                      ^
 *      |  |          +--delete DONE--> ABSENT ----------------------------------------------+
 *      |  |          +--unknown delete--> VANISHED --somebody met no value--> ABSENT        |
 *      |  |                                  +--put_if expecting absence--------------------+
 *      +--+--------------- hidden put: BETWEEN --put_if with unknown outcome----------------+
 */
#include "test/sim/linear.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "test/sim/linear_order.h"
#include "test/sim/linear_seen.h"

enum { BEFORE_FIRST = LINEAR_NONE };

#define MOST_STATES UINT64_C(10000000)

enum register_state {
    PRESENT,  /* the version and value of the group */
    ABSENT,   /* seen to be, or by a delete that is */
    VANISHED, /* by a delete with unknown outcome that nobody has seen yet (L3) */
    BETWEEN,  /* a hidden put's, that has the version `between` (L6) */
};

enum move_kind {
    M_OPEN,          /* the writer of the next group */
    M_OPEN_UNKNOWN,  /* a write with unknown outcome opens it */
    M_DELETE,        /* a delete DONE that was not told its version */
    M_VANISH,        /* a delete with unknown outcome */
    M_HIDDEN_DELETE, /* a put with unknown outcome, and a delete DONE of its value */
    M_BETWEEN,       /* a put with unknown outcome, of the version that a put_if expects */
};

struct move {
    enum move_kind kind;
    uint32_t op;      /* OPEN, DELETE, HIDDEN_DELETE */
    uint32_t unknown; /* the others, and HIDDEN_DELETE; in plan->unknowns */
    uint64_t between; /* BETWEEN */
};

/* A state on the way from the first to the present one. */
struct frame {
    enum register_state state;
    uint32_t group;            /* the last one that was opened, or BEFORE_FIRST */
    uint32_t readers, absents; /* placed: of the group; of all */
    uint64_t floor;            /* the next group's version is above it */
    uint64_t between;
    uint32_t placed;                /* how many when it was entered */
    uint32_t used;                  /* unknowns likewise */
    uint32_t first_move, next_move; /* in search->moves; they end where the next frame's begin */
    uint32_t opened_class;          /* its `needed` fell by one on the way here; or LINEAR_NONE */
};

struct search {
    struct linear_order order;
    struct linear_seen seen;
    struct frame *frames;
    uint32_t depth;
    struct move *moves;
    uint32_t move_count, move_room;
    uint64_t *place, *used; /* room for a key of `seen` */

    uint32_t best; /* so many were placed */
    struct frame best_frame;
    uint32_t best_stuck;
};

/* --- what stands around a state --- */

static const struct linear_group *group_of(const struct search *search, const struct frame *frame)
{
    return frame->group == BEFORE_FIRST ? NULL : &search->order.plan.groups[frame->group];
}

/* NULL: there is none. */
static const struct linear_group *next_group(const struct search *search, const struct frame *frame)
{
    uint32_t next = frame->group == BEFORE_FIRST ? 0 : frame->group + 1;
    return next < search->order.plan.group_count ? &search->order.plan.groups[next] : NULL;
}

/* Would a put_if that expects this take effect? */
static bool holds(const struct search *search, const struct frame *frame, uint64_t expected)
{
    if (frame->state == PRESENT)
        return group_of(search, frame)->version == expected;
    if (frame->state == BETWEEN)
        return frame->between == expected;
    return expected == 0;
}

/* L1. */
static void look(struct search *search, struct frame *frame)
{
    const struct linear_plan *plan = &search->order.plan;
    if (frame->state == PRESENT) {
        const struct linear_group *group = group_of(search, frame);
        const uint32_t *readers = plan->readers + group->first_reader;
        while (frame->readers < group->reader_count &&
               linear_order_may_be_next(&search->order, readers[frame->readers]))
            linear_order_place(&search->order, readers[frame->readers++]);
    } else if (frame->state != BETWEEN) {
        while (frame->absents < plan->absent_count &&
               linear_order_may_be_next(&search->order, plan->absents[frame->absents])) {
            linear_order_place(&search->order, plan->absents[frame->absents++]);
            frame->state = ABSENT;
        }
    }
}

/* --- moves --- */

static void add_move(struct search *search, struct move move)
{
    if (search->move_count == search->move_room) {
        search->move_room = search->move_room ? 2 * search->move_room : 1024;
        search->moves = realloc(search->moves, search->move_room * sizeof *search->moves);
        ASSERT(search->moves);
    }
    search->moves[search->move_count++] = move;
}

/* L5: of the class, or LINEAR_NONE. */
static uint32_t pick(const struct search *search, const struct frame *frame, uint32_t class_number)
{
    const struct linear_class *class = &search->order.plan.classes[class_number];
    for (uint32_t i = class->first; i < class->first + class->count; i++) {
        const struct linear_unknown *unknown = &search->order.plan.unknowns[i];
        bool fits = unknown->conditional ? holds(search, frame, unknown->expected)
                                         : frame->state != VANISHED && frame->state != BETWEEN;
        if (fits && !linear_order_is_used(&search->order, i) &&
            linear_order_may_be_next(&search->order, unknown->op))
            return i;
    }
    return LINEAR_NONE;
}

/* Whatever puts something there. A value that all the writes left of it are needed for is spared. */
static void add_any(struct search *search, const struct frame *frame, struct move move)
{
    for (uint32_t i = 0; i < search->order.plan.class_count; i++) {
        if (search->order.class_left[i] <= search->order.plan.classes[i].needed)
            continue;
        move.unknown = pick(search, frame, i);
        if (move.unknown != LINEAR_NONE)
            add_move(search, move);
    }
}

static uint32_t class_of_value(const struct search *search, uint64_t value)
{
    uint32_t low = 0, high = search->order.plan.class_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (search->order.plan.classes[middle].value <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void add_open(struct search *search, const struct frame *frame,
                     const struct linear_group *next)
{
    const struct history_op *writer = linear_order_op(&search->order, next->writer);
    if (next->gone && frame->state != PRESENT) {
        if (frame->state == ABSENT && next->version > frame->floor + 1 &&
            linear_order_may_be_next(&search->order, next->writer))
            add_any(search, frame, (struct move){.kind = M_HIDDEN_DELETE, .op = next->writer});
        return;
    }
    bool fits = writer->kind == HISTORY_PUT_IF
                    ? holds(search, frame, writer->expected)
                    : frame->state != VANISHED && frame->state != BETWEEN;
    if (fits && linear_order_may_be_next(&search->order, next->writer))
        add_move(search, (struct move){.kind = M_OPEN, .op = next->writer});
}

/* L6. */
static void add_between(struct search *search, const struct frame *frame,
                        const struct linear_group *next, const struct linear_class *class)
{
    for (uint32_t i = class->first; i < class->first + class->count; i++) {
        const struct linear_unknown *unknown = &search->order.plan.unknowns[i];
        if (!unknown->conditional)
            return;
        if (unknown->between && unknown->expected > frame->floor &&
            unknown->expected < next->version && !linear_order_is_used(&search->order, i) &&
            linear_order_may_be_next(&search->order, unknown->op)) {
            add_any(search, frame, (struct move){.kind = M_BETWEEN, .between = unknown->expected});
            return;
        }
    }
}

static void add_open_unknown(struct search *search, const struct frame *frame,
                             const struct linear_group *next)
{
    struct move move = {.kind = M_OPEN_UNKNOWN};
    if (!next->value) {
        add_any(search, frame, move);
        return;
    }
    uint32_t class = class_of_value(search, next->value);
    move.unknown = pick(search, frame, class);
    if (move.unknown != LINEAR_NONE)
        add_move(search, move);
    if (frame->state != BETWEEN)
        add_between(search, frame, next, &search->order.plan.classes[class]);
}

/* L3: is there anybody who may need an absence here? */
static bool absence_is_needed(const struct search *search, const struct frame *frame,
                              const struct linear_group *next)
{
    const struct linear_plan *plan = &search->order.plan;
    if (frame->absents < plan->absent_count &&
        linear_order_may_be_next(&search->order, plan->absents[frame->absents]))
        return true;
    if (!next)
        return false;
    if (next->writer != LINEAR_NONE) {
        const struct history_op *writer = linear_order_op(&search->order, next->writer);
        return writer->kind == HISTORY_PUT_IF && writer->expected == 0;
    }
    return true; /* perhaps a put_if with unknown outcome */
}

static void add_vanish(struct search *search, const struct frame *frame,
                       const struct linear_group *next)
{
    const struct linear_plan *plan = &search->order.plan;
    if (!absence_is_needed(search, frame, next))
        return;
    for (uint32_t i = plan->first_unknown_delete; i < plan->unknown_count; i++) {
        if (linear_order_is_used(&search->order, i))
            continue;
        if (linear_order_may_be_next(&search->order, plan->unknowns[i].op))
            add_move(search, (struct move){.kind = M_VANISH, .unknown = i});
        return;
    }
}

static void add_moves(struct search *search, struct frame *frame)
{
    const struct linear_group *group = group_of(search, frame);
    const struct linear_group *next = next_group(search, frame);
    frame->first_move = frame->next_move = search->move_count;
    if (frame->state == PRESENT && frame->readers < group->reader_count)
        return; /* L2 */
    if (next && next->version > frame->floor) {
        if (next->writer != LINEAR_NONE)
            add_open(search, frame, next);
        else
            add_open_unknown(search, frame, next);
    }
    if (frame->state == VANISHED || frame->state == BETWEEN ||
        (group && group->successor != LINEAR_NONE))
        return;
    uint32_t deleted = linear_order_first_delete(&search->order); /* L4 */
    if (frame->state == PRESENT) {
        if (deleted != LINEAR_NONE)
            add_move(search, (struct move){.kind = M_DELETE, .op = deleted});
        add_vanish(search, frame, next);
    } else if (deleted != LINEAR_NONE) {
        add_any(search, frame, (struct move){.kind = M_HIDDEN_DELETE, .op = deleted});
    }
}

/* --- doing and undoing --- */

/* The next group is opened. */
static void open_group(struct search *search, struct frame *frame)
{
    const struct linear_group *next = next_group(search, frame);
    frame->group = (uint32_t)(next - search->order.plan.groups);
    frame->state = next->gone ? ABSENT : PRESENT;
    frame->floor = next->version;
    frame->readers = 0;
    if (next->writer != LINEAR_NONE || !next->value)
        return;
    frame->opened_class = class_of_value(search, next->value);
    struct linear_class *class = &search->order.plan.classes[frame->opened_class];
    ASSERT(class->needed > 0);
    class->needed--;
}

static void make_move(struct search *search, struct frame *frame, const struct move *move)
{
    frame->placed = search->order.placed_count;
    frame->used = search->order.used_count;
    frame->opened_class = LINEAR_NONE;
    if (move->kind != M_OPEN && move->kind != M_DELETE)
        linear_order_use(&search->order, move->unknown);
    if (move->kind == M_OPEN || move->kind == M_DELETE || move->kind == M_HIDDEN_DELETE)
        linear_order_place(&search->order, move->op);
    switch (move->kind) {
    case M_OPEN:
    case M_OPEN_UNKNOWN:
        open_group(search, frame);
        break;
    case M_DELETE:
        frame->floor++;
        frame->state = ABSENT;
        break;
    case M_HIDDEN_DELETE:
        if (linear_order_op(&search->order, move->op)->version)
            open_group(search, frame);
        else
            frame->floor += 2;
        break;
    case M_VANISH:
        frame->floor++;
        frame->state = VANISHED;
        break;
    case M_BETWEEN:
        frame->floor = frame->between = move->between;
        frame->state = BETWEEN;
        break;
    }
}

static void leave(struct search *search, const struct frame *frame)
{
    search->move_count = frame->first_move;
    linear_order_back(&search->order, frame->placed, frame->used);
    if (frame->opened_class != LINEAR_NONE)
        search->order.plan.classes[frame->opened_class].needed++;
}

/* --- the memory of visited states --- */

/* Which writes with unknown outcome are used. Of put_ifs that expect a version, nobody cares: behind a used one
 * the version never comes again, so that it is all the same whether another way came without. */
static const uint64_t *used_for_key(struct search *search)
{
    const struct linear_order *order = &search->order;
    for (uint32_t i = 0; i < linear_words(order->plan.unknown_count); i++)
        search->used[i] = order->used_bits[i];
    for (uint32_t i = 0; i < order->used_count; i++) {
        if (order->plan.unknowns[order->used[i]].expected)
            linear_flip(search->used, order->used[i]);
    }
    return search->used;
}

/* The group, the register and which deletes and absences are placed say all: the operations of earlier groups
 * are placed, those of later ones are not, and of this one what L1 places. */
static bool is_new(struct search *search, const struct frame *frame)
{
    const struct linear_plan *plan = &search->order.plan;
    uint32_t count = 0, end = linear_words(plan->delete_count);
    uint32_t first =
        search->order.later_delete[plan->delete_count] / 64; /* one behind all, if none is left */
    search->place[count++] = (uint64_t)frame->group << 32 | frame->state;
    search->place[count++] = frame->state == BETWEEN ? frame->between : 0;
    search->place[count++] = (uint64_t)frame->absents << 32 | first;
    for (uint32_t i = first; i < end; i++) {
        if (!linear_order_may_be_next(&search->order, plan->deletes[i * 64]))
            break; /* those behind it are not placed, either */
        search->place[count++] = search->order.deletes_placed[i];
    }
    return linear_seen_add(&search->seen, search->place, count, frame->floor, used_for_key(search));
}

/* --- the search --- */

static void note_best(struct search *search, const struct frame *frame)
{
    if (search->order.placed_count < search->best || linear_order_is_over(&search->order))
        return;
    search->best = search->order.placed_count;
    search->best_frame = *frame;
    search->best_stuck = linear_order_head(&search->order);
}

/* Enters the state behind a move, or the first one. False: it was seen before, and is left again. */
static bool enter(struct search *search, struct frame *frame)
{
    look(search, frame);
    note_best(search, frame);
    frame->first_move = search->move_count;
    if (!is_new(search, frame)) {
        leave(search, frame);
        return false;
    }
    add_moves(search, frame);
    search->depth++;
    return true;
}

static bool is_too_long(const struct search *search, uint64_t max_states)
{
    return search->seen.count >= max_states || linear_seen_bytes(&search->seen) > LINEAR_MOST_BYTES;
}

static enum linear_verdict run(struct search *search, uint64_t max_states)
{
    search->frames[0] =
        (struct frame){.state = ABSENT, .group = BEFORE_FIRST, .opened_class = LINEAR_NONE};
    (void)enter(search, &search->frames[0]);
    while (search->depth && !linear_order_is_over(&search->order)) {
        struct frame *frame = &search->frames[search->depth - 1];
        if (frame->next_move == search->move_count) {
            search->depth--;
            leave(search, frame);
            continue;
        }
        if (is_too_long(search, max_states))
            return LINEAR_TOO_LONG;
        struct move move = search->moves[frame->next_move++];
        frame[1] = *frame;
        make_move(search, &frame[1], &move);
        (void)enter(search, &frame[1]);
    }
    return search->depth ? LINEAR_YES : LINEAR_NO;
}

static void search_init(struct search *search)
{
    const struct linear_plan *plan = &search->order.plan;
    linear_order_init(&search->order);
    linear_seen_init(&search->seen, linear_words(plan->unknown_count));
    /* A move places an operation or uses up a write. */
    search->frames =
        linear_take((size_t)plan->known_count + plan->unknown_count + 2, sizeof *search->frames);
    search->place =
        linear_take((size_t)linear_words(plan->delete_count) + 3, sizeof *search->place);
    search->used = linear_take(linear_words(plan->unknown_count), sizeof *search->used);
}

static void search_fini(struct search *search)
{
    linear_order_fini(&search->order);
    linear_seen_fini(&search->seen);
    free(search->frames);
    free(search->place);
    free(search->used);
    free(search->moves);
}

static void tell_stuck(const struct search *search, struct linear_result *out)
{
    const struct frame *frame = &search->best_frame;
    char op[128];
    out->placed = search->best;
    out->stuck = search->best_stuck;
    linear_tell(linear_order_op(&search->order, search->best_stuck), op, sizeof op);
    const struct linear_group *group = group_of(search, frame);
    uint64_t version = group ? group->version : 0;
    snprintf(out->why, sizeof out->why,
             "behind %sversion %" PRIu64 ":%" PRIu64 " there is no place for: %s",
             frame->state == PRESENT ? "" : "an absence above ", version >> 40,
             version & ((UINT64_C(1) << 40) - 1), op);
}

void linear_check(const struct history_op *ops, size_t count, uint64_t max_states,
                  struct linear_result *out)
{
    struct search search = {0};
    *out = (struct linear_result){.verdict = LINEAR_NO};
    if (linear_plan_make(&search.order.plan, ops, count, out)) {
        search_init(&search);
        out->verdict = run(&search, max_states ? max_states : MOST_STATES);
        out->states = search.seen.count;
        if (out->verdict != LINEAR_YES)
            tell_stuck(&search, out);
        search_fini(&search);
    }
    linear_plan_fini(&search.order.plan);
}
