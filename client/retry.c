/* What becomes of an operation that was not simply answered.
 *
 * R1 Rejected means that it did not happen, so it may be sent again: EEPOCH and ENOTMINE after a
 *    newer configuration came (or a pause, if there is none), EBUSY after a pause.
 * R2 On a broken connection an operation's outcome is unknown. It is sent again under its own
 *    number, until its timeout: the server knows it again and answers what became of it, so that it
 *    takes effect once. Without an answer until then it stays unknown.
 * R3 What is sent again keeps the order of its numbers, also before what was posted later.
 */
#include "client/session_internal.h"

#define PAUSE_NS(level) (NS_PER_MS << (level))

#define ADOPT_AGAIN_NS (100 * NS_PER_MS)

void session_route(struct session *session, struct client_op *op)
{
    const struct shard *shard = router_shard(&session->router, op->slot);

    op->state = OP_QUEUED;
    op->request->shard = shard->id;
    op->request->epoch = shard->epoch;
    op->link = router_link(&session->router, op->slot);
    op->link->urgent |= op->urgent;
    op_list_push(&op->link->queue, op);
}

/* The server said "later". */
static void pause_op(struct session *session, struct client_op *op)
{
    unsigned level = op->pauses < SESSION_PAUSES ? op->pauses : SESSION_PAUSES - 1;

    op->pauses = (uint8_t)(level + 1);
    op->state = OP_PAUSED;
    op->resume_ns = session->now_ns + PAUSE_NS(level);
    op_list_push(&session->pauses[level], op);
}

/* The server says that our routing is not its own. */
static void redirect_op(struct session *session, struct client_op *op, uint64_t term)
{
    const struct shard *shard = router_shard(&session->router, op->slot);

    if (router_link(&session->router, op->slot) != op->link || shard->epoch != op->request->epoch) {
        session_route(session, op); /* a newer configuration came meanwhile */
        return;
    }
    session->cm.wants_config = true;
    if (term > session->router.config->term) {
        op->state = OP_QUEUED;
        op->link = NULL;
        op_list_push(&session->unrouted, op);
        return;
    }
    pause_op(session, op);
}

bool session_retry(struct session *session, struct client_op *op, int status, uint64_t term)
{
    switch (status) {
    case ROWAN_EEPOCH:
    case ROWAN_ENOTMINE:
        session_settle(op);
        redirect_op(session, op, term);
        return true;
    case ROWAN_EBUSY:
        session_settle(op);
        pause_op(session, op);
        return true;
    default:
        return false;
    }
}

/* R2. The operations that were sent on the link and wait for its answer are to be sent again. */
static void lose_ops(struct session *session, const struct worker_link *link)
{
    for (struct client_op *op = session->table.age.first; op; op = op->aged.next) {
        if (op->state != OP_SENT || op->link != link)
            continue;
        session_settle(op);
        op->unknown = true;
        op->state = OP_QUEUED;
    }
}

/* R3. Queues what waits to be sent, at `link` or (NULL) anywhere, by the present routing, oldest
 * first. */
static void route_again(struct session *session, const struct worker_link *link)
{
    for (struct client_op *op = session->table.age.first; op; op = op->aged.next) {
        if (op->state == OP_QUEUED && (!link || op->link == link)) {
            op_list_remove(op);
            session_route(session, op);
        }
    }
}

void session_lost(struct session *session, struct worker_link *link)
{
    lose_ops(session, link);
    route_again(session, link);
}

void session_adopt(struct session *session, uint64_t *wake_ns)
{
    struct cluster_config *fresh = session->cm.fresh;
    const struct cluster_config *config = session->router.config;

    if (config && (fresh->term <= config->term || fresh->cluster != config->cluster)) {
        session->cm.fresh = NULL;
        cluster_release(fresh);
        return;
    }
    if (router_adopt(&session->router, fresh)) { /* no memory just now: again later */
        wake_at(wake_ns, session->now_ns + ADOPT_AGAIN_NS);
        return;
    }
    session->cm.fresh = NULL;
    for (struct worker_link *link = session->router.links; link; link = link->next) {
        if (!link->used)
            lose_ops(session, link);
    }
    route_again(session, NULL);
    for (struct worker_link *link = session->router.links; link; link = link->next)
        ASSERT(link->used || !link->queue.first);
    router_drop_unused(&session->router);
}

bool session_resume(struct session *session, uint64_t *wake_ns)
{
    bool any = false;

    for (unsigned level = 0; level < SESSION_PAUSES; level++) {
        struct client_op *op;

        while ((op = session->pauses[level].first) && op->resume_ns <= session->now_ns) {
            op_list_remove(op);
            session_route(session, op);
            any = true;
        }
        if (op)
            wake_at(wake_ns, op->resume_ns);
    }
    /* A newer configuration exists, and the CM had not got it when we asked. */
    if (session->unrouted.first)
        session->cm.wants_config = true;
    return any;
}
