/* fleet.h - servers in time, for random tests with leases: each renews, adopts and serves as one may, with a clock of its own,
 * while managers stand still between a look at the clock and what they do then. Checked with every message and step:
 *  - no configuration is committed while a lease of a process that it or one before it removed may run. A process that has
 *    ended counts too: the manager cannot know that it has;
 *  - no two processes serve a shard in the same moment. One serves what it leads in the last configuration that it knows to
 *    be committed and in the last that it has adopted, while it has a lease.
 */
#ifndef TEST_UNIT_CM_FLEET_H
#define TEST_UNIT_CM_FLEET_H

#include "common/base/random.h"
#include "test/unit/cm/world.h"

enum { FLEET_SERVERS = 4, FLEET_LEASE_MS = 2000, FLEET_PROCESSES = 1024 };

struct fleet_process {
    uint32_t server;
    uint64_t incarnation;
    const struct cluster_config *known, *adopted, *committed; /* the store's; NULL: none */
    uint64_t answered;     /* the highest term of a manager that it answered */
    uint64_t lease_end_ns; /* in true time */
    uint32_t cut_off;      /* a server that its sends do not reach, it says; 0: none */
};

/* A Renew and its answer, of one server and one manager. */
struct fleet_renewal {
    bool under_way, delivered;
    uint32_t tag;
    uint64_t incarnation, sent_ns;
    struct world_renewal says;
    uint64_t heard_manager, heard_ns; /* in the last answer */
    bool cut;                         /* nothing of the server reaches the manager just now */
};

struct fleet {
    struct random *random;
    struct world_store *store;
    struct world *const *managers;
    const uint64_t *running; /* by server: the incarnation */
    uint64_t true_ns;
    uint32_t process_count;
    uint32_t tag;
    bool still
        [WORLD_MANAGERS]; /* the process stands between its look at the clock and all that comes after */
    bool healed;
    uint64_t committed; /* the highest term that was */
    uint64_t grants, commits,
        served; /* how often; so that a test can see that something happened */
    struct fleet_process processes[FLEET_PROCESSES];
    struct fleet_renewal renewals[WORLD_MANAGERS][FLEET_SERVERS + 1];
};

/* All zeros before. Connection and server have the same number. */
void fleet_init(struct fleet *fleet, struct random *random, struct world_store *store,
                struct world *const *managers, const uint64_t *running);

/* The manager is a new one. */
void fleet_manager(struct fleet *fleet, uint32_t manager);

/* Time passes. If `calm`, little and every manager looks at its clock; else some do not for long. */
void fleet_pass(struct fleet *fleet, bool calm);

/* Much time passes, and every manager looks at its clock. */
void fleet_skip(struct fleet *fleet, uint64_t ns);

/* Everybody reaches every manager. */
void fleet_heal(struct fleet *fleet);

/* Each server does something, perhaps. */
void fleet_act(struct fleet *fleet);

/* What the manager has sent since world_forget arrives. */
void fleet_hear(struct fleet *fleet, uint32_t manager);

#endif
