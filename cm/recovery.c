/* recovery.c - see recovery.h. */
#include "cm/recovery.h"

#include <stdio.h>

#include "cm/plan.h"
#include "cm/proposal.h"
#include "cm/refusal.h"
#include "common/base/error.h"

/* A server whose copies are all damaged says that it keeps none; recovery_propose tells why that is the end. */
bool recovery_lacks(const struct recovery *recovery, const struct cm_join *join)
{
    return join->data_cluster != 0 && join->stored_term != 0 &&
           recovery->brought[join->server] != join->incarnation;
}

bool recovery_asks(struct recovery *recovery, const struct cm_join *join,
                   struct cluster_config *stored)
{
    const bool right = stored && stored->has_secret && stored->cluster == join->data_cluster &&
                       stored->term <= UINT64_MAX - 2 * RECOVERY_TERMS;
    if (!right || !recovery_lacks(recovery, join))
        return recovery_lacks(recovery, join);
    recovery->brought[join->server] = join->incarnation;
    if (!recovery->best || stored->term > recovery->best->term) {
        cluster_release(recovery->best);
        recovery->best = cluster_hold(stored);
    }
    return false;
}

static int check_server(const struct recovery *recovery, const struct cm_state_options *options,
                        const struct cm_join *join, char *why, size_t why_bytes)
{
    const struct cluster_config *best = recovery->best;
    if (join->data_cluster != 0 && join->stored_term == 0) {
        snprintf(why, why_bytes,
                 "server %u holds data and no whole copy of its configuration, which may have been "
                 "the newest: restore the coordination directory; or, if the others hold all of "
                 "its data, give it an empty PM file",
                 join->server);
        return ROWAN_EDAMAGED;
    }
    if (!best) {
        snprintf(why, why_bytes,
                 "no server brings a configuration, so there is nothing to recover: start the "
                 "configuration manager without --recover to make a new cluster");
        return ROWAN_ENOTFOUND;
    }
    if (join->data_cluster != 0 && join->data_cluster != best->cluster) {
        snprintf(why, why_bytes,
                 "the servers hold data of two clusters, %016llx and (server %u) %016llx: give "
                 "each its own PM file",
                 (unsigned long long)best->cluster, join->server,
                 (unsigned long long)join->data_cluster);
        return ROWAN_ECLUSTER;
    }
    const char *unfit =
        cluster_member(best, join->server) ? refusal_unfit(options, best, join) : NULL;
    if (unfit)
        snprintf(why, why_bytes, "server %u cannot be recovered: %s", join->server, unfit);
    return unfit ? ROWAN_EREFUSED : ROWAN_OK;
}

/* Every server of that configuration must have been asked: one that was not may have a newer one. */
static int check_members(const struct recovery *recovery, const struct cm_state_options *options,
                         char *why, size_t why_bytes)
{
    const struct cluster_config *best = recovery->best;
    for (uint32_t i = 0; i < best->member_count; i++) {
        if (plan_wants(options, NULL, best->members[i].server))
            continue;
        snprintf(why, why_bytes,
                 "server %u belongs to the cluster and was not asked: name all servers of the "
                 "cluster in cluster-servers",
                 best->members[i].server);
        return ROWAN_EREFUSED;
    }
    return ROWAN_OK;
}

int recovery_propose(const struct recovery *recovery, const struct cm_state_options *options,
                     const struct registrations *registrations, struct cluster_config **out,
                     char *why, size_t why_bytes)
{
    int error = ROWAN_OK;
    for (uint32_t i = 0; i < options->server_count && !error; i++) {
        const struct cm_join *join = &registrations_find(registrations, options->servers[i])->join;
        error = check_server(recovery, options, join, why, why_bytes);
    }
    if (!error)
        error = check_members(recovery, options, why, why_bytes);
    if (error)
        return error;
    struct cluster_config *base = cluster_copy(recovery->best);
    if (!base)
        return ROWAN_ENOMEM;
    base->term += RECOVERY_TERMS;
    base->next_client_id = ids_series_end(base->next_client_id);
    struct comeback back = {0};
    for (uint32_t i = 0; i < base->member_count; i++)
        back.joins[back.came++] = &registrations_find(registrations, base->members[i].server)->join;
    error = proposal_cold(base, &back, base->lease_ms > 0, out, why, why_bytes);
    if (!error && back.count == 0) { /* nothing can be served: say why */
        cluster_release(*out);
        error = proposal_cold(base, &back, false, out, why, why_bytes);
    }
    for (uint32_t i = 0; !error && i < (*out)->shard_count; i++) {
        struct shard *shard = &(*out)->shards[i];
        if (shard_is_kept(*out, shard) && shard->epoch <= CLUSTER_MAX_EPOCH - RECOVERY_EPOCHS)
            shard->epoch += RECOVERY_EPOCHS;
    }
    cluster_release(base);
    return error;
}
