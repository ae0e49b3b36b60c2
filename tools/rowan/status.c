/* status and shards: what the configuration and the servers' own figures say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/entry/entry.h"
#include "tools/json_print.h"
#include "tools/rowan/rowan.h"

enum { TIMEOUT_MS = 10000, OPEN_TIMEOUT_MS = 5000 };

struct view {
    struct admin *admin;
    struct cluster_config *config;
    struct admin_call *calls; /* by position of the member */
    uint32_t recovering;      /* shards; of `status` */
};

static json_t *servers_json(const uint32_t *servers, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer(servers[i]));
    return array;
}

static int view_open(const struct rowan_settings *settings, const char *cm, const char *command,
                     struct view *view)
{
    uint64_t timeout_ms = settings->timeout_ms ? settings->timeout_ms : TIMEOUT_MS;
    uint64_t open_ms = timeout_ms < OPEN_TIMEOUT_MS ? timeout_ms : OPEN_TIMEOUT_MS;
    struct admin_missing missing = {0};
    int error = admin_open(cm, open_ms * NS_PER_MS, &view->admin, &missing);

    if (!error) {
        error = admin_status(view->admin, timeout_ms * NS_PER_MS, &view->config, &view->calls);
        if (error)
            admin_close(view->admin);
    }
    if (error)
        admin_print_open("rowan", command, cm, error, &missing);
    if (error == ROWAN_EAGAIN && settings->json)
        json_print(json_pack("{s:o}", "waiting_for", servers_json(missing.servers, missing.count)));
    return error;
}

static void view_close(struct view *view)
{
    for (uint32_t i = 0; i < view->config->member_count; i++)
        admin_call_free(&view->calls[i]);
    free(view->calls);
    cluster_release(view->config);
    admin_close(view->admin);
}

/* NULL: that server does not answer. */
static const Rowan__ServerStatus *status_of(const struct view *view, uint32_t member)
{
    const struct admin_call *call = &view->calls[member];

    return call->error ? NULL : call->reply->server_status;
}

static uint32_t count_silent(const struct view *view)
{
    uint32_t silent = 0;

    for (uint32_t i = 0; i < view->config->member_count; i++)
        silent += view->calls[i].error != 0;
    return silent;
}

/* The server's status of a shard that it holds; NULL: it does not answer. */
static const Rowan__ShardStatus *replica_of(const struct view *view, const struct shard *shard,
                                            uint32_t server)
{
    for (uint32_t i = 0; i < view->config->member_count; i++) {
        const Rowan__ServerStatus *status = status_of(view, i);

        if (view->config->members[i].server != server || !status)
            continue;
        for (size_t j = 0; j < status->n_shards; j++) {
            if (status->shards[j]->id == shard->id)
                return status->shards[j];
        }
    }
    return NULL;
}

static bool is_recovering(const struct view *view, const struct shard *shard)
{
    const Rowan__ShardStatus *status = replica_of(view, shard, shard->primary);

    return !status || status->recovering;
}

static const char *state_of(const struct view *view, const struct shard *shard)
{
    for (uint32_t i = 0; i < view->config->member_count; i++) {
        if (view->config->members[i].server == shard->primary && !status_of(view, i))
            return "no answer";
    }
    return is_recovering(view, shard) ? "recovering" : "serves";
}

/* Shards that are not served: their primary is recovering them, or does not answer. */
static uint32_t count_recovering(const struct view *view)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < view->config->shard_count; i++)
        count += is_recovering(view, &view->config->shards[i]);
    return count;
}

static uint32_t count_incomplete(const struct view *view)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < view->config->shard_count; i++)
        count += view->config->shards[i].possibly_incomplete;
    return count;
}

/* --- status --- */

static json_t *server_json(const struct member *member, const struct admin_call *call,
                           const Rowan__ServerStatus *status)
{
    json_t *object = json_pack("{s:i, s:s, s:b}", "server", (int)member->server, "address",
                               member->address, "reachable", status != NULL);

    if (!object || !status) {
        if (object)
            json_object_set_new(object, "error", json_string(error_name(call->error)));
        return object;
    }
    json_t *more = json_pack(
        "{s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:I, "
        "s:I, s:I}",
        "fabric", status->fabric, "durability", status->durability, "pm", status->pm_backend,
        "full", status->full, "segments", (json_int_t)status->segments, "segments_free",
        (json_int_t)status->segments_free, "segments_backup_log",
        (json_int_t)status->segments_backup_log, "segments_worker_log",
        (json_int_t)status->segments_worker_log, "puts", (json_int_t)status->puts, "gets",
        (json_int_t)status->gets, "deletes", (json_int_t)status->deletes, "entries_digested",
        (json_int_t)status->entries_digested, "fetches", (json_int_t)status->fetches, "workers",
        (int)status->workers, "digests", (int)status->digests, "reactors", (int)status->reactors,
        "uptime_seconds", (json_int_t)status->uptime_seconds, "term", (json_int_t)status->term,
        "syncs", (json_int_t)status->syncs);

    json_object_update(object, more);
    json_decref(more);
    return object;
}

static int print_status_json(const struct view *view)
{
    const struct cluster_config *config = view->config;
    json_t *servers = json_array();
    char cluster[17];

    snprintf(cluster, sizeof cluster, "%016llx", (unsigned long long)config->cluster);
    for (uint32_t i = 0; i < config->member_count; i++)
        json_array_append_new(
            servers, server_json(&config->members[i], &view->calls[i], status_of(view, i)));
    return json_print(json_pack("{s:s, s:I, s:i, s:i, s:i, s:i, s:o}", "cluster", cluster, "term",
                                (json_int_t)config->term, "replicas", (int)config->replicas,
                                "shards", (int)config->shard_count, "recovering",
                                (int)view->recovering, "possibly_incomplete",
                                (int)count_incomplete(view), "servers", servers));
}

static void print_server(const Rowan__ServerStatus *status)
{
    uint64_t objects = 0;

    for (size_t i = 0; i < status->n_shards; i++)
        objects += status->shards[i]->objects;
    printf("%6u  %-6s  %-10s  %-4s  %8llu %8llu  %-4s  %11llu  %11llu %11llu %9llu %9llu  %7u %7u "
           "%8u  %8llus\n",
           status->server, status->fabric, status->durability, status->pm_backend,
           (unsigned long long)status->segments, (unsigned long long)status->segments_free,
           status->full ? "FULL" : "no", (unsigned long long)objects,
           (unsigned long long)status->puts, (unsigned long long)status->gets,
           (unsigned long long)status->deletes, (unsigned long long)status->syncs, status->workers,
           status->digests, status->reactors, (unsigned long long)status->uptime_seconds);
}

static void print_status(const struct view *view)
{
    const struct cluster_config *config = view->config;

    printf("cluster %016llx, term %llu: %u servers, %u shards, %u replicas\n\n",
           (unsigned long long)config->cluster, (unsigned long long)config->term,
           config->member_count, config->shard_count, config->replicas);
    printf("%6s  %-6s  %-10s  %-4s  %8s %8s  %-4s  %11s  %11s %11s %9s %9s  %7s %7s %8s  %9s\n",
           "server", "fabric", "durability", "pm", "segments", "free", "full", "objects", "puts",
           "gets", "deletes", "syncs", "workers", "digests", "reactors", "uptime");
    for (uint32_t i = 0; i < config->member_count; i++) {
        if (status_of(view, i))
            print_server(status_of(view, i));
        else
            printf("%6u  does not answer: %s (%s)\n", config->members[i].server,
                   error_sentence(view->calls[i].error), config->members[i].address);
    }
    printf("\nA segment has 4 MiB. Objects: index items of all replicas that the server holds, "
           "deleted "
           "keys included.\n");
    if (count_incomplete(view) > 0)
        printf("Possible loss: %u shards were started from data that may lack acknowledged writes; "
               "rowan shards marks them.\n",
               count_incomplete(view));
}

int command_status(const struct rowan_settings *settings, const char *cm)
{
    struct view view;
    int code = EXIT_DONE;

    if (view_open(settings, cm, "status", &view))
        return EXIT_FAILED;
    view.recovering = count_recovering(&view);
    if (!settings->json)
        print_status(&view);
    else if (print_status_json(&view))
        code = EXIT_FAILED;
    if (count_silent(&view) > 0) {
        code = EXIT_FAILED;
    } else if (view.recovering > 0) {
        fprintf(stderr, "rowan: status: %u of %u shards are recovering and not served yet\n",
                view.recovering, view.config->shard_count);
        code = EXIT_FAILED;
    }
    view_close(&view);
    return code;
}

/* --- shards --- */

/* The backups that lack committed versions. */
static uint32_t missing_at(const struct view *view, const struct shard *shard,
                           uint32_t servers[CLUSTER_MAX_REPLICAS])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < shard->backup_count; i++) {
        const Rowan__ShardStatus *replica = replica_of(view, shard, shard->backups[i]);

        if (replica && replica->missing)
            servers[count++] = shard->backups[i];
    }
    return count;
}

/* As EPOCH.COUNTER. */
static void show_version(uint64_t version, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%u.%llu", version_epoch(version),
             (unsigned long long)version_counter(version));
}

static void join_servers(const uint32_t *servers, uint32_t count, char *out, size_t out_bytes)
{
    size_t at = 0;

    snprintf(out, out_bytes, "-");
    for (uint32_t i = 0; i < count && at < out_bytes; i++)
        at += (size_t)snprintf(out + at, out_bytes - at, "%s%u", i ? "," : "", servers[i]);
}

static void print_shards(const struct view *view)
{
    char slots[24], primary[24], backups[64], filling[64], missing[64], objects[24], commit[24];

    printf("%5s  %-11s  %8s  %-14s  %-12s  %-8s  %10s  %14s  %-10s  %s\n", "shard", "slots",
           "epoch", "primary:worker", "backups", "filling", "objects", "commit", "missing at",
           "state");
    for (uint32_t i = 0; i < view->config->shard_count; i++) {
        const struct shard *shard = &view->config->shards[i];

        snprintf(slots, sizeof slots, "%u-%u", shard->first_slot, shard->last_slot);
        snprintf(primary, sizeof primary, "%u:%u", shard->primary, shard->worker);
        join_servers(shard->backups, shard->backup_count, backups, sizeof backups);
        join_servers(shard->filling, shard->filling_count, filling, sizeof filling);
        const Rowan__ShardStatus *lead = replica_of(view, shard, shard->primary);
        uint32_t lacking[CLUSTER_MAX_REPLICAS];

        join_servers(lacking, missing_at(view, shard, lacking), missing, sizeof missing);
        snprintf(objects, sizeof objects, "?");
        snprintf(commit, sizeof commit, "?");
        if (lead) {
            snprintf(objects, sizeof objects, "%llu", (unsigned long long)lead->objects);
            show_version(lead->commit, commit, sizeof commit);
        }
        printf("%5u  %-11s  %8u  %-14s  %-12s  %-8s  %10s  %14s  %-10s  %s%s\n", shard->id, slots,
               shard->epoch, primary, backups, filling, objects, commit, missing,
               state_of(view, shard), shard->possibly_incomplete ? ", possible loss" : "");
    }
    printf(
        "\nCommit: every version up to it, written EPOCH.NUMBER, is on all replicas. Missing at: "
        "backups\nthat never got some of these, and are fetching them.\n");
}

static int print_shards_json(const struct view *view)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < view->config->shard_count; i++) {
        const struct shard *shard = &view->config->shards[i];
        const Rowan__ShardStatus *lead = replica_of(view, shard, shard->primary);
        json_t *objects = lead ? json_integer((json_int_t)lead->objects) : json_null();
        json_t *commit = lead ? json_integer((json_int_t)lead->commit) : json_null();
        uint32_t lacking[CLUSTER_MAX_REPLICAS], count = missing_at(view, shard, lacking);

        json_array_append_new(
            array, json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:b, s:b}",
                             "shard", shard->id, "first_slot", shard->first_slot, "last_slot",
                             shard->last_slot, "epoch", (int)shard->epoch, "primary",
                             (int)shard->primary, "worker", (int)shard->worker, "backups",
                             servers_json(shard->backups, shard->backup_count), "filling",
                             servers_json(shard->filling, shard->filling_count), "objects", objects,
                             "commit", commit, "missing_at", servers_json(lacking, count),
                             "recovering", is_recovering(view, shard), "possibly_incomplete",
                             shard->possibly_incomplete));
    }
    return json_print(
        json_pack("{s:I, s:o}", "term", (json_int_t)view->config->term, "shards", array));
}

int command_shards(const struct rowan_settings *settings, const char *cm)
{
    struct view view;
    int code = EXIT_DONE;

    if (view_open(settings, cm, "shards", &view))
        return EXIT_FAILED;
    if (!settings->json)
        print_shards(&view);
    else if (print_shards_json(&view))
        code = EXIT_FAILED;
    view_close(&view);
    return code;
}
