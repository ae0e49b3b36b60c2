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
 *      these two and hides W's effect, and the order without W is right, too: it asks less of versions.
 *      (A delete that hides a put of an absent key goes with it; one that finds nothing is no write.)
 *      It may be placed as late as it is needed, because its answer sets it no end.
 *  L4  Of deletes DONE that may be next, the one that was answered first is placed: they do the same, so
 *      in an order that places another one here the two can change places.
 *  L5  Of writes with unknown outcome that write the same value, a put_if whose condition holds here
 *      goes before a put, and of equal ones the one that was called first. A put_if that expects a version
 *      has no other place than this; one that expects absence can change places with the put. Values that
 *      no group without writer shows are all the same (class 0). Deletes are all the same.
 *  L6  A put with unknown outcome that nobody sees (M_HIDDEN_DELETE) serves only a delete DONE of an absent
 *      key, or a put_if with unknown outcome that expects a version nobody was told
 *      (M_BETWEEN). One is enough for either: of two in a row the first would do alone.
 *
 * Versions are whole numbers and nobody told what a delete's or a hidden put's is: each takes the least that
 * is possible, `floor`, and the next group's must be above it.
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
#include <string.h>

#include "common/base/assert.h"
#include "test/sim/linear_plan.h"
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
    M_DELETE,        /* a delete DONE */
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
    struct linear_plan plan;
    struct linear_seen seen;
    struct frame *frames;
    uint32_t depth;
    struct move *moves;
    uint32_t move_count, move_room;

    /* Operations that are still to be placed, by answer: a list through `plan.count` operations
     * whose last element, plan.count, is its head. */
    uint32_t *later, *earlier;
    uint32_t *placed; /* in the order of placing */
    uint32_t placed_count;
    /* deletes DONE, likewise by call: a list through their positions in plan.deletes */
    uint32_t *later_delete, *earlier_delete, *delete_of;
    uint64_t *deletes_placed;

    uint64_t *unknown_used,
        *key_used;  /* bits; the latter without those that cannot matter any more */
    uint32_t *used; /* in the order of use */
    uint32_t used_count;
    uint32_t *class_left; /* of each class, not used */
    uint64_t *place;      /* room for a key of `seen` */

    uint32_t best;
    struct frame best_frame;
    uint32_t best_stuck;
};

static uint32_t words_of(uint32_t bits)
{
    return (bits + 63) / 64;
}

static bool bit_is_set(const uint64_t *bits, uint32_t bit)
{
    return bits[bit / 64] >> bit % 64 & 1;
}

static void flip_bit(uint64_t *bits, uint32_t bit)
{
    bits[bit / 64] ^= UINT64_C(1) << bit % 64;
}

static const struct history_op *op_at(const struct search *search, uint32_t op)
{
    return &search->plan.ops[op];
}

/* --- placing --- */

static uint32_t head(const struct search *search)
{
    return (uint32_t)search->plan.count;
}

static bool is_over(const struct search *search)
{
    return search->later[head(search)] == head(search);
}

/* Nobody who is still to be placed was answered before its call. */
static bool may_be_next(const struct search *search, uint32_t op)
{
    uint32_t first = search->later[head(search)];
    return first == head(search) || op_at(search, op)->called < op_at(search, first)->answered;
}

static void place(struct search *search, uint32_t op)
{
    search->later[search->earlier[op]] = search->later[op];
    search->earlier[search->later[op]] = search->earlier[op];
    search->placed[search->placed_count++] = op;
    uint32_t number = search->delete_of[op];
    if (number == LINEAR_NONE)
        return;
    search->later_delete[search->earlier_delete[number]] = search->later_delete[number];
    search->earlier_delete[search->later_delete[number]] = search->earlier_delete[number];
    flip_bit(search->deletes_placed, number);
}

/* Undoes the last place(). */
static void take_back(struct search *search)
{
    uint32_t op = search->placed[--search->placed_count];
    search->later[search->earlier[op]] = op;
    search->earlier[search->later[op]] = op;
    uint32_t number = search->delete_of[op];
    if (number == LINEAR_NONE)
        return;
    search->later_delete[search->earlier_delete[number]] = number;
    search->earlier_delete[search->later_delete[number]] = number;
    flip_bit(search->deletes_placed, number);
}

static void use(struct search *search, uint32_t unknown)
{
    uint32_t class = search->plan.unknowns[unknown].class;
    ASSERT(!bit_is_set(search->unknown_used, unknown));
    flip_bit(search->unknown_used, unknown);
    search->used[search->used_count++] = unknown;
    if (class != LINEAR_NONE)
        search->class_left[class]--;
}

static void use_back(struct search *search)
{
    uint32_t unknown = search->used[--search->used_count];
    uint32_t class = search->plan.unknowns[unknown].class;
    flip_bit(search->unknown_used, unknown);
    if (class != LINEAR_NONE)
        search->class_left[class]++;
}

/* --- what stands around a state --- */

static const struct linear_group *group_of(const struct search *search, const struct frame *frame)
{
    return frame->group == BEFORE_FIRST ? NULL : &search->plan.groups[frame->group];
}

/* NULL: there is none. */
static const struct linear_group *next_group(const struct search *search, const struct frame *frame)
{
    uint32_t next = frame->group == BEFORE_FIRST ? 0 : frame->group + 1;
    return next < search->plan.group_count ? &search->plan.groups[next] : NULL;
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
    const struct linear_plan *plan = &search->plan;
    if (frame->state == PRESENT) {
        const struct linear_group *group = group_of(search, frame);
        const uint32_t *readers = plan->readers + group->first_reader;
        while (frame->readers < group->reader_count && may_be_next(search, readers[frame->readers]))
            place(search, readers[frame->readers++]);
    } else if (frame->state != BETWEEN) {
        while (frame->absents < plan->absent_count &&
               may_be_next(search, plan->absents[frame->absents])) {
            place(search, plan->absents[frame->absents++]);
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
    const struct linear_class *class = &search->plan.classes[class_number];
    for (uint32_t i = class->first; i < class->first + class->count; i++) {
        const struct linear_unknown *unknown = &search->plan.unknowns[i];
        bool fits = unknown->conditional ? holds(search, frame, unknown->expected)
                                         : frame->state != VANISHED && frame->state != BETWEEN;
        if (fits && !bit_is_set(search->unknown_used, i) && may_be_next(search, unknown->op))
            return i;
    }
    return LINEAR_NONE;
}

/* Whatever puts something there. A value that all the writes left of it are needed for is spared. */
static void add_any(struct search *search, const struct frame *frame, struct move move)
{
    for (uint32_t i = 0; i < search->plan.class_count; i++) {
        if (search->class_left[i] <= search->plan.classes[i].needed)
            continue;
        move.unknown = pick(search, frame, i);
        if (move.unknown != LINEAR_NONE)
            add_move(search, move);
    }
}

static uint32_t class_of_value(const struct search *search, uint64_t value)
{
    uint32_t low = 0, high = search->plan.class_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (search->plan.classes[middle].value <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void add_open(struct search *search, const struct frame *frame,
                     const struct linear_group *next)
{
    const struct history_op *writer = op_at(search, next->writer);
    bool fits = writer->kind == HISTORY_PUT_IF
                    ? holds(search, frame, writer->expected)
                    : frame->state != VANISHED && frame->state != BETWEEN;
    if (fits && may_be_next(search, next->writer))
        add_move(search, (struct move){.kind = M_OPEN, .op = next->writer});
}

/* L6. */
static void add_between(struct search *search, const struct frame *frame,
                        const struct linear_group *next, const struct linear_class *class)
{
    for (uint32_t i = class->first; i < class->first + class->count; i++) {
        const struct linear_unknown *unknown = &search->plan.unknowns[i];
        if (!unknown->conditional)
            return;
        if (unknown->between && unknown->expected > frame->floor &&
            unknown->expected < next->version && !bit_is_set(search->unknown_used, i) &&
            may_be_next(search, unknown->op))
            add_any(search, frame, (struct move){.kind = M_BETWEEN, .between = unknown->expected});
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
        add_between(search, frame, next, &search->plan.classes[class]);
}

/* L4; LINEAR_NONE: there is none. */
static uint32_t first_delete(const struct search *search)
{
    uint32_t end = search->plan.delete_count, best = LINEAR_NONE;
    for (uint32_t i = search->later_delete[end]; i != end; i = search->later_delete[i]) {
        uint32_t op = search->plan.deletes[i];
        if (!may_be_next(search, op))
            break;
        if (best == LINEAR_NONE || op_at(search, op)->answered < op_at(search, best)->answered)
            best = op;
    }
    return best;
}

/* L3: is there anybody who may need an absence here? */
static bool absence_is_needed(const struct search *search, const struct frame *frame,
                              const struct linear_group *next)
{
    const struct linear_plan *plan = &search->plan;
    if (frame->absents < plan->absent_count && may_be_next(search, plan->absents[frame->absents]))
        return true;
    if (!next)
        return false;
    if (next->writer != LINEAR_NONE) {
        const struct history_op *writer = op_at(search, next->writer);
        return writer->kind == HISTORY_PUT_IF && writer->expected == 0;
    }
    return true; /* perhaps a put_if with unknown outcome */
}

static void add_vanish(struct search *search, const struct frame *frame,
                       const struct linear_group *next)
{
    const struct linear_plan *plan = &search->plan;
    if (!absence_is_needed(search, frame, next))
        return;
    for (uint32_t i = plan->first_unknown_delete; i < plan->unknown_count; i++) {
        if (bit_is_set(search->unknown_used, i))
            continue;
        if (may_be_next(search, plan->unknowns[i].op))
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
    uint32_t deleted = first_delete(search);
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
    frame->group = (uint32_t)(next - search->plan.groups);
    frame->state = PRESENT;
    frame->floor = next->version;
    frame->readers = 0;
    if (next->writer != LINEAR_NONE || !next->value)
        return;
    frame->opened_class = class_of_value(search, next->value);
    search->plan.classes[frame->opened_class].needed--;
}

static void make_move(struct search *search, struct frame *frame, const struct move *move)
{
    frame->placed = search->placed_count;
    frame->used = search->used_count;
    frame->opened_class = LINEAR_NONE;
    if (move->kind != M_OPEN && move->kind != M_DELETE)
        use(search, move->unknown);
    if (move->kind == M_OPEN || move->kind == M_DELETE || move->kind == M_HIDDEN_DELETE)
        place(search, move->op);
    switch (move->kind) {
    case M_OPEN:
    case M_OPEN_UNKNOWN:
        open_group(search, frame);
        break;
    case M_DELETE:
    case M_HIDDEN_DELETE:
        frame->floor += move->kind == M_DELETE ? 1 : 2;
        frame->state = ABSENT;
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
    while (search->placed_count > frame->placed)
        take_back(search);
    while (search->used_count > frame->used)
        use_back(search);
    if (frame->opened_class != LINEAR_NONE)
        search->plan.classes[frame->opened_class].needed++;
}

/* --- the memory of visited states --- */

/* Which writes with unknown outcome are used; but of put_ifs whose expected version never comes again,
 * nobody cares. */
static const uint64_t *used_for_key(struct search *search, const struct frame *frame)
{
    const struct linear_plan *plan = &search->plan;
    memcpy(search->key_used, search->unknown_used,
           words_of(plan->unknown_count) * sizeof *search->key_used);
    for (uint32_t i = 0; i < search->used_count; i++) {
        const struct linear_unknown *unknown = &plan->unknowns[search->used[i]];
        if (unknown->expected && unknown->expected <= frame->floor &&
            !holds(search, frame, unknown->expected))
            flip_bit(search->key_used, search->used[i]);
    }
    return search->key_used;
}

/* The group, the register and which deletes and absences are placed say all: the operations of earlier groups
 * are placed, those of later ones are not, and of this one what L1 places. */
static bool is_new(struct search *search, const struct frame *frame)
{
    const struct linear_plan *plan = &search->plan;
    uint32_t count = 0, end = words_of(plan->delete_count);
    uint32_t first =
        search->later_delete[plan->delete_count] / 64; /* one behind all, if none is left */
    search->place[count++] = (uint64_t)frame->group << 32 | frame->state;
    search->place[count++] = frame->state == BETWEEN ? frame->between : 0;
    search->place[count++] = (uint64_t)frame->absents << 32 | first;
    for (uint32_t i = first; i < end; i++) {
        if (!may_be_next(search, plan->deletes[i * 64]))
            break; /* those behind it are not placed, either */
        search->place[count++] = search->deletes_placed[i];
    }
    return linear_seen_add(&search->seen, search->place, count, frame->floor,
                           used_for_key(search, frame));
}

/* --- the search --- */

static void note_best(struct search *search, const struct frame *frame)
{
    if (search->placed_count < search->best || is_over(search))
        return;
    search->best = search->placed_count;
    search->best_frame = *frame;
    search->best_stuck = search->later[head(search)];
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
    while (search->depth && !is_over(search)) {
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

static void *take(size_t count, size_t bytes)
{
    void *taken = calloc(count ? count : 1, bytes);
    ASSERT(taken);
    return taken;
}

static void link_lists(struct search *search)
{
    const struct linear_plan *plan = &search->plan;
    uint32_t last = head(search);
    for (uint32_t i = 0; i <= plan->known_count; i++) {
        uint32_t next = i < plan->known_count ? plan->by_answer[i] : head(search);
        search->later[last] = next;
        search->earlier[next] = last;
        last = next;
    }
    for (uint32_t i = 0; i < plan->count; i++)
        search->delete_of[i] = LINEAR_NONE;
    for (uint32_t i = 0; i <= plan->delete_count; i++) {
        search->later_delete[i] = i == plan->delete_count ? 0 : i + 1;
        search->earlier_delete[i] = i == 0 ? plan->delete_count : i - 1;
        if (i < plan->delete_count)
            search->delete_of[plan->deletes[i]] = i;
    }
}

static void search_init(struct search *search)
{
    const struct linear_plan *plan = &search->plan;
    uint32_t unknown_words = words_of(plan->unknown_count);
    linear_seen_init(&search->seen, unknown_words);
    /* A move places an operation or uses up a write. */
    search->frames =
        take((size_t)plan->known_count + plan->unknown_count + 2, sizeof(struct frame));
    search->later = take(plan->count + 1, sizeof *search->later);
    search->earlier = take(plan->count + 1, sizeof *search->earlier);
    search->placed = take(plan->count, sizeof *search->placed);
    search->delete_of = take(plan->count, sizeof *search->delete_of);
    search->later_delete = take((size_t)plan->delete_count + 1, sizeof *search->later_delete);
    search->earlier_delete = take((size_t)plan->delete_count + 1, sizeof *search->earlier_delete);
    search->deletes_placed = take(words_of(plan->delete_count), sizeof *search->deletes_placed);
    search->unknown_used = take(unknown_words, sizeof *search->unknown_used);
    search->key_used = take(unknown_words, sizeof *search->key_used);
    search->used = take(plan->unknown_count, sizeof *search->used);
    search->class_left = take(plan->class_count, sizeof *search->class_left);
    search->place = take((size_t)words_of(plan->delete_count) + 3, sizeof *search->place);
    for (uint32_t i = 0; i < plan->class_count; i++)
        search->class_left[i] = plan->classes[i].count;
    link_lists(search);
}

static void search_fini(struct search *search)
{
    void *taken[] = {search->frames,         search->later,          search->earlier,
                     search->placed,         search->delete_of,      search->later_delete,
                     search->earlier_delete, search->deletes_placed, search->unknown_used,
                     search->key_used,       search->used,           search->class_left,
                     search->place,          search->moves};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        free(taken[i]);
    linear_seen_fini(&search->seen);
}

static void tell_stuck(const struct search *search, struct linear_result *out)
{
    const struct frame *frame = &search->best_frame;
    char op[128];
    out->placed = search->best;
    out->stuck = search->best_stuck;
    linear_tell(op_at(search, search->best_stuck), op, sizeof op);
    if (frame->state == PRESENT)
        snprintf(out->why, sizeof out->why, "behind version %" PRIu64 " there is no place for %s",
                 group_of(search, frame)->version, op);
    else
        snprintf(out->why, sizeof out->why,
                 "behind an absence above version %" PRIu64 " there is no place for %s",
                 frame->group == BEFORE_FIRST ? 0 : group_of(search, frame)->version, op);
}

void linear_check(const struct history_op *ops, size_t count, uint64_t max_states,
                  struct linear_result *out)
{
    struct search search = {0};
    *out = (struct linear_result){.verdict = LINEAR_NO};
    if (linear_plan_make(&search.plan, ops, count, out)) {
        search_init(&search);
        out->verdict = run(&search, max_states ? max_states : MOST_STATES);
        out->states = search.seen.count;
        if (out->verdict != LINEAR_YES)
            tell_stuck(&search, out);
        search_fini(&search);
    }
    linear_plan_fini(&search.plan);
}
