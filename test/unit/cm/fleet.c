/* fleet.c - see fleet.h. Clocks differ by up to 2^-10 from the true rate. */
#include "test/unit/cm/fleet.h"

#include "common/base/clock.h"
#include "test/lib/asserts.h"

#define LEASE_NS (FLEET_LEASE_MS * NS_PER_MS)

static bool chance(struct fleet *fleet, uint64_t percent)
{
    return random_below(fleet->random, 100) < percent;
}

/* 0 to 2: slow, right, fast. */
static uint64_t stretch(uint64_t ns, uint32_t which)
{
    return which % 3 == 0 ? ns - ns / 1024 : which % 3 == 1 ? ns : ns + ns / 1024;
}

static uint64_t clock_of(const struct fleet *fleet, uint32_t manager)
{
    return manager * NS_PER_S + stretch(fleet->true_ns, manager);
}

void fleet_init(struct fleet *fleet, struct random *random, struct world_store *store,
                struct world *const *managers, const uint64_t *running)
{
    fleet->random = random;
    fleet->store = store;
    fleet->managers = managers;
    fleet->running = running;
    fleet->true_ns = NS_PER_S;
}

void fleet_manager(struct fleet *fleet, uint32_t manager)
{
    memset(fleet->renewals[manager], 0, sizeof fleet->renewals[manager]);
    fleet->managers[manager]->now_ns = clock_of(fleet, manager);
}

static const struct cluster_config *stored(const struct fleet *fleet, uint64_t term)
{
    for (uint64_t i = fleet->store->version; i >= 1; i--) {
        if (fleet->store->history[i]->term == term)
            return fleet->store->history[i];
    }
    fail_msg("nobody stored term %llu", (unsigned long long)term);
    return NULL;
}

static bool names(const struct cluster_config *config, const struct fleet_process *process)
{
    const struct member *member = config ? cluster_member(config, process->server) : NULL;
    return member && member->incarnation == process->incarnation && !member->kept;
}

/* NULL: it was never sent a configuration. */
static struct fleet_process *find(struct fleet *fleet, uint32_t server)
{
    for (uint32_t i = 0; i < fleet->process_count; i++) {
        if (fleet->processes[i].incarnation == fleet->running[server] &&
            fleet->processes[i].server == server)
            return &fleet->processes[i];
    }
    return NULL;
}

static struct fleet_process *find_or_add(struct fleet *fleet, uint32_t server)
{
    struct fleet_process *found = find(fleet, server);
    if (found)
        return found;
    assert_true(fleet->process_count < FLEET_PROCESSES);
    found = &fleet->processes[fleet->process_count++];
    *found = (struct fleet_process){.server = server, .incarnation = fleet->running[server]};
    return found;
}

/* --- the checks --- */

static bool was_named(const struct fleet *fleet, const struct cluster_config *up_to,
                      const struct fleet_process *process)
{
    for (uint64_t i = 1; i <= fleet->store->version; i++) {
        if (fleet->store->history[i]->term < up_to->term &&
            names(fleet->store->history[i], process))
            return true;
    }
    return false;
}

static void check_committed(const struct fleet *fleet, const struct cluster_config *config)
{
    for (uint32_t i = 0; i < fleet->process_count; i++) {
        const struct fleet_process *process = &fleet->processes[i];
        if (process->lease_end_ns <= fleet->true_ns || names(config, process) ||
            !was_named(fleet, config, process))
            continue;
        fail_msg("term %llu is committed, and server %u, which is removed, has a lease for %llu us",
                 (unsigned long long)config->term, process->server,
                 (unsigned long long)(process->lease_end_ns - fleet->true_ns) / 1000);
    }
}

static bool leads(const struct cluster_config *config, const struct fleet_process *process,
                  uint16_t shard)
{
    const struct shard *row = cluster_shard(config, shard);
    return names(config, process) && row && row->primary == process->server;
}

static void check_serving(struct fleet *fleet)
{
    uint32_t serving[SLOT_COUNT] = {0};
    for (uint32_t i = 0; i < fleet->process_count; i++) {
        const struct fleet_process *process = &fleet->processes[i];
        if (process->lease_end_ns <= fleet->true_ns || !process->committed)
            continue;
        for (uint32_t j = 0; j < process->committed->served_count; j++) {
            const struct shard *row = &process->committed->shards[j];
            if (!leads(process->committed, process, row->id) ||
                !leads(process->adopted, process, row->id))
                continue;
            uint32_t *first = &serving[row->first_slot], *last = &serving[row->last_slot];
            if (*first || *last) /* shards that split one have one of its ends */
                fail_msg("servers %u and %u serve shard %u", *first, process->server, row->id);
            *first = *last = process->server;
            fleet->served++;
        }
    }
}

/* --- what a server does --- */

static void renew(struct fleet *fleet, uint32_t manager, struct fleet_process *process)
{
    const struct world *world = fleet->managers[manager];
    struct fleet_renewal *renewal = &fleet->renewals[manager][process->server];
    /* It may go on with the manager that it answered last, but never turn back. */
    const struct cluster_config *with = process->known;
    if (process->answered && chance(fleet, 30))
        with = stored(fleet, process->answered);
    if (with->manager != world->manager || with->term < process->answered)
        return;
    process->answered = with->term;
    renewal->under_way = true;
    renewal->delivered = false;
    renewal->incarnation = process->incarnation;
    renewal->tag = 5000 + ++fleet->tag;
    renewal->sent_ns = fleet->true_ns;
    renewal->says = (struct world_renewal){
        .term = with->term, .manager = renewal->heard_manager, .manager_ns = renewal->heard_ns};
    if (chance(fleet, 2))
        process->cut_off =
            chance(fleet, 30) ? 1 + (uint32_t)random_below(fleet->random, FLEET_SERVERS) : 0;
    if (process->cut_off && !fleet->healed)
        renewal->says.cut[renewal->says.cut_count++] = process->cut_off;
}

static void adopt(struct fleet *fleet, uint32_t manager, struct fleet_process *process)
{
    if (process->known->manager != fleet->managers[manager]->manager)
        return;
    process->adopted = process->known;
    process->answered = process->known->term;
    world_adopt(fleet->managers[manager], process->server, process->adopted->term);
}

static bool has_adopted(struct fleet *fleet, uint32_t server, uint16_t shard, uint32_t epoch)
{
    const struct fleet_process *process = find(fleet, server);
    return process && process->adopted && names(process->adopted, process) &&
           cluster_shard(process->adopted, shard) &&
           cluster_shard(process->adopted, shard)->epoch == epoch;
}

/* Of one shard that it leads. Now and then what it said once comes late, or a server says what it does not know. */
static void fill(struct fleet *fleet, uint32_t manager, const struct fleet_process *process)
{
    const struct cluster_config *config = process->committed;
    if (!config)
        return;
    const uint32_t split = config->shard_count - config->served_count,
                   at = split && chance(fleet, 50)
                            ? config->served_count + (uint32_t)random_below(fleet->random, split)
                            : (uint32_t)random_below(fleet->random, config->shard_count);
    const struct shard *row = &config->shards[at];
    if (row->split == SPLIT_PARENT && shard_names(row, process->server) &&
        has_adopted(fleet, process->server, row->id, row->epoch))
        world_filled(fleet->managers[manager], process->server, row->id, row->epoch,
                     process->server, true);
    if (row->filling_count == 0)
        return;
    const uint32_t server = row->filling[random_below(fleet->random, row->filling_count)];
    const bool knows =
        row->primary == process->server && has_adopted(fleet, server, row->id, row->epoch);
    if (knows)
        world_filled(fleet->managers[manager], process->server, row->id, row->epoch, server, true);
    else if (row->primary != process->server && chance(fleet, 10))
        world_filled(fleet->managers[manager], process->server, row->id, row->epoch, server, false);
    if (knows && chance(fleet, 10))
        world_filled(fleet->managers[manager], process->server, row->id, row->epoch - 1, server,
                     false);
}

static void act(struct fleet *fleet, uint32_t manager, uint32_t server)
{
    struct world *world = fleet->managers[manager];
    struct fleet_renewal *renewal = &fleet->renewals[manager][server];
    struct fleet_process *process = find(fleet, server);
    const struct world_connection *peer = &world->connections[server];
    if (!peer->open || peer->incarnation != fleet->running[server] ||
        renewal->incarnation != fleet->running[server])
        *renewal =
            (struct fleet_renewal){.incarnation = fleet->running[server], .cut = renewal->cut};
    if (renewal->cut || !process || !process->known || !peer->open ||
        peer->incarnation != process->incarnation || world->stopped)
        return;
    if (renewal->under_way && !renewal->delivered && chance(fleet, 70)) {
        renewal->delivered = true;
        world_renew(world, server, renewal->tag, &renewal->says);
    } else if (!renewal->under_way && chance(fleet, 60)) {
        renew(fleet, manager, process);
    } else if (chance(fleet, 30)) {
        adopt(fleet, manager, process);
    } else {
        fill(fleet, manager, process);
    }
}

void fleet_heal(struct fleet *fleet)
{
    memset(fleet->renewals, 0, sizeof fleet->renewals);
    memset(fleet->still, 0, sizeof fleet->still);
    fleet->healed = true;
}

void fleet_act(struct fleet *fleet)
{
    for (uint32_t server = 1; server <= FLEET_SERVERS; server++) {
        for (uint32_t manager = 0; manager < WORLD_MANAGERS; manager++)
            act(fleet, manager, server);
    }
}

static void hear(struct fleet *fleet, uint32_t manager, const struct world_sent *sent)
{
    const uint32_t server = sent->connection;
    struct fleet_renewal *renewal = &fleet->renewals[manager][server];
    struct fleet_process *process = find_or_add(fleet, server);
    if (sent->kind == CM_ACTION_CONFIGURATION && sent->with_secret) {
        if (!process->known || process->known->term < sent->term)
            process->known = stored(fleet, sent->term);
    } else if (sent->kind == CM_ACTION_COMMITTED) {
        fleet->commits++;
        if (fleet->committed < sent->term)
            fleet->committed = sent->term;
        if (process->adopted && process->adopted->term >= sent->term &&
            (!process->committed || process->committed->term < sent->term))
            process->committed = stored(fleet, sent->term);
    } else if (sent->kind == CM_ACTION_LEASE && renewal->delivered && renewal->tag == sent->tag) {
        renewal->under_way = false;
        renewal->heard_manager = fleet->managers[manager]->manager;
        renewal->heard_ns = sent->manager_ns;
        const uint64_t end_ns = renewal->sent_ns + stretch(LEASE_NS, server);
        if (sent->granted && process->lease_end_ns < end_ns)
            process->lease_end_ns = end_ns;
        fleet->grants += sent->granted;
    }
}

void fleet_hear(struct fleet *fleet, uint32_t manager)
{
    struct world *world = fleet->managers[manager];
    for (uint32_t i = 0; i < world->sent_count; i++) {
        const struct world_sent *sent = &world->sent[i];
        if (sent->kind == CM_ACTION_COMMITTED)
            check_committed(fleet, stored(fleet, sent->term));
        if (sent->connection <= FLEET_SERVERS &&
            world->connections[sent->connection].incarnation == fleet->running[sent->connection])
            hear(fleet, manager, sent);
    }
    check_serving(fleet);
}

void fleet_skip(struct fleet *fleet, uint64_t ns)
{
    fleet->true_ns += ns;
    for (uint32_t i = 0; i < WORLD_MANAGERS; i++) {
        if (!fleet->managers[i]->stopped)
            world_round(fleet->managers[i], clock_of(fleet, i));
    }
}

void fleet_pass(struct fleet *fleet, bool calm)
{
    uint64_t most_ns = LEASE_NS / 50;
    if (!calm && chance(fleet, 1))
        most_ns = 5 * LEASE_NS;
    fleet->true_ns += random_below(fleet->random, most_ns);
    for (uint32_t server = 1; server <= FLEET_SERVERS && !fleet->healed; server++) {
        /* From one manager or from all, for longer or shorter. */
        const uint64_t dice = random_below(fleet->random, 2000);
        for (uint32_t i = 0; i < WORLD_MANAGERS && dice < 6; i++) {
            if (dice < 2 || i == random_below(fleet->random, WORLD_MANAGERS))
                fleet->renewals[i][server].cut = dice % 2;
        }
    }
    check_serving(fleet);
    for (uint32_t i = 0; i < WORLD_MANAGERS; i++) {
        const uint64_t dice = fleet->healed ? 1000 : random_below(fleet->random, 1000);
        if (dice < 4)
            fleet->still[i] = dice == 0;
        if (!fleet->managers[i]->stopped && !fleet->still[i] && (calm || chance(fleet, 40)))
            world_round(fleet->managers[i], clock_of(fleet, i));
    }
}
