#include "server/worker/worker_counts.h"

#include <stddef.h>

#define ANSWERED                                                                                   \
    "Requests answered, by kind and by how they ended. Busy and moved are asked again by the "     \
    "SDK, "                                                                                        \
    "repeated is a write that was counted before; all others are operations."
#define REQUESTS(kind, type, name, outcome)                                                        \
    {                                                                                              \
        "rowan_requests_total", ANSWERED, "kind=\"" kind "\",outcome=\"" name "\"",                \
            METRIC_COUNTER, offsetof(struct worker_counts, requests[(type)-1][outcome]), 0         \
    }
#define KIND(kind, type)                                                                           \
    REQUESTS(kind, type, "ok", OUTCOME_OK), REQUESTS(kind, type, "not_found", OUTCOME_NOT_FOUND),  \
        REQUESTS(kind, type, "version", OUTCOME_VERSION),                                          \
        REQUESTS(kind, type, "full", OUTCOME_FULL),                                                \
        REQUESTS(kind, type, "refused", OUTCOME_REFUSED),                                          \
        REQUESTS(kind, type, "failed", OUTCOME_FAILED),                                            \
        REQUESTS(kind, type, "repeated", OUTCOME_REPEATED),                                        \
        REQUESTS(kind, type, "busy", OUTCOME_BUSY), REQUESTS(kind, type, "moved", OUTCOME_MOVED)
#define DURATIONS(kind, type)                                                                      \
    {                                                                                              \
        "rowan_operation_duration_seconds",                                                        \
            "From the poll of the worker that took an operation's request to its answer.",         \
            "kind=\"" kind "\"", METRIC_HISTOGRAM,                                                 \
            offsetof(struct worker_counts, latencies[(type)-1]), 0                                 \
    }

const struct metric worker_metrics[WORKER_METRICS] = {
    KIND("get", MESSAGE_GET),
    KIND("put", MESSAGE_PUT),
    KIND("put_if", MESSAGE_PUT_IF),
    KIND("delete", MESSAGE_DELETE),
    DURATIONS("get", MESSAGE_GET),
    DURATIONS("put", MESSAGE_PUT),
    DURATIONS("put_if", MESSAGE_PUT_IF),
    DURATIONS("delete", MESSAGE_DELETE),
    {"rowan_writes_in_flight", "Writes that are stored here and not yet on all replicas.", "",
     METRIC_GAUGE, offsetof(struct worker_counts, in_flight), 0},
};

uint64_t worker_operations(const struct worker_counts *counts, enum message_type type)
{
    uint64_t sum = 0;
    for (int outcome = 0; outcome < OUTCOMES_DONE; outcome++)
        sum += counter_get(&counts->requests[type - 1][outcome]);
    return sum;
}
