/* users.h - who may log in to a cluster, and what each may do: an immutable set, shared by reference, which a configuration
 * holds (common/cluster/cluster.h). Of a user's secret it has a verifier only (scram.h). Any thread.
 */
#ifndef AUTH_USERS_H
#define AUTH_USERS_H

#include "common/auth/scram.h"

enum {
    USERS_MAX = 256,
    USER_NAME_BYTES = 32, /* letters, digits and . _ - ; never empty */
    USER_PREFIX_BYTES = 64,
    USER_MIN_SECRET_BYTES = 12,
    USER_MAX_SECRET_BYTES = 256,
};

/* Each may do all that those before it may. */
enum user_role {
    USER_NOTHING, /* none that is stored: who has not logged in where that is required */
    USER_READ,    /* get, and see what state the cluster is in */
    USER_WRITE,   /* put and delete */
    USER_ADMIN,   /* plan, set, and see who may what */
};

struct user {
    char name[USER_NAME_BYTES + 1];
    uint8_t role;         /* enum user_role */
    uint8_t prefix_bytes; /* of the keys that it may read and write; 0: of all */
    uint8_t prefix[USER_PREFIX_BYTES];
    struct scram_verifier verifier;
};

struct users {
    _Atomic uint32_t references;
    bool required; /* who has not logged in may do nothing; else all, as where there are no users */
    uint32_t count;
    struct user list[]; /* by rising name */
};

/* "read", and back; 0: it is none. */
const char *user_role_name(uint8_t role);
uint8_t user_role_named(const char *name);

/* users_create: `count` users, all zeros, one reference; NULL: no memory, or more than USERS_MAX. It is filled in, and then
 * changes no more. users_hold, users_release: another reference, and the end of one; NULL is fine. */
struct users *users_create(uint32_t count);
struct users *users_hold(struct users *users);
void users_release(struct users *users);

/* user_name_is_right: 1 to USER_NAME_BYTES letters, digits, and . _ -. user_is_right: every field is as above.
 * users_are_right: each is, they rise, and if logins are required one of them is an
 * admin, so that nobody locks everybody out. NULL is right. */
bool user_name_is_right(const char *name);
bool user_is_right(const struct user *user);
bool users_are_right(const struct users *users);

/* The last two take NULL for an empty set. */
bool user_equal(const struct user *a, const struct user *b);
bool users_equal(const struct users *a, const struct users *b);
const struct user *users_find(const struct users *users, const char *name);

/* users_with: a copy in which `user` has its place or takes that of the one with its name; users_without: in which that one is
 * gone, if it was there. NULL: no memory, or too many. */
struct users *users_with(const struct users *users, const struct user *user);
struct users *users_without(const struct users *users, const char *name);

/* May `user` (NULL: who has not logged in) do what takes `role` where `users` (NULL: none) says who may? Of keys: with
 * user_has_key. 0, ROWAN_ELOGIN (it would have to log in) or ROWAN_EACCESS. */
int users_allow(const struct users *users, const struct user *user, enum user_role role);
bool user_has_key(const struct user *user, const void *key, size_t key_bytes);

#endif
