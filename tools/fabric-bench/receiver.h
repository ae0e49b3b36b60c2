/* receiver.h - the side that is written to: one endpoint with a landing zone, on one thread. It supplies the
 * zone with segments, echoes messages, gives grants, and answers how much CPU time it has spent. */
#ifndef FABRIC_BENCH_RECEIVER_H
#define FABRIC_BENCH_RECEIVER_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/fabric/fabric.h"

struct receiver;

enum {
    RECEIVER_MAX_ECHOES = 65536,     /* messages in flight of all connections together */
    RECEIVER_WRITE_BYTES = 64 << 20, /* of its PM, behind the segments, that grants are cut from */
};

struct receiver_options {
    struct fabric *fabric; /* with an address */
    struct pm *pm;         /* registered; segments * FABRIC_SEGMENT_BYTES + RECEIVER_WRITE_BYTES */
    uint32_t segments;
    uint64_t spin_ns; /* how long an idle receiver polls before it sleeps */
};

/* Errors: ROWAN_ENOMEM, and those of opening an endpoint and a zone. */
int receiver_open(const struct receiver_options *options, struct receiver **out);

/* Runs on the calling thread until `stop` is set, which it checks every 50 ms and after a signal.
 * Errors: ROWAN_EIO. */
int receiver_run(struct receiver *receiver, const atomic_bool *stop);

/* NULL is fine. */
void receiver_close(struct receiver *receiver);

#endif
