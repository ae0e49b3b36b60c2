#include "checks_stage.h"

#include "server/control/control_state.h"
#include "server/store/store_layout.h"
#include "server/worker/clients.h"
#include "test/lib/asserts.h"
#include "test/sim/sim_fault.h"

#define ANSWER_NS (120 * NS_PER_S)
#define QUIET_NS  NS_PER_S

const struct sim_cluster_options CHECKS_STAGE_SHAPE = {.shards = 6,
                                                       .clients = 3,
                                                       .block_limit = 1024,
                                                       .pm_bytes = 31 << 20,
                                                       .max_delay_ns = 200 * NS_PER_US,
                                                       .fence_ns = 100 * NS_PER_US,
                                                       .timeout_ns = 5 * NS_PER_S};

static const struct load_options LOAD = {.operations = 2000,
                                         .keys = 40,
                                         .hot_keys = 4,
                                         .depth = 8,
                                         .mean_pause_ns = 3 * NS_PER_MS,
                                         .max_value_bytes = 6000,
                                         .long_in = 20,
                                         .forged_in = 10,
                                         .gets = 20,
                                         .puts = 40,
                                         .put_ifs = 20,
                                         .deletes = 10};

void checks_stage_open_load(struct checks_stage *at, uint64_t seed, uint32_t segment_bytes,
                            const struct sim_cluster_options *shape,
                            const struct load_options *load)
{
    *at = (struct checks_stage){.hole_state = SEGMENT_USING};
    fabric_segment_bytes = segment_bytes;
    clients_keep_ns = 7 * NS_PER_S;
    at->hole = fabric_segment_bytes / 2;
    sim_fault_begin(NULL);
    random_init(&at->random, seed);
    struct sim_cluster_options options = *shape;
    options.seed = seed;
    at->journal = journal_create(NULL, NULL);
    options.journal = at->journal;
    at->cluster = sim_cluster_create(&options);
    history_init(&at->history);
    struct load_options filled = *load;
    filled.seed = seed;
    at->load = load_create(at->cluster, &filled, &at->history, &at->failure);
    at->next_fault_ns = at->cluster->clock.now_ns;
}

void checks_stage_open(struct checks_stage *at, uint64_t seed,
                       const struct sim_cluster_options *shape)
{
    checks_stage_open_load(at, seed, 64 << 10, shape ? shape : &CHECKS_STAGE_SHAPE, &LOAD);
    checks_stage_add_checks(at);
}

void checks_stage_add_checks(struct checks_stage *at)
{
    at->checks = checks_create(at->cluster, at->load, &at->failure);
    load_on_acknowledged(at->load, checks_acknowledged, at->checks);
    load_on_seen(at->load, checks_seen, at->checks);
}

void checks_stage_close(struct checks_stage *at)
{
    if (at->nemesis)
        nemesis_destroy(at->nemesis);
    if (at->checks)
        checks_destroy(at->checks);
    load_destroy(at->load);
    sim_cluster_destroy(at->cluster);
    history_fini(&at->history);
    journal_destroy(at->journal);
}

struct checks_stage stage;

int checks_stage_set_up(void **state)
{
    (void)state;
    checks_stage_open(&stage, 2, NULL);
    checks_stage_run(&stage, 0);
    return 0;
}

int checks_stage_tear_down(void **state)
{
    (void)state;
    checks_stage_close(&stage);
    return 0;
}

/* --- running --- */

static void crash(struct checks_stage *at)
{
    for (uint32_t i = 1; i <= at->cluster->options.servers; i++) {
        bool power = random_below(&at->random, 2) == 0;
        sim_cluster_kill_server(at->cluster, i, power ? &at->random : NULL);
        at->power_losses += power;
    }
    sim_cluster_crash(at->cluster);
    at->crashes++;
}

static void stop_or_go_on(struct checks_stage *at)
{
    struct sim_cluster *cluster = at->cluster;
    struct sim_process *process =
        &cluster->servers[random_below(&at->random, cluster->options.servers)].process;
    sim_cluster_stop(cluster, process, !process->stopped);
}

static void disturb(struct checks_stage *at, unsigned faults)
{
    struct sim_cluster *cluster = at->cluster;
    if (cluster->clock.now_ns < at->next_fault_ns)
        return;
    at->next_fault_ns = cluster->clock.now_ns + random_below(&at->random, 300 * NS_PER_MS);
    if (sim_cluster_is_down(cluster))
        sim_cluster_restart(cluster, false);
    else if ((faults & CHECKS_STAGE_STOPS) && random_below(&at->random, 2) == 0)
        stop_or_go_on(at);
    else if (random_below(&at->random, 4) == 0)
        crash(at);
    else
        sim_cluster_cut(cluster, &at->random);
}

bool checks_stage_step(struct checks_stage *at)
{
    struct sim_cluster *cluster = at->cluster;
    if (at->nemesis)
        nemesis_step(at->nemesis);
    load_step(at->load);
    uint64_t next_ns = load_next_ns(at->load);
    if (at->nemesis && nemesis_next_ns(at->nemesis) < next_ns)
        next_ns = nemesis_next_ns(at->nemesis);
    cluster->until_ns = next_ns > cluster->clock.now_ns ? next_ns : cluster->clock.now_ns + 1;
    sim_cluster_step(cluster);
    cluster->until_ns = WAKE_NEVER;
    if (at->checks)
        checks_step(at->checks);
    return at->failure.kind == FAILURE_NONE;
}

bool checks_stage_settle(struct checks_stage *at)
{
    const uint64_t end_ns = at->cluster->clock.now_ns + ANSWER_NS;
    while (load_outstanding(at->load) > 0) {
        assert_true(at->cluster->clock.now_ns < end_ns);
        if (!checks_stage_step(at))
            return false;
    }
    return true;
}

void checks_stage_run(struct checks_stage *at, unsigned faults)
{
    while (!load_is_over(at->load)) {
        if (faults)
            disturb(at, faults);
        if (!checks_stage_step(at))
            return;
    }
    for (uint32_t i = 0; i < at->cluster->options.servers; i++)
        sim_cluster_stop(at->cluster, &at->cluster->servers[i].process, false);
    if (sim_cluster_is_down(at->cluster))
        sim_cluster_restart(at->cluster, false);
    if (!checks_stage_settle(at))
        return;
    load_write_shards(at->load);
    if (!checks_stage_settle(at))
        return;
    checks_stage_run_for(at, QUIET_NS);
}

void checks_stage_rounds(struct checks_stage *at, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds && checks_stage_step(at); i++)
        continue;
}

void checks_stage_run_for(struct checks_stage *at, uint64_t ns)
{
    const struct sim_clock *clock = &at->cluster->clock;
    uint64_t end_ns = clock->now_ns + ns;
    while (clock->now_ns < end_ns && checks_stage_step(at))
        continue;
}

void checks_stage_expect(struct checks_stage *at, const char *checker)
{
    /* Without checkers, too: where nothing runs, every expectation may hold. */
    for (uint32_t i = 0; !checker && i < at->cluster->options.servers; i++) {
        const struct server *server = at->cluster->servers[i].server;
        if (server && server_error(server) && server_error(server) != ROWAN_EREMOVED)
            fail_msg("server %u has ended: %s", i + 1, server_why(server));
    }
    if (!checker && at->failure.kind)
        print_error("%s: %s\n", at->failure.checker, at->failure.why);
    assert_int_equal(at->failure.kind, checker ? FAILURE_CORRECTNESS : FAILURE_NONE);
    if (checker)
        assert_string_equal(at->failure.checker, checker);
}

void checks_stage_fence(struct checks_stage *at)
{
    struct sim_cluster *cluster = at->cluster;
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        pm_fence_start(&cluster->servers[i].pm->pm);
    cluster->clock.now_ns += cluster->options.fence_ns;
}

/* --- entries --- */

struct checks_stage_entry checks_stage_last_entry(const struct checks_stage *at)
{
    const struct checks *checks = at->checks;
    for (uint32_t i = checks->entry_count - 1; i > 0; i--) {
        const struct checks_entry *entry = &checks->entries[i];
        const struct checks_copy *copy = &checks->copies[entry->copies];
        if (entry->header.blocks != 1 || entry->header.type != ENTRY_PUT || !entry->copies ||
            copy->bytes != 128)
            continue;
        struct checks_stage_entry found = {.header = entry->header,
                                           .key = entry->key,
                                           .server = copy->server + 1,
                                           .offset = copy->offset,
                                           .bytes = copy->bytes};
        memcpy(found.block, pm_at(&checks->servers[copy->server].pm->pm, copy->offset),
               copy->bytes);
        return found;
    }
    fail_msg("there is no entry");
    return (struct checks_stage_entry){0};
}

struct checks_stage_entry checks_stage_new_entry(const struct checks_stage *at)
{
    struct checks_stage_entry entry = checks_stage_last_entry(at);
    entry.header.version += 1000;
    entry.header.client_id = 0;
    return entry;
}

uint64_t checks_stage_hole(const struct checks_stage *at, uint32_t number)
{
    const struct checks_server *server = &at->checks->servers[number - 1];
    uint64_t best = UINT64_MAX, highest = 0;
    for (uint64_t i = 0; i < server->segments; i++) {
        struct segment_meta meta = checks_segment_meta(server, i);
        if (meta.state == at->hole_state &&
            (meta.state == SEGMENT_FREE || meta.owner == OWNER_BACKUP_LOG) &&
            (best == UINT64_MAX || meta.allocation > highest)) {
            best = i;
            highest = meta.allocation;
        }
    }
    assert_true(best != UINT64_MAX);
    return server->segment_offset + best * STORE_SEGMENT_BYTES + at->hole;
}

void checks_stage_store(struct checks_stage *at, uint32_t server, struct checks_stage_entry *entry,
                        uint32_t from, uint32_t bytes)
{
    memcpy(entry->block + 8, &entry->header.version, sizeof entry->header.version);
    memcpy(entry->block + 24, &entry->header.client_id, sizeof entry->header.client_id);
    memcpy(entry->block + 28, &entry->header.operation, sizeof entry->header.operation);
    if (bytes > entry->bytes - from)
        bytes = entry->bytes - from;
    pm_store(&at->cluster->servers[server - 1].pm->pm, checks_stage_hole(at, server) + from,
             entry->block + from, bytes);
}

void checks_stage_store_whole(struct checks_stage *at, uint32_t server,
                              struct checks_stage_entry *entry)
{
    checks_stage_store(at, server, entry, 0, entry->bytes);
}

struct worker *checks_stage_worker(const struct checks_stage *at, uint32_t server)
{
    return server_poller(at->cluster->servers[server - 1].server, 1).role;
}
