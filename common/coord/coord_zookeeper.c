/* coord_zookeeper.c - the coordination seam on a ZooKeeper ensemble: a value, a watch and an election, as requests of
 * the session (zookeeper_session.c) that completions answer. All of it happens in coord_poll.
 *
 * Nodes, under a path that is made if it is not there:
 *   value    the value; our version is the node's, which begins with 0, plus 1
 *   leader   ephemeral; whose session owns it leads
 *
 *  1. A request is handed over only while the session is connected, and answered from its completion. What was lost with
 *     a connection: a read is asked again; of a compare-and-set nobody knows, and the owner reads.
 *  2. In front of each read goes a sync: in one session requests are carried out in order, so the server that answers
 *     has all that was stored when the read was asked for.
 *  3. A watch looks at the node's version after it was set in the ensemble, and fires at once if that is not the last
 *     version which this handle had answered. So no change between a read and a watch is missed, in either order.
 *  4. Leadership is what the last look at `leader` has shown, and only while connected: whoever is not does not know
 *     when its session ends. Each change of the node, and each attempt to make it that was not refused, is followed by
 *     another look.
 *  5. When a session has expired, all that was asked for goes on in the next one: watches are set again (3), and reads
 *     see no older state (2). A compare-and-set that waited for a connection is not carried out then: what was decided when it was
 *     asked for may be wrong by now, though nobody has stored anything since. Its owner reads.
 *  6. With a login the nodes are made for whoever has it, and for nobody else. Those that were made without one are closed by the
 *     first who stores a value or leads with it, not by one that stands by: a manager without it may still lead.
 *
 *   a request: FREE --ask--> WAITING --connected, handed over--> RUNNING --completed--> FREE
 *                               ^                                  |
 *                               +----- read: connection lost ------+
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/coord/coord_asked.h"
#include "common/coord/zookeeper_session.h"

struct coord_zookeeper {
    struct coord_asked asked;
    struct zookeeper_session session;
    bool was_connected; /* 5: by an earlier connection, at least once */
    char path[COORD_MAX_PATH_BYTES + 1];
    char value_path[COORD_MAX_PATH_BYTES + 8], leader_path[COORD_MAX_PATH_BYTES + 8];
    enum asked_state path_state; /* FREE: the path is there, or cannot be made */
    bool path_refused;
    enum asked_state close_state; /* 6 */
    bool closed;                  /* that was asked for */
    bool read_is_synced;
    bool makes_leader; /* nobody leads: make the node */
};

/* --- what a completion says --- */

/* Of the server's answer nothing is known: the connection or the session ended, or the client lost track of which answer
 * belongs to which request. */
static bool is_lost(int code)
{
    return code == ZCONNECTIONLOSS || code == ZOPERATIONTIMEOUT || code == ZSESSIONEXPIRED ||
           code == ZSESSIONMOVED || code == ZCLOSING || code == ZINVALIDSTATE ||
           code == ZRUNTIMEINCONSISTENCY || code == ZDATAINCONSISTENCY || code == ZSYSTEMERROR ||
           code == ZMARSHALLINGERROR;
}

/* The server has said that it did not carry the request out, and will not. */
static bool is_refused(int code)
{
    return code == ZNOAUTH || code == ZAUTHFAILED || code == ZINVALIDACL || code == ZNOTREADONLY ||
           code == ZBADARGUMENTS;
}

/* Of what nobody expects. */
static int error_of(int code, const char *request)
{
    log_event(LOG_ERROR, "zookeeper_refused", "request=%s reason=\"%s\"", request, zerror(code));
    return code == ZNOAUTH || code == ZAUTHFAILED ? ROWAN_EPERMISSION : ROWAN_EIO;
}

static uint64_t version_of(const struct Stat *stat)
{
    return (uint64_t)stat->version + 1;
}

/* The client knows its requests by a pointer to constant. */
static struct coord_zookeeper *owner_of(const void *context)
{
    return (struct coord_zookeeper *)(uintptr_t)context;
}

/* --- who may read and write (6) --- */

static struct ACL_vector *acl_of(const struct coord_zookeeper *zookeeper)
{
    return zookeeper->session.login ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

/* Of two: the other one may have been lost, and is asked for again with this one. */
static void node_closed(int code, const void *context)
{
    struct coord_zookeeper *zookeeper = owner_of(context);
    const bool again = is_lost(code) || code == ZTHROTTLEDOP;
    if (again || zookeeper->close_state != ASKED_WAITING)
        zookeeper->close_state = again ? ASKED_WAITING : ASKED_FREE;
    if (code != ZOK && code != ZNONODE && !again)
        (void)error_of(code, "acl");
}

/* `value` may not be there yet. `leader` goes with its session. */
static int hand_over_close(struct coord_zookeeper *zookeeper)
{
    const char *nodes[] = {zookeeper->path, zookeeper->value_path};
    int code = ZOK;
    for (unsigned i = 0; i < 2 && code == ZOK; i++)
        code = zoo_aset_acl(zookeeper->session.handle, nodes[i], -1, &ZOO_CREATOR_ALL_ACL,
                            node_closed, zookeeper);
    return code;
}

static void close_nodes(struct coord_zookeeper *zookeeper)
{
    if (!zookeeper->session.login || zookeeper->closed)
        return;
    zookeeper->closed = true;
    zookeeper->close_state = ASKED_WAITING;
}

/* --- the path --- */

/* Of its last node: those in front of it were asked for before. What cannot be made is met again by what needs it. */
static void path_made(int code, const char *name, const void *context)
{
    struct coord_zookeeper *zookeeper = owner_of(context);
    (void)name;
    zookeeper->path_state = is_lost(code) ? ASKED_WAITING : ASKED_FREE;
    zookeeper->path_refused = code != ZOK && code != ZNODEEXISTS && !is_lost(code);
    if (zookeeper->path_refused)
        (void)error_of(code, "path");
}

/* A node could not be made because that above it is not there: somebody removed it. True: it is made again. */
static bool make_path_again(struct coord_zookeeper *zookeeper, int code)
{
    if (code != ZNONODE || zookeeper->path_refused)
        return false;
    if (zookeeper->path_state == ASKED_FREE)
        zookeeper->path_state = ASKED_WAITING;
    return true;
}

static void ignore_made(int code, const char *name, const void *context)
{
    (void)code;
    (void)name;
    (void)context;
}

/* Nodes above the last may be those of others, too. */
static int make_path(struct coord_zookeeper *zookeeper)
{
    char node[sizeof zookeeper->path];
    for (char *end = zookeeper->path; end;) {
        end = strchr(end + 1, '/');
        const size_t bytes = end ? (size_t)(end - zookeeper->path) : strlen(zookeeper->path);
        memcpy(node, zookeeper->path, bytes);
        node[bytes] = '\0';
        const int code = zoo_acreate(zookeeper->session.handle, node, "", 0,
                                     end ? &ZOO_OPEN_ACL_UNSAFE : acl_of(zookeeper), 0,
                                     end ? ignore_made : path_made, zookeeper);
        if (code != ZOK)
            return code;
    }
    return ZOK;
}

/* --- reads (2) --- */

static void synced(int code, const char *path, const void *context)
{
    (void)path;
    owner_of(context)->read_is_synced = code == ZOK;
}

static void read_done(int code, const char *value, int bytes, const struct Stat *stat,
                      const void *context)
{
    struct coord_zookeeper *zookeeper = owner_of(context);
    if (zookeeper->session.closing)
        return;
    const bool told = code == ZOK || code == ZNONODE;
    if (is_lost(code) || code == ZTHROTTLEDOP || (told && !zookeeper->read_is_synced)) {
        zookeeper->asked.read.state = ASKED_WAITING;
        return;
    }
    zookeeper->asked.read.state = ASKED_FREE;
    if (code == ZOK)
        coord_answer_read(&zookeeper->asked, 0, value, bytes > 0 ? (size_t)bytes : 0,
                          version_of(stat));
    else
        coord_answer_read(&zookeeper->asked, told ? 0 : error_of(code, "read"), NULL, 0, 0);
}

static int hand_over_read(struct coord_zookeeper *zookeeper)
{
    zookeeper->read_is_synced = false;
    int code = zoo_async(zookeeper->session.handle, zookeeper->value_path, synced, zookeeper);
    if (code == ZOK)
        code = zoo_aget(zookeeper->session.handle, zookeeper->value_path, 0, read_done, zookeeper);
    return code;
}

/* --- compare-and-set --- */

static void answer_cas(struct coord_zookeeper *zookeeper, int error)
{
    zookeeper->asked.cas.state = ASKED_FREE;
    if (!error)
        close_nodes(zookeeper);
    coord_answer_cas(&zookeeper->asked, error);
}

static void cas_done(struct coord_zookeeper *zookeeper, int code)
{
    if (zookeeper->session.closing)
        return;
    if (code == ZTHROTTLEDOP) /* it was not carried out */
        zookeeper->asked.cas.state = ASKED_WAITING;
    else if (code == ZOK)
        answer_cas(zookeeper, 0);
    else if (code == ZBADVERSION || code == ZNODEEXISTS || code == ZNONODE)
        answer_cas(zookeeper, ROWAN_EVERSION);
    else
        answer_cas(zookeeper,
                   is_refused(code) ? error_of(code, "compare_and_set") : ROWAN_EUNKNOWN);
}

static void value_set(int code, const struct Stat *stat, const void *context)
{
    (void)stat;
    cas_done(owner_of(context), code);
}

static void value_made(int code, const char *name, const void *context)
{
    struct coord_zookeeper *zookeeper = owner_of(context);
    (void)name;
    if (!zookeeper->session.closing && make_path_again(zookeeper, code))
        zookeeper->asked.cas.state = ASKED_WAITING;
    else
        cas_done(zookeeper, code == ZNONODE ? ZNOAUTH : code); /* the path cannot be made */
}

static int hand_over_cas(struct coord_zookeeper *zookeeper)
{
    const char *value = (const char *)zookeeper->asked.cas.value;
    const int bytes = (int)zookeeper->asked.cas.bytes;
    const uint64_t expected = zookeeper->asked.cas.expected;
    if (expected == 0)
        return zoo_acreate(zookeeper->session.handle, zookeeper->value_path, value, bytes,
                           acl_of(zookeeper), 0, value_made, zookeeper);
    return zoo_aset(zookeeper->session.handle, zookeeper->value_path, value, bytes,
                    (int)(expected - 1), value_set, zookeeper);
}

/* --- the watch (3): the state is that of the look; FREE, and a watch is set: the ensemble will tell --- */

static void fire(struct coord_zookeeper *zookeeper)
{
    if (!zookeeper->asked.watch.changed || zookeeper->session.closing)
        return;
    zookeeper->asked.watch.state = ASKED_FREE;
    coord_answer_watch(&zookeeper->asked);
}

/* The end of a session or a connection is no change of the node: the client sets the watch again, or we do (5). */
static void value_changed(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    (void)handle;
    (void)state;
    (void)path;
    if (type != ZOO_SESSION_EVENT)
        fire(context);
}

static void watch_looked(int code, const struct Stat *stat, const void *context)
{
    struct coord_zookeeper *zookeeper = owner_of(context);
    if (zookeeper->session.closing || zookeeper->asked.watch.state != ASKED_RUNNING)
        return; /* it has fired meanwhile */
    const bool again = is_lost(code) || code == ZTHROTTLEDOP;
    zookeeper->asked.watch.state = again ? ASKED_WAITING : ASKED_FREE;
    if (code != ZOK && code != ZNONODE && !again)
        (void)error_of(code, "watch");
    else if (!again && (code == ZOK ? version_of(stat) : 0) != zookeeper->asked.watch.version)
        fire(zookeeper);
}

static int hand_over_watch(struct coord_zookeeper *zookeeper)
{
    return zoo_awexists(zookeeper->session.handle, zookeeper->value_path, value_changed, zookeeper,
                        watch_looked, zookeeper);
}

/* --- election (4): of the look, or of making the node; FREE: until it changes --- */

static void leader_changed(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct coord_zookeeper *zookeeper = context;
    (void)handle;
    (void)state;
    (void)path;
    if (type != ZOO_SESSION_EVENT && zookeeper->asked.election.state == ASKED_FREE)
        zookeeper->asked.election.state = ASKED_WAITING;
}

static void leader_looked(int code, const struct Stat *stat, const void *context)
{
    struct coord_zookeeper *zookeeper = owner_of(context);
    if (zookeeper->session.closing)
        return;
    const bool again = is_lost(code) || code == ZTHROTTLEDOP;
    zookeeper->asked.election.state = again || code == ZNONODE ? ASKED_WAITING : ASKED_FREE;
    zookeeper->makes_leader = code == ZNONODE;
    if (code != ZOK && code != ZNONODE && !again)
        (void)error_of(code, "leader");
    if (again)
        return;
    const bool leads =
        code == ZOK && stat->ephemeralOwner == zoo_client_id(zookeeper->session.handle)->client_id;
    if (leads)
        close_nodes(zookeeper);
    coord_answer_leads(&zookeeper->asked, leads);
}

/* The next look tells what came of it; after a refusal there is none before the node changes, or the connection. */
static void leader_made(int code, const char *name, const void *context)
{
    struct coord_zookeeper *zookeeper = owner_of(context);
    (void)name;
    if (zookeeper->session.closing)
        return;
    const bool refused = is_refused(code) || (code == ZNONODE && !make_path_again(zookeeper, code));
    zookeeper->asked.election.state = refused ? ASKED_FREE : ASKED_WAITING;
    zookeeper->makes_leader = false;
    if (refused)
        (void)error_of(code, "leader");
}

static int hand_over_election(struct coord_zookeeper *zookeeper)
{
    if (zookeeper->makes_leader)
        return zoo_acreate(zookeeper->session.handle, zookeeper->leader_path, "", 0,
                           acl_of(zookeeper), ZOO_EPHEMERAL, leader_made, zookeeper);
    return zoo_awexists(zookeeper->session.handle, zookeeper->leader_path, leader_changed,
                        zookeeper, leader_looked, zookeeper);
}

/* --- the poll --- */

static bool hand_over(struct coord_zookeeper *zookeeper, enum asked_state *state,
                      int (*request)(struct coord_zookeeper *zookeeper))
{
    if (*state != ASKED_WAITING)
        return false;
    *state = ASKED_RUNNING;
    if (request(zookeeper) != ZOK) /* it is not connected any more, or short of memory */
        *state = ASKED_WAITING;
    return *state == ASKED_RUNNING;
}

static bool hand_over_all(struct coord_zookeeper *zookeeper)
{
    struct coord_asked *asked = &zookeeper->asked;
    bool any = hand_over(zookeeper, &zookeeper->path_state, make_path);
    /* No node has such a version. */
    if (asked->cas.state == ASKED_WAITING && asked->cas.expected > INT32_MAX)
        answer_cas(zookeeper, ROWAN_EVERSION);
    any |= hand_over(zookeeper, &asked->cas.state, hand_over_cas);
    any |= hand_over(zookeeper, &asked->read.state, hand_over_read);
    any |= hand_over(zookeeper, &asked->watch.state, hand_over_watch);
    any |= hand_over(zookeeper, &asked->election.state, hand_over_election);
    any |= hand_over(zookeeper, &zookeeper->close_state, hand_over_close);
    return any;
}

static void ask_again(enum asked_state *state)
{
    if (*state == ASKED_RUNNING)
        *state = ASKED_WAITING;
}

/* 5 */
static void session_expired(struct coord_zookeeper *zookeeper)
{
    ask_again(&zookeeper->asked.read.state);
    if (zookeeper->asked.cas.state == ASKED_RUNNING)
        answer_cas(zookeeper, ROWAN_EUNKNOWN);
    if (zookeeper->asked.watch.changed)
        zookeeper->asked.watch.state = ASKED_WAITING;
}

static enum poll_result zookeeper_poll(struct coord *coord, uint64_t now_ns, uint64_t *wake_ns)
{
    struct coord_zookeeper *zookeeper = (struct coord_zookeeper *)coord;
    bool any = false;
    zookeeper->asked.answered = false;
    switch (zookeeper_session_poll(&zookeeper->session, now_ns, wake_ns)) {
    case SESSION_NO_NEWS:
        break;
    case SESSION_CONNECTED: /* `leader` may be another session's by now, and the client may have lost the watch */
        zookeeper->path_state = ASKED_WAITING;
        if (zookeeper->asked.watch.changed)
            zookeeper->asked.watch.state = ASKED_WAITING;
        if (zookeeper->asked.election.leader)
            zookeeper->asked.election.state = ASKED_WAITING;
        if (zookeeper->was_connected && zookeeper->asked.cas.state == ASKED_WAITING) /* 5 */
            answer_cas(zookeeper, ROWAN_EUNKNOWN);
        zookeeper->was_connected = true;
        break;
    case SESSION_EXPIRED:
        session_expired(zookeeper);
        break;
    }
    if (zookeeper->session.connected)
        any = hand_over_all(zookeeper);
    else
        coord_answer_leads(&zookeeper->asked, false);
    return any || zookeeper->asked.answered ? POLL_BUSY : POLL_IDLE;
}

/* --- life --- */

static void zookeeper_close_coord(struct coord *coord)
{
    struct coord_zookeeper *zookeeper = (struct coord_zookeeper *)coord;
    zookeeper_session_close(&zookeeper->session);
    free(zookeeper->asked.cas.value);
    free(zookeeper);
}

static const struct coord_ops zookeeper_ops = {.close = zookeeper_close_coord,
                                               .read = coord_asked_read,
                                               .cas = coord_asked_cas,
                                               .watch = coord_asked_watch,
                                               .elect = coord_asked_elect,
                                               .poll = zookeeper_poll};

/* A node's path: names with '/' in front of each, none of them empty, "." or "..". A comma is no part of it: behind it stands
 * another server, of somebody who gives each a path. */
static bool is_path(const char *path)
{
    if (strlen(path) > COORD_MAX_PATH_BYTES)
        return false;
    while (*path == '/') {
        const size_t bytes = strcspn(++path, "/");
        if (bytes == 0 || (path[0] == '.' && (bytes == 1 || (bytes == 2 && path[1] == '.'))))
            return false;
        for (size_t i = 0; i < bytes; i++) {
            if (path[i] <= ' ' || path[i] > '~' || path[i] == ',')
                return false;
        }
        path += bytes;
    }
    return *path == '\0';
}

/* "HOST:PORT" at the front of what is left; the bytes of it, or 0. */
static size_t address_bytes(const char *text)
{
    const size_t bytes = strcspn(text, ",/");
    size_t digits = 0;
    while (digits < bytes && text[bytes - digits - 1] >= '0' && text[bytes - digits - 1] <= '9')
        digits++;
    const bool right = digits > 0 && digits + 1 < bytes && text[bytes - digits - 1] == ':' &&
                       strcspn(text, " \t\r\n") >= bytes;
    return right ? bytes : 0;
}

bool coord_zookeeper_is_right(const char *ensemble)
{
    for (const char *at = ensemble;; at++) {
        const size_t bytes = address_bytes(at);
        at += bytes;
        if (bytes == 0 || (*at != ',' && !is_path(at)))
            return false;
        if (*at != ',')
            return true;
    }
}

static int open_parts(struct coord_zookeeper *zookeeper, const char *ensemble, const char *login,
                      uint32_t session_ms)
{
    const size_t bytes = strcspn(ensemble, "/");
    const char *path = ensemble[bytes] ? ensemble + bytes : COORD_DEFAULT_PATH;
    if (!coord_zookeeper_is_right(ensemble))
        return ROWAN_EINVALID;
    snprintf(zookeeper->path, sizeof zookeeper->path, "%s", path);
    snprintf(zookeeper->value_path, sizeof zookeeper->value_path, "%s/value", path);
    snprintf(zookeeper->leader_path, sizeof zookeeper->leader_path, "%s/leader", path);
    zookeeper->asked.cas.value = malloc(COORD_MAX_VALUE_BYTES);
    if (!zookeeper->asked.cas.value)
        return ROWAN_ENOMEM;
    return zookeeper_session_open(&zookeeper->session, ensemble, bytes, login, session_ms,
                                  zookeeper->asked.reactor);
}

int coord_open_zookeeper(const char *ensemble, const char *login, uint32_t session_ms,
                         struct reactor *reactor, struct coord **out)
{
    struct coord_zookeeper *zookeeper = calloc(1, sizeof *zookeeper);
    if (!zookeeper)
        return ROWAN_ENOMEM;
    zookeeper->asked.coord.ops = &zookeeper_ops;
    zookeeper->asked.reactor = reactor;
    zookeeper_session_init(&zookeeper->session);
    const int error = open_parts(zookeeper, ensemble, login, session_ms);
    if (error) {
        zookeeper_close_coord(&zookeeper->asked.coord);
        return error;
    }
    *out = &zookeeper->asked.coord;
    return 0;
}
