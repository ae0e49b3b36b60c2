/* trace.h - what is kept of the operations that a worker samples (worker_trace.h): of the slowest of this minute and of the
 * one before how long each step took.
 *
 * One thread adds, any thread reads. A row is a sequence number, odd while it changes, and words (Boehm, Can Seqlocks Get
 * Along With Programming Language Memory Models, 2012), so that nobody waits for a reader.
 */
#ifndef SERVER_TRACE_H
#define SERVER_TRACE_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/cluster/cluster.h"
#include "common/metrics/counter.h"

enum {
    TRACE_KEY_BYTES = 32, /* of a key the first so many are kept */
    TRACE_BACKUPS = CLUSTER_MAX_REPLICAS - 1,
    TRACE_SLOWEST = 16, /* of a minute */
    TRACE_ROWS = 2 * TRACE_SLOWEST,
};

/* An operation that is over. Times in nanoseconds since it arrived; 0: that did not happen. */
struct trace {
    uint64_t end_ns; /* when, by the server's clock */
    uint64_t
        queue_ns; /* it was begun: until then it waited, for space or behind another write of its key */
    uint64_t log_ns;                   /* durable in the worker's log */
    uint64_t index_ns;                 /* visible */
    uint64_t total_ns;                 /* answered */
    uint64_t backup_ns[TRACE_BACKUPS]; /* landed there */
    uint32_t backups[TRACE_BACKUPS];   /* servers; 0: no more */
    uint32_t value_bytes;
    int32_t status;
    uint16_t shard, key_bytes;
    uint8_t type; /* enum message_type */
    uint8_t zero[3];
    uint8_t key[TRACE_KEY_BYTES];
};

enum { TRACE_WORDS = sizeof(struct trace) / sizeof(uint64_t) };
_Static_assert(sizeof(struct trace) == TRACE_WORDS * sizeof(uint64_t), "it is copied by words");

struct trace_row {
    _Atomic uint32_t sequence; /* 0: nothing was ever there */
    _Atomic uint64_t words[TRACE_WORDS];
};

struct traces {
    uint64_t minute;
    uint32_t
        current; /* of the two sets of rows that of `minute`; the other one is of the minute before */
    uint64_t total_ns[2][TRACE_SLOWEST]; /* of the rows; 0: free */
    struct trace_row rows[2][TRACE_SLOWEST];
    struct counter followed; /* since the start */
};

/* traces_add: the thread that owns them. */
void traces_add(struct traces *traces, const struct trace *trace);

/* traces_read: what is there of this minute and the one before, in no order; returns how many. Left out is what changes just
 * now. Any thread. */
uint32_t traces_read(const struct traces *traces, uint64_t now_ns, struct trace out[TRACE_ROWS]);

#endif
