/* The cluster in one thread: putting it together, and the life of its processes. The loop is in cluster_step.c. */
#include "test/sim/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/session_internal.h"
#include "common/base/assert.h"
#include "common/base/error.h"
#include "test/sim/journal.h"

#define CM_ADDRESS      "sim:cm"
#define RIVAL_ADDRESS   "sim:rival"
#define THIRD_ADDRESS   "sim:third"
#define MANAGERS        CM_ADDRESS "," RIVAL_ADDRESS
#define START_LIMIT_NS  (10 * NS_PER_S)
#define SETTLE_NS       (200 * NS_PER_MS) /* for the servers to find each other */
#define STOP_TIMEOUT_NS (3 * NS_PER_S)

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
    DEFAULT(durability, PM_FENCE);
    ASSERT(options->servers <= SIM_MAX_SERVERS && options->clients <= SIM_MAX_CLIENTS);
    ASSERT(options->drift_ppm < 1000000 && options->reactors <= SIM_MAX_REACTORS);
    ASSERT(options->workers + options->digests + 2 <= SIM_MAX_ROLES);
}

/* A seed of its own for each part, so that what one of them draws changes nothing for the others. */
static uint64_t part_seed(const struct sim_cluster *cluster, uint64_t part)
{
    struct random random;
    random_init(&random, cluster->options.seed ^ (part << 32));
    return random_u64(&random) | 1;
}

enum { PART_REGISTRY = 1, PART_CLOCKS, PART_PM, PART_BEGINS = 100 };

enum { AHEAD_DOUBLINGS = 18 }; /* from a second to three days */

static uint64_t read_clock(struct clock *clock)
{
    const struct sim_process *process =
        (const struct sim_process *)((const char *)clock - offsetof(struct sim_process, clock));
    return sim_process_now_ns(process, process->world->now_ns);
}

static void init_process(struct sim_cluster *cluster, struct sim_process *process,
                         struct random *rates, struct random *begins, const char *format,
                         uint32_t number)
{
    uint32_t drift = cluster->options.drift_ppm;
    process->clock.now_ns = read_clock;
    process->world = &cluster->clock;
    snprintf(process->address, sizeof process->address, format, number);
    snprintf(process->name, sizeof process->name, "%s", strchr(process->address, ':') + 1);
    process->reads_early = true;
    if (drift)
        process->rate_ppm = (int32_t)random_below(rates, 2 * drift + 1) - (int32_t)drift;
    if (cluster->options.clocks_apart) {
        uint64_t base_ns = NS_PER_S << random_below(begins, AHEAD_DOUBLINGS);
        process->ahead_ns = base_ns + random_below(begins, base_ns);
    }
}

static void init_processes(struct sim_cluster *cluster)
{
    struct random rates, begins;
    random_init(&rates, part_seed(cluster, PART_CLOCKS));
    random_init(&begins, part_seed(cluster, PART_BEGINS));
    init_process(cluster, &cluster->cm_process, &rates, &begins, CM_ADDRESS, 0);
    init_process(cluster, &cluster->rival.process, &rates, &begins, RIVAL_ADDRESS, 0);
    init_process(cluster, &cluster->rival.guest.process, &rates, &begins, "sim:guest", 0);
    if (cluster->options.third)
        init_process(cluster, &cluster->third.process, &rates, &begins, THIRD_ADDRESS, 0);
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        init_process(cluster, &cluster->servers[i].process, &rates, &begins, "sim:server-%u",
                     i + 1);
    for (uint32_t i = 0; i < cluster->options.clients; i++) {
        init_process(cluster, &cluster->clients[i].process, &rates, &begins, "sim:client-%u",
                     i + 1);
        cluster->clients[i].process.reads_early = false;
    }
    cluster->cm_process.reads_early = cluster->options.lease_ms > 0; /* else it looks at no time */
}

static void create_network(struct sim_cluster *cluster)
{
    const struct sim_cluster_options *options = &cluster->options;
    const struct sim_network_options network = {.clock = &cluster->clock,
                                                .seed = random_u64(&cluster->random),
                                                .block_limit = options->block_limit,
                                                .landing_stride = options->landing_stride,
                                                .max_messages = options->max_messages,
                                                .max_delay_ns = options->max_delay_ns,
                                                .one_sided = options->one_sided,
                                                .silence_ns = options->silence_ns,
                                                .void_ns = options->void_ns,
                                                .early_seal = options->early_seal,
                                                .journal = options->journal};
    cluster->network = sim_network_create(&network);
}

static void create_cm(struct sim_cluster *cluster)
{
    struct cm_options *options = &cluster->cm_options;
    *options = (struct cm_options){.state = {.server_count = cluster->options.servers,
                                             .replicas = cluster->options.replicas,
                                             .shards = cluster->options.shards,
                                             .lease_ms = cluster->options.lease_ms,
                                             .start_wait_ms = cluster->options.start_wait_ms,
                                             .goodbye_wait_ms = cluster->options.goodbye_wait_ms,
                                             .cluster = random_u64(&cluster->random) | 1}};
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        options->state.servers[i] = i + 1;
    for (uint32_t i = 0; i < CLUSTER_SECRET_BYTES; i++)
        options->state.secret[i] = (uint8_t)random_u64(&cluster->random);
    struct sim_registry_options *registry = &cluster->options.registry;
    registry->clock = &cluster->clock;
    registry->seed = part_seed(cluster, PART_REGISTRY);
    cluster->registry = sim_registry_create(registry);
    sim_cluster_start_cm(cluster);
}

static void create_server(struct sim_cluster *cluster, uint32_t number)
{
    struct sim_server *server = &cluster->servers[number - 1];
    const struct sim_cluster_options *options = &cluster->options;
    server->boots = 1;
    server->pm = sim_pm_create(
        &cluster->clock, number == options->servers ? options->last_pm_bytes : options->pm_bytes,
        options->fence_ns);
    server->pm->seed = part_seed(cluster, PART_PM + number);
    server->pm->pm.durability = options->durability;
    sim_cluster_start_server(cluster, number);
}

static enum poll_result poll_client(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    enum poll_result result = session_poll(role, now_ns, wake_ns);

    /* As rowan.c does it before a sleep. */
    return result == POLL_IDLE && session_release(role) ? session_poll(role, now_ns, wake_ns)
                                                        : result;
}

static void create_client(struct sim_cluster *cluster, struct sim_client *client,
                          const char *managers)
{
    int error = sim_fabric_open(cluster->network, client->process.address, &client->fabric);
    ASSERT(!error);
    error = fabric_endpoint_open(client->fabric, 0, &client->endpoint);
    ASSERT(!error);
    const struct session_options options = {.depth = cluster->options.depth,
                                            .timeout_ns = cluster->options.timeout_ns,
                                            .operations_per_id = cluster->options.operations_per_id,
                                            .span = cluster->options.span};
    error = session_create(client->endpoint, managers, &options, &client->session);
    ASSERT(!error);
    client->reactor = (struct reactor){.session = client->session};
    struct event_source source;
    fabric_endpoint_source(client->endpoint, &source);
    reactor_add_source(&client->reactor, &source);
    reactor_add_poller(&client->reactor,
                       &(struct poller){"client", poll_client, client->session, NULL});
}

static void close_client(struct sim_client *client)
{
    session_destroy(client->session);
    client->session = NULL;
    fabric_endpoint_close(client->endpoint);
    fabric_close(client->fabric);
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

struct sim_cluster *sim_cluster_begin(const struct sim_cluster_options *options)
{
    struct sim_cluster *cluster = calloc(1, sizeof *cluster);
    ASSERT(cluster);
    cluster->options = *options;
    fill_defaults(&cluster->options);
    sim_clock_init(&cluster->clock);
    journal_clock(options->journal, &cluster->clock);
    cluster->until_ns = WAKE_NEVER;
    random_init(&cluster->random, options->seed);
    init_processes(cluster);
    create_network(cluster);
    create_cm(cluster);
    for (uint32_t i = 1; i <= cluster->options.servers; i++)
        create_server(cluster, i);
    for (uint32_t i = 0; i < cluster->options.clients; i++)
        create_client(cluster, &cluster->clients[i], MANAGERS);
    return cluster;
}

struct sim_cluster *sim_cluster_create(const struct sim_cluster_options *options)
{
    struct sim_cluster *cluster = sim_cluster_begin(options);
    bool ready = sim_cluster_run(cluster, is_ready, cluster, START_LIMIT_NS);
    ASSERT(ready);
    sim_cluster_start_third(cluster);
    sim_cluster_run_for(cluster, SETTLE_NS);
    return cluster;
}

void sim_cluster_destroy(struct sim_cluster *cluster)
{
    if (!cluster)
        return;
    for (uint32_t i = 0; i < cluster->options.clients; i++)
        close_client(&cluster->clients[i]);
    sim_cluster_crash(cluster);
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        pm_close(&cluster->servers[i].pm->pm);
    sim_registry_destroy(cluster->registry);
    sim_network_destroy(cluster->network);
    journal_clock(cluster->options.journal, NULL);
    free(cluster);
}

/* --- processes --- */

uint32_t sim_cluster_processes(const struct sim_cluster *cluster)
{
    return cluster->options.servers + cluster->options.clients + 1;
}

struct sim_process *sim_cluster_process(struct sim_cluster *cluster, uint32_t number)
{
    const struct sim_cluster_options *options = &cluster->options;
    if (number < options->servers)
        return &cluster->servers[number].process;
    number -= options->servers;
    return number < options->clients ? &cluster->clients[number].process : &cluster->cm_process;
}

void sim_cluster_stop(struct sim_cluster *cluster, struct sim_process *process, bool stopped)
{
    if (process->stopped == stopped)
        return;
    process->stopped = stopped;
    if (stopped)
        process->stopped_ns = cluster->clock.now_ns;
    process->resumed_round = cluster->rounds + 1;
    sim_network_stop(cluster->network, process->address, stopped);
    journal_note(cluster->options.journal, JOURNAL_FAULT, process->name,
                 stopped ? "is stopped" : "goes on");
}

/* What was stopped is gone: nothing goes on. */
static void forget_stop(struct sim_cluster *cluster, struct sim_process *process)
{
    if (process->stopped)
        sim_network_stop(cluster->network, process->address, false);
    process->stopped = false;
}

static void tell_loss(const struct sim_cluster *cluster, const struct sim_server *server,
                      const struct sim_pm_loss *loss)
{
    journal_note(cluster->options.journal, JOURNAL_FAULT, server->process.name,
                 "its host lost power: fences %lu, stores %lu, words %lu of them old %lu",
                 loss->fences, loss->stores, loss->words, loss->old);
}

struct sim_pm_loss sim_cluster_kill_server(struct sim_cluster *cluster, uint32_t number,
                                           struct random *power)
{
    struct sim_server *server = &cluster->servers[number - 1];
    struct sim_pm_loss loss = {0};
    if (server->server) {
        server_destroy(server->server);
        server->server = NULL;
        fabric_close(server->fabric); /* what was on its way here may land still */
        server->fabric = NULL;
        forget_stop(cluster, &server->process);
        journal_note(cluster->options.journal, JOURNAL_FAULT, server->process.name, "is killed");
    }
    if (power) {
        loss = sim_pm_power_loss(server->pm, power, server->lost, server->lost_context);
        server->boots++;
        tell_loss(cluster, server, &loss);
    }
    return loss;
}

static void end_cm(struct cm **cm, struct fabric **fabric, struct coord **coord)
{
    cm_destroy(*cm);
    fabric_close(*fabric);
    coord_close(*coord);
    *cm = NULL;
    *fabric = NULL;
    *coord = NULL;
}

void sim_cluster_kill_cm(struct sim_cluster *cluster)
{
    if (!cluster->cm)
        return;
    end_cm(&cluster->cm, &cluster->cm_fabric, &cluster->coord);
    forget_stop(cluster, &cluster->cm_process);
    journal_note(cluster->options.journal, JOURNAL_FAULT, cluster->cm_process.name, "is killed");
}

void sim_cluster_kill_rival(struct sim_cluster *cluster)
{
    struct sim_rival *rival = &cluster->rival;
    if (!rival->cm)
        return;
    close_client(&rival->guest);
    end_cm(&rival->cm, &rival->fabric, &rival->coord);
    forget_stop(cluster, &rival->process);
    journal_note(cluster->options.journal, JOURNAL_FAULT, rival->process.name, "is killed");
}

void sim_cluster_kill_third(struct sim_cluster *cluster)
{
    struct sim_third *third = &cluster->third;
    if (!third->cm)
        return;
    end_cm(&third->cm, &third->fabric, &third->coord);
    journal_note(cluster->options.journal, JOURNAL_FAULT, third->process.name, "is killed");
}

uint32_t sim_client_id(const struct sim_client *client)
{
    return client->session->client_id;
}

void sim_cluster_kill_client(struct sim_cluster *cluster, uint32_t index)
{
    struct sim_client *client = &cluster->clients[index];
    close_client(client);
    forget_stop(cluster, &client->process);
    journal_note(cluster->options.journal, JOURNAL_FAULT, client->process.name,
                 "ends, and another begins");
    client->ended++;
    create_client(cluster, client, MANAGERS);
}

void sim_cluster_empty_server(struct sim_cluster *cluster, uint32_t number)
{
    struct sim_server *server = &cluster->servers[number - 1];
    ASSERT(!server->server);
    sim_pm_replace(server->pm, server->lost, server->lost_context);
    server->emptied = server->starts;
    journal_note(cluster->options.journal, JOURNAL_FAULT, server->process.name, "its PM is empty");
}

bool sim_cluster_has_lost(const struct sim_cluster *cluster, const struct member *member)
{
    const struct sim_server *server = &cluster->servers[member->server - 1];
    bool lost = false;
    for (uint32_t i = 0; i < server->emptied; i++)
        lost |= server->incarnations[i] == member->incarnation;
    return lost;
}

void sim_cluster_readdress_server(struct sim_cluster *cluster, uint32_t number)
{
    struct sim_process *process = &cluster->servers[number - 1].process;
    ASSERT(!cluster->servers[number - 1].server);
    snprintf(process->address, sizeof process->address, "sim:server-%u-%lu", number,
             cluster->starts % 2); /* the network has only so many names */
    journal_note(cluster->options.journal, JOURNAL_FAULT, process->name, "is at %s",
                 process->address);
}

static void attach(struct sim_server *server, uint32_t count)
{
    struct reactor *reactors[SIM_MAX_REACTORS];
    memset(server->reactors, 0, sizeof server->reactors);
    for (uint32_t i = 0; i < count; i++)
        reactors[i] = &server->reactors[i];
    int error = server_attach(server->server, reactors, count);
    ASSERT(!error);
    server->fences = sim_pm_done(server->pm);
}

void sim_cluster_start_server(struct sim_cluster *cluster, uint32_t number)
{
    struct sim_server *server = &cluster->servers[number - 1];
    const struct sim_cluster_options *options = &cluster->options;
    ASSERT(!server->server);
    int error = sim_fabric_open(cluster->network, server->process.address, &server->fabric);
    ASSERT(!error);
    error = fabric_register(server->fabric, &server->pm->pm);
    ASSERT(!error);
    /* In real life they do not rise. */
    server->incarnation = 100 * ++cluster->starts + number;
    if (options->lease_ms)
        server->incarnation *= UINT64_C(0x9e3779b97f4a7c15);
    ASSERT(server->starts < SIM_MAX_STARTS);
    server->incarnations[server->starts++] = server->incarnation;
    const uint32_t reactors = options->reactors ? options->reactors : 1;
    struct server_options server_options = {.server = number,
                                            .incarnation = server->incarnation,
                                            .clock = &server->process.clock,
                                            .cm = options->stranger ? CM_ADDRESS ",sim:nobody"
                                                                    : MANAGERS,
                                            .address = server->process.address,
                                            .workers = options->workers,
                                            .digests = options->digests,
                                            .reactors = reactors,
                                            .landing_segments = options->landing_segments,
                                            .stop_timeout_ns = STOP_TIMEOUT_NS,
                                            .fill_rate = options->fill_rate,
                                            .trace_one_in = 4};
    memcpy(server_options.boot_id, &server->boots, sizeof server->boots);
    error = server_create(&server_options, server->fabric, &server->pm->pm, &server->server);
    if (error)
        fprintf(stderr, "%s cannot start: %s\n", server->process.name, error_sentence(error));
    ASSERT(!error);
    attach(server, reactors);
    journal_note(options->journal, JOURNAL_FAULT, server->process.name,
                 "starts, incarnation %lu, boot %u", server_options.incarnation, server->boots);
}

static void start_cm(struct sim_cluster *cluster, const char *address, struct cm **cm,
                     struct fabric **fabric, struct coord **coord, struct reactor *reactor)
{
    struct cm_options options = cluster->cm_options;
    ASSERT(!*cm);
    *coord = sim_coord_open(cluster->registry);
    int error = sim_fabric_open(cluster->network, address, fabric);
    ASSERT(!error);
    options.fabric = *fabric;
    options.coord = *coord;
    options.state.incarnation = ++cluster->starts;
    error = cm_create(&options, cm);
    ASSERT(!error);
    struct event_source source;
    cm_source(*cm, &source);
    *reactor = (struct reactor){.coord = *coord};
    reactor_add_source(reactor, &source);
    reactor_add_poller(reactor, &(struct poller){"cm", cm_poll, *cm, NULL});
    journal_note(cluster->options.journal, JOURNAL_FAULT, strchr(address, ':') + 1, "starts");
}

void sim_cluster_start_cm(struct sim_cluster *cluster)
{
    start_cm(cluster, CM_ADDRESS, &cluster->cm, &cluster->cm_fabric, &cluster->coord,
             &cluster->cm_reactor);
}

void sim_cluster_start_rival(struct sim_cluster *cluster)
{
    struct sim_rival *rival = &cluster->rival;
    start_cm(cluster, RIVAL_ADDRESS, &rival->cm, &rival->fabric, &rival->coord, &rival->reactor);
    create_client(cluster, &rival->guest, RIVAL_ADDRESS);
}

void sim_cluster_start_third(struct sim_cluster *cluster)
{
    struct sim_third *third = &cluster->third;
    if (cluster->options.third)
        start_cm(cluster, THIRD_ADDRESS, &third->cm, &third->fabric, &third->coord,
                 &third->reactor);
}

bool sim_cluster_is_down(const struct sim_cluster *cluster)
{
    bool up = cluster->cm || cluster->rival.cm || cluster->third.cm;
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        up |= cluster->servers[i].server != NULL;
    return !up;
}

bool sim_cluster_is_started(const struct sim_cluster *cluster)
{
    const struct cluster_config *config = sim_cluster_config(cluster);
    bool started = config != NULL;
    for (uint32_t i = 0; started && i < cluster->options.servers; i++) {
        const struct member *member = cluster_member(config, i + 1);
        started = cluster->servers[i].server && member &&
                  member->incarnation == cluster->servers[i].incarnation;
    }
    return started;
}

bool sim_cluster_is_whole(const struct sim_cluster *cluster)
{
    const struct cluster_config *config = sim_cluster_config(cluster);
    bool whole = config != NULL;
    whole = whole && config->shard_count == config->served_count; /* none is being split */
    for (uint32_t i = 0; whole && i < config->shard_count; i++)
        whole = config->shards[i].backup_count + 1 == config->replicas &&
                config->shards[i].filling_count == 0;
    return whole;
}

bool sim_cluster_has_alone(const struct sim_cluster *cluster, uint32_t server)
{
    const struct cluster_config *config = sim_cluster_config(cluster);
    bool alone = false;
    for (uint32_t i = 0; config && config->replicas > 1 && i < config->shard_count; i++)
        alone |= config->shards[i].primary == server && config->shards[i].backup_count == 0;
    return alone;
}

void sim_cluster_crash(struct sim_cluster *cluster)
{
    for (uint32_t i = 1; i <= cluster->options.servers; i++)
        sim_cluster_kill_server(cluster, i, NULL);
    sim_cluster_kill_cm(cluster);
    sim_cluster_kill_rival(cluster);
    sim_cluster_kill_third(cluster);
}

void sim_cluster_restart(struct sim_cluster *cluster, bool rebooted)
{
    ASSERT(sim_cluster_is_down(cluster));
    sim_cluster_start_cm(cluster);
    sim_cluster_start_third(cluster);
    for (uint32_t i = 1; i <= cluster->options.servers; i++) {
        cluster->servers[i - 1].boots += rebooted;
        sim_cluster_start_server(cluster, i);
    }
}

bool sim_cluster_is_rebooted_unfenced(const struct sim_cluster *cluster, uint32_t server)
{
    return cluster->options.durability != PM_FENCE && cluster->servers[server - 1].boots > 1;
}

bool sim_cluster_any_rebooted_unfenced(const struct sim_cluster *cluster)
{
    bool any = false;
    for (uint32_t i = 1; i <= cluster->options.servers; i++)
        any |= sim_cluster_is_rebooted_unfenced(cluster, i);
    return any;
}

void sim_cluster_cut(struct sim_cluster *cluster, struct random *random)
{
    uint32_t processes = sim_cluster_processes(cluster);
    const struct sim_process *a =
        sim_cluster_process(cluster, (uint32_t)random_below(random, processes));
    const struct sim_process *b =
        sim_cluster_process(cluster, (uint32_t)random_below(random, processes));
    if (a != b)
        sim_network_break(cluster->network, a->address, b->address);
}

struct control *sim_cluster_control(const struct sim_cluster *cluster, uint32_t server)
{
    struct server *process = cluster->servers[server].server;
    return process ? server_poller(process, 0).role : NULL;
}

const struct cluster_config *sim_cluster_config(const struct sim_cluster *cluster)
{
    const struct cluster_config *config = cluster->cm ? cm_config(cluster->cm) : NULL;
    const struct cluster_config *other = cluster->rival.cm ? cm_config(cluster->rival.cm) : NULL;
    return other && (!config || other->term > config->term) ? other : config;
}
