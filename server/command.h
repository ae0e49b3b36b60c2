/* command.h - what the control role and the other roles of a server tell each other.
 *
 * Each role has two inboxes: one the control role pushes into, one the control role pops. A command is
 * allocated by the sender and freed by the receiver; there are few of them, none on the data path.
 */
#ifndef SERVER_COMMAND_H
#define SERVER_COMMAND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/cluster/cluster.h"
#include "common/reactor/inbox.h"
#include "server/shard/query.h"
#include "server/shard/recover.h"
#include "server/shard/shard.h"

/* What of a segment of the backup log is void (control_shut_out.c). Never changed once it is published. */
struct blog_voids {
    struct blog_voids *former; /* what was published before */
    bool undecided;            /* the control role is finding out what of the last range is whole */
    uint32_t count;
    struct blog_void {
        uint32_t begin, end; /* in the segment */
    } ranges[];
};

/* A segment of the backup log, from posting to the end of its digestion. Shared by the control role
 * and all digest roles; the control role frees it when all have left it and it is quiet. */
struct blog_segment {
    uint64_t segment;          /* of the store */
    uint64_t offset;           /* in the map */
    uint64_t number;           /* in the order of posting, from 1 on */
    _Atomic bool sealed;       /* nothing lands in it any more */
    _Atomic uint32_t digested; /* how many digest roles have left it */
    _Atomic bool
        torn; /* a digest role that has left it passed over something that is neither zero nor whole */
    struct blog_voids *_Atomic voids;  /* NULL: nothing of it */
    struct blog_segment *_Atomic next; /* the one posted after it */

    /* The control role's. */
    bool quiet;      /* nobody can store into it any more */
    uint32_t voided; /* position up to which what is torn in it is void */
    bool zeroed;     /* what is void, durably as soon as `zeroed_ticket` is done */
    struct pm_ticket zeroed_ticket;
    struct blog_segment *next_leaving;
};

enum command_kind {
    COMMAND_CONFIG,  /* `config`, with a reference that the receiver releases */
    COMMAND_RECOVER, /* please take part in the start: `part` (recover_help) */
    COMMAND_SHARD, /* the receiver owns `shard` from now on; and, back to control: it is released. To the clean role: it has
                    * left this server, and is to be freed */
    COMMAND_SEGMENT, /* to digest roles: `segment` is the first of the backup log; others follow by `next` */
    COMMAND_CONNECTED, /* to digest roles: a peer has a new connection; what was asked on its older one may be lost */
    COMMAND_BEGUN, /* to digest roles: `begun.epoch` of `begun.shard` has begun: (epoch, 0) is committed */
    COMMAND_EPOCH, /* to digest roles: `begun.shard` is in `begun.epoch` now, whose log reconciliation comes */
    COMMAND_RELEASE, /* to digest roles: please return `release.shard`, as COMMAND_SHARD, when all that has landed is applied;
                      * or, if it leaves this server, at once */
    COMMAND_ADOPT, /* to workers, digest roles, the clean role: please return it when you are through with what came before */
    COMMAND_COMMITTED, /* to workers: the configuration of `term` is committed (design, section 6) */
    COMMAND_READ,      /* to the clean role: `read.shard` is another role's, and may be read */
    COMMAND_QUERY,     /* please answer `query`; and, back to control: it is answered */
    COMMAND_SETTLED,   /* to workers: settled versions have become durable */
    COMMAND_FILLED,    /* from workers and digest roles: `filled`, please tell the CM */
    COMMAND_FETCH,     /* from digest roles: `fetch` never arrived, please ask for it */
};

/* Versions of a shard, both inclusive. */
struct command_fetch {
    uint16_t shard;
    uint64_t first, last;
};

struct command_begun {
    uint16_t shard;
    uint32_t epoch;
    bool filling, frozen; /* EPOCH */
};

/* A replica that filled in that epoch has all; or has copied all (split.h). */
struct command_filled {
    uint16_t shard;
    uint32_t epoch;
    uint32_t server;
};

struct command_release {
    uint16_t shard;
    bool leaves;
};

/* A shard, the worker that leads it if this server does, and who is asked about its completion records. */
struct command_read {
    struct shard_state *shard;
    uint32_t worker;
    uint32_t number;         /* of the shard's owner, among the workers and digest roles */
    struct inbox *questions; /* records_ask */
};

struct command {
    enum command_kind kind;
    union {
        struct cluster_config *config;
        struct recover_part *part;
        struct shard_state *shard;
        struct blog_segment *segment;
        struct query *query;
        struct command_fetch fetch;
        struct command_begun begun;
        struct command_read read;
        struct command_filled filled;
        struct command_release release;
        uint64_t term;
    };
};

enum {
    COMMAND_CAPACITY = 32768
}; /* more than all shards and posted segments of a server together */

/* command_push: allocates and pushes. Errors: ROWAN_ENOMEM, ROWAN_EAGAIN (full). */
int command_push(struct inbox *inbox, const struct command *command);

/* command_pop: false when there is none. */
bool command_pop(struct inbox *inbox, struct command *command);

/* command_drain: frees what is left in an inbox, at the end. */
void command_drain(struct inbox *inbox);

/* command_answer: a bounded step of the first query. It goes back to control when it is answered and
 * `outbox` has space, else behind the other queries. True if there was one. */
bool command_answer(struct queries *queries, struct inbox *outbox, struct server_common *common);

#endif
