/* One connection and its attempts.
 *
 *   DOWN --peer_want--> CONNECTING --peer_connected--> LOGGING_IN --peer_message--> UP
 *    ^                      |          (who logs in)       |                         |
 *    +-----peer_closed------+-------------peer_closed------+--------peer_closed------+
 *
 * A connection that is accepted and at once closed counts as a failure too: only an answer brings
 * the pause back to its shortest.
 */
#include "client/peer.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"

#define PEER_MIN_BACKOFF_NS (10 * NS_PER_MS)
#define PEER_MAX_BACKOFF_NS (500 * NS_PER_MS)

void peer_init(struct peer *peer, struct fabric_endpoint *endpoint, const char *address,
               uint32_t index)
{
    size_t bytes = strlen(address);

    ASSERT(bytes < sizeof peer->address);
    *peer = (struct peer){.endpoint = endpoint, .index = index, .backoff_ns = PEER_MIN_BACKOFF_NS};
    memcpy(peer->address, address, bytes + 1);
}

void peer_init_member(struct peer *peer, struct fabric_endpoint *endpoint,
                      const struct member *member, uint32_t index)
{
    peer_init(peer, endpoint, member->address, index);
    peer->server = member->server;
    peer->incarnation = member->incarnation;
}

void peer_init_managers(struct peer *peer, struct fabric_endpoint *endpoint,
                        struct managers *managers)
{
    peer_init(peer, endpoint, managers_address(managers), 0);
    peer->managers = managers;
}

void peer_close(struct peer *peer)
{
    fabric_conn_close(peer->conn);
    peer->conn = NULL;
    peer->state = PEER_DOWN;
    peer->broken = false;
    peer->retry_ns = 0;
}

void peer_want(struct peer *peer, uint64_t now_ns, uint64_t *wake_ns)
{
    if (peer->state != PEER_DOWN)
        return;
    if (now_ns >= peer->retry_ns) {
        int error = fabric_connect(peer->endpoint, peer->address, peer->index,
                                   (uint64_t)(uintptr_t)peer, &peer->conn);

        if (!error) {
            peer->conn->user = peer;
            peer->state = PEER_CONNECTING;
            peer->connecting_ns = now_ns;
            return;
        }
        peer_closed(peer, error, now_ns);
    }
    wake_at(wake_ns, peer->retry_ns);
}

void peer_connected(struct peer *peer, const struct fabric_identity *reached)
{
    ASSERT(peer->state == PEER_CONNECTING);
    peer->state = peer->login ? PEER_LOGGING_IN : PEER_UP;
    if (peer->server && !fabric_is_server(reached, peer->server, peer->incarnation)) {
        peer_break(peer, ROWAN_EUNREACHABLE);
        return;
    }
    const int error = peer->login ? login_begin(&peer->trying, peer->login, peer->conn) : 0;
    if (error)
        peer_break(peer, error);
}

void peer_message(struct peer *peer, const void *data, uint32_t bytes)
{
    Rowan__ControlMessage *message;
    uint32_t tag;
    int error = control_decode(data, bytes, &tag, &message);
    enum login_step step = LOGIN_FAILED;
    if (!error) {
        step = login_go_on(&peer->trying, peer->login, peer->conn, message, &error);
        control_free(message);
    }
    if (step == LOGIN_DONE)
        peer->state = PEER_UP;
    else if (step != LOGIN_GOES_ON)
        peer_break(peer, error ? error : ROWAN_EFORMAT);
}

void peer_break(struct peer *peer, int error)
{
    peer->broken = true;
    peer->error = error;
}

bool peer_end_broken(struct peer *peer, uint64_t now_ns)
{
    if (!peer->broken)
        return false;
    fabric_conn_close(peer->conn);
    peer_closed(peer, peer->error, now_ns);
    return true;
}

void peer_closed(struct peer *peer, int error, uint64_t now_ns)
{
    peer->conn = NULL;
    peer->state = PEER_DOWN;
    peer->broken = false;
    peer->error = error ? error : ROWAN_ECLOSED;
    const bool at_once = peer->managers && managers_next(peer->managers, now_ns);

    if (peer->managers)
        strcpy(peer->address, managers_address(peer->managers));
    if (at_once)
        return;
    peer->retry_ns = now_ns + peer->backoff_ns;
    peer->backoff_ns *= 2;
    if (peer->backoff_ns > PEER_MAX_BACKOFF_NS)
        peer->backoff_ns = PEER_MAX_BACKOFF_NS;
}

void peer_answered(struct peer *peer)
{
    peer->backoff_ns = PEER_MIN_BACKOFF_NS;
    if (peer->managers)
        managers_found(peer->managers);
}
