/* role.h - what workers, digest roles and the clean role have in common: how the control role and the clean role reach
 * them. Each has one as its member `role`.
 */
#ifndef SERVER_ROLE_H
#define SERVER_ROLE_H

#include "common/metrics/metrics.h"
#include "server/command.h"
#include "server/common.h"

struct role {
    struct server_common *common;
    struct inbox inbox, outbox; /* from, and to, the control role */
    struct inbox questions;     /* from the clean role: records_ask */
    struct recover_part *part;  /* of the start, while it lasts */
    struct counter busy_ns;     /* struct poller */
};

/* The busy time of a role, `number` among those of that name. */
void role_metrics(const struct counter *busy_ns, struct metrics *metrics, const char *name,
                  uint32_t number);

/* role_init: of a role that is all zeros. `questions`: how many may wait; 0: it is asked none. Errors: ROWAN_ENOMEM, and
 * nothing is left to be freed. */
int role_init(struct role *role, struct server_common *common, uint32_t questions);

/* role_fini: frees what is left in the inboxes, too. */
void role_fini(struct role *role);

/* role_attach: before the reactors start; the role's, and that of the control role. */
void role_attach(struct role *role, struct reactor *reactor, struct reactor *control);

/* role_copied: tells the CM that this replica of the shard, which is split, has been copied to its children. Repeated by the
 * caller. */
void role_copied(struct role *role, uint16_t shard, uint32_t epoch);

/* role_take: executes a command that means the same to each of them. False: it is another one. */
bool role_take(struct role *role, const struct command *command);

#endif
