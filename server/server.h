/* server.h - a whole server: its roles put together. All seams come from outside, so that the same
 * server runs in a process of its own, on threads, or inside a simulator that calls `poll`. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "common/fabric/fabric.h"
#include "common/pm/pm.h"
#include "common/reactor/reactor.h"
#include "server/options.h"

struct server;

/* server_create: `fabric` and `pm` (all zeros, or with this server's data; registered with the
 * fabric) are borrowed and outlive the server. Nothing happens until the roles are polled. Errors:
 * ROWAN_ENOMEM EINVALID, those of managers_parse and fabric_endpoint_open; ROWAN_EFORMAT EDAMAGED ECLUSTER: what the PM
 * holds (store_why). */
int server_create(const struct server_options *options, struct fabric *fabric, struct pm *pm,
                  struct server **out);

/* server_stop: other servers take its place, then `failed` is called, with server_error 0, so that no client waits for it. At
 * once if there are no others, or no leases. Any thread, or a signal handler. Not for all servers of a cluster: each
 * would leave what it has to the rest, and the last one would have all. server_has_stopped: `failed` was called for that. */
void server_stop(struct server *server);
bool server_has_stopped(const struct server *server);

/* server_tune: cm (NULL: as it is), stop_timeout_ns, clean_percent, fill_rate, trace_one_in and no_checkpoints of `options` hold
 * from now on. On the control role's thread. */
void server_tune(struct server *server, const struct server_options *options);

/* server_serves: does it hold a lease, or need none, and has its configuration been committed? On the control role's thread. */
bool server_serves(const struct server *server);

/* The roles must not be polled any more. NULL is fine. */
void server_destroy(struct server *server);

/* Called from any role's thread when the server cannot go on (server_error tells why) or has stopped; must
 * not block. */
void server_on_failure(struct server *server, void (*failed)(void *context), void *context);
int server_error(const struct server *server);

/* Why, as a sentence. Only after `failed` was called. */
const char *server_why(const struct server *server);

/* The roles, as pollers: the control role first, then the workers, then the digest roles, then the clean role. */
uint32_t server_roles(const struct server *server);
struct poller server_poller(struct server *server, uint32_t role);

/* server_attach: spreads the roles over the reactors (control on the first, the others in turn),
 * with what wakes them. Errors: those of reactor_add_*. */
int server_attach(struct server *server, struct reactor **reactors, uint32_t count);

#endif
