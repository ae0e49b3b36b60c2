/* control.c - one question at a time; the thread sleeps until its answer comes. */
#include "test/bench/fabric/control.h"

#include <string.h>

#include "common/base/error.h"
#include "common/reactor/wait.h"

enum { EVENTS = 16, ENDPOINT = 1000 /* no other endpoint of the sending process has it */ };

#define PATIENCE_NS (10 * NS_PER_S)
#define PAUSE_NS    (2 * NS_PER_MS)

static void handle_event(struct control *control, const struct fabric_event *event)
{
    switch (event->kind) {
    case FABRIC_CONNECTED:
        control->connected = true;
        break;
    case FABRIC_CLOSED:
        bench_check(event->error ? event->error : ROWAN_ECLOSED, control->address);
        break;
    case FABRIC_MESSAGE:
        bench_check(event->bytes == sizeof control->facts ? 0 : ROWAN_EFORMAT, control->address);
        memcpy(&control->facts, event->data, sizeof control->facts);
        fabric_message_release(event->conn, event->message);
        control->answered = true;
        break;
    default:
        break;
    }
}

static enum poll_result control_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct control *control = role;
    struct fabric_event events[EVENTS];
    unsigned count = fabric_poll(control->endpoint, now_ns, events, EVENTS);

    (void)wake_ns;
    for (unsigned i = 0; i < count; i++)
        handle_event(control, &events[i]);
    fabric_flush(control->endpoint);
    return count > 0 ? POLL_BUSY : POLL_IDLE;
}

static void wait_for(struct control *control, const bool *flag)
{
    struct clock *clock = clock_system();
    const uint64_t until_ns = clock_now_ns(clock) + PATIENCE_NS;

    while (!*flag) {
        bench_check(clock_now_ns(clock) < until_ns ? 0 : ROWAN_ETIMEDOUT, control->address);
        bench_check(event_source_wait(&control->source, clock, control_poll, control, until_ns),
                    control->address);
    }
}

void control_open(struct control *control, struct fabric *fabric, const char *address)
{
    const struct fabric_identity identity = {
        .cluster = 1, .term = 1, .incarnation = 1, .role = WIRE_CONTROL, .kind = FABRIC_CLIENT};

    *control = (struct control){.address = address};
    bench_check(fabric_endpoint_open(fabric, ENDPOINT, &control->endpoint), address);
    fabric_endpoint_identity(control->endpoint, &identity);
    fabric_endpoint_source(control->endpoint, &control->source);
    bench_check(fabric_connect(control->endpoint, address, 0, 0, &control->conn), address);
    wait_for(control, &control->connected);
}

struct wire_facts control_ask(struct control *control)
{
    const struct fabric_iov iov = {.data = "?", .bytes = 1};

    control->answered = false;
    bench_check(fabric_send(control->conn, &iov, 1), control->address);
    fabric_flush(control->endpoint);
    wait_for(control, &control->answered);
    return control->facts;
}

void control_wait_quiet(struct control *control)
{
    const uint64_t until_ns = clock_now_ns(clock_system()) + PATIENCE_NS;

    while (control_ask(control).users > 0) {
        bench_check(clock_now_ns(clock_system()) < until_ns ? 0 : ROWAN_ETIMEDOUT,
                    control->address);
        bench_pause(PAUSE_NS);
    }
}

void control_close(struct control *control)
{
    fabric_endpoint_close(control->endpoint);
}
