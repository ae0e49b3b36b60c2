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
#include "tools/tool.h"

struct admin;

/* Whose cluster, and who asks. */
struct admin_access {
    const char *managers;           /* the list of their addresses, or "" */
    const char *dir;                /* of a rowan-local cluster, whose file `cm` has that list */
    const char *user, *secret_file; /* both or none ("") */
};

/* The settings that fill the struct, which is at that offset of a program's own. */
#define ADMIN_KEY(name, at, field, help)                                                           \
    {                                                                                              \
        name, CONFIG_STRING, (at) + offsetof(struct admin_access, field), "", 0, 0, NULL, help     \
    }
#define ADMIN_ACCESS_KEYS(at)                                                                      \
    ADMIN_KEY("cm", at, managers,                                                                  \
              "addresses of the configuration managers, with commas between them"),                \
        ADMIN_KEY("dir", at, dir,                                                                  \
                  "or the directory of a rowan-local cluster; without both: the current "          \
                  "directory"),                                                                    \
        ADMIN_KEY("user", at, user, "whom to log in as, where the cluster has users"),             \
        ADMIN_KEY("secret-file", at, secret_file,                                                  \
                  "then: file with that user's secret, which others than its owner and group "     \
                  "cannot read")

/* admin_find: `managers` becomes the list, in `list`: itself if not empty, else from the file `cm` in `dir` or, if that is
 * empty and nobody logs in, in the current directory: whoever may write there would say whom a login is shown to. Returns EXIT_DONE, or another exit code after a sentence. */
int admin_find(struct admin_access *access, char list[MANAGERS_LIST_BYTES]);

/* Servers that a cluster waits for before it serves. */
struct admin_missing {
    uint32_t count;
    uint32_t servers[CLUSTER_MAX_MEMBERS];
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
    const Rowan__ControlMessage *question;
};

enum { ADMIN_MANAGERS = CLUSTER_MAX_SERVER + 1 };

/* admin_post: asks `question`, which stays in place until `done`. If the server cannot be reached the call ends at once, with
 * the reason; a Failure as answer is an error, too, and so is one of another kind than the question asks for. */
void admin_post(struct admin *admin, struct admin_call *call, uint32_t server,
                const Rowan__ControlMessage *question, uint64_t timeout_ns);

/* admin_wait_all: until every call is done. Errors: ROWAN_EIO, which ends them. */
int admin_wait_all(struct admin *admin);

/* admin_wait: polls; if nothing happened, sleeps until something does or `until_ns`. Errors: ROWAN_EIO. */
int admin_wait(struct admin *admin, uint64_t until_ns);

void admin_call_free(struct admin_call *call);

/* A question to the manager that leads, or what an operator wants (a Plan), which it stores: admin_config has it then. *reply
 * is another answer, for control_free; NULL: none is wanted. `why`, of 256 bytes, says why it is refused. Errors: what a
 * manager answers (ROWAN_EREFUSED, EUNSUPPORTED); ETIMEDOUT: it may be stored or not; EIO. */
int admin_ask(struct admin *admin, const Rowan__ControlMessage *question, uint64_t timeout_ns,
              char *why, Rowan__ControlMessage **reply);

/* Who leads the managers, as far as is known now; NULL: none of them answers. */
const char *admin_leader(const struct admin *admin);

/* The list of managers that admin_open got. */
const struct managers *admin_managers(const struct admin *admin);

/* What every server says of itself: calls[i] is that to member i. */
struct admin_status {
    struct cluster_config *config;
    struct admin_call *calls;
    int store_error; /* why the manager could not store a configuration when it tried last; 0: it can */
};

/* GetStatus to every member at once; or these questions, with `out` for each. Errors: ROWAN_ENOMEM, EIO. */
int admin_status_get(struct admin *admin, uint64_t timeout_ns, struct admin_status *out);
int admin_ask_members(struct admin *admin, const Rowan__ControlMessage *questions, uint32_t count,
                      uint64_t timeout_ns, struct admin_status *out);
void admin_status_free(struct admin_status *status);

#endif
