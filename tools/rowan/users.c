/* user, login: who may do what. A secret is made, or read from a file, here, and what is sent of it is a verifier. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/cluster/control.h"
#include "common/cluster/login.h"
#include "tools/rowan/rowan.h"

enum { MADE_BYTES = 24 };

/* A new secret, in hexadecimal digits, in a new file that only its owner can read. */
static int make_secret(const char *path)
{
    uint8_t bytes[MADE_BYTES];
    char text[2 * MADE_BYTES + 2];
    random_entropy(bytes, sizeof bytes);
    for (unsigned i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    text[2 * MADE_BYTES] = '\n';
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_from_errno(errno);
    const ssize_t written = write(fd, text, sizeof text - 1);
    int error = written == (ssize_t)sizeof text - 1 && fsync(fd) == 0 ? 0 : ROWAN_EIO;
    if (close(fd) && !error)
        error = ROWAN_EIO;
    explicit_bzero(bytes, sizeof bytes);
    explicit_bzero(text, sizeof text);
    return error;
}

static int read_user(const char *name, const char *path, struct user *out)
{
    struct login_secret secret;
    uint8_t salt[SCRAM_SALT_BYTES];
    int error = access(path, F_OK) == 0 ? 0 : make_secret(path);
    if (!error)
        error = login_secret_read(&secret, name, path);
    if (error)
        return error;
    random_entropy(salt, sizeof salt);
    strcpy(out->name, name);
    error = scram_verifier_make(&out->verifier, secret.secret, secret.bytes, salt, LOGIN_ROUNDS);
    login_secret_fini(&secret);
    return error;
}

static int add_user(const struct rowan_settings *settings, char **words)
{
    struct user user = {.role = user_role_named(words[3])};
    const size_t prefix_bytes = words[5] ? strlen(words[5]) : 0;
    Rowan__Plan plan = ROWAN__PLAN__INIT;
    Rowan__User body;
    char text[USER_PREFIX_BYTES + 1];
    if (user.role == USER_NOTHING)
        return tool_usage("a role is read, write or admin");
    if (strlen(words[2]) > USER_NAME_BYTES || prefix_bytes > USER_PREFIX_BYTES)
        return tool_usage("a user's name has 1 to 32 bytes, and a prefix at most 64");
    if (!user_name_is_right(words[2]))
        return tool_usage("a user's name consists of letters, digits and . _ -");
    int error = read_user(words[2], words[4], &user);
    if (error == ROWAN_EINVALID)
        return tool_say("user: %s: a secret has 12 to 256 bytes", words[4]);
    if (error == ROWAN_EPERMISSION)
        return tool_say("user: %s cannot be read, or others than its owner and group can read it, "
                        "too (chmod o= it)",
                        words[4]);
    if (error)
        return tool_say("user: %s: %s", words[4], error_sentence(error));
    memcpy(user.prefix, prefix_bytes ? words[5] : "", prefix_bytes);
    user.prefix_bytes = (uint8_t)prefix_bytes;
    user_pack(&user, true, &body);
    plan.kind = ROWAN__PLAN__KIND__USER;
    plan.user = &body;
    const int code = command_carry_out(settings, "user", &plan, NULL, NULL);
    if (code == EXIT_DONE)
        printf("user %s may %s%s%s with the secret in %s\n", user.name, words[3],
               prefix_bytes ? " keys that begin with " : "",
               view_key(user.prefix, prefix_bytes, USER_PREFIX_BYTES, text), words[4]);
    return code;
}

static int remove_user(const struct rowan_settings *settings, char **words)
{
    Rowan__Plan plan = ROWAN__PLAN__INIT;
    Rowan__User body = ROWAN__USER__INIT;
    body.name = words[2];
    plan.kind = ROWAN__PLAN__KIND__NO_USER;
    plan.user = &body;
    const int code = command_carry_out(settings, "user", &plan, NULL, NULL);
    if (code == EXIT_DONE)
        printf("nobody can log in as %s\n", words[2]);
    return code;
}

static int print_users(const struct rowan_settings *settings, const Rowan__UsersAre *are)
{
    json_t *users = settings->json ? json_array() : NULL;
    for (size_t i = 0; i < are->n_users; i++) {
        const Rowan__User *user = are->users[i];
        const char *role = user_role_name((uint8_t)user->role);
        char text[USER_PREFIX_BYTES + 1];
        view_key(user->prefix.data, user->prefix.len, USER_PREFIX_BYTES, text);
        if (settings->json)
            json_array_append_new(users, json_pack("{s:s, s:s, s:s}", "name", user->name, "role",
                                                   role, "prefix", text));
        else
            printf("%-32s %-5s %s\n", user->name, role, text);
    }
    if (settings->json)
        return tool_print_json(
            json_pack("{s:b, s:o}", "login_required", are->login_required, "users", users));
    printf("%zu users; %s\n", are->n_users,
           are->login_required ? "who has not logged in may do nothing"
                               : "who has not logged in may do everything (rowan login required)");
    return EXIT_DONE;
}

static int list_users(const struct rowan_settings *settings)
{
    struct admin *admin;
    Rowan__GetUsers get = ROWAN__GET_USERS__INIT;
    Rowan__ControlMessage *reply = NULL;
    char why[256];
    if (command_connect(settings, "user", &admin, NULL))
        return EXIT_FAILED;
    const int error = admin_ask(admin, &CONTROL_MESSAGE(GET_USERS, get_users, &get),
                                settings->timeout_ms * NS_PER_MS, why, &reply);
    admin_close(admin);
    const int code = error || reply->body_case != ROWAN__CONTROL_MESSAGE__BODY_USERS_ARE
                         ? tool_say("user: %s", error_sentence(error ? error : ROWAN_EFORMAT))
                         : print_users(settings, reply->users_are);
    control_free(reply);
    return code;
}

int command_user(const struct rowan_settings *settings, char **words)
{
    if (strcmp(words[1], "list") == 0 && !words[2])
        return list_users(settings);
    if (strcmp(words[1], "remove") == 0 && words[2] && !words[3])
        return remove_user(settings, words);
    if (strcmp(words[1], "add") == 0 && words[2] && words[3] && words[4])
        return add_user(settings, words); /* main.c takes no more than one more */
    return tool_usage(
        "user is followed by list, by remove and a name, or by add, a name, a role, the "
        "secret's file and perhaps a prefix of keys");
}

int command_login(const struct rowan_settings *settings, char **words)
{
    static const struct {
        const char *word, *done;
    } choices[] = {{"open", "who has not logged in may do everything"},
                   {"required", "who has not logged in may do nothing"},
                   {"rotate", "servers prove themselves by another secret"}};
    Rowan__Plan plan = ROWAN__PLAN__INIT;
    while (strcmp(words[1], choices[plan.to].word) != 0) {
        if (++plan.to == sizeof choices / sizeof choices[0])
            return tool_usage("login is followed by required, open or rotate");
    }
    plan.kind = ROWAN__PLAN__KIND__LOGIN;
    while (plan.rotation == 0)
        random_entropy(&plan.rotation, sizeof plan.rotation);
    const int code = command_carry_out(settings, "login", &plan, NULL, NULL);
    if (code == EXIT_DONE)
        puts(choices[plan.to].done);
    return code;
}
