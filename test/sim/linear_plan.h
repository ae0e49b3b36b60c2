/* linear_plan.h - inside linear.c: the operations of one key, sorted by what they were told.
 *
 * Every version that somebody was told is a group: the write that gave it, if that knows, and the
 * operations that saw it. A history is linearizable only if the groups follow each other in the order
 * of their versions; what no version places are deletes, operations that met no value, and writes with
 * unknown outcome.
 */
#ifndef SIM_LINEAR_PLAN_H
#define SIM_LINEAR_PLAN_H

#include "test/sim/linear.h"

enum { LINEAR_NONE = UINT32_MAX };

/* An operation is its position in `ops`, which is the order of the calls. */
struct linear_group {
    uint64_t version;
    uint64_t value;      /* 0: nobody told */
    uint32_t value_from; /* who did */
    bool gone;           /* a delete gave it */
    uint32_t writer;     /* DONE; LINEAR_NONE: a write with unknown outcome */
    uint32_t successor;  /* the put_if DONE that expected this version, or LINEAR_NONE */
    uint32_t first_reader, reader_count; /* in `readers`: gets, and put_ifs that missed */
};

/* A write with unknown outcome. */
struct linear_unknown {
    uint32_t op;
    uint32_t class;   /* puts and put_ifs; LINEAR_NONE: a delete */
    bool conditional; /* put_if */
    bool between;     /* put_if; it expects a version that nobody was told */
    uint64_t expected;
};

/* Puts and put_ifs with unknown outcome that write one value; class 0: values that no group without
 * writer needs. Those with a condition come first, then by call. */
struct linear_class {
    uint64_t value;
    uint32_t first, count; /* in `unknowns` */
    uint32_t needed;       /* groups without writer that show the value */
};

struct linear_plan {
    const struct history_op *ops;
    size_t count;
    struct linear_group *groups; /* by version */
    uint32_t *readers;           /* of all groups; in a group by call */
    uint32_t *absents;           /* met no value; by call */
    uint32_t *deletes;           /* DONE, their versions not told; by call */
    uint32_t *by_answer;         /* all operations that have to be placed, by answer */
    struct linear_class *classes;
    struct linear_unknown *unknowns; /* class by class, deletes last */
    uint32_t group_count, reader_count, absent_count, delete_count, known_count, class_count,
        unknown_count, first_unknown_delete;
};

/* False: the history is not linearizable for a reason that needs no search; `out` says which. The plan is
 * to be given back in any case. */
bool linear_plan_make(struct linear_plan *plan, const struct history_op *ops, size_t count,
                      struct linear_result *out);
void linear_plan_fini(struct linear_plan *plan);

/* An operation in words, for linear_result.why. */
void linear_tell(const struct history_op *op, char *out, size_t room);

#endif
