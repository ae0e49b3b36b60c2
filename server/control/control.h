/* control.h - the control role of a server: keeps the landing zone supplied with segments, holds
 * the configuration and hands it to the other roles, talks to the CM, answers questions about status
 * and shards, tells the peers when this server's PM is full. A poller.
 */
#ifndef SERVER_CONTROL_H
#define SERVER_CONTROL_H

#include <stdint.h>

#include "common/cluster/login.h"
#include "common/reactor/reactor.h"
#include "server/clean/clean.h"
#include "server/common.h"
#include "server/digest/digest.h"
#include "server/worker/worker.h"

struct config_live;
struct metrics;
struct control;

struct control_options {
    const char *cm; /* fabric addresses of the CMs: a list (common/cluster/managers.h); copied */
    const char *address; /* of this process; copied */
    uint32_t workers, digests;
    uint32_t reactors;         /* threads; reported only */
    uint32_t landing_segments; /* posted at a time, 2 to 1024 */
    struct login_secret
        *cluster_key; /* to be let in by the manager; it outlives the role; NULL: there is none */
    uint64_t stop_timeout_ns; /* how long a server that is asked to stop may wait for others */
    uint8_t boot_id[STORE_BOOT_ID_BYTES];
    struct config_live *settings; /* that who asks may change; NULL: none */
    struct metrics *metrics;      /* as in server.h */
};

/* `workers`, `digests`, `clean` and `roles`, which has all of these in that order, are borrowed and outlive the role.
 * Errors: ROWAN_ENOMEM; those of managers_parse and fabric_endpoint_open; ROWAN_EFORMAT EDAMAGED ECLUSTER: the PM cannot
 * be this server's. */
int control_create(struct server_common *common, const struct control_options *options,
                   struct worker **workers, struct digest **digests, struct clean *clean,
                   struct role **roles, struct control **out);
void control_destroy(struct control *control);

poll_function control_poll;

/* Of these options another one. On the role's thread. */
void control_tune(struct control *control, uint64_t stop_timeout_ns);

/* Has it a lease, or needs none, and was its configuration committed? */
bool control_serves(const struct control *control);

struct fabric_endpoint *control_endpoint(struct control *control);

/* For struct poller. */
_Atomic uint64_t *control_busy_ns(struct control *control);

#endif
