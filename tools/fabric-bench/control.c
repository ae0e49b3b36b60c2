/* control.c - one question at a time; the thread sleeps until its answer comes. */
#include "tools/fabric-bench/control.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/reactor/wait.h"

enum { EVENTS = 16, ENDPOINT = 1000 /* no other endpoint of the sending process has it */ };

#define PATIENCE_NS (10 * NS_PER_S)
#define PAUSE_NS    (2 * NS_PER_MS)

struct bench_control {
    struct fabric_endpoint *endpoint;
    struct event_source source;
    struct fabric_conn *conn;
    bool connected, answered;
    int error;
    uint64_t number;
    struct wire_facts facts;
};

static void handle_message(struct bench_control *control, const struct fabric_event *event)
{
    struct wire_facts facts;

    if (event->bytes == sizeof facts)
        memcpy(&facts, event->data, sizeof facts);
    if (event->bytes != sizeof facts || facts.magic != WIRE_MAGIC ||
        facts.number != control->number || memchr(facts.memory, 0, sizeof facts.memory) == NULL ||
        memchr(facts.durability, 0, sizeof facts.durability) == NULL) {
        control->error = ROWAN_EFORMAT;
    } else {
        control->facts = facts;
        control->answered = true;
    }
    fabric_message_release(event->conn, event->message);
}

static enum poll_result control_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct bench_control *control = role;
    struct fabric_event events[EVENTS];
    unsigned count = fabric_poll(control->endpoint, now_ns, events, EVENTS);

    (void)wake_ns;
    for (unsigned i = 0; i < count; i++) {
        if (events[i].kind == FABRIC_CONNECTED)
            control->connected = true;
        else if (events[i].kind == FABRIC_MESSAGE)
            handle_message(control, &events[i]);
        else if (events[i].kind == FABRIC_CLOSED)
            control->error = events[i].error ? events[i].error : ROWAN_ECLOSED;
    }
    fabric_flush(control->endpoint);
    return count > 0 ? POLL_BUSY : POLL_IDLE;
}

/* Until `*flag`, or an error. */
static int wait_for(struct bench_control *control, const bool *flag)
{
    struct clock *clock = clock_system();
    const uint64_t until_ns = clock_now_ns(clock) + PATIENCE_NS;

    while (!*flag && !control->error) {
        if (clock_now_ns(clock) >= until_ns)
            return ROWAN_ETIMEDOUT;
        int error = event_source_wait(&control->source, clock, control_poll, control, until_ns);

        if (error)
            return error;
    }
    return control->error;
}

int control_open(struct fabric *fabric, const char *address, struct bench_control **out)
{
    const struct fabric_identity identity = {
        .cluster = 1, .term = 1, .incarnation = 1, .role = WIRE_CONTROL, .kind = FABRIC_CLIENT};
    struct bench_control *control = calloc(1, sizeof *control);
    if (!control)
        return ROWAN_ENOMEM;
    int error = fabric_endpoint_open(fabric, ENDPOINT, &control->endpoint);
    if (!error) {
        fabric_endpoint_identity(control->endpoint, &identity);
        fabric_endpoint_source(control->endpoint, &control->source);
        error = fabric_connect(control->endpoint, address, 0, 0, &control->conn);
    }
    if (!error)
        error = wait_for(control, &control->connected);
    if (error) {
        control_close(control);
        return error;
    }
    *out = control;
    return 0;
}

int control_ask(struct bench_control *control, struct wire_facts *out)
{
    const struct wire_ask ask = {.magic = WIRE_MAGIC, .value = ++control->number};
    const struct fabric_iov iov = {.data = &ask, .bytes = sizeof ask};

    control->answered = false;
    int error = control->error;

    if (!error)
        error = fabric_send(control->conn, &iov, 1);
    if (!error) {
        fabric_flush(control->endpoint);
        error = wait_for(control, &control->answered);
    }
    if (!error)
        *out = control->facts;
    return error;
}

int control_wait_quiet(struct bench_control *control)
{
    struct clock *clock = clock_system();
    const uint64_t until_ns = clock_now_ns(clock) + PATIENCE_NS;
    struct wire_facts facts;

    for (;;) {
        uint64_t now_ns = clock_now_ns(clock);
        int error = control_ask(control, &facts);

        if (error || facts.users == 0)
            return error;
        if (now_ns >= until_ns)
            return ROWAN_ETIMEDOUT;
        error =
            event_source_wait(&control->source, clock, control_poll, control, now_ns + PAUSE_NS);
        if (error)
            return error;
    }
}

void control_close(struct bench_control *control)
{
    if (!control)
        return;
    fabric_endpoint_close(control->endpoint);
    free(control);
}
