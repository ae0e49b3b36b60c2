/* Hosts of the simulated network and what lies between them; and the times at which something may happen.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "test/sim/sim_fabric_state.h"

/* --- alarms --- */

void sim_alarm(struct sim_network *network, uint64_t at_ns)
{
    struct sim_alarms *alarms = network->alarms;
    if (at_ns <= sim_network_now(network) || at_ns == WAKE_NEVER)
        return;
    if (alarms->count && alarms->times[0] == at_ns)
        return;
    if (alarms->count == alarms->room) {
        alarms->room = alarms->room ? 2 * alarms->room : 256;
        alarms->times = realloc(alarms->times, alarms->room * sizeof alarms->times[0]);
        ASSERT(alarms->times);
    }
    uint32_t at = alarms->count++;
    while (at > 0 && alarms->times[(at - 1) / 2] > at_ns) {
        alarms->times[at] = alarms->times[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    alarms->times[at] = at_ns;
}

static void drop_first(struct sim_alarms *alarms)
{
    uint64_t moved = alarms->times[--alarms->count];
    uint32_t at = 0, child;
    while ((child = 2 * at + 1) < alarms->count) {
        if (child + 1 < alarms->count && alarms->times[child + 1] < alarms->times[child])
            child++;
        if (alarms->times[child] >= moved)
            break;
        alarms->times[at] = alarms->times[child];
        at = child;
    }
    alarms->times[at] = moved;
}

uint64_t sim_network_next_ns(const struct sim_network *network)
{
    struct sim_alarms *alarms = network->alarms;
    while (alarms->count && alarms->times[0] <= sim_network_now(network))
        drop_first(alarms);
    return alarms->count ? alarms->times[0] : WAKE_NEVER;
}

/* --- hosts and paths --- */

uint32_t sim_host(struct sim_network *network, const char *address)
{
    for (uint32_t i = 0; i < network->host_count; i++) {
        if (strcmp(network->hosts[i].name, address) == 0)
            return i;
    }
    ASSERT(network->host_count < SIM_MAX_HOSTS && strlen(address) < SIM_MAX_NAME);
    strcpy(network->hosts[network->host_count].name, address);
    return network->host_count++;
}

/* What was held up may go on. */
static void wake_all(struct sim_network *network)
{
    for (struct sim_endpoint *at = network->endpoints.first; at; at = at->link.next)
        at->due_ns = 0;
    network->progress++;
}

static void break_all(struct sim_network *network, uint32_t a, uint32_t b)
{
    for (struct sim_endpoint *at = network->endpoints.first; at; at = at->link.next) {
        if (at->fabric->host != a)
            continue;
        for (struct sim_conn *conn = at->conns.first; conn; conn = conn->link.next) {
            if (conn->remote == b)
                sim_conn_break(conn);
        }
    }
}

void sim_network_break(struct sim_network *network, const char *a, const char *b)
{
    break_all(network, sim_host(network, a), sim_host(network, b));
}

bool sim_network_sends(struct sim_network *network, const char *from, const char *to)
{
    uint32_t a = sim_host(network, from), b = sim_host(network, to);
    for (const struct sim_endpoint *at = network->endpoints.first; at; at = at->link.next) {
        for (const struct sim_conn *conn = at->fabric->host == a ? at->conns.first : NULL; conn;
             conn = conn->link.next) {
            if (conn->remote == b && conn->block_landed < conn->block_flushed)
                return true;
        }
    }
    return false;
}

static void find_next_silence(struct sim_network *network)
{
    network->silence_at_ns = WAKE_NEVER;
    for (uint32_t from = 0; from < network->host_count && network->options.silence_ns; from++) {
        for (uint32_t to = 0; to < network->host_count; to++) {
            const struct sim_path *path = &network->paths[from][to];
            uint64_t at_ns = path->blocked_ns + network->options.silence_ns;
            if (path->blocked && !path->silent && at_ns < network->silence_at_ns)
                network->silence_at_ns = at_ns;
        }
    }
    sim_alarm(network, network->silence_at_ns);
}

void sim_network_silence(struct sim_network *network)
{
    for (uint32_t from = 0; from < network->host_count; from++) {
        for (uint32_t to = 0; to < network->host_count; to++) {
            struct sim_path *path = &network->paths[from][to];
            if (!path->blocked || path->silent ||
                path->blocked_ns + network->options.silence_ns > sim_network_now(network))
                continue;
            path->silent = true;
            break_all(network, from, to);
            break_all(network, to, from); /* of some only that side is left */
        }
    }
    find_next_silence(network);
}

static void unblock(struct sim_network *network, struct sim_path *path)
{
    if (!path->blocked)
        return;
    path->blocked = false;
    path->hold_ns = sim_network_now(network) + sim_network_delay(network);
    sim_alarm(network, path->hold_ns);
}

void sim_network_block(struct sim_network *network, const char *from, const char *to, bool blocked)
{
    struct sim_path *path = &network->paths[sim_host(network, from)][sim_host(network, to)];
    if (!blocked)
        unblock(network, path);
    else if (!path->blocked)
        *path = (struct sim_path){.blocked = true, .blocked_ns = sim_network_now(network)};
    find_next_silence(network);
    wake_all(network);
}

static void hold(struct sim_network *network, uint32_t from, uint32_t to, uint64_t until_ns)
{
    struct sim_path *path = &network->paths[from][to];
    if (path->hold_ns < until_ns)
        path->hold_ns = until_ns;
    sim_alarm(network, until_ns);
}

void sim_network_stall(struct sim_network *network, const char *a, const char *b, uint64_t ns)
{
    uint32_t hosts[2] = {sim_host(network, a), sim_host(network, b)};
    hold(network, hosts[0], hosts[1], sim_network_now(network) + ns);
    hold(network, hosts[1], hosts[0], sim_network_now(network) + ns);
    wake_all(network);
}

void sim_network_heal(struct sim_network *network)
{
    network->options.void_ns = 0;
    for (uint32_t from = 0; from < network->host_count; from++) {
        for (uint32_t to = 0; to < network->host_count; to++) {
            struct sim_path *path = &network->paths[from][to];
            if (path->hold_ns > sim_network_now(network))
                path->hold_ns = sim_network_now(network);
            unblock(network, path);
        }
    }
    find_next_silence(network);
    wake_all(network);
}

void sim_network_stop(struct sim_network *network, const char *address, bool stopped)
{
    uint32_t host = sim_host(network, address);
    if (network->hosts[host].stopped == stopped)
        return;
    network->hosts[host].stopped = stopped;
    for (struct sim_endpoint *at = network->endpoints.first; at; at = at->link.next) {
        if (at->fabric->host != host)
            continue;
        at->due_ns = 0;
        for (struct sim_conn *conn = at->conns.first; stopped && conn; conn = conn->link.next)
            sim_rowan_stop(conn);
        if (!stopped && at->zone)
            sim_zone_awake(at->zone);
    }
}
