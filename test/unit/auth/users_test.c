/* Sets of users: their order, who may do what, and what is not right. */
#include <stdlib.h>
#include <string.h>

#include "common/auth/users.h"
#include "common/base/error.h"
#include "test/lib/unit.h"

static struct user make(const char *name, uint8_t role, const char *prefix)
{
    struct user user = {
        .role = role, .prefix_bytes = (uint8_t)strlen(prefix), .verifier.rounds = SCRAM_MIN_ROUNDS};
    strcpy(user.name, name);
    memcpy(user.prefix, prefix, user.prefix_bytes);
    return user;
}

/* Takes over `users`. */
static struct users *with(struct users *users, const char *name, uint8_t role)
{
    const struct user user = make(name, role, "");
    struct users *made = users_with(users, &user);
    assert_non_null(made);
    users_release(users);
    return made;
}

static void assert_names(const struct users *users, const char *names)
{
    char text[128] = "";
    for (uint32_t i = 0; i < users->count; i++)
        strcat(strcat(text, i ? " " : ""), users->list[i].name);
    assert_string_equal(text, names);
}

TEST(users_stand_by_rising_name_and_the_newer_of_one_name_counts)
{
    struct users *users = with(NULL, "m", USER_READ);
    users = with(users, "z", USER_READ);
    users = with(users, "a", USER_READ);
    assert_names(users, "a m z");
    users = with(users, "m", USER_ADMIN);
    assert_names(users, "a m z");
    assert_int_equal(users_find(users, "m")->role, USER_ADMIN);
    struct users *fewer = users_without(users, "a");
    assert_names(fewer, "m z");
    assert_null(users_find(fewer, "a"));
    struct users *same = users_without(fewer, "nobody");
    assert_true(users_equal(fewer, same));
    assert_false(users_equal(fewer, users));
    users_release(same);
    users_release(fewer);
    users_release(users);
}

TEST(whether_logins_are_required_is_kept_and_makes_a_difference)
{
    struct users *users = with(NULL, "a", USER_ADMIN), *other = with(NULL, "a", USER_ADMIN);
    assert_true(users_equal(users, other));
    users->required = true;
    assert_false(users_equal(users, other));
    users = with(users, "b", USER_READ);
    assert_true(users->required);
    struct users *fewer = users_without(users, "b");
    assert_true(fewer->required);
    users_release(fewer);
    users_release(users);
    users_release(other);
    assert_true(users_equal(NULL, NULL));
}

TEST(a_set_without_an_admin_cannot_require_logins)
{
    struct users *users = with(NULL, "a", USER_WRITE);
    assert_true(users_are_right(users));
    users->required = true;
    assert_false(users_are_right(users));
    users = with(users, "b", USER_ADMIN);
    assert_true(users_are_right(users));
    users_release(users);
    assert_true(users_are_right(NULL));
}

TEST(names_roles_and_rounds_are_checked)
{
    struct user user = make("good.Name_1-x", USER_READ, "p");
    assert_true(user_is_right(&user));
    const struct user bad[] = {make("", USER_READ, ""), make("@server", USER_READ, ""),
                               make("a b", USER_READ, ""), make("a", USER_NOTHING, ""),
                               make("a", USER_ADMIN + 1, "")};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(user_is_right(&bad[i]));
    memset(user.name, 'a', sizeof user.name);
    assert_false(user_is_right(&user));
    user = make("a", USER_READ, "");
    user.verifier.rounds = SCRAM_MIN_ROUNDS - 1;
    assert_false(user_is_right(&user));
    user.verifier.rounds = SCRAM_MAX_ROUNDS + 1;
    assert_false(user_is_right(&user));
    assert_null(users_create(USERS_MAX + 1));
    struct users *twice = users_create(2);
    twice->list[0] = twice->list[1] = make("a", USER_READ, "");
    assert_false(users_are_right(twice));
    users_release(twice);
}

TEST(a_role_may_do_what_those_before_it_may)
{
    struct users *users = with(with(NULL, "r", USER_READ), "w", USER_WRITE);
    const struct user *reader = users_find(users, "r"), *writer = users_find(users, "w");
    assert_int_equal(users_allow(users, reader, USER_READ), 0);
    assert_int_equal(users_allow(users, reader, USER_WRITE), ROWAN_EACCESS);
    assert_int_equal(users_allow(users, writer, USER_READ), 0);
    assert_int_equal(users_allow(users, writer, USER_WRITE), 0);
    assert_int_equal(users_allow(users, writer, USER_ADMIN), ROWAN_EACCESS);
    assert_int_equal(users_allow(users, NULL, USER_ADMIN), 0);
    users->required = true;
    assert_int_equal(users_allow(users, NULL, USER_READ), ROWAN_ELOGIN);
    assert_int_equal(users_allow(NULL, NULL, USER_ADMIN), 0);
    users_release(users);
}

TEST(a_key_has_the_prefix_or_not)
{
    const struct user user = make("a", USER_READ, "ab/"), all = make("a", USER_READ, "");
    assert_true(user_has_key(&user, "ab/", 3));
    assert_true(user_has_key(&user, "ab/c", 4));
    assert_false(user_has_key(&user, "ab", 2));
    assert_false(user_has_key(&user, "abc/", 4));
    assert_true(user_has_key(&all, "x", 1));
}

TEST(roles_have_names)
{
    for (uint8_t role = USER_READ; role <= USER_ADMIN; role++)
        assert_int_equal(user_role_named(user_role_name(role)), role);
    assert_int_equal(user_role_named("root"), USER_NOTHING);
}

UNIT_MAIN(NULL, NULL)
