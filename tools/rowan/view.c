/* view.c - what the configuration and the servers' own figures say, for the commands that show it. */
#include "tools/rowan/rowan.h"

#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/entry/entry.h"

json_t *view_servers_json(const uint32_t *servers, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer(servers[i]));
    return array;
}

int view_look(const struct rowan_settings *settings, const char *command, struct view *view)
{
    const int error =
        admin_status_get(view->admin, settings->timeout_ms * NS_PER_MS, &view->status);
    if (error) {
        tool_say("%s: %s: %s", command, settings->access.managers, error_sentence(error));
        admin_close(view->admin);
    }
    return error;
}

int view_open(const struct rowan_settings *settings, const char *command, struct view *view)
{
    struct admin_missing missing;
    int error = command_connect(settings, command, &view->admin, &missing);
    if (error == ROWAN_EAGAIN && settings->json)
        tool_print_json(
            json_pack("{s:o}", "waiting_for", view_servers_json(missing.servers, missing.count)));
    return error ? error : view_look(settings, command, view);
}

void view_close(struct view *view)
{
    admin_status_free(&view->status);
    admin_close(view->admin);
}

const Rowan__ServerStatus *view_status(const struct view *view, uint32_t server)
{
    const struct cluster_config *config = view->status.config;
    const struct admin_call *call =
        &view->status.calls[cluster_member(config, server) - config->members];
    return call->error ? NULL : call->reply->server_status;
}

const Rowan__ShardStatus *view_replica(const struct view *view, const struct shard *shard,
                                       uint32_t server)
{
    const Rowan__ServerStatus *status = view_status(view, server);
    for (size_t i = 0; status && i < status->n_shards; i++) {
        if (status->shards[i]->id == shard->id)
            return status->shards[i];
    }
    return NULL;
}

bool view_is_recovering(const struct view *view, const struct shard *shard)
{
    const Rowan__ShardStatus *status = view_replica(view, shard, shard->primary);
    return !status || status->recovering;
}

double view_load(const Rowan__ServerStatus *status)
{
    double load = 0;
    for (size_t i = 0; i < status->n_shards; i++)
        load += status->shards[i]->load;
    return load / CORE;
}

struct counts view_count(const struct view *view)
{
    const struct cluster_config *config = view->status.config;
    struct counts counts = {0};
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct admin_call *call = &view->status.calls[i];
        counts.silent += call->error != 0;
        if (call->error)
            continue;
        const Rowan__ServerStatus *status = call->reply->server_status;
        counts.start_scanned += status->start_scanned;
        counts.start_segments += status->start_segments;
        counts.fill_left += status->fill_left;
        counts.fill_rate += status->fill_rate;
        counts.fill_waits += status->fill_waits;
        const uint64_t fill_s = status->fill_rate ? status->fill_left / status->fill_rate + 1 : 0;
        counts.fill_s = fill_s > counts.fill_s ? fill_s : counts.fill_s;
    }
    for (uint32_t i = 0; i < config->shard_count; i++) {
        counts.recovering += view_is_recovering(view, &config->shards[i]);
        counts.waiting += shard_is_kept(config, &config->shards[i]);
        counts.incomplete += config->shards[i].possibly_incomplete;
        counts.filling += config->shards[i].filling_count > 0;
        counts.under_replicated += config->shards[i].backup_count + 1 < config->replicas;
    }
    return counts;
}

const char *view_version(uint64_t version, char *out, size_t out_bytes)
{
    if (version)
        snprintf(out, out_bytes, "%u.%llu", version_epoch(version),
                 (unsigned long long)version_counter(version));
    return version ? out : "?";
}

void view_servers(const uint32_t *servers, uint32_t count, char *out, size_t out_bytes)
{
    size_t at = 0;

    snprintf(out, out_bytes, "-");
    for (uint32_t i = 0; i < count && at < out_bytes; i++)
        at += (size_t)snprintf(out + at, out_bytes - at, "%s%u", i ? "," : "", servers[i]);
}

const char *view_key(const void *key, size_t bytes, size_t most, char *out)
{
    const char *from = key;
    size_t at = 0;
    for (; at < bytes && at < most; at++)
        out[at] = from[at] >= ' ' && from[at] <= '~' ? from[at] : '?';
    out[at] = '\0';
    return out;
}

const char *view_why(const struct admin_call *call)
{
    return call->error == ROWAN_EUNSUPPORTED
               ? "it is of an earlier version, which does not know the question"
               : error_sentence(call->error);
}
