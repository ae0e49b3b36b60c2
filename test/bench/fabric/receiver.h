/* receiver.h - the side that is written to: one endpoint with a landing zone, on one thread. It supplies the
 * zone with segments, echoes messages, and answers how much CPU time it has spent. */
#ifndef FABRIC_BENCH_RECEIVER_H
#define FABRIC_BENCH_RECEIVER_H

#include <stdatomic.h>

#include "common/fabric/fabric.h"

struct receiver;

enum { RECEIVER_MAX_ECHOES = 65536 /* messages in flight of all connections together */ };

/* receiver_open: `fabric` has an address and has registered `pm`, of segments * FABRIC_SEGMENT_BYTES;
 * both outlive the receiver. What fails ends the program. */
struct receiver *receiver_open(struct fabric *fabric, struct pm *pm, uint32_t segments);

/* Runs on the calling thread until `stop` is set, which it checks every 50 ms and after a signal. */
void receiver_run(struct receiver *receiver, const atomic_bool *stop);
void receiver_close(struct receiver *receiver);

#endif
