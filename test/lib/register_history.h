/* register_history.h - histories of one key as clients of a register would record them: linearizable by
 * their making, from a seed. For tests of test/sim/linear.h.
 */
#ifndef LIB_REGISTER_HISTORY_H
#define LIB_REGISTER_HISTORY_H

#include "common/base/random.h"
#include "test/sim/history.h"

/* What becomes of the writes with unknown outcome. */
enum register_fate {
    REGISTER_MIXED, /* any of the others */
    REGISTER_NEVER, /* no effect */
    REGISTER_SOON,  /* while a few later operations are called */
    REGISTER_LATE,  /* at any time until the end */
    REGISTER_LAST,  /* after most of the history */
};

struct register_options {
    uint64_t seed;
    uint32_t operations;
    uint32_t clients;  /* operations side by side, at most */
    uint32_t unknowns; /* so many writes, evenly spread */
    enum register_fate fate;
    uint32_t gets, puts, put_ifs, deletes; /* weights */
    uint32_t short_in;                     /* one value in so many is one of four; 0: none */
    uint32_t unseen_in;                    /* one get in so many does not see the value; 0: none */
    bool tell_deletes;                     /* their versions */
    uint32_t version_gap;                  /* versions rise by up to this; at least 1 */
};

/* `out` is initialized by this, and the caller's. */
void register_history(const struct register_options *options, struct history *out);

/* Ends it with a put, an absence and a read of that put: no order is right, and it takes a search of everything
 * before to know. */
void register_history_end_badly(struct history *history);

/* Changes one thing about one operation, so that the history may be wrong (or not). */
void register_history_spoil(struct history *history, struct random *random);

/* Tries every order, one operation after another, without any memory or thought. For some ten operations. */
bool register_history_is_linear(const struct history_op *ops, size_t count);

/* Long histories that are hard in different ways; 10,000 operations, 50 of unknown outcome. */
struct register_shape {
    const char *name;
    struct register_options options;
};

extern const struct register_shape register_shapes[];
extern const size_t register_shape_count;

#endif
