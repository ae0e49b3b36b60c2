/* roles - a whole cluster in one thread on a real fabric, for counting instructions of its roles: three
 * servers, a CM and one session. Time is made up, so that a run depends on nothing but its arguments.
 *
 * Instructions are to be counted over the polls that said BUSY, and a poll says so only at its end.
 * So the program runs twice: `--record FILE` notes what each poll said, and a second run under callgrind
 * collects (`--replay FILE`) in just those polls. A poll that says another thing the second time ends
 * the run: figures of different runs would be mixed.
 *
 * Operations run in two parts of --operations each; callgrind's dump of the second holds what N further
 * operations cost, whatever was cold in the first. test/bench/instructions reads it, by the names of the
 * functions count_*.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include "client/session.h"
#include "cm/cm.h"
#include "common/base/config.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "server/server.h"
#include "test/sim/sim_coord.h"

enum { MOST_SERVERS = 3, KEY_BYTES = 48, VALUE_BYTES = 43, MOST_DEPTH = 4096, PORTS = 8 };

#define ROUND_NS (settings.warm ? 20 * NS_PER_US : NS_PER_US) /* what cleans waits for clocks */
#define SETUP_NS (10 * NS_PER_S)
#define STEP     UINT64_C(1000003) /* a prime, so that a pass meets each record */

struct settings {
    const char *fabric, *dir, *workload, *record, *replay;
    uint64_t operations, records, depth, replicas, port, warm, pm_mib;
};

#define FIELD(name) offsetof(struct settings, name)
static const struct config_key keys[] = {
    {"fabric", CONFIG_STRING, FIELD(fabric), "shm", 0, 0, NULL, "the fabric's scheme"},
    {"dir", CONFIG_STRING, FIELD(dir), NULL, 0, 0, NULL, "where sockets and PM files go"},
    {"workload", CONFIG_STRING, FIELD(workload), "put", 0, 0, NULL, "put or get"},
    {"record", CONFIG_STRING, FIELD(record), "", 0, 0, NULL, "note here which polls are busy"},
    {"replay", CONFIG_STRING, FIELD(replay), "", 0, 0, NULL, "collect in the polls noted here"},
    {"operations", CONFIG_U64, FIELD(operations), "20000", 1, 10000000, NULL, "of each part"},
    {"records", CONFIG_U64, FIELD(records), "10000", 1, 10000000, NULL, "different keys"},
    {"depth", CONFIG_U64, FIELD(depth), "64", 1, MOST_DEPTH, NULL, "operations outstanding"},
    {"port", CONFIG_U64, FIELD(port), "27300", 1, 65504, NULL, "tcp: the first of 32"},
    {"replicas", CONFIG_U64, FIELD(replicas), "3", 1, MOST_SERVERS, NULL, "of each shard"},
    {"warm", CONFIG_U64, FIELD(warm), "0", 0, 100000000, NULL,
     "puts of records drawn at random before the parts, which draw them, too; 0: none, each pass "
     "meets every record"},
    {"pm-mib", CONFIG_U64, FIELD(pm_mib), "0", 0, 65536, NULL,
     "of each server; 0: so much that none cleans"},
};

static const struct config_spec spec = {
    .program = "roles",
    .summary = "One thread runs all roles of a cluster; see test/bench/instructions.",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

static struct settings settings;

struct process { /* a server, the CM or the client */
    char address[256];
    struct fabric *fabric;
    struct pm *pm;
    struct server *server;
};

static struct process servers[MOST_SERVERS], cm_process, client;
static struct sim_registry *registry;
static struct coord *coord;
static struct cm *cm;
static struct fabric_endpoint *endpoint;
static struct session *session;
static uint64_t now_ns = NS_PER_S, rounds;
static FILE *trace;
static bool counting, recording;
static uint64_t processes;

static void check(int error, const char *what)
{
    if (!error)
        return;
    fprintf(stderr, "roles: %s: %s\n", what, error_sentence(error));
    exit(1);
}

/* --- putting together --- */

static void process_open(struct process *process, const char *name)
{
    if (strcmp(settings.fabric, "tcp") == 0)
        snprintf(process->address, sizeof process->address, "tcp:127.0.0.1:%u",
                 (unsigned)(settings.port + PORTS * processes++));
    else
        snprintf(process->address, sizeof process->address, "%s:%s/%s", settings.fabric,
                 settings.dir, name);
    check(fabric_open(NULL, process->address, &process->fabric), process->address);
}

static void create_cm(void)
{
    struct cm_options options = {.state = {.server_count = MOST_SERVERS,
                                           .replicas = (uint32_t)settings.replicas,
                                           .cluster = 7,
                                           .incarnation = 1}};

    for (uint32_t i = 0; i < MOST_SERVERS; i++)
        options.state.servers[i] = i + 1;
    memset(options.state.secret, 5, sizeof options.state.secret);
    registry = sim_registry_create(NULL);
    coord = sim_coord_open(registry);
    process_open(&cm_process, "cm");
    options.fabric = cm_process.fabric;
    options.coord = coord;
    check(cm_create(&options, &cm), "CM");
}

static void create_server(uint32_t number)
{
    struct process *server = &servers[number - 1];
    char name[32], path[512];

    snprintf(name, sizeof name, "s%u", number);
    snprintf(path, sizeof path, "%s/%s.pm", settings.dir, name);
    process_open(server, name);
    /* Each server may have to hold all writes of this run, as t-log and as two b-logs. */
    const uint64_t enough =
        (UINT64_C(256) << 20) + (settings.operations * 2 + settings.records) * 256 / 4096 * 4096;
    const struct pm_open_options pm = {.path = path,
                                       .bytes = settings.pm_mib ? settings.pm_mib << 20 : enough,
                                       .create = 1,
                                       .durability = PM_NONE};

    check(pm_open(&pm, &server->pm), path);
    check(fabric_register(server->fabric, server->pm), path);
    const struct server_options options = {.server = number,
                                           .incarnation = 100 + number,
                                           .clock = clock_system(),
                                           .cm = cm_process.address,
                                           .address = server->address,
                                           .workers = 1,
                                           .digests = 1,
                                           .reactors = 1,
                                           .landing_segments = 4,
                                           .trace_one_in = 1024}; /* rowan-server's */

    check(server_create(&options, server->fabric, server->pm, &server->server), server->address);
}

static void create_client(void)
{
    const struct session_options options = {.depth = (uint32_t)settings.depth,
                                            .timeout_ns = 20 * NS_PER_S};

    check(fabric_open(settings.fabric, NULL, &client.fabric), "client");
    check(fabric_endpoint_open(client.fabric, 0, &endpoint), "client");
    check(session_create(endpoint, cm_process.address, &options, &session), "client");
}

static void destroy_all(void)
{
    session_destroy(session);
    fabric_endpoint_close(endpoint);
    fabric_close(client.fabric);
    for (uint32_t i = 0; i < MOST_SERVERS; i++) {
        char path[512];

        server_destroy(servers[i].server);
        fabric_close(servers[i].fabric);
        pm_close(servers[i].pm);
        snprintf(path, sizeof path, "%s/s%u.pm", settings.dir, i + 1);
        unlink(path);
    }
    cm_destroy(cm);
    fabric_close(cm_process.fabric);
    coord_close(coord);
    sim_registry_destroy(registry);
}

/* --- the polls that are counted; callgrind's figures carry these functions' names --- */

typedef enum poll_result counted_poll(const struct poller *poller);

#define COUNTED(name)                                                                              \
    static __attribute__((noinline)) enum poll_result name(const struct poller *poller)            \
    {                                                                                              \
        uint64_t wake_ns = WAKE_NEVER;                                                             \
        enum poll_result result = poller->poll(poller->role, now_ns, &wake_ns);                    \
                                                                                                   \
        __asm__ volatile("" ::: "memory");                                                         \
        return result;                                                                             \
    }

COUNTED(count_client)
COUNTED(count_worker)
COUNTED(count_digest)
COUNTED(count_clean)
COUNTED(count_control)
COUNTED(count_cm)

static void run_poll(counted_poll *count, const struct poller *poller)
{
    bool collect = counting && !recording && getc(trace) == '1';

    if (collect)
        CALLGRIND_TOGGLE_COLLECT;
    bool busy = count(poller) == POLL_BUSY;

    if (collect)
        CALLGRIND_TOGGLE_COLLECT;
    if (counting && recording)
        putc(busy ? '1' : '0', trace);
    if (counting && !recording && busy != collect) {
        fprintf(stderr, "roles: a poll of %s was %s this time: record again\n", poller->name,
                busy ? "busy" : "idle");
        exit(1);
    }
}

static void run_server(struct server *server)
{
    static counted_poll *const counts[] = {count_control, count_worker, count_digest, count_clean};

    for (uint32_t role = 0; role < server_roles(server); role++) {
        const struct poller poller = server_poller(server, role);

        run_poll(counts[role], &poller);
    }
}

static void run_round(void)
{
    const struct poller client_poller = {"client", session_poll, session, NULL};
    const struct poller cm_poller = {"cm", cm_poll, cm, NULL};

    now_ns += ROUND_NS;
    rounds++;
    run_poll(count_client, &client_poller);
    for (uint32_t i = 0; i < MOST_SERVERS; i++)
        run_server(servers[i].server);
    run_poll(count_cm, &cm_poller);
}

/* --- operations --- */

struct slot {
    char key[KEY_BYTES];
    char value[VALUE_BYTES];
};

static struct slot slots[MOST_DEPTH], *idle[MOST_DEPTH];
static uint64_t idle_count, completed;

static void on_completion(const struct rowan_completion *completion)
{
    check(completion->status, "operation");
    idle[idle_count++] = completion->context;
    completed++;
}

static __attribute__((noinline)) int count_post(const struct session_request *request)
{
    return session_post(session, request);
}

static void post(uint64_t record, bool put)
{
    struct slot *slot = idle[--idle_count];
    bool collect = counting && !recording;

    memset(slot->key, 'k', sizeof slot->key);
    snprintf(slot->key, sizeof slot->key, "%016llx", (unsigned long long)record);
    struct session_request request = {.type = put ? MESSAGE_PUT : MESSAGE_GET,
                                      .key = slot->key,
                                      .key_bytes = KEY_BYTES,
                                      .callback = on_completion,
                                      .context = slot};
    if (put) {
        request.value = slot->value;
        request.value_bytes = VALUE_BYTES;
    } else {
        request.room = slot->value;
        request.room_bytes = VALUE_BYTES;
    }
    if (collect)
        CALLGRIND_TOGGLE_COLLECT;
    int error = count_post(&request);

    if (collect)
        CALLGRIND_TOGGLE_COLLECT;
    check(error, "post");
}

static struct random drawn;
static bool drawing;

static uint64_t record_at(uint64_t number)
{
    return drawing ? random_below(&drawn, settings.records) : number * STEP % settings.records;
}

/* Posts `count` operations, and runs until they completed and no entry waits
 * for its digest. */
static void run_operations(uint64_t count, bool put)
{
    uint64_t posted = 0, before = completed;

    while (completed - before < count) {
        for (; idle_count > 0 && posted < count; posted++)
            post(record_at(posted), put);
        run_round();
    }
    for (int i = 0; i < 200; i++)
        run_round();
}

static void run_parts(void)
{
    bool put = strcmp(settings.workload, "put") == 0;

    counting = true;
    if (!recording)
        CALLGRIND_START_INSTRUMENTATION;
    run_operations(settings.operations, put);
    CALLGRIND_DUMP_STATS_AT("first");
    run_operations(settings.operations, put);
    CALLGRIND_DUMP_STATS_AT("second");
    counting = false;
}

static bool settings_are_sound(void)
{
    return (strcmp(settings.workload, "put") == 0 || strcmp(settings.workload, "get") == 0) &&
           !!*settings.record != !!*settings.replay;
}

int main(int argc, char **argv)
{
    struct config_rest rest;
    enum config_outcome outcome = config_parse(&spec, argc, argv, &settings, &rest);

    if (outcome != CONFIG_OK)
        return outcome == CONFIG_HELP ? 0 : 2;
    if (!settings_are_sound()) {
        fprintf(stderr, "roles: --workload is put or get, with --record or --replay FILE\n");
        return 2;
    }
    recording = *settings.record;
    trace = fopen(recording ? settings.record : settings.replay, recording ? "w" : "r");
    check(trace ? 0 : ROWAN_EIO, "--record or --replay");
    log_set_level(LOG_WARN);
    create_cm();
    for (uint32_t i = 1; i <= MOST_SERVERS; i++)
        create_server(i);
    create_client();
    for (uint64_t i = 0; i < settings.depth; i++)
        idle[idle_count++] = &slots[i];
    uint64_t limit_ns = now_ns + SETUP_NS;

    while (now_ns < limit_ns && !session_ready(session))
        run_round();
    check(session_ready(session) ? 0 : ROWAN_ETIMEDOUT, "start");
    for (int i = 0; i < 100000; i++) /* the servers find each other */
        run_round();
    run_operations(settings.records, true);
    random_init(&drawn, 1);
    drawing = settings.warm > 0;
    run_operations(settings.warm, true);
    run_parts();
    int failed = ferror(trace) || fclose(trace) != 0;

    destroy_all();
    config_free(&rest);
    check(failed ? ROWAN_EIO : 0, "--record or --replay");
    return 0;
}
