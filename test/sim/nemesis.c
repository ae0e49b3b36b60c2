/* Faults, one after another: each is drawn by its weight, begins, and if it lasts is one of the `spells` until its
 * time is over.
 *
 * Ends and starts of servers are a schedule of their own, because there is no failover yet:
 *  N1 When a server has ended, all others end too, sooner or later, before any is started again.
 *     After a start the servers run for at least as long as they did not, or nobody would get anything done.
 *     Not so where servers have leases:
 *  N3 Then one that has ended starts again by itself, and the others go on. Nobody ends while a shard lacks a replica,
 *     but in runs that are `restless`: there some do, and a shard may wait for the last that held all of it.
 *  N2 Only the host of a server that has ended loses its power.
 *  N4 A PM is lost only of a server that no shard names, or that ended, first of all, when nothing else was
 *     amiss for so long that no other replica of its shards is about to be taken off: they are there, and stay.
 *
 *  N5 (nemesis_off.c)
 *
 *   (all run) --kill one--> some are down: the others have their kill_ns --> all are down: each has its start_ns
 *        \------------------------------kill all------------------------------/
 *
 * Starts are the best moments for a further end, so some come then (`hasty`). And most ends and cuts wait a little for
 * their moment (`aim`): a fence that is not done, blocks that are on their way.
 */
#include "test/sim/nemesis.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "test/sim/flips.h"
#include "test/sim/nemesis_state.h"

enum {
    DRAWS = 8,     /* of a fault, until one can begin */
    MAX_HASTY = 2, /* in a row */
    CALM_LEASES = 12,
    ASKED_IN = 4, /* of the ends of servers, where others take their place */
};

#define REST_NS  (500 * NS_PER_MS)
#define AIM_NS   (200 * NS_PER_MS)
#define HASTY_NS (30 * NS_PER_MS)
#define JITTER_NS                                                                                  \
    (100 * NS_PER_MS) /* between servers that are started, or killed, one after another */

static const char *const NAMES[NEMESIS_FAULTS] = {
    [NEMESIS_CUT] = "cut",
    [NEMESIS_PART_ONE_WAY] = "part-one-way",
    [NEMESIS_PART_BOTH_WAYS] = "part-both-ways",
    [NEMESIS_STALL] = "stall",
    [NEMESIS_STOP] = "stop",
    [NEMESIS_SLOW] = "slow",
    [NEMESIS_DRY] = "dry",
    [NEMESIS_KILL_ALL] = "kill-all",
    [NEMESIS_KILL_ONE] = "kill-one",
    [NEMESIS_KILL_CM] = "kill-cm",
    [NEMESIS_COORD_PART] = "coord-part",
    [NEMESIS_COORD_EXPIRE] = "coord-expire",
    [NEMESIS_COORD_LOSES] = "coord-loses",
    [NEMESIS_RIVAL] = "rival",
    [NEMESIS_KILL_CLIENT] = "kill-client",
    [NEMESIS_DEAF] = "deaf",
    [NEMESIS_SPLIT] = "split",
    [NEMESIS_CLOCK] = "clock",
    [NEMESIS_PLAN] = "plan",
    [NEMESIS_UNHEARD] = "unheard",
    [NEMESIS_LIMP] = "limp",
    [NEMESIS_BACK] = "back",
    [NEMESIS_OFF] = "off",
};

const char *nemesis_name(enum nemesis_fault fault)
{
    return NAMES[fault];
}

/* --- ends and starts --- */

static bool any_up(const struct nemesis *nemesis)
{
    bool any = false;
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++)
        any |= nemesis_is_up(nemesis, i);
    return any;
}

/* Of a host by itself. */
static bool power_may_fail(const struct nemesis *nemesis)
{
    return nemesis->options.power_loss_in > 0 && !nemesis->options.power_together;
}

/* `power`: of its host too. */
static void kill_server(struct nemesis *nemesis, uint32_t index, bool power)
{
    bool up = nemesis_is_up(nemesis, index);
    nemesis_end_of(nemesis, index);
    nemesis->spare[index] =
        nemesis->rose_ns != WAKE_NEVER &&
        nemesis_now(nemesis) - nemesis->amiss_ns > CALM_LEASES * nemesis->options.lease_ns;
    if (nemesis->rose_ns != WAKE_NEVER)
        nemesis->fell_ns = nemesis_now(nemesis);
    nemesis->rose_ns = WAKE_NEVER;
    nemesis->off_calm &= !power;
    struct sim_pm_loss loss =
        sim_cluster_kill_server(nemesis->cluster, index + 1, power ? &nemesis->random : NULL);
    nemesis->kill_ns[index] = nemesis->start_ns[index] = WAKE_NEVER;
    nemesis->last = up ? index : nemesis->last;
    nemesis->counts.crashes += up;
    nemesis->counts.power_losses += loss.words > 0;
    nemesis->counts.lost_fences += loss.fences;
    nemesis->counts.lost_words += loss.old;
}

void nemesis_kill_cm(struct nemesis *nemesis)
{
    nemesis_end_of(nemesis, nemesis_cm(nemesis));
    sim_cluster_kill_cm(nemesis->cluster);
    nemesis->counts.crashes++;
    nemesis->start_cm_ns = nemesis_now(nemesis) + nemesis_draw_length(nemesis) / 2;
}

static void kill_all(struct nemesis *nemesis)
{
    const struct nemesis_options *options = &nemesis->options;
    bool may = power_may_fail(nemesis);
    bool together = options->power_loss_in &&
                    nemesis_one_in(nemesis, options->power_loss_in + !options->power_together);
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++)
        kill_server(nemesis, i,
                    together || (may && nemesis_one_in(nemesis, nemesis->options.power_loss_in)));
    if (nemesis->cluster->cm && nemesis_one_in(nemesis, 2))
        nemesis_kill_cm(nemesis);
}

/* N1: the others follow, at one moment or one by one; or N3. */
static void kill_one(struct nemesis *nemesis, uint32_t index)
{
    uint64_t follow_ns = nemesis_now(nemesis) + nemesis_draw_length(nemesis);
    uint64_t apart_ns = nemesis_one_in(nemesis, 2) ? 0 : JITTER_NS;
    const bool power =
        power_may_fail(nemesis) && nemesis_one_in(nemesis, nemesis->options.power_loss_in);
    kill_server(nemesis, index, power && !nemesis->off_calm);
    if (nemesis_replaces(nemesis)) {
        nemesis->start_ns[index] = nemesis->off ? WAKE_NEVER : follow_ns;
        return;
    }
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++) {
        if (i == index)
            continue;
        uint64_t at_ns = follow_ns + nemesis_below(nemesis, apart_ns + 1);
        if (at_ns < nemesis->kill_ns[i])
            nemesis->kill_ns[i] = at_ns;
        nemesis->start_ns[i] = WAKE_NEVER; /* the last start was not over yet */
    }
}

/* All are down: when each starts. */
static void plan_starts(struct nemesis *nemesis)
{
    uint64_t first_ns = nemesis_now(nemesis) + nemesis_draw_length(nemesis) / 2;
    uint64_t apart_ns = nemesis_one_in(nemesis, 2) ? 0 : JITTER_NS;
    const bool away = nemesis->options.away_in && nemesis_one_in(nemesis, nemesis->options.away_in);
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++) {
        nemesis->kill_ns[i] = WAKE_NEVER;
        nemesis->start_ns[i] = first_ns + nemesis_below(nemesis, apart_ns + 1);
        if (away && nemesis_one_in(nemesis, 3))
            nemesis->start_ns[i] += nemesis_below(nemesis, nemesis_away_ns(nemesis));
    }
    nemesis_off(nemesis);
    if (nemesis->hasty < MAX_HASTY && nemesis_one_in(nemesis, 3)) {
        nemesis->hasty++;
        nemesis->next_is_hasty = true;
        nemesis->next_ns = first_ns + nemesis_below(nemesis, HASTY_NS + apart_ns);
    }
}

/* Only ever of one server: all others have whole replicas. */
static void flip_bits(struct nemesis *nemesis)
{
    struct sim_server *server = &nemesis->cluster->servers[nemesis->options.flip_server];
    const uint32_t flips = flips_make(server, &nemesis->random);
    nemesis->counts.flips += flips;
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, server->process.name,
                 "%u bits of its PM flip", flips);
}

static bool is_named(const struct cluster_config *config, uint32_t server)
{
    bool named = false;
    for (uint32_t i = 0; i < config->shard_count; i++)
        named |= shard_names(&config->shards[i], server);
    return named;
}

/* N4 */
static void lose_pm(struct nemesis *nemesis, uint32_t index)
{
    struct cluster_config *config = nemesis_stored_config(nemesis);
    if (config && (nemesis->spare[index] || !is_named(config, index + 1))) {
        nemesis->counts.emptied++;
        sim_cluster_empty_server(nemesis->cluster, index + 1);
    }
    cluster_release(config);
}

static bool is_blocked(const struct nemesis *nemesis, uint32_t process)
{
    bool any = false;
    for (uint32_t i = 0; i < MAX_PROCESSES; i++)
        any |= nemesis->blocked[process][i] || nemesis->blocked[i][process];
    return any;
}

/* A new machine, a new disk. */
static void replace_parts(struct nemesis *nemesis, uint32_t index)
{
    if (nemesis->options.empty_in && nemesis_one_in(nemesis, nemesis->options.empty_in))
        lose_pm(nemesis, index);
    if (nemesis->options.readdress_in && !is_blocked(nemesis, index) &&
        nemesis_one_in(nemesis, nemesis->options.readdress_in)) {
        nemesis->counts.readdressed++;
        sim_cluster_readdress_server(nemesis->cluster, index + 1);
    }
}

/* Its host may have lost power while it was down. */
static void start_server(struct nemesis *nemesis, uint32_t index)
{
    nemesis->start_ns[index] = WAKE_NEVER;
    if (nemesis->cluster->servers[index].server) /* all were started meanwhile (run.c) */
        return;
    if (power_may_fail(nemesis) &&
        nemesis_one_in(nemesis, 8 * (uint64_t)nemesis->options.power_loss_in))
        kill_server(nemesis, index, true);
    if (nemesis->options.flip_in && index == nemesis->options.flip_server &&
        nemesis_one_in(nemesis, nemesis->options.flip_in))
        flip_bits(nemesis);
    replace_parts(nemesis, index);
    sim_cluster_start_server(nemesis->cluster, index + 1);
}

static bool starts_are_planned(const struct nemesis *nemesis)
{
    bool any = false;
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++)
        any |= nemesis->start_ns[i] != WAKE_NEVER;
    return any;
}

/* It ends in time, or is killed. */
static void ask_to_stop(struct nemesis *nemesis, uint32_t index)
{
    struct sim_server *server = &nemesis->cluster->servers[index];
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, server->process.name, "is asked to stop");
    server_stop(server->server);
}

static void end_and_start(struct nemesis *nemesis)
{
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++) {
        if (nemesis->kill_ns[i] > nemesis_now(nemesis))
            continue;
        if (nemesis->off && nemesis_is_up(nemesis, i)) {
            nemesis->kill_ns[i] = WAKE_NEVER;
            ask_to_stop(nemesis, i);
        } else if (nemesis_replaces(nemesis))
            kill_one(nemesis, i);
        else
            kill_server(nemesis, i,
                        power_may_fail(nemesis) &&
                            nemesis_one_in(nemesis, nemesis->options.power_loss_in));
    }
    if (!any_up(nemesis) && !starts_are_planned(nemesis))
        plan_starts(nemesis);
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++) {
        if (nemesis->start_ns[i] <= nemesis_now(nemesis))
            start_server(nemesis, i);
    }
    if (nemesis->start_cm_ns <= nemesis_now(nemesis)) {
        nemesis->start_cm_ns = WAKE_NEVER;
        sim_cluster_start_cm(nemesis->cluster);
    }
}

/* N3: one that was removed while it was away has ended when it hears so, or that was asked to stop. */
static void replace_removed(struct nemesis *nemesis)
{
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++) {
        const struct server *server = nemesis->cluster->servers[i].server;
        if (!server || (server_error(server) != ROWAN_EREMOVED && !server_has_stopped(server)))
            continue;
        nemesis->off_calm &= server_error(server) == 0;
        nemesis->counts.removed += server_error(server) != 0;
        nemesis->counts.stopped += server_error(server) == 0;
        kill_one(nemesis, i);
        if (nemesis->start_ns[i] < nemesis->due_ns)
            nemesis->due_ns = nemesis->start_ns[i];
    }
}

/* As the stored configuration has it: the manager may not have read a planned change yet. */
static bool is_whole(const struct nemesis *nemesis)
{
    return sim_cluster_is_whole(nemesis->cluster) &&
           sim_cluster_config(nemesis->cluster)->term >= nemesis->planned_term;
}

static bool begin_kill(struct nemesis *nemesis, enum nemesis_fault fault, uint32_t index)
{
    if (fault == NEMESIS_KILL_CM) {
        if (!nemesis->cluster->cm)
            return false;
        nemesis_kill_cm(nemesis);
        return true;
    }
    if (!nemesis_is_up(nemesis, index))
        return false;
    if (fault == NEMESIS_KILL_ALL && nemesis_replaces(nemesis) && nemesis->options.in_turn_in &&
        nemesis_one_in(nemesis, nemesis->options.in_turn_in))
        nemesis_stop_in_turn(nemesis, is_whole(nemesis));
    else if (fault == NEMESIS_KILL_ALL)
        kill_all(nemesis);
    else if (nemesis_replaces(nemesis) && nemesis_one_in(nemesis, ASKED_IN))
        ask_to_stop(nemesis, index);
    else
        kill_one(nemesis, index);
    return true;
}

static bool kills(uint32_t fault)
{
    return fault >= NEMESIS_KILL_ALL && fault <= NEMESIS_KILL_CM;
}

/* Does any server send blocks? From the one that was drawn on. */
static bool find_sender(struct nemesis *nemesis)
{
    const struct sim_cluster *cluster = nemesis->cluster;
    const uint32_t servers = nemesis_servers(nemesis);
    for (uint32_t i = 0; i < servers * servers; i++) {
        uint32_t from = (nemesis->aim_from + i / servers) % servers;
        uint32_t at = (nemesis->aim_at + i) % servers;
        if (from == at ||
            !sim_network_sends(cluster->network, cluster->servers[from].process.address,
                               cluster->servers[at].process.address))
            continue;
        nemesis->aim_from = from;
        nemesis->aim_at = at;
        return true;
    }
    return false;
}

/* Whom an aimed fault meets, and is this its moment? */
static bool is_moment(struct nemesis *nemesis)
{
    struct sim_cluster *cluster = nemesis->cluster;
    if (nemesis->aim == NEMESIS_CUT || nemesis->aim == NEMESIS_STOP)
        return find_sender(nemesis);
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++) {
        uint32_t index = (nemesis->aim_from + i) % nemesis_servers(nemesis);
        if (!nemesis_is_up(nemesis, index) ||
            sim_pm_next_ns(cluster->servers[index].pm) == WAKE_NEVER)
            continue;
        nemesis->aim_at = index;
        return true;
    }
    return false;
}

static void take_aim(struct nemesis *nemesis, enum nemesis_fault fault)
{
    uint32_t servers = nemesis_servers(nemesis);
    nemesis->aim = fault;
    nemesis->aim_end_ns = nemesis_now(nemesis) + AIM_NS;
    nemesis->aim_from = nemesis_draw_server(nemesis);
    nemesis->aim_at = (nemesis->aim_from + 1) % servers;
    if (servers > 2)
        nemesis->aim_at =
            (nemesis->aim_from + 1 + (uint32_t)nemesis_below(nemesis, servers - 1)) % servers;
}

static void count(struct nemesis *nemesis, enum nemesis_fault fault)
{
    nemesis->counts.injected[fault]++;
    nemesis->counts.faults++;
}

/* Not always at the first such moment. False: it waits on. */
static bool strike(struct nemesis *nemesis)
{
    if (nemesis_now(nemesis) < nemesis->aim_end_ns &&
        !(is_moment(nemesis) && nemesis_one_in(nemesis, 3)))
        return false;
    enum nemesis_fault fault = nemesis->aim;
    bool begun = true;
    nemesis->aim = NEMESIS_FAULTS;
    if (fault == NEMESIS_CUT)
        nemesis_cut(nemesis, nemesis->aim_from, nemesis->aim_at);
    else if (fault == NEMESIS_STOP)
        begun = nemesis_stop(nemesis, nemesis->aim_from, 0);
    else
        begun = begin_kill(nemesis, fault, nemesis->aim_at);
    if (begun)
        count(nemesis, fault);
    return true;
}

/* N1 */
static bool have_rested(const struct nemesis *nemesis)
{
    uint64_t now_ns = nemesis_now(nemesis);
    return nemesis->rose_ns != WAKE_NEVER &&
           now_ns - nemesis->rose_ns >= REST_NS + (nemesis->rose_ns - nemesis->fell_ns);
}

/* N5: once nothing has been amiss for so long. */
static bool await_off(struct nemesis *nemesis)
{
    if (nemesis->spell_count > 0 || nemesis->rose_ns == WAKE_NEVER || !nemesis->cluster->cm ||
        !is_whole(nemesis))
        return false;
    nemesis->off_awaited = true;
    nemesis->next_ns = nemesis_now(nemesis) + nemesis_away_ns(nemesis) + NS_PER_MS;
    return true;
}

/* False: not now. */
static bool begin(struct nemesis *nemesis, enum nemesis_fault fault, bool hasty)
{
    const bool restless = nemesis->options.restless && nemesis_one_in(nemesis, 2);
    if (kills(fault) && !hasty && !restless && !have_rested(nemesis))
        return false;
    if (kills(fault) && !hasty)
        nemesis->hasty = 0;
    bool aims = fault == NEMESIS_CUT || fault == NEMESIS_KILL_ALL || fault == NEMESIS_KILL_ONE ||
                (fault == NEMESIS_STOP && nemesis->cluster->options.one_sided);
    if (aims && nemesis_servers(nemesis) > 1 && !nemesis_one_in(nemesis, 4)) {
        take_aim(nemesis, fault);
        return true;
    }
    bool begun = kills(fault) ? begin_kill(nemesis, fault, nemesis_draw_server(nemesis))
                 : fault == NEMESIS_UNHEARD ? nemesis_unheard(nemesis)
                 : fault == NEMESIS_OFF     ? await_off(nemesis)
                                            : nemesis_begin(nemesis, fault);
    if (begun)
        count(nemesis, fault);
    return begun;
}

/* --- the schedule --- */

/* NEMESIS_FAULTS: none. */
static enum nemesis_fault draw_fault(struct nemesis *nemesis, bool hasty)
{
    uint64_t sum = 0;
    uint32_t weights[NEMESIS_FAULTS];
    for (uint32_t i = 0; i < NEMESIS_FAULTS; i++) {
        weights[i] = hasty && !kills(i) ? 0 : nemesis->options.weights[i];
        sum += weights[i];
    }
    if (sum == 0)
        return NEMESIS_FAULTS;
    uint64_t draw = nemesis_below(nemesis, sum);
    uint32_t fault = 0;
    while (draw >= weights[fault])
        draw -= weights[fault++];
    return (enum nemesis_fault)fault;
}

static void begin_next(struct nemesis *nemesis)
{
    bool hasty = nemesis->next_is_hasty;
    if (nemesis->aim != NEMESIS_FAULTS) {
        nemesis->next_ns = nemesis->aim_end_ns;
        return;
    }
    nemesis->next_is_hasty = false;
    /* Now and then several come at once. */
    uint64_t pause_ns = nemesis->options.mean_pause_ns >> (nemesis_one_in(nemesis, 4) ? 5 : 0);
    nemesis->next_ns = nemesis_now(nemesis) + 1 + nemesis_below(nemesis, 2 * pause_ns + 1);
    if (nemesis->off_awaited) {
        nemesis->off_awaited = false;
        nemesis_stop_in_turn(nemesis, is_whole(nemesis));
        return;
    }
    for (uint32_t i = 0; i < DRAWS; i++) {
        enum nemesis_fault fault = draw_fault(nemesis, hasty);
        if (fault != NEMESIS_FAULTS && begin(nemesis, fault, hasty))
            return;
    }
}

static void find_due(struct nemesis *nemesis)
{
    uint64_t due_ns = nemesis->next_ns;
    if (nemesis->aim != NEMESIS_FAULTS && nemesis->aim_end_ns < due_ns)
        due_ns = nemesis->aim_end_ns;
    for (uint32_t i = 0; i < nemesis->spell_count; i++)
        due_ns = nemesis->spells[i].end_ns < due_ns ? nemesis->spells[i].end_ns : due_ns;
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++) {
        due_ns = nemesis->kill_ns[i] < due_ns ? nemesis->kill_ns[i] : due_ns;
        due_ns = nemesis->start_ns[i] < due_ns ? nemesis->start_ns[i] : due_ns;
    }
    if (nemesis->cuts > 0 && nemesis_next_cut_ns(nemesis) < due_ns)
        due_ns = nemesis_next_cut_ns(nemesis);
    nemesis->due_ns = nemesis->start_cm_ns < due_ns ? nemesis->start_cm_ns : due_ns;
}

void nemesis_step(struct nemesis *nemesis)
{
    if (nemesis->rose_ns == WAKE_NEVER && sim_cluster_is_started(nemesis->cluster) &&
        (!nemesis_replaces(nemesis) || is_whole(nemesis)))
        nemesis->rose_ns = nemesis_now(nemesis);
    if (nemesis_replaces(nemesis))
        replace_removed(nemesis);
    if (nemesis->options.weights[NEMESIS_BACK])
        nemesis_back_step(nemesis);
    if (nemesis->spell_count > 0 || nemesis->rose_ns == WAKE_NEVER)
        nemesis->amiss_ns = nemesis_now(nemesis);
    nemesis->off_calm &= nemesis->spell_count == 0 && nemesis->cluster->cm;
    if (nemesis->mute)
        nemesis_unmute(nemesis, false);
    if (nemesis->unheard.step)
        nemesis_unheard_step(nemesis);
    bool struck = nemesis->aim != NEMESIS_FAULTS && strike(nemesis);
    if (!struck && nemesis_now(nemesis) < nemesis->due_ns)
        return;
    nemesis_end(nemesis, nemesis_now(nemesis));
    if (nemesis->cuts > 0)
        nemesis_cut_due(nemesis);
    if (nemesis->next_ns <= nemesis_now(nemesis))
        begin_next(nemesis);
    end_and_start(nemesis);
    find_due(nemesis);
}

uint64_t nemesis_next_ns(const struct nemesis *nemesis)
{
    return nemesis->due_ns;
}

void nemesis_heal(struct nemesis *nemesis)
{
    struct sim_cluster *cluster = nemesis->cluster;
    if (nemesis->mute)
        nemesis_unmute(nemesis, true);
    nemesis_unheard_end(nemesis);
    nemesis_end(nemesis, WAKE_NEVER);
    sim_network_heal(cluster->network);
    bool fall = false;
    nemesis->off = false;
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++)
        fall |= nemesis->kill_ns[i] != WAKE_NEVER && !nemesis_replaces(nemesis);
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++) {
        if (fall)
            kill_server(nemesis, i, false); /* N1 */
        nemesis->kill_ns[i] = nemesis->start_ns[i] = WAKE_NEVER;
        if (!nemesis_is_up(nemesis, i))
            sim_cluster_start_server(cluster, i + 1);
    }
    if (!cluster->cm)
        sim_cluster_start_cm(cluster);
    nemesis->next_ns = nemesis->start_cm_ns = nemesis->due_ns = WAKE_NEVER;
    nemesis->next_is_hasty = nemesis->off_awaited = false;
    nemesis->aim = NEMESIS_FAULTS;
    nemesis->options.power_loss_in = nemesis->options.flip_in = 0; /* of those that end by N3 */
    cluster->options.heat_us = 0; /* or shards would move for ever */
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, "", "no further faults");
}

struct nemesis_counts nemesis_counts(const struct nemesis *nemesis)
{
    return nemesis->counts;
}

struct nemesis *nemesis_create(struct sim_cluster *cluster, const struct nemesis_options *options)
{
    struct nemesis *nemesis = calloc(1, sizeof *nemesis);
    ASSERT(nemesis && options->mean_pause_ns > 0);
    nemesis->cluster = cluster;
    nemesis->options = *options;
    random_init(&nemesis->random, options->seed);
    for (uint32_t i = 0; i < SIM_MAX_SERVERS; i++)
        nemesis->kill_ns[i] = nemesis->start_ns[i] = WAKE_NEVER;
    nemesis->start_cm_ns = WAKE_NEVER;
    nemesis->aim = NEMESIS_FAULTS;
    nemesis->rose_ns = nemesis->fell_ns = nemesis_now(nemesis);
    nemesis->next_ns =
        nemesis_now(nemesis) + 1 + nemesis_below(nemesis, 2 * options->mean_pause_ns);
    find_due(nemesis);
    return nemesis;
}

void nemesis_destroy(struct nemesis *nemesis)
{
    free(nemesis->back.old);
    free(nemesis->back.newest);
    free(nemesis);
}
