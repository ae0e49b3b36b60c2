/* control_state.h - the inside of the control role, shared by the files of this module (README.md). */
#ifndef SERVER_CONTROL_STATE_H
#define SERVER_CONTROL_STATE_H

#include "common/cluster/cluster.h"
#include "common/cluster/control.h"
#include "common/cluster/managers.h"
#include "server/command.h"
#include "server/control/control.h"
#include "server/shard/recover.h"
#include "server/store/verify.h"
#include "server/worker/worker_state.h"

/* No other request has one as high: so a Failure shows whether it answers a Join. */
#define CONTROL_JOIN_TAGS (UINT32_C(1) << 31)

enum {
    CONTROL_EVENTS = 64,
    CONTROL_MAX_LINKS = 4096,
    CONTROL_MAX_QUERIES = 128,
    CONTROL_CM_SILENT_LEASES = 3,
    CONTROL_MAX_CHECKSUMS =
        64, /* of them, traces too: who does not read its answers must not hold up a reconciliation */
    /* Unsent, of a link: as many as a worker may have questions and messages of entries on their way. */
    CONTROL_MAX_REFUSALS = WORKER_RECONCILING + WORKER_QUESTIONS,
};

#define CONTROL_CM_RETRY_NS   (100 * NS_PER_MS)
#define CONTROL_CM_SILENT_NS  NS_PER_S /* at least; see leave_useless_cm */
#define CONTROL_CM_AT_ONCE_NS (100 * NS_PER_MS)
#define CONTROL_JOIN_AGAIN_NS (100 * NS_PER_MS)

/* A passive connection: a peer's worker, a client, a tool. */
struct control_link {
    struct fabric_conn *conn;
    struct login *login;          /* NULL: nobody has tried to log in */
    bool peer;                    /* of a server: to be told about space */
    uint32_t server, worker;      /* whose, if it is a peer's */
    uint8_t code[MAC_BYTES];      /* it has shown last (ProofAgain); zeros: none */
    bool space_sent;              /* the peer was told what our PM still takes */
    enum server_space sent_space; /* what it was told */
    bool sent_full;
    uint32_t
        settled_next; /* position of the next shard of which it is to be told what is settled */
    uint32_t refusal_count; /* questions to be answered with an error when there is space to send */
    struct refusal {
        uint32_t tag;
        int error;
    } refusals[CONTROL_MAX_REFUSALS];
    struct {
        struct control_link *next, *prev;
    } place;
};

/* Renewals whose answers count: more than are sent in the length of a lease. */
enum { LEASE_RENEWALS = 32 };

struct lease {
    uint32_t tag;                     /* of the last renewal */
    uint64_t sent_ns[LEASE_RENEWALS]; /* of the renewal with tag t, at t % LEASE_RENEWALS */
    uint64_t renew_ns;                /* when the next is due */
    uint64_t manager, manager_ns;     /* the time that is to be brought back, and whose it is */
    bool holds;                       /* as it was logged */
    uint64_t
        leaves_ns;     /* the server was asked to stop: it ends then at the latest; 0: it was not */
    bool left;         /* and its last lease is over: the manager is told */
    uint32_t left_tag; /* by the renewal of this tag, and later ones */
    uint64_t since_ns; /* that is so */
    uint64_t named,
        named_ns; /* the manager that the newest configuration names, and since when that is known */
    uint64_t
        left_term; /* the newest one that was known when the granter said that it does not lead; 0: it did not */
    uint64_t grant_ns; /* when the last grant came */
    uint32_t
        granter; /* and from which of `managers`: their number from 1 on; 0: that was left, for it granted no more */
};

/* As of the last report. */
struct control_load {
    uint64_t told_ns;
    uint64_t item_bytes;                                        /* that an index item stands for */
    uint64_t busy_ns[CLUSTER_MAX_WORKERS + SERVER_MAX_DIGESTS]; /* of `roles` */
};

/* What the PM held when the server started. */
struct control_data {
    uint64_t cluster;         /* 0: it was never formatted */
    bool had_run;             /* a run wrote its record */
    bool rebooted;            /* the host was restarted since */
    bool possibly_incomplete; /* it may lack acknowledged writes; reset when all is reconciled */
    bool damaged;             /* likewise, but only of shards that the damage concerns */
};

enum commit_step { COMMIT_IDLE, COMMIT_WAIT, COMMIT_PINS, COMMIT_FENCE, COMMIT_ROWS };

/* Of a segment, in a period: it is not closed; it becomes COMMITTED; it stays, and what is damaged in it counts (G8). */
enum commit_cover { COVER_NOT, COVER_COMMITS, COVER_STAYS };

/* A closed segment has this version, which is not settled; all zeros: not as far as is known. */
struct commit_pin {
    uint16_t shard;
    uint64_t version;
};

enum adopt_step {
    ADOPT_SHUT_OUT,
    ADOPT_RELEASE,
    ADOPT_FORGET,
    ADOPT_ROLES,
    ADOPT_STORE,
    ADOPT_DONE
};

/* Where a shard that this server holds is. */
enum adopt_place { ADOPT_WITH_OWNER, ADOPT_ASKED /* its owner is to release it */, ADOPT_HERE };

/* By position of the shard. */
struct adopt_shard {
    enum adopt_place place;
    bool leaves;           /* this server, whatever newer configurations say */
    uint32_t epoch;        /* that its owner was told */
    uint32_t sender;       /* J5: who may send to us, as it leads the shard: server, incarnation */
    bool others;           /* and so may somebody else */
    uint64_t incarnation;  /* 0: nobody has */
    uint64_t commit_needs; /* control_commit.c: the version that has to be settled; */
    uint64_t
        commit_was; /* what was when the period began, or when it was last looked whether it rises; */
    uint64_t commit_stands; /* and where it stood still (G7); 0: nowhere yet */
};

/* Of `config`; but for `shards`, where there are leases. */
struct control_adoption {
    enum adopt_step step;
    struct adopt_shard *shards; /* NULL: there is no configuration yet */
    bool releases;              /* DONE, committed: shards are still to be promoted */
    uint32_t waiting;           /* FORGET, ROLES: that have not answered */
    uint64_t began_ns;
    uint64_t reported;  /* term that the manager was told on this connection */
    uint64_t committed; /* term of the newest that is committed */
};

enum control_opening {
    OPENING_VERIFY, /* before the first report to the CM */
    OPENING_NOTHING,
    OPENING_FORMAT,
    OPENING_MARK,
    OPENING_RECOVER,
    OPENING_RUN
};

struct control {
    struct server_common *common;
    const struct server_options *options;
    struct managers managers;
    struct worker **workers;
    struct digest **digests;
    struct clean *clean;
    struct role **roles; /* of all of these, in that order */
    uint32_t role_count;
    struct fabric_endpoint *endpoint;
    uint64_t start_ns, now_ns;
    struct counter busy_ns;

    /* control_config.c */
    struct fabric_conn *cm_conn; /* NULL: not connected and not trying */
    bool cm_connected;           /* and logged in, where there is a key */
    struct login_try cm_login;
    bool cm_leads;        /* as it has shown by an answer on this connection */
    uint64_t cm_led_ns;   /* when one that leads last said something, or the server began */
    uint64_t cm_begun_ns; /* the connection, or the attempt */
    uint32_t
        cm_leaderless; /* managers in a row, the last ones, that refused the connection at once or do not lead */
    bool joined;       /* the CM has answered the newest report with a configuration */
    uint32_t join_tag; /* of the last Join, if it is above CONTROL_JOIN_TAGS */
    uint32_t new_tag;  /* of the first Join on this connection that reports the present state */
    uint64_t registration_epoch; /* the last that the CM told on this connection; 0: none */
    uint64_t join_again_ns;
    uint64_t cm_retry_ns;
    uint64_t cm_heard_ns; /* a message came from it, or it was connected to */
    /* Of each manager, the last that was logged; 0: none since one that leads was found. */
    int cm_errors[MANAGERS_MAX];
    char put_off[256];             /* why the CM put the last Join off */
    struct cluster_config *config; /* in force; NULL: none yet */
    struct cluster_config *coming; /* the first one, while the server is opening */
    struct cluster_config
        *next; /* one behind that which changes shards: adopted once the server is open; or NULL */
    struct control_adoption adoption;
    bool bring; /* the CM has lost the configuration: the next Join brings the stored one */

    struct lease lease; /* control_lease.c */
    struct control_memory {
        uint64_t refused, told_ns; /* as logged, and when; 0: never */
        uint64_t since_ns;         /* M5; 0: there is memory */
    } memory;                      /* control_memory.c */
    struct control_load load;

    /* control_stored.c */
    bool told_off;        /* the log has said that logins are not required */
    bool stored_open;     /* the configuration that the PM keeps requires no logins */
    uint64_t stored_term; /* of the configuration that the PM keeps, durably; 0: it keeps none */
    bool storing;         /* a later one is under way */
    struct store_config_write stored_write;

    /* control_open.c */
    struct control_data data;
    struct verify verify; /* what of it is damaged */
    enum control_opening opening;
    struct store_format format;
    struct recover *recover;
    struct pm_ticket run_ticket;
    struct shard_state **shards; /* by position in `config`; NULL: not here */

    /* control_zone.c */
    struct fabric_zone *zone;
    uint32_t depth;
    uint32_t posted;                      /* and not sealed */
    uint64_t posted_ever;                 /* numbers segments */
    struct blog_segment *oldest, *newest; /* of the backup log, in posting order */
    struct blog_segment *prepared[1024];  /* allocated; wait for their fence */
    uint32_t prepared_count;
    struct pm_ticket prepared_ticket;
    struct blog_segment *leaving; /* digested, perhaps not quiet yet */
    uint32_t kept;                /* of the backup log, those that are sealed and not forgotten */
    uint64_t free;                /* segments, when space was looked at last */
    uint64_t cleaned;             /* likewise, while short of it */
    uint64_t full_ns;     /* short of space: when the server is full, unless a segment is cleaned */
    uint64_t close_ns;    /* likewise: when the open landing segment may be closed again */
    bool medium_checking; /* `medium_ticket` will tell whether a sync has failed */
    struct pm_ticket medium_ticket;

    /* control_shut_out.c */
    bool shut_out_failed; /* and the server ends */

    uint64_t damages_told; /* common->damages, when the manager was told last */

    /* control_commit.c */
    enum commit_step commit_step;
    enum commit_cover *commit_covers; /* by segment */
    uint32_t commit_position;       /* shards in front of it have reached theirs, or stand still */
    bool commit_reads;              /* some of those stand still: what is noted is read: */
    struct commit_pin *commit_pins; /* by segment */
    uint64_t commit_segment;        /* PINS: is read, as far as the scan is */
    struct entry_scan commit_scan;
    struct pm_ticket commit_ticket;
    uint64_t commit_ask_ns; /* WAIT: when to ask for commit versions */
    uint64_t
        commit_look_ns; /* IDLE: when to look again for a closed segment of which nothing is sent */

    struct {
        struct control_link *first, *last; /* by age */
    } links;
    uint32_t link_count;
    uint64_t refused_logins, refused_requests; /* here; workers count their own */
    uint64_t unknown_messages;                 /* of managers, or that one did not know */
    uint32_t refusal_count;                    /* of all links */
    /* control_status.c: the status, as Prometheus was told last. */
    struct counter image[sizeof(Rowan__ServerStatus) / sizeof(uint64_t)];
    /* With the shards' owners, who free those that they do not return, or returned; NULL: free. */
    struct query *queries[CONTROL_MAX_QUERIES];
};

/* --- control.c --- */

/* Sends a control message; one that cannot be sent now is dropped, with a line in the log. Errors:
 * those of fabric_send, ROWAN_ENOMEM. */
int control_send(struct control_link *link, uint32_t tag, const Rowan__ControlMessage *message);

/* The digest role that has the shard where this server backs it: that of its parent, if it is split off from one that is here. */
static inline uint32_t control_digest_of(const struct control *control, const struct shard *row)
{
    const struct shard *parent = cluster_parent(control->config, row);
    const struct shard_state *known =
        parent ? control->shards[parent - control->config->shards] : NULL;
    return known ? known->digest : (parent ? parent : row)->id % control->options->digests;
}

/* The row of the shard of that number, if it is here; else NULL. */
const struct shard *control_row(const struct control *control, uint32_t id);

/* The owner of a shard that this server holds: the worker that leads it, or the digest role that applies it. */
struct role *control_owner(struct control *control, const struct shard *row);

/* Tells the clean role of it. Errors: those of command_push. */
int control_tell_clean(struct control *control, const struct shard *row, struct shard_state *shard);
void control_wake_digests(struct control *control);

/* control_load.c. After control_lease_poll. */
void control_load_poll(struct control *control, uint64_t *wake_ns);

/* --- control_zone.c --- */

int control_zone_open(struct control *control);
void control_zone_sealed(struct control *control, struct blog_segment *segment, bool quiet);
/* The segment of that number, if blocks still land there: no more do, so that it is left although nobody fills it. */
void control_zone_close_segment(struct control *control, uint64_t number);

/* Before a digest role is asked for what may need a pass over all that has landed by now (digest_catch_up.c, S6). */
void control_zone_note_begun(struct control *control);
/* Posts, frees what is digested, tells the peers about space. True if it did anything. */
bool control_zone_poll(struct control *control, uint64_t *wake_ns);

/* Closes the landing segment that is open, at most once a second; only if one is posted behind it: without one nothing lands. */
void control_zone_close_open(struct control *control);

/* A peer's connection has ended, perhaps because a sync of our file failed, which peers sync
 * themselves on shm. Syncs it, too; the server ends if that fails. */
void control_zone_check_medium(struct control *control);
void control_zone_close(struct control *control);

/* Commit covers none of the backup log that are not forgotten. */
void control_zone_uncover(struct control *control);

/* --- control_shut_out.c --- */

/* control_zone_shut_out: nothing that the server has sent, or sends, under an incarnation up to this one shall land in
 * the landing zone; its connections to this role end. control_zone_is_shutting_out: is that not yet true, and durable,
 * of all servers for which it was called? Once it is, what is whole in the zone is all of theirs that ever counts. A zone
 * that is not open yet takes nothing; who may connect to it decides the configuration.
 * Errors: ROWAN_ETOOMANY, and nothing has changed. */
int control_zone_shut_out(struct control *control, uint32_t server, uint64_t incarnation);
bool control_zone_is_shutting_out(const struct control *control);
/* The server may connect again. */
void control_zone_readmit(struct control *control, uint32_t server);

/* The FABRIC_SHUT_OUT and FABRIC_VOID events of the landing zone. */
void control_zone_event(struct control *control, const struct fabric_event *event);
/* A step of ending what is void in a quiet segment that all digest roles have left. True: nothing is any more. */
bool control_zone_end_voids(struct control *control, struct blog_segment *segment);
void control_zone_free_voids(struct blog_segment *segment);

/* --- control_commit.c --- */

/* Once the shards are handed out. Errors: ROWAN_ENOMEM. */
int control_commit_open(struct control *control);
/* The settled versions go into the replica table, or those that are `covered`; control_commit_sync: a step of bringing it to PM. True: it is. */
void control_commit_rows(struct control *control, bool covered);
bool control_commit_sync(struct control *control);
/* One step. True if it did anything. */
bool control_commit_poll(struct control *control, uint64_t *wake_ns);
void control_commit_close(struct control *control);

/* --- control_settled.c --- */

/* Settled versions became durable, or a period waits for commit versions: all peers are told, and the workers. */
void control_settled_changed(struct control *control);
/* The worker that leads shards told what is settled everywhere. */
void control_settled_told(struct control *control, const struct control_link *link,
                          const Rowan__SettledIs *told);
/* Tells who is to be told; lowers *wake_ns while one finds no space. True if one was. */
bool control_settled_poll(struct control *control, uint64_t *wake_ns);

/* --- control_config.c --- */

void control_config_poll(struct control *control, uint64_t *wake_ns);
void control_config_event(struct control *control, const struct fabric_event *event);
/* Tells the CM that the PM is formatted and the run recorded; it gives out no client id before. */
void control_config_report(struct control *control);
/* The newest that it knows; NULL: none. */
const struct cluster_config *control_config_known(const struct control *control);
/* The configuration in force, to all workers. */
int control_config_hand_out(struct control *control);

/* --- control_adopt.c --- */

/* A later configuration than `config`, in which there are leases; its reference is taken over. */
void control_adopt_begin(struct control *control, struct cluster_config *config);
/* The first one, once its shards are handed out. Errors: those of command_push, ROWAN_ENOMEM. */
int control_adopt_first(struct control *control);
/* A digest role returns a shard; a role answers COMMAND_ADOPT; the manager says that a configuration is committed. */
void control_adopt_released(struct control *control, struct shard_state *shard);
void control_adopt_answered(struct control *control, uint64_t term);
void control_adopt_committed(struct control *control, uint64_t term);
/* A worker says so, and repeats it. */
void control_adopt_filled(struct control *control, const struct command_filled *filled);
/* True if it did anything. */
bool control_adopt_poll(struct control *control);
void control_adopt_close(struct control *control);
/* --- control_lease.c --- */

/* Renews; raises `lease_ns` of the server by what the manager grants. */
void control_lease_poll(struct control *control, uint64_t *wake_ns);
/* As Join.without_ms. */
uint64_t control_lease_without_ms(const struct control *control);
/* J9: until then the present manager has time to grant a lease; WAKE_NEVER: none is asked for. */
uint64_t control_lease_patience_ns(const struct control *control);
/* How much of it is left; 0: there is none, or leases are off. */
uint64_t control_lease_left_ms(const struct control *control);
void control_lease_is(struct control *control, uint32_t tag, const Rowan__LeaseIs *is);

/* --- control_stored.c --- */

/* What the PM keeps, at the start. */
void control_stored_read(struct control *control);
/* One step of storing the newest. True if it did anything. */
bool control_stored_poll(struct control *control);
/* Is that configuration, or a later one, durable in the PM? */
static inline bool control_stored_covers(const struct control *control,
                                         const struct cluster_config *config)
{
    return control->stored_term >= config->term;
}

/* --- control_open.c --- */

/* Reads whose data the PM holds. Errors: those of store_read_identity and store_read_run;
 * ROWAN_ECLUSTER: another server's. */
int control_open_read(struct control *control);
/* The first configuration, whose reference is taken over. */
void control_open_start(struct control *control, struct cluster_config *config);
/* One step. True if it did something, or has more to do at once. */
bool control_open_poll(struct control *control, uint64_t *wake_ns);

/* --- control_trace.c --- */

void control_slow_send(struct control *control, struct control_link *link, uint32_t tag);
/* The question for a key's owner. Errors: ROWAN_EKEYSIZE; EACCESS: it is no key of that user. */
int control_trace_question(struct control *control, const struct control_link *link,
                           const Rowan__GetTrace *question, struct query *out);
/* Its answer. Errors: those of control_message_send. */
int control_trace_send(const struct control *control, const struct query *query);

/* --- control_query.c --- */

/* Logins are required: the connections end of who has not logged in, and is no guest already; and those that a server has made
 * without the cluster's secret, when nobody asked for it. */
void control_leave_guests(struct control *control);
/* --- control_memory.c --- */

void control_memory_poll(struct control *control, uint64_t *wake_ns);
/* Or was, a moment ago. */
bool control_memory_is_short(const struct control *control);

/* control_status.c. control_status_poll: brings the metrics up to date if they were asked for. */
void control_status_open(struct control *control);
void control_status_poll(struct control *control);
void control_status_send(struct control *control, struct control_link *link, uint32_t tag);

/* Names of keys are for who may read all of them. */
bool control_may_see_keys(const struct control *control, const struct control_link *link);
/* A question about a shard, or a message that this build does not know: answered later, or refused. */
void control_query_ask(struct control *control, struct control_link *link, uint32_t tag,
                       const Rowan__ControlMessage *message);
/* A failure is sent as soon as there is space. */
void control_query_refuse(struct control *control, struct control_link *link, uint32_t tag,
                          int error);
/* Sends answers; lowers *wake_ns while one finds no space. True if one went. */
bool control_query_poll(struct control *control, uint64_t *wake_ns);
void control_query_forget(struct control *control, struct control_link *link);
void control_query_close(struct control *control);

#endif
