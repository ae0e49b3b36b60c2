/* rowan: the command line of a cluster. Finds the CM, then runs one command. */
#include "client/rowan.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "release.h"
#include "tools/rowan/rowan.h"

enum { OPEN_TIMEOUT_MS = 5000, TIMEOUT_MS = 10000, VERIFY_TIMEOUT_MS = 30000 };

#define FIELD(name) offsetof(struct rowan_settings, name)

static const struct config_key keys[] = {
    ADMIN_ACCESS_KEYS(FIELD(access)),
    {"value-file", CONFIG_STRING, FIELD(value_file), "", 0, 0, NULL,
     "put: file that holds the value"},
    {"timeout-ms", CONFIG_U64, FIELD(timeout_ms), "0", 0, 3600 * 1000, NULL,
     "how long to try, in milliseconds, verify each shard; 0: 10000, verify 30000; at most 60000 "
     "but for status, shards and verify"},
    {"wait", CONFIG_BOOL, FIELD(wait), "no", 0, 0, NULL,
     "drain, move, split: until that is over; shards: until each has all its replicas and is "
     "served; with progress on standard error"},
    {"yes", CONFIG_BOOL, FIELD(yes), "no", 0, 0, NULL, "give-up: without a question"},
    {"interval", CONFIG_STRING, FIELD(interval), "1", 0, 0, NULL,
     "top: seconds from one frame to the next, from 0.1 on"},
    {"frames", CONFIG_U64, FIELD(frames), "0", 0, UINT64_C(1) << 40, NULL,
     "top: it ends after so many; 0: q ends it"},
    {"json", CONFIG_BOOL, FIELD(json), "no", 0, 0, NULL, "print one JSON object and nothing else"},
};

static const struct config_spec spec = {
    .program = "rowan",
    .release = ROWAN_RELEASE,
    .summary =
        "Reads and writes single keys, and shows, checks and changes a Rowan-KV cluster.\n"
        "  get KEY         writes the value as it is, and a newline only to a terminal\n"
        "  put KEY VALUE   VALUE - reads it from standard input\n"
        "  del KEY\n"
        "  status          servers: fabric, durability, memory, load\n"
        "  shards          who holds which slots\n"
        "  top             a live view: throughput, latency, who leads what, what is being filled\n"
        "  slow            the slowest of the operations that servers followed, step by step\n"
        "  trace KEY       where a key lies: shard, replicas, and version and place on each\n"
        "  verify          compares all replicas of all shards: key, version and value\n"
        "  add ID          lets a server join that is not of the cluster; ends its draining\n"
        "  drain ID        its shards go to other servers, and it gets no more\n"
        "  remove ID       takes out a server that holds nothing, or does not run\n"
        "  move SHARD FROM TO   a replica, with the lead if FROM has it\n"
        "  split SHARD [SLOT]   in two, at SLOT, or where that halves its load\n"
        "  give-up shard|server ID   who is away is not waited for any more: says what that loses\n"
        "  balance on|off|dry-run   whether shards move by their load; at first they do\n"
        "  set             settings that change while servers and managers run\n"
        "  set [ID|manager] KEY=VALUE   one of them, until the next start, of a server, all "
        "managers, or all servers\n"
        "  user list | add NAME read|write|admin FILE [PREFIX] | remove NAME   who may log in; "
        "FILE has\n                  the secret, and gets a new one if it is not there\n"
        "  login required|open   whether who has not logged in may do nothing, or everything\n"
        "  login rotate    servers prove themselves by another secret from now on\n"
        "Exit code: 0 done, 1 failed, 2 usage.",
    .positional =
        "get KEY | put KEY VALUE | put KEY --value-file FILE | del KEY | status | shards "
        "| top | slow | trace KEY | verify | add ID | drain ID | remove ID | move SHARD FROM TO "
        "| split SHARD [SLOT] | give-up shard|server ID | balance on|off|dry-run | set [WHOM] "
        "[KEY=VALUE] | user ... "
        "| login required|open|rotate",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

struct command {
    const char *name;
    int words; /* itself included */
    int more;  /* that it may have */
    command_function *run;
};

static const struct command commands[] = {
    {"get", 2, 0, command_get},         {"put", 3, 0, command_put},
    {"del", 2, 0, command_del},         {"status", 1, 0, command_status},
    {"shards", 1, 0, command_shards},   {"verify", 1, 0, command_verify},
    {"add", 2, 0, command_plan},        {"drain", 2, 0, command_plan},
    {"remove", 2, 0, command_plan},     {"move", 4, 0, command_move},
    {"balance", 2, 0, command_balance}, {"split", 2, 1, command_split},
    {"give-up", 3, 0, command_give_up}, {"user", 2, 4, command_user},
    {"login", 2, 0, command_login},     {"set", 1, 2, command_set},
    {"top", 1, 0, command_top},         {"slow", 1, 0, command_slow},
    {"trace", 2, 0, command_trace},
};

uint64_t command_open_ms(const struct rowan_settings *settings)
{
    return settings->timeout_ms < OPEN_TIMEOUT_MS ? settings->timeout_ms : OPEN_TIMEOUT_MS;
}

int command_connect(const struct rowan_settings *settings, const char *command, struct admin **out,
                    struct admin_missing *missing)
{
    struct admin_missing own;
    missing = missing ? missing : &own;
    int error = admin_open(&settings->access, command_open_ms(settings) * NS_PER_MS, out, missing);
    if (error && error != ROWAN_EAGAIN)
        tool_say("%s: %s: %s", command, settings->access.managers, error_sentence(error));
    if (error != ROWAN_EAGAIN)
        return error;
    char servers[CLUSTER_MAX_MEMBERS * sizeof ", 4294967295"] = ""; /* any number may have come */
    size_t at = 0;
    for (uint32_t i = 0; i < missing->count; i++)
        at += (size_t)snprintf(servers + at, sizeof servers - at, "%s%u", i ? ", " : "",
                               missing->servers[i]);
    tool_say("%s: the cluster does not serve: it waits for server %s to be started", command,
             servers);
    return error;
}

static int run(void *of, int argc, char **argv)
{
    struct rowan_settings *settings = of;
    char managers[MANAGERS_LIST_BYTES];
    size_t i = 0;
    if (argc == 0)
        return tool_usage("a command is missing");
    while (i < sizeof commands / sizeof commands[0] && strcmp(commands[i].name, argv[0]) != 0)
        i++;
    if (i == sizeof commands / sizeof commands[0])
        return tool_usage("there is no such command");
    const struct command *command = &commands[i];
    int words = command->run == command_put && *settings->value_file ? 2 : command->words;
    if (argc < words || argc > words + command->more)
        return tool_usage(argc < words ? "a key, value, shard or server is missing"
                                       : "too many words");
    if (words > 1 && settings->timeout_ms > ROWAN_MAX_TIMEOUT_MS)
        return tool_usage("--timeout-ms: at most 60000 but for status, shards and verify");
    if (settings->timeout_ms == 0)
        settings->timeout_ms = command->run == command_verify ? VERIFY_TIMEOUT_MS : TIMEOUT_MS;
    const int code = admin_find(&settings->access, managers);
    return code ? code : command->run(settings, argv); /* behind the words is a NULL */
}

int main(int argc, char **argv)
{
    struct rowan_settings settings;
    return tool_main(&spec, argc, argv, &settings, run);
}
