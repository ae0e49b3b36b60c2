/* post.c - what the manager sends; see cm.c. */
#include "cm/cm_internal.h"
#include "common/base/error.h"
#include "common/base/log.h"

void cm_give_up(struct cm *cm, struct cm_peer *peer, const char *reason)
{
    if (peer->given_up)
        return;
    log_event(LOG_WARN, "connection_given_up", "place=%u reason=%s", (unsigned)(peer - cm->peers),
              reason);
    peer->given_up = true;
    cm->given_up_count++;
}

/* A peer that closed is sent nothing more; its CLOSED event is on the way. */
static void post(struct cm *cm, uint32_t connection, struct outgoing *outgoing, uint32_t tag,
                 bool push)
{
    struct cm_peer *peer = &cm->peers[connection];
    if (peer->given_up)
        return;
    if (!outgoing) {
        cm_give_up(cm, peer, "out_of_memory");
        return;
    }
    int error = outbox_post(&peer->outbox, peer->conn, outgoing, tag, push);
    if (error == ROWAN_EBUSY)
        cm_give_up(cm, peer, "peer_does_not_read");
    else if (error && error != ROWAN_ECLOSED)
        cm_give_up(cm, peer, error_name(error));
}

/* Like post, to where the action says; ends the caller's reference. */
void post_own(struct cm *cm, const struct cm_action *action, bool push, struct outgoing *outgoing)
{
    post(cm, action->connection, outgoing, action->tag, push);
    outgoing_release(outgoing);
}

void post_failure(struct cm *cm, uint32_t connection, uint32_t tag, int error, const char *detail)
{
    /* After these two the peer asks ten times a second, and logs the reason itself. */
    const bool asks_again = error == ROWAN_EAGAIN || error == ROWAN_ENOTLEADING;
    log_event(asks_again ? LOG_DEBUG : LOG_WARN, "refused", "place=%u error=%s detail=\"%s\"",
              connection, error_name(error), detail);
    const struct cm_action answer = {.connection = connection, .tag = tag};
    post_own(cm, &answer, false, outgoing_failure(error, detail));
}

void post_fini(struct cm *cm)
{
    for (int i = 0; i < 2; i++) {
        outgoing_release(cm->shared[i]);
        cm->shared[i] = NULL;
    }
}

void post_configuration(struct cm *cm, const struct cm_output *output,
                        const struct cm_action *action)
{
    struct cm_peer *peer = &cm->peers[action->connection];
    const bool push = action->config && action->tag == 0;
    if (push && !access_may_watch(cm, peer)) {
        cm_give_up(cm, peer, error_name(ROWAN_ELOGIN));
        return;
    }
    /* Not shared: what changes with every server that joins, and what says that this manager does not lead, or cannot store. */
    if (!action->config || output->waiting_count > 0 || !output->leads || cm->store_error) {
        post_own(cm, action, push, outgoing_configuration(action, output, cm->store_error));
        return;
    }
    if (cm->shared_term != action->config->term)
        post_fini(cm);
    cm->shared_term = action->config->term;
    struct outgoing **outgoing = &cm->shared[action->with_secret ? 1 : 0];
    if (!*outgoing)
        *outgoing = outgoing_configuration(action, output, 0);
    post(cm, action->connection, *outgoing, action->tag, push);
}

void post_client_id(struct cm *cm, const struct cm_action *action)
{
    post_own(cm, action, false,
             outgoing_client_id(action->client_id, cm_state_config(cm->state),
                                access_user(cm, &cm->peers[action->connection])));
}

bool post_flush(struct cm *cm)
{
    bool waits = false;
    for (uint32_t i = 0; i < cm->peer_limit; i++) {
        struct cm_peer *peer = &cm->peers[i];
        if (!peer->conn || peer->given_up || peer->outbox.count == 0)
            continue;
        int error = outbox_flush(&peer->outbox, peer->conn);
        if (error == ROWAN_EAGAIN)
            waits = true;
        else if (error == ROWAN_ECLOSED)
            outbox_clear(&peer->outbox);
        else if (error)
            cm_give_up(cm, peer, error_name(error));
    }
    return waits;
}
