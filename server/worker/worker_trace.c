/* See worker_trace.h. A followed write has a place, which its `trace` names (from 1 on), until it is answered or given up. */
#include "server/worker/worker_trace.h"

#include <string.h>

#include "common/base/assert.h"

uint64_t worker_trace_clock(const struct worker *worker)
{
    return clock_now_ns(worker->common->clock);
}

/* --- which ones --- */

/* So many requests are passed over, one_in - 1 on average, at random: clients' batches may have a rhythm. */
static void draw(struct tracing *tracing)
{
    tracing->random = tracing->random * 1664525 + 1013904223; /* Numerical Recipes */
    tracing->left = tracing->one_in
                        ? (uint32_t)(tracing->random % (2 * (uint64_t)tracing->one_in - 1))
                        : UINT32_MAX;
}

void worker_trace_reset(struct worker *worker, uint32_t one_in)
{
    worker->tracing.one_in = one_in;
    draw(&worker->tracing);
}

uint64_t worker_trace_choose_next(struct worker *worker, uint64_t now_ns)
{
    draw(&worker->tracing);
    return worker->tracing.one_in ? now_ns : 0;
}

/* --- what is kept of one --- */

static struct trace describe(const struct request *request)
{
    const struct message_request *header = &request->header;
    struct trace trace = {.type = header->type,
                          .shard = header->shard,
                          .key_bytes = header->key_bytes,
                          .value_bytes = header->value_bytes};
    memcpy(trace.key, request->key,
           header->key_bytes < TRACE_KEY_BYTES ? header->key_bytes : TRACE_KEY_BYTES);
    return trace;
}

static void keep(struct worker *worker, struct trace *trace, uint64_t arrived_ns)
{
    trace->end_ns = worker_trace_clock(worker);
    trace->total_ns = trace->end_ns - arrived_ns;
    traces_add(&worker->tracing.kept, trace);
}

void worker_trace_get(struct worker *worker, const struct request *request, uint64_t begun_ns,
                      const struct message_reply *reply)
{
    struct trace trace = describe(request);
    trace.queue_ns = begun_ns - request->arrived_ns;
    trace.value_bytes = reply->value_bytes;
    trace.status = reply->status;
    keep(worker, &trace, request->arrived_ns);
}

/* --- writes --- */

static struct trace_place *place_of(struct worker *worker, const struct write_op *op)
{
    struct trace_place *place = &worker->tracing.places[op->trace - 1];
    ASSERT(place->op == op);
    return place;
}

void worker_trace_open(struct worker *worker, struct write_op *op, const struct request *request)
{
    struct tracing *tracing = &worker->tracing;
    uint32_t at = 0;
    ASSERT(!op->trace); /* whoever closed the write that had this record gave its place back */
    while (at < WORKER_TRACES && tracing->places[at].op)
        at++;
    if (at == WORKER_TRACES)
        return;
    tracing->places[at] = (struct trace_place){
        .op = op, .arrived_ns = request->arrived_ns, .trace = describe(request)};
    op->trace = (uint8_t)(at + 1);
    tracing->used++;
}

void worker_trace_begin(struct worker *worker, const struct write_op *op,
                        const struct shard_state *shard)
{
    struct trace_place *place = place_of(worker, op);
    place->trace.queue_ns = worker_trace_clock(worker) - place->arrived_ns;
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        place->peers[i] = shard->backups[i];
        place->trace.backups[i] = worker->peers[shard->backups[i]].server;
    }
}

/* The peers of a newer configuration may have other positions; who is found at none any more has not landed. */
static void look(const struct worker *worker, struct trace_place *place, uint64_t now_ns)
{
    struct trace *trace = &place->trace;
    const uint64_t batch = place->op->batch, since_ns = now_ns - place->arrived_ns;
    if (!trace->log_ns && worker->local_landed >= batch)
        trace->log_ns = since_ns;
    for (uint32_t i = 0; i < TRACE_BACKUPS && trace->backups[i]; i++) {
        const struct worker_peer *peer = &worker->peers[place->peers[i]];
        if (!trace->backup_ns[i] && peer->server == trace->backups[i] &&
            peer_has_landed(peer, batch))
            trace->backup_ns[i] = since_ns;
    }
}

void worker_trace_look_at_all(struct worker *worker)
{
    const uint64_t now_ns = worker_trace_clock(worker);
    for (uint32_t i = 0; i < WORKER_TRACES; i++) {
        struct trace_place *place = &worker->tracing.places[i];
        if (place->op && place->op->state == WRITE_OP_IN_FLIGHT)
            look(worker, place, now_ns);
    }
}

void worker_trace_indexed(struct worker *worker, const struct write_op *op)
{
    struct trace_place *place = place_of(worker, op);
    place->trace.index_ns = worker_trace_clock(worker) - place->arrived_ns;
}

void worker_trace_answered(struct worker *worker, struct write_op *op, int status)
{
    struct trace_place *place = place_of(worker, op);
    place->trace.status = status;
    keep(worker, &place->trace, place->arrived_ns);
    worker_trace_drop(worker, op);
}

void worker_trace_drop(struct worker *worker, struct write_op *op)
{
    place_of(worker, op)->op = NULL;
    op->trace = 0;
    worker->tracing.used--;
}
