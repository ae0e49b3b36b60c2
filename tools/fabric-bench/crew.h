/* crew.h - the sending threads of one run: connections spread over them, a closed loop. */
#ifndef FABRIC_BENCH_CREW_H
#define FABRIC_BENCH_CREW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/histogram.h"
#include "tools/fabric-bench/control.h"
#include "tools/fabric-bench/lane.h"

enum { CREW_MAX_THREADS = 64, CREW_MAX_SENDERS = 1000 };

struct crew_options {
    struct fabric *fabric; /* of the sending side */
    const char *address;   /* of the receiver */
    struct bench_control *control;
    enum bench_mode mode;
    uint32_t bytes, senders, depth, batch, threads;
    uint64_t warm_up_ns, run_ns, spin_ns;
    const uint8_t *source; /* registered: source_bytes for each thread */
    uint64_t source_bytes;
    const atomic_bool *stop; /* by a signal */
};

/* Over the measured time. An operation is a block, a write, or a message and its echo. */
struct crew_result {
    uint64_t operations, run_ns;
    uint64_t full;                /* ROWAN_EAGAIN answers to senders */
    struct cpu_time sender;       /* all sending threads */
    uint64_t receiver_operations; /* between the receiver's two answers */
    struct wire_facts receiver;   /* differences, but for the words */
    struct histogram latency_ns;  /* of MODE_ROWAN: of batches */
};

/* crew_run: connects, warms up, measures, drains, closes. `out` is valid on success. Errors: ROWAN_ETIMEDOUT (no
 * operation completed for 10 s), EFORMAT (operations completed out of order), ENOSPACE (the receiver's area for
 * writes is too small), ENOMEM, EUNKNOWN (stopped by a signal), and those of the fabric. */
int crew_run(const struct crew_options *options, struct crew_result *out);

#endif
