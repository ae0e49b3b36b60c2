/* Faults, one after another: each is drawn by its weight, begins, and if it lasts is one of the `spells` until its
 * time is over.
 *
 * Ends and starts of servers are a schedule of their own, because there is no failover yet:
 *  N1 When a server has ended, all others end too, sooner or later, before any is started again.
 *  N2 Only the host of a server that has ended loses its power, and only where every acknowledged write is behind a
 *     fence.
 *
 *   (all run) --kill one--> some are down: the others have their kill_ns --> all are down: each has its start_ns
 *        \------------------------------kill all------------------------------/
 *
 * Starts are the best moments for a further end, so some come then (`hasty`).
 */
#include "test/sim/nemesis.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "test/sim/journal.h"

enum {
    MAX_SPELLS = 5, /* at a time: something must go on */
    MAX_PROCESSES = SIM_MAX_SERVERS + SIM_MAX_CLIENTS + 1,
    DRAWS = 8,     /* of a fault, until one can begin */
    MAX_HASTY = 2, /* in a row */
};

#define HASTY_NS (30 * NS_PER_MS)
#define JITTER_NS                                                                                  \
    (100 * NS_PER_MS) /* between servers that are started, or killed, one after another */
#define SLOW_NS    (10 * NS_PER_MS) /* a slow process has its turn at least so often */
#define DRY_MIN_NS (5 * NS_PER_MS)

struct spell {
    enum nemesis_fault fault;
    uint64_t end_ns;
    uint32_t process;  /* STOP, SLOW, DRY: whose */
    uint32_t from, to; /* PART_*, STALL: sets of processes, a bit each */
};

struct nemesis {
    struct sim_cluster *cluster;
    struct nemesis_options options;
    struct random random;
    struct nemesis_counts counts;
    uint64_t next_ns; /* when the next fault begins */
    uint64_t due_ns;  /* the earliest time at which anything has to be done */
    struct spell spells[MAX_SPELLS];
    uint32_t spell_count;
    uint8_t blocked[MAX_PROCESSES][MAX_PROCESSES]; /* from, to: spells that do */
    uint64_t kill_ns[SIM_MAX_SERVERS];             /* WAKE_NEVER: not awaited */
    uint64_t start_ns[SIM_MAX_SERVERS];
    uint64_t start_cm_ns;
    uint32_t hasty;
    bool next_is_hasty;
};

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
};

const char *nemesis_name(enum nemesis_fault fault)
{
    return NAMES[fault];
}

/* --- drawing --- */

static uint64_t below(struct nemesis *nemesis, uint64_t bound)
{
    return random_below(&nemesis->random, bound);
}

static bool one_in(struct nemesis *nemesis, uint64_t count)
{
    return below(nemesis, count) == 0;
}

/* As often short as long: some are over before anybody notices, some outlast every patience. */
static uint64_t draw_length(struct nemesis *nemesis)
{
    uint64_t most = nemesis->options.max_length_ns >> (2 * below(nemesis, 3));
    return 1 + below(nemesis, most + 1);
}

static uint64_t now(const struct nemesis *nemesis)
{
    return nemesis->cluster->clock.now_ns;
}

static struct journal *journal_of(const struct nemesis *nemesis)
{
    return nemesis->cluster->options.journal;
}

static uint32_t servers_of(const struct nemesis *nemesis)
{
    return nemesis->cluster->options.servers;
}

static uint32_t cm_of(const struct nemesis *nemesis)
{
    return sim_cluster_processes(nemesis->cluster) - 1;
}

static uint32_t draw_server(struct nemesis *nemesis)
{
    return (uint32_t)below(nemesis, servers_of(nemesis));
}

static uint32_t draw_client(struct nemesis *nemesis)
{
    return servers_of(nemesis) + (uint32_t)below(nemesis, nemesis->cluster->options.clients);
}

/* Servers more often than others. */
static uint32_t draw_process(struct nemesis *nemesis)
{
    uint64_t draw = below(nemesis, 8);
    return draw < 5 ? draw_server(nemesis) : draw < 7 ? draw_client(nemesis) : cm_of(nemesis);
}

static void draw_pair(struct nemesis *nemesis, uint32_t *a, uint32_t *b)
{
    *a = draw_server(nemesis);
    do {
        *b = draw_process(nemesis);
    } while (*b == *a);
}

static const char *name_of(const struct nemesis *nemesis, uint32_t process)
{
    return sim_cluster_process(nemesis->cluster, process)->name;
}

static bool is_up(const struct nemesis *nemesis, uint32_t process)
{
    if (process == cm_of(nemesis))
        return nemesis->cluster->cm != NULL;
    return process >= servers_of(nemesis) || nemesis->cluster->servers[process].server;
}

static bool any_up(const struct nemesis *nemesis)
{
    bool any = false;
    for (uint32_t i = 0; i < servers_of(nemesis); i++)
        any |= is_up(nemesis, i) || nemesis->cluster->servers[i].again_ns;
    return any;
}

/* --- spells --- */

static struct spell *spell_begin(struct nemesis *nemesis, enum nemesis_fault fault)
{
    ASSERT(nemesis->spell_count < MAX_SPELLS);
    struct spell *spell = &nemesis->spells[nemesis->spell_count++];
    *spell = (struct spell){.fault = fault, .end_ns = now(nemesis) + draw_length(nemesis)};
    return spell;
}

static bool has_spell(const struct nemesis *nemesis, enum nemesis_fault fault, uint32_t process)
{
    for (uint32_t i = 0; i < nemesis->spell_count; i++) {
        if (nemesis->spells[i].fault == fault && nemesis->spells[i].process == process)
            return true;
    }
    return false;
}

static uint64_t milliseconds(const struct nemesis *nemesis, const struct spell *spell)
{
    return (spell->end_ns - now(nemesis)) / NS_PER_MS;
}

/* "server-1 server-2", as far as there is room. */
static const char *names_of(const struct nemesis *nemesis, uint32_t set, char *out, size_t bytes)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i <= cm_of(nemesis) && at < bytes; i++) {
        if (set >> i & 1)
            at +=
                (size_t)snprintf(out + at, bytes - at, "%s%s", at ? " " : "", name_of(nemesis, i));
    }
    return out;
}

static void block_pair(struct nemesis *nemesis, uint32_t from, uint32_t to, bool blocked)
{
    uint8_t *spells = &nemesis->blocked[from][to];
    bool before = *spells > 0;
    *spells = (uint8_t)(blocked ? *spells + 1 : *spells - 1);
    if ((*spells > 0) != before)
        sim_network_block(nemesis->cluster->network,
                          sim_cluster_process(nemesis->cluster, from)->address,
                          sim_cluster_process(nemesis->cluster, to)->address, blocked);
}

static void block(struct nemesis *nemesis, const struct spell *spell, bool blocked)
{
    for (uint32_t from = 0; from <= cm_of(nemesis); from++) {
        for (uint32_t to = 0; to <= cm_of(nemesis); to++) {
            if (from == to || !(spell->from >> from & 1) || !(spell->to >> to & 1))
                continue;
            block_pair(nemesis, from, to, blocked);
            if (spell->fault == NEMESIS_PART_BOTH_WAYS)
                block_pair(nemesis, to, from, blocked);
        }
    }
}

static void spell_end(struct nemesis *nemesis, const struct spell *spell)
{
    struct sim_cluster *cluster = nemesis->cluster;
    struct sim_process *process = sim_cluster_process(cluster, spell->process);
    const char *what = "";
    switch (spell->fault) {
    case NEMESIS_PART_ONE_WAY:
    case NEMESIS_PART_BOTH_WAYS:
        block(nemesis, spell, false);
        what = "can be heard again";
        break;
    case NEMESIS_STALL:
        what = "is stalled no more";
        break;
    case NEMESIS_STOP:
        sim_cluster_stop(cluster, process, false);
        return;
    case NEMESIS_SLOW:
        process->slow_ns = 0;
        what = "is as fast as before";
        break;
    case NEMESIS_DRY:
        cluster->servers[spell->process].late_role = 0;
        what = "has no late role any more";
        break;
    case NEMESIS_COORD_PART:
        sim_coord_part(cluster->coord, false);
        what = "reaches the coordination service again";
        break;
    case NEMESIS_COORD_LOSES:
        sim_registry_lose_replies(cluster->registry, cluster->options.registry.lost_reply);
        what = "the coordination service loses no more replies than before";
        break;
    case NEMESIS_RIVAL:
        sim_cluster_kill_rival(cluster);
        return;
    default:
        ASSERT(false);
    }
    journal_note(journal_of(nemesis), JOURNAL_FAULT,
                 spell->fault == NEMESIS_COORD_LOSES ? "" : process->name, "%s", what);
}

static void end_spell_at(struct nemesis *nemesis, uint32_t index)
{
    const struct spell spell = nemesis->spells[index];
    nemesis->spells[index] = nemesis->spells[--nemesis->spell_count];
    spell_end(nemesis, &spell);
}

static void end_spells(struct nemesis *nemesis, uint64_t until_ns)
{
    for (uint32_t i = nemesis->spell_count; i > 0; i--) {
        if (nemesis->spells[i - 1].end_ns <= until_ns)
            end_spell_at(nemesis, i - 1);
    }
}

/* What was done to a process that is to be killed, and cannot outlive it. */
static void end_spells_of(struct nemesis *nemesis, uint32_t process)
{
    for (uint32_t i = nemesis->spell_count; i > 0; i--) {
        const struct spell *spell = &nemesis->spells[i - 1];
        if (spell->process != process)
            continue;
        if (spell->fault == NEMESIS_COORD_PART || spell->fault == NEMESIS_DRY)
            end_spell_at(nemesis, i - 1);
        else if (spell->fault == NEMESIS_STOP) /* it never goes on */
            nemesis->spells[i - 1] = nemesis->spells[--nemesis->spell_count];
    }
}

/* --- ends and starts --- */

static bool power_may_fail(const struct nemesis *nemesis)
{
    return nemesis->options.power_loss_in > 0 &&
           nemesis->cluster->options.durability == PM_FENCE; /* N2 */
}

/* `power`: of its host too. */
static void kill_server(struct nemesis *nemesis, uint32_t index, bool power)
{
    bool up = is_up(nemesis, index);
    end_spells_of(nemesis, index);
    struct sim_pm_loss loss =
        sim_cluster_kill_server(nemesis->cluster, index + 1, power ? &nemesis->random : NULL);
    nemesis->kill_ns[index] = nemesis->start_ns[index] = WAKE_NEVER;
    nemesis->counts.crashes += up;
    nemesis->counts.power_losses += power;
    nemesis->counts.lost_fences += loss.fences;
    nemesis->counts.lost_words += loss.old;
}

static void kill_cm(struct nemesis *nemesis)
{
    end_spells_of(nemesis, cm_of(nemesis));
    sim_cluster_kill_cm(nemesis->cluster);
    nemesis->counts.crashes++;
    nemesis->start_cm_ns = now(nemesis) + draw_length(nemesis) / 2;
}

static void kill_all(struct nemesis *nemesis)
{
    bool may = power_may_fail(nemesis);
    bool together = may && one_in(nemesis, 1 + nemesis->options.power_loss_in);
    for (uint32_t i = 0; i < servers_of(nemesis); i++)
        kill_server(nemesis, i,
                    together || (may && one_in(nemesis, nemesis->options.power_loss_in)));
    if (nemesis->cluster->cm && one_in(nemesis, 2))
        kill_cm(nemesis);
}

/* N1: the others follow, at one moment or one by one. */
static void kill_one(struct nemesis *nemesis, uint32_t index)
{
    uint64_t follow_ns = now(nemesis) + draw_length(nemesis);
    uint64_t apart_ns = one_in(nemesis, 2) ? 0 : JITTER_NS;
    kill_server(nemesis, index,
                power_may_fail(nemesis) && one_in(nemesis, nemesis->options.power_loss_in));
    for (uint32_t i = 0; i < servers_of(nemesis); i++) {
        if (i == index)
            continue;
        uint64_t at_ns = follow_ns + below(nemesis, apart_ns + 1);
        if (at_ns < nemesis->kill_ns[i])
            nemesis->kill_ns[i] = at_ns;
        nemesis->start_ns[i] = WAKE_NEVER; /* the last start was not over yet */
    }
}

/* All are down: when each starts. */
static void plan_starts(struct nemesis *nemesis)
{
    uint64_t first_ns = now(nemesis) + draw_length(nemesis) / 2;
    uint64_t apart_ns = one_in(nemesis, 2) ? 0 : JITTER_NS;
    for (uint32_t i = 0; i < servers_of(nemesis); i++) {
        nemesis->kill_ns[i] = WAKE_NEVER;
        nemesis->start_ns[i] = first_ns + below(nemesis, apart_ns + 1);
    }
    if (nemesis->hasty < MAX_HASTY && one_in(nemesis, 3)) {
        nemesis->hasty++;
        nemesis->next_is_hasty = true;
        nemesis->next_ns = first_ns + below(nemesis, HASTY_NS + apart_ns);
    }
}

/* Its host may have lost power while it was down. */
static void start_server(struct nemesis *nemesis, uint32_t index)
{
    nemesis->start_ns[index] = WAKE_NEVER;
    if (power_may_fail(nemesis) && one_in(nemesis, 8 * (uint64_t)nemesis->options.power_loss_in))
        kill_server(nemesis, index, true);
    sim_cluster_start_server(nemesis->cluster, index + 1);
}

static bool starts_are_planned(const struct nemesis *nemesis)
{
    bool any = false;
    for (uint32_t i = 0; i < servers_of(nemesis); i++)
        any |= nemesis->start_ns[i] != WAKE_NEVER;
    return any;
}

static void end_and_start(struct nemesis *nemesis)
{
    for (uint32_t i = 0; i < servers_of(nemesis); i++) {
        if (nemesis->kill_ns[i] <= now(nemesis))
            kill_server(nemesis, i,
                        power_may_fail(nemesis) && one_in(nemesis, nemesis->options.power_loss_in));
    }
    if (!any_up(nemesis) && !starts_are_planned(nemesis))
        plan_starts(nemesis);
    for (uint32_t i = 0; i < servers_of(nemesis); i++) {
        if (nemesis->start_ns[i] <= now(nemesis))
            start_server(nemesis, i);
    }
    if (nemesis->start_cm_ns <= now(nemesis)) {
        nemesis->start_cm_ns = WAKE_NEVER;
        sim_cluster_start_cm(nemesis->cluster);
    }
}

/* --- faults that begin: false if this one cannot now --- */

static bool begin_cut(struct nemesis *nemesis)
{
    uint32_t a, b;
    draw_pair(nemesis, &a, &b);
    journal_note(journal_of(nemesis), JOURNAL_FAULT, name_of(nemesis, a),
                 "loses its connections with %s", name_of(nemesis, b));
    sim_network_break(nemesis->cluster->network, sim_cluster_process(nemesis->cluster, a)->address,
                      sim_cluster_process(nemesis->cluster, b)->address);
    return true;
}

/* Between two, or between one and all others. */
static bool begin_part(struct nemesis *nemesis, enum nemesis_fault fault)
{
    char from[48], to[48];
    uint32_t a, b, all = (UINT32_C(2) << cm_of(nemesis)) - 1;
    draw_pair(nemesis, &a, &b);
    bool from_all = one_in(nemesis, 8), to_all = !from_all && one_in(nemesis, 8);
    bool turned = one_in(nemesis, 2);
    struct spell *spell = spell_begin(nemesis, fault);
    spell->process = turned ? b : a;
    spell->from = from_all ? all : UINT32_C(1) << (turned ? b : a);
    spell->to = to_all ? all : UINT32_C(1) << (turned ? a : b);
    block(nemesis, spell, true);
    nemesis->counts.partitions++;
    journal_note(journal_of(nemesis), JOURNAL_FAULT, name_of(nemesis, spell->process),
                 "for %lu ms: what %s sends %s %s", milliseconds(nemesis, spell),
                 from_all ? "anybody" : names_of(nemesis, spell->from, from, sizeof from),
                 fault == NEMESIS_PART_BOTH_WAYS ? "does not arrive, or comes back, at"
                                                 : "does not arrive at",
                 to_all ? "anybody" : names_of(nemesis, spell->to, to, sizeof to));
    return true;
}

static bool begin_stall(struct nemesis *nemesis)
{
    uint32_t a, b;
    draw_pair(nemesis, &a, &b);
    struct spell *spell = spell_begin(nemesis, NEMESIS_STALL);
    spell->process = a;
    sim_network_stall(nemesis->cluster->network, sim_cluster_process(nemesis->cluster, a)->address,
                      sim_cluster_process(nemesis->cluster, b)->address,
                      spell->end_ns - now(nemesis));
    journal_note(journal_of(nemesis), JOURNAL_FAULT, name_of(nemesis, a),
                 "for %lu ms: all is late between it and %s", milliseconds(nemesis, spell),
                 name_of(nemesis, b));
    return true;
}

static bool begin_stop(struct nemesis *nemesis)
{
    uint32_t process = draw_process(nemesis);
    if (!is_up(nemesis, process) || sim_cluster_process(nemesis->cluster, process)->stopped)
        return false;
    spell_begin(nemesis, NEMESIS_STOP)->process = process;
    sim_cluster_stop(nemesis->cluster, sim_cluster_process(nemesis->cluster, process), true);
    return true;
}

static bool begin_slow(struct nemesis *nemesis)
{
    uint32_t index = draw_process(nemesis);
    struct sim_process *process = sim_cluster_process(nemesis->cluster, index);
    if (process->slow_ns)
        return false;
    struct spell *spell = spell_begin(nemesis, NEMESIS_SLOW);
    spell->process = index;
    process->slow_ns = 1 + below(nemesis, SLOW_NS >> below(nemesis, 8));
    process->due_ns = 0;
    journal_note(journal_of(nemesis), JOURNAL_FAULT, process->name,
                 "for %lu ms: has its turn every %lu us only", milliseconds(nemesis, spell),
                 process->slow_ns / NS_PER_US);
    return true;
}

static bool begin_dry(struct nemesis *nemesis)
{
    uint32_t index = draw_server(nemesis);
    struct sim_server *server = &nemesis->cluster->servers[index];
    if (!server->server || server->late_role)
        return false;
    struct spell *spell = spell_begin(nemesis, NEMESIS_DRY);
    spell->process = index;
    uint64_t most = spell->end_ns - now(nemesis);
    bool another = one_in(nemesis, 4);
    server->late_role = 1 + (another ? (uint32_t)below(nemesis, server_roles(server->server)) : 0);
    server->slow_role_ns = DRY_MIN_NS + below(nemesis, most);
    server->role_due_ns = 0;
    journal_note(journal_of(nemesis), JOURNAL_FAULT, server->process.name,
                 "for %lu ms: role %u has its turn every %lu ms only", milliseconds(nemesis, spell),
                 server->late_role - 1, server->slow_role_ns / NS_PER_MS);
    return true;
}

static bool begin_kill(struct nemesis *nemesis, enum nemesis_fault fault)
{
    uint32_t index = draw_server(nemesis);
    if (fault == NEMESIS_KILL_CM) {
        if (!nemesis->cluster->cm)
            return false;
        kill_cm(nemesis);
        return true;
    }
    if (!is_up(nemesis, index))
        return false;
    if (fault == NEMESIS_KILL_ALL)
        kill_all(nemesis);
    else
        kill_one(nemesis, index);
    return true;
}

static bool begin_coord(struct nemesis *nemesis, enum nemesis_fault fault)
{
    struct sim_cluster *cluster = nemesis->cluster;
    uint32_t cm = cm_of(nemesis);
    if (!cluster->cm || has_spell(nemesis, fault, cm))
        return false;
    if (fault == NEMESIS_COORD_EXPIRE) {
        sim_coord_expire(cluster->coord);
        journal_note(journal_of(nemesis), JOURNAL_FAULT, cluster->cm_process.name,
                     "its session at the coordination service expires");
        return true;
    }
    struct spell *spell = spell_begin(nemesis, fault);
    spell->process = cm;
    if (fault == NEMESIS_COORD_PART)
        sim_coord_part(cluster->coord, true);
    else
        sim_registry_lose_replies(cluster->registry, 1 + (uint32_t)below(nemesis, 4));
    journal_note(journal_of(nemesis), JOURNAL_FAULT, cluster->cm_process.name, "for %lu ms: %s",
                 milliseconds(nemesis, spell),
                 fault == NEMESIS_COORD_PART ? "does not reach the coordination service"
                                             : "the coordination service loses replies");
    return true;
}

static bool begin_rival(struct nemesis *nemesis)
{
    if (nemesis->cluster->rival.cm)
        return false;
    spell_begin(nemesis, NEMESIS_RIVAL);
    sim_cluster_start_rival(nemesis->cluster);
    return true;
}

static bool begin(struct nemesis *nemesis, enum nemesis_fault fault)
{
    bool lasts = fault != NEMESIS_CUT && fault != NEMESIS_COORD_EXPIRE &&
                 (fault < NEMESIS_KILL_ALL || fault > NEMESIS_KILL_CM);
    if (lasts && nemesis->spell_count == MAX_SPELLS)
        return false;
    switch (fault) {
    case NEMESIS_CUT:
        return begin_cut(nemesis);
    case NEMESIS_PART_ONE_WAY:
    case NEMESIS_PART_BOTH_WAYS:
        return begin_part(nemesis, fault);
    case NEMESIS_STALL:
        return begin_stall(nemesis);
    case NEMESIS_STOP:
        return begin_stop(nemesis);
    case NEMESIS_SLOW:
        return begin_slow(nemesis);
    case NEMESIS_DRY:
        return begin_dry(nemesis);
    case NEMESIS_KILL_ALL:
    case NEMESIS_KILL_ONE:
    case NEMESIS_KILL_CM:
        return begin_kill(nemesis, fault);
    case NEMESIS_RIVAL:
        return begin_rival(nemesis);
    default:
        return begin_coord(nemesis, fault);
    }
}

/* --- the schedule --- */

/* NEMESIS_FAULTS: none. */
static enum nemesis_fault draw_fault(struct nemesis *nemesis, bool hasty)
{
    uint64_t sum = 0;
    uint32_t weights[NEMESIS_FAULTS];
    for (uint32_t i = 0; i < NEMESIS_FAULTS; i++) {
        bool kills = i >= NEMESIS_KILL_ALL && i <= NEMESIS_KILL_CM;
        weights[i] = hasty && !kills ? 0 : nemesis->options.weights[i];
        sum += weights[i];
    }
    if (sum == 0)
        return NEMESIS_FAULTS;
    uint64_t draw = below(nemesis, sum);
    uint32_t fault = 0;
    while (draw >= weights[fault])
        draw -= weights[fault++];
    return (enum nemesis_fault)fault;
}

static void begin_next(struct nemesis *nemesis)
{
    bool hasty = nemesis->next_is_hasty;
    nemesis->next_is_hasty = false;
    if (!hasty)
        nemesis->hasty = 0;
    /* Now and then several come at once. */
    uint64_t pause_ns = nemesis->options.mean_pause_ns >> (one_in(nemesis, 4) ? 5 : 0);
    nemesis->next_ns = now(nemesis) + 1 + below(nemesis, 2 * pause_ns + 1);
    for (uint32_t i = 0; i < DRAWS; i++) {
        enum nemesis_fault fault = draw_fault(nemesis, hasty);
        if (fault == NEMESIS_FAULTS || !begin(nemesis, fault))
            continue;
        nemesis->counts.injected[fault]++;
        nemesis->counts.faults++;
        return;
    }
}

static void find_due(struct nemesis *nemesis)
{
    uint64_t due_ns = nemesis->next_ns;
    for (uint32_t i = 0; i < nemesis->spell_count; i++)
        due_ns = nemesis->spells[i].end_ns < due_ns ? nemesis->spells[i].end_ns : due_ns;
    for (uint32_t i = 0; i < servers_of(nemesis); i++) {
        due_ns = nemesis->kill_ns[i] < due_ns ? nemesis->kill_ns[i] : due_ns;
        due_ns = nemesis->start_ns[i] < due_ns ? nemesis->start_ns[i] : due_ns;
    }
    nemesis->due_ns = nemesis->start_cm_ns < due_ns ? nemesis->start_cm_ns : due_ns;
}

void nemesis_step(struct nemesis *nemesis)
{
    if (now(nemesis) < nemesis->due_ns)
        return;
    end_spells(nemesis, now(nemesis));
    if (nemesis->next_ns <= now(nemesis))
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
    end_spells(nemesis, WAKE_NEVER);
    sim_network_heal(cluster->network);
    bool fall = false;
    for (uint32_t i = 0; i < servers_of(nemesis); i++)
        fall |= nemesis->kill_ns[i] != WAKE_NEVER;
    for (uint32_t i = 0; i < servers_of(nemesis); i++) {
        if (fall)
            kill_server(nemesis, i, false); /* N1 */
        nemesis->kill_ns[i] = nemesis->start_ns[i] = WAKE_NEVER;
        if (!is_up(nemesis, i))
            sim_cluster_start_server(cluster, i + 1);
    }
    if (!cluster->cm)
        sim_cluster_start_cm(cluster);
    nemesis->next_ns = nemesis->start_cm_ns = nemesis->due_ns = WAKE_NEVER;
    nemesis->next_is_hasty = false;
    journal_note(journal_of(nemesis), JOURNAL_FAULT, "", "no further faults");
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
    nemesis->next_ns = now(nemesis) + 1 + below(nemesis, 2 * options->mean_pause_ns);
    find_due(nemesis);
    return nemesis;
}

void nemesis_destroy(struct nemesis *nemesis)
{
    free(nemesis);
}
