/* access.c - who may ask a manager what: servers that have the cluster's key, if it has one, and users with the role that it
 * takes (common/auth/users.h). */
#include "cm/cm_internal.h"
#include "common/base/error.h"
#include "common/base/log.h"

static struct users *users_of(const struct cm *cm)
{
    const struct cluster_config *config = cm_state_config(cm->state);
    return config ? config->users : NULL;
}

enum login_step access_login(struct cm *cm, struct cm_peer *peer, uint32_t tag,
                             const Rowan__ControlMessage *message, int *error)
{
    const struct cluster_config *config = cm_state_config(cm->state);
    const bool serves = peer->identity.kind == FABRIC_SERVER;
    const struct login_book book = {
        .users = users_of(cm),
        .server = serves ? cm->options.servers : NULL,
        .cover = config && config->has_secret ? cluster_cover(config) : cm->options.state.secret,
    };
    const enum login_step step = login_take(&peer->login, &book, peer->conn, tag, message, error);
    if (step == LOGIN_FAILED)
        log_event(LOG_WARN, "login_refused", "user=%s error=%s so_far=%lu", login_name(peer->login),
                  error_name(*error), ++cm->refused_logins);
    return step;
}

const char *access_user(const struct cm *cm, const struct cm_peer *peer)
{
    const struct user *user = login_user(peer->login, users_of(cm));
    return user ? user->name : NULL;
}

static int client_right(const struct cm *cm, const struct cm_peer *peer, enum user_role role)
{
    const struct users *users = users_of(cm);
    return users_allow(users, login_user(peer->login, users), role);
}

static bool is_known(const struct cm *cm, const struct cm_peer *peer)
{
    if (peer->identity.kind == FABRIC_SERVER)
        return !cm->options.servers || login_is_server(peer->login);
    return client_right(cm, peer, USER_READ) == 0;
}

/* The last places are the admins', who may have to remove the user who has all others. */
static bool has_place(const struct cm *cm, enum user_role role)
{
    return cm->client_count < CM_MAX_CLIENTS - (role == USER_ADMIN ? 0 : CM_ADMIN_CLIENTS);
}

bool access_is_full(const struct cm *cm, const struct cm_peer *peer,
                    const Rowan__ControlMessage *message)
{
    if (peer->trusted || peer->identity.kind == FABRIC_SERVER ||
        message->body_case != ROWAN__CONTROL_MESSAGE__BODY_LOGIN)
        return false;
    const struct user *user = users_find(users_of(cm), message->login->user);
    return !has_place(cm, user ? user->role : USER_READ);
}

void access_trust(struct cm *cm, struct cm_peer *peer)
{
    if (peer->trusted || !is_known(cm, peer))
        return;
    const bool admin = client_right(cm, peer, USER_ADMIN) == 0;
    if (peer->identity.kind != FABRIC_SERVER && !has_place(cm, admin ? USER_ADMIN : USER_READ)) {
        cm_give_up(cm, peer, error_name(ROWAN_ETOOMANY)); /* more logged in at once */
        return;
    }
    peer->trusted = true;
    cm->client_count += peer->identity.kind != FABRIC_SERVER;
    fabric_conn_trust(peer->conn);
}

void access_users(struct cm *cm)
{
    struct users *users = users_of(cm);
    if (users == cm->users)
        return;
    const bool same = users_equal(cm->users, users);
    users_release(cm->users);
    cm->users = users_hold(users);
    if (same)
        return;
    for (uint32_t i = 0; i < cm->peer_limit; i++) {
        struct cm_peer *peer = &cm->peers[i];
        if (!peer->conn || peer->given_up)
            continue;
        if (peer->trusted && !is_known(cm, peer))
            cm_give_up(cm, peer, error_name(ROWAN_ELOGIN));
        access_trust(cm, peer);
    }
}

void access_share(const struct cm *cm, const struct cm_peer *peer, struct cm_event *event)
{
    event->user = access_user(cm, peer);
    event->reader = event->reader && client_right(cm, peer, USER_WRITE) != 0;
}

bool access_may_watch(const struct cm *cm, const struct cm_peer *peer)
{
    return peer->identity.kind == FABRIC_SERVER || client_right(cm, peer, USER_READ) == 0;
}

/* What only a member may say of itself and of its shards. */
static bool is_of_a_server(const Rowan__ControlMessage *message)
{
    return message->body_case == ROWAN__CONTROL_MESSAGE__BODY_JOIN ||
           message->body_case == ROWAN__CONTROL_MESSAGE__BODY_RENEW ||
           message->body_case == ROWAN__CONTROL_MESSAGE__BODY_ADOPTED ||
           message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FILLED ||
           message->body_case == ROWAN__CONTROL_MESSAGE__BODY_LOAD;
}

const char *access_refusal(const struct cm *cm, const struct cm_peer *peer,
                           const Rowan__ControlMessage *message, int *error)
{
    const bool admin = message->body_case == ROWAN__CONTROL_MESSAGE__BODY_PLAN ||
                       message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_USERS ||
                       message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SET_SETTING;
    *error = 0;
    if (peer->identity.kind != FABRIC_SERVER) {
        *error = client_right(cm, peer, admin ? USER_ADMIN : USER_READ);
        if (*error)
            return error_sentence(*error);
        if (!is_of_a_server(message))
            return NULL;
        *error = ROWAN_EREFUSED;
        return "only a server may say that";
    }
    if (!cm->options.servers || login_is_server(peer->login))
        return NULL;
    *error = ROWAN_ELOGIN;
    return "this manager lets in only servers that have the cluster's key: give this one the "
           "file (cluster-key)";
}
