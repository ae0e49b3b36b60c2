/* peer.h - a connection that a session keeps: opened when wanted, opened again when it broke, with
 * growing pauses in between. */
#ifndef CLIENT_PEER_H
#define CLIENT_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cluster/login.h"
#include "common/cluster/managers.h"
#include "common/fabric/fabric.h"

enum peer_state { PEER_DOWN, PEER_CONNECTING, PEER_LOGGING_IN, PEER_UP };

struct peer {
    struct fabric_endpoint *endpoint;
    struct fabric_conn *conn; /* unless DOWN; its `user` is the peer */
    enum peer_state state;
    bool broken;     /* it sent nonsense, or is another process than it should be: the owner closes
                          * it when the batch is done */
    int error;       /* why it is not UP, as last met; 0: no attempt failed yet */
    uint32_t server; /* whom to reach there; 0: whoever it is (a CM) */
    uint64_t incarnation;
    uint32_t index;            /* of the endpoint at `address` */
    uint64_t retry_ns;         /* DOWN: not before */
    uint64_t connecting_ns;    /* CONNECTING, LOGGING_IN: since then */
    uint64_t backoff_ns;       /* of the next failure */
    struct managers *managers; /* who is at `address` in turn; NULL: always the same one */
    char address[CLUSTER_MAX_ADDRESS_BYTES + 1];
    struct login_secret *login; /* who to log in as; the owner's, who sets it; NULL: nobody */
    struct login_try trying;
};

/* `address` is copied; at most CLUSTER_MAX_ADDRESS_BYTES. Whoever answers there is fine; peer_init_member: only this
 * process of the server is; peer_init_managers: whoever of them leads. They stay the caller's, and outlive the peer. */
void peer_init(struct peer *peer, struct fabric_endpoint *endpoint, const char *address,
               uint32_t index);
void peer_init_member(struct peer *peer, struct fabric_endpoint *endpoint,
                      const struct member *member, uint32_t index);
void peer_init_managers(struct peer *peer, struct fabric_endpoint *endpoint,
                        struct managers *managers);

/* Closes the connection; what was in flight on it is unknown. No pause before the next one. */
void peer_close(struct peer *peer);

/* peer_want: starts a connection if there is none and it is time; lowers *wake_ns to when it is. */
void peer_want(struct peer *peer, uint64_t now_ns, uint64_t *wake_ns);

/* A message that came while it is LOGGING_IN: part of the login, which may end it. */
void peer_message(struct peer *peer, const void *data, uint32_t bytes);

/* What to do with the fabric's CONNECTED and CLOSED events of this connection. With managers the next attempt is at
 * the next one, without a pause unless a round is over. */
void peer_connected(struct peer *peer, const struct fabric_identity *reached);
void peer_closed(struct peer *peer, int error, uint64_t now_ns);

/* peer_break: it is of no use, for that reason. The owner calls peer_end_broken when the batch is done, which closes it if it
 * is broken. False: it is not. */
void peer_break(struct peer *peer, int error);
bool peer_end_broken(struct peer *peer, uint64_t now_ns);

/* The peer answered something, a manager that it leads: a later failure starts with the shortest pause again. */
void peer_answered(struct peer *peer);

#endif
