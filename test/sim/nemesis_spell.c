/* Faults of connections, of processes that live on, and of the coordination service: how each begins and ends. One
 * that lasts is a `spell`. Spells may overlap; a direction between two processes is open again when the last that
 * blocks it is over.
 */
#include <string.h>

#include "common/base/assert.h"
#include "test/sim/nemesis_state.h"

#define SLOW_NS    (10 * NS_PER_MS) /* a slow process has its turn at least so often */
#define DRY_MIN_NS (5 * NS_PER_MS)

/* --- drawing --- */

uint64_t nemesis_draw_length(struct nemesis *nemesis)
{
    uint64_t most = nemesis->options.max_length_ns >> (2 * nemesis_below(nemesis, 3));
    return 1 + nemesis_below(nemesis, most + 1);
}

bool nemesis_is_up(const struct nemesis *nemesis, uint32_t process)
{
    if (process == nemesis_cm(nemesis))
        return nemesis->cluster->cm != NULL;
    if (process == nemesis_rival(nemesis))
        return nemesis->cluster->rival.cm != NULL;
    return process >= nemesis_servers(nemesis) || nemesis->cluster->servers[process].server;
}

/* Up to so many of them. */
static uint64_t draw_leases(struct nemesis *nemesis, uint64_t leases)
{
    return 1 + nemesis_below(nemesis, leases * nemesis->options.lease_ns);
}

static uint32_t draw_client(struct nemesis *nemesis)
{
    return nemesis_servers(nemesis) +
           (uint32_t)nemesis_below(nemesis, nemesis->cluster->options.clients);
}

/* Servers more often than others. */
static uint32_t draw_process(struct nemesis *nemesis)
{
    uint64_t draw = nemesis_below(nemesis, 8);
    return draw < 5   ? nemesis_draw_server(nemesis)
           : draw < 7 ? draw_client(nemesis)
                      : nemesis_cm(nemesis);
}

static void draw_pair(struct nemesis *nemesis, uint32_t *a, uint32_t *b)
{
    *a = nemesis_below(nemesis, 8) ? nemesis_draw_server(nemesis) : nemesis_cm(nemesis);
    do {
        *b = draw_process(nemesis);
    } while (*b == *a);
}

static const char *name_of(const struct nemesis *nemesis, uint32_t process)
{
    return nemesis_process(nemesis, process)->name;
}

/* --- spells --- */

struct spell *nemesis_spell_begin(struct nemesis *nemesis, enum nemesis_fault fault,
                                  uint64_t length_ns)
{
    ASSERT(nemesis->spell_count < MAX_SPELLS);
    struct spell *spell = &nemesis->spells[nemesis->spell_count++];
    length_ns = length_ns ? length_ns : nemesis_draw_length(nemesis);
    *spell = (struct spell){.fault = fault, .end_ns = nemesis_now(nemesis) + length_ns};
    return spell;
}

static struct spell *spell_begin(struct nemesis *nemesis, enum nemesis_fault fault)
{
    return nemesis_spell_begin(nemesis, fault, 0);
}

static bool has_fault(const struct nemesis *nemesis, enum nemesis_fault fault)
{
    bool any = false;
    for (uint32_t i = 0; i < nemesis->spell_count; i++)
        any |= nemesis->spells[i].fault == fault;
    return any;
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
    return (spell->end_ns - nemesis_now(nemesis)) / NS_PER_MS;
}

/* "server-1 server-2", as far as there is room. */
static const char *names_of(const struct nemesis *nemesis, uint32_t set, char *out, size_t bytes)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i <= nemesis_rival(nemesis) && at < bytes; i++) {
        if (set >> i & 1)
            at +=
                (size_t)snprintf(out + at, bytes - at, "%s%s", at ? " " : "", name_of(nemesis, i));
    }
    return out;
}

void nemesis_block(struct nemesis *nemesis, uint32_t from, uint32_t to, bool blocked)
{
    uint8_t *spells = &nemesis->blocked[from][to];
    const bool before = *spells > 0;
    *spells = (uint8_t)(blocked ? *spells + 1 : *spells - 1);
    if ((*spells > 0) != before)
        sim_network_block(nemesis->cluster->network, nemesis_process(nemesis, from)->address,
                          nemesis_process(nemesis, to)->address, blocked);
}

static void block(struct nemesis *nemesis, const struct spell *spell, bool blocked)
{
    for (uint32_t from = 0; from <= nemesis_rival(nemesis); from++) {
        for (uint32_t to = 0; to <= nemesis_rival(nemesis); to++) {
            if (from == to || !(spell->from >> from & 1) || !(spell->to >> to & 1))
                continue;
            nemesis_block(nemesis, from, to, blocked);
            if (spell->fault == NEMESIS_PART_BOTH_WAYS || spell->fault == NEMESIS_SPLIT)
                nemesis_block(nemesis, to, from, blocked);
        }
    }
}

/* The CM and the coordination service. */
static void part_coord(struct nemesis *nemesis, struct spell *spell, bool parted)
{
    const bool before = nemesis->coord_parts > 0;
    spell->coord = parted;
    nemesis->coord_parts += parted ? 1 : UINT32_MAX;
    if ((nemesis->coord_parts > 0) != before)
        sim_coord_partition(nemesis->cluster->coord, parted);
}

static void spell_end(struct nemesis *nemesis, struct spell *spell)
{
    struct sim_cluster *cluster = nemesis->cluster;
    struct sim_process *process = nemesis_process(nemesis, spell->process);
    const char *what = "";
    switch (spell->fault) {
    case NEMESIS_PART_ONE_WAY:
    case NEMESIS_PART_BOTH_WAYS:
    case NEMESIS_DEAF:
    case NEMESIS_SPLIT:
        block(nemesis, spell, false);
        if (spell->coord)
            part_coord(nemesis, spell, false);
        what = "can be heard again";
        break;
    case NEMESIS_STALL:
        what = "is stalled no more";
        break;
    case NEMESIS_STOP:
        sim_cluster_stop(cluster, process, false);
        return;
    case NEMESIS_SLOW:
        process->slow_ns = cluster->limps_ns = 0;
        what = "is as fast as before";
        break;
    case NEMESIS_DRY:
        cluster->servers[spell->process].late[spell->role] = (struct sim_late_role){0};
        what = "has a late role less";
        break;
    case NEMESIS_COORD_PART:
        part_coord(nemesis, spell, false);
        what = "reaches the coordination service again";
        break;
    case NEMESIS_COORD_LOSES:
        sim_registry_lose_replies(cluster->registry, cluster->options.registry.lost_reply);
        what = "the coordination service loses no more replies than before";
        break;
    case NEMESIS_RIVAL:
        nemesis_end_of(nemesis, nemesis_rival(nemesis));
        sim_cluster_kill_rival(cluster);
        return;
    case NEMESIS_BACK:
        nemesis_back_end(nemesis);
        return;
    default:
        ASSERT(false);
    }
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT,
                 spell->fault == NEMESIS_COORD_LOSES ? "" : process->name, "%s", what);
}

static void end_spell_at(struct nemesis *nemesis, uint32_t index)
{
    struct spell spell = nemesis->spells[index];
    nemesis->spells[index] = nemesis->spells[--nemesis->spell_count];
    spell_end(nemesis, &spell);
}

void nemesis_end(struct nemesis *nemesis, uint64_t until_ns)
{
    for (uint32_t i = nemesis->spell_count; i > 0; i--) {
        if (i <= nemesis->spell_count && nemesis->spells[i - 1].end_ns <= until_ns)
            end_spell_at(nemesis, i - 1); /* perhaps with others */
    }
}

void nemesis_end_of(struct nemesis *nemesis, uint32_t process)
{
    for (uint32_t i = nemesis->spell_count; i > 0; i--) {
        struct spell *spell = &nemesis->spells[i - 1];
        if (spell->coord && spell->fault == NEMESIS_SPLIT && process == nemesis_cm(nemesis))
            part_coord(nemesis, spell, false);
        if (spell->process != process)
            continue;
        if (spell->fault == NEMESIS_COORD_PART || spell->fault == NEMESIS_DRY)
            end_spell_at(nemesis, i - 1);
        else if (spell->fault == NEMESIS_STOP) /* it never goes on */
            nemesis->spells[i - 1] = nemesis->spells[--nemesis->spell_count];
    }
}

/* --- faults that begin: false if this one cannot now --- */

void nemesis_cut(struct nemesis *nemesis, uint32_t a, uint32_t b)
{
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, name_of(nemesis, a),
                 "loses its connections with %s", name_of(nemesis, b));
    sim_network_break(nemesis->cluster->network, sim_cluster_process(nemesis->cluster, a)->address,
                      sim_cluster_process(nemesis->cluster, b)->address);
}

void nemesis_cut_each(struct nemesis *nemesis, uint64_t span_ns)
{
    const uint32_t servers = nemesis_servers(nemesis), cm = nemesis_cm(nemesis);
    for (uint32_t a = 0; a < servers; a++) {
        for (uint32_t b = a + 1; b < cm; b++) {
            nemesis->cut_ns[a][b] = nemesis_now(nemesis) + nemesis_below(nemesis, span_ns + 1);
            nemesis->cuts++;
        }
    }
    nemesis->due_ns = nemesis_now(nemesis);
}

uint64_t nemesis_next_cut_ns(const struct nemesis *nemesis)
{
    const uint32_t servers = nemesis_servers(nemesis), cm = nemesis_cm(nemesis);
    uint64_t next_ns = WAKE_NEVER;
    for (uint32_t a = 0; a < servers; a++) {
        for (uint32_t b = a + 1; b < cm; b++)
            next_ns = nemesis->cut_ns[a][b] < next_ns ? nemesis->cut_ns[a][b] : next_ns;
    }
    return next_ns;
}

void nemesis_cut_due(struct nemesis *nemesis)
{
    const uint32_t servers = nemesis_servers(nemesis), cm = nemesis_cm(nemesis);
    for (uint32_t a = 0; a < servers; a++) {
        for (uint32_t b = a + 1; b < cm; b++) {
            if (nemesis->cut_ns[a][b] > nemesis_now(nemesis))
                continue;
            nemesis->cut_ns[a][b] = WAKE_NEVER;
            nemesis->cuts--;
            nemesis_cut(nemesis, a, b);
        }
    }
}

static bool begin_cut(struct nemesis *nemesis)
{
    uint32_t a, b;
    draw_pair(nemesis, &a, &b);
    nemesis_cut(nemesis, a, b);
    return true;
}

void nemesis_stall(struct nemesis *nemesis, uint32_t a, uint32_t b, uint64_t length_ns)
{
    if (nemesis->spell_count == MAX_SPELLS)
        return;
    struct spell *spell = nemesis_spell_begin(nemesis, NEMESIS_STALL, length_ns);
    spell->process = a;
    sim_network_stall(nemesis->cluster->network, sim_cluster_process(nemesis->cluster, a)->address,
                      sim_cluster_process(nemesis->cluster, b)->address,
                      spell->end_ns - nemesis_now(nemesis));
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, name_of(nemesis, a),
                 "for %lu ms: all is late between it and %s", milliseconds(nemesis, spell),
                 name_of(nemesis, b));
}

static bool begin_stall(struct nemesis *nemesis)
{
    uint32_t a, b;
    draw_pair(nemesis, &a, &b);
    nemesis_stall(nemesis, a, b, 0);
    return true;
}

bool nemesis_stop(struct nemesis *nemesis, uint32_t process, uint64_t length_ns)
{
    if (nemesis->spell_count == MAX_SPELLS || !nemesis_is_up(nemesis, process) ||
        nemesis_process(nemesis, process)->stopped)
        return false;
    nemesis_spell_begin(nemesis, NEMESIS_STOP, length_ns)->process = process;
    sim_cluster_stop(nemesis->cluster, nemesis_process(nemesis, process), true);
    return true;
}

/* Between two, or between one and all others. */
static bool begin_part(struct nemesis *nemesis, enum nemesis_fault fault)
{
    char from[48], to[48];
    uint32_t a, b, all = (UINT32_C(2) << nemesis_cm(nemesis)) - 1;
    draw_pair(nemesis, &a, &b);
    bool from_all = nemesis_one_in(nemesis, 8), to_all = !from_all && nemesis_one_in(nemesis, 8);
    bool turned = nemesis_one_in(nemesis, 2);
    struct spell *spell = spell_begin(nemesis, fault);
    spell->process = turned ? b : a;
    spell->from = from_all ? all : UINT32_C(1) << (turned ? b : a);
    spell->to = to_all ? all : UINT32_C(1) << (turned ? a : b);
    block(nemesis, spell, true);
    nemesis->counts.partitions++;
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, name_of(nemesis, spell->process),
                 "for %lu ms: what %s sends %s %s", milliseconds(nemesis, spell),
                 from_all ? "anybody" : names_of(nemesis, spell->from, from, sizeof from),
                 fault == NEMESIS_PART_BOTH_WAYS ? "does not arrive, or comes back, at"
                                                 : "does not arrive at",
                 to_all ? "anybody" : names_of(nemesis, spell->to, to, sizeof to));
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
    process->slow_ns = 1 + nemesis_below(nemesis, SLOW_NS >> nemesis_below(nemesis, 8));
    const uint64_t lease_ns = nemesis->options.lease_ns;
    if (lease_ns && index < nemesis->cluster->options.servers && nemesis_one_in(nemesis, 3))
        process->slow_ns = lease_ns + nemesis_below(nemesis, lease_ns); /* it limps */
    process->due_ns = 0;
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, process->name,
                 "for %lu ms: has its turn every %lu us only", milliseconds(nemesis, spell),
                 process->slow_ns / NS_PER_US);
    return true;
}

static bool any_is_late(const struct sim_server *server)
{
    bool any = false;
    for (uint32_t i = 0; i < SIM_MAX_ROLES; i++)
        any |= server->late[i].every_ns > 0;
    return any;
}

/* Soon a primary ends of which it is a backup. */
static void kill_primary_of(struct nemesis *nemesis, uint32_t index, uint64_t within_ns)
{
    const struct cluster_config *config = sim_cluster_config(nemesis->cluster);
    const uint64_t at_ns = nemesis_now(nemesis) + nemesis_below(nemesis, within_ns);
    for (uint32_t i = 0; config && i < config->shard_count; i++) {
        if (!shard_has_backup(&config->shards[i], index + 1))
            continue;
        nemesis->kill_ns[config->shards[i].primary - 1] = at_ns;
        return;
    }
}

/* With leases roles may be late for longer than others wait for them, several of a server at once; or a digest role, which
 * has not applied all when its server is to lead a shard. */
static bool begin_dry(struct nemesis *nemesis)
{
    const uint32_t index = nemesis_draw_server(nemesis);
    const bool leases = nemesis_replaces(nemesis);
    struct sim_server *server = &nemesis->cluster->servers[index];
    if (!server->server || (!leases && any_is_late(server)))
        return false;
    uint64_t length_ns = nemesis_draw_length(nemesis);
    const bool another = nemesis_one_in(nemesis, leases ? 2 : 4);
    const bool kills = leases && nemesis->rose_ns != WAKE_NEVER && nemesis_one_in(nemesis, 2);
    const uint32_t digests = nemesis->cluster->options.digests;
    const uint32_t role =
        kills     ? server_roles(server->server) - 2 - (uint32_t)nemesis_below(nemesis, digests)
        : another ? (uint32_t)nemesis_below(nemesis, server_roles(server->server))
                  : 0;
    if (server->late[role].every_ns)
        return false;
    if (leases)
        length_ns += draw_leases(nemesis, 12);
    struct spell *spell = nemesis_spell_begin(nemesis, NEMESIS_DRY, length_ns);
    spell->process = index;
    spell->role = role;
    server->late[role].every_ns = DRY_MIN_NS + nemesis_below(nemesis, length_ns);
    server->late[role].due_ns = 0;
    if (kills)
        kill_primary_of(nemesis, index, server->late[role].every_ns);
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, server->process.name,
                 "for %lu ms: role %u has its turn every %lu ms only", milliseconds(nemesis, spell),
                 role, server->late[role].every_ns / NS_PER_MS);
    return true;
}

static bool begin_coord(struct nemesis *nemesis, enum nemesis_fault fault)
{
    struct sim_cluster *cluster = nemesis->cluster;
    uint32_t cm = nemesis_cm(nemesis);
    if (!cluster->cm || has_spell(nemesis, fault, cm))
        return false;
    if (fault == NEMESIS_COORD_EXPIRE) {
        sim_coord_expire(cluster->coord);
        journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, cluster->cm_process.name,
                     "its session at the coordination service expires");
        return true;
    }
    struct spell *spell = spell_begin(nemesis, fault);
    spell->process = cm;
    if (fault == NEMESIS_COORD_PART)
        part_coord(nemesis, spell, true);
    else
        sim_registry_lose_replies(cluster->registry, 1 + (uint32_t)nemesis_below(nemesis, 4));
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, cluster->cm_process.name,
                 "for %lu ms: %s", milliseconds(nemesis, spell),
                 fault == NEMESIS_COORD_PART ? "does not reach the coordination service"
                                             : "the coordination service loses replies");
    return true;
}

/* Some of the servers and clients, perhaps one CM. */
static uint32_t draw_side(struct nemesis *nemesis)
{
    const uint32_t servers = nemesis_servers(nemesis), cm = nemesis_cm(nemesis);
    const bool some = nemesis_one_in(nemesis, 4);
    uint32_t side = UINT32_C(1) << nemesis_draw_server(nemesis);
    for (uint32_t i = 0; i < servers && some; i++)
        side |= (uint32_t)nemesis_one_in(nemesis, 3) << i;
    for (uint32_t i = servers; i < cm;
         i++) { /* readers, which are the first half, more often than others */
        const bool first = 2 * (i - servers) < cm - servers - 1;
        side |= (uint32_t)(nemesis_one_in(nemesis, 4) ? !first : first) << i;
    }
    if (nemesis_one_in(nemesis, 3))
        side |= UINT32_C(1) << (nemesis_one_in(nemesis, 4) ? cm + 1 : cm);
    return side;
}

/* Who is on that side and stops: it goes on with what was true before, as others see it, or with what came meanwhile. */
static void stop_some(struct nemesis *nemesis, uint32_t side, uint64_t length_ns)
{
    for (uint32_t i = 0; i <= nemesis_rival(nemesis); i++) {
        const bool is_client = i >= nemesis_servers(nemesis) && i < nemesis_cm(nemesis);
        if (!(side >> i & 1) || is_client || nemesis_one_in(nemesis, 3))
            continue;
        (void)nemesis_stop(nemesis, i,
                           length_ns * 3 / 4 + nemesis_below(nemesis, length_ns * 3 / 8));
    }
}

/* Those clients hear of no other primary than theirs, and of nobody's but its writes. A CM that is among them does not
 * reach the coordination service, mostly: then another one may take over, on the other side. */
static bool begin_split(struct nemesis *nemesis)
{
    char from[64];
    const uint32_t cm = nemesis_cm(nemesis), all = (UINT32_C(4) << cm) - 1;
    if (!nemesis_replaces(nemesis) || has_fault(nemesis, NEMESIS_SPLIT) ||
        (nemesis->rose_ns == WAKE_NEVER && !nemesis_one_in(nemesis, 8)))
        return false;
    uint64_t length_ns = draw_leases(nemesis, nemesis_one_in(nemesis, 2) ? 4 : 9);
    const uint32_t side = draw_side(nemesis);
    const bool managed = side >> cm & 1;
    if (!nemesis_one_in(nemesis, 4)) /* long enough for others to lead */
        length_ns += 3 * nemesis->options.lease_ns;
    if (managed && nemesis_one_in(nemesis, 2)) /* a new manager gives its members more time */
        length_ns += 2 * NS_PER_S + nemesis_below(nemesis, NS_PER_S);
    struct spell *spell = nemesis_spell_begin(nemesis, NEMESIS_SPLIT, length_ns);
    spell->process = (uint32_t)__builtin_ctz(side);
    spell->from = side;
    spell->to = all & ~side;
    block(nemesis, spell, true);
    if (managed && nemesis->cluster->cm && !nemesis_one_in(nemesis, 8))
        part_coord(nemesis, spell, true);
    nemesis->counts.partitions++;
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, name_of(nemesis, spell->process),
                 "for %lu ms: %s reach nobody else%s", milliseconds(nemesis, spell),
                 names_of(nemesis, spell->from, from, sizeof from),
                 spell->coord ? ", nor the coordination service" : "");
    if (managed)
        (void)nemesis_rival_begins(nemesis, length_ns + draw_leases(nemesis, 12));
    if (!nemesis_one_in(nemesis, 4))
        stop_some(nemesis, side, length_ns);
    if (nemesis_one_in(nemesis, 2)) /* nothing else comes meanwhile */
        nemesis->next_ns = nemesis_now(nemesis) + length_ns;
    return true;
}

/* Until its connections break of the silence what it sends is done, and it hears of none of that. The servers have
 * cleaned much of it when they start again (N1: all of them end), and then it asks again. With leases two of them end
 * meanwhile, if they differ, and others lead their shards when it asks again. */
static bool begin_deaf(struct nemesis *nemesis)
{
    const uint32_t client = draw_client(nemesis), servers = nemesis_servers(nemesis);
    if (has_spell(nemesis, NEMESIS_DEAF, client))
        return false;
    struct spell *spell = spell_begin(nemesis, NEMESIS_DEAF);
    spell->process = client;
    spell->from = (UINT32_C(1) << servers) - 1;
    spell->to = UINT32_C(1) << client;
    spell->end_ns = nemesis_now(nemesis) + nemesis->options.deaf_ns;
    for (uint32_t i = 0; i < servers && !nemesis_replaces(nemesis); i++)
        nemesis->kill_ns[i] = spell->end_ns;
    for (uint32_t i = 0; i < 2 && nemesis_replaces(nemesis); i++)
        nemesis->kill_ns[nemesis_draw_server(nemesis)] =
            nemesis_now(nemesis) + nemesis_below(nemesis, nemesis->options.deaf_ns);
    block(nemesis, spell, true);
    nemesis->counts.partitions++;
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, name_of(nemesis, client),
                 "for %lu ms: hears nothing of the servers, which end %s",
                 milliseconds(nemesis, spell), nemesis_replaces(nemesis) ? "one by one" : "then");
    return true;
}

static bool begin_kill_client(struct nemesis *nemesis)
{
    uint32_t index = draw_client(nemesis);
    nemesis_end_of(nemesis, index);
    sim_cluster_kill_client(nemesis->cluster, index - nemesis_servers(nemesis));
    nemesis->counts.crashes++;
    return true;
}

/* A manager's does not jump: by it the leases of others end. All jumps of a process take less than what servers remember
 * clients longer for (swarm.c, keep_ns). */
static bool begin_clock(struct nemesis *nemesis)
{
    const uint32_t at = draw_process(nemesis), drift = nemesis->cluster->options.drift_ppm;
    const uint64_t most_ns = nemesis->options.max_length_ns;
    struct sim_process *process = nemesis_process(nemesis, at);
    uint64_t jump_ns = nemesis_below(nemesis, most_ns / 4);
    if (at >= nemesis_cm(nemesis) || nemesis_one_in(nemesis, 2) ||
        process->jumped_ns + jump_ns > most_ns)
        jump_ns = 0;
    sim_cluster_set_clock(nemesis->cluster, at,
                          (int32_t)nemesis_below(nemesis, 2 * drift + 1) - (int32_t)drift, jump_ns);
    journal_note(nemesis_journal(nemesis), JOURNAL_FAULT, process->name,
                 "its clock jumps %lu us ahead and runs on at %d ppm", jump_ns / NS_PER_US,
                 process->rate_ppm);
    return true;
}

bool nemesis_begin(struct nemesis *nemesis, enum nemesis_fault fault)
{
    bool lasts = fault != NEMESIS_CUT && fault != NEMESIS_COORD_EXPIRE &&
                 fault != NEMESIS_KILL_CLIENT && fault < NEMESIS_CLOCK;
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
        return nemesis_stop(nemesis, draw_process(nemesis), 0);
    case NEMESIS_SLOW:
        return begin_slow(nemesis);
    case NEMESIS_DRY:
        return begin_dry(nemesis);
    case NEMESIS_RIVAL:
        return nemesis_rival_begins(nemesis, 0);
    case NEMESIS_SPLIT:
        return begin_split(nemesis);
    case NEMESIS_KILL_CLIENT:
        return begin_kill_client(nemesis);
    case NEMESIS_DEAF:
        return begin_deaf(nemesis);
    case NEMESIS_CLOCK:
        return begin_clock(nemesis);
    case NEMESIS_PLAN:
        return nemesis_plan(nemesis);
    case NEMESIS_LIMP:
        return nemesis_limp(nemesis);
    case NEMESIS_BACK:
        return nemesis_back(nemesis);
    default:
        return begin_coord(nemesis, fault);
    }
}
