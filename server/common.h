/* common.h - what all roles of a server share. */
#ifndef SERVER_COMMON_H
#define SERVER_COMMON_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "common/entry/entry.h"
#include "common/fabric/fabric.h"
#include "common/pm/pm.h"
#include "server/store/reclaim.h"
#include "server/store/store.h"

enum { SERVER_MAX_DIGESTS = 64 };

/* What this server's PM still takes. */
enum server_space {
    SPACE_ENOUGH,
    SPACE_SHORT, /* deletes, which make space */
    SPACE_NONE,  /* no writes */
};

/* The first five are fixed at creation, and so is who takes part in `reclaim`; `store` and `format` before the first
 * shard is handed out (the command that carries it makes them visible to the other roles). */
struct server_common {
    uint32_t server;
    uint64_t incarnation;
    struct fabric *fabric;
    struct pm *pm;
    struct server_wear *wear; /* NULL: off; the control role's thread */
    struct clock *clock;      /* for what `now_ns` of a poll is too old (worker.c, W13) */
    struct store *store;      /* NULL until the server has its first configuration */
    struct entry_format format;
    struct reclaim reclaim; /* of the segments of the store */

    /* Until when, by `clock`, this server may answer clients; UINT64_MAX: the configuration asks for no leases. 0 until it
     * has one. The control role's (control_lease.c). */
    _Atomic uint64_t lease_ns;
    _Atomic bool
        handed_out; /* each shard is in its owner's inbox; the control role wakes them then */
    _Atomic uint32_t space; /* enum server_space; set by the control role */
    _Atomic bool
        full; /* cleaning makes no space; otherwise who is refused should ask again. Likewise */
    _Atomic uint64_t
        reserve; /* free segments below which there is not enough; 0: not known yet. Set by the control role */
    /* Of the checkpoint in the PM (checkpoint.h): its id, and the last allocation number of its segments; 0: there is none.
     * The start's, then the clean role's. */
    uint64_t checkpoint, checkpoint_last;
    _Atomic bool possibly_incomplete; /* this run, as its record says; the control role's */
    /* As in server.h; set by the control role. */
    _Atomic uint64_t fill_rate;
    _Atomic uint32_t trace_one_in;
    _Atomic uint64_t
        left; /* all digest roles have left the segments of the backup log up to this number. The control role's */
    _Atomic uint64_t
        begun; /* nothing had landed behind this one when the control role asked for a pass last (digest_catch_up.c). Likewise */
    _Atomic bool
        rows_owed; /* settled versions have risen, and no segment was closed: who says so wakes the control role */
    _Atomic uint64_t periods; /* after which segments became COMMITTED; wakes the clean role */
    _Atomic uint64_t
        damages; /* how often it changed of which shards damage is known (shard_found_damage; a replica of such a one left) */
    _Atomic uint64_t exposures; /* calls of shard_expose that changed something */
    _Atomic uint64_t kept;      /* of those, for the logs of this server; likewise, and before */
    _Atomic bool stop;          /* the server was asked to stop (server_stop) */
    _Atomic bool ended;         /* and has left the cluster */
    _Atomic int error;          /* the first that ends the server; see server_fail */
    char why[512]; /* its sentence, the CM's at the longest; complete once `failed` was called */
    void (*failed)(void *context);
    void *failed_context;
};

/* server_fail: the server cannot go on. Logs the sentence, keeps the error, calls `failed` (which
 * must not block). Any role, any thread; the first call counts. */
void server_fail(struct server_common *common, int error, const char *why);

/* server_end: the server has left the cluster, and there is nothing more to do: calls `failed` without an error. */
void server_end(struct server_common *common);

/* Why, when a fence tells of a failed sync: nothing that was not durable has been acknowledged, and
 * nothing can be from now on (pm.h). */
#define SYNC_FAILED "a sync of the PM file failed"

/* server_done: is what is being synced durable? `done` is the answer of pm_fence_done and its like: 1, 0, or the error of
 * a failed sync, which ends the server. server_fenced: the same of a fence of its PM. */
static inline bool server_done(struct server_common *common, int done)
{
    if (done < 0)
        server_fail(common, done, SYNC_FAILED);
    return done == 1;
}

static inline bool server_fenced(struct server_common *common, struct pm_ticket ticket)
{
    return server_done(common, pm_fence_done(common->pm, ticket));
}

/* server_watch: after each poll of an endpoint. A server that nobody can reach any more ends. */
static inline void server_watch(struct server_common *common,
                                const struct fabric_endpoint *endpoint)
{
    const int error = fabric_endpoint_error(endpoint);

    if (error)
        server_fail(common, error,
                    "the network device failed, so nobody reaches this server any more: see "
                    "what became of it, then start the server again");
}

#endif
