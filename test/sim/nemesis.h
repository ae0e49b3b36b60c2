/* nemesis.h - who injects the faults of a run, at times that the seed draws. README.md has the table of what is
 * injected, within which bound, and what the user sees: nothing else may be.
 */
#ifndef SIM_NEMESIS_H
#define SIM_NEMESIS_H

#include "test/sim/cluster.h"
#include "test/sim/load.h"

enum nemesis_fault {
    NEMESIS_CUT,          /* connections between two processes */
    NEMESIS_PART_ONE_WAY, /* between two, or one and all others, for a while */
    NEMESIS_PART_BOTH_WAYS,
    NEMESIS_STALL,
    NEMESIS_STOP, /* SIGSTOP, SIGCONT after a while */
    NEMESIS_SLOW,
    NEMESIS_DRY,        /* the control role of a server comes late: its landing zone runs dry */
    NEMESIS_KILL_ALL,   /* every server; the CM or not. Hosts lose power or not */
    NEMESIS_KILL_ONE,   /* a server, perhaps its host; later all others, then all start again */
    NEMESIS_KILL_CM,    /* and another starts */
    NEMESIS_COORD_PART, /* the CM does not reach the coordination service */
    NEMESIS_COORD_EXPIRE,
    NEMESIS_COORD_LOSES, /* replies, for a while */
    NEMESIS_RIVAL,       /* a second CM stands for election, and goes */
    NEMESIS_KILL_CLIENT, /* and another begins in its place */
    NEMESIS_DEAF, /* a client hears nothing, for deaf_ns; as that ends all servers do, and start again */
    NEMESIS_SPLIT, /* with leases: some servers, clients and a CM reach nobody else; stops and changes of the
                      manager amid it */
    NEMESIS_CLOCK, /* none: of a process, it changes its rate, or jumps ahead */
    NEMESIS_PLAN,  /* none: shards change primaries and replicas, as an operator wants */
    NEMESIS_UNHEARD, /* none: a server does not hear that a configuration is committed, and is to lead in the next */
    NEMESIS_LIMP, /* none: the CM, for long, while nothing else is amiss and a rival is there */
    NEMESIS_BACK, /* the stored configuration is an old one for a while, as from a backup */
    NEMESIS_OFF, /* none: all are asked to stop, one after the other, and the last one loses its PM */
    NEMESIS_FAULTS,
};

struct nemesis_options {
    uint64_t seed;
    uint64_t mean_pause_ns;           /* between two faults */
    uint64_t max_length_ns;           /* of one that lasts */
    uint64_t deaf_ns;                 /* NEMESIS_DEAF */
    uint32_t weights[NEMESIS_FAULTS]; /* 0: not in this run */
    uint32_t power_loss_in; /* of killed servers one in so many loses its host's power; 0: none */
    bool power_together;    /* all hosts lose it at one moment, or none does */
    uint32_t
        flip_in; /* of the starts of a server, the same in the whole run, one in so many finds bits flipped
                               in its PM; 0: none */
    uint32_t flip_server; /* its index */
    uint64_t
        lease_ns; /* of servers; 0: none. With it those that end are replaced while the others go on (N3) */
    uint32_t
        empty_in; /* of the servers that start again while the others go on, one in so many has an empty PM */
    uint32_t readdress_in; /* likewise another address; 0: none */
    bool restless;         /* servers end also while shards lack replicas */
    /* With leases: of the ends of all, one in so many has servers that stay away for up to three start-waits; 0: none. */
    uint32_t away_in;
    uint32_t
        in_turn_in; /* likewise, all are asked to stop, one after the other, and the last one may lose its PM */
    const struct load
        *load; /* at whose keys shards are split, in half of the cases; NULL: anywhere */
};

struct nemesis_counts {
    uint64_t injected[NEMESIS_FAULTS];
    uint64_t faults;  /* all of these */
    uint64_t crashes; /* processes that were killed */
    uint64_t partitions;
    uint64_t planned;      /* changes of shards, by NEMESIS_PLAN */
    uint64_t removed;      /* servers that were replaced while they ran */
    uint64_t stopped;      /* that were asked to, and whose place others took */
    uint64_t emptied;      /* PMs that were lost */
    uint64_t readdressed;  /* servers that came back elsewhere */
    uint64_t refusers;     /* managers that ended as the stored configuration had gone back */
    uint64_t power_losses; /* of hosts on which something was not durable */
    uint64_t flips;        /* bits */
    uint64_t lost_fences;  /* of whose stores a power loss took something */
    uint64_t lost_words;   /* of stores that no fence covered: not as the program saw them last */
};

struct nemesis;

struct nemesis *nemesis_create(struct sim_cluster *cluster, const struct nemesis_options *options);
void nemesis_destroy(struct nemesis *nemesis);

/* Between two rounds: begins and ends what is due. */
void nemesis_step(struct nemesis *nemesis);
uint64_t nemesis_next_ns(const struct nemesis *nemesis);

/* Ends every fault and starts whoever is down; no further ones. */
void nemesis_heal(struct nemesis *nemesis);

/* After nemesis_heal: the connections of each server with each client and each other server break once, within
 * `span_ns`, each pair at a time that the seed draws. Not counted. */
void nemesis_cut_each(struct nemesis *nemesis, uint64_t span_ns);

/* Nothing newer is stored: a manager that was stopped may not have read yet what was stored beside it. */
bool nemesis_is_newest(const struct nemesis *nemesis, const struct cluster_config *config);

struct nemesis_counts nemesis_counts(const struct nemesis *nemesis);
const char *nemesis_name(enum nemesis_fault fault);

#endif
