#include "checks_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/control/control_state.h"
#include "server/store/store_layout.h"
#include "server/worker/clients.h"
#include "test/sim/sim_fault.h"

#define ANSWER_NS (60 * NS_PER_S)
#define QUIET_NS  NS_PER_S

const struct sim_cluster_options CHECKS_STAGE_SHAPE = {.shards = 6,
                                                       .clients = 3,
                                                       .block_limit = 1024,
                                                       .pm_bytes = 24 << 20,
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

void checks_stage_open(struct checks_stage *stage, uint64_t seed,
                       const struct sim_cluster_options *shape)
{
    *stage = (struct checks_stage){.hole_state = SEGMENT_USING};
    fabric_segment_bytes = 64 << 10;
    clients_keep_ns = 7 * NS_PER_S;
    stage->hole = fabric_segment_bytes / 2;
    sim_fault_begin(NULL);
    random_init(&stage->random, seed);
    struct sim_cluster_options options = shape ? *shape : CHECKS_STAGE_SHAPE;
    options.seed = seed;
    stage->journal = journal_create(NULL, NULL);
    options.journal = stage->journal;
    stage->cluster = sim_cluster_create(&options);
    history_init(&stage->history);
    struct load_options load = LOAD;
    load.seed = seed;
    stage->load = load_create(stage->cluster, &load, &stage->history, &stage->failure);
    stage->checks = checks_create(stage->cluster, stage->load, &stage->failure);
    load_on_acknowledged(stage->load, checks_acknowledged, stage->checks);
    load_on_seen(stage->load, checks_seen, stage->checks);
    stage->next_fault_ns = stage->cluster->clock.now_ns;
}

void checks_stage_close(struct checks_stage *stage)
{
    checks_destroy(stage->checks);
    load_destroy(stage->load);
    sim_cluster_destroy(stage->cluster);
    history_fini(&stage->history);
    journal_destroy(stage->journal);
}

/* --- running --- */

static void crash(struct checks_stage *stage)
{
    for (uint32_t i = 1; i <= stage->cluster->options.servers; i++) {
        bool power = random_below(&stage->random, 2) == 0;
        sim_cluster_kill_server(stage->cluster, i, power ? &stage->random : NULL);
        stage->power_losses += power;
    }
    sim_cluster_crash(stage->cluster);
    stage->crashes++;
}

static void stop_or_go_on(struct checks_stage *stage)
{
    struct sim_cluster *cluster = stage->cluster;
    struct sim_process *process =
        &cluster->servers[random_below(&stage->random, cluster->options.servers)].process;
    sim_cluster_stop(cluster, process, !process->stopped);
}

static void disturb(struct checks_stage *stage, unsigned faults)
{
    struct sim_cluster *cluster = stage->cluster;
    if (cluster->clock.now_ns < stage->next_fault_ns)
        return;
    stage->next_fault_ns = cluster->clock.now_ns + random_below(&stage->random, 300 * NS_PER_MS);
    if (sim_cluster_is_down(cluster))
        sim_cluster_restart(cluster, false);
    else if ((faults & CHECKS_STAGE_STOPS) && random_below(&stage->random, 2) == 0)
        stop_or_go_on(stage);
    else if (random_below(&stage->random, 4) == 0)
        crash(stage);
    else
        sim_cluster_cut(cluster, &stage->random);
}

static bool step(struct checks_stage *stage)
{
    struct sim_cluster *cluster = stage->cluster;
    load_step(stage->load);
    uint64_t next_ns = load_next_ns(stage->load);
    cluster->until_ns = next_ns > cluster->clock.now_ns ? next_ns : cluster->clock.now_ns + 1;
    sim_cluster_step(cluster);
    cluster->until_ns = WAKE_NEVER;
    checks_step(stage->checks);
    return stage->failure.kind == FAILURE_NONE;
}

/* False: something failed. */
static bool await_answers(struct checks_stage *stage)
{
    const uint64_t end_ns = stage->cluster->clock.now_ns + ANSWER_NS;
    while (load_outstanding(stage->load) > 0) {
        assert_true(stage->cluster->clock.now_ns < end_ns);
        if (!step(stage))
            return false;
    }
    return true;
}

void checks_stage_run(struct checks_stage *stage, unsigned faults)
{
    const struct sim_clock *clock = &stage->cluster->clock;
    while (!load_is_over(stage->load)) {
        if (faults)
            disturb(stage, faults);
        if (!step(stage))
            return;
    }
    for (uint32_t i = 0; i < stage->cluster->options.servers; i++)
        sim_cluster_stop(stage->cluster, &stage->cluster->servers[i].process, false);
    if (sim_cluster_is_down(stage->cluster))
        sim_cluster_restart(stage->cluster, false);
    if (!await_answers(stage))
        return;
    load_write_shards(stage->load);
    if (!await_answers(stage))
        return;
    uint64_t end_ns = clock->now_ns + QUIET_NS;
    while (clock->now_ns < end_ns && step(stage))
        continue;
}

void checks_stage_rounds(struct checks_stage *stage, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds && step(stage); i++)
        continue;
}

void checks_stage_expect(struct checks_stage *stage, const char *checker)
{
    if (!checker && stage->failure.kind)
        print_error("%s: %s\n", stage->failure.checker, stage->failure.why);
    assert_int_equal(stage->failure.kind, checker ? FAILURE_CORRECTNESS : FAILURE_NONE);
    if (checker)
        assert_string_equal(stage->failure.checker, checker);
}

void checks_stage_fence(struct checks_stage *stage)
{
    struct sim_cluster *cluster = stage->cluster;
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        pm_fence_start(&cluster->servers[i].pm->pm);
    cluster->clock.now_ns += cluster->options.fence_ns;
}

/* --- entries --- */

struct checks_stage_entry checks_stage_last_entry(const struct checks_stage *stage)
{
    const struct checks *checks = stage->checks;
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

uint64_t checks_stage_hole(const struct checks_stage *stage, uint32_t number)
{
    const struct checks_server *server = &stage->checks->servers[number - 1];
    const uint64_t *words = pm_at(&server->pm->pm, META_OFFSET);
    uint64_t best = UINT64_MAX;
    for (uint64_t i = 0; i < server->segments; i++) {
        if ((words[i] & 0xff) == stage->hole_state &&
            (stage->hole_state == SEGMENT_FREE || (words[i] >> 8 & 0xff) == OWNER_BACKUP_LOG) &&
            (best == UINT64_MAX || words[i] >> 24 > words[best] >> 24))
            best = i;
    }
    assert_true(best != UINT64_MAX);
    return server->segment_offset + best * STORE_SEGMENT_BYTES + stage->hole;
}

void checks_stage_store(struct checks_stage *stage, uint32_t server,
                        struct checks_stage_entry *entry, uint32_t from, uint32_t bytes)
{
    memcpy(entry->block + 8, &entry->header.version, sizeof entry->header.version);
    memcpy(entry->block + 24, &entry->header.client_id, sizeof entry->header.client_id);
    memcpy(entry->block + 28, &entry->header.operation, sizeof entry->header.operation);
    if (bytes > entry->bytes - from)
        bytes = entry->bytes - from;
    pm_store(&stage->cluster->servers[server - 1].pm->pm, checks_stage_hole(stage, server) + from,
             entry->block + from, bytes);
}

void checks_stage_turn_back(struct checks_stage *stage)
{
    struct checks *checks = stage->checks;
    for (uint32_t i = 1; i < checks->entry_count; i++) {
        const struct checks_entry *entry = &checks->entries[i];
        const struct checks_copy *copy = &checks->copies[entry->copies];
        if (!entry->copies || entry->key == JOURNAL_NO_KEY || entry->header.blocks != 1)
            continue;
        const struct checks_key *key = &checks->keys[entry->key];
        const struct control *control = checks_control(checks, copy->server);
        struct shard_state *shard = control->shards[control->config->shard_of_slot[key->slot]];
        uint64_t previous, at = index_find(shard->index, key->hash, key->bytes, key->count);
        if (shard->primary || !at ||
            entry_version(pm_at(control->common->pm, at)) <= entry->header.version)
            continue;
        assert_int_equal(index_update(shard->index, key->hash, key->bytes, key->count,
                                      entry->header.version, copy->offset, &previous),
                         INDEX_REPLACED);
        return;
    }
    fail_msg("no key has an older entry");
}

struct worker *checks_stage_worker(const struct checks_stage *stage, uint32_t server)
{
    return server_poller(stage->cluster->servers[server - 1].server, 1).role;
}
