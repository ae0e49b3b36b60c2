/* cluster.h - a whole cluster in one thread: servers, a CM and client sessions over the simulated
 * seams, polled by a loop that owns the clock. No threads, no sockets, no clock of the host.
 *
 * A round polls every role whose reactor is awake once, in an order that the seed draws. When a whole round was idle
 * the clock moves on: to the earliest time that a role asked for or at which something arrives, or by
 * 1 ms if there is none.
 *
 * Every process has a clock of its own, whose rate may be off by `drift_ppm`, and change, and which may have begun long before; a role is told its own process's
 * time, and what it asks for is in that. A process may be stopped, slow, or ended, alone or with its host.
 *
 * The network, the PM and the coordination service are on the simulation's time; what they are told as "now" by a
 * role they do not use.
 *
 * A program that uses it is a test: what cannot go on aborts.
 */
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/session.h"
#include "cm/cm.h"
#include "common/base/random.h"
#include "server/server.h"
#include "test/sim/sim_coord.h"
#include "test/sim/sim_fabric.h"
#include "test/sim/sim_pm.h"
#include "test/sim/sim_reactor.h"

enum {
    SIM_MAX_SERVERS = 8,
    SIM_MAX_CLIENTS = 8,
    SIM_MAX_REACTORS = 8,
    SIM_MAX_ROLES = 16,
    SIM_MAX_STARTS = 1024
};

/* Zeros choose what stands behind. */
struct sim_cluster_options {
    uint64_t seed;
    uint32_t servers;    /* 3 */
    uint32_t replicas;   /* 3 */
    uint32_t shards;     /* 0: as the CM chooses */
    uint32_t workers;    /* 1, of each server */
    uint32_t digests;    /* 1, of each server */
    uint32_t reactors;   /* of each server. 0: everybody is polled in every round, as one that never
                                         sleeps is; else when its reactor is awake (sim_reactor.h) */
    uint32_t idle_wakes; /* of so many sleeping reactors one wakes for nothing; 0: none does */
    uint32_t clients;    /* 1 */
    uint32_t depth;      /* 64, of each session */
    uint32_t landing_segments;        /* 4 */
    uint32_t block_limit;             /* 65536 */
    uint32_t landing_stride;          /* 64 */
    uint32_t max_messages;            /* 256; of one connection and direction */
    uint64_t pm_bytes;                /* 256 MiB, of each server */
    uint64_t last_pm_bytes;           /* of the last server; as the others */
    uint64_t max_delay_ns;            /* 0; of whatever travels */
    uint64_t fence_ns;                /* 0; how long a fence takes */
    uint64_t timeout_ns;              /* 10 s, of client operations */
    uint32_t operations_per_id, span; /* as the session chooses */
    uint64_t fill_rate;               /* 0: no limit; bytes a second of each worker */
    enum pm_durability durability;    /* PM_FENCE */
    uint32_t lease_ms;                /* of servers; 0: none, and servers that end are waited for */
    uint32_t start_wait_ms,
        goodbye_wait_ms; /* the manager's settings of these names, with leases */
    bool
        stranger; /* servers do not know the rival's address, but another one, at which there is nobody */
    bool third; /* a third manager stands by, of which nobody knows */
    uint32_t
        heat_us; /* 0; a busy poll of a worker or digest role takes so long, so that shards move by
                         their load; up to 8 times as long at some servers for some seconds */
    uint32_t drift_ppm; /* 0; how far a process's clock may be off, either way */
    bool clocks_apart;  /* each has begun at another time: by seconds to days */
    bool one_sided;     /* this and the next three: see sim_fabric.h */
    uint64_t silence_ns;
    uint64_t void_ns;
    uint32_t early_seal;
    struct sim_registry_options registry; /* its clock and seed are filled in */
    struct journal *journal;              /* NULL: none */
};

struct sim_process {
    char address[32];   /* "sim:server-1", "sim:client-1", "sim:cm" */
    char name[32];      /* behind "sim:", as it was at first */
    int32_t rate_ppm;   /* of its clock, against the simulation's, since then: */
    uint64_t since_ns;  /* by that one */
    uint64_t ahead_ns;  /* what it showed then */
    uint64_t jumped_ns; /* in all */
    struct clock clock; /* what its programs read */
    const struct sim_clock *world;
    uint64_t stopped_ns, resumed_round; /* the last stop: its time, and `rounds` + 1 at its end */
    bool stopped;                       /* not polled: it got a SIGSTOP. Set by sim_cluster_stop */
    bool
        reads_early; /* its first polls behind a stop are told the time of the stop, as by a reactor
                                 that had just read its clock (design, H11) */
    uint64_t slow_ns; /* polled at most once in so long; 0: in every round */
    uint64_t due_ns;  /* slow: when next */
};

/* A role of a server, by its number (server_poller), that is polled only now and then. */
struct sim_late_role {
    uint64_t every_ns; /* 0: it is not late */
    uint64_t due_ns;
};

struct sim_server {
    struct sim_process process;
    struct fabric *fabric;
    struct sim_pm *pm;
    struct server *server; /* NULL: down */
    struct reactor reactors[SIM_MAX_REACTORS];
    uint64_t fences;      /* sim_pm_done, when its first reactor was last woken for them */
    uint64_t incarnation; /* of the last start */
    uint64_t incarnations
        [SIM_MAX_STARTS]; /* of each start; the PM of the first `emptied` of them was lost */
    uint32_t starts, emptied;
    uint32_t boots; /* of its host: 1 + how often it lost power or was rebooted */
    struct sim_late_role late[SIM_MAX_ROLES];
    sim_pm_stored *lost;    /* told of what a loss of power takes (sim_pm.h); NULL: nobody is */
    sim_pm_stored *flipped; /* likewise, of a bit that flips (flips.h) */
    void *lost_context;
};

struct sim_client {
    struct sim_process process;
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    struct session *session;
    struct reactor reactor;
    uint32_t ended; /* sessions that it had before */
};

/* A second CM, whose address servers and clients know, too. Its guest knows no other: a session that asks for a client id
 * and nothing else, so that a rival that leads stores a term. */
struct sim_rival {
    struct sim_process process; /* "sim:rival" */
    struct coord *coord;
    struct fabric *fabric;
    struct cm *cm; /* NULL: there is none, and no guest */
    struct reactor reactor;
    struct sim_client guest; /* "sim:guest" */
};

/* A third CM, from the start of the cluster to its end: nobody knows its address, so it is elected, and never named. */
struct sim_third {
    struct sim_process process; /* "sim:third" */
    struct coord *coord;
    struct fabric *fabric;
    struct cm *cm; /* NULL: there is none */
    struct reactor reactor;
};

/* A role that had work and slept: one that woke for nothing found it. Only the first of a run. */
struct sim_sleeper {
    const char *process, *role; /* NULL: there was none */
    uint64_t late_ns;           /* when it would have looked; WAKE_NEVER: never */
};

struct sim_cluster {
    uint64_t
        limps_ns; /* since then the CM limps, and nothing else is amiss: the rival should be named; 0: it does not */
    struct sim_cluster_options options; /* with the defaults filled in */
    struct sim_clock clock;
    struct random random; /* of the order of polls */
    struct sim_network *network;
    struct sim_registry *registry;
    struct coord *coord;
    struct fabric *cm_fabric;
    struct cm *cm; /* NULL: down */
    struct cm_options cm_options;
    struct sim_process cm_process;
    struct reactor cm_reactor;
    struct sim_rival rival;
    struct sim_third third;
    uint64_t went_back;    /* how often the stored configuration was an old one again */
    uint64_t back_version; /* of the registry's value, while it is one; 0: it is not */
    uint64_t starts;       /* of processes: incarnations */
    struct sim_server servers[SIM_MAX_SERVERS]; /* server number n is at n - 1 */
    struct sim_client clients[SIM_MAX_CLIENTS];
    uint64_t until_ns;  /* the clock does not jump further, if it has not passed that: the caller of
                             sim_cluster_step sets it, sim_cluster_run its own; WAKE_NEVER: no bound */
    uint64_t told_term; /* of the configuration that the journal was told of last */
    uint64_t rounds;    /* so far */
    uint32_t busy_rounds; /* since the clock moved */
    struct sim_sleeper sleeper;
};

/* Every process is there, and nothing was polled. */
struct sim_cluster *sim_cluster_begin(const struct sim_cluster_options *options);

/* The same, run until every session is ready and the servers had time to find each other. */
struct sim_cluster *sim_cluster_create(const struct sim_cluster_options *options);
void sim_cluster_destroy(struct sim_cluster *cluster);

/* Processes by number: servers, then clients, then the CM. */
uint32_t sim_cluster_processes(const struct sim_cluster *cluster);
struct sim_process *sim_cluster_process(struct sim_cluster *cluster, uint32_t number);

/* What the process's clock shows, and when on the simulation's it shows `at_ns` or more (WAKE_NEVER: never). */
uint64_t sim_process_now_ns(const struct sim_process *process, uint64_t now_ns);
uint64_t sim_process_until_ns(const struct sim_process *process, uint64_t at_ns);

/* From now on the process's clock runs at another rate; and it jumps ahead. */
void sim_cluster_set_clock(struct sim_cluster *cluster, uint32_t number, int32_t rate_ppm,
                           uint64_t jump_ns);

/* SIGSTOP and SIGCONT. The kernel keeps its connections. */
void sim_cluster_stop(struct sim_cluster *cluster, struct sim_process *process, bool stopped);

/* The end of one process, as by kill -9, stopped or not; of one that is down already nothing. `power`: its
 * host loses power at that moment, the stream says what that takes with it; NULL: the host goes on. */
struct sim_pm_loss sim_cluster_kill_server(struct sim_cluster *cluster, uint32_t server,
                                           struct random *power);
void sim_cluster_kill_cm(struct sim_cluster *cluster);

/* The end of a client's process, stopped or not, with what it has outstanding; another begins at once at the same
 * address, which gets a client id of its own. */
void sim_cluster_kill_client(struct sim_cluster *cluster, uint32_t index);

/* The client id of its session; 0: none yet. */
uint32_t sim_client_id(const struct sim_client *client);

/* What comes in the place of one that is down: an empty PM, or a host with another address. */
void sim_cluster_empty_server(struct sim_cluster *cluster, uint32_t server);
void sim_cluster_readdress_server(struct sim_cluster *cluster, uint32_t server);

/* Was the PM lost that this process had? */
bool sim_cluster_has_lost(const struct sim_cluster *cluster, const struct member *member);

/* Starts one that is down, with a new incarnation. */
void sim_cluster_start_server(struct sim_cluster *cluster, uint32_t server);
void sim_cluster_start_cm(struct sim_cluster *cluster);

/* A second CM stands for election, and ends, as by kill -9. */
void sim_cluster_start_rival(struct sim_cluster *cluster);
void sim_cluster_kill_rival(struct sim_cluster *cluster);

/* Likewise the third one, if the options want it. */
void sim_cluster_start_third(struct sim_cluster *cluster);
void sim_cluster_kill_third(struct sim_cluster *cluster);

/* The end of every server and CM that runs, at one moment, as by kill -9: what was on its way may have
 * arrived or not. What the coordination service and each PM hold stays. Sessions live on, and ask
 * again. */
void sim_cluster_crash(struct sim_cluster *cluster);

/* Starts all of them again on the same PM; all are down. `rebooted`: their hosts were, but had time to write
 * everything. */
void sim_cluster_restart(struct sim_cluster *cluster, bool rebooted);

/* The host of that server, or of any, has lost power or was rebooted, and nothing fences: the start behind that takes its
 * data for possibly incomplete, as it cannot know whether anything was lost. */
bool sim_cluster_is_rebooted_unfenced(const struct sim_cluster *cluster, uint32_t server);
bool sim_cluster_any_rebooted_unfenced(const struct sim_cluster *cluster);

/* No server runs, and no CM. */
bool sim_cluster_is_down(const struct sim_cluster *cluster);

/* The configuration in force names those servers that run: none waits for a start. */
bool sim_cluster_is_started(const struct sim_cluster *cluster);

/* And it is committed, if there are leases, and every shard has all its replicas, full. */
bool sim_cluster_is_whole(const struct sim_cluster *cluster);

/* It leads a shard that has another full replica nowhere, though it should. */
bool sim_cluster_has_alone(const struct sim_cluster *cluster, uint32_t server);

/* One round. False if everybody was idle, and so the clock was moved. */
bool sim_cluster_step(struct sim_cluster *cluster);

/* Rounds until the condition holds; false if it does not within `limit_ns` of simulated time. */
bool sim_cluster_run(struct sim_cluster *cluster, bool (*condition)(void *context), void *context,
                     uint64_t limit_ns);

/* Rounds for `ns` of simulated time. */
void sim_cluster_run_for(struct sim_cluster *cluster, uint64_t ns);

/* Cuts all connections between two processes that the seed draws: servers, clients and the CM. */
void sim_cluster_cut(struct sim_cluster *cluster, struct random *random);

/* The configuration in force, as the CMs know it; NULL: they know none, or are down. */
const struct cluster_config *sim_cluster_config(const struct sim_cluster *cluster);

/* The control role of a server, by index; NULL: it is down. */
struct control *sim_cluster_control(const struct sim_cluster *cluster, uint32_t server);

/* --- one operation at a time, run to its completion; answers as client/rowan.h says --- */

int sim_put(struct sim_cluster *cluster, uint32_t client, const void *key, size_t key_bytes,
            const void *value, size_t value_bytes, uint64_t *version);
int sim_put_if(struct sim_cluster *cluster, uint32_t client, const void *key, size_t key_bytes,
               const void *value, size_t value_bytes, uint64_t expected, uint64_t *version);
int sim_get(struct sim_cluster *cluster, uint32_t client, const void *key, size_t key_bytes,
            void *value, size_t room, size_t *value_bytes, uint64_t *version);
int sim_del(struct sim_cluster *cluster, uint32_t client, const void *key, size_t key_bytes);

#endif
