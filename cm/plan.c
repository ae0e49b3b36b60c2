/* plan.c - see plan.h. */
#include "cm/plan.h"

#include <stdio.h>
#include <string.h>

#include "cm/led.h"
#include "cm/split.h"

bool plan_wants(const struct cm_state_options *options, const struct cluster_config *config,
                uint32_t server)
{
    if (config && config->wanted_count > 0)
        return cluster_wants(config, server);
    for (uint32_t i = 0; i < options->server_count; i++) {
        if (options->servers[i] == server)
            return true;
    }
    return false;
}

/* Without a list, every member is on it. */
static bool changes_list(const struct cm_plan *plan, const struct cluster_config *config)
{
    const bool listed = config->wanted_count > 0 ? cluster_wants(config, plan->server)
                                                 : cluster_member(config, plan->server) != NULL;
    return listed != (plan->kind == CM_PLAN_ADD);
}

static bool removes(const struct cm_plan *plan, const struct cluster_config *config)
{
    return plan->kind == CM_PLAN_REMOVE && cluster_member(config, plan->server);
}

/* --- moves --- */

/* Or it is under way. */
static bool is_moved(const struct cm_plan *plan, const struct shard *shard)
{
    return (shard->move_from == plan->server && shard->move_to == plan->to) ||
           (shard->primary == plan->to && shard_has_backup(shard, plan->server)) ||
           (!shard_names(shard, plan->server) && shard_names(shard, plan->to));
}

static bool can_take(const struct cluster_config *config, uint32_t server)
{
    const struct member *member = cluster_member(config, server);
    return member && !member->kept && cluster_wants(config, server);
}

static const char *move_refusal(const struct cm_plan *plan, const struct cluster_config *config,
                                char *why, size_t why_bytes)
{
    const struct shard *shard = cluster_shard(config, plan->shard);
    const uint32_t from = plan->server, to = plan->to;
    if (!shard || shard->split != SPLIT_NONE)
        snprintf(why, why_bytes, "there is no shard %u (rowan shards lists them)", plan->shard);
    else if (from == to || !can_take(config, to))
        snprintf(why, why_bytes,
                 "server %u cannot take a shard from server %u: name another member that runs and "
                 "is not drained (rowan status)",
                 to, from);
    else if (is_moved(plan, shard))
        return NULL;
    else if (shard_is_kept(config, shard) || shard->epoch == CLUSTER_MAX_EPOCH)
        snprintf(why, why_bytes, "shard %u is not served, or never can change again", shard->id);
    else if (split_concerns(config, shard))
        snprintf(why, why_bytes, "shard %u is being split: wait until that is over (rowan shards)",
                 shard->id);
    else if (!shard_is_full_at(shard, from))
        snprintf(why, why_bytes, "server %u has no full replica of shard %u (rowan shards)", from,
                 shard->id);
    else if (shard->move_to)
        snprintf(why, why_bytes, "shard %u moves from server %u to %u: wait until it has",
                 shard->id, shard->move_from, shard->move_to);
    else if (shard_names(shard, to) && !(shard->primary == from && shard_has_backup(shard, to)))
        snprintf(why, why_bytes, "server %u has a replica of shard %u, or fills one", to,
                 shard->id);
    else if (!shard_names(shard, to) &&
             shard->backup_count + shard->filling_count == CLUSTER_MAX_REPLICAS - 1)
        snprintf(why, why_bytes,
                 "shard %u has as many replicas as a shard can have, and needs "
                 "one more while it moves",
                 shard->id);
    else
        return NULL;
    return why;
}

static void change_shard(const struct cm_plan *plan, struct cluster_config *config)
{
    struct shard *shard = &config->shards[cluster_shard(config, plan->shard) - config->shards];
    shard->epoch++;
    if (plan->kind == CM_PLAN_WORKER) {
        shard->worker = plan->to;
        return;
    }
    if (shard_has_backup(shard, plan->to)) {
        struct led led;
        led_count(&led, config);
        led_swap(&led, shard, plan->to);
        return;
    }
    shard->filling[shard->filling_count++] = plan->to;
    shard->move_from = plan->server;
    shard->move_to = plan->to;
}

/* Only a manager that balances plans this, of what it knows (balance.h). */
static const char *worker_refusal(const struct cm_plan *plan, const struct cluster_config *config)
{
    const struct shard *shard = cluster_shard(config, plan->shard);
    const struct member *member = cluster_member(config, plan->server);
    return !shard || shard->primary != plan->server || !member || plan->to >= member->workers ||
                   shard_is_kept(config, shard) || shard->epoch == CLUSTER_MAX_EPOCH ||
                   split_concerns(config, shard)
               ? "this server does not lead the shard, or has no such worker (rowan shards)"
               : NULL;
}

/* --- users --- */

static uint32_t admins(const struct users *users, const char *but)
{
    uint32_t count = 0;
    for (uint32_t i = 0; users && i < users->count; i++)
        count += users->list[i].role == USER_ADMIN && strcmp(users->list[i].name, but) != 0;
    return count;
}

static bool is_of_users(const struct cm_plan *plan)
{
    return plan->kind == CM_PLAN_USER || plan->kind == CM_PLAN_NO_USER ||
           plan->kind == CM_PLAN_LOGIN;
}

static const char *users_refusal(const struct cm_plan *plan, const struct cluster_config *config,
                                 char *why, size_t why_bytes)
{
    const struct users *users = config->users;
    const bool removes_one = plan->kind == CM_PLAN_NO_USER;
    if (plan->kind == CM_PLAN_LOGIN && plan->to == CM_LOGIN_REQUIRED && admins(users, "") == 0)
        return "if logins are required, somebody must be an admin: make one first (rowan user add)";
    if (plan->kind == CM_PLAN_LOGIN)
        return plan->to <= CM_LOGIN_ROTATE ? NULL : "logins are required or open";
    if (!removes_one && users && users->count == USERS_MAX && !users_find(users, plan->user.name)) {
        snprintf(why, why_bytes, "a cluster has at most %d users: remove one first", USERS_MAX);
        return why;
    }
    if (!users || !users->required || admins(users, plan->user.name) > 0 ||
        (!removes_one && plan->user.role == USER_ADMIN))
        return NULL;
    snprintf(
        why, why_bytes,
        "logins are required, and without %s nobody would be an admin: make another one first, "
        "or let everybody in (rowan login open)",
        plan->user.name);
    return why;
}

static bool rotates(const struct cm_plan *plan)
{
    return plan->kind == CM_PLAN_LOGIN && plan->to == CM_LOGIN_ROTATE;
}

static bool users_are_due(const struct cm_plan *plan, const struct cluster_config *config)
{
    const struct users *users = config->users;
    const struct user *there = users_find(users, plan->user.name);
    if (rotates(plan))
        return config->keys.rotation != plan->rotation;
    if (plan->kind == CM_PLAN_LOGIN)
        return (users && users->required) != (plan->to == CM_LOGIN_REQUIRED);
    if (plan->kind == CM_PLAN_NO_USER)
        return there != NULL;
    return !there || !user_equal(there, &plan->user);
}

static void plan_keys(const struct cm_plan *plan, struct cluster_config *config)
{
    if (plan->kind != CM_PLAN_LOGIN || plan->to == CM_LOGIN_OPEN || !plan->draws)
        return;
    cluster_rotate(config, &plan->drawn, !rotates(plan));
    if (rotates(plan))
        config->keys.rotation = plan->rotation;
}

/* False: no memory. */
static bool plan_users(const struct cm_plan *plan, struct cluster_config *config)
{
    plan_keys(plan, config);
    if (rotates(plan))
        return true;
    struct users *before = config->users;
    struct users *after = plan->kind == CM_PLAN_USER ? users_with(before, &plan->user)
                                                     : users_without(before, plan->user.name);
    if (!after)
        return false;
    if (plan->kind == CM_PLAN_LOGIN)
        after->required = plan->to == CM_LOGIN_REQUIRED;
    if (after->count == 0) { /* as in a cluster that never had any */
        users_release(after);
        after = NULL;
    }
    config->users = after;
    users_release(before);
    return true;
}

/* --- plans --- */

static const char *give_up_refusal(const struct cm_plan *plan, const struct cluster_config *config,
                                   char *why, size_t why_bytes)
{
    const struct shard *shard = cluster_shard(config, plan->shard);
    if (plan->server || (shard && !cluster_parent(config, shard)))
        return NULL; /* who is no member any more has been given up */
    if (shard)
        snprintf(why, why_bytes, "shard %u is being split off shard %u: give that one up",
                 plan->shard, cluster_parent(config, shard)->id);
    else
        snprintf(why, why_bytes, "there is no shard %u (rowan shards lists them)", plan->shard);
    return why;
}

/* Does anybody wait for it? */
static bool gives_up(const struct cm_plan *plan, const struct cluster_config *config)
{
    const struct member *member = cluster_member(config, plan->server);
    return plan->server ? member && member->kept
                        : shard_is_kept(config, cluster_shard(config, plan->shard));
}

bool plan_is_due(const struct cm_plan *plan, const struct cluster_config *config)
{
    if (plan->kind == CM_PLAN_MOVE)
        return !is_moved(plan, cluster_shard(config, plan->shard));
    if (plan->kind == CM_PLAN_WORKER)
        return cluster_shard(config, plan->shard)->worker != plan->to;
    if (plan->kind == CM_PLAN_SPLIT)
        return cluster_shard(config, plan->shard)->split == SPLIT_NONE;
    if (plan->kind == CM_PLAN_BALANCE)
        return config->balance != (enum cluster_balance)plan->to;
    if (is_of_users(plan))
        return users_are_due(plan, config);
    if (plan->kind == CM_PLAN_GIVE_UP)
        return gives_up(plan, config);
    return changes_list(plan, config) || removes(plan, config);
}

static const char *drain_refusal(const struct cluster_config *config, uint32_t server, char *why,
                                 size_t why_bytes)
{
    uint32_t others = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct member *member = &config->members[i];
        others +=
            member->server != server && !member->kept && cluster_wants(config, member->server);
    }
    if (others >= config->replicas && config->replicas < CLUSTER_MAX_REPLICAS)
        return NULL;
    snprintf(
        why, why_bytes,
        others < config->replicas
            ? "without server %u there are %u servers for the %u replicas of each shard: start "
              "another one first (rowan add)"
            : "server %u, beside %u others, cannot be drained: %u replicas are the most that a "
              "shard has, and meanwhile it has one more",
        server, others, config->replicas);
    return why;
}

static const char *remove_refusal(const struct cluster_config *config, const struct member *member,
                                  char *why, size_t why_bytes)
{
    uint32_t held = 0, others = 0;
    for (uint32_t i = 0; i < config->shard_count; i++)
        held += shard_names(&config->shards[i], member->server);
    for (uint32_t i = 0; i < config->member_count; i++)
        others += config->members[i].server != member->server && !config->members[i].kept;
    if (held == 0 && others > 0)
        return NULL;
    if (held == 0) {
        snprintf(why, why_bytes,
                 "server %u is the only one that runs: wait until another one serves",
                 member->server);
        return why;
    }
    snprintf(why, why_bytes,
             member->kept ? "server %u does not run and has the last full replicas of %u shards: "
                            "start it again, and then drain it (rowan drain)"
                          : "server %u holds %u shards: drain it first (rowan drain --wait)",
             member->server, held);
    return why;
}

const char *plan_refusal(const struct cm_plan *plan, const struct cluster_config *config, char *why,
                         size_t why_bytes)
{
    const struct member *member = cluster_member(config, plan->server);
    const bool adds = plan->kind == CM_PLAN_ADD;
    if (config->lease_ms == 0)
        return "only a cluster with leases changes while it runs, and this one was made without "
               "(rowan-cm --lease-ms)";
    if (plan->kind == CM_PLAN_MOVE)
        return move_refusal(plan, config, why, why_bytes);
    if (plan->kind == CM_PLAN_WORKER)
        return worker_refusal(plan, config);
    if (plan->kind == CM_PLAN_SPLIT)
        return NULL; /* split_refusal */
    if (plan->kind == CM_PLAN_GIVE_UP)
        return give_up_refusal(plan, config, why, why_bytes);
    if (plan->kind == CM_PLAN_BALANCE)
        return plan->to < BALANCE_MODES ? NULL : "balancing is on, off or a dry run";
    if (is_of_users(plan))
        return users_refusal(plan, config, why, why_bytes);
    if (plan->server < 1 || plan->server > CLUSTER_MAX_SERVER ||
        (adds && config->wanted_count == CLUSTER_MAX_MEMBERS && changes_list(plan, config))) {
        snprintf(why, why_bytes,
                 "a server's number is from 1 to %d, and a cluster has 1 to %d servers",
                 CLUSTER_MAX_SERVER, CLUSTER_MAX_MEMBERS);
        return why;
    }
    if (!adds && config->wanted_count == 1 && changes_list(plan, config)) {
        snprintf(why, why_bytes,
                 "server %u is the last of the cluster: start another one first (rowan add)",
                 plan->server);
        return why;
    }
    if (removes(plan, config))
        return remove_refusal(config, member, why, why_bytes);
    if (plan->kind != CM_PLAN_DRAIN)
        return NULL;
    if (!member)
        return "only a member of the cluster can be drained, and this server is none now (rowan "
               "status shows them); one that is absent is taken out by rowan remove";
    return cluster_wants(config, plan->server) ? drain_refusal(config, plan->server, why, why_bytes)
                                               : NULL;
}

static void drop_member(struct cluster_config *config, uint32_t server)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        if (config->members[i].server != server)
            config->members[left++] = config->members[i];
    }
    config->member_count = left;
}

static void make_list(const struct cm_plan *plan, const struct cluster_config *from,
                      struct cluster_config *to)
{
    const bool has_list = from->wanted_count > 0;
    const uint32_t count = has_list ? from->wanted_count : from->member_count;
    bool adds = plan->kind == CM_PLAN_ADD;
    to->wanted_count = 0;
    memset(to->wanted, 0, sizeof to->wanted);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t server = has_list ? from->wanted[i] : from->members[i].server;
        if (adds && server > plan->server) {
            to->wanted[to->wanted_count++] = plan->server;
            adds = false;
        }
        if (server != plan->server)
            to->wanted[to->wanted_count++] = server;
    }
    if (adds)
        to->wanted[to->wanted_count++] = plan->server;
}

struct cluster_config *plan_make(const struct cm_plan *plan, const struct cluster_config *config)
{
    if (plan->kind == CM_PLAN_SPLIT)
        return split_make(plan, config);
    struct cluster_config *next = cluster_copy(config);
    if (!next)
        return NULL;
    next->term++;
    if (is_of_users(plan) && !plan_users(plan, next)) {
        cluster_release(next);
        return NULL;
    }
    if (plan->kind == CM_PLAN_MOVE || plan->kind == CM_PLAN_WORKER)
        change_shard(plan, next);
    else if (plan->kind == CM_PLAN_BALANCE)
        next->balance = (enum cluster_balance)plan->to;
    else if (!is_of_users(plan))
        make_list(plan, config, next);
    if (removes(plan, config))
        drop_member(next, plan->server);
    return cluster_finished(next); /* the plan is due and not refused */
}
