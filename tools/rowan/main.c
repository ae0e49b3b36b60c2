/* rowan: the command line of a cluster. Finds the CM, then runs one command. */
#include "client/rowan.h"

#include <stdio.h>
#include <string.h>

#include "common/base/config.h"
#include "common/base/error.h"
#include "release.h"
#include "tools/rowan/rowan.h"

static const struct config_key keys[] = {
    {.name = "cm",
     .type = CONFIG_STRING,
     .offset = offsetof(struct rowan_settings, cm),
     .fallback = "",
     .help = "address of the configuration manager"},
    {.name = "dir",
     .type = CONFIG_STRING,
     .offset = offsetof(struct rowan_settings, dir),
     .fallback = "",
     .help = "or the directory of a rowan-local cluster; without both: the current directory"},
    {.name = "value-file",
     .type = CONFIG_STRING,
     .offset = offsetof(struct rowan_settings, value_file),
     .fallback = "",
     .help = "put: file that holds the value"},
    {.name = "timeout-ms",
     .type = CONFIG_U64,
     .offset = offsetof(struct rowan_settings, timeout_ms),
     .fallback = "0",
     .max = 3600 * 1000,
     .help = "how long to try, in milliseconds, verify each shard; 0: 10000, verify 30000; at most "
             "60000 for get, put and del"},
    {.name = "json",
     .type = CONFIG_BOOL,
     .offset = offsetof(struct rowan_settings, json),
     .fallback = "no",
     .help = "print one JSON object and nothing else"},
};

static const struct config_spec spec = {
    .program = "rowan",
    .release = ROWAN_RELEASE,
    .summary = "Reads and writes single keys, and shows and checks a Rowan-KV cluster.\n"
               "  get KEY         writes the value as it is, and a newline only to a terminal\n"
               "  put KEY VALUE   VALUE - reads it from standard input\n"
               "  del KEY\n"
               "  status          servers: fabric, durability, memory, load\n"
               "  shards          who holds which slots\n"
               "  verify          compares all replicas of all shards: key, version and value\n"
               "Exit code: 0 done, 1 failed, 2 usage.",
    .positional = "get KEY | put KEY VALUE | put KEY --value-file FILE | del KEY | status | shards "
                  "| verify",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

int command_failed(const char *command, const char *subject, int error)
{
    if (subject)
        fprintf(stderr, "rowan: %s: \"%s\": %s\n", command, subject, error_sentence(error));
    else
        fprintf(stderr, "rowan: %s: %s\n", command, error_sentence(error));
    return EXIT_FAILED;
}

static int usage(const char *sentence)
{
    fprintf(stderr, "rowan: %s; see rowan --help\n", sentence);
    return EXIT_USAGE;
}

/* How many words the command has, itself included; 0: there is no such command. */
static int words_of(const struct rowan_settings *settings, const char *command)
{
    if (strcmp(command, "put") == 0)
        return *settings->value_file ? 2 : 3;
    if (strcmp(command, "get") == 0 || strcmp(command, "del") == 0)
        return 2;
    if (strcmp(command, "status") == 0 || strcmp(command, "shards") == 0 ||
        strcmp(command, "verify") == 0)
        return 1;
    return 0;
}

static int dispatch(const struct rowan_settings *settings, const char *cm, int argc, char **argv)
{
    switch (argv[0][0]) {
    case 'g':
        return command_get(settings, cm, argv[1]);
    case 'p':
        return command_put(settings, cm, argv[1], argc > 2 ? argv[2] : NULL);
    case 'd':
        return command_del(settings, cm, argv[1]);
    case 'v':
        return command_verify(settings, cm);
    default:
        return strcmp(argv[0], "status") == 0 ? command_status(settings, cm)
                                              : command_shards(settings, cm);
    }
}

static int run(const struct rowan_settings *settings, int argc, char **argv)
{
    char cm[CLUSTER_MAX_ADDRESS_BYTES + 1];

    if (argc == 0)
        return usage("a command is missing");
    int words = words_of(settings, argv[0]);

    if (words == 0)
        return usage("there is no such command");
    if (argc != words)
        return usage(argc < words ? "a key or value is missing" : "too many words");
    if (words > 1 && settings->timeout_ms > ROWAN_MAX_TIMEOUT_MS)
        return usage("--timeout-ms: at most 60000 for get, put and del");
    if (!admin_find_cm("rowan", settings->cm, settings->dir, cm, sizeof cm))
        return EXIT_FAILED;
    return dispatch(settings, cm, argc, argv);
}

int main(int argc, char **argv)
{
    struct rowan_settings settings;
    struct config_rest rest;
    enum config_outcome outcome = config_parse(&spec, argc, argv, &settings, &rest);

    if (outcome != CONFIG_OK)
        return outcome == CONFIG_HELP ? EXIT_DONE : EXIT_USAGE;
    int code = run(&settings, rest.argc, rest.argv);

    config_free(&rest);
    if (fflush(stdout) != 0 && code == EXIT_DONE)
        code = command_failed(argv[0], NULL, ROWAN_EIO);
    return code;
}
