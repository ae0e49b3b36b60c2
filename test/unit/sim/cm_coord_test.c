/* cm_coord_test.c - two CMs on one coordination service that loses replies, comes late, is parted from them and
 * ends their sessions, while they are killed and started and stand still, and servers and clients come and go.
 * Servers know the address of the first CM only; the rival has a client, and so raises terms when it leads.
 *
 * In every round: one chain of configurations (chain.h), and nobody is sent another (cm_peer.c). When the faults
 * end and all servers are started again, the cluster is in force and clients get ids. */
#include "cm/cm.h"
#include "cm_peer.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "test/lib/unit.h"

enum { SEEDS = 60, MANAGERS = 2, SERVERS = 3, CLIENTS = 2, PEERS = SERVERS + CLIENTS };

#define FAULTS_NS (20 * NS_PER_S)
#define LIMIT_NS  (20 * NS_PER_S)
#define BREAK_NS  (3 * NS_PER_S) /* longest: more than a session */

struct manager {
    const char *address;
    struct fabric *fabric;
    struct coord *coord;
    struct cm *cm; /* NULL: down */
    bool parted;
    bool stopped;      /* stands still */
    uint64_t again_ns; /* is started, joined, goes on */
};

struct run {
    struct random random;
    struct sim_clock clock;
    struct sim_network *network;
    struct sim_registry *registry;
    struct manager managers[MANAGERS];
    struct cm_peer peers[PEERS]; /* servers first */
    uint64_t again_ns[SERVERS];  /* when a server that is down is started */
    uint64_t starts;             /* of processes */
    uint64_t fault_ns;           /* when the next one comes; WAKE_NEVER: no more */
    struct chain chain;
    uint8_t ids_given[PEER_MAX_IDS / 8];
};

struct reached {
    uint64_t terms, cold_starts, ids, lost_effects, lost_writes, expired;
};

static uint64_t draw(struct run *run, uint64_t below)
{
    return random_below(&run->random, below);
}

/* Of a lost reply. */
static uint32_t draw_odds(struct run *run)
{
    static const uint32_t odds[] = {0, 2, 3, 5};
    return odds[draw(run, 4)];
}

/* --- processes --- */

static void on_failed(void *context, int error, const char *detail)
{
    (void)context;
    fail_msg("a CM stopped with %d: %s", error, detail);
}

/* As `main` does: a process that makes the first configuration draws the cluster's id and secret. */
static void start_manager(struct run *run, struct manager *manager)
{
    struct cm_options options = {.state = {.server_count = SERVERS,
                                           .replicas = 2,
                                           .shards = 6,
                                           .cluster = random_u64(&run->random) | 1},
                                 .incarnation = ++run->starts,
                                 .failed = on_failed};
    for (uint32_t i = 0; i < SERVERS; i++)
        options.state.servers[i] = i + 1;
    for (uint32_t i = 0; i < CLUSTER_SECRET_BYTES; i++)
        options.state.secret[i] = (uint8_t)random_u64(&run->random);
    assert_int_equal(sim_fabric_open(run->network, manager->address, &manager->fabric), 0);
    manager->coord = sim_coord_open(run->registry);
    options.fabric = manager->fabric;
    options.coord = manager->coord;
    assert_int_equal(cm_create(&options, &manager->cm), 0);
    manager->parted = manager->stopped = false;
}

static void kill_manager(struct manager *manager)
{
    cm_destroy(manager->cm);
    coord_close(manager->coord);
    fabric_close(manager->fabric);
    manager->cm = NULL;
}

static void start_server(struct run *run, uint32_t i)
{
    struct cm_peer *peer = &run->peers[i];
    peer->incarnation = 1000 + ++run->starts;
    run->chain.running[peer->server] = peer->incarnation;
    cm_peer_start(peer, run->network);
}

static void kill_server(struct run *run, uint32_t i, uint64_t again_ns)
{
    if (run->peers[i].endpoint)
        cm_peer_stop(&run->peers[i]);
    run->chain.running[i + 1] = 0;
    run->again_ns[i] = again_ns;
}

/* --- faults --- */

static void fault_manager(struct run *run, struct manager *manager)
{
    manager->again_ns = run->clock.now_ns + draw(run, BREAK_NS);
    switch (draw(run, 4)) {
    case 0:
        kill_manager(manager);
        break;
    case 1:
        sim_coord_part(manager->coord, true);
        manager->parted = true;
        break;
    case 2:
        manager->stopped = true;
        break;
    case 3:
        sim_coord_expire(manager->coord);
        break;
    }
}

static void repair_manager(struct run *run, struct manager *manager)
{
    manager->again_ns = WAKE_NEVER;
    if (!manager->cm)
        start_manager(run, manager);
    if (manager->parted)
        sim_coord_part(manager->coord, false);
    manager->parted = manager->stopped = false;
}

static void fault(struct run *run)
{
    uint64_t dice = draw(run, 100), now_ns = run->clock.now_ns;
    struct manager *manager = &run->managers[draw(run, MANAGERS)];
    uint32_t server = (uint32_t)draw(run, SERVERS);
    run->fault_ns = now_ns + draw(run, 400 * NS_PER_MS);
    if (dice < 50 && manager->again_ns == WAKE_NEVER) {
        fault_manager(run, manager);
    } else if (dice < 60) {
        sim_registry_lose_replies(run->registry, draw_odds(run));
    } else if (dice < 75) {
        for (uint32_t i = 0; i < SERVERS; i++)
            kill_server(run, i, now_ns + draw(run, 200 * NS_PER_MS));
    } else if (dice < 80) {
        kill_server(run, server, now_ns + draw(run, 200 * NS_PER_MS));
    } else if (dice < 90) {
        char address[32];
        snprintf(address, sizeof address, "sim:server-%u", server + 1);
        sim_network_break(run->network, address, run->managers[0].address);
    }
}

/* --- the loop --- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_ns(const struct run *run, uint64_t wake_ns)
{
    wake_ns = earlier(wake_ns, sim_network_next_ns(run->network));
    wake_ns = earlier(wake_ns, sim_registry_next_ns(run->registry));
    wake_ns = earlier(wake_ns, run->fault_ns);
    for (uint32_t i = 0; i < MANAGERS; i++)
        wake_ns = earlier(wake_ns, run->managers[i].again_ns);
    for (uint32_t i = 0; i < SERVERS; i++) {
        if (!run->peers[i].endpoint)
            wake_ns = earlier(wake_ns, run->again_ns[i]);
    }
    return wake_ns > run->clock.now_ns ? wake_ns : run->clock.now_ns + NS_PER_MS;
}

static void step(struct run *run)
{
    struct poller pollers[MANAGERS + PEERS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < MANAGERS; i++) {
        if (run->managers[i].again_ns <= run->clock.now_ns)
            repair_manager(run, &run->managers[i]);
    }
    if (run->fault_ns <= run->clock.now_ns)
        fault(run);
    for (uint32_t i = 0; i < SERVERS; i++) {
        if (!run->peers[i].endpoint && run->again_ns[i] <= run->clock.now_ns)
            start_server(run, i);
    }
    for (uint32_t i = 0; i < MANAGERS; i++) {
        if (run->managers[i].cm && !run->managers[i].stopped)
            pollers[count++] = (struct poller){"cm", cm_poll, run->managers[i].cm};
    }
    for (uint32_t i = 0; i < PEERS; i++) {
        if (run->peers[i].endpoint)
            pollers[count++] = (struct poller){"peer", cm_peer_poll, &run->peers[i]};
    }
    uint64_t wake_ns = WAKE_NEVER, progress = sim_network_progress(run->network);
    bool busy = false;
    for (; count > 0; count--) {
        uint64_t at = draw(run, count);
        struct poller poller = pollers[at];
        pollers[at] = pollers[count - 1];
        busy |= poller.poll(poller.role, run->clock.now_ns, &wake_ns) == POLL_BUSY;
        chain_look(&run->chain, run->registry);
    }
    if (!busy && sim_network_progress(run->network) == progress)
        run->clock.now_ns = next_ns(run, wake_ns);
}

static bool serves(const struct run *run, uint64_t ids)
{
    const struct cluster_config *last = chain_last(&run->chain);
    if (!last || run->managers[0].stopped || !run->managers[0].cm)
        return false;
    for (uint32_t i = 0; i < SERVERS; i++) {
        if (run->peers[i].term != last->term)
            return false;
    }
    return run->peers[SERVERS].term == last->term && run->peers[SERVERS].ids > ids;
}

static void run_until(struct run *run, bool (*holds)(const struct run *run, uint64_t),
                      uint64_t than)
{
    for (uint64_t end_ns = run->clock.now_ns + LIMIT_NS; !holds(run, than); step(run))
        assert_true(run->clock.now_ns < end_ns);
}

static bool is_told(const struct run *run, uint64_t term)
{
    return run->chain.version > term && run->peers[SERVERS].term == run->chain.version;
}

/* The rival leads, its client's id costs a term; a CM that only follows tells its own client of that. */
static void follow(struct run *run)
{
    uint64_t term = run->chain.version;
    for (uint32_t i = 0; i < MANAGERS; i++) {
        if (run->managers[i].cm)
            kill_manager(&run->managers[i]);
        run->managers[i].again_ns = WAKE_NEVER;
    }
    start_manager(run, &run->managers[1]);
    for (uint64_t end_ns = run->clock.now_ns + NS_PER_S / 2; run->clock.now_ns < end_ns;)
        step(run);
    start_manager(run, &run->managers[0]);
    /* Servers do not know the rival: it gives no first id of all (cm/state.c, S9). */
    if (term > 0 && !cluster_is_unwritten(chain_last(&run->chain)))
        run_until(run, is_told, term);
}

/* The rival goes, and the operator starts all servers again. */
static void heal(struct run *run)
{
    kill_manager(&run->managers[1]);
    for (uint32_t i = 0; i < SERVERS; i++)
        kill_server(run, i, run->clock.now_ns);
}

/* --- a seed --- */

/* Half of the runs have short ways only. */
static uint64_t draw_delay(struct run *run, uint64_t max_ns)
{
    bool is_long = draw(run, 2);
    return NS_PER_MS + (is_long ? draw(run, max_ns) : 0);
}

static void create(struct run *run, uint64_t seed)
{
    memset(run, 0, sizeof *run);
    random_init(&run->random, seed);
    sim_clock_init(&run->clock);
    struct sim_network_options network = {.clock = &run->clock, .seed = seed};
    network.max_delay_ns = draw_delay(run, 5 * NS_PER_MS);
    run->network = sim_network_create(&network);
    struct sim_registry_options registry = {
        .clock = &run->clock, .seed = seed, .session_ns = NS_PER_S};
    registry.max_delay_ns = draw_delay(run, 100 * NS_PER_MS);
    registry.lost_reply = draw_odds(run);
    run->registry = sim_registry_create(&registry);
    static const char *const addresses[MANAGERS] = {"sim:cm", "sim:rival"};
    for (uint32_t i = 0; i < MANAGERS; i++) {
        run->managers[i] = (struct manager){.address = addresses[i], .again_ns = WAKE_NEVER};
        start_manager(run, &run->managers[i]);
    }
    for (uint32_t i = 0; i < PEERS; i++) {
        bool is_server = i < SERVERS;
        run->peers[i] = (struct cm_peer){.cm = addresses[is_server ? 0 : i - SERVERS],
                                         .chain = &run->chain,
                                         .server = is_server ? i + 1 : 0,
                                         .ids_given = run->ids_given};
        if (is_server)
            start_server(run, i);
        else
            cm_peer_start(&run->peers[i], run->network);
    }
}

static void destroy(struct run *run)
{
    for (uint32_t i = 0; i < PEERS; i++) {
        if (run->peers[i].endpoint)
            cm_peer_stop(&run->peers[i]);
    }
    for (uint32_t i = 0; i < MANAGERS; i++) {
        if (run->managers[i].cm)
            kill_manager(&run->managers[i]);
    }
    sim_registry_destroy(run->registry);
    sim_network_destroy(run->network);
    chain_clear(&run->chain);
}

static void run_seed(uint64_t seed, struct reached *reached)
{
    static struct run run;
    print_message("# seed %lu\n", seed);
    create(&run, seed);
    for (uint64_t end_ns = run.clock.now_ns + FAULTS_NS; run.clock.now_ns < end_ns;)
        step(&run);
    run.fault_ns = WAKE_NEVER;
    sim_registry_lose_replies(run.registry, 0);
    follow(&run);
    heal(&run);
    run_until(&run, serves, run.peers[SERVERS].ids);
    struct sim_registry_counts counts = sim_registry_counts(run.registry);
    assert_int_equal(counts.writes, run.chain.version);
    reached->terms += run.chain.version;
    reached->cold_starts += run.chain.cold_starts;
    reached->lost_effects += counts.lost_effects;
    reached->lost_writes += counts.lost_writes;
    reached->expired += counts.expired;
    for (uint32_t i = SERVERS; i < PEERS; i++)
        reached->ids += run.peers[i].ids;
    destroy(&run);
}

/* SIM_SEEDS=FROM:TO in the environment chooses the seeds. */
TEST(one_chain_of_configurations_whatever_the_service_does)
{
    struct reached reached = {0};
    uint64_t from = 1, to = SEEDS;
    const char *seeds = getenv("SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%lu:%lu", &from, &to), 2);
    for (uint64_t seed = from; seed <= to; seed++)
        run_seed(seed, &reached);
    uint64_t count = to - from + 1;
    print_message(
        "# %lu terms, %lu cold starts, %lu client ids; %lu replies lost to writes that won, %lu "
        "writes lost, %lu sessions ended\n",
        reached.terms, reached.cold_starts, reached.ids, reached.lost_effects, reached.lost_writes,
        reached.expired);
    if (!seeds) /* the seeds did reach something */
        assert_true(reached.cold_starts > 3 * count && reached.lost_effects > count &&
                    reached.lost_writes > count && reached.expired > 3 * count &&
                    reached.ids > 100 * count);
}

int main(void)
{
    if (!getenv("SIM_LOG"))
        log_set_level(LOG_ERROR);
    return unit_run(NULL, NULL);
}
