/* nemesis_state.h - the inside of the nemesis, shared by nemesis.c (what comes when; ends and starts of servers) and
 * nemesis_spell.c (faults that last, and those of connections). */
#ifndef SIM_NEMESIS_STATE_H
#define SIM_NEMESIS_STATE_H

#include "common/base/random.h"
#include "test/sim/journal.h"
#include "test/sim/nemesis.h"

enum {
    MAX_SPELLS = 5, /* at a time: something must go on */
    MAX_PROCESSES = SIM_MAX_SERVERS + SIM_MAX_CLIENTS + 2,
};

struct spell {
    enum nemesis_fault fault;
    uint64_t end_ns;
    uint32_t process;  /* STOP, SLOW, DRY: whose */
    uint32_t role;     /* DRY: which */
    uint32_t from, to; /* PART_*, SPLIT, STALL: sets of processes, a bit each */
    bool coord;        /* SPLIT, COORD_PART: the CM does not reach the coordination service */
};

/* nemesis_unheard: servers by number; 0: none. */
struct nemesis_unheard {
    uint32_t step; /* 0: nothing is under way */
    uint16_t shard;
    uint32_t former, leads;   /* its primaries */
    uint32_t backup, primary; /* those for whom what the manager sends waits */
    bool clients;             /* likewise */
    uint64_t term;            /* which the backup has answered */
    uint64_t plan_ns;         /* not before */
    uint64_t end_ns;          /* at most */
};

/* nemesis_back: values of the registry, as they are stored. */
struct nemesis_back {
    void *old, *newest; /* a copy of some time ago, if there is one; what is to come back */
    size_t old_bytes, newest_bytes;
    uint64_t seen;    /* the registry's version at the last look */
    uint64_t version; /* of the registry's old one */
};

struct nemesis {
    struct sim_cluster *cluster;
    struct nemesis_options options;
    struct random random;
    struct nemesis_counts counts;
    uint64_t next_ns; /* when the next fault begins */
    uint64_t due_ns;  /* the earliest time at which anything has to be done */
    struct spell spells[MAX_SPELLS];
    uint32_t spell_count;
    uint8_t blocked[MAX_PROCESSES][MAX_PROCESSES]; /* from, to: spells that do */
    uint32_t coord_parts;              /* spells that part the CM from the coordination service */
    uint64_t kill_ns[SIM_MAX_SERVERS]; /* WAKE_NEVER: not awaited */
    uint64_t start_ns[SIM_MAX_SERVERS];
    uint64_t start_cm_ns;
    uint64_t rose_ns;      /* when the last start was over; WAKE_NEVER: it is not */
    uint64_t fell_ns;      /* when the first server ended, before it */
    uint64_t amiss_ns;     /* when something was, last */
    uint64_t planned_term; /* of the last planned change */
    uint32_t mute;         /* server whose answers are lost until it adopts that; 0: none */
    uint64_t mute_end_ns;  /* at most */
    struct nemesis_unheard unheard;
    struct nemesis_back back;
    bool spare[SIM_MAX_SERVERS];                   /* N4: of those that have ended */
    bool off, off_calm, off_awaited;               /* N5 */
    uint32_t last;                                 /* index of the server that ended last */
    uint64_t cut_ns[MAX_PROCESSES][MAX_PROCESSES]; /* nemesis_cut_each: WAKE_NEVER: not, or done */
    uint32_t cuts;                                 /* of these, still to come */
    uint32_t hasty;
    bool next_is_hasty;
    enum nemesis_fault aim; /* waits for its moment; NEMESIS_FAULTS: none does */
    uint64_t aim_end_ns;    /* no longer */
    uint32_t aim_at, aim_from;
};

static inline uint64_t nemesis_below(struct nemesis *nemesis, uint64_t bound)
{
    return random_below(&nemesis->random, bound);
}

static inline bool nemesis_one_in(struct nemesis *nemesis, uint64_t count)
{
    return nemesis_below(nemesis, count) == 0;
}

static inline uint64_t nemesis_now(const struct nemesis *nemesis)
{
    return nemesis->cluster->clock.now_ns;
}

static inline struct journal *nemesis_journal(const struct nemesis *nemesis)
{
    return nemesis->cluster->options.journal;
}

static inline uint32_t nemesis_servers(const struct nemesis *nemesis)
{
    return nemesis->cluster->options.servers;
}

/* The CM's number as a process, the last; but there may be a rival. */
static inline uint32_t nemesis_cm(const struct nemesis *nemesis)
{
    return sim_cluster_processes(nemesis->cluster) - 1;
}

static inline uint32_t nemesis_rival(const struct nemesis *nemesis)
{
    return nemesis_cm(nemesis) + 1;
}

static inline struct sim_process *nemesis_process(const struct nemesis *nemesis, uint32_t process)
{
    return process == nemesis_rival(nemesis) ? &nemesis->cluster->rival.process
                                             : sim_cluster_process(nemesis->cluster, process);
}

static inline bool nemesis_replaces(const struct nemesis *nemesis)
{
    return nemesis->options.lease_ns > 0;
}

/* With leases one that leads a shard, mostly: who came back leads none. */
static inline uint32_t nemesis_draw_server(struct nemesis *nemesis)
{
    const struct cluster_config *config = sim_cluster_config(nemesis->cluster);
    if (nemesis_replaces(nemesis) && config && nemesis_below(nemesis, 4) != 0)
        return config->shards[nemesis_below(nemesis, config->shard_count)].primary - 1;
    return (uint32_t)nemesis_below(nemesis, nemesis_servers(nemesis));
}

bool nemesis_is_up(const struct nemesis *nemesis, uint32_t process);

/* As often short as long: some are over before anybody notices, some outlast every patience. */
uint64_t nemesis_draw_length(struct nemesis *nemesis);

/* What one sends the other waits, as long as there is a reason to block it. */
void nemesis_block(struct nemesis *nemesis, uint32_t from, uint32_t to, bool blocked);

/* NEMESIS_CUT between these two. */
void nemesis_cut(struct nemesis *nemesis, uint32_t a, uint32_t b);

/* Those of nemesis_cut_each that are due; and when the next one is. */
void nemesis_cut_due(struct nemesis *nemesis);
uint64_t nemesis_next_cut_ns(const struct nemesis *nemesis);

/* NEMESIS_STALL between these two, for so long (0: as drawn), if there is space for a spell. */
void nemesis_stall(struct nemesis *nemesis, uint32_t a, uint32_t b, uint64_t length_ns);

/* Stops a process for so long (0: as drawn); false if it is not up, or stopped. */
bool nemesis_stop(struct nemesis *nemesis, uint32_t process, uint64_t length_ns);

/* The stored configuration, to be released; NULL: there is none. */
struct cluster_config *nemesis_stored_config(const struct nemesis *nemesis);

/* Without process yet; `length_ns` 0: as long as drawn. There is space for it. */
struct spell *nemesis_spell_begin(struct nemesis *nemesis, enum nemesis_fault fault,
                                  uint64_t length_ns);

/* NEMESIS_RIVAL; and a CM that limps while there is one. False if it cannot be now. */
bool nemesis_rival_begins(struct nemesis *nemesis, uint64_t length_ns);
bool nemesis_limp(struct nemesis *nemesis);

/* The stored configuration goes back, if it can now; its end; and in each step: copies, and managers that have ended. */
bool nemesis_back(struct nemesis *nemesis);
void nemesis_back_end(struct nemesis *nemesis);
void nemesis_back_step(struct nemesis *nemesis);

/* And another starts. */
void nemesis_kill_cm(struct nemesis *nemesis);

/* Planned changes; false if there were none. */
bool nemesis_plan(struct nemesis *nemesis);

/* Stored under the next term. */
void nemesis_store_next(struct nemesis *nemesis, struct cluster_config *config);

/* One server does not hear of a commit, and is to lead a shard then; false if there is none for that. A step; its end. */
bool nemesis_unheard(struct nemesis *nemesis);
void nemesis_unheard_step(struct nemesis *nemesis);
void nemesis_unheard_end(struct nemesis *nemesis);

/* Ends `mute` if it is time, or now. */
void nemesis_unmute(struct nemesis *nemesis, bool now);

/* Begins a fault other than NEMESIS_KILL_*; false if it cannot begin now. */
bool nemesis_begin(struct nemesis *nemesis, enum nemesis_fault fault);

/* Ends those whose time is over by `until_ns`; or what was done to a process that is to be killed, and cannot
 * outlive it. */
void nemesis_end(struct nemesis *nemesis, uint64_t until_ns);
void nemesis_end_of(struct nemesis *nemesis, uint32_t process);

/* --- nemesis_off.c --- */

/* Each is asked to stop, in turn; `whole`: each shard has all its replicas. nemesis_off: all have ended. */
void nemesis_stop_in_turn(struct nemesis *nemesis, bool whole);
void nemesis_off(struct nemesis *nemesis);

static inline uint64_t nemesis_away_ns(const struct nemesis *nemesis)
{
    return 3 * nemesis->cluster->options.start_wait_ms * NS_PER_MS;
}

#endif
