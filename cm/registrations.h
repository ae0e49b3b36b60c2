/* registrations.h - the servers that have registered and wait for a configuration that names them. A
 * pure part of the state (state.h). */
#ifndef CM_REGISTRATIONS_H
#define CM_REGISTRATIONS_H

#include "cm/join.h"

struct registration {
    uint32_t connection;
    uint64_t since_ns,
        reported_ns; /* the first report of this process by this connection, and the last, came then */
    struct cm_join join; /* its last report */
};

/* Members, and servers of the operator's list. */
enum { REGISTRATIONS_MAX = 2 * CLUSTER_MAX_MEMBERS };

/* All zeros: nobody has registered. */
struct registrations {
    uint32_t count;
    uint64_t epoch; /* rises when one comes, and with registrations_expire */
    struct registration entries[REGISTRATIONS_MAX]; /* the first `count`, one a server */
};

/* The registration of this server; NULL: there is none. Valid until the next change. */
const struct registration *registrations_find(const struct registrations *registrations,
                                              uint32_t server);

/* Takes the place of an earlier report by the same server, or repeats it. At most
 * REGISTRATIONS_MAX different ones. */
void registrations_add(struct registrations *registrations, uint32_t connection,
                       const struct cm_join *join, uint64_t now_ns);

/* When the first of those that wait came. There is one. */
uint64_t registrations_since(const struct registrations *registrations);

/* Does the server's last report carry this epoch? Then it was sent after the epoch began, which is when the last server
 * came or later. A server that ended before cannot have sent one. */
bool registrations_is_current(const struct registrations *registrations,
                              const struct registration *registration);

/* Do those of all members of `config`? NULL: of all servers. */
bool registrations_are_current(const struct registrations *registrations,
                               const struct cluster_config *config);

/* A new epoch: no report so far is current. */
void registrations_expire(struct registrations *registrations);

/* Forgets the server that registered by this connection, if one did. */
void registrations_remove(struct registrations *registrations, uint32_t connection);

/* Why the server cannot be in one cluster with those: all have the same fabric and durability. A sentence in `why`; NULL: it can. */
const char *registrations_unfit(const struct registrations *registrations,
                                const struct cm_join *join, char *why, size_t why_bytes);

#endif
