/* admin.h - questions to the CM and the servers' control endpoints: configuration, status, checksums.
 * One thread; calls run side by side. */
#ifndef TOOLS_ADMIN_H
#define TOOLS_ADMIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cluster/cluster.h"
#include "common/cluster/control.h"
#include "common/cluster/managers.h"

struct admin;

/* admin_find_cm: the list of the CMs' addresses: `cm` itself if not empty, else from the file `cm` in `dir` or, if that is
 * empty, in the current directory. False: a sentence was printed on standard error. */
bool admin_find_cm(const char *cm, const char *dir, char *out, size_t out_bytes);

/* Servers that a cluster waits for before it serves. */
struct admin_missing {
    uint32_t count;
    uint32_t servers[CLUSTER_MAX_MEMBERS];
};

/* Whose cluster, and who asks. */
struct admin_access {
    const char *managers;
    const char *user, *secret_file; /* both or none ("") */
};

/* admin_open: connects to the CM that leads, or if none does to another one, and fetches the configuration. Errors: at once
 * ROWAN_EUNREACHABLE (nobody listens), EINCOMPATIBLE, ELOGIN, EAGAIN (servers must be started first; `missing`, if not NULL,
 * says which), those of login_secret_read; ETIMEDOUT (there is no configuration yet), EINVALID, EUNSUPPORTED, ENOMEM, EIO. */
int admin_open(const struct admin_access *access, uint64_t timeout_ns, struct admin **out,
               struct admin_missing *missing);

/* Outstanding calls are forgotten. */
void admin_close(struct admin *admin);

/* The newest configuration that the CM has sent; valid until the next admin_wait. */
struct cluster_config *admin_config(const struct admin *admin);

/* A question to a server's control endpoint, or to a manager. The owner keeps it in place until `done`. */
struct admin_call {
    uint32_t server; /* or ADMIN_MANAGERS + its place in the list */
    bool done;
    int error;                    /* when done: 0, or why there is no reply */
    char why[256];                /* the sentence that came with a Failure, or "" */
    Rowan__ControlMessage *reply; /* when done without error; freed by admin_call_free */
    struct {
        struct admin_call *next, *prev;
    } place;
    uint64_t deadline_ns;
    uint32_t tag;
    bool sent;
    uint32_t shard;
    const Rowan__ControlMessage *question; /* NULL: for the checksum of `shard` */
    int answer; /* the kind of its reply (body_case); any other is an error */
};

enum { ADMIN_MANAGERS = CLUSTER_MAX_SERVER + 1 };

/* admin_post: asks for the checksum of `shard`; admin_post_question: that, which stays in place until `done`. If the server
 * cannot be reached the call ends at once, with the reason; a Failure as answer is an error, too. */
void admin_post(struct admin *admin, struct admin_call *call, uint32_t server, uint32_t shard,
                uint64_t timeout_ns);
struct admin_question {
    const Rowan__ControlMessage *message;
    int answer;
};
void admin_post_question(struct admin *admin, struct admin_call *call, uint32_t server,
                         const struct admin_question *question, uint64_t timeout_ns);

/* admin_wait_all: until every call is done. Errors: ROWAN_EIO, which ends them. */
int admin_wait_all(struct admin *admin);

/* admin_wait: polls; if nothing happened, sleeps until something does or `until_ns`. Errors: ROWAN_EIO. */
int admin_wait(struct admin *admin, uint64_t until_ns);

void admin_call_free(struct admin_call *call);

/* What an operator wants, stored by the manager that leads; admin_config has it then. `why`, of 256 bytes, says why it
 * is refused. Errors: what a manager answers (ROWAN_EREFUSED, EUNSUPPORTED); ETIMEDOUT: it may be stored or not; EIO. */
int admin_plan(struct admin *admin, const Rowan__Plan *plan, uint64_t timeout_ns, char *why);

/* Another question to the manager that leads: *reply is its answer, for control_free. Errors and `why`: likewise. */
int admin_ask(struct admin *admin, const Rowan__ControlMessage *question, uint64_t timeout_ns,
              char *why, Rowan__ControlMessage **reply);

/* Who leads the managers, as far as is known now; NULL: none of them answers. */
const char *admin_leader(const struct admin *admin);

/* The list of managers that admin_open got. */
const struct managers *admin_managers(const struct admin *admin);

/* Asks a server or a manager for its settings, behind a change if `setting` has one; waits for the reply, which is a
 * SettingsAre. The error is that of the call. */
int admin_setting(struct admin *admin, struct admin_call *call, uint32_t server,
                  const Rowan__SetSetting *setting, uint64_t timeout_ns);

/* What every server says of itself: calls[i] is that to member i. */
struct admin_status {
    struct cluster_config *config;
    struct admin_call *calls;
};

/* GetStatus to every member at once; or these questions, with `out` for each. Errors: ROWAN_ENOMEM, EIO. */
int admin_status_get(struct admin *admin, uint64_t timeout_ns, struct admin_status *out);
int admin_ask_members(struct admin *admin, const struct admin_question *questions, uint32_t count,
                      uint64_t timeout_ns, struct admin_status *out);
void admin_status_free(struct admin_status *status);

#endif
