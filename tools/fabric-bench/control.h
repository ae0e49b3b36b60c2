/* control.h - asks a receiver for its figures, over a connection of its own; the calling thread waits. */
#ifndef FABRIC_BENCH_CONTROL_H
#define FABRIC_BENCH_CONTROL_H

#include "common/fabric/fabric.h"
#include "tools/fabric-bench/wire.h"

struct bench_control;

/* control_open: connects. Errors: ROWAN_ENOMEM, ETIMEDOUT, and those of the fabric. */
int control_open(struct fabric *fabric, const char *address, struct bench_control **out);

/* Errors: ROWAN_ECLOSED, ETIMEDOUT, EFORMAT, EIO. */
int control_ask(struct bench_control *control, struct wire_facts *out);

/* Waits until nobody but control connections uses the receiver. Errors: those of control_ask. */
int control_wait_quiet(struct bench_control *control);

/* NULL is fine. */
void control_close(struct bench_control *control);

#endif
