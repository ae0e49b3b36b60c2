/* session_internal.h - what session.c and retry.c share. */
#ifndef CLIENT_SESSION_INTERNAL_H
#define CLIENT_SESSION_INTERNAL_H

#include "client/cm_link.h"
#include "client/op.h"
#include "client/router.h"
#include "client/session.h"
#include "common/base/assert.h"

enum { SESSION_PAUSES = 7 }; /* 1, 2, 4 ... 64 ms */

struct session {
    struct fabric_endpoint *endpoint;
    struct cm_link cm;
    struct router router;
    struct op_table table;
    struct op_list unrouted;               /* wait for a newer configuration */
    struct op_list pauses[SESSION_PAUSES]; /* each in the order of resume_ns */
    struct op_list refused;                /* S6: end in the next poll */
    struct op_list done;                   /* completed without callback */
    struct client_op *undated;             /* the oldest that has no deadline yet */
    uint64_t timeout_ns;
    uint64_t now_ns; /* of the poll */
    uint64_t completed;
    bool has_id;
    uint32_t client_id; /* S6; 0: none yet, or one that may not write */
    uint32_t next_operation;
    uint32_t operations_per_id, span;
    uint64_t numbers_end; /* operations below may be posted without a look; 0: not known */
    bool polling;
    bool holding;    /* the last poll held something back (S5) */
    bool released;   /* the next one does not: session_release */
    bool any_broken; /* some peer is `broken` */
};

static inline struct worker_link *session_link(struct peer *peer)
{
    return (struct worker_link *)((char *)peer - offsetof(struct worker_link, peer));
}

/* A sent operation's answer is not awaited any more. */
static inline void session_settle(struct client_op *op)
{
    ASSERT(op->state == OP_SENT && op->link->owed > 0);
    op->link->owed--;
}

/* --- retry.c --- */

/* Puts an operation that is in no queue into that of the link which serves its key. */
void session_route(struct session *session, struct client_op *op);

/* After an answer: true if it was a rejection that is dealt with here, by sending it again. */
bool session_retry(struct session *session, struct client_op *op, int status, uint64_t term);

/* The connection is gone: the operations that were sent on it are queued again. */
void session_lost(struct session *session, struct worker_link *link);

/* Routes by the configuration that the CM link brought. */
void session_adopt(struct session *session, uint64_t *wake_ns);

/* Operations whose pause is over are queued again. */
bool session_resume(struct session *session, uint64_t *wake_ns);

#endif
