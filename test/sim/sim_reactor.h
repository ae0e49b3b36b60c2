/* sim_reactor.h - who of a simulated process is polled, and when: the calls of common/reactor/reactor.h by which roles
 * and what wakes them come to a reactor, and what the simulator's loop asks of it. In a program that links this
 * there is no other reactor.
 *
 * A reactor is awake when a role of it was busy, when the time has come that a role asked for, when something
 * that it sleeps on has work (an endpoint, a coordination service's handle, a session that was posted to), or
 * when somebody woke it. Then each of its roles has a turn. Nothing else gives one: the last poll of a
 * role before it sleeps is the first in which all were idle, as it may be where threads do not spin.
 */
#ifndef SIM_REACTOR_H
#define SIM_REACTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cluster/cluster.h"
#include "common/coord/coord.h"
#include "common/reactor/reactor.h"
#include "server/common.h"
#include "server/server.h"

struct session;

enum {
    SIM_REACTOR_ROLES = 1 + CLUSTER_MAX_WORKERS + SERVER_MAX_DIGESTS,
    SIM_REACTOR_SOURCES = 1 + CLUSTER_MAX_WORKERS,
};

struct sim_role {
    struct poller poller;
    uint64_t wake_ns; /* that it asked for last, on the simulation's clock */
    bool turn;        /* is to be polled, and was not yet */
    bool for_nothing; /* that turn was given although nobody had woken it */
};

/* Zeros: nobody is on it. */
struct reactor {
    struct sim_role roles[SIM_REACTOR_ROLES];
    uint32_t role_count;
    void *sources[SIM_REACTOR_SOURCES]; /* endpoints */
    uint32_t source_count;
    struct coord *coord;     /* NULL: none */
    struct session *session; /* NULL: none */
    uint64_t posts;          /* to the session, when its last poll ended */
    bool woken;              /* by somebody, since the last turn was given */
    bool busy;               /* a role was, likewise */
    bool late;               /* a fault site held a role up, likewise: it comes once more */
};

/* Is it awake at that time? */
bool sim_reactor_is_awake(const struct reactor *reactor, uint64_t now_ns);

/* Gives a turn to each of its roles. `for_nothing`: it is not awake. */
void sim_reactor_begin(struct reactor *reactor, bool for_nothing);

/* Polls one of its roles; what that asked for is put into *wake_ns, on its process's clock (WAKE_NEVER: nothing). */
enum poll_result sim_reactor_poll(struct reactor *reactor, const struct sim_role *role,
                                  uint64_t process_ns, uint64_t *wake_ns);

/* The earliest time that a role of it asked for; those whose turn it is do not count. */
uint64_t sim_reactor_wake_ns(const struct reactor *reactor);

#endif
