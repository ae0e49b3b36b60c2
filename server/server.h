/* server.h - a whole server: its roles put together. All seams come from outside, so that the same
 * server runs in a process of its own, on threads, or inside a simulator that calls `poll`. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdint.h>

#include "common/fabric/fabric.h"
#include "common/pm/pm.h"
#include "common/reactor/reactor.h"

struct server_options {
    uint32_t server;           /* number, 1 or more */
    uint64_t incarnation;      /* not 0, never given twice */
    struct clock *clock;       /* that the polls' `now_ns` is read from; outlives the server */
    const char *cm;            /* fabric addresses of the CMs: a list (common/cluster/managers.h) */
    const char *address;       /* of this process, where peers and clients find it */
    uint32_t workers;          /* 1 to CLUSTER_MAX_WORKERS */
    uint32_t digests;          /* 1 to SERVER_MAX_DIGESTS */
    uint32_t reactors;         /* threads that run the roles; reported in the status */
    uint32_t landing_segments; /* posted to the landing zone at a time, 2 to 1024 */
    uint32_t
        clean_percent;   /* segments with less live bytes than that are cleaned, 1 to 95; 0: 75 */
    bool no_checkpoints; /* none is written; one that is there is used */
    uint8_t boot_id[16]; /* of the host's present boot; clock_boot_id */
};

struct server;

/* server_create: `fabric` and `pm` (all zeros, or with this server's data; registered with the
 * fabric) are borrowed and outlive the server. Nothing happens until the roles are polled. Errors:
 * ROWAN_ENOMEM EINVALID, those of managers_parse and fabric_endpoint_open; ROWAN_EFORMAT EDAMAGED ECLUSTER: what the PM
 * holds (store_why). */
int server_create(const struct server_options *options, struct fabric *fabric, struct pm *pm,
                  struct server **out);

/* The roles must not be polled any more. NULL is fine. */
void server_destroy(struct server *server);

/* Called once, from any role's thread, when the server cannot go on (server_error tells why); must
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
