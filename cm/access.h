/* access.h - who may ask a manager what: servers that have the cluster's key, if it has one, and users with the role that it
 * takes (common/auth/users.h). */
#ifndef CM_ACCESS_H
#define CM_ACCESS_H

#include "common/cluster/cluster.h"
#include "common/cluster/login.h"

struct access {
    bool keyed;
    struct scram_verifier servers;       /* then: of the key */
    uint8_t cover[CLUSTER_SECRET_BYTES]; /* until there is a configuration (login.h) */
    uint64_t refused_logins, refused_requests;
};

struct access_asker {
    const struct cluster_config *config; /* in force; NULL: none */
    enum fabric_kind kind;               /* that it says it is */
    struct fabric_conn *conn;
    struct login **login; /* of the connection */
};

/* `servers` NULL: there is no key, and whoever says so is a server. */
void access_init(struct access *access, const struct scram_verifier *servers,
                 const uint8_t cover[CLUSTER_SECRET_BYTES]);

/* As login_take; a failure is logged. */
enum login_step access_login(struct access *access, const struct access_asker *asker, uint32_t tag,
                             const Rowan__ControlMessage *message, int *error);

/* The name of the user who has logged in; NULL: nobody. */
const char *access_user(const struct access_asker *asker);

/* May it be sent what changes? Who was removed since, for one, may not. */
bool access_may_watch(const struct access_asker *asker);

/* NULL: it may ask that; else why not, and `error`. */
const char *access_refusal(struct access *access, const struct access_asker *asker,
                           const Rowan__ControlMessage *message, int *error);

#endif
