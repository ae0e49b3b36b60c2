/* The simulated network: processes, endpoints, handshakes and polling. A poll lets everything of
 * the endpoint move one step, then hands out events that have arrived, one of each connection in
 * turn.
 */
#include "test/sim/sim_fabric.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "test/sim/sim_fabric_state.h"

#define SCHEME "sim:"

/* --- the network --- */

struct sim_network *sim_network_create(const struct sim_network_options *options)
{
    struct sim_network *network = calloc(1, sizeof *network);
    ASSERT(network);
    network->options = *options;
    if (!network->options.block_limit)
        network->options.block_limit = 65536;
    if (!network->options.landing_stride)
        network->options.landing_stride = FABRIC_STRIDE;
    if (!network->options.max_batch_blocks)
        network->options.max_batch_blocks = 8192;
    if (!network->options.max_messages)
        network->options.max_messages = 256;
    random_init(&network->random, options->seed);
    network->silence_at_ns = WAKE_NEVER;
    network->host_count = 1; /* those without a name */
    network->alarms = calloc(1, sizeof *network->alarms);
    ASSERT(network->alarms);
    return network;
}

void sim_network_destroy(struct sim_network *network)
{
    if (!network)
        return;
    ASSERT(!network->fabrics);
    free(network->alarms->times);
    free(network->alarms);
    free(network);
}

uint64_t sim_network_delay(struct sim_network *network)
{
    return network->options.max_delay_ns
               ? random_below(&network->random, network->options.max_delay_ns + 1)
               : 0;
}

void sim_network_mix(struct sim_network *network, const void *data, size_t bytes)
{
    network->trace = XXH3_64bits_withSeed(data, bytes, network->trace);
}

uint64_t sim_network_trace(const struct sim_network *network)
{
    return network->trace;
}

uint64_t sim_network_progress(const struct sim_network *network)
{
    return network->progress;
}

struct sim_network_counts sim_network_counts(const struct sim_network *network)
{
    return network->counts;
}

/* How many arrived before that moment. UINT64_MAX: all, also those that are not flushed. */
static uint32_t count_before(const struct sim_queue *queue, uint64_t moment_ns)
{
    uint32_t count = 0;
    for (const struct sim_item *item = queue->first; item; item = item->link.next)
        count += item->at_ns < moment_ns;
    return count;
}

struct sim_network_held sim_network_held(const struct sim_network *network)
{
    struct sim_network_held held = {.who = NULL};
    const uint64_t now_ns = sim_network_now(network);
    for (const struct sim_endpoint *at = network->endpoints.first; at; at = at->link.next) {
        for (const struct sim_conn *conn = at->conns.first; conn; conn = conn->link.next) {
            const uint64_t before = held.unreleased + held.waiting;
            if (conn->over)
                continue;
            held.unreleased += count_before(&conn->unreleased, UINT64_MAX);
            held.waiting += count_before(&conn->outgoing, UINT64_MAX);
            if (now_ns > SIM_NETWORK_LATE_NS)
                held.waiting += count_before(&conn->incoming, now_ns - SIM_NETWORK_LATE_NS);
            if (!held.who && held.unreleased + held.waiting > before)
                held.who = at->fabric->address;
        }
    }
    return held;
}

static bool conn_reads(const struct sim_conn *conn, const uint8_t *data, uint64_t bytes)
{
    for (uint64_t i = conn->block_landed; i < conn->block_added; i++) {
        const struct sim_block *block = &conn->blocks[i & (conn->ring_room - 1)];
        if (block->bytes && block->data >= data && block->data < data + bytes)
            return true;
    }
    return false;
}

bool sim_network_reads(const struct sim_network *network, const uint8_t *data, uint64_t bytes)
{
    for (const struct sim_endpoint *at = network->endpoints.first; at; at = at->link.next) {
        for (const struct sim_conn *conn = at->conns.first; conn; conn = conn->link.next) {
            if (conn_reads(conn, data, bytes))
                return true;
        }
    }
    return false;
}

static struct sim_endpoint *find_endpoint(const struct sim_network *network, uint32_t host,
                                          uint32_t index)
{
    struct sim_endpoint *at = network->endpoints.first;
    while (at && (at->index != index || at->fabric->host != host))
        at = at->link.next;
    return at;
}

/* --- handshakes --- */

static void accept_conn(struct sim_endpoint *endpoint, struct sim_conn *active)
{
    struct sim_network *network = endpoint->fabric->network;
    int error = fabric_admit_peer(&endpoint->head, &active->identity);
    if (error) {
        sim_conn_refuse(active, error);
        return;
    }
    sim_conn_answered(active);
    for (struct sim_conn *older = endpoint->conns.first; older; older = older->link.next) {
        if (endpoint->zone && fabric_is_same_sender(&older->identity, &active->identity))
            sim_conn_supersede(older);
    }
    network->counts.connected++;
    struct sim_conn *passive = sim_conn_create(endpoint, 0);
    passive->peer = active;
    passive->remote = active->endpoint->fabric->host;
    active->peer = passive;
    passive->state = active->state = CONN_OPEN;
    active->head.has_zone = endpoint->zone != NULL;
    passive->head.has_zone = active->endpoint->zone != NULL;
    passive->head.layout = active->head.layout = fabric_layout(&endpoint->head, &active->identity);
    passive->identity = active->identity;
    sim_conn_push(passive, FABRIC_ACCEPTED, 0)->event.peer = active->identity;
    sim_conn_push(active, FABRIC_CONNECTED, active->context)->event.peer = endpoint->head.identity;
    sim_conn_journal(active, "was made");
}

/* One that has arrived where it was sent, or was on its way for too long. */
static void shake_hand(struct sim_endpoint *endpoint, struct sim_conn *conn)
{
    const struct sim_network *network = endpoint->fabric->network;
    uint32_t from = conn->endpoint->fabric->host;
    uint64_t now_ns = sim_network_now(network), silence_ns = network->options.silence_ns;
    bool blocked =
        network->paths[from][conn->remote].blocked || network->paths[conn->remote][from].blocked;
    if (conn->endpoint == endpoint &&
        (now_ns >= conn->connect_ns + SIM_HANDSHAKE_NS ||
         (blocked && silence_ns && now_ns >= conn->connect_ns + silence_ns))) {
        sim_conn_refuse(conn, ROWAN_EUNREACHABLE);
        return;
    }
    if (blocked || sim_path_at(network, from, conn->remote, conn->connect_at_ns) > now_ns)
        return;
    if (!find_endpoint(network, conn->remote, conn->to_index)) {
        if (conn->endpoint == endpoint)
            sim_conn_refuse(conn, ROWAN_EUNREACHABLE);
    } else if (conn->to_index == endpoint->index && conn->remote == endpoint->fabric->host) {
        accept_conn(endpoint, conn);
    }
}

static void shake_hands(struct sim_endpoint *endpoint)
{
    struct sim_conn *next;
    for (struct sim_conn *conn = endpoint->fabric->network->connecting.first; conn; conn = next) {
        next = conn->connecting.next;
        if (conn->endpoint == endpoint || conn->remote == endpoint->fabric->host)
            shake_hand(endpoint, conn);
    }
}

/* --- polling --- */

/* Off the list goes who has nothing to do; who is over is freed. */
static void tidy_busy(struct sim_endpoint *endpoint, bool free_over)
{
    struct sim_conn **link = &endpoint->busy, *conn;
    endpoint->last_busy = NULL;
    while ((conn = *link)) {
        if (conn->over ? !free_over : !sim_conn_rests(conn)) {
            endpoint->last_busy = conn;
            link = &conn->next_busy;
            continue;
        }
        *link = conn->next_busy;
        conn->listed = false;
        if (conn->over)
            sim_conn_free(conn);
    }
}

static void trace_event(struct sim_endpoint *endpoint, const struct fabric_event *event)
{
    struct sim_network *network = endpoint->fabric->network;
    const uint64_t words[] = {sim_network_now(network), endpoint->fabric->number, endpoint->index,
                              (uint64_t)event->kind,    (uint64_t)event->error,   event->bytes};
    sim_network_mix(network, words, sizeof words);
    if (event->kind == FABRIC_MESSAGE) {
        sim_network_mix(network, event->data, event->bytes);
        network->counts.messages++;
    }
}

/* One event of each connection, beginning with another one at each poll. */
static unsigned take_round(struct sim_endpoint *endpoint, struct fabric_event *events, unsigned max)
{
    unsigned count = 0;
    struct sim_conn *first = endpoint->busy;
    for (uint32_t i = 0; i < endpoint->turn && first; i++)
        first = first->next_busy;
    if (!first) {
        endpoint->turn = 0;
        first = endpoint->busy;
    }
    struct sim_conn *conn = first;
    while (conn && count < max) {
        if (sim_conn_next(conn, &events[count]))
            trace_event(endpoint, &events[count++]);
        conn = conn->next_busy ? conn->next_busy : endpoint->busy;
        if (conn == first)
            break;
    }
    return count;
}

static uint64_t due_ns(const struct sim_endpoint *endpoint)
{
    uint64_t first_ns = endpoint->zone ? sim_zone_due_ns(endpoint->zone) : WAKE_NEVER;
    for (const struct sim_conn *conn = endpoint->busy; conn && first_ns; conn = conn->next_busy) {
        uint64_t conn_ns = sim_conn_due_ns(conn);
        first_ns = conn_ns < first_ns ? conn_ns : first_ns;
    }
    return first_ns;
}

/* A handshake that has arrived, or is answered by nobody: whether that is so is looked at by the poll. */
static bool has_handshake(const struct sim_endpoint *endpoint)
{
    const struct sim_network *network = endpoint->fabric->network;
    for (const struct sim_conn *conn = network->connecting.first; conn;
         conn = conn->connecting.next) {
        if ((conn->endpoint == endpoint ||
             (conn->remote == endpoint->fabric->host && conn->to_index == endpoint->index)) &&
            conn->connect_at_ns <= sim_network_now(network))
            return true;
    }
    return false;
}

bool sim_fabric_has_work(const struct fabric_endpoint *head)
{
    const struct sim_endpoint *endpoint = (const struct sim_endpoint *)head;
    const struct sim_network *network = endpoint->fabric->network;
    if (endpoint->room || network->silence_at_ns <= sim_network_now(network) ||
        has_handshake(endpoint))
        return true;
    if (endpoint->due_ns > sim_network_now(network))
        return false;
    if (endpoint->zone && sim_zone_has_work(endpoint->zone))
        return true;
    const struct sim_conn *conn = endpoint->busy;
    while (conn && !sim_conn_has_work(conn))
        conn = conn->next_busy;
    return conn;
}

/* `now_ns` is what the process's own clock says: not looked at. */
static unsigned fabric_sim_poll(struct fabric_endpoint *head, uint64_t now_ns,
                                struct fabric_event *events, unsigned max)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)head;
    struct sim_network *network = endpoint->fabric->network;
    unsigned count = 0, round;
    (void)now_ns;
    endpoint->room = false;
    if (network->silence_at_ns <= sim_network_now(network))
        sim_network_silence(network);
    if (network->connecting.first)
        shake_hands(endpoint);
    if (endpoint->due_ns > sim_network_now(network))
        return 0;
    endpoint->due_ns = WAKE_NEVER;
    tidy_busy(endpoint, true);
    if (endpoint->zone)
        count = sim_shut_out_events(endpoint->zone, events, max);
    for (unsigned i = 0; i < count; i++)
        trace_event(endpoint, &events[i]);
    for (struct sim_conn *conn = endpoint->busy; conn; conn = conn->next_busy)
        sim_rowan_step(conn);
    while (endpoint->zone && count < max && sim_zone_next(endpoint->zone, &events[count]))
        trace_event(endpoint, &events[count++]);
    endpoint->turn++;
    do {
        round = take_round(endpoint, events + count, max - count);
        count += round;
    } while (round > 0 && count < max);
    tidy_busy(endpoint, false);
    endpoint->due_ns = count == max ? 0 : due_ns(endpoint);
    return count;
}

static void fabric_sim_flush(struct fabric_endpoint *head)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)head;
    while (endpoint->dirty) {
        struct sim_conn *conn = endpoint->dirty;
        endpoint->dirty = conn->next_dirty;
        conn->dirty = false;
        sim_conn_flush(conn);
        sim_rowan_flush(conn);
    }
}

/* --- endpoints --- */

static int fabric_sim_endpoint_open(struct fabric *head, uint32_t index,
                                    struct fabric_endpoint **out)
{
    struct sim_fabric *fabric = (struct sim_fabric *)head;
    struct sim_network *network = fabric->network;
    if (fabric->address[0] && find_endpoint(network, fabric->host, index))
        return ROWAN_EINUSE;
    if (fabric->endpoint_count == SIM_MAX_ENDPOINTS)
        return ROWAN_ETOOMANY;
    struct sim_endpoint *endpoint = calloc(1, sizeof *endpoint);
    ASSERT(endpoint);
    endpoint->head.ops = head->ops;
    endpoint->fabric = fabric;
    endpoint->index = index;
    LIST_APPEND(&network->endpoints, endpoint, link);
    fabric->endpoint_count++;
    *out = &endpoint->head;
    return 0;
}

static void fabric_sim_endpoint_close(struct fabric_endpoint *head)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)head;
    struct sim_network *network = endpoint->fabric->network;
    if (endpoint->zone && random_below(&network->random, 2)) {
        for (struct sim_conn *conn = endpoint->conns.first; conn; conn = conn->link.next)
            sim_rowan_arrive(conn);
    }
    /* The list of busy ones may hold any of them until the last is closed. */
    for (struct sim_conn *conn = endpoint->conns.first; conn; conn = conn->link.next)
        sim_conn_close(&conn->head);
    while (endpoint->conns.first)
        sim_conn_free(endpoint->conns.first);
    if (endpoint->zone)
        sim_zone_close((struct fabric_zone *)endpoint->zone);
    LIST_REMOVE(&network->endpoints, endpoint, link);
    endpoint->fabric->endpoint_count--;
    free(endpoint);
}

static void ignore(void *context)
{
    (void)context;
}

/* Nothing sleeps here. */
static void fabric_sim_endpoint_source(struct fabric_endpoint *endpoint, struct event_source *out)
{
    *out = (struct event_source){.fd = -1, .arm = ignore, .disarm = ignore, .context = endpoint};
}

/* --- fabrics --- */

static int fabric_sim_register(struct fabric *head, struct pm *pm)
{
    struct sim_fabric *fabric = (struct sim_fabric *)head;
    if (fabric->memory_count == SIM_MAX_MEMORIES)
        return ROWAN_ETOOMANY;
    fabric->memories[fabric->memory_count++] = pm;
    return 0;
}

bool sim_fabric_registered(const struct sim_fabric *fabric, const void *data, uint64_t bytes)
{
    for (uint32_t i = 0; i < fabric->memory_count; i++) {
        const struct pm *pm = fabric->memories[i];
        uint64_t offset = (uint64_t)((uintptr_t)data - (uintptr_t)pm->base);
        if (offset <= pm->bytes && bytes <= pm->bytes - offset)
            return true;
    }
    return false;
}

static void fabric_sim_close(struct fabric *head)
{
    struct sim_fabric *fabric = (struct sim_fabric *)head;
    struct sim_fabric **link = &fabric->network->fabrics;
    ASSERT(!fabric->endpoint_count);
    while (*link != fabric)
        link = &(*link)->next;
    *link = fabric->next;
    free(fabric);
}

static const struct fabric_ops SIM_FABRIC_OPS = {
    .close = fabric_sim_close,
    .register_memory = fabric_sim_register,
    .endpoint_open = fabric_sim_endpoint_open,
    .endpoint_close = fabric_sim_endpoint_close,
    .endpoint_source = fabric_sim_endpoint_source,
    .poll = fabric_sim_poll,
    .connect = sim_connect,
    .conn_close = sim_conn_close,
    .send = sim_send,
    .message_release = sim_message_release,
    .rowan_room = sim_rowan_room,
    .rowan_add = sim_rowan_add,
    .rowan_post = sim_rowan_post,
    .flush = fabric_sim_flush,
    .zone_open = sim_zone_open,
    .zone_post = sim_zone_post,
    .close_segment = sim_close_segment,
    .zone_begun = sim_zone_begun,
    .shut_out = sim_shut_out,
};

bool sim_address_is_valid(const char *address)
{
    return strncmp(address, SCHEME, strlen(SCHEME)) == 0 && strlen(address) > strlen(SCHEME) &&
           strlen(address) < SIM_MAX_NAME;
}

int sim_fabric_open(struct sim_network *network, const char *address, struct fabric **out)
{
    if (address && !sim_address_is_valid(address))
        return ROWAN_EINVALID;
    struct sim_fabric **link = &network->fabrics;
    for (; *link; link = &(*link)->next) {
        if (address && strcmp((*link)->address, address) == 0)
            return ROWAN_EINUSE;
    }
    struct sim_fabric *fabric = calloc(1, sizeof *fabric);
    ASSERT(fabric);
    fabric->head = (struct fabric){.ops = &SIM_FABRIC_OPS,
                                   .caps = {.backend = "sim",
                                            .block_limit = network->options.block_limit,
                                            .landing_stride = network->options.landing_stride,
                                            .max_batch_blocks = network->options.max_batch_blocks}};
    fabric->network = network;
    fabric->number = ++network->opened;
    if (address) {
        strcpy(fabric->address, address);
        fabric->host = sim_host(network, address);
        network->hosts[fabric->host].stopped = false;
    }
    *link = fabric;
    *out = &fabric->head;
    return 0;
}
