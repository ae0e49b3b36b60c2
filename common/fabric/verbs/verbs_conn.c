/* verbs_conn.c - a connection's life, and the lists that say what waits.
 *
 * 1. A connection that the owner knows of ends in exactly one CLOSED event, unless the owner closed it. A
 *    handshake that failed at the passive side ends silently.
 * 2. What ends it destroys its RC queue pair and closes its tcp connection at once: nothing of it lands any
 *    more, and the peer learns of it. All else is given back by a later poll, when the device has done with
 *    what was sent: until then messages may be looked at, and its number is nobody else's.
 * 3. While the endpoint is armed, whoever puts a connection on a list of work sets the timer.
 *
 *   active:  DIALLING -> GREETING -> RESOLVING -> OPEN -- verbs_conn_break --> BREAKING -- CLOSED --> DEAD
 *   passive: GREETING -> RESOLVING -> READYING -> OPEN
 *            GREETING, RESOLVING -> REFUSING
 *   an active one that fails: verbs_conn_break; any state -- fabric_conn_close, or a passive handshake that
 *   fails --> DEAD
 */
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/list.h"
#include "common/fabric/verbs/verbs_stream.h"

enum { FIRST_ROOM = 64 };

/* --- lists --- */

void verbs_list_add(struct verbs_conn *conn, enum verbs_list_kind kind)
{
    struct verbs_endpoint *endpoint = conn->endpoint;
    struct verbs_list *list = &endpoint->lists[kind];

    if (verbs_is_listed(conn, kind))
        return;
    conn->listed |= UINT32_C(1) << kind;
    LIST_APPEND(list, conn, links[kind]);
    endpoint->counts[kind]++;
    if (endpoint->armed && !endpoint->timer_on) /* 3 */
        verbs_timer_set(endpoint);
}

void verbs_list_remove(struct verbs_conn *conn, enum verbs_list_kind kind)
{
    struct verbs_list *list = &conn->endpoint->lists[kind];

    if (!verbs_is_listed(conn, kind))
        return;
    LIST_REMOVE(list, conn, links[kind]);
    conn->listed &= ~(UINT32_C(1) << kind);
    conn->endpoint->counts[kind]--;
}

struct verbs_conn *verbs_list_take(struct verbs_endpoint *endpoint, enum verbs_list_kind kind)
{
    struct verbs_conn *conn = endpoint->lists[kind].first;

    if (conn)
        verbs_list_remove(conn, kind);
    return conn;
}

/* --- numbers --- */

struct verbs_conn *verbs_conn_of(const struct verbs_endpoint *endpoint, uint32_t number)
{
    return number < endpoint->conn_room ? endpoint->conns[number] : NULL;
}

static int make_room(struct verbs_endpoint *endpoint)
{
    const uint32_t room = endpoint->conn_room > 0 ? endpoint->conn_room * 2 : FIRST_ROOM;
    struct verbs_conn **conns;

    if (endpoint->conn_room == VERBS_MAX_CONNS)
        return ROWAN_ETOOMANY;
    conns = realloc(endpoint->conns, room * sizeof(struct verbs_conn *));
    if (!conns)
        return ROWAN_ENOMEM;
    for (uint32_t i = endpoint->conn_room; i < room; i++)
        conns[i] = NULL;
    endpoint->conns = conns;
    endpoint->next_number = endpoint->conn_room;
    endpoint->conn_room = room;
    return 0;
}

static int take_number(struct verbs_endpoint *endpoint, struct verbs_conn *conn)
{
    int error = 0;

    if (endpoint->counts[VLIST_ALL] == endpoint->conn_room)
        error = make_room(endpoint);
    if (error)
        return error;
    while (endpoint->conns[endpoint->next_number])
        endpoint->next_number = (endpoint->next_number + 1) % endpoint->conn_room;
    conn->number = endpoint->next_number;
    endpoint->conns[conn->number] = conn;
    endpoint->next_number = (endpoint->next_number + 1) % endpoint->conn_room;
    return 0;
}

/* --- life --- */

static_assert((VERBS_MAX_CONNS & (VERBS_MAX_CONNS - 1)) == 0 && VERBS_MAX_CONNS % FIRST_ROOM == 0,
              "doubling ends there");

int verbs_conn_create(struct verbs_endpoint *endpoint, bool active, struct verbs_conn **out)
{
    struct verbs_conn *conn = calloc(1, sizeof *conn);
    int error;

    if (!conn)
        return ROWAN_ENOMEM;
    error = take_number(endpoint, conn);
    if (error) {
        free(conn);
        return error;
    }
    conn->base.ops = endpoint->base.ops;
    conn->base.endpoint = &endpoint->base;
    conn->endpoint = endpoint;
    conn->state = active ? VCONN_DIALLING : VCONN_GREETING;
    conn->active = active;
    conn->token = (uint32_t)random_u64(&endpoint->random);
    verbs_list_add(conn, VLIST_ALL);
    verbs_list_add(conn, VLIST_HANDSHAKE);
    *out = conn;
    return 0;
}

/* 2 */
static void stop(struct verbs_conn *conn, enum verbs_conn_state state)
{
    static const enum verbs_list_kind lists[] = {VLIST_HANDSHAKE, VLIST_DIRTY,   VLIST_TIMED,
                                                 VLIST_DRAINING,  VLIST_PARTIAL, VLIST_BEGUN,
                                                 VLIST_WAITING};
    struct fabric_conn *control = conn->control;

    if (conn->state == VCONN_RESOLVING)
        verbs_resolve_forget(conn);
    conn->state = state;
    conn->base.has_zone = false;
    verbs_rc_close(conn);
    for (unsigned i = 0; i < sizeof lists / sizeof lists[0]; i++)
        verbs_list_remove(conn, lists[i]);
    if (control) {
        conn->control = NULL;
        control->user = NULL;
        fabric_conn_close(control);
    }
}

void verbs_conn_break(struct verbs_conn *conn, int error)
{
    if (conn->state >= VCONN_BREAKING)
        return;
    if (!conn->active && !conn->was_open) { /* 1 */
        verbs_conn_end(conn);
        return;
    }
    conn->error = error;
    stop(conn, VCONN_BREAKING);
    verbs_list_add(conn, VLIST_ACTIVE);
}

void verbs_conn_end(struct verbs_conn *conn)
{
    if (conn->state == VCONN_DEAD)
        return;
    stop(conn, VCONN_DEAD);
    verbs_list_add(conn, VLIST_DEAD);
}

void verbs_conn_reap(struct verbs_endpoint *endpoint)
{
    for (struct verbs_conn *conn = endpoint->lists[VLIST_DEAD].first, *next; conn; conn = next) {
        next = conn->links[VLIST_DEAD].next;
        if (!verbs_stream_is_drained(conn))
            continue;
        verbs_stream_close(conn);
        for (unsigned kind = 0; kind < VLIST_COUNT; kind++)
            verbs_list_remove(conn, (enum verbs_list_kind)kind);
        ASSERT(conn->listed == 0 && endpoint->conns[conn->number] == conn);
        endpoint->conns[conn->number] = NULL;
        free(conn);
    }
}
