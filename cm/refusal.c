/* refusal.c - see refusal.h. */
#include "cm/refusal.h"

#include <stdio.h>

#include "cm/plan.h"
#include "cm/state_inside.h"
#include "common/base/error.h"

const char refusal_not_leading[] = "another configuration manager leads the cluster, or will soon";

const char refusal_restarted[] = "the cluster still counts on the last process of this server: "
                                 "without leases it cannot return while other servers keep "
                                 "running, so stop all servers and start them again; with leases "
                                 "it waits until that process is removed";

static const char refusal_replaced[] =
    "the configuration names another process with this server's number: only one may run";

static const char refusal_taken[] = "another running server has this number; each needs its own";

static const char refusal_removed[] =
    "this process was silent for too long, or did not adopt a configuration, and was removed from "
    "the cluster: the server starts again";

const char refusal_unread[] =
    "the configuration that this server stored has a format that the configuration manager does "
    "not read: start a manager of the server's version";

const char refusal_gone_back[] =
    "the stored configuration went back, was removed or is another cluster's: restore the newest, "
    "or "
    "move it away and start all servers anew and the manager with --recover";

static const char refusal_older[] =
    "the configuration has a format that this server's version does not read: it waits, as long as "
    "a shard waits for a server that is away, or there are users, or servers prove themselves by "
    "a secret of their own (rowan login); start a server of the configuration manager's version";

static const char refusal_stranger[] =
    "the server's number is not among the servers of this cluster, or it was removed (rowan add "
    "lets it in where there are leases)";

/* "Restarted" and "taken" may be true for a moment only, because a connection may outlive its process: that server reports
 * again. */
int refusal_error(const char *why, const struct cluster_config *config, bool has_data)
{
    if (why == refusal_not_leading)
        return ROWAN_ENOTLEADING;
    if (why == refusal_removed)
        return ROWAN_EREMOVED;
    if (why == refusal_gone_back || why == refusal_older)
        return ROWAN_EAGAIN;
    if (why != refusal_restarted && why != refusal_taken)
        return ROWAN_EREFUSED;
    const bool may_be_empty = !config || config->lease_ms || cluster_is_unwritten(config);
    return has_data || may_be_empty ? ROWAN_EAGAIN : ROWAN_EREFUSED;
}

bool refusal_is_member(const struct cluster_config *config, uint32_t server, uint64_t incarnation)
{
    const struct member *member = config ? cluster_member(config, server) : NULL;
    return member && member->incarnation == incarnation && !member->kept;
}

const char *refusal_gone(const struct cluster_config *config, uint32_t server, uint64_t incarnation)
{
    const struct member *member = config ? cluster_member(config, server) : NULL;
    if (config && !member && !cluster_wants(config, server))
        return refusal_stranger;
    return config && (!member || member->incarnation == incarnation) ? refusal_removed
                                                                     : refusal_replaced;
}

const char *refusal_unfit(const struct cm_state_options *options,
                          const struct cluster_config *config, const struct cm_join *join)
{
    if (!cluster_member(config, join->server) &&
        (config->lease_ms == 0 || !plan_wants(options, config, join->server)))
        return refusal_stranger;
    if (join->format < cluster_format(config))
        return refusal_older;
    if (join->block_limit < config->block_limit)
        return "this server's fabric carries smaller blocks than the cluster's entries have: start "
               "it with the fabric that the cluster was made with";
    return NULL;
}

/* The server brings data that this cluster cannot know. NULL: it does not, or recovery.h judges it. */
static const char *foreign_data(struct cm_state *state, const struct cm_join *join)
{
    const struct cluster_config *config = state->config;
    const uint64_t theirs = join->data_cluster;
    if (theirs == 0 || (config ? theirs == config->cluster : state->options.recover))
        return NULL;
    if (config)
        snprintf(state->detail, sizeof state->detail,
                 "server %u holds data of cluster %016lx, and this is cluster %016lx: give it its "
                 "own PM file or an empty one",
                 join->server, theirs, config->cluster);
    else
        snprintf(state->detail, sizeof state->detail,
                 "server %u holds data of cluster %016lx, and the configuration manager knows no "
                 "cluster: restore its coordination directory, or recover it (rowan-cm --recover), "
                 "or give the server an empty PM file",
                 join->server, theirs);
    return state->detail;
}

const char *refusal_of(struct cm_state *state, uint32_t connection, const struct cm_join *join)
{
    const struct cluster_config *config = state->config;
    const char *why =
        config || state->leads ? foreign_data(state, join) : NULL; /* that never changes */
    if (why)
        return why;
    if (leader_is_behind(state, join) && !join->named)
        return refusal_gone_back;
    if (!state->leads || (config ? join_knows_better(join, config) : join->known_term > 0))
        return refusal_not_leading;
    if (!config && !plan_wants(&state->options, NULL, join->server))
        return "the server's number is not in the list that the configuration manager was "
               "started with (cluster-servers)";
    why = config ? refusal_unfit(&state->options, config, join) : NULL;
    if (why || refusal_is_member(config, join->server, join->incarnation))
        return why;
    const struct member *member = config ? cluster_member(config, join->server) : NULL;
    if (join->named || state->leases.past[join->server].removed == join->incarnation ||
        (member && member->incarnation == join->incarnation))
        return refusal_gone(config, join->server, join->incarnation);
    if (!manage_nobody_runs(state) && member && !member->kept)
        return refusal_restarted;
    const struct registration *other = registrations_find(&state->registered, join->server);
    if (other && other->connection != connection && other->join.incarnation != join->incarnation)
        return refusal_taken;
    return registrations_unfit(&state->registered, join, state->detail, sizeof state->detail);
}
