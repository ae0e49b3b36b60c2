/* access.c - see access.h. */
#include "cm/access.h"

#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"

void access_init(struct access *access, const struct scram_verifier *servers,
                 const uint8_t cover[CLUSTER_SECRET_BYTES])
{
    *access = (struct access){.keyed = servers != NULL};
    if (servers)
        access->servers = *servers;
    memcpy(access->cover, cover, sizeof access->cover);
}

static const struct users *users_of(const struct access_asker *asker)
{
    return asker->config ? asker->config->users : NULL;
}

enum login_step access_login(struct access *access, const struct access_asker *asker, uint32_t tag,
                             const Rowan__ControlMessage *message, int *error)
{
    const struct cluster_config *config = asker->config;
    const struct login_book book = {
        .users = users_of(asker),
        .server = access->keyed && asker->kind == FABRIC_SERVER ? &access->servers : NULL,
        .cover = config && config->has_secret ? config->secret : access->cover,
    };
    const enum login_step step = login_take(asker->login, &book, asker->conn, tag, message, error);
    if (step == LOGIN_FAILED)
        log_event(LOG_WARN, "login_refused", "user=%s error=%s so_far=%llu",
                  login_name(*asker->login), error_name(*error),
                  (unsigned long long)++access->refused_logins);
    return step;
}

const char *access_user(const struct access_asker *asker)
{
    const struct user *user = login_user(*asker->login, users_of(asker));
    return user ? user->name : NULL;
}

static int client_right(const struct access_asker *asker, enum user_role role)
{
    const struct users *users = users_of(asker);
    return users_allow(users, login_user(*asker->login, users), role);
}

bool access_may_watch(const struct access_asker *asker)
{
    return asker->kind == FABRIC_SERVER || client_right(asker, USER_READ) == 0;
}

const char *access_refusal(struct access *access, const struct access_asker *asker,
                           const Rowan__ControlMessage *message, int *error)
{
    const bool admin = message->body_case == ROWAN__CONTROL_MESSAGE__BODY_PLAN ||
                       message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_USERS ||
                       message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SET_SETTING;
    *error = 0;
    if (asker->kind == FABRIC_SERVER && access->keyed && !login_is_server(*asker->login))
        *error = ROWAN_ELOGIN;
    else if (asker->kind != FABRIC_SERVER)
        *error = client_right(asker, admin ? USER_ADMIN : USER_READ);
    if (!*error)
        return NULL;
    access->refused_requests++;
    return asker->kind == FABRIC_SERVER
               ? "this manager lets in only servers that have the cluster's key: give this one the "
                 "file (cluster-key)"
               : error_sentence(*error);
}
