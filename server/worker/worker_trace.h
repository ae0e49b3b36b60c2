/* worker_trace.h - follows one in N of a worker's operations (server_options.trace_one_in) from its arrival to its answer, and
 * keeps it (trace.h). At most WORKER_TRACES writes at a time are followed; others that were chosen then are not. A time is that
 * of the poll in which the worker saw what happened. Calls no other file of the worker. */
#ifndef SERVER_WORKER_TRACE_H
#define SERVER_WORKER_TRACE_H

#include "server/worker/worker_state.h"

/* worker_trace_choose: a request came in the poll of `now_ns`. When it is to be followed: `now_ns`, else 0. */
uint64_t worker_trace_choose_next(struct worker *worker, uint64_t now_ns);
static inline uint64_t worker_trace_choose(struct worker *worker, uint64_t now_ns)
{
    return worker->tracing.left-- == 0 ? worker_trace_choose_next(worker, now_ns) : 0;
}

/* worker_trace_tune: once a poll. The setting may have changed. */
void worker_trace_reset(struct worker *worker, uint32_t one_in);
static inline void worker_trace_tune(struct worker *worker)
{
    const uint32_t one_in =
        atomic_load_explicit(&worker->common->trace_one_in, memory_order_relaxed);
    if (one_in != worker->tracing.one_in)
        worker_trace_reset(worker, one_in);
}

/* worker_trace_get: such a request was a get, begun at that time, and is answered. */
uint64_t worker_trace_clock(const struct worker *worker);
void worker_trace_get(struct worker *worker, const struct request *request, uint64_t begun_ns,
                      const struct message_reply *reply);

/* The steps of such a write, in their order; of the others a branch. worker_trace_look: what has landed is noted. */
void worker_trace_open(struct worker *worker, struct write_op *op, const struct request *request);
void worker_trace_begin(struct worker *worker, const struct write_op *op,
                        const struct shard_state *shard);
void worker_trace_look_at_all(struct worker *worker);
static inline void worker_trace_look(struct worker *worker)
{
    if (worker->tracing.used)
        worker_trace_look_at_all(worker);
}
void worker_trace_indexed(struct worker *worker, const struct write_op *op);
void worker_trace_answered(struct worker *worker, struct write_op *op, int status);
void worker_trace_drop(struct worker *worker, struct write_op *op);

#endif
