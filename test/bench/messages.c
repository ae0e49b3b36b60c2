/* messages - batches of messages from one endpoint to another, both in one thread, for counting what a
 * message costs: sending and flushing, the poll that receives, releasing. Run by test/bench/instructions
 * under callgrind, which collects from here on only between the two calls of CALLGRIND_TOGGLE_COLLECT,
 * so that polls without messages do not count.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/error.h"
#include "common/fabric/fabric.h"

enum { EVENTS = 64, MOST_BYTES = 65536, PATIENCE = 1000000 /* polls */ };

struct settings {
    const char *fabric, *dir;
    uint64_t messages, batch, bytes, port;
};

#define FIELD(name) offsetof(struct settings, name)
static const struct config_key keys[] = {
    {"fabric", CONFIG_STRING, FIELD(fabric), "shm", 0, 0, NULL, "the fabric's scheme"},
    {"dir", CONFIG_STRING, FIELD(dir), NULL, 0, 0, NULL, "where sockets go"},
    {"messages", CONFIG_U64, FIELD(messages), "20000", 1, 10000000, NULL, "of each part"},
    {"batch", CONFIG_U64, FIELD(batch), "16", 1, EVENTS, NULL, "messages between two flushes"},
    {"port", CONFIG_U64, FIELD(port), "27300", 1, 65535, NULL, "tcp: where to listen"},
    {"bytes", CONFIG_U64, FIELD(bytes), "100", 1, MOST_BYTES, NULL, "of a message"},
};

static const struct config_spec spec = {
    .program = "messages",
    .summary = "Sends messages to itself; see test/bench/instructions.",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

static struct settings settings;
static struct fabric *fabrics[2];
static struct fabric_endpoint *endpoints[2];
static struct fabric_conn *conn;
static struct fabric_event events[EVENTS];
static uint64_t now_ns = NS_PER_S;
static uint8_t data[MOST_BYTES];

static void check(int error, const char *what)
{
    if (!error)
        return;
    fprintf(stderr, "messages: %s: %s\n", what, error_sentence(error));
    exit(1);
}

static __attribute__((noinline)) void count_send(void)
{
    const struct fabric_iov iov = {.data = data, .bytes = (uint32_t)settings.bytes};

    for (uint64_t i = 0; i < settings.batch; i++)
        check(fabric_send(conn, &iov, 1), "send");
    fabric_flush(endpoints[0]);
}

static __attribute__((noinline)) unsigned count_receive(void)
{
    unsigned count = fabric_poll(endpoints[1], now_ns, events, EVENTS);

    for (unsigned i = 0; i < count; i++)
        fabric_message_release(events[i].conn, events[i].message);
    if (count > 0)
        fabric_flush(endpoints[1]);
    return count;
}

/* A poll without messages is done before; the bell or the socket then has what was sent. */
static void run_batch(void)
{
    CALLGRIND_TOGGLE_COLLECT;
    count_send();
    for (uint64_t got = 0; got < settings.batch;)
        got += count_receive();
    CALLGRIND_TOGGLE_COLLECT;
    fabric_poll(endpoints[0], now_ns, events, EVENTS); /* room that came back */
}

static void run_part(void)
{
    for (uint64_t sent = 0; sent < settings.messages; sent += settings.batch)
        run_batch();
}

static void open_all(char *address, size_t room)
{
    const struct fabric_identity identity = {.kind = FABRIC_CLIENT};
    bool connected = false, accepted = false;

    if (strcmp(settings.fabric, "tcp") == 0)
        snprintf(address, room, "tcp:127.0.0.1:%u", (unsigned)settings.port);
    else
        snprintf(address, room, "%s:%s/m", settings.fabric, settings.dir);
    check(fabric_open(NULL, address, &fabrics[1]), address);
    check(fabric_open(settings.fabric, NULL, &fabrics[0]), settings.fabric);
    for (int i = 0; i < 2; i++) {
        check(fabric_endpoint_open(fabrics[i], 0, &endpoints[i]), "endpoint");
        fabric_endpoint_identity(endpoints[i], &identity);
    }
    check(fabric_connect(endpoints[0], address, 0, 0, &conn), address);
    for (int i = 0; i < PATIENCE && !(connected && accepted); i++) {
        now_ns += NS_PER_MS;
        connected |=
            fabric_poll(endpoints[0], now_ns, events, 1) == 1 && events[0].kind == FABRIC_CONNECTED;
        accepted |=
            fabric_poll(endpoints[1], now_ns, events, 1) == 1 && events[0].kind == FABRIC_ACCEPTED;
    }
    check(connected && accepted ? 0 : ROWAN_EUNREACHABLE, address);
}

int main(int argc, char **argv)
{
    struct config_rest rest;
    enum config_outcome outcome = config_parse(&spec, argc, argv, &settings, &rest);
    char address[512];

    if (outcome != CONFIG_OK)
        return outcome == CONFIG_HELP ? 0 : 2;
    open_all(address, sizeof address);
    run_part();
    CALLGRIND_START_INSTRUMENTATION;
    run_part();
    CALLGRIND_DUMP_STATS_AT("first");
    run_part();
    CALLGRIND_DUMP_STATS_AT("second");
    for (int i = 0; i < 2; i++) {
        fabric_endpoint_close(endpoints[i]);
        fabric_close(fabrics[i]);
    }
    config_free(&rest);
    return 0;
}
