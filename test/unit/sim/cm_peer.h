/* cm_peer.h - servers and clients as the CM sees them: they connect, report for duty or ask, and check what
 * they are sent. For cmocka tests of the CM in a simulated network. */
#ifndef TEST_SIM_CM_PEER_H
#define TEST_SIM_CM_PEER_H

#include "chain.h"
#include "test/sim/sim_fabric.h"

enum { PEER_MAX_IDS = 1 << 21 };

struct cm_peer {
    const char *cm; /* address */
    const struct chain *chain;
    struct fabric *fabric;
    struct fabric_endpoint *endpoint; /* NULL: down */
    struct fabric_conn *conn;
    bool connected;
    bool reported;         /* server: on this connection, that it serves */
    uint64_t round;        /* server: the last that it was told on this connection */
    uint64_t ask_ns;       /* when it connects or asks next */
    uint64_t told_term;    /* newest that it was sent on this connection */
    uint32_t server;       /* 0: a client */
    uint64_t incarnation;  /* server: of this process */
    uint64_t data_cluster; /* server: whose data it holds; outlives the process */
    uint64_t term;         /* server: newest that names this process; client: newest */
    uint8_t *ids_given;    /* client: a bit for each id, shared */
    uint64_t ids;          /* client: that it got */
};

/* All else of it is filled in before. */
void cm_peer_start(struct cm_peer *peer, struct sim_network *network);
void cm_peer_stop(struct cm_peer *peer);
enum poll_result cm_peer_poll(void *peer, uint64_t now_ns, uint64_t *wake_ns);

#endif
