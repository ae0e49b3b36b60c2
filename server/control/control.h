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
#include "server/options.h"
#include "server/worker/worker.h"

struct control;

/* `options`, `workers`, `digests`, `clean` and `roles`, which has all of these in that order, are borrowed and outlive the role.
 * Errors: ROWAN_ENOMEM; those of managers_parse and fabric_endpoint_open; ROWAN_EFORMAT EDAMAGED ECLUSTER: the PM cannot
 * be this server's. */
int control_create(struct server_common *common, const struct server_options *options,
                   struct worker **workers, struct digest **digests, struct clean *clean,
                   struct role **roles, struct control **out);
void control_destroy(struct control *control);

poll_function control_poll;

/* The managers are these from now on; NULL, or what managers_parse refuses: those that they are. A connection to one that is not listed any
 * more stays as long as that one grants. */
void control_tune(struct control *control, const char *managers);

/* Has it a lease, or needs none, and was its configuration committed? */
bool control_serves(const struct control *control);

struct fabric_endpoint *control_endpoint(struct control *control);

/* For struct poller. */
_Atomic uint64_t *control_busy_ns(struct control *control);

#endif
