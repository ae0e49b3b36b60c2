/* users.c - see users.h. */
#include "common/auth/users.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"

static const char *const role_names[] = {"nothing", "read", "write", "admin"};

const char *user_role_name(uint8_t role)
{
    return role_names[role <= USER_ADMIN ? role : USER_NOTHING];
}

uint8_t user_role_named(const char *name)
{
    uint8_t role = USER_ADMIN;
    while (role > USER_NOTHING && strcmp(name, role_names[role]) != 0)
        role--;
    return role;
}

struct users *users_create(uint32_t count)
{
    struct users *users =
        count <= USERS_MAX ? calloc(1, sizeof *users + count * sizeof users->list[0]) : NULL;
    if (!users)
        return NULL;
    users->count = count;
    atomic_init(&users->references, 1);
    return users;
}

struct users *users_hold(struct users *users)
{
    if (users)
        atomic_fetch_add_explicit(&users->references, 1, memory_order_relaxed);
    return users;
}

void users_release(struct users *users)
{
    if (users && atomic_fetch_sub_explicit(&users->references, 1, memory_order_acq_rel) == 1)
        free(users);
}

bool user_name_is_right(const char *name)
{
    const size_t bytes = strnlen(name, USER_NAME_BYTES + 1);
    static const char may[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return bytes >= 1 && bytes <= USER_NAME_BYTES && strspn(name, may) == bytes;
}

bool user_is_right(const struct user *user)
{
    return user_name_is_right(user->name) && user->role >= USER_READ && user->role <= USER_ADMIN &&
           user->prefix_bytes <= USER_PREFIX_BYTES && user->verifier.rounds >= SCRAM_MIN_ROUNDS &&
           user->verifier.rounds <= SCRAM_MAX_ROUNDS;
}

bool users_are_right(const struct users *users)
{
    bool admin = !users || !users->required;
    for (uint32_t i = 0; users && i < users->count; i++) {
        const struct user *user = &users->list[i];
        if (!user_is_right(user) || (i > 0 && strcmp(user[-1].name, user->name) >= 0))
            return false;
        admin = admin || user->role == USER_ADMIN;
    }
    return admin;
}

bool user_equal(const struct user *a, const struct user *b)
{
    return strcmp(a->name, b->name) == 0 && a->role == b->role &&
           a->prefix_bytes == b->prefix_bytes &&
           memcmp(a->prefix, b->prefix, a->prefix_bytes) == 0 &&
           scram_verifier_equal(&a->verifier, &b->verifier);
}

bool users_equal(const struct users *a, const struct users *b)
{
    const uint32_t count = a ? a->count : 0;
    if (count != (b ? b->count : 0) || (a && a->required) != (b && b->required))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (!user_equal(&a->list[i], &b->list[i]))
            return false;
    }
    return true;
}

const struct user *users_find(const struct users *users, const char *name)
{
    for (uint32_t i = 0; users && i < users->count; i++) {
        if (strcmp(users->list[i].name, name) == 0)
            return &users->list[i];
    }
    return NULL;
}

struct users *users_with(const struct users *users, const struct user *user)
{
    const uint32_t count = users ? users->count : 0;
    struct users *made = users_create(count + !users_find(users, user->name));
    if (!made)
        return NULL;
    made->required = users && users->required;
    uint32_t from = 0, at = 0;
    while (from < count && strcmp(users->list[from].name, user->name) < 0)
        made->list[at++] = users->list[from++];
    made->list[at++] = *user;
    from += from < count && strcmp(users->list[from].name, user->name) == 0;
    while (from < count)
        made->list[at++] = users->list[from++];
    return made;
}

struct users *users_without(const struct users *users, const char *name)
{
    const uint32_t count = users ? users->count : 0;
    struct users *made = users_create(count - (users_find(users, name) != NULL));
    if (!made)
        return NULL;
    made->required = users && users->required;
    for (uint32_t i = 0, at = 0; i < count; i++) {
        if (strcmp(users->list[i].name, name) != 0)
            made->list[at++] = users->list[i];
    }
    return made;
}

int users_allow(const struct users *users, const struct user *user, enum user_role role)
{
    if (user)
        return user->role >= role ? 0 : ROWAN_EACCESS;
    return users && users->required ? ROWAN_ELOGIN : 0;
}

bool user_has_key(const struct user *user, const void *key, size_t key_bytes)
{
    return key_bytes >= user->prefix_bytes && memcmp(key, user->prefix, user->prefix_bytes) == 0;
}
