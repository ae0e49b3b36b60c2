/* Planned changes: what an operator's tool would store beside the manager, which then makes it happen. A shard gets another
 * primary though the one that it has runs on, or another worker of the same server; a replica leaves it, and the manager fills
 * another, there or elsewhere; a replica is to move. Two changes may come at once, and then nobody hears of the first. What the deposed primary has
 * sent is late now and then, so that some of it is on its way when it is deposed. */
#include <stdlib.h>

#include "cm/split.h"
#include "common/base/assert.h"
#include "common/cluster/slot.h"
#include "server/control/control_state.h"
#include "test/sim/nemesis_state.h"

enum change { SWAP, WORKER, LEAVE, REFILL, MOVE, CHANGES };

static void remove_at(uint32_t *servers, uint32_t *count, uint32_t at)
{
    for (uint32_t i = at + 1; i < *count; i++)
        servers[i - 1] = servers[i];
    servers[--*count] = 0;
}

static uint32_t draw_worker(struct nemesis *nemesis, const struct cluster_config *config,
                            const struct shard *shard)
{
    return (uint32_t)nemesis_below(nemesis, cluster_member(config, shard->primary)->workers);
}

/* What the server of a shard that gets another worker answers from now on is lost: whoever asked asks that worker. */
static void mute(struct nemesis *nemesis, uint32_t server)
{
    if (nemesis->mute)
        return;
    nemesis->mute = server;
    nemesis->mute_end_ns = nemesis_now(nemesis) + nemesis->options.lease_ns;
    for (uint32_t i = nemesis_servers(nemesis); i < nemesis_cm(nemesis); i++)
        nemesis_block(nemesis, server - 1, i, true);
}

/* What `rowan move` asks for: the manager does the rest. */
static bool move_replica(struct nemesis *nemesis, const struct cluster_config *config,
                         struct shard *shard)
{
    const struct member *to = &config->members[nemesis_below(nemesis, config->member_count)];
    const uint64_t from = nemesis_below(nemesis, 1 + shard->backup_count);
    if (to->kept || shard_names(shard, to->server) || shard->move_to ||
        shard->backup_count + shard->filling_count == CLUSTER_MAX_REPLICAS - 1)
        return false;
    shard->filling[shard->filling_count++] = to->server;
    shard->move_from = from ? shard->backups[from - 1] : shard->primary;
    shard->move_to = to->server;
    return true;
}

/* False: it cannot be, or changes nothing. */
static bool change_shard(struct nemesis *nemesis, const struct cluster_config *config,
                         struct shard *shard, enum change change)
{
    const uint32_t replicas = shard->backup_count + shard->filling_count;
    if (change == WORKER) {
        const uint32_t before = shard->worker;
        shard->worker = draw_worker(nemesis, config, shard);
        if (shard->worker == before)
            return false;
        mute(nemesis, shard->primary);
        return true;
    }
    if (change == MOVE)
        return move_replica(nemesis, config, shard);
    if (replicas == 0 || (change == SWAP && shard->backup_count == 0))
        return false;
    const uint32_t at =
        (uint32_t)nemesis_below(nemesis, change == SWAP ? shard->backup_count : replicas);
    if (change == SWAP) {
        const uint32_t deposed = shard->primary,
                       other = shard->backups[(at + 1) % shard->backup_count];
        shard->primary = shard->backups[at];
        shard->worker = draw_worker(nemesis, config, shard);
        remove_at(shard->backups, &shard->backup_count, at);
        if (nemesis_one_in(nemesis, 2))
            nemesis_stall(nemesis, deposed - 1,
                          (nemesis_one_in(nemesis, 2) ? other : shard->primary) - 1,
                          1 + nemesis_below(nemesis, 2 * nemesis->options.lease_ns));
        if (nemesis_one_in(nemesis, 3)) /* PRIMARY -> NONE, and PRIMARY -> FILLING */
            shard->filling[shard->filling_count++] = deposed;
        else if (!nemesis_one_in(nemesis, 3))
            shard->backups[shard->backup_count++] = deposed;
        return true;
    }
    if (at >= shard->backup_count) {
        if (change == LEAVE)
            remove_at(shard->filling, &shard->filling_count, at - shard->backup_count);
        return true; /* as if it had been none for a term */
    }
    if (change == REFILL)
        shard->filling[shard->filling_count++] = shard->backups[at];
    remove_at(shard->backups, &shard->backup_count, at);
    return true;
}

/* N4: the other replicas have to stay. */
static bool names_lost(const struct nemesis *nemesis, const struct cluster_config *config,
                       const struct shard *shard)
{
    bool any = false;
    for (uint32_t i = 0; i < config->member_count && !any; i++)
        any = shard_names(shard, config->members[i].server) &&
              sim_cluster_has_lost(nemesis->cluster, &config->members[i]);
    return any;
}

/* True if any shard changed. */
static bool change_some(struct nemesis *nemesis, struct cluster_config *config)
{
    const uint64_t one_in = 1 + nemesis_below(nemesis, config->shard_count);
    bool any = false;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        struct shard *shard = &config->shards[i];
        if (split_concerns(config, shard) || shard_is_kept(config, shard) ||
            !nemesis_one_in(nemesis, one_in) || names_lost(nemesis, config, shard))
            continue;
        const enum change change = (enum change)nemesis_below(nemesis, CHANGES);
        if (!change_shard(nemesis, config, shard, change))
            continue;
        shard_mend_move(shard);
        shard->epoch += change == REFILL ? 2 : 1; /* it was none in the one that nobody has seen */
        nemesis->counts.planned++;
        any = true;
    }
    return any;
}

/* Hardly any slot has a key: only where one has, a split that is off by one slot shows. */
static uint32_t draw_slot(struct nemesis *nemesis, const struct cluster_config *config)
{
    const struct load *load = nemesis->options.load;
    if (load && nemesis_one_in(nemesis, 2)) {
        char key[LOAD_KEY_BYTES];
        const uint32_t number = (uint32_t)nemesis_below(nemesis, load_keys(load));
        return slot_of_key(key, load_key(load, number, key));
    }
    const uint64_t at = nemesis_below(nemesis, config->served_count);
    const uint32_t slot =
        config->shards[at].first_slot + 1u + (uint32_t)nemesis_below(nemesis, SLOT_COUNT / 4);
    return slot < SLOT_COUNT ? slot : SLOT_COUNT - 1;
}

/* What `rowan split` asks for. The configuration becomes another one. */
static bool split_some(struct nemesis *nemesis, struct cluster_config **config)
{
    static const struct loads loads; /* nobody has reported any */
    const uint32_t slot = draw_slot(nemesis, *config);
    const struct shard *shard = cluster_shard_of_slot(*config, (uint16_t)slot);
    const struct cm_plan plan = {.kind = CM_PLAN_SPLIT, .shard = shard->id, .to = slot};
    char why[CM_MAX_DETAIL_BYTES];
    if (names_lost(nemesis, *config, shard) ||
        split_refusal(&plan, *config, &loads, 0, why, sizeof why))
        return false;
    struct cluster_config *split = split_make(&plan, *config);
    ASSERT(split);
    cluster_release(*config);
    *config = split;
    nemesis->counts.planned++;
    return true;
}

struct cluster_config *nemesis_stored_config(const struct nemesis *nemesis)
{
    const void *value;
    size_t bytes;
    struct cluster_config *config;
    if (nemesis->cluster->back_version ||
        sim_registry_value(nemesis->cluster->registry, &value, &bytes) == 0 ||
        cluster_decode(value, bytes, &config))
        return NULL;
    return config;
}

bool nemesis_is_newest(const struct nemesis *nemesis, const struct cluster_config *config)
{
    struct cluster_config *stored = nemesis_stored_config(nemesis);
    const bool newest = !stored || config->term >= stored->term;
    cluster_release(stored);
    return newest;
}

void nemesis_unmute(struct nemesis *nemesis, bool now)
{
    const uint32_t at = nemesis->mute - 1;
    const struct control *control = sim_cluster_control(nemesis->cluster, at);
    if (!now && nemesis_now(nemesis) < nemesis->mute_end_ns && control && control->config &&
        control->config->term < nemesis->planned_term)
        return;
    nemesis->mute = 0;
    for (uint32_t i = nemesis_servers(nemesis); i < nemesis_cm(nemesis); i++) {
        nemesis_cut(nemesis, at, i);
        nemesis_block(nemesis, at, i, false);
    }
}

void nemesis_store_next(struct nemesis *nemesis, struct cluster_config *config)
{
    config->term++;
    ASSERT(!cluster_finish(config));
    const size_t bytes = cluster_encoded_bytes(config, true);
    void *changed = malloc(bytes);
    ASSERT(changed && cluster_encode(config, true, changed, bytes) == bytes);
    sim_registry_store(nemesis->cluster->registry, changed, bytes);
}

static void store(struct nemesis *nemesis, struct cluster_config *config)
{
    nemesis_store_next(nemesis, config);
    nemesis->off_calm = false; /* N5 */
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, "", "planned changes: term %lu",
                 config->term);
    /* N3: what was not copied yet may be all there is. */
    nemesis->planned_term = config->term;
    nemesis->rose_ns = WAKE_NEVER;
    nemesis->fell_ns = nemesis_now(nemesis);
}

bool nemesis_plan(struct nemesis *nemesis)
{
    struct cluster_config *config = nemesis_stored_config(nemesis);
    if (!config)
        return false;
    bool any = change_some(nemesis, config);
    if (any && nemesis_one_in(nemesis, 4))
        (void)change_some(nemesis, config);
    if (nemesis_one_in(nemesis, 3))
        any |= split_some(nemesis, &config);
    if (any)
        store(nemesis, config);
    cluster_release(config);
    return any;
}

/* --- a commit that one server does not hear of ---
 *
 * Its primary ends, and another one leads that shard. A backup has answered that configuration, and does not hear that it is
 * committed: all from the manager is late there. Then the backup is to lead the shard, and hears so, but the primary does not:
 * it serves on, until it ends.
 *
 *  ENDS --(the backup has answered)--> ANSWERED --(the primary serves)--> PLANNED --(the manager knows the plan)--> HEARD
 */
enum unheard_step { UNHEARD_NONE, UNHEARD_ENDS, UNHEARD_ANSWERED, UNHEARD_PLANNED, UNHEARD_HEARD };

/* Mostly one with a hot key: what is lost then is what is written within a lease. */
static const struct shard *draw_written(struct nemesis *nemesis,
                                        const struct cluster_config *config)
{
    const struct load *load = nemesis->options.load;
    const uint32_t number = (uint32_t)nemesis_below(nemesis, 2);
    char key[LOAD_KEY_BYTES];
    if (!load || number >= load_keys(load) || nemesis_one_in(nemesis, 4))
        return &config->shards[nemesis_below(nemesis, config->shard_count)];
    return cluster_shard_of_slot(config, slot_of_key(key, load_key(load, number, key)));
}

bool nemesis_unheard(struct nemesis *nemesis)
{
    struct nemesis_unheard *unheard = &nemesis->unheard;
    const struct cluster_config *config = sim_cluster_config(nemesis->cluster);
    if (unheard->step || !config || (nemesis->rose_ns == WAKE_NEVER && !nemesis->options.restless))
        return false;
    const struct shard *shard = draw_written(nemesis, config);
    if (shard->backup_count < 2 || split_concerns(config, shard) ||
        names_lost(nemesis, config, shard))
        return false;
    *unheard =
        (struct nemesis_unheard){.step = UNHEARD_ENDS,
                                 .shard = shard->id,
                                 .former = shard->primary,
                                 .end_ns = nemesis_now(nemesis) + 12 * nemesis->options.lease_ns};
    nemesis->kill_ns[shard->primary - 1] = nemesis_now(nemesis);
    return true;
}

/* What the manager sends that server waits, or does so no more. */
static void hold_up(struct nemesis *nemesis, uint32_t *server, uint32_t next)
{
    if (*server)
        nemesis_block(nemesis, nemesis_cm(nemesis), *server - 1, false);
    if (*server != next)
        journal_note(nemesis_journal(nemesis), JOURNAL_FAULT,
                     nemesis_process(nemesis, (next ? next : *server) - 1)->name,
                     next ? "hears nothing of the CM" : "hears of the CM again");
    *server = next;
    if (next)
        nemesis_block(nemesis, nemesis_cm(nemesis), next - 1, true);
}

/* Clients go on to ask who led before. */
static void hold_up_clients(struct nemesis *nemesis, bool held)
{
    if (nemesis->unheard.clients == held)
        return;
    nemesis->unheard.clients = held;
    for (uint32_t i = nemesis_servers(nemesis); i < nemesis_cm(nemesis); i++)
        nemesis_block(nemesis, nemesis_cm(nemesis), i, held);
}

void nemesis_unheard_end(struct nemesis *nemesis)
{
    hold_up_clients(nemesis, false);
    hold_up(nemesis, &nemesis->unheard.backup, 0);
    hold_up(nemesis, &nemesis->unheard.primary, 0);
    nemesis->unheard.step = UNHEARD_NONE;
}

static const struct control *control_of(const struct nemesis *nemesis, uint32_t server)
{
    const struct control *control = sim_cluster_control(nemesis->cluster, server - 1);
    return control && control->config ? control : NULL;
}

/* ENDS */
static void await_answer(struct nemesis *nemesis, const struct cluster_config *config,
                         const struct shard *shard)
{
    struct nemesis_unheard *unheard = &nemesis->unheard;
    for (uint32_t i = 0; shard->primary != unheard->former && i < shard->backup_count; i++) {
        const struct control *control = control_of(nemesis, shard->backups[i]);
        if (!control || control->adoption.reported != config->term ||
            control->adoption.committed == config->term)
            continue;
        unheard->step = UNHEARD_ANSWERED;
        unheard->term = config->term;
        unheard->leads = shard->primary;
        hold_up(nemesis, &unheard->backup, shard->backups[i]);
        return;
    }
}

/* ANSWERED */
static void await_commit(struct nemesis *nemesis)
{
    struct nemesis_unheard *unheard = &nemesis->unheard;
    const struct control *leads = control_of(nemesis, unheard->leads),
                         *backup = control_of(nemesis, unheard->backup);
    struct cluster_config *config = nemesis_stored_config(nemesis);
    struct shard *shard = NULL;
    for (uint32_t i = 0; config && i < config->shard_count; i++)
        shard = config->shards[i].id == unheard->shard ? &config->shards[i] : shard;
    if (!leads || !backup || !shard || shard->primary != unheard->leads ||
        !shard_has_backup(shard, unheard->backup) || backup->adoption.committed == unheard->term ||
        split_concerns(config, shard)) {
        nemesis_unheard_end(nemesis);
    } else if (leads->adoption.committed != unheard->term) {
        unheard->plan_ns = nemesis_now(nemesis) + nemesis->options.lease_ns / 2;
    } else if (nemesis_now(nemesis) >= unheard->plan_ns) { /* clients have found it by then */
        for (uint32_t i = 0; i < shard->backup_count; i++) {
            if (shard->backups[i] == unheard->backup)
                shard->backups[i] = unheard->leads;
        }
        shard->primary = unheard->backup;
        shard->worker = draw_worker(nemesis, config, shard);
        shard->epoch++;
        store(nemesis, config);
        unheard->term = nemesis->planned_term - 1;
        hold_up(nemesis, &unheard->primary, unheard->leads);
        unheard->step = UNHEARD_PLANNED;
    }
    cluster_release(config);
}

void nemesis_unheard_step(struct nemesis *nemesis)
{
    struct nemesis_unheard *unheard = &nemesis->unheard;
    const struct cluster_config *config = sim_cluster_config(nemesis->cluster);
    const struct shard *shard = config ? cluster_shard(config, unheard->shard) : NULL;
    if (!shard || nemesis_now(nemesis) >= unheard->end_ns) {
        nemesis_unheard_end(nemesis);
    } else if (unheard->step == UNHEARD_ENDS) {
        await_answer(nemesis, config, shard);
    } else if (unheard->step == UNHEARD_ANSWERED) {
        await_commit(nemesis);
    } else if (unheard->step == UNHEARD_PLANNED && config->term > unheard->term) {
        nemesis_cut(nemesis, unheard->backup - 1,
                    nemesis_cm(nemesis)); /* it does not hear of it later, either */
        hold_up(nemesis, &unheard->backup, 0);
        hold_up_clients(nemesis, true);
        unheard->step = UNHEARD_HEARD;
        nemesis->kill_ns[unheard->leads - 1] =
            nemesis_now(nemesis) + nemesis_below(nemesis, 2 * nemesis->options.lease_ns);
        nemesis->due_ns = nemesis_now(nemesis);
    } else if (unheard->step == UNHEARD_HEARD && !nemesis_is_up(nemesis, unheard->leads - 1)) {
        nemesis_unheard_end(nemesis);
    }
}
