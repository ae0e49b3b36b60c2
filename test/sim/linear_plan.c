/* Sorts the operations into groups, and finds what is wrong without any order to be tried: that gives
 * the clearest reasons. Each of these findings is a proof; what they do not find is left to the search. */
#include "test/sim/linear_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"

enum role { WRITER, READER, SUCCESSOR };

/* An operation that was told `key`, a version, or was answered at `key`. */
struct mention {
    uint64_t key;
    uint32_t op;
    enum role role;
};

/* As in a story (journal.c): epoch:counter, seconds. */
#define VERSION        "%" PRIu64 ":%" PRIu64
#define VERSION_OF(of) (of) >> 40, (of) & ((UINT64_C(1) << 40) - 1)
#define TIME           "%" PRIu64 ".%06" PRIu64
#define TIME_OF(ns)    (ns) / 1000000000, (ns) / 1000 % 1000000

void linear_tell(const struct history_op *op, char *out, size_t room)
{
    static const char *const kinds[] = {"get", "put", "put_if", "delete"};
    static const char *const outcomes[] = {"open",     "done",     "absent",
                                           "mismatch", "rejected", "unknown"};
    char expected[48] = "", version[48] = "";
    if (op->kind == HISTORY_PUT_IF)
        snprintf(expected, sizeof expected, " expecting " VERSION, VERSION_OF(op->expected));
    if (op->version || op->outcome == HISTORY_MISMATCH)
        snprintf(version, sizeof version, " " VERSION, VERSION_OF(op->version));
    snprintf(out, room, "%s%s of client-%u, " TIME "-" TIME ", %s%s", kinds[op->kind], expected,
             op->client + 1, TIME_OF(op->called_ns), TIME_OF(op->answered_ns),
             outcomes[op->outcome], version);
}

/* The history is wrong at operation `stuck`; `other`, unless LINEAR_NONE, is the one it contradicts. */
static bool refuse(const struct linear_plan *plan, struct linear_result *out, uint32_t stuck,
                   uint32_t other, const char *why)
{
    char first[112], second[112] = "";
    linear_tell(&plan->ops[stuck], first, sizeof first);
    if (other != LINEAR_NONE)
        linear_tell(&plan->ops[other], second, sizeof second);
    out->verdict = LINEAR_NO;
    out->stuck = stuck;
    snprintf(out->why, sizeof out->why, "%s: %s%s%s", why, first, *second ? " and " : "", second);
    return false;
}

static void *take(size_t count, size_t bytes)
{
    void *taken = calloc(count ? count : 1, bytes);
    ASSERT(taken);
    return taken;
}

static int by_key(const void *left, const void *right)
{
    const struct mention *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    if (a->op != b->op)
        return a->op < b->op ? -1 : 1;
    return (int)a->role - (int)b->role;
}

static bool is_unknown(const struct history_op *op)
{
    return op->kind != HISTORY_GET &&
           (op->outcome == HISTORY_UNKNOWN || op->outcome == HISTORY_OPEN);
}

/* Tells something, so it has to be placed. */
static bool is_known(const struct history_op *op)
{
    return op->outcome == HISTORY_DONE || op->outcome == HISTORY_ABSENT ||
           op->outcome == HISTORY_MISMATCH;
}

static bool met_no_value(const struct history_op *op)
{
    return op->outcome == HISTORY_ABSENT || (op->outcome == HISTORY_MISMATCH && op->version == 0);
}

/* A write that was told its version; deletes need not be. */
static bool is_writer(const struct history_op *op)
{
    return op->outcome == HISTORY_DONE && op->kind != HISTORY_GET && op->version;
}

/* The version it was told; 0: none. */
static uint64_t told(const struct history_op *op)
{
    return is_known(op) ? op->version : 0;
}

/* A recorder that writes these down is wrong, not the history. */
static void check_sense(const struct history_op *op)
{
    if (op->outcome == HISTORY_ABSENT)
        ASSERT(op->kind == HISTORY_GET || op->kind == HISTORY_DELETE);
    if (op->outcome == HISTORY_MISMATCH)
        ASSERT(op->kind == HISTORY_PUT_IF);
    if (is_known(op))
        ASSERT(op->answered > op->called);
}

/* --- groups --- */

static uint32_t gather_mentions(struct linear_plan *plan, struct mention *mentions)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct history_op *op = &plan->ops[i];
        check_sense(op);
        if (is_writer(op)) {
            mentions[count++] = (struct mention){op->version, i, WRITER};
            if (op->kind == HISTORY_PUT_IF && op->expected)
                mentions[count++] = (struct mention){op->expected, i, SUCCESSOR};
        } else if (told(op)) {
            mentions[count++] = (struct mention){op->version, i, READER};
        }
    }
    qsort(mentions, count, sizeof *mentions, by_key);
    return count;
}

static bool join_group(struct linear_plan *plan, struct linear_group *group,
                       const struct mention *mention, struct linear_result *out)
{
    const struct history_op *op = &plan->ops[mention->op];
    uint32_t number = mention->op;
    if (mention->role == SUCCESSOR) {
        if (group->successor != LINEAR_NONE)
            return refuse(plan, out, number, group->successor,
                          "two conditional puts took effect on one version");
        group->successor = number;
        return true;
    }
    if (mention->role == WRITER) {
        if (group->writer != LINEAR_NONE)
            return refuse(plan, out, number, group->writer, "two writes gave one version");
        group->writer = number;
        group->gone = op->kind == HISTORY_DELETE;
        if (group->gone)
            return true;
    } else {
        if (op->kind == HISTORY_PUT_IF && op->expected == op->version)
            return refuse(plan, out, number, LINEAR_NONE, "it missed the version that it expected");
        if (!group->reader_count)
            group->first_reader = plan->reader_count;
        group->reader_count++;
        plan->readers[plan->reader_count++] = number;
        if (op->kind != HISTORY_GET || !op->value)
            return true;
    }
    if (group->value && group->value != op->value)
        return refuse(plan, out, number, group->value_from, "one version has two values");
    group->value = op->value;
    group->value_from = number;
    return true;
}

static bool make_groups(struct linear_plan *plan, struct linear_result *out)
{
    struct mention *mentions = take(2 * plan->count, sizeof *mentions);
    uint32_t count = gather_mentions(plan, mentions);
    bool sound = true;
    plan->groups = take(count, sizeof *plan->groups);
    plan->readers = take(count, sizeof *plan->readers);
    for (uint32_t i = 0; sound && i < count; i++) {
        struct linear_group *group = plan->groups + plan->group_count;
        if (i == 0 || mentions[i].key != mentions[i - 1].key) {
            *group = (struct linear_group){
                .version = mentions[i].key, .writer = LINEAR_NONE, .successor = LINEAR_NONE};
            plan->group_count++;
        } else {
            group--;
        }
        sound = join_group(plan, group, &mentions[i], out);
    }
    free(mentions);
    return sound;
}

static bool check_zero_versions(const struct linear_plan *plan, struct linear_result *out)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct history_op *op = &plan->ops[i];
        if (op->kind != HISTORY_DELETE && op->outcome == HISTORY_DONE && op->version == 0)
            return refuse(plan, out, i, LINEAR_NONE, "it was done without a version");
        if (op->outcome == HISTORY_MISMATCH && op->version == 0 && op->expected == 0)
            return refuse(plan, out, i, LINEAR_NONE, "it missed the absence that it expected");
    }
    return true;
}

/* Somebody who saw it. */
static uint32_t first_witness(const struct linear_plan *plan, const struct linear_group *group)
{
    return group->reader_count ? plan->readers[group->first_reader] : group->successor;
}

static bool check_groups(const struct linear_plan *plan, struct linear_result *out)
{
    for (uint32_t i = 0; i < plan->group_count; i++) {
        const struct linear_group *group = &plan->groups[i];
        const uint32_t *readers = plan->readers + group->first_reader;
        for (uint32_t j = 0; group->writer != LINEAR_NONE && j < group->reader_count; j++) {
            if (plan->ops[readers[j]].answered < plan->ops[group->writer].called)
                return refuse(plan, out, readers[j], group->writer,
                              "a version was seen before its write was called");
        }
        if (group->gone && (group->reader_count || group->successor != LINEAR_NONE))
            return refuse(plan, out, first_witness(plan, group), group->writer,
                          "a version was there that a delete gave");
        if (group->successor == LINEAR_NONE)
            continue;
        const struct history_op *successor = &plan->ops[group->successor];
        if (successor->version <= successor->expected)
            return refuse(plan, out, group->successor, LINEAR_NONE,
                          "a conditional put gave no higher version than it expected");
        const struct linear_group *next = group + 1;
        if (next->version == successor->version)
            continue;
        uint32_t other = next->writer != LINEAR_NONE ? next->writer : first_witness(plan, next);
        return refuse(plan, out, group->successor, other,
                      "a conditional put took effect though a version came between");
    }
    return true;
}

/* --- real time --- */

static void make_by_answer(struct linear_plan *plan)
{
    struct mention *answers = take(plan->count, sizeof *answers);
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        if (is_known(&plan->ops[i]))
            answers[count++] = (struct mention){plan->ops[i].answered, i, READER};
    }
    qsort(answers, count, sizeof *answers, by_key);
    plan->by_answer = take(count, sizeof *plan->by_answer);
    for (uint32_t i = 0; i < count; i++)
        plan->by_answer[i] = answers[i].op;
    plan->known_count = count;
    free(answers);
}

static bool check_backwards(const struct linear_plan *plan, struct linear_result *out)
{
    uint32_t highest = LINEAR_NONE, answered = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct history_op *op = &plan->ops[i];
        for (; answered < plan->known_count; answered++) {
            const struct history_op *earlier = &plan->ops[plan->by_answer[answered]];
            if (earlier->answered > op->called)
                break;
            if (highest == LINEAR_NONE || told(earlier) > told(&plan->ops[highest]))
                highest = plan->by_answer[answered];
        }
        if (highest != LINEAR_NONE && told(op) && told(op) < told(&plan->ops[highest]))
            return refuse(plan, out, i, highest,
                          "the version goes backwards behind one that was told before the call");
    }
    return true;
}

/* --- what has no version --- */

static void gather_versionless(struct linear_plan *plan)
{
    plan->absents = take(plan->count, sizeof *plan->absents);
    plan->deletes = take(plan->count, sizeof *plan->deletes);
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct history_op *op = &plan->ops[i];
        if (met_no_value(op))
            plan->absents[plan->absent_count++] = i;
        else if (op->kind == HISTORY_DELETE && op->outcome == HISTORY_DONE && !op->version)
            plan->deletes[plan->delete_count++] = i;
    }
}

static int by_value(const void *left, const void *right)
{
    const struct linear_class *a = left, *b = right;
    return a->value < b->value ? -1 : a->value > b->value;
}

/* The values that only a write with unknown outcome explains. Class 0 stands for all others. */
static void make_classes(struct linear_plan *plan)
{
    plan->classes = take((size_t)plan->group_count + 1, sizeof *plan->classes);
    uint32_t count = 1;
    for (uint32_t i = 0; i < plan->group_count; i++) {
        if (plan->groups[i].writer == LINEAR_NONE && plan->groups[i].value)
            plan->classes[count++] =
                (struct linear_class){.value = plan->groups[i].value, .needed = 1};
    }
    qsort(plan->classes, count, sizeof *plan->classes, by_value);
    for (uint32_t i = 1; i < count; i++) {
        if (plan->classes[i].value == plan->classes[plan->class_count].value)
            plan->classes[plan->class_count].needed++;
        else
            plan->classes[++plan->class_count] = plan->classes[i];
    }
    plan->class_count++;
}

static uint32_t class_of(const struct linear_plan *plan, uint64_t value)
{
    const struct linear_class *found =
        bsearch(&(struct linear_class){.value = value}, plan->classes, plan->class_count,
                sizeof *found, by_value);
    return found ? (uint32_t)(found - plan->classes) : 0;
}

static int by_version(const void *left, const void *right)
{
    const struct linear_group *a = left, *b = right;
    return a->version < b->version ? -1 : a->version > b->version;
}

static int by_class(const void *left, const void *right)
{
    const struct linear_unknown *a = left, *b = right;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    if (a->conditional != b->conditional)
        return a->conditional ? -1 : 1;
    return a->op < b->op ? -1 : 1;
}

static void make_unknowns(struct linear_plan *plan)
{
    plan->unknowns = take(plan->count, sizeof *plan->unknowns);
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct history_op *op = &plan->ops[i];
        if (!is_unknown(op))
            continue;
        struct linear_unknown *unknown = &plan->unknowns[plan->unknown_count++];
        *unknown = (struct linear_unknown){.op = i, .class = LINEAR_NONE};
        if (op->kind == HISTORY_DELETE)
            continue;
        unknown->class = class_of(plan, op->value);
        unknown->conditional = op->kind == HISTORY_PUT_IF;
        unknown->expected = unknown->conditional ? op->expected : 0;
        unknown->between =
            unknown->expected &&
            !bsearch(&(struct linear_group){.version = unknown->expected}, plan->groups,
                     plan->group_count, sizeof *plan->groups, by_version);
    }
    qsort(plan->unknowns, plan->unknown_count, sizeof *plan->unknowns, by_class);
    for (uint32_t i = 0; i < plan->unknown_count && plan->unknowns[i].class != LINEAR_NONE; i++) {
        struct linear_class *class = &plan->classes[plan->unknowns[i].class];
        if (!class->count++)
            class->first = i;
        plan->first_unknown_delete = i + 1;
    }
}

/* --- writes that nobody can have made --- */

static uint32_t writer_of_value(const struct linear_plan *plan, uint64_t value)
{
    for (uint32_t i = 0; i < plan->group_count; i++) {
        if (plan->groups[i].value == value && plan->groups[i].writer != LINEAR_NONE)
            return plan->groups[i].writer;
    }
    return LINEAR_NONE;
}

/* No write of the value may have made it. */
static bool refuse_value(const struct linear_plan *plan, struct linear_result *out,
                         uint32_t witness, uint64_t value)
{
    uint32_t writer = writer_of_value(plan, value);
    if (writer != LINEAR_NONE)
        return refuse(plan, out, witness, writer, "a value that was written under another version");
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct history_op *op = &plan->ops[i];
        if (op->kind != HISTORY_GET && op->value == value)
            return refuse(plan, out, witness, i, "a value whose write had no effect, it was said");
    }
    return refuse(plan, out, witness, LINEAR_NONE, "a value that nobody wrote");
}

static bool check_supply(const struct linear_plan *plan, struct linear_result *out)
{
    for (uint32_t i = 0; i < plan->group_count; i++) {
        const struct linear_group *group = &plan->groups[i];
        if (group->writer != LINEAR_NONE)
            continue;
        uint32_t witness = first_witness(plan, group);
        if (!group->value) {
            if (!plan->first_unknown_delete)
                return refuse(plan, out, witness, LINEAR_NONE, "a version that nobody wrote");
            continue;
        }
        const struct linear_class *class = &plan->classes[class_of(plan, group->value)];
        if (class->needed <= class->count)
            continue;
        if (!class->count)
            return refuse_value(plan, out, group->value_from, group->value);
        return refuse(plan, out, group->value_from, LINEAR_NONE,
                      "more versions have this value than writes of it");
    }
    return true;
}

bool linear_plan_make(struct linear_plan *plan, const struct history_op *ops, size_t count,
                      struct linear_result *out)
{
    ASSERT(count < LINEAR_NONE / 4);
    *plan = (struct linear_plan){.ops = ops, .count = count};
    if (!check_zero_versions(plan, out) || !make_groups(plan, out))
        return false;
    make_by_answer(plan);
    gather_versionless(plan);
    make_classes(plan);
    make_unknowns(plan);
    return check_supply(plan, out) && check_backwards(plan, out) && check_groups(plan, out);
}

void linear_plan_fini(struct linear_plan *plan)
{
    free(plan->groups);
    free(plan->readers);
    free(plan->absents);
    free(plan->deletes);
    free(plan->by_answer);
    free(plan->classes);
    free(plan->unknowns);
    *plan = (struct linear_plan){0};
}
