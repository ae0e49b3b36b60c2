/* worker_counts.h - what a worker counts: written by it, read by anybody. */
#ifndef SERVER_WORKER_COUNTS_H
#define SERVER_WORKER_COUNTS_H

#include "common/metrics/metrics.h"
#include "proto/message.h"

/* Kinds of requests, by their message's type. */
enum { WORKER_KINDS = MESSAGE_DELETE };

/* How a request ended. No operations are those that the SDK asks again by itself (BUSY, MOVED), and a write that was asked again
 * because its answer was lost: it is counted already. */
enum worker_outcome {
    OUTCOME_OK,        /* a write took effect, a value was found */
    OUTCOME_NOT_FOUND, /* a get or a delete found nothing */
    OUTCOME_VERSION,   /* a put_if met another version */
    OUTCOME_FULL,
    OUTCOME_REFUSED, /* who asked may not do that */
    OUTCOME_FAILED, /* everything else: a damaged object, an operation that is unknown, no memory */
    OUTCOME_REPEATED,
    OUTCOME_BUSY,
    OUTCOME_MOVED, /* the client's configuration is not the one in force */
    WORKER_OUTCOMES,
    OUTCOMES_DONE = OUTCOME_REPEATED, /* in front of it those that end an operation */
};

struct worker_counts {
    struct counter requests[WORKER_KINDS][WORKER_OUTCOMES];
    struct latencies latencies[WORKER_KINDS]; /* of those that ended an operation */
    struct counter in_flight;                 /* writes that wait for a backup or a fence */
    struct counter refused_logins, refused_requests;
    struct counter fill_left,
        fill_rate,  /* objects that replicas lack which fill, and confirm a second */
        fill_waits; /* fillings that wait for memory or space */
};

enum { WORKER_METRICS = WORKER_KINDS * (WORKER_OUTCOMES + 1) + 1 };
extern const struct metric worker_metrics[WORKER_METRICS];

/* Requests of that message type that ended an operation. */
uint64_t worker_operations(const struct worker_counts *counts, enum message_type type);

#endif
