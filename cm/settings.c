/* settings.c - rowan-cm's table of settings, and the list of servers. Pure. */
#include "cm/settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/cluster/login.h"
#include "common/coord/coord.h"
#include "common/metrics/endpoint.h"

#define FIELD(name) offsetof(struct cm_settings, name)

static const struct config_key keys[] = {
    {"address", CONFIG_STRING, FIELD(address), NULL, 0, 0, NULL,
     "where servers and clients find this process (shm:/absolute/directory/name, tcp:HOST:PORT or "
     "verbs:HOST:PORT)"},
    CLUSTER_KEY_KEY(FIELD(cluster_key)),
    {"coord", CONFIG_CHOICE, FIELD(coord), "file", 0, 0, "file|zookeeper",
     "where the configuration is kept: in the files of one machine, or in a ZooKeeper ensemble"},
    {"coord-dir", CONFIG_STRING, FIELD(coord_dir), "", 0, 0, NULL,
     "file: existing directory for those files"},
    {"zookeeper", CONFIG_STRING, FIELD(zookeeper), "", 0, 0, NULL,
     "zookeeper: HOST:PORT of the ensemble's servers with commas between them, and behind the last "
     "the path that is this cluster's alone (zk1:2181,zk2:2181/rowan)"},
    {"zookeeper-key", CONFIG_STRING, FIELD(zookeeper_key), "", 0, 0, NULL,
     "zookeeper: file with the secret, 12 to 256 bytes, by which the managers alone read and write "
     "the configuration there; the same for all of them; without it whoever reaches the ensemble "
     "may"},
    {"zookeeper-session-ms", CONFIG_U64, FIELD(session_ms), "4000", 100, 120000, NULL,
     "zookeeper: milliseconds without a word after which the ensemble takes this process for dead; "
     "it keeps to bounds of its own, 2 and 20 of its ticks"},
    {"cluster-servers", CONFIG_STRING | CONFIG_MADE, FIELD(servers), NULL, 0, 0, NULL,
     "numbers of the servers that make the cluster (1,2,3); it starts when all have joined. Where "
     "there are leases, rowan add and remove change them later, and this does not"},
    {"replicas", CONFIG_U64 | CONFIG_MADE, FIELD(replicas), "3", 1, CLUSTER_MAX_REPLICAS, NULL,
     "copies of each shard, the primary included"},
    {"shards", CONFIG_U64 | CONFIG_MADE, FIELD(shards), "0", 0, CLUSTER_MAX_SHARDS, NULL,
     "shards of the cluster; 0: 8 for each server, or one for each worker if those are more"},
    {"max-shards", CONFIG_U64 | CONFIG_LIVE, FIELD(max_shards), "1000", 1, CLUSTER_MAX_SHARDS, NULL,
     "shards of the cluster beyond which none is split any more"},
    {"balance-above", CONFIG_U64 | CONFIG_LIVE, FIELD(balance_above), "30", 10, 1000, NULL,
     "per cent above the average of all from which on a server's load is lowered, until all are "
     "within 5 %"},
    {"start-wait", CONFIG_U64 | CONFIG_LIVE, FIELD(start_wait), "30", 1, 86400, NULL,
     "seconds that a start of all servers waits for those that are missing, from the first "
     "arrival; "
     "then what came whole is served (with leases only)"},
    {"goodbye-wait", CONFIG_U64 | CONFIG_LIVE, FIELD(goodbye_wait), "10", 1, 86400, NULL,
     "seconds that a shard waits for a server that stopped shortly after another one, rather than "
     "be served by a single replica: all may be about to stop"},
    {"lease-ms", CONFIG_U64 | CONFIG_MADE, FIELD(lease_ms), "500", 0, CLUSTER_MAX_LEASE_MS, NULL,
     "milliseconds of the leases by which the servers of a new cluster answer clients, so that "
     "those that fail are replaced; 0: "
     "there are none, and a server that fails is waited for; a cluster that is there keeps what it "
     "was made with"},
    {"recover", CONFIG_BOOL, FIELD(recover), "no", 0, 0, NULL,
     "once, where the stored configuration is lost: " CM_RECOVER_MEANS},
    {"spin-us", CONFIG_U64 | CONFIG_LIVE, FIELD(spin_us), "0", 0, 1000000, NULL,
     "microseconds to poll without work before sleeping"},
    METRICS_KEY(FIELD(metrics)),
    {"log-bytes", CONFIG_U64 | CONFIG_LIVE, FIELD(log_bytes), "0", 0, UINT64_C(1) << 40, NULL,
     "where standard error is a file: bytes of it and of its predecessor, FILE.1, at most; 0: it "
     "grows"},
    {"log-level", CONFIG_CHOICE | CONFIG_LIVE, FIELD(log_level), "info", 0, 0,
     "error|warn|info|debug", "least important lines to log"},
    VERBS_DEVICE_KEYS(FIELD(verbs)),
};

const struct config_spec cm_settings_spec = {
    .program = "rowan-cm",
    .summary = "the configuration manager of a Rowan-KV cluster",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

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

static const char *parse_servers(const char *text, struct cm_state_options *options, char *why,
                                 size_t why_bytes)
{
    options->server_count = 0;
    do {
        uint32_t server, at = options->server_count;
        if (at == CLUSTER_MAX_MEMBERS) {
            snprintf(why, why_bytes, "cluster-servers names more than %d servers",
                     CLUSTER_MAX_MEMBERS);
            return why;
        }
        if (!parse_server(&text, &server) || (*text != ',' && *text != '\0')) {
            snprintf(why, why_bytes,
                     "cluster-servers must be numbers from 1 to %d with commas between them "
                     "(1,2,3)",
                     CLUSTER_MAX_SERVER);
            return why;
        }
        for (; at > 0 && options->servers[at - 1] >= server; at--) {
            if (options->servers[at - 1] == server) {
                snprintf(why, why_bytes, "cluster-servers names server %u twice", server);
                return why;
            }
            options->servers[at] = options->servers[at - 1];
        }
        options->servers[at] = server;
        options->server_count++;
    } while (*text++ == ',');
    return NULL;
}

/* Exactly what belongs to the kind of coordination is given. */
static const char *check_coord(const struct cm_settings *settings, char *why, size_t why_bytes)
{
    const bool on_files = settings->coord == CM_COORD_FILE;
    const char *needed = on_files ? settings->coord_dir : settings->zookeeper;
    const char *other = on_files ? settings->zookeeper : settings->coord_dir;
    if (!*needed || *other)
        return on_files ? "coord file needs coord-dir, and zookeeper belongs to coord zookeeper"
                        : "coord zookeeper needs zookeeper, and coord-dir belongs to coord file";
    if (on_files && *settings->zookeeper_key)
        return "zookeeper-key belongs to coord zookeeper";
    if (on_files || coord_zookeeper_is_right(needed))
        return NULL;
    snprintf(
        why, why_bytes,
        "zookeeper must be HOST:PORT, more of them behind commas, and behind the last one a /PATH "
        "for all, as in a:2181,b:2181/path; %.100s is not",
        needed);
    return why;
}

const char *cm_settings_apply(const struct cm_settings *settings, struct cm_state_options *out,
                              char *why, size_t why_bytes)
{
    struct cm_state_options options = *out;
    const char *wrong = check_coord(settings, why, why_bytes);
    if (!wrong)
        wrong = parse_servers(settings->servers, &options, why, why_bytes);
    if (wrong)
        return wrong;
    if (settings->replicas > options.server_count) {
        snprintf(why, why_bytes, "%lu replicas need as many servers, and cluster-servers names %u",
                 settings->replicas, options.server_count);
        return why;
    }
    if (settings->lease_ms > 0 && settings->lease_ms < CLUSTER_MIN_LEASE_MS) {
        snprintf(why, why_bytes, "lease-ms must be 0 or at least %d", CLUSTER_MIN_LEASE_MS);
        return why;
    }
    if (!metrics_address_is_right(settings->metrics))
        return metrics_why(ROWAN_EADDRESS);
    options.replicas = (uint32_t)settings->replicas;
    options.lease_ms = (uint32_t)settings->lease_ms;
    options.shards = (uint32_t)settings->shards;
    options.max_shards = (uint32_t)settings->max_shards;
    options.balance_above = (uint32_t)settings->balance_above;
    options.start_wait_ms = settings->start_wait * 1000;
    options.goodbye_wait_ms = settings->goodbye_wait * 1000;
    options.recover = settings->recover;
    *out = options;
    return NULL;
}
