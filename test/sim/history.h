/* history.h - what clients asked and what they were told, in the order in which it happened; one for a whole
 * run. A key's part of it is what linear.h judges.
 */
#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum history_kind { HISTORY_GET, HISTORY_PUT, HISTORY_PUT_IF, HISTORY_DELETE };

enum { HISTORY_KINDS = HISTORY_DELETE + 1 };

enum history_outcome {
    HISTORY_OPEN, /* no answer yet. At the end of a run: as UNKNOWN */
    HISTORY_DONE, /* get: `value` and `version` were there; a write took effect, as `version` (a delete may tell none: 0) */
    HISTORY_ABSENT,   /* get, delete: the key had no value */
    HISTORY_MISMATCH, /* put_if: the key's version was `version` (0: no value), not `expected` */
    HISTORY_REJECTED, /* did not happen, and tells nothing */
    HISTORY_UNKNOWN,  /* a write: took effect once, at any time after the call, or never will */
};

/* `called` and `answered` number all calls and answers of a run, rising: an operation that was
 * answered before another was called took effect before it. */
struct history_op {
    enum history_kind kind;
    enum history_outcome outcome;
    uint32_t client, key;            /* clients from 0; people count them from 1 */
    uint64_t called, answered;       /* answered 0: HISTORY_OPEN */
    uint64_t called_ns, answered_ns; /* in real time; for people */
    /* put, put_if: what it writes; get, DONE: what it read. A hash of the bytes, never 0; different writes
     * of at least 8 bytes never write the same. A get's may be 0: it was not seen (ROWAN_EBUFFER). */
    uint64_t value;
    uint64_t version;
    uint64_t expected; /* put_if */
};

struct history {
    struct history_op *ops; /* in the order of the calls */
    size_t count, room;
    uint64_t events; /* calls and answers so far */
};

void history_init(struct history *history);
void history_fini(struct history *history);

/* A call: everything of `op` up to its outcome is filled in but `called` and `outcome`, which are set.
 * Returns its number, for history_answer. Aborts without memory. */
size_t history_call(struct history *history, const struct history_op *op);

/* The answer; called once for an operation. */
void history_answer(struct history *history, size_t number, enum history_outcome outcome,
                    uint64_t value, uint64_t version, uint64_t now_ns);

#endif
