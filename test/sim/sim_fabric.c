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
    if (!network->options.max_batch_blocks)
        network->options.max_batch_blocks = 8192;
    if (!network->options.max_messages)
        network->options.max_messages = 256;
    random_init(&network->random, options->seed);
    return network;
}

void sim_network_destroy(struct sim_network *network)
{
    if (!network)
        return;
    ASSERT(!network->fabrics);
    free(network);
}

uint64_t sim_network_now(const struct sim_network *network)
{
    return network->options.clock->now_ns;
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

/* --- walking over everything --- */

static struct sim_endpoint *next_endpoint(const struct sim_network *network,
                                          const struct sim_endpoint *after)
{
    struct sim_fabric *fabric = after ? after->fabric : network->fabrics;
    uint32_t slot = after ? after->slot + 1 : 0;
    for (; fabric; fabric = fabric->next, slot = 0) {
        for (; slot < SIM_MAX_ENDPOINTS; slot++) {
            if (fabric->endpoints[slot])
                return fabric->endpoints[slot];
        }
    }
    return NULL;
}

static struct sim_endpoint *find_endpoint(const struct sim_network *network, const char *address,
                                          uint32_t index)
{
    struct sim_endpoint *at = NULL;
    while ((at = next_endpoint(network, at))) {
        if (at->index == index && strcmp(at->fabric->address, address) == 0)
            return at;
    }
    return NULL;
}

static bool is_parted(const struct sim_network *network, const char *a, const char *b)
{
    return network->parted[0][0] &&
           ((strcmp(network->parted[0], a) == 0 && strcmp(network->parted[1], b) == 0) ||
            (strcmp(network->parted[0], b) == 0 && strcmp(network->parted[1], a) == 0));
}

void sim_network_break(struct sim_network *network, const char *a, const char *b)
{
    struct sim_endpoint *at = NULL;
    while ((at = next_endpoint(network, at))) {
        if (strcmp(at->fabric->address, a) != 0)
            continue;
        for (struct sim_conn *conn = at->conns; conn; conn = conn->next) {
            if (conn->peer && strcmp(conn->peer->endpoint->fabric->address, b) == 0)
                sim_conn_break(conn, true);
        }
    }
}

void sim_network_part(struct sim_network *network, const char *a, const char *b)
{
    ASSERT(strlen(a) < SIM_MAX_NAME && strlen(b) < SIM_MAX_NAME);
    strcpy(network->parted[0], a);
    strcpy(network->parted[1], b);
    sim_network_break(network, a, b);
}

void sim_network_join(struct sim_network *network)
{
    network->parted[0][0] = '\0';
}

static void lower(uint64_t *next_ns, uint64_t at_ns, uint64_t now_ns)
{
    if (at_ns > now_ns && at_ns < *next_ns)
        *next_ns = at_ns;
}

uint64_t sim_network_next_ns(const struct sim_network *network)
{
    uint64_t next_ns = WAKE_NEVER, now_ns = sim_network_now(network);
    struct sim_endpoint *at = NULL;
    while ((at = next_endpoint(network, at))) {
        for (const struct sim_conn *conn = at->conns; conn; conn = conn->next) {
            if (conn->state == CONN_CONNECTING)
                lower(&next_ns, conn->connect_at_ns, now_ns);
            if (conn->incoming.first)
                lower(&next_ns, conn->incoming.first->at_ns, now_ns);
            if (conn->block_landed < conn->block_flushed)
                lower(&next_ns, sim_rowan_at_ns(conn), now_ns);
        }
    }
    return next_ns;
}

/* --- handshakes --- */

static void refuse(struct sim_conn *conn, int error)
{
    sim_network_of(conn)->connecting--;
    conn->state = CONN_BROKEN;
    sim_conn_push(conn, FABRIC_CLOSED, error, conn->context);
}

static void accept_conn(struct sim_endpoint *endpoint, struct sim_conn *active)
{
    struct sim_network *network = endpoint->fabric->network;
    int error = endpoint->head.admit
                    ? endpoint->head.admit(endpoint->head.admit_context, &active->identity)
                    : 0;
    if (error) {
        refuse(active, error);
        return;
    }
    network->connecting--;
    network->counts.connected++;
    struct sim_conn *passive = sim_conn_create(endpoint, 0);
    passive->peer = active;
    active->peer = passive;
    passive->state = active->state = CONN_OPEN;
    active->head.has_zone = endpoint->zone != NULL;
    passive->head.has_zone = active->endpoint->zone != NULL;
    sim_conn_push(passive, FABRIC_ACCEPTED, 0, 0);
    passive->incoming.last->event.peer = active->identity;
    sim_conn_push(active, FABRIC_CONNECTED, 0, active->context);
    active->incoming.last->event.peer = endpoint->head.identity;
}

/* Handshakes that have reached this endpoint, and those of its own that reach nobody. */
static void shake_hands(struct sim_endpoint *endpoint)
{
    const struct sim_network *network = endpoint->fabric->network;
    const char *address = endpoint->fabric->address;
    struct sim_endpoint *at = NULL;
    while (network->connecting && (at = next_endpoint(network, at))) {
        for (struct sim_conn *conn = at->conns; conn; conn = conn->next) {
            if (conn->state != CONN_CONNECTING || conn->connect_at_ns > sim_network_now(network))
                continue;
            bool reachable = find_endpoint(network, conn->to, conn->to_index) &&
                             !is_parted(network, at->fabric->address, conn->to);
            if (!reachable) {
                if (at == endpoint)
                    refuse(conn, ROWAN_EUNREACHABLE);
            } else if (conn->to_index == endpoint->index && strcmp(conn->to, address) == 0) {
                accept_conn(endpoint, conn);
            }
        }
    }
}

/* --- polling --- */

static void free_over(struct sim_endpoint *endpoint)
{
    struct sim_conn *next;
    for (struct sim_conn *conn = endpoint->conns; conn; conn = next) {
        next = conn->next;
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
    struct sim_conn *first = endpoint->conns;
    for (uint32_t i = 0; i < endpoint->turn && first; i++)
        first = first->next;
    if (!first) {
        endpoint->turn = 0;
        first = endpoint->conns;
    }
    struct sim_conn *conn = first;
    while (conn && count < max) {
        if (sim_conn_next(conn, &events[count]))
            trace_event(endpoint, &events[count++]);
        conn = conn->next ? conn->next : endpoint->conns;
        if (conn == first)
            break;
    }
    return count;
}

static unsigned fabric_sim_poll(struct fabric_endpoint *head, uint64_t now_ns,
                                struct fabric_event *events, unsigned max)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)head;
    (void)now_ns; /* by the process's own clock */
    free_over(endpoint);
    shake_hands(endpoint);
    for (struct sim_conn *conn = endpoint->conns; conn; conn = conn->next)
        sim_rowan_step(conn);

    unsigned count = 0, round;
    while (endpoint->zone && count < max && sim_zone_next(endpoint->zone, &events[count]))
        trace_event(endpoint, &events[count++]);
    endpoint->turn++;
    do {
        round = take_round(endpoint, events + count, max - count);
        count += round;
    } while (round > 0 && count < max);
    return count;
}

static void fabric_sim_flush(struct fabric_endpoint *head)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)head;
    for (struct sim_conn *conn = endpoint->conns; conn; conn = conn->next) {
        sim_conn_flush(conn);
        sim_rowan_flush(conn);
    }
}

/* --- endpoints --- */

static int fabric_sim_endpoint_open(struct fabric *head, uint32_t index,
                                    struct fabric_endpoint **out)
{
    struct sim_fabric *fabric = (struct sim_fabric *)head;
    uint32_t slot = 0;
    if (fabric->address[0] && find_endpoint(fabric->network, fabric->address, index))
        return ROWAN_EINUSE;
    while (slot < SIM_MAX_ENDPOINTS && fabric->endpoints[slot])
        slot++;
    if (slot == SIM_MAX_ENDPOINTS)
        return ROWAN_ETOOMANY;
    struct sim_endpoint *endpoint = calloc(1, sizeof *endpoint);
    ASSERT(endpoint);
    endpoint->head.ops = head->ops;
    endpoint->fabric = fabric;
    endpoint->index = index;
    endpoint->slot = slot;
    fabric->endpoints[slot] = endpoint;
    *out = &endpoint->head;
    return 0;
}

static void fabric_sim_endpoint_close(struct fabric_endpoint *head)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)head;
    for (struct sim_conn *conn = endpoint->conns; conn; conn = conn->next)
        sim_conn_close(&conn->head);
    free_over(endpoint);
    if (endpoint->zone)
        sim_zone_close((struct fabric_zone *)endpoint->zone);
    endpoint->fabric->endpoints[endpoint->slot] = NULL;
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
    for (uint32_t i = 0; i < SIM_MAX_ENDPOINTS; i++)
        ASSERT(!fabric->endpoints[i]);
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
    .zone_close = sim_zone_close,
    .zone_post = sim_zone_post,
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
                                            .max_batch_blocks = network->options.max_batch_blocks,
                                            .bytes_per_connection = sizeof(struct sim_conn)}};
    fabric->network = network;
    fabric->number = ++network->opened;
    if (address)
        strcpy(fabric->address, address);
    *link = fabric;
    *out = &fabric->head;
    return 0;
}
