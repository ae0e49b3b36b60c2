/* When all is quiet nothing may be left over: what a role forgot to give back is found here, before it is missed. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/control/control_state.h"
#include "server/digest/digest_state.h"
#include "server/store/store_layout.h"
#include "server/worker/worker_state.h"
#include "test/sim/checks_state.h"

/* What is given back by itself is until then: also a client id that its session has left, on every worker. */
#define LEFTOVERS_NS (5 * NS_PER_S + CLIENTS_KEEP_NS + CLIENTS_GRACE_NS)

#define LOOK_NS (50 * NS_PER_MS) /* between two looks: all of each PM is looked at */

enum { OWNERS = (int)OWNER_KINDS, STATES = (int)SEGMENT_COMMITTED + 1 };

/* The first thing that is left over. */
struct leftovers {
    struct checks *checks;
    char why[300]; /* "": nothing */
};

static void __attribute__((format(printf, 3, 4)))
expect(struct leftovers *left, bool holds, const char *format, ...)
{
    if (holds || left->why[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(left->why, sizeof left->why, format, arguments);
    va_end(arguments);
}

/* --- clients, messages --- */

static void look_at_clients(struct leftovers *left)
{
    const struct sim_cluster *cluster = left->checks->cluster;
    for (uint32_t i = 0; i < cluster->options.clients; i++) {
        const struct session *session = cluster->clients[i].session;
        expect(left, session_outstanding(session) == 0, "client %u has %u operations outstanding",
               i + 1, session_outstanding(session));
        expect(left, session_waiting(session) == 0, "client %u has %u completions that nobody took",
               i + 1, session_waiting(session));
    }
}

static void look_at_messages(struct leftovers *left)
{
    struct sim_network_held held = sim_network_held(left->checks->cluster->network);
    const char *who = held.who ? held.who : "";
    expect(left, held.unreleased == 0, "%lu messages were never released, the first by %s",
           held.unreleased, who);
    expect(left, held.waiting == 0,
           "%lu messages wait for somebody to take or flush them, the first by %s", held.waiting,
           who);
}

/* --- what servers know of clients --- */

static void look_at_links(struct leftovers *left, uint32_t server, const struct worker *worker)
{
    uint32_t links = 0, clients = left->checks->cluster->options.clients;
    for (const struct client_link *link = worker->clients.first; link;
         link = link->all.next, links++) {
        const struct clients_entry *entry =
            (const struct clients_entry *)records_table_find(&worker->known.entries, link->id, 0);
        expect(left, entry && entry->link == link,
               "server %u: client %u is connected, and not known", server, link->id);
    }
    expect(left, links <= clients && !worker->closing,
           "server %u: a worker has %u connections of %u clients", server, links, clients);
    expect(left, !worker->known.first && worker->known.entries.count == links,
           "server %u: a worker knows %u clients, and %u are connected", server,
           worker->known.entries.count, links);
}

/* One that was split off may have none of the workload's keys. */
static bool has_keys(const struct checks *checks, const struct shard *row)
{
    bool any = false;
    for (uint32_t i = 0; i < checks->key_count && !any; i++)
        any = checks->keys[i].slot >= row->first_slot && checks->keys[i].slot <= row->last_slot;
    return any;
}

/* Each client has written to every shard when it had its answer to all that was before (load_write_shards). */
static void look_at_records(struct leftovers *left, uint32_t server, const struct worker *worker)
{
    const uint32_t clients = left->checks->cluster->options.clients;
    for (uint32_t i = 0; worker->config && i < worker->config->shard_count; i++) {
        const struct shard_state *shard = worker->shards[worker->config->shards[i].id];
        /* One that moved behind its last write keeps the records that came with it. */
        if (!shard || shard->counter == 0 || !has_keys(left->checks, &worker->config->shards[i]))
            continue;
        expect(left, records_clients(&shard->records) <= clients,
               "server %u: shard %u has records of %u clients, and there are %u", server, shard->id,
               records_clients(&shard->records), clients);
        expect(left, records_count(&shard->records) <= clients,
               "server %u: shard %u has %lu completion records, and %u clients", server, shard->id,
               records_count(&shard->records), clients);
    }
}

static void look_at_control_links(struct leftovers *left, uint32_t server,
                                  const struct control *control)
{
    const struct sim_cluster_options *options = &left->checks->cluster->options;
    uint32_t links = 0, most = (options->servers - 1) * options->workers;
    for (const struct control_link *link = control->links.first; link; link = link->place.next)
        links++;
    expect(left, links == control->link_count && links <= most,
           "server %u: its control role has %u connections and counts %u, of %u workers", server,
           links, control->link_count, most);
}

/* --- writes, questions --- */

static void look_at_peers(struct leftovers *left, uint32_t server, const struct worker *worker)
{
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        const struct worker_peer *peer = &worker->peers[i];
        if (!peer->needed)
            continue;
        expect(left, peer->connected, "server %u is not connected to server %u", server,
               peer->server);
        expect(left, peer->landed == peer->posted && peer->open_batch == 0,
               "server %u: batches for server %u have not landed", server, peer->server);
        expect(left, peer->owed.parts == 0, "server %u still owes %lx writes to server %u", server,
               peer->owed.parts, peer->server);
    }
}

static void look_at_worker(struct leftovers *left, uint32_t server, const struct worker *worker)
{
    expect(left, worker->ops.used == 0, "server %u: %u writes are in the table", server,
           worker->ops.used);
    expect(left, worker->replying_count == 0 && worker->held_count == 0 && worker->taken_count == 0,
           "server %u: %u answers and %u requests wait for free space", server,
           worker->replying_count, worker->held_count);
    expect(left, worker->in_flight.parts == 0, "server %u counts %lx in flight", server,
           worker->in_flight.parts);
    expect(left, !worker->active.first, "server %u: a shard has writes in flight", server);
    expect(left, worker->large_waiting == 0, "server %u counts %u large requests that wait", server,
           worker->large_waiting);
    expect(left, worker->fence_count == 0, "server %u waits for %u fences", server,
           worker->fence_count);
    expect(left, worker->fetch.count == 0, "server %u has %u questions for versions", server,
           worker->fetch.count);
    expect(left, !worker->reconciliations, "server %u: shards are not united", server);
    look_at_peers(left, server, worker);
    look_at_links(left, server, worker);
    look_at_records(left, server, worker);
}

static void look_at_queries(struct leftovers *left, uint32_t server, const struct control *control)
{
    for (uint32_t i = 0; i < CONTROL_MAX_QUERIES; i++)
        expect(left, !control->queries[i], "server %u: a query is not answered", server);
    expect(left, control->refusal_count == 0, "server %u: %u questions are not refused yet", server,
           control->refusal_count);
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        const struct shard_state *shard = control->shards ? control->shards[i] : NULL;
        if (shard)
            expect(left, !atomic_load_explicit(&shard->missing, memory_order_relaxed),
                   "server %u: shard %u lacks committed versions", server, shard->id);
    }
}

/* --- segments --- */

struct tally {
    uint64_t states[STATES], using[OWNERS];
    uint64_t
        kept; /* of the used ones: those of digest logs that wait for the open landing segment */
};

/* D10: as long as something that was applied lies in the open segment. */
static bool is_kept(const struct control *control, const struct segment_meta *meta)
{
    if (meta->state != SEGMENT_USED || meta->owner != OWNER_DIGEST ||
        meta->owner_number >= control->options->digests)
        return false;
    const struct digest *digest = control->digests[meta->owner_number];
    bool lands = false;
    for (const struct shard_state *it = digest->owned.first; it; it = it->owned_link.next)
        lands |= it->open_landed != SHARD_NONE_LANDED;
    return lands && digest->kept_from && meta->allocation >= digest->kept_from;
}

/* Is the segment in the backup log that the control role knows, or on its way back? */
static bool is_known(const struct control *control, uint64_t segment)
{
    const struct blog_segment *at = control->oldest;
    for (; at; at = atomic_load_explicit(&at->next, memory_order_relaxed)) {
        if (at->segment == segment)
            return true;
    }
    for (at = control->leaving; at; at = at->next_leaving) {
        if (at->segment == segment)
            return true;
    }
    return false;
}

static void count_segments(struct leftovers *left, const struct checks_server *server,
                           const struct control *control, struct tally *tally)
{
    const struct store *store = control->common->store;
    const struct store_geometry at = store_geometry(store_segments(store));
    const uint64_t *words[2];
    for (unsigned i = 0; i < 2; i++)
        words[i] = pm_at(&server->pm->pm, at.metas[i]);
    for (uint64_t i = 0; i < store_segments(store); i++) {
        struct segment_meta meta = store_meta(store, i);
        uint64_t word = meta_encode(i, &meta);
        expect(left, words[0][i] == word && words[1][i] == word,
               "server %u: segment %lu is %lx and %lx in PM and %lx in its mirror",
               server->number + 1, i, words[0][i], words[1][i], word);
        tally->states[meta.state]++;
        tally->kept += is_kept(control, &meta);
        tally->using[meta.owner] += meta.state == SEGMENT_USING;
    }
}

static void look_at_segments(struct leftovers *left, const struct checks_server *server,
                             const struct control *control, uint64_t worker_logs)
{
    const struct store *store = control->common->store;
    struct tally tally = {0};
    uint64_t owned = 0, leaving = 0, number = server->number + 1;
    count_segments(left, server, control, &tally);
    for (unsigned i = 0; i < OWNERS; i++)
        owned += store_segments_owned(store, (enum segment_owner)i);
    for (const struct blog_segment *at = control->leaving; at; at = at->next_leaving)
        leaving++;
    expect(left, owned == store_segments(store), "server %lu: %lu of %lu segments are somebody's",
           number, owned, store_segments(store));
    expect(left, tally.states[SEGMENT_FREE] == store_segments_free(store),
           "server %lu: %lu segments are free, and it counts %lu", number,
           tally.states[SEGMENT_FREE], store_segments_free(store));
    expect(left, tally.states[SEGMENT_DIRTY] == 0, "server %lu: %lu segments are dirty", number,
           tally.states[SEGMENT_DIRTY]);
    expect(left, tally.states[SEGMENT_USED] == tally.kept,
           "server %lu: %lu closed segments are not committed, of which %lu wait", number,
           tally.states[SEGMENT_USED], tally.kept);
    expect(left, leaving == 0, "server %lu: %lu digested segments are not quiet", number, leaving);
    expect(left, tally.using[OWNER_WORKER] == worker_logs,
           "server %lu: workers have %lu open segments, and %lu logs", number,
           tally.using[OWNER_WORKER], worker_logs);
    expect(left, tally.using[OWNER_BACKUP_LOG] == control->posted + control->prepared_count,
           "server %lu: the backup log has %lu open segments, and %u are posted", number,
           tally.using[OWNER_BACKUP_LOG], control -> posted + control -> prepared_count);
    expect(left, tally.using[OWNER_DIGEST] <= left->checks->cluster->options.digests,
           "server %lu: digest roles have %lu open segments", number, tally.using[OWNER_DIGEST]);
    expect(left, tally.using[OWNER_CLEAN] <= 1, "server %lu: its clean role has %lu open segments",
           number, tally.using[OWNER_CLEAN]);
}

/* Reads all of the memory that is free: only when nothing else is left. */
static void look_at_bytes(struct leftovers *left, uint32_t index)
{
    const struct control *control = checks_control(left->checks, index);
    const struct store *store = control->common->store;
    for (uint64_t i = 0; !left->why[0] && i < store_segments(store); i++) {
        const struct segment_meta meta = store_meta(store, i);
        if (meta.state == SEGMENT_FREE)
            expect(left, store_segment_is_zero(store, i, 0, STORE_SEGMENT_BYTES),
                   "server %u: segment %lu is free, and is not zeros", index + 1, i);
        else if (meta.state >= SEGMENT_USED && meta.owner == OWNER_BACKUP_LOG &&
                 !is_known(control, i))
            expect(left, !store_segment_is_zero(store, i, 0, STORE_SEGMENT_BYTES),
                   "server %u: segment %lu holds nothing, and is not free", index + 1, i);
    }
}

static void look_at_server(struct leftovers *left, uint32_t index)
{
    struct checks *checks = left->checks;
    const struct control *control = checks_control(checks, index);
    uint64_t worker_logs = 0;
    expect(left, control && control->config && control->common->store, "server %u does not run",
           index + 1);
    if (left->why[0])
        return;
    for (uint32_t i = 0; i < checks->cluster->options.workers; i++) {
        const struct worker *worker =
            server_poller(checks->cluster->servers[index].server, 1 + i).role;
        worker_logs += worker->log_ready && worker->log.open;
        look_at_worker(left, index + 1, worker);
    }
    look_at_queries(left, index + 1, control);
    look_at_control_links(left, index + 1, control);
    look_at_segments(left, &checks->servers[index], control, worker_logs);
    expect(left, sim_pm_next_ns(checks->servers[index].pm) == WAKE_NEVER,
           "server %u: a fence is outstanding", index + 1);
}

static void look(struct leftovers *left)
{
    left->why[0] = '\0';
    look_at_clients(left);
    look_at_messages(left);
    for (uint32_t i = 0; !left->why[0] && i < left->checks->cluster->options.servers; i++)
        look_at_server(left, i);
    /* With leases there is nearly always a renewal. */
    expect(left,
           left->checks->cluster->options.lease_ms > 0 ||
               sim_network_next_ns(left->checks->cluster->network) == WAKE_NEVER,
           "something is on its way in the network");
    for (uint32_t i = 0; !left->why[0] && i < left->checks->cluster->options.servers; i++)
        look_at_bytes(left, i);
}

void checks_leftovers(struct checks *checks)
{
    struct leftovers left = {.checks = checks};
    struct sim_cluster *cluster = checks->cluster;
    uint64_t end_ns = cluster->clock.now_ns + LEFTOVERS_NS;
    for (look(&left); left.why[0] && cluster->clock.now_ns < end_ns; look(&left)) {
        for (uint64_t next_ns = cluster->clock.now_ns + LOOK_NS; cluster->clock.now_ns < next_ns;) {
            cluster->until_ns = next_ns;
            sim_cluster_step(cluster);
            cluster->until_ns = WAKE_NEVER;
            checks_step(checks);
        }
    }
    if (left.why[0])
        checks_fail(checks, "leftovers", JOURNAL_NO_KEY, JOURNAL_NO_SHARD, "%s", left.why);
}
