/* verbs_conn.c - a connection's memory and its number; its life is in conn.h.
 *
 * What ends it destroys its RC queue pair and closes its tcp connection at once: nothing of it lands any more, and the
 * peer learns of it. All else is given back by a later poll, when the device has done with what was sent: until then
 * messages may be looked at, and its number is nobody else's.
 *
 *   active:  CONNECTING -> GREETING -> RESOLVING -> OPEN
 *   passive: EXPECTING -> RESOLVING -> JOINING -> OPEN
 *            EXPECTING, RESOLVING -> REFUSING
 */
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/fabric/verbs/verbs_stream.h"

struct verbs_conn *verbs_conn_of(const struct verbs_endpoint *endpoint, uint32_t number)
{
    return number < VERBS_MAX_CONNS ? endpoint->conns[number] : NULL;
}

static uint32_t unused_number(struct verbs_endpoint *endpoint)
{
    while (endpoint->conns[endpoint->next_number])
        endpoint->next_number = (endpoint->next_number + 1) % VERBS_MAX_CONNS;
    return endpoint->next_number;
}

int verbs_conn_create(struct verbs_endpoint *endpoint, bool active, struct verbs_conn **out)
{
    struct verbs_conn *conn;

    if (endpoint->base.counts[LIST_ALL] == VERBS_MAX_CONNS)
        return ROWAN_ETOOMANY;
    conn = calloc(1, sizeof *conn);
    if (!conn)
        return ROWAN_ENOMEM;
    conn->endpoint = endpoint;
    conn->number = unused_number(endpoint);
    conn->token = (uint32_t)random_u64(&endpoint->random);
    endpoint->conns[conn->number] = conn;
    endpoint->next_number = (conn->number + 1) % VERBS_MAX_CONNS;
    conn_init(&conn->base, &endpoint->base, active);
    *out = conn;
    return 0;
}

void verbs_conn_stop(struct conn *base)
{
    struct verbs_conn *conn = (struct verbs_conn *)base;
    struct fabric_conn *control = conn->control;

    verbs_resolve_forget(conn);
    verbs_rc_close(conn);
    if (control) {
        conn->control = NULL;
        control->user = NULL;
        fabric_conn_close(control);
    }
}

bool verbs_conn_release(struct conn *base)
{
    const struct verbs_conn *conn = (const struct verbs_conn *)base;

    return !conn->stream || conn->stream->last_post <= conn->endpoint->packets->completed;
}

void verbs_conn_destroy(struct conn *base)
{
    struct verbs_conn *conn = (struct verbs_conn *)base;

    verbs_stream_close(conn);
    ASSERT(conn->endpoint->conns[conn->number] == conn);
    conn->endpoint->conns[conn->number] = NULL;
    free(conn);
}
