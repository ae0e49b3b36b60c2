/* world.h - a coordination service in memory and the record of what a state answered, for the tests
 * of the configuration manager. Every check of what may be sent is here, so that each test makes
 * it. */
#ifndef TEST_UNIT_CM_WORLD_H
#define TEST_UNIT_CM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "cm/proposal.h"
#include "cm/quota.h"
#include "cm/state.h"

enum {
    WORLD_HISTORY = 4096,
    WORLD_IDS = 1 << 22,
    WORLD_SENT = 8192,
    WORLD_MANAGERS = 3,
    WORLD_REPORTS = 1024,
    WORLD_WARNINGS = 16,
    WORLD_SHARDS = 4096, /* ids, in tests of what fills */
    WORLD_SERVERS = 8
};

enum world_outcome {
    WORLD_OK,           /* the compare-and-set is judged by its version */
    WORLD_UNKNOWN_WON,  /* judged so too, and the answer is lost */
    WORLD_UNKNOWN_LOST, /* never arrives, and the answer is lost */
    WORLD_ERROR,        /* never arrives: ROWAN_EIO */
};

/* What is stored; shared by the managers of a test. */
struct world_store {
    uint64_t version;
    struct cluster_config *history[WORLD_HISTORY + 1]; /* by version; 0: none */
    uint8_t id_given[WORLD_IDS]; /* by id, of each eighth of all ids the first WORLD_IDS */
    uint32_t ids_given;
    uint32_t report_count; /* what each process said when it joined: the truth about its PM */
    struct cm_join reports[WORLD_REPORTS];
    const uint64_t *running; /* by server: the incarnation that runs; NULL: not watched */
    uint32_t
        filled[WORLD_SHARDS]
              [WORLD_SERVERS + 1]; /* by id of the shard, and server: it has all since this epoch */
    bool cut[WORLD_SERVERS + 1]
            [WORLD_SERVERS + 1]; /* the first has said that its sends do not reach the second */
    bool moves[CLUSTER_MAX_MEMBERS + 1]
              [CLUSTER_MAX_MEMBERS + 1]; /* asked for, of any shard: from, to */
    bool gives_up;                       /* an operator does not wait for who is away */
    uint32_t cold_starts, failovers, fills, comebacks, plans, swaps, left, moved, splits;
};

/* One message that a connection was sent. */
struct world_sent {
    enum cm_action_kind kind;
    uint32_t connection, tag;
    bool with_secret;
    bool not_leading;
    uint64_t term; /* of a configuration (0: none), or committed */
    bool granted;
    uint64_t manager_ns;
    uint32_t client_id;
    int error;
    char detail[CM_MAX_DETAIL_BYTES + 1];
    uint32_t waiting_count;
    uint32_t waiting_for[CLUSTER_MAX_MEMBERS];
};

struct world_connection {
    bool open, asked, wants_id;
    uint32_t id_tag;
    struct cm_plan plan; /* that waits, under this tag; 0: none does */
    uint32_t plan_tag;
    uint32_t server; /* of its last Join */
    uint64_t incarnation;
    uint64_t space_term;              /* in which it told last what space it has */
    uint64_t told_term, claimed_term; /* the newest that it was sent, or says that it knows */
    bool waits; /* it is a server that repeats its last Join, `join`, until it is told more */
    uint32_t join_tag;
    struct cm_join join;
    uint64_t registration_epoch; /* that it was told last */
    bool bring;                  /* likewise: it is to bring what it stored */
};

/* A manager, and what waits for it. */
struct world {
    struct world *next;
    struct world_store *store;
    struct cm_state *state;
    uint64_t manager; /* its incarnation */
    bool leads;       /* as it was told */
    uint64_t now_ns;  /* its clock, as it was read last */
    uint64_t wake_ns; /* of the last output */
    struct cluster_config *
        *stored; /* by server: what it brings if it is asked for that; may be NULL until then */
    bool reading, storing;
    bool tells_loads;                /* the test does; else all have space, and no load */
    struct cluster_config *proposal; /* a copy, as coord_cas takes one */
    uint64_t expected_version;
    bool repeating; /* answers that tell nothing new are not kept */
    bool stopped;
    int stop_error;
    char stop_detail[CM_MAX_DETAIL_BYTES + 1];
    uint32_t warning_count;
    struct {
        const char *event;
        char detail[CM_MAX_DETAIL_BYTES + 1];
    } warnings[WORLD_WARNINGS]; /* the first ones */
    uint32_t sent_count;        /* since world_forget */
    struct world_sent sent[WORLD_SENT];
    struct world_connection connections[64];
};

void world_store_fini(struct world_store *store); /* it may be used again, empty */

/* Fixture: each test starts with an empty `world_store`. */
extern struct world_store *world_store;
int world_setup(void **state);
int world_teardown(void **state);

/* The configuration that is stored in it, or NULL. */
const struct cluster_config *world_stored(void);

/* Options for servers 1 to `servers`. */
struct cm_state_options world_options(uint32_t servers, uint32_t replicas, uint32_t shards);

/* Steps CM_EVENT_START too. */
struct world *world_create(struct world_store *store, const struct cm_state_options *options);
/* The fixture destroys those that a test leaves. */
void world_destroy(struct world *world);

/* With the world's now_ns in it. */
void world_step(struct world *world, const struct cm_event *event);

/* Answers what is under way. */
void world_answer_read(struct world *world, int error);
void world_answer_store(struct world *world, enum world_outcome outcome);

/* Answers, all going well, until nothing is under way. */
void world_settle(struct world *world);

/* A change that another manager might store: ids are reserved, and what a test adds. It is the store's then, and the
 * world has heard of it, and settled. */
struct cluster_config *world_next(const struct world *world);
void world_change(struct world *world, struct cluster_config *next);

/* A request on a connection that is not open opens it. */
void world_open(struct world *world, uint32_t connection);
void world_close(struct world *world, uint32_t connection);
/* Connections 1 to `servers`. */
static inline void world_close_all(struct world *world, uint32_t servers)
{
    for (uint32_t server = 1; server <= servers; server++)
        world_close(world, server);
}
void world_lead(struct world *world, bool leader);
void world_elect(struct world *world); /* it leads, and all is settled */
struct cm_join world_join_of(uint32_t server);

/* The report of a later process of the server, the round-th, with the cluster's data. */
struct cm_join world_rejoin_of(const struct world *world, uint32_t server, uint32_t round);
/* And after a newcomer's, twice more from all that wait, as servers do ten times a second, so that all have been told
 * the registration epoch and have reported it. */
void world_join(struct world *world, uint32_t connection, uint32_t tag, const struct cm_join *join);
/* Twice more from all that wait. */
void world_repeat_joins(struct world *world);

/* One Join and no other. */
void world_join_once(struct world *world, uint32_t connection, uint32_t tag,
                     const struct cm_join *join);
void world_get(struct world *world, uint32_t connection, uint32_t tag, uint64_t known_term);
/* By one of many users, so that no quota ends. */
void world_new_id(struct world *world, uint32_t connection, uint32_t tag);

/* What a member brings along with a Renew. */
struct world_renewal {
    uint64_t term, manager, manager_ns;
    bool leaves;
    uint32_t cut_count, cut[WORLD_SERVERS];
};
void world_renew(struct world *world, uint32_t connection, uint32_t tag,
                 const struct world_renewal *renewal);
void world_adopt(struct world *world, uint32_t connection, uint64_t term);

/* What a primary says. `is_true`: the server does have all. */
void world_filled(struct world *world, uint32_t connection, uint16_t shard, uint32_t epoch,
                  uint32_t server, bool is_true);

void world_plan(struct world *world, uint32_t connection, uint32_t tag, struct cm_plan plan);

/* The manager's clock is read, and it is woken if it asked for that. */
void world_round(struct world *world, uint64_t now_ns);

/* Opens connections 1 to `servers`, by which the servers of these numbers join. */
void world_join_all(struct world *world, uint32_t servers);

/* The processes of world_join_all say that their PM is formatted. */
void world_format_all(struct world *world, uint32_t servers);

/* A client gets an id, by a change of the configuration if it is the first; nothing sent is remembered. */
void world_have_clients(struct world *world);

/* The reports of servers 1 to `servers` after the round-th restart, with whole data; the test's until the next call. */
struct cm_join *world_rejoin_all(const struct world *world, uint32_t servers, uint32_t round);

/* All servers' connections 1 to `servers` close, open again and bring these reports; and what follows is settled. */
void world_restart_all(struct world *world, uint32_t servers, const struct cm_join *joins);
void world_cold_start(struct world *world, uint32_t servers, const struct cm_join *joins);

/* A manager that leads a cluster of these servers, formatted, without clients yet; settled; nothing sent is
 * remembered. */
struct world *world_cluster(struct world_store *store, uint32_t servers);

/* A manager that leads, settled; nobody joined. */
struct world *world_empty(struct world_store *store, uint32_t servers);

static inline void world_forget(struct world *world)
{
    world->sent_count = 0;
}

/* How often it warned so, and the last sentence; NULL: never. */
uint32_t world_warnings(const struct world *world, const char *event);
const char *world_warning(const struct world *world, const char *event);

/* The last message to the connection, or NULL. */
const struct world_sent *world_last(const struct world *world, uint32_t connection);

void assert_failure(const struct world_sent *sent, int error, const char *words);
void assert_configuration(const struct world_sent *sent, uint32_t tag, uint64_t term,
                          bool with_secret);

#endif
