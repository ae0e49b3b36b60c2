/* What a person asks about single operations and keys: the slowest of the operations that the workers have followed
 * (worker/trace.h), and where a key lies (QUERY_TRACE). */
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "server/control/control_state.h"
#include "server/worker/trace.h"

enum { SLOWEST_TOLD = 32 };

/* --- slow operations --- */

struct gathered {
    uint32_t count;
    struct traced {
        uint32_t worker;
        struct trace trace;
    } rows[];
};

static int slower_first(const void *a, const void *b)
{
    const uint64_t left = ((const struct traced *)a)->trace.total_ns,
                   right = ((const struct traced *)b)->trace.total_ns;
    return (left < right) - (left > right);
}

/* NULL: no memory. */
static struct gathered *gather(const struct control *control)
{
    const uint32_t workers = control->options->workers;
    struct gathered *all = malloc(sizeof *all + workers * TRACE_ROWS * sizeof all->rows[0]);
    if (!all)
        return NULL;
    all->count = 0;
    for (uint32_t i = 0; i < workers; i++) {
        struct trace traces[TRACE_ROWS];
        const uint32_t count =
            traces_read(worker_traces(control->workers[i]), control->now_ns, traces);
        for (uint32_t at = 0; at < count; at++)
            all->rows[all->count++] = (struct traced){.worker = i, .trace = traces[at]};
    }
    qsort(all->rows, all->count, sizeof all->rows[0], slower_first);
    return all;
}

/* One operation as a message, and what its pointers lead to. */
struct told {
    Rowan__SlowOperation body;
    Rowan__SlowBackup backups[TRACE_BACKUPS], *backup_list[TRACE_BACKUPS];
};

static void tell_operation(const struct control *control, const struct traced *traced, bool keys,
                           struct told *out)
{
    const struct trace *trace = &traced->trace;
    Rowan__SlowOperation *body = &out->body;
    rowan__slow_operation__init(body);
    body->type = trace->type;
    body->shard = trace->shard;
    body->worker = traced->worker;
    body->key_bytes = trace->key_bytes;
    body->value_bytes = trace->value_bytes;
    body->status = trace->status;
    body->age_ns = control->now_ns > trace->end_ns ? control->now_ns - trace->end_ns : 0;
    body->queue_ns = trace->queue_ns;
    body->log_ns = trace->log_ns;
    body->index_ns = trace->index_ns;
    body->total_ns = trace->total_ns;
    if (keys) {
        body->key.data = (uint8_t *)(uintptr_t)trace->key;
        body->key.len =
            trace->key_bytes < TRACE_KEY_BYTES ? trace->key_bytes : (size_t)TRACE_KEY_BYTES;
    }
    body->backups = out->backup_list;
    for (uint32_t i = 0; i < TRACE_BACKUPS && trace->backups[i]; i++) {
        Rowan__SlowBackup *backup = out->backup_list[body->n_backups++] = &out->backups[i];
        rowan__slow_backup__init(backup);
        backup->server = trace->backups[i];
        backup->landed_ns = trace->backup_ns[i];
    }
}

/* Of all operations, not only those that were followed. */
static void add_counts(const struct control *control, uint64_t *gets, uint64_t *writes)
{
    for (uint32_t i = 0; i < control->options->workers; i++) {
        const struct latencies *latencies = worker_counts(control->workers[i])->latencies;
        for (uint32_t type = MESSAGE_GET; type <= WORKER_KINDS; type++) {
            uint64_t *counts = type == MESSAGE_GET ? gets : writes;
            for (uint32_t at = 0; at < LATENCIES_BUCKETS; at++)
                counts[at] += counter_get(&latencies[type - 1].counts[at]);
        }
    }
}

void control_slow_send(struct control *control, struct control_link *link, uint32_t tag)
{
    struct told told[SLOWEST_TOLD];
    Rowan__SlowOperation *list[SLOWEST_TOLD];
    uint64_t bounds[LATENCIES_BUCKETS], gets[LATENCIES_BUCKETS] = {0},
                                        writes[LATENCIES_BUCKETS] = {0};
    Rowan__SlowAre body = ROWAN__SLOW_ARE__INIT;
    struct gathered *all = gather(control);
    if (!all) {
        control_query_refuse(control, link, tag, ROWAN_ENOMEM);
        return;
    }
    for (uint32_t i = 0; i < all->count && i < SLOWEST_TOLD; i++) {
        tell_operation(control, &all->rows[i], control_may_see_keys(control, link), &told[i]);
        list[body.n_operations++] = &told[i].body;
    }
    add_counts(control, gets, writes);
    for (uint32_t i = 0; i < LATENCIES_BUCKETS; i++)
        bounds[i] = latencies_most_ns(i);
    for (uint32_t i = 0; i < control->options->workers; i++)
        body.followed += counter_get(&worker_traces(control->workers[i])->followed);
    body.one_in = atomic_load_explicit(&control->common->trace_one_in, memory_order_relaxed);
    body.operations = list;
    body.latency_ns = bounds;
    body.gets = gets;
    body.writes = writes;
    body.n_latency_ns = body.n_gets = body.n_writes = LATENCIES_BUCKETS;
    control_send(link, tag, &CONTROL_MESSAGE(SLOW_ARE, slow_are, &body));
    free(all);
}

/* --- where a key lies --- */

int control_trace_question(struct control *control, const struct control_link *link,
                           const Rowan__GetTrace *question, struct query *out)
{
    const struct user *user =
        control->config ? login_user(link->login, control->config->users) : NULL;
    if (question->key.len == 0 || question->key.len > ENTRY_MAX_KEY_BYTES)
        return ROWAN_EKEYSIZE;
    if (user && !user_has_key(user, question->key.data, question->key.len)) {
        control->refused_requests++;
        return ROWAN_EACCESS;
    }
    *out = (struct query){.kind = QUERY_TRACE,
                          .trace.is = ROWAN__TRACE_IS__INIT,
                          .trace.key_bytes = (uint32_t)question->key.len};
    memcpy(out->trace.key, question->key.data, question->key.len);
    return 0;
}

/* Cleaning may have moved the entry since its owner looked; what is told of its segment is of now. */
int control_trace_send(const struct control *control, const struct query *query)
{
    const struct store *store = control->common->store;
    Rowan__TraceIs body = query->trace.is;
    body.shard = query->shard;
    body.server = control->common->server;
    if (body.found) {
        body.segment = store_segment_at(store, body.offset);
        const struct segment_meta meta = store_meta(store, body.segment);
        body.segment_offset = body.offset - store_segment_offset(store, body.segment);
        body.log = (char *)(uintptr_t)segment_owner_names[meta.owner];
        body.log_number = meta.owner_number;
        body.segment_state = (char *)(uintptr_t)segment_state_names[meta.state];
    }
    return control_message_send(query->link->conn, query->tag,
                                &CONTROL_MESSAGE(TRACE_IS, trace_is, &body));
}
