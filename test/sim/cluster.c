/* The cluster in one thread: putting it together, and the loop. */
#include "test/sim/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "test/sim/journal.h"

#define CM_ADDRESS     "sim:cm"
#define START_LIMIT_NS (10 * NS_PER_S)
#define SETTLE_NS      (200 * NS_PER_MS) /* for the servers to find each other */
#define IDLE_STEP_NS   NS_PER_MS

enum {
    MAX_POLLERS =
        1 + SIM_MAX_CLIENTS + SIM_MAX_SERVERS * (1 + CLUSTER_MAX_WORKERS + SERVER_MAX_DIGESTS),
};

/* --- putting together --- */

#define DEFAULT(field, value)                                                                      \
    do {                                                                                           \
        if (!options->field)                                                                       \
            options->field = value;                                                                \
    } while (0)

static void fill_defaults(struct sim_cluster_options *options)
{
    DEFAULT(servers, 3);
    DEFAULT(replicas, options->servers < 3 ? options->servers : 3);
    DEFAULT(workers, 1);
    DEFAULT(digests, 1);
    DEFAULT(clients, 1);
    DEFAULT(depth, 64);
    DEFAULT(landing_segments, 4);
    DEFAULT(pm_bytes, 256 << 20);
    DEFAULT(last_pm_bytes, options->pm_bytes);
    DEFAULT(timeout_ns, 10 * NS_PER_S);
    ASSERT(options->servers <= SIM_MAX_SERVERS && options->clients <= SIM_MAX_CLIENTS);
}

static void start_cm(struct sim_cluster *cluster)
{
    cluster->coord = sim_coord_open(cluster->registry);
    int error = sim_fabric_open(cluster->network, CM_ADDRESS, &cluster->cm_fabric);
    ASSERT(!error);
    cluster->cm_options.fabric = cluster->cm_fabric;
    cluster->cm_options.coord = cluster->coord;
    cluster->cm_options.incarnation = cluster->starts;
    error = cm_create(&cluster->cm_options, &cluster->cm);
    ASSERT(!error);
}

static void create_cm(struct sim_cluster *cluster)
{
    struct cm_options *options = &cluster->cm_options;
    *options = (struct cm_options){.state = {.server_count = cluster->options.servers,
                                             .replicas = cluster->options.replicas,
                                             .shards = cluster->options.shards,
                                             .cluster = random_u64(&cluster->random) | 1}};
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        options->state.servers[i] = i + 1;
    for (uint32_t i = 0; i < CLUSTER_SECRET_BYTES; i++)
        options->state.secret[i] = (uint8_t)random_u64(&cluster->random);
    cluster->registry = sim_registry_create(NULL);
    start_cm(cluster);
}

static void start_server(struct sim_cluster *cluster, uint32_t number)
{
    struct sim_server *server = &cluster->servers[number - 1];
    const struct sim_cluster_options *options = &cluster->options;
    int error = sim_fabric_open(cluster->network, server->process.address, &server->fabric);
    ASSERT(!error);
    error = fabric_register(server->fabric, &server->pm->pm);
    ASSERT(!error);
    struct server_options server_options = {.server = number,
                                            .incarnation = 100 * cluster->starts + number,
                                            .cm = CM_ADDRESS,
                                            .address = server->process.address,
                                            .workers = options->workers,
                                            .digests = options->digests,
                                            .reactors = 1,
                                            .landing_segments = options->landing_segments};
    memcpy(server_options.boot_id, &server->boots, sizeof server->boots);
    error = server_create(&server_options, server->fabric, &server->pm->pm, &server->server);
    ASSERT(!error);
}

static void create_server(struct sim_cluster *cluster, uint32_t number)
{
    struct sim_server *server = &cluster->servers[number - 1];
    const struct sim_cluster_options *options = &cluster->options;
    server->boots = 1;
    snprintf(server->process.address, sizeof server->process.address, "sim:server-%u", number);
    server->pm = sim_pm_create(
        &cluster->clock, number == options->servers ? options->last_pm_bytes : options->pm_bytes,
        options->fence_ns);
    start_server(cluster, number);
}

static void create_client(struct sim_cluster *cluster, uint32_t index)
{
    struct sim_client *client = &cluster->clients[index];
    snprintf(client->process.address, sizeof client->process.address, "sim:client-%u", index + 1);
    int error = sim_fabric_open(cluster->network, client->process.address, &client->fabric);
    ASSERT(!error);
    error = fabric_endpoint_open(client->fabric, 0, &client->endpoint);
    ASSERT(!error);
    const struct session_options options = {.depth = cluster->options.depth,
                                            .timeout_ns = cluster->options.timeout_ns,
                                            .operations_per_id = cluster->options.operations_per_id,
                                            .span = cluster->options.span};
    error = session_create(client->endpoint, CM_ADDRESS, &options, &client->session);
    ASSERT(!error);
}

static bool is_ready(void *context)
{
    struct sim_cluster *cluster = context;
    for (uint32_t i = 0; i < cluster->options.clients; i++) {
        if (!session_ready(cluster->clients[i].session))
            return false;
    }
    return true;
}

struct sim_cluster *sim_cluster_create(const struct sim_cluster_options *options)
{
    struct sim_cluster *cluster = calloc(1, sizeof *cluster);
    ASSERT(cluster);
    cluster->options = *options;
    fill_defaults(&cluster->options);
    sim_clock_init(&cluster->clock);
    journal_clock(options->journal, &cluster->clock);
    cluster->until_ns = WAKE_NEVER;
    random_init(&cluster->random, options->seed);
    const struct sim_network_options network = {.clock = &cluster->clock,
                                                .seed = random_u64(&cluster->random),
                                                .block_limit = options->block_limit,
                                                .max_messages = options->max_messages,
                                                .max_delay_ns = options->max_delay_ns};
    cluster->network = sim_network_create(&network);
    cluster->starts = 1;
    create_cm(cluster);
    for (uint32_t i = 1; i <= cluster->options.servers; i++)
        create_server(cluster, i);
    for (uint32_t i = 0; i < cluster->options.clients; i++)
        create_client(cluster, i);
    bool ready = sim_cluster_run(cluster, is_ready, cluster, START_LIMIT_NS);
    ASSERT(ready);
    sim_cluster_run_for(cluster, SETTLE_NS);
    return cluster;
}

void sim_cluster_destroy(struct sim_cluster *cluster)
{
    if (!cluster)
        return;
    for (uint32_t i = 0; i < cluster->options.clients; i++) {
        struct sim_client *client = &cluster->clients[i];
        session_destroy(client->session);
        fabric_endpoint_close(client->endpoint);
        fabric_close(client->fabric);
    }
    sim_cluster_crash(cluster);
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        pm_close(&cluster->servers[i].pm->pm);
    sim_registry_destroy(cluster->registry);
    sim_network_destroy(cluster->network);
    free(cluster);
}

/* --- crash and restart --- */

void sim_cluster_crash(struct sim_cluster *cluster)
{
    if (sim_cluster_is_down(cluster))
        return;
    for (uint32_t i = 0; i < cluster->options.servers; i++) {
        struct sim_server *server = &cluster->servers[i];
        server_destroy(server->server);
        fabric_close(server->fabric);
        server->server = NULL;
        server->process.stopped = false;
    }
    cm_destroy(cluster->cm);
    cluster->cm = NULL;
    fabric_close(cluster->cm_fabric);
    coord_close(cluster->coord);
}

void sim_cluster_restart(struct sim_cluster *cluster, bool rebooted)
{
    ASSERT(sim_cluster_is_down(cluster));
    cluster->starts++;
    start_cm(cluster);
    for (uint32_t i = 1; i <= cluster->options.servers; i++) {
        cluster->servers[i - 1].boots += rebooted;
        start_server(cluster, i);
    }
}

/* --- the loop --- */

static uint32_t gather_pollers(struct sim_cluster *cluster, struct poller *pollers)
{
    uint32_t count = 0;
    if (cluster->cm)
        pollers[count++] = (struct poller){"cm", cm_poll, cluster->cm};
    for (uint32_t i = 0; i < cluster->options.servers; i++) {
        struct sim_server *server = &cluster->servers[i];
        if (server->process.stopped || !server->server)
            continue;
        for (uint32_t role = 0; role < server_roles(server->server); role++)
            pollers[count++] = server_poller(server->server, role);
    }
    for (uint32_t i = 0; i < cluster->options.clients; i++)
        pollers[count++] = (struct poller){"client", session_poll, cluster->clients[i].session};
    ASSERT(count <= MAX_POLLERS);
    return count;
}

static void shuffle(struct random *random, struct poller *pollers, uint32_t count)
{
    for (uint32_t i = count; i > 1; i--) {
        uint64_t other = random_below(random, i);
        struct poller swap = pollers[i - 1];
        pollers[i - 1] = pollers[other];
        pollers[other] = swap;
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void advance_clock(struct sim_cluster *cluster, uint64_t wake_ns)
{
    uint64_t next_ns = earlier(wake_ns, sim_network_next_ns(cluster->network));
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        next_ns = earlier(next_ns, sim_pm_next_ns(cluster->servers[i].pm));
    bool stopped = false;
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        stopped |= cluster->servers[i].process.stopped;
    /* Who stands still would be missed by a jump to the next timeout. */
    if (next_ns == WAKE_NEVER || next_ns <= cluster->clock.now_ns ||
        (stopped && next_ns > cluster->clock.now_ns + IDLE_STEP_NS))
        next_ns = cluster->clock.now_ns + IDLE_STEP_NS;
    cluster->clock.now_ns = earlier(next_ns, cluster->until_ns);
}

bool sim_cluster_step(struct sim_cluster *cluster)
{
    struct poller pollers[MAX_POLLERS];
    uint32_t count = gather_pollers(cluster, pollers);
    shuffle(&cluster->random, pollers, count);
    uint64_t wake_ns = WAKE_NEVER, progress = sim_network_progress(cluster->network);
    bool busy = false;
    for (uint32_t i = 0; i < count; i++)
        busy |= pollers[i].poll(pollers[i].role, cluster->clock.now_ns, &wake_ns) == POLL_BUSY;
    busy |= sim_network_progress(cluster->network) != progress;
    if (!busy)
        advance_clock(cluster, wake_ns);
    return busy;
}

/* A busy loop that never lets the clock move must end too. */
enum { MAX_BUSY_ROUNDS = 1000000 };

bool sim_cluster_run(struct sim_cluster *cluster, bool (*condition)(void *context), void *context,
                     uint64_t limit_ns)
{
    uint32_t busy_rounds = 0;
    bool holds;
    cluster->until_ns = cluster->clock.now_ns + limit_ns;
    while (!(holds = condition(context)) && cluster->clock.now_ns < cluster->until_ns) {
        busy_rounds = sim_cluster_step(cluster) ? busy_rounds + 1 : 0;
        ASSERT(busy_rounds < MAX_BUSY_ROUNDS);
    }
    cluster->until_ns = WAKE_NEVER;
    return holds;
}

static bool never(void *context)
{
    (void)context;
    return false;
}

void sim_cluster_run_for(struct sim_cluster *cluster, uint64_t ns)
{
    sim_cluster_run(cluster, never, NULL, ns);
}

static const char *draw_process(const struct sim_cluster *cluster, struct random *random)
{
    const struct sim_cluster_options *options = &cluster->options;
    uint64_t number = random_below(random, options->servers + options->clients + 1);
    if (number < options->servers)
        return cluster->servers[number].process.address;
    number -= options->servers;
    return number < options->clients ? cluster->clients[number].process.address : CM_ADDRESS;
}

void sim_cluster_cut(struct sim_cluster *cluster, struct random *random)
{
    const char *a = draw_process(cluster, random), *b = draw_process(cluster, random);
    if (strcmp(a, b) != 0)
        sim_network_break(cluster->network, a, b);
}

const struct cluster_config *sim_cluster_config(const struct sim_cluster *cluster)
{
    return cm_config(cluster->cm);
}

/* --- operations --- */

struct waiter {
    bool done;
    struct rowan_completion completion;
};

static void on_completion(const struct rowan_completion *completion)
{
    struct waiter *waiter = completion->context;
    waiter->done = true;
    waiter->completion = *completion;
}

static bool is_done(void *context)
{
    return ((struct waiter *)context)->done;
}

static int run_operation(struct sim_cluster *cluster, uint32_t client,
                         struct session_request *request, size_t *value_bytes, uint64_t *version)
{
    struct waiter waiter = {.done = false};
    request->callback = on_completion;
    request->context = &waiter;
    request->reserved = true;
    int error = session_post(cluster->clients[client].session, request);
    if (error)
        return error;
    bool done = sim_cluster_run(cluster, is_done, &waiter, 2 * cluster->options.timeout_ns);
    ASSERT(done);
    if (value_bytes)
        *value_bytes = waiter.completion.value_bytes;
    if (version)
        *version = waiter.completion.version;
    return waiter.completion.status;
}

int sim_put(struct sim_cluster *cluster, uint32_t client, const void *key, size_t key_bytes,
            const void *value, size_t value_bytes, uint64_t *version)
{
    struct session_request request = {.type = MESSAGE_PUT,
                                      .key = key,
                                      .key_bytes = key_bytes,
                                      .value = value,
                                      .value_bytes = value_bytes};
    return run_operation(cluster, client, &request, NULL, version);
}

int sim_put_if(struct sim_cluster *cluster, uint32_t client, const void *key, size_t key_bytes,
               const void *value, size_t value_bytes, uint64_t expected, uint64_t *version)
{
    struct session_request request = {.type = MESSAGE_PUT_IF,
                                      .key = key,
                                      .key_bytes = key_bytes,
                                      .value = value,
                                      .value_bytes = value_bytes,
                                      .expected = expected};
    return run_operation(cluster, client, &request, NULL, version);
}

int sim_get(struct sim_cluster *cluster, uint32_t client, const void *key, size_t key_bytes,
            void *value, size_t room, size_t *value_bytes, uint64_t *version)
{
    struct session_request request = {
        .type = MESSAGE_GET, .key = key, .key_bytes = key_bytes, .room = value, .room_bytes = room};
    return run_operation(cluster, client, &request, value_bytes, version);
}

int sim_del(struct sim_cluster *cluster, uint32_t client, const void *key, size_t key_bytes)
{
    struct session_request request = {.type = MESSAGE_DELETE, .key = key, .key_bytes = key_bytes};
    return run_operation(cluster, client, &request, NULL, NULL);
}
