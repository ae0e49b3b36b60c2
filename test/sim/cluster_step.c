/* The loop: whose turn it is, and what the clock shows.
 *
 * When a whole round was idle and nothing moved in the network, the clock jumps: to the earliest time that a role
 * asked for, that something arrives, that a fence is done, that the coordination service answers, or that a slow
 * process has its turn. A round in which somebody was busy takes no time.
 */
#include "test/sim/cluster.h"

#include "common/base/assert.h"
#include "common/base/error.h"
#include "server/clean/clean.h"
#include "server/control/control_state.h"
#include "server/digest/digest_state.h"
#include "test/sim/journal.h"
#ifdef ROWAN_SIM
#include "test/sim/sim_log.h"
#endif

#define IDLE_STEP_NS NS_PER_MS

/* Who would have looked by himself until then was not forgotten: roles try again after 100 ms. */
#define OVERSLEPT_NS (110 * NS_PER_MS)

enum {
    MAX_POLLERS =
        4 + SIM_MAX_CLIENTS + SIM_MAX_SERVERS * (1 + CLUSTER_MAX_WORKERS + SERVER_MAX_DIGESTS),
    MAX_REACTORS = 4 + SIM_MAX_CLIENTS + SIM_MAX_SERVERS * SIM_MAX_REACTORS,
    MAX_BUSY_ROUNDS = 1000000, /* a busy loop that never lets the clock move is a defect */
};

struct turn {
    struct reactor *reactor;
    struct sim_role *role;
    const struct sim_process *process;
    struct sim_server *server; /* NULL: not a server's */
    uint64_t now_ns;           /* by the process's clock */
};

struct round {
    struct turn turns[MAX_POLLERS];
    uint32_t count;
    struct reactor *reactors[MAX_REACTORS]; /* of processes that have a turn, awake or not */
    uint32_t reactor_count;
    uint64_t wake_ns; /* the earliest time that anybody asked for */
};

/* --- clocks --- */

enum { MILLION = 1000000 };

/* Rounded down, without an overflow in between: process time is floor(passed * rate / MILLION), behind what it showed then. */
uint64_t sim_process_now_ns(const struct sim_process *process, uint64_t now_ns)
{
    const uint64_t rate = (uint64_t)(MILLION + process->rate_ppm),
                   passed = now_ns > process->since_ns ? now_ns - process->since_ns : 0;
    return process->ahead_ns + passed / MILLION * rate + passed % MILLION * rate / MILLION;
}

uint64_t sim_process_until_ns(const struct sim_process *process, uint64_t at_ns)
{
    uint64_t rate = (uint64_t)(MILLION + process->rate_ppm);
    if (at_ns > WAKE_NEVER / 4)
        return WAKE_NEVER;
    at_ns = at_ns > process->ahead_ns ? at_ns - process->ahead_ns : 0;
    return process->since_ns + at_ns / rate * MILLION + (at_ns % rate * MILLION + rate - 1) / rate;
}

/* As time is told now, some roles should have been polled: they are, as nobody wakes them. */
static void wake_all(struct sim_cluster *cluster, uint32_t process)
{
    const uint32_t servers = cluster->options.servers;
    for (uint32_t i = 0; process < servers && i < SIM_MAX_REACTORS; i++)
        cluster->servers[process].reactors[i].woken = true;
    if (process >= servers && process - servers < cluster->options.clients)
        cluster->clients[process - servers].reactor.woken = true;
}

void sim_cluster_set_clock(struct sim_cluster *cluster, uint32_t number, int32_t rate_ppm,
                           uint64_t jump_ns)
{
    struct sim_process *process = sim_cluster_process(cluster, number);
    const uint64_t now_ns = cluster->clock.now_ns;
    process->ahead_ns = sim_process_now_ns(process, now_ns) + jump_ns;
    process->since_ns = now_ns;
    process->rate_ppm = rate_ppm;
    process->jumped_ns += jump_ns;
    if (jump_ns > 0)
        wake_all(cluster, number);
}

/* Divisions are saved where it shows the simulation's time. */
static bool has_own_clock(const struct sim_process *process)
{
    return process->rate_ppm != 0 || process->ahead_ns != process->since_ns;
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
                     const struct sim_process *process, struct sim_server *server,
                     struct reactor *reactor, struct sim_role *role)
{
    ASSERT(round->count < MAX_POLLERS);
    uint64_t now_ns = cluster->clock.now_ns;
    if (process->reads_early && process->resumed_round == cluster->rounds + 1)
        now_ns = process->stopped_ns;
    role->turn = false;
    round->turns[round->count++] = (struct turn){
        .reactor = reactor,
        .role = role,
        .process = process,
        .server = server,
        .now_ns = has_own_clock(process) ? sim_process_now_ns(process, now_ns) : now_ns,
    };
}

/* Of this server, which may be NULL, some roles are late; they keep their turns for later then. */
static bool role_is_late(const struct sim_cluster *cluster, struct sim_server *server,
                         const struct sim_role *role, struct round *round)
{
    struct sim_late_role *at = NULL;
    for (uint32_t i = 0; server && i < server_roles(server->server); i++) {
        if (server->late[i].every_ns && server_poller(server->server, i).role == role->poller.role)
            at = &server->late[i];
    }
    if (!at)
        return false;
    bool late = cluster->clock.now_ns < at->due_ns;
    if (!late)
        at->due_ns = cluster->clock.now_ns + at->every_ns;
    round->wake_ns = earlier(round->wake_ns, at->due_ns);
    return late;
}

/* `server`: whose it is; NULL: not a server's. */
static void add_reactor(struct sim_cluster *cluster, struct round *round,
                        const struct sim_process *process, struct sim_server *server,
                        struct reactor *reactor)
{
    const struct sim_cluster_options *options = &cluster->options;
    ASSERT(round->reactor_count < MAX_REACTORS);
    round->reactors[round->reactor_count++] = reactor;
    const bool awake = !options->reactors || sim_reactor_is_awake(reactor, cluster->clock.now_ns);
    const bool for_nothing =
        !awake && options->idle_wakes && random_below(&cluster->random, options->idle_wakes) == 0;
    if (awake || for_nothing)
        sim_reactor_begin(reactor, for_nothing);
    for (uint32_t i = 0; i < reactor->role_count; i++) {
        struct sim_role *role = &reactor->roles[i];
        if (role->turn && !role_is_late(cluster, server, role, round))
            add_turn(cluster, round, process, server, reactor, role);
    }
}

static void add_server(struct sim_cluster *cluster, struct sim_server *server, struct round *round)
{
    if (!server->server || !has_turn(cluster, &server->process, round))
        return;
    /* As pm_open's `reactor`. */
    if (server->fences != sim_pm_done(server->pm)) {
        server->fences = sim_pm_done(server->pm);
        reactor_wake(&server->reactors[0]);
    }
    for (uint32_t i = 0; i < SIM_MAX_REACTORS && server->reactors[i].role_count > 0; i++)
        add_reactor(cluster, round, &server->process, server, &server->reactors[i]);
}

static void gather(struct sim_cluster *cluster, struct round *round)
{
    round->count = round->reactor_count = 0;
    round->wake_ns = WAKE_NEVER;
    if (cluster->cm && has_turn(cluster, &cluster->cm_process, round))
        add_reactor(cluster, round, &cluster->cm_process, NULL, &cluster->cm_reactor);
    if (cluster->rival.cm) {
        struct sim_rival *rival = &cluster->rival;
        if (has_turn(cluster, &rival->process, round))
            add_reactor(cluster, round, &rival->process, NULL, &rival->reactor);
        add_reactor(cluster, round, &rival->guest.process, NULL, &rival->guest.reactor);
    }
    if (cluster->third.cm)
        add_reactor(cluster, round, &cluster->third.process, NULL, &cluster->third.reactor);
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        add_server(cluster, &cluster->servers[i], round);
    for (uint32_t i = 0; i < cluster->options.clients; i++) {
        struct sim_client *client = &cluster->clients[i];
        if (has_turn(cluster, &client->process, round))
            add_reactor(cluster, round, &client->process, NULL, &client->reactor);
    }
}

/* Nobody wakes a digest role for what lands in the open segment, and then it may sleep as long as it likes. */
static bool may_sleep(const struct turn *turn)
{
    const struct sim_role *role = turn->role;
    if (role->poller.poll == clean_poll) {
        /* The control role, which is awake, tells it how much space there is. */
        const struct control *control = server_poller(turn->server->server, 0).role;
        const struct store *store = control->common->store;
        return store && control->free != store_segments_free(store);
    }
    if (role->poller.poll != digest_poll)
        return false;
    const struct digest *digest = role->poller.role;
    const struct ring *notes = &digest->role.inbox.ring;
    return atomic_load(&notes->head) == atomic_load(&notes->tail) && !digest->stuck &&
           !digest->missing.first &&
           !(digest->current &&
             atomic_load_explicit(&digest->current->sealed, memory_order_relaxed));
}

/* Does it sleep now, and for long? */
static bool sleeps(const struct sim_cluster *cluster, const struct turn *turn)
{
    const uint64_t now_ns = cluster->clock.now_ns;
    return turn->role->for_nothing && turn->role->wake_ns > now_ns + OVERSLEPT_NS &&
           !sim_reactor_is_awake(turn->reactor, now_ns) && !may_sleep(turn);
}

#define HEAT_NS (4 * NS_PER_S)

/* What a poll takes of the time that it says; the simulation's stands still meanwhile. */
static void heat(const struct sim_cluster *cluster, const struct turn *turn)
{
    if (!turn->role->poller.busy_ns || cluster->options.heat_us == 0)
        return;
    struct random random;
    random_init(&random, cluster->clock.now_ns / HEAT_NS * SIM_MAX_SERVERS +
                             (uint64_t)(turn->server - cluster->servers));
    atomic_fetch_add_explicit(turn->role->poller.busy_ns,
                              (1 + random_below(&random, 8)) * cluster->options.heat_us * NS_PER_US,
                              memory_order_relaxed);
}

static enum poll_result poll_turn(struct sim_cluster *cluster, const struct turn *turn,
                                  uint64_t *wake_ns)
{
    const bool slept = sleeps(cluster, turn);
    const uint64_t until_ns = turn->role->wake_ns;
    const enum poll_result result =
        sim_reactor_poll(turn->reactor, turn->role, turn->now_ns, wake_ns);
    if (result == POLL_BUSY)
        heat(cluster, turn);
    if (slept && result == POLL_BUSY && !cluster->sleeper.role)
        cluster->sleeper = (struct sim_sleeper){
            .process = turn->process->name,
            .role = turn->role->poller.name,
            .late_ns = until_ns == WAKE_NEVER ? WAKE_NEVER : until_ns - cluster->clock.now_ns};
    return result;
}

/* Polls all that have a turn, in an order that the seed draws: who comes next is drawn from those that are left. */
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
        uint64_t wake_ns;
        busy |= poll_turn(cluster, &turn, &wake_ns) == POLL_BUSY;
        if (has_own_clock(turn.process) && wake_ns != WAKE_NEVER)
            wake_ns = sim_process_until_ns(turn.process, wake_ns);
        turn.role->wake_ns = wake_ns;
    }
#ifdef ROWAN_SIM
    sim_log_node(NULL);
#endif
    return busy;
}

/* When somebody's time has come who had no turn in this round or was idle. True: at once, for he was woken. */
static bool look_ahead(const struct sim_cluster *cluster, struct round *round)
{
    bool woken = false;
    for (uint32_t i = 0; i < round->reactor_count; i++) {
        round->wake_ns = earlier(round->wake_ns, sim_reactor_wake_ns(round->reactors[i]));
        woken |= cluster->options.reactors && round->reactors[i]->woken;
    }
    return woken;
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
    busy |= look_ahead(cluster, &round);
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
