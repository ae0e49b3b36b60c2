/* crew.h - the sending threads of one run: connections spread over them, a closed loop. */
#ifndef FABRIC_BENCH_CREW_H
#define FABRIC_BENCH_CREW_H

#include "common/base/histogram.h"
#include "test/bench/fabric/control.h"

enum { CREW_MAX_THREADS = 64, CREW_MAX_SENDERS = 1000, CREW_MAX_DEPTH = 1024 };

struct crew_options {
    struct fabric *fabric; /* of the sending side */
    struct control *control;
    enum bench_mode mode;
    uint32_t bytes, senders, depth, batch, threads;
    uint64_t run_ns; /* it warms up for half as long */
    uint64_t spin_ns;
    const uint8_t *source; /* registered: source_bytes for each thread */
    uint64_t source_bytes;
};

/* Over the measured time. An operation is a block, or a message and its echo. */
struct crew_result {
    uint64_t operations, run_ns;
    uint64_t full;               /* ROWAN_EAGAIN answers to senders */
    uint64_t sender_ns;          /* CPU time of all sending threads */
    struct wire_facts receiver;  /* differences, but for `users` */
    struct histogram latency_ns; /* of MODE_ROWAN: of batches */
};

/* crew_run: connects, warms up, measures, drains, closes. What fails ends the program. */
void crew_run(const struct crew_options *options, struct crew_result *out);

#endif
