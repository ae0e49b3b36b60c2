/* What the logs say, and may not: no run damages bytes or loses what was fenced, so nobody may find damage or
 * loss. A role that heals what another one broke would hide it from all other checkers.
 */
#include <stdio.h>
#include <string.h>

#include "server/clean/clean_state.h"
#include "test/sim/checks_state.h"
#include "test/sim/sim_fault.h"
#include "test/sim/sim_log.h"

/* Lines that contain `unless` are right (NULL: none is). */
static const struct {
    const char *event, *unless, *why;
} UNPROVOKED[] = {
    /* Only whole entries get into a tail or an index, and nobody writes over them. */
    {"entry_damaged", NULL, "an entry that was whole is not"},
    /* An entry that says so lies behind all that it covers, from one sender over one connection. */
    {"versions_missing", NULL,
     "a committed version had not arrived in front of the word that it is"},
    {"version_lost", NULL, "a primary lacks a version that it committed"},
    {"versions_lost", NULL, "no replica has a committed version"},
    {"holes_filled", NULL, "a replica lacks what all had"},
    {"pm_damaged", NULL, "what was made void is not"},
    {"possible_loss", NULL,
     "data that may be incomplete, and no host without fences has lost power"},
    {"replicas_dropped", NULL, "a server came back without the data that it held"},
    {"commit_garbage", NULL, "commit versions that nobody wrote so"},
    {"configuration_is_old", NULL, "what is stored is the newest that there was"},
    /* Epochs rise before they are used, so a start finds no entry of its own one. */
    {"recovered", " strange=0 ", "entries of an epoch that had not begun"},
    /* There are a million places, or 128 Ki clients. */
    {"record_lost", NULL, "a completion record found no place"},
    {"records_lost", NULL, "completion records found no place"},
    {"clients_not_recalled", NULL, "clients found no place"},
    {"client_refused", NULL, "a client found no place"},
    {"link_refused", NULL, "a connection found no place"},
    {"connection_refused", NULL, "a connection found no place"},
    /* Everybody speaks the protocol, and messages arrive whole or not at all. */
    {"client_garbage", NULL, "a client sent what is no request"},
    {"link_garbage", NULL, "a peer sent what is no message"},
    {"peer_garbage", NULL, "a peer sent what is no message"},
    {"cm_garbage", NULL, "the CM sent what is no message"},
    {"configuration_damaged", NULL, "the CM sent what is no configuration"},
    /* Where nothing needs to be cleaned there is PM for all that a run writes, on every server. The site NO_SEGMENT takes
     * none. */
    {"pm_full", NULL, "space is lost"},
    {"entries_refused", NULL, "a primary brought entries that nobody asked for, or damaged ones"},
    /* A union waits where there is no space. Everything else is a backup's bad answer. */
    {"reconciliation_stuck", "error=ROWAN_EFULL", "a backup gave an answer that cannot be used"},
};

enum { EVENTS = sizeof UNPROVOKED / sizeof UNPROVOKED[0] };

/* Whose shard is it? */
static uint32_t shard_in(const char *line)
{
    const char *at = strstr(line, "shard=");
    uint32_t shard;
    return at && sscanf(at, "shard=%u", &shard) == 1 ? shard : JOURNAL_NO_SHARD;
}

bool checks_lost_block(const struct checks_server *server)
{
    const char *name = server->checks->cluster->servers[server->number].process.name;
    return sim_fault_count_at(FAULT_BLOCK_LOST, name) > server->lost_before;
}

bool checks_has_hidden(const struct checks_server *server)
{
    const struct sim_cluster *cluster = server->checks->cluster;
    const char *name = cluster->servers[server->number].process.name;
    return sim_fault_count_at(FAULT_BLOCK_LOST, name) > 0 &&
           clean_checkpoint_ns < cluster->clock.now_ns;
}

static bool any_has_hidden(const struct checks *checks)
{
    bool any = false;
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++)
        any |= checks_has_hidden(&checks->servers[i]);
    return any;
}

static bool any_has_lost(const struct sim_cluster *cluster)
{
    bool any = false;
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        any |= cluster->servers[i].emptied > 0;
    return any;
}

/* The stored configuration takes the shard from it, and its primary knows that first: it sends it no more of the shard, but the
 * entry that tells others of commit versions. */
static bool has_left(const struct checks *checks, uint32_t server, const char *line)
{
    const struct shard *row =
        checks->config ? cluster_shard(checks->config, (uint16_t)shard_in(line)) : NULL;
    return row && !shard_names(row, server);
}

/* What a digest role does not see is missing there, until the primary has sent it again: also when the sites are off. */
static bool is_provoked(const struct checks *checks, const char *node, const char *event,
                        const char *line)
{
    static const char *const EVENTS_OF_FLIPS[] = {"holes_filled", "pm_damaged", "replicas_dropped"};
    if (strcmp(event, "pm_full") == 0)
        return checks->load && load_may_fill(checks->load);
    if (strcmp(event, "configuration_is_old") == 0)
        return checks->cluster->went_back > 0;
    for (unsigned i = 0; i < sizeof EVENTS_OF_FLIPS / sizeof EVENTS_OF_FLIPS[0]; i++) {
        if (strcmp(event, EVENTS_OF_FLIPS[i]) == 0 && checks->flips)
            return true;
    }
    if (strcmp(event, "replicas_dropped") == 0 && any_has_lost(checks->cluster))
        return true;
    if (strcmp(event, "holes_filled") == 0 && any_has_hidden(checks))
        return true;
    if (strcmp(event, "versions_missing") != 0)
        return false;
    uint32_t number = 0;
    while (number < checks->cluster->options.servers &&
           strcmp(checks->cluster->servers[number].process.name, node) != 0)
        number++;
    return number < checks->cluster->options.servers &&
           (checks_lost_block(&checks->servers[number]) || has_left(checks, number + 1, line));
}

/* Right behind a power loss where nothing is fenced. A server cannot know whether that took anything: its data may be
 * incomplete all the same. With many holes in front of them, versions of the next epoch are forgotten as they arrive,
 * and asked for when they are committed (server/shard/prefix.h); holes are what was taken. */
static bool is_loss(const struct checks *checks, const char *event)
{
    if (strcmp(event, "possible_loss") == 0 || strcmp(event, "replicas_dropped") == 0)
        return sim_cluster_any_rebooted_unfenced(checks->cluster);
    return checks->lost_unfenced &&
           (strcmp(event, "versions_lost") == 0 || strcmp(event, "versions_missing") == 0);
}

static void on_line(void *context, const char *node, const char *event, const char *line)
{
    struct checks *checks = context;
    checks->counts.from_checkpoint +=
        strcmp(event, "recovered") == 0 && !strstr(line, " restored=0 ");
    for (unsigned i = 0; i < EVENTS; i++) {
        if (strcmp(event, UNPROVOKED[i].event) != 0 ||
            (UNPROVOKED[i].unless && strstr(line, UNPROVOKED[i].unless)) ||
            is_provoked(checks, node, event, line) || is_loss(checks, event))
            continue;
        checks_fail(checks, "unprovoked", JOURNAL_NO_KEY, shard_in(line), "%s: %s (%s %s)", node,
                    UNPROVOKED[i].why, event, line);
    }
}

void checks_log_open(struct checks *checks)
{
    sim_log_observe(on_line, checks);
}

void checks_log_close(struct checks *checks)
{
    (void)checks;
    sim_log_observe(NULL, NULL);
}
