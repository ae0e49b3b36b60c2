/* settings.c - rowan-cm's table of settings, and the list of servers. Pure. */
#include "cm/settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"

#define FIELD(name) offsetof(struct cm_settings, name)

static const struct config_key keys[] = {
    {"address", CONFIG_STRING, FIELD(address), NULL, 0, 0, NULL,
     "where servers and clients find this process (shm:/absolute/directory/name, tcp:HOST:PORT or "
     "verbs:HOST:PORT)"},
    {"coord", CONFIG_CHOICE, FIELD(coord), "file", 0, 0, "file",
     "where the configuration is kept: in the files of one machine"},
    {"coord-dir", CONFIG_STRING, FIELD(coord_dir), NULL, 0, 0, NULL,
     "existing directory for those files"},
    {"cluster-servers", CONFIG_STRING, FIELD(servers), NULL, 0, 0, NULL,
     "numbers of the servers that make the cluster (1,2,3); it starts when all have joined"},
    {"replicas", CONFIG_U64, FIELD(replicas), "3", 1, CLUSTER_MAX_REPLICAS, NULL,
     "copies of each shard, the primary included"},
    {"shards", CONFIG_U64, FIELD(shards), "0", 0, CLUSTER_MAX_SHARDS, NULL,
     "shards of the cluster; 0: 8 for each server, or one for each worker if those are more"},
    {"spin-us", CONFIG_U64, FIELD(spin_us), "0", 0, 1000000, NULL,
     "microseconds to poll without work before sleeping"},
    {"log-level", CONFIG_CHOICE, FIELD(log_level), "info", 0, 0, "error|warn|info|debug",
     "least important lines to log"},
    VERBS_DEVICE_KEYS(FIELD(verbs)),
};

const struct config_spec cm_settings_spec = {
    .program = "rowan-cm",
    .summary = "the configuration manager of a Rowan-KV cluster",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

static int compare_servers(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* Reads one number of the list at *text, and moves *text behind it. */
static bool parse_server(const char **text, uint32_t *server)
{
    *text += strspn(*text, " ");
    size_t digits = strspn(*text, "0123456789");
    if (digits == 0 || digits > 9)
        return false;
    *server = (uint32_t)strtoul(*text, NULL, 10);
    *text += digits;
    *text += strspn(*text, " ");
    return *server >= 1 && *server <= CLUSTER_MAX_SERVER;
}

static int parse_servers(const char *text, struct cm_state_options *options, char *why,
                         size_t why_bytes)
{
    options->server_count = 0;
    for (;; text++) {
        if (options->server_count == CLUSTER_MAX_MEMBERS) {
            snprintf(why, why_bytes, "cluster-servers names more than %d servers",
                     CLUSTER_MAX_MEMBERS);
            return ROWAN_ECONFIG;
        }
        if (!parse_server(&text, &options->servers[options->server_count++]) ||
            (*text != ',' && *text != '\0')) {
            snprintf(why, why_bytes,
                     "cluster-servers must be numbers from 1 to %d with commas between them "
                     "(1,2,3)",
                     CLUSTER_MAX_SERVER);
            return ROWAN_ECONFIG;
        }
        if (*text == '\0')
            break;
    }

    qsort(options->servers, options->server_count, sizeof options->servers[0], compare_servers);
    for (uint32_t i = 1; i < options->server_count; i++) {
        if (options->servers[i] == options->servers[i - 1]) {
            snprintf(why, why_bytes, "cluster-servers names server %u twice", options->servers[i]);
            return ROWAN_ECONFIG;
        }
    }
    return ROWAN_OK;
}

int cm_settings_apply(const struct cm_settings *settings, struct cm_state_options *out, char *why,
                      size_t why_bytes)
{
    struct cm_state_options options = *out;
    int error = parse_servers(settings->servers, &options, why, why_bytes);
    if (error)
        return error;
    if (settings->replicas > options.server_count) {
        snprintf(why, why_bytes, "%llu replicas need as many servers, and cluster-servers names %u",
                 (unsigned long long)settings->replicas, options.server_count);
        return ROWAN_ECONFIG;
    }
    options.replicas = (uint32_t)settings->replicas;
    options.shards = (uint32_t)settings->shards;
    *out = options;
    return ROWAN_OK;
}
