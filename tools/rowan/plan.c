/* add, drain, remove: what an operator wants of a server. The manager stores it; what it takes happens by itself. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "tools/rowan/rowan.h"

struct share share_of(const struct cluster_config *config, uint32_t server)
{
    struct share share = {0};
    for (uint32_t i = 0; i < config->shard_count; i++) {
        share.leads += config->shards[i].primary == server;
        share.backs += shard_has_backup(&config->shards[i], server);
        share.fills += shard_has_filling(&config->shards[i], server);
    }
    return share;
}

static bool holds_any(const struct cluster_config *config, uint32_t server)
{
    const struct share share = share_of(config, server);
    return share.leads + share.backs + share.fills > 0;
}

/* Until it holds nothing, or is not drained any more. */
static int wait_drained(struct admin *admin, uint32_t server)
{
    struct progress progress;
    int error = 0;
    progress_init(&progress, clock_now_ns(clock_system()));
    while (!error && holds_any(admin_config(admin), server) &&
           !cluster_wants(admin_config(admin), server)) {
        const uint64_t now_ns = clock_now_ns(clock_system());
        const struct share share = share_of(admin_config(admin), server);
        if (progress_due(&progress, now_ns))
            progress_line(&progress, "drain: server %u leads %u shards and backs %u", server,
                          share.leads, share.backs);
        error = admin_wait(admin, now_ns + NS_PER_S);
    }
    progress_end(&progress);
    return error;
}

static int print_outcome(const struct cluster_config *config, uint32_t server, bool json)
{
    const struct share share = share_of(config, server);
    const bool member = cluster_member(config, server), wanted = cluster_wants(config, server);
    if (json)
        return tool_print_json(json_pack(
            "{s:I, s:i, s:b, s:b, s:i, s:i, s:i}", "term", (json_int_t)config->term, "server",
            (int)server, "member", member, "draining", member && !wanted, "leads", (int)share.leads,
            "backs", (int)share.backs, "fills", (int)share.fills));
    if (!member)
        printf("server %u is no member of the cluster%s\n", server,
               wanted ? " yet: start it" : ", and may be none");
    else if (!wanted && !holds_any(config, server))
        printf("server %u is drained: rowan remove %u takes it out of the cluster\n", server,
               server);
    else
        printf("server %u %s: it leads %u shards, backs %u and fills %u\n", server,
               wanted ? "is a member" : "is being drained", share.leads, share.backs, share.fills);
    return 0;
}

int command_plan(const struct rowan_settings *settings, char **words)
{
    const Rowan__Plan__Kind kind = strcmp(words[0], "add") == 0     ? ROWAN__PLAN__KIND__ADD
                                   : strcmp(words[0], "drain") == 0 ? ROWAN__PLAN__KIND__DRAIN
                                                                    : ROWAN__PLAN__KIND__REMOVE;
    struct admin_missing missing;
    struct admin *admin;
    double number;
    char why[256];
    if (!tool_parse_number(words[1], 1, CLUSTER_MAX_SERVER, &number) ||
        number != (double)(uint32_t)number)
        return tool_usage("a server is named by its number");
    if (settings->wait && kind != ROWAN__PLAN__KIND__DRAIN)
        return tool_usage("--wait is for drain");
    if (command_connect(settings, words[0], &admin, &missing))
        return EXIT_FAILED;
    const uint32_t server = (uint32_t)number;
    int code = EXIT_DONE;
    int error = admin_plan(admin, kind, server, settings->timeout_ms * NS_PER_MS, why);
    if (!error && settings->wait)
        error = wait_drained(admin, server);
    if (!error)
        error = print_outcome(admin_config(admin), server, settings->json);
    if (error)
        code = tool_say("%s: %s", words[0], error == ROWAN_EREFUSED ? why : error_sentence(error));
    admin_close(admin);
    return code;
}
