/* The loop: whose turn it is, and what the clock shows.
 *
 * When a whole round was idle and nothing moved in the network, the clock jumps: to the earliest time that a role
 * asked for, that something arrives, that a fence is done, that the coordination service answers, or that a slow
 * process has its turn. A round in which somebody was busy takes no time.
 */
#include "test/sim/cluster.h"

#include "common/base/assert.h"
#include "common/base/error.h"
#include "test/sim/journal.h"
#ifdef ROWAN_SIM
#include "test/sim/sim_log.h"
#endif

#define IDLE_STEP_NS NS_PER_MS

enum {
    MAX_POLLERS =
        3 + SIM_MAX_CLIENTS + SIM_MAX_SERVERS * (1 + CLUSTER_MAX_WORKERS + SERVER_MAX_DIGESTS),
    MAX_BUSY_ROUNDS = 1000000, /* a busy loop that never lets the clock move is a defect */
};

struct turn {
    struct poller poller;
    const struct sim_process *process;
    uint64_t now_ns; /* by the process's clock */
};

struct round {
    struct turn turns[MAX_POLLERS];
    uint32_t count;
    uint64_t wake_ns; /* the earliest time that anybody asked for */
};

/* --- clocks --- */

enum { MILLION = 1000000 };

/* Rounded down, without an overflow in between: process time is floor(now * rate / MILLION), behind what it began with. */
uint64_t sim_process_now_ns(const struct sim_process *process, uint64_t now_ns)
{
    uint64_t rate = (uint64_t)(MILLION + process->rate_ppm);
    return process->ahead_ns + now_ns / MILLION * rate + now_ns % MILLION * rate / MILLION;
}

uint64_t sim_process_until_ns(const struct sim_process *process, uint64_t at_ns)
{
    uint64_t rate = (uint64_t)(MILLION + process->rate_ppm);
    if (at_ns > WAKE_NEVER / 4)
        return WAKE_NEVER;
    at_ns = at_ns > process->ahead_ns ? at_ns - process->ahead_ns : 0;
    return at_ns / rate * MILLION + (at_ns % rate * MILLION + rate - 1) / rate;
}

/* Divisions are saved where it shows the simulation's time. */
static bool has_own_clock(const struct sim_process *process)
{
    return process->rate_ppm != 0 || process->ahead_ns != 0;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* --- a round --- */

/* May it be polled in this round? */
static bool has_turn(struct sim_cluster *cluster, struct sim_process *process, struct round *round)
{
    if (process->stopped)
        return false;
    if (!process->slow_ns)
        return true;
    bool due = cluster->clock.now_ns >= process->due_ns;
    if (due)
        process->due_ns = cluster->clock.now_ns + process->slow_ns;
    round->wake_ns = earlier(round->wake_ns, process->due_ns);
    return due;
}

static void add_turn(const struct sim_cluster *cluster, struct round *round,
                     const struct sim_process *process, struct poller poller)
{
    ASSERT(round->count < MAX_POLLERS);
    uint64_t now_ns = cluster->clock.now_ns;
    round->turns[round->count++] = (struct turn){
        .poller = poller,
        .process = process,
        .now_ns = has_own_clock(process) ? sim_process_now_ns(process, now_ns) : now_ns,
    };
}

static bool role_is_late(const struct sim_cluster *cluster, struct sim_server *server,
                         struct round *round)
{
    bool late = cluster->clock.now_ns < server->role_due_ns;
    if (!late)
        server->role_due_ns = cluster->clock.now_ns + server->slow_role_ns;
    round->wake_ns = earlier(round->wake_ns, server->role_due_ns);
    return late;
}

static void add_server(struct sim_cluster *cluster, struct sim_server *server, struct round *round)
{
    if (!server->server || !has_turn(cluster, &server->process, round))
        return;
    uint32_t roles = server_roles(server->server);
    for (uint32_t role = 0; role < roles; role++) {
        if (server->late_role != role + 1 || !role_is_late(cluster, server, round))
            add_turn(cluster, round, &server->process, server_poller(server->server, role));
    }
}

static void gather(struct sim_cluster *cluster, struct round *round)
{
    round->count = 0;
    round->wake_ns = WAKE_NEVER;
    if (cluster->cm && has_turn(cluster, &cluster->cm_process, round))
        add_turn(cluster, round, &cluster->cm_process, (struct poller){"cm", cm_poll, cluster->cm});
    if (cluster->rival.cm) {
        const struct sim_rival *rival = &cluster->rival;
        add_turn(cluster, round, &rival->process, (struct poller){"rival", cm_poll, rival->cm});
        add_turn(cluster, round, &rival->guest.process,
                 (struct poller){"guest", session_poll, rival->guest.session});
    }
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        add_server(cluster, &cluster->servers[i], round);
    for (uint32_t i = 0; i < cluster->options.clients; i++) {
        struct sim_client *client = &cluster->clients[i];
        if (has_turn(cluster, &client->process, round))
            add_turn(cluster, round, &client->process,
                     (struct poller){"client", session_poll, client->session});
    }
}

/* Polls everybody once, in an order that the seed draws: who comes next is drawn from those that are left. */
static bool poll_all(struct sim_cluster *cluster, struct round *round)
{
    bool busy = false;
    for (uint32_t i = 0; i < round->count; i++) {
        uint64_t draw = i + random_below(&cluster->random, round->count - i);
        const struct turn turn = round->turns[draw];
        round->turns[draw] = round->turns[i];
#ifdef ROWAN_SIM
        sim_log_node(turn.process->name);
#endif
        uint64_t wake_ns = WAKE_NEVER;
        busy |= turn.poller.poll(turn.poller.role, turn.now_ns, &wake_ns) == POLL_BUSY;
        if (wake_ns != WAKE_NEVER)
            round->wake_ns =
                earlier(round->wake_ns, has_own_clock(turn.process)
                                            ? sim_process_until_ns(turn.process, wake_ns)
                                            : wake_ns);
    }
#ifdef ROWAN_SIM
    sim_log_node(NULL);
#endif
    return busy;
}

/* --- between rounds --- */

static void tell_config(struct sim_cluster *cluster)
{
    const struct cluster_config *config = sim_cluster_config(cluster);
    if (!config || config->term == cluster->told_term)
        return;
    cluster->told_term = config->term;
    journal_note(cluster->options.journal, JOURNAL_CONFIG, cluster->cm_process.name,
                 "term %lu is in force, next client id %u", config->term, config->next_client_id);
}

static bool anybody_is_stopped(const struct sim_cluster *cluster)
{
    bool stopped = cluster->cm_process.stopped;
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        stopped |= cluster->servers[i].process.stopped;
    for (uint32_t i = 0; i < cluster->options.clients; i++)
        stopped |= cluster->clients[i].process.stopped;
    return stopped;
}

static void advance_clock(struct sim_cluster *cluster, uint64_t next_ns)
{
    uint64_t now_ns = cluster->clock.now_ns;
    next_ns = earlier(next_ns, sim_network_next_ns(cluster->network));
    next_ns = earlier(next_ns, sim_registry_next_ns(cluster->registry));
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        next_ns = earlier(next_ns, sim_pm_next_ns(cluster->servers[i].pm));
    if (next_ns == WAKE_NEVER || next_ns <= now_ns)
        next_ns = now_ns + IDLE_STEP_NS;
    /* Nobody said when those will go on: a jump to the next timeout would miss them. */
    if (cluster->until_ns == WAKE_NEVER && anybody_is_stopped(cluster))
        next_ns = earlier(next_ns, now_ns + IDLE_STEP_NS);
    if (cluster->until_ns > now_ns)
        next_ns = earlier(next_ns, cluster->until_ns);
    cluster->clock.now_ns = next_ns;
}

bool sim_cluster_step(struct sim_cluster *cluster)
{
    struct round round;
    uint64_t progress = sim_network_progress(cluster->network);
    gather(cluster, &round);
    bool busy = poll_all(cluster, &round);
    busy |= sim_network_progress(cluster->network) != progress;
    cluster->rounds++;
    if (busy) {
        tell_config(cluster);
        cluster->busy_rounds++;
        ASSERT(cluster->busy_rounds < MAX_BUSY_ROUNDS);
    } else {
        advance_clock(cluster, round.wake_ns);
        cluster->busy_rounds = 0;
    }
    return busy;
}

bool sim_cluster_run(struct sim_cluster *cluster, bool (*condition)(void *context), void *context,
                     uint64_t limit_ns)
{
    bool holds;
    cluster->until_ns = cluster->clock.now_ns + limit_ns;
    while (!(holds = condition(context)) && cluster->clock.now_ns < cluster->until_ns)
        sim_cluster_step(cluster);
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
