/* Bulk writes of the simulated network (F10).
 *
 * A write travels like blocks do, in order within its connection and beside its blocks and messages. Who stores it is
 * the owner of the memory in his poll, as on tcp; or (one_sided) the writer in his, as on shm. It may stop in the
 * middle. When it is whole a fence of the memory starts; WRITTEN follows when that is done.
 *
 *  1. A write is stored only while its grant is live and of that connection, or (one_sided) while it was begun then:
 *     such a grant is held by the writer, and REVOKED waits until he lets go.
 *  2. When a connection is cut the first so many of its writes go into a wreck on the owner's side: they may still
 *     arrive until he hears of it, the last one torn. (one_sided) the writer finishes what he has begun, or he is torn.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "test/sim/sim_fabric_state.h"

enum { SIM_WRITES = 32, PIECES_IN = 3, MAX_WRITES_PER_STEP = 4 };

struct sim_write {
    const uint8_t *data;
    uint32_t bytes, limit; /* how much of it ever arrives */
    uint64_t index, generation, at;
    uint64_t context;
    uint64_t at_ns; /* once flushed: when it arrives */
    struct pm_ticket ticket;
};

struct sim_bulk {
    uint64_t added, flushed, stored, reported;
    uint64_t last_at_ns;
    uint64_t resume_ns;     /* he pauses inside a write until then */
    uint32_t done;          /* bytes of the write at `stored` */
    struct sim_grant *held; /* 1 */
    struct sim_write ring[SIM_WRITES];
};

struct sim_grant {
    enum { GRANT_FREE, GRANT_LIVE, GRANT_ENDING, GRANT_OVER } state;
    struct sim_endpoint *endpoint;
    struct sim_conn *conn; /* the owner's end */
    struct fabric_identity peer;
    struct sim_bulk *holder;
    struct pm *pm;
    uint64_t generation, offset, bytes, context;
};

static struct sim_write *write_of(struct sim_bulk *bulk, uint64_t number)
{
    return &bulk->ring[number % SIM_WRITES];
}

/* --- grants --- */

static void set_over(struct sim_grant *grant)
{
    grant->state = GRANT_OVER;
    grant->endpoint->grants_over++;
    grant->endpoint->due_ns = 0;
    grant->endpoint->fabric->network->progress++;
}

static void end_grant(struct sim_grant *grant)
{
    grant->conn = NULL;
    if (grant->holder)
        grant->state = GRANT_ENDING;
    else
        set_over(grant);
}

static void let_go(struct sim_bulk *bulk)
{
    struct sim_grant *grant = bulk->held;
    bulk->held = NULL;
    if (!grant)
        return;
    grant->holder = NULL;
    if (grant->state == GRANT_ENDING)
        set_over(grant);
}

int sim_grant(struct fabric_conn *head, uint64_t offset, uint64_t bytes, uint64_t context,
              struct fabric_grant *out)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    struct sim_endpoint *endpoint = conn->endpoint;
    if (conn->state != CONN_OPEN && conn->state != CONN_CUT)
        return ROWAN_ECLOSED;
    if (!conn->takes || !endpoint->zone || bytes == 0 || bytes % FABRIC_STRIDE ||
        offset % FABRIC_STRIDE || offset > endpoint->zone->pm->bytes ||
        bytes > endpoint->zone->pm->bytes - offset)
        return ROWAN_EINVALID;
    if (!endpoint->grants)
        endpoint->grants = calloc(FABRIC_MAX_GRANTS, sizeof *endpoint->grants);
    ASSERT(endpoint->grants);
    uint32_t i = 0;
    while (i < FABRIC_MAX_GRANTS && endpoint->grants[i].state != GRANT_FREE)
        i++;
    if (i == FABRIC_MAX_GRANTS)
        return ROWAN_ETOOMANY;
    uint64_t generation = ++endpoint->fabric->network->grants;
    endpoint->grants[i] = (struct sim_grant){.state = GRANT_LIVE,
                                             .endpoint = endpoint,
                                             .conn = conn,
                                             .peer = conn->identity,
                                             .pm = endpoint->zone->pm,
                                             .generation = generation,
                                             .offset = offset,
                                             .bytes = bytes,
                                             .context = context};
    *out = (struct fabric_grant){.words = {i, generation, bytes}};
    return 0;
}

static struct sim_grant *find_grant(const struct sim_conn *owner, uint64_t index,
                                    uint64_t generation)
{
    if (!owner->endpoint->grants || index >= FABRIC_MAX_GRANTS)
        return NULL;
    struct sim_grant *grant = &owner->endpoint->grants[index];
    return grant->state == GRANT_LIVE && grant->conn == owner && grant->generation == generation
               ? grant
               : NULL;
}

/* Of a write that this grant is for a part is stored. */
static bool is_amid(struct sim_bulk *bulk, const struct fabric_grant *grant)
{
    return bulk && bulk->done > 0 && write_of(bulk, bulk->stored)->index == grant->words[0] &&
           write_of(bulk, bulk->stored)->generation == grant->words[1];
}

void sim_revoke(struct fabric_conn *head, const struct fabric_grant *words)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    struct sim_grant *grant = find_grant(conn, words->words[0], words->words[1]);
    if (!grant)
        return;
    end_grant(grant);
    if (!sim_network_of(conn)->options.one_sided && conn->peer && is_amid(conn->peer->bulk, words))
        sim_conn_fail(conn);
}

bool sim_grants_next(struct sim_endpoint *endpoint, struct fabric_event *event)
{
    for (uint32_t i = 0; endpoint->grants_over && i < FABRIC_MAX_GRANTS; i++) {
        struct sim_grant *grant = &endpoint->grants[i];
        if (grant->state != GRANT_OVER)
            continue;
        *event = (struct fabric_event){.kind = FABRIC_REVOKED, .context = grant->context};
        grant->state = GRANT_FREE;
        endpoint->grants_over--;
        return true;
    }
    return false;
}

bool sim_grants_are_of(const struct sim_endpoint *endpoint, const struct fabric_shut_out *out)
{
    for (uint32_t i = 0; endpoint->grants && i < FABRIC_MAX_GRANTS; i++) {
        const struct sim_grant *grant = &endpoint->grants[i];
        if (grant->state != GRANT_FREE && shut_out_is_of(out, &grant->peer))
            return true;
    }
    return false;
}

/* --- adding --- */

int sim_write(struct fabric_conn *head, const struct fabric_grant *grant, uint64_t at,
              const void *data, uint32_t bytes, uint64_t context)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    if (conn->state != CONN_OPEN && conn->state != CONN_CUT)
        return ROWAN_ECLOSED;
    if (!head->has_zone || conn->takes || bytes == 0 || bytes % FABRIC_STRIDE ||
        at % FABRIC_STRIDE || bytes > FABRIC_MAX_WRITE_BYTES ||
        !sim_fabric_registered(conn->endpoint->fabric, data, bytes))
        return ROWAN_EINVALID;
    if (!conn->bulk)
        conn->bulk = calloc(1, sizeof *conn->bulk);
    ASSERT(conn->bulk);
    if (conn->bulk->added - conn->bulk->reported == SIM_WRITES)
        return ROWAN_EAGAIN;
    *write_of(conn->bulk, conn->bulk->added++) = (struct sim_write){.data = data,
                                                                    .bytes = bytes,
                                                                    .limit = bytes,
                                                                    .index = grant->words[0],
                                                                    .generation = grant->words[1],
                                                                    .at = at,
                                                                    .context = context};
    sim_conn_dirty(conn);
    return 0;
}

void sim_bulk_flush(struct sim_conn *conn)
{
    struct sim_network *network = sim_network_of(conn);
    struct sim_bulk *bulk = conn->bulk;
    if (!bulk || conn->state != CONN_OPEN || bulk->flushed == bulk->added)
        return;
    uint64_t at_ns = sim_network_now(network) + sim_network_delay(network);
    if (at_ns < bulk->last_at_ns)
        at_ns = bulk->last_at_ns;
    bulk->last_at_ns = at_ns;
    for (; bulk->flushed < bulk->added; bulk->flushed++)
        write_of(bulk, bulk->flushed)->at_ns = at_ns;
    network->progress++;
    sim_alarm(network, at_ns);
    sim_conn_wake(network->options.one_sided ? conn : conn->peer);
}

/* --- storing --- */

static void store(struct sim_bulk *bulk, const struct sim_grant *grant, uint32_t bytes)
{
    struct sim_network *network = grant->endpoint->fabric->network;
    const struct sim_write *write = write_of(bulk, bulk->stored);
    uint64_t place = grant->offset + write->at + bulk->done;
    if (bytes == 0)
        return;
    ASSERT(write->at + bulk->done + bytes <= grant->bytes);
    pm_store(grant->pm, place, write->data + bulk->done, bytes);
    const uint64_t words[] = {sim_network_now(network), grant->endpoint->fabric->number, place,
                              bytes};
    sim_network_mix(network, words, sizeof words);
    bulk->done += bytes;
    network->progress++;
}

/* A random part of what is left, then nothing. */
static void tear(struct sim_bulk *bulk)
{
    struct sim_grant *grant = bulk->held;
    if (!grant)
        return;
    uint32_t left = write_of(bulk, bulk->stored)->limit - bulk->done;
    store(bulk, grant, (uint32_t)random_below(&grant->endpoint->fabric->network->random, left + 1));
    let_go(bulk);
}

enum step { STEP_DONE, STEP_WAITS, STEP_REFUSED };

/* The next write, one step. `owner`: the end that granted, NULL once he is cut off. `at_ns`: when it is here. */
static enum step step_write(struct sim_network *network, struct sim_bulk *bulk,
                            const struct sim_conn *owner, uint64_t at_ns)
{
    struct sim_write *write = write_of(bulk, bulk->stored);
    uint64_t now_ns = sim_network_now(network);
    if (at_ns > now_ns || bulk->resume_ns > now_ns)
        return STEP_WAITS;
    struct sim_grant *grant = bulk->held;
    if (!grant && owner)
        grant = find_grant(owner, write->index, write->generation);
    if (!grant || write->at > grant->bytes || write->bytes > grant->bytes - write->at)
        return STEP_REFUSED;
    uint32_t left = write->limit - bulk->done;
    if (left > 1 && random_below(&network->random, PIECES_IN) == 0) {
        store(bulk, grant, 1 + (uint32_t)random_below(&network->random, left - 1));
        bulk->resume_ns = now_ns + sim_network_delay(network);
        sim_alarm(network, bulk->resume_ns);
        if (network->options.one_sided && owner) {
            bulk->held = grant;
            grant->holder = bulk;
        }
        return STEP_WAITS;
    }
    store(bulk, grant, left);
    if (write->limit < write->bytes) /* torn: no more of it comes */
        return STEP_WAITS;
    write->ticket = pm_fence_start(grant->pm);
    bulk->done = 0;
    bulk->stored++;
    bool revoked = grant->state != GRANT_LIVE;
    let_go(bulk);
    return revoked ? STEP_REFUSED : STEP_DONE;
}

static void report(struct sim_conn *writer)
{
    struct sim_bulk *bulk = writer->bulk;
    const struct sim_zone *zone = writer->peer->endpoint->zone;
    while (zone && bulk->reported < bulk->stored) {
        const struct sim_write *write = write_of(bulk, bulk->reported);
        int done = pm_fence_done(zone->pm, write->ticket);
        ASSERT(done >= 0);
        if (!done)
            return;
        sim_conn_push(writer, FABRIC_WRITTEN, write->context);
        bulk->reported++;
    }
}

static uint64_t arrives_ns(const struct sim_conn *writer)
{
    const struct sim_bulk *bulk = writer->bulk;
    if (bulk->stored == bulk->flushed)
        return WAKE_NEVER;
    return sim_path_at(sim_network_of(writer), writer->endpoint->fabric->host, writer->remote,
                       bulk->ring[bulk->stored % SIM_WRITES].at_ns);
}

static void step_writer(struct sim_conn *writer)
{
    struct sim_network *network = sim_network_of(writer);
    struct sim_bulk *bulk = writer->bulk;
    enum step step = STEP_DONE;
    for (uint32_t i = 0; i < MAX_WRITES_PER_STEP && step == STEP_DONE &&
                         bulk->stored < bulk->flushed && (writer->peer || bulk->held);
         i++)
        step = step_write(network, bulk, writer->peer, arrives_ns(writer));
    if (step == STEP_REFUSED) {
        bulk->flushed = bulk->stored; /* nothing behind it arrives */
        sim_conn_fail(network->options.one_sided || !writer->peer ? writer : writer->peer);
    } else if (writer->peer) {
        report(writer);
    }
}

/* --- wrecks --- */

static uint64_t wreck_due_ns(const struct sim_conn *conn)
{
    const struct sim_bulk *wreck = conn->bulk_wreck;
    if (!wreck || wreck->stored == wreck->flushed)
        return WAKE_NEVER;
    const struct sim_write *write = &wreck->ring[wreck->stored % SIM_WRITES];
    if (wreck->done == write->limit)
        return WAKE_NEVER;
    uint64_t at_ns =
        sim_path_at(sim_network_of(conn), conn->remote, conn->endpoint->fabric->host, write->at_ns);
    return at_ns < wreck->resume_ns ? wreck->resume_ns : at_ns;
}

static void step_wreck(struct sim_conn *conn)
{
    struct sim_bulk *wreck = conn->bulk_wreck;
    enum step step = STEP_DONE;
    while (step == STEP_DONE && wreck_due_ns(conn) <= sim_network_now(sim_network_of(conn)))
        step = step_write(sim_network_of(conn), wreck, conn, 0);
    if (step == STEP_REFUSED)
        wreck->stored = wreck->flushed;
}

static void make_wreck(struct sim_conn *writer)
{
    struct sim_network *network = sim_network_of(writer);
    struct sim_bulk *bulk = writer->bulk;
    uint64_t count = bulk->flushed - bulk->stored;
    uint64_t keep = random_below(&network->random, count + 1);
    struct sim_bulk *wreck = calloc(1, sizeof *wreck);
    ASSERT(wreck);
    wreck->done = bulk->done;
    wreck->resume_ns = bulk->resume_ns;
    wreck->flushed = keep < count ? keep + 1 : keep;
    for (uint64_t i = 0; i < wreck->flushed; i++) {
        struct sim_write *write = &wreck->ring[i];
        *write = *write_of(bulk, bulk->stored + i);
        uint8_t *data = malloc(write->bytes);
        ASSERT(data);
        memcpy(data, write->data, write->bytes);
        write->data = data;
        uint32_t least = i == 0 ? wreck->done : 0;
        if (i == keep) /* torn */
            write->limit = least + (uint32_t)random_below(&network->random, write->bytes - least);
    }
    writer->peer->bulk_wreck = wreck;
    sim_conn_wake(writer->peer);
}

void sim_bulk_cut(struct sim_conn *writer, bool lands, bool gave_up)
{
    struct sim_network *network = sim_network_of(writer);
    struct sim_bulk *bulk = writer->bulk;
    if (!bulk || bulk->stored == bulk->flushed)
        return;
    if (bulk->held) {
        bool stopped = network->hosts[writer->endpoint->fabric->host].stopped;
        if (!stopped && !gave_up && random_below(&network->random, 2))
            tear(bulk);
    } else if (lands && !network->options.one_sided) {
        make_wreck(writer);
    }
    bulk->flushed = bulk->stored + (bulk->held != NULL);
    sim_conn_wake(writer);
}

void sim_bulk_end(struct sim_conn *conn)
{
    struct sim_bulk *wreck = conn->bulk_wreck;
    if (conn->bulk) {
        tear(conn->bulk);
        conn->bulk->flushed = conn->bulk->stored;
    }
    for (uint32_t i = 0; conn->endpoint->grants && i < FABRIC_MAX_GRANTS; i++) {
        struct sim_grant *grant = &conn->endpoint->grants[i];
        if (grant->state == GRANT_LIVE && grant->conn == conn)
            end_grant(grant);
    }
    for (uint64_t i = 0; wreck && i < wreck->flushed; i++)
        free((void *)(uintptr_t)wreck->ring[i].data);
    free(wreck);
    conn->bulk_wreck = NULL;
}

void sim_grants_close(struct sim_endpoint *endpoint)
{
    for (uint32_t i = 0; endpoint->grants && i < FABRIC_MAX_GRANTS; i++) {
        if (endpoint->grants[i].holder)
            tear(endpoint->grants[i].holder);
    }
    free(endpoint->grants);
    endpoint->grants = NULL;
    endpoint->grants_over = 0;
}

/* He may stand in the middle of a store. */
void sim_bulk_stop(struct sim_conn *conn)
{
    struct sim_network *network = sim_network_of(conn);
    struct sim_bulk *bulk = conn->bulk;
    if (!network->options.one_sided || !bulk || !conn->peer || bulk->held ||
        arrives_ns(conn) > sim_network_now(network))
        return;
    const struct sim_write *write = write_of(bulk, bulk->stored);
    struct sim_grant *grant = find_grant(conn->peer, write->index, write->generation);
    if (!grant || write->at > grant->bytes || write->bytes > grant->bytes - write->at)
        return;
    bulk->held = grant;
    grant->holder = bulk;
    store(bulk, grant, (uint32_t)random_below(&network->random, write->bytes - bulk->done));
}

/* --- polling --- */

static const struct sim_conn *writer_of(const struct sim_conn *conn)
{
    const struct sim_conn *writer = sim_network_of(conn)->options.one_sided ? conn : conn->peer;
    return writer && writer->bulk ? writer : NULL;
}

static bool writer_rests(const struct sim_conn *writer)
{
    const struct sim_bulk *bulk = writer ? writer->bulk : NULL;
    return !bulk || (!bulk->held && (!writer->peer || bulk->reported == bulk->flushed));
}

bool sim_bulk_rests(const struct sim_conn *conn)
{
    return !conn->bulk_wreck && writer_rests(writer_of(conn));
}

void sim_bulk_step(struct sim_conn *conn)
{
    struct sim_conn *writer = sim_network_of(conn)->options.one_sided ? conn : conn->peer;
    if (writer && !writer_rests(writer))
        step_writer(writer);
    if (conn->bulk_wreck)
        step_wreck(conn);
}

uint64_t sim_bulk_due_ns(const struct sim_conn *conn)
{
    const struct sim_conn *writer = writer_of(conn);
    uint64_t due_ns = wreck_due_ns(conn);
    if (writer_rests(writer))
        return due_ns;
    if (writer->peer && writer->bulk->reported < writer->bulk->stored)
        return 0;
    uint64_t at_ns = arrives_ns(writer);
    at_ns = at_ns < writer->bulk->resume_ns ? writer->bulk->resume_ns : at_ns;
    return at_ns < due_ns ? at_ns : due_ns;
}

bool sim_bulk_has_work(const struct sim_conn *conn)
{
    const struct sim_conn *writer = writer_of(conn);
    const uint64_t now_ns = sim_network_now(sim_network_of(conn));
    if (wreck_due_ns(conn) <= now_ns)
        return true;
    if (writer_rests(writer))
        return false;
    const struct sim_bulk *bulk = writer->bulk;
    const struct sim_zone *zone = writer->peer ? writer->peer->endpoint->zone : NULL;
    if (zone && bulk->reported < bulk->stored &&
        pm_fence_done(zone->pm, bulk->ring[bulk->reported % SIM_WRITES].ticket))
        return true;
    return arrives_ns(writer) <= now_ns && bulk->resume_ns <= now_ns;
}
