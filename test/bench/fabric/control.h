/* control.h - asks a receiver for its figures, over a connection of its own; the calling thread waits. What fails ends
 * the program. */
#ifndef FABRIC_BENCH_CONTROL_H
#define FABRIC_BENCH_CONTROL_H

#include "test/bench/fabric/bench.h"

struct control {
    const char *address; /* of the receiver */
    struct fabric_endpoint *endpoint;
    struct event_source source;
    struct fabric_conn *conn;
    bool connected, answered;
    struct wire_facts facts;
};

void control_open(struct control *control, struct fabric *fabric, const char *address);
void control_close(struct control *control);

struct wire_facts control_ask(struct control *control);

/* Waits until nobody but control connections uses the receiver. */
void control_wait_quiet(struct control *control);

#endif
