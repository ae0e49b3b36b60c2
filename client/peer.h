/* peer.h - a connection that a session keeps: opened when wanted, opened again when it broke, with
 * growing pauses in between. */
#ifndef CLIENT_PEER_H
#define CLIENT_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cluster/cluster.h"
#include "common/fabric/fabric.h"

enum peer_state { PEER_DOWN, PEER_CONNECTING, PEER_UP };

struct peer {
    struct fabric_endpoint *endpoint;
    struct fabric_conn *conn; /* unless DOWN; its `user` is the peer */
    enum peer_state state;
    bool broken;         /* it sent nonsense: the owner closes it when the batch is done */
    int error;           /* why it is not UP, as last met; 0: no attempt failed yet */
    uint32_t index;      /* of the endpoint at `address` */
    uint64_t retry_ns;   /* DOWN: not before */
    uint64_t backoff_ns; /* of the next failure */
    char address[CLUSTER_MAX_ADDRESS_BYTES + 1];
};

/* `address` is copied; at most CLUSTER_MAX_ADDRESS_BYTES. */
void peer_init(struct peer *peer, struct fabric_endpoint *endpoint, const char *address,
               uint32_t index);

/* Closes the connection; what was in flight on it is unknown. No pause before the next one. */
void peer_close(struct peer *peer);

/* peer_want: starts a connection if there is none and it is time; lowers *wake_ns to when it is. */
void peer_want(struct peer *peer, uint64_t now_ns, uint64_t *wake_ns);

/* What to do with the fabric's CONNECTED and CLOSED events of this connection. */
void peer_connected(struct peer *peer);
void peer_closed(struct peer *peer, int error, uint64_t now_ns);

/* The peer answered something: a later failure starts with the shortest pause again. */
void peer_answered(struct peer *peer);

#endif
