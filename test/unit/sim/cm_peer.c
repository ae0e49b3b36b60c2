#include "cm_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/error.h"
#include "common/cluster/control.h"

#define AGAIN_NS (50 * NS_PER_MS)

enum { TAG = 7, EVENTS = 16 };

void cm_peer_start(struct cm_peer *peer, struct sim_network *network)
{
    char address[32];
    snprintf(address, sizeof address, "sim:server-%u", peer->server);
    assert_int_equal(sim_fabric_open(network, peer->server ? address : NULL, &peer->fabric), 0);
    assert_int_equal(fabric_endpoint_open(peer->fabric, 0, &peer->endpoint), 0);
    const struct fabric_identity identity = {.cluster = peer->data_cluster,
                                             .incarnation = peer->incarnation,
                                             .id = peer->server,
                                             .kind = peer->server ? FABRIC_SERVER : FABRIC_CLIENT};
    fabric_endpoint_identity(peer->endpoint, &identity);
    peer->conn = NULL;
    peer->connected = peer->reported = false;
    peer->ask_ns = peer->term = 0;
}

void cm_peer_stop(struct cm_peer *peer)
{
    fabric_endpoint_close(peer->endpoint);
    fabric_close(peer->fabric);
    peer->endpoint = NULL;
    peer->fabric = NULL;
}

static void send_message(struct cm_peer *peer, const Rowan__ControlMessage *message)
{
    uint8_t bytes[512];
    struct fabric_iov iov = {.data = bytes};
    iov.bytes = (uint32_t)control_encode(TAG, message, bytes, sizeof bytes);
    assert_true(iov.bytes > 0);
    fabric_send(peer->conn, &iov, 1); /* refused or closed: asked again */
}

static void send_join(struct cm_peer *peer)
{
    char address[32];
    snprintf(address, sizeof address, "sim:server-%u", peer->server);
    Rowan__Join body = ROWAN__JOIN__INIT;
    body.server = peer->server;
    body.incarnation = peer->incarnation;
    body.workers = 1;
    body.address = address;
    body.block_limit = 65536;
    body.fabric = (char *)(uintptr_t) "sim";
    body.durability = (char *)(uintptr_t) "fence";
    body.data_cluster = peer->data_cluster;
    body.named = body.formatted = peer->term != 0;
    body.registration_epoch = peer->round;
    Rowan__ControlMessage message = ROWAN__CONTROL_MESSAGE__INIT;
    message.body_case = ROWAN__CONTROL_MESSAGE__BODY_JOIN;
    message.join = &body;
    send_message(peer, &message);
}

static void send_questions(struct cm_peer *peer)
{
    Rowan__GetConfiguration get = ROWAN__GET_CONFIGURATION__INIT;
    get.known_term = peer->told_term;
    Rowan__ControlMessage message = ROWAN__CONTROL_MESSAGE__INIT;
    message.body_case = ROWAN__CONTROL_MESSAGE__BODY_GET_CONFIGURATION;
    message.get_configuration = &get;
    send_message(peer, &message);
    Rowan__NewClientId new_id = ROWAN__NEW_CLIENT_ID__INIT;
    message.body_case = ROWAN__CONTROL_MESSAGE__BODY_NEW_CLIENT_ID;
    message.new_client_id = &new_id;
    send_message(peer, &message);
}

/* What the process serves with must stay as it was: it could not follow (server/control/control_config.c). */
static void check_kept(const struct cm_peer *peer, const struct cluster_config *config)
{
    const struct cluster_config *before = peer->chain->history[peer->term];
    assert_true(config->term >= peer->term);
    assert_memory_equal(before->shards, config->shards,
                        config->shard_count * sizeof config->shards[0]);
}

static void take_configuration(struct cm_peer *peer, const Rowan__ConfigurationIs *is)
{
    struct cluster_config *config;
    if (is->configuration.len == 0) {
        if (is->registration_epoch != peer->round)
            peer->ask_ns = 0; /* as control_config.c does */
        peer->round = is->registration_epoch;
        return;
    }
    assert_int_equal(cluster_decode(is->configuration.data, is->configuration.len, &config), 0);
    chain_has(peer->chain, config);
    assert_true(config->term >= peer->told_term);
    peer->told_term = config->term;
    const struct member *member = peer->server ? cluster_member(config, peer->server) : NULL;
    bool named = member && member->incarnation == peer->incarnation;
    assert_int_equal(config->has_secret, named);
    if (named && peer->term)
        check_kept(peer, config);
    if (named || !peer->server)
        peer->term = config->term;
    cluster_release(config);
}

/* Each id once, and out of a block that is reserved. */
static void take_id(struct cm_peer *peer, uint32_t id)
{
    assert_true(peer->ids_given && id >= 1 && id < PEER_MAX_IDS);
    assert_true(chain_last(peer->chain) && id < chain_last(peer->chain)->next_client_id);
    assert_false(peer->ids_given[id / 8] & (1 << id % 8));
    peer->ids_given[id / 8] |= (uint8_t)(1 << id % 8);
    peer->ids++;
}

/* No server here has a fault of its own: it may be put off, never refused. */
static void take_failure(const struct cm_peer *peer, const Rowan__Failure *failure)
{
    if (peer->server && failure->error != ROWAN_EAGAIN)
        fail_msg("server %u was refused: %s", peer->server, failure->detail);
}

static void take_message(struct cm_peer *peer, const struct fabric_event *event)
{
    Rowan__ControlMessage *message;
    uint32_t tag;
    assert_int_equal(control_decode(event->data, event->bytes, &tag, &message), 0);
    fabric_message_release(event->conn, event->message);
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_CONFIGURATION_IS)
        take_configuration(peer, message->configuration_is);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_CLIENT_ID_IS)
        take_id(peer, message->client_id_is->client_id);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FAILURE)
        take_failure(peer, message->failure);
    control_free(message);
}

static void take_event(struct cm_peer *peer, const struct fabric_event *event)
{
    if (event->kind == FABRIC_CONNECTED) {
        peer->connected = true;
        peer->reported = false;
        peer->told_term = peer->ask_ns = peer->round = 0;
    } else if (event->kind == FABRIC_CLOSED) {
        peer->connected = false;
        peer->conn = NULL;
    } else if (event->kind == FABRIC_MESSAGE) {
        take_message(peer, event);
    }
}

/* For duty; and when it serves, by the configuration it was told before, with its PM formatted. */
static void report(struct cm_peer *peer)
{
    if (peer->term)
        peer->data_cluster = chain_last(peer->chain)->cluster;
    peer->reported = peer->term != 0;
    send_join(peer);
}

static void act(struct cm_peer *peer, uint64_t now_ns)
{
    if (!peer->conn && fabric_connect(peer->endpoint, peer->cm, 0, 0, &peer->conn) != 0)
        peer->conn = NULL;
    else if (peer->connected && !peer->server)
        send_questions(peer);
    else if (peer->connected &&
             (peer->told_term == 0 || !peer->reported)) /* as control_config.c repeats it */
        report(peer);
    peer->ask_ns = now_ns + AGAIN_NS;
}

enum poll_result cm_peer_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct cm_peer *peer = role;
    struct fabric_event events[EVENTS];
    unsigned count = fabric_poll(peer->endpoint, now_ns, events, EVENTS);
    for (unsigned i = 0; i < count; i++)
        take_event(peer, &events[i]);
    bool acts = now_ns >= peer->ask_ns;
    if (acts)
        act(peer, now_ns);
    if (peer->ask_ns < *wake_ns)
        *wake_ns = peer->ask_ns;
    fabric_flush(peer->endpoint);
    return count > 0 || acts ? POLL_BUSY : POLL_IDLE;
}
