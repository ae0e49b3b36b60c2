/* status: what every server says of itself. */
#include <stdio.h>
#include <string.h>

#include "common/base/error.h"
#include "common/pm/wear.h"
#include "tools/rowan/rowan.h"

/* What was written into PM for each byte of a write: segments that were filled, and those that were zeroed. 0: nothing
 * was written. Counted in segments, so it is right once there were many. */
static double write_amplification(const Rowan__ServerStatus *status)
{
    const double writes = (double)status->allocated_for_writes;
    return writes > 0 ? (double)(status->allocated_in_all + status->segments_cleaned) / writes : 0;
}

/* All counts of the message, under their own names; an incarnation is none. */
static void add_numbers(json_t *object, const Rowan__ServerStatus *status)
{
    const ProtobufCMessageDescriptor *message = status->base.descriptor;
    for (unsigned i = 0; i < message->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->fields[i];
        uint64_t value;
        if (field->type != PROTOBUF_C_TYPE_UINT64 || strcmp(field->name, "incarnation") == 0)
            continue;
        memcpy(&value, (const char *)status + field->offset, sizeof value);
        json_object_set_new(object, field->name, json_integer((json_int_t)value));
    }
}

/* Media bytes for each request byte, by the model of the device; 0: it is off, or nothing was written. */
static double device_amplification(const Rowan__ServerStatus *status)
{
    return wear_ratio(status->wear_request_bytes, status->wear_media_bytes);
}

static json_t *server_json(const struct cluster_config *config, const struct member *member,
                           const struct admin_call *call)
{
    const struct share share = share_of(config, member->server);
    json_t *object = json_pack("{s:i, s:s, s:b, s:b, s:b, s:i, s:i, s:i}", "server", member->server,
                               "address", member->address, "reachable", !call->error, "kept",
                               member->kept, "draining", !cluster_wants(config, member->server),
                               "leads", share.leads, "backs", share.backs, "fills", share.fills);
    if (call->error) {
        json_object_set_new(object, "error", json_string(error_name(call->error)));
        return object;
    }
    const Rowan__ServerStatus *status = call->reply->server_status;
    json_t *more = json_pack(
        "{s:s, s:s, s:s, s:b, s:i, s:i, s:i, s:f, s:f}", "fabric", status->fabric, "durability",
        status->durability, "pm", status->pm_backend, "full", status->full, "workers",
        status->workers, "digests", status->digests, "reactors", status->reactors,
        "write_amplification", write_amplification(status), "load", view_load(status));
    json_object_set_new(more, "wear_mode", json_integer(status->wear_mode));
    json_object_set_new(more, "device_write_amplification",
                        status->wear_mode ? json_real(device_amplification(status)) : json_null());
    add_numbers(more, status);
    json_object_update_new(object, more);
    return object;
}

static int print_status_json(const struct view *view, const struct counts *counts)
{
    const struct cluster_config *config = view->status.config;
    json_t *servers = json_array();
    char cluster[17];
    snprintf(cluster, sizeof cluster, "%016llx", (unsigned long long)config->cluster);
    for (uint32_t i = 0; i < config->member_count; i++)
        json_array_append_new(servers,
                              server_json(config, &config->members[i], &view->status.calls[i]));
    return tool_print_json(
        json_pack("{s:s, s:I, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o}", "cluster",
                  cluster, "term", (json_int_t)config->term, "store_error",
                  view->status.store_error ? error_name(view->status.store_error) : "", "replicas",
                  config->replicas, "shards", config->shard_count, "recovering", counts->recovering,
                  "waiting", counts->waiting, "under_replicated", counts->under_replicated,
                  "possibly_incomplete", counts->incomplete, "filling", counts->filling, "lease_ms",
                  config->lease_ms, "wanted",
                  view_servers_json(config->wanted, config->wanted_count), "servers", servers));
}

static void print_server(const Rowan__ServerStatus *status)
{
    uint64_t objects = 0;
    char device[16] = "off";

    for (size_t i = 0; i < status->n_shards; i++)
        objects += status->shards[i]->objects;
    if (status->wear_mode)
        snprintf(device, sizeof device, "%.2f", device_amplification(status));
    printf(
        "%6u  %-6s  %-10s  %-4s  %5.2f  %8llu %8llu %9llu %8llu %8llu %8llu %6.2f %6s  %-4s  "
        "%11llu "
        "%11llu  "
        "%11llu %11llu %9llu %9llu  %7u %7u %8u  %8llu  %8llus\n",
        status->server, status->fabric, status->durability, status->pm_backend, view_load(status),
        (unsigned long long)status->segments, (unsigned long long)status->segments_free,
        (unsigned long long)status->segments_committed,
        (unsigned long long)status->live_bytes >> 20, (unsigned long long)status->dead_bytes >> 20,
        (unsigned long long)status->segments_cleaned, write_amplification(status), device,
        status->full ? "FULL" : "no", (unsigned long long)objects,
        (unsigned long long)status->tombstones, (unsigned long long)status->puts,
        (unsigned long long)status->gets, (unsigned long long)status->deletes,
        (unsigned long long)status->syncs, status->workers, status->digests, status->reactors,
        (unsigned long long)status->lease_left_ms, (unsigned long long)status->uptime_seconds);
}

static void print_filling(const struct counts *counts)
{
    printf("Filling: %u shards, %llu objects are left, %llu a second", counts->filling,
           (unsigned long long)counts->fill_left, (unsigned long long)counts->fill_rate);
    if (counts->fill_s > 0)
        printf(": about %llu s", (unsigned long long)counts->fill_s);
    if (counts->fill_waits > 0)
        printf("; %llu replicas wait for memory or space (filling_waits in the servers' logs)",
               (unsigned long long)counts->fill_waits);
    printf(".\n");
}

/* At least one member answers, and none of those that do has a lease. */
static bool nobody_has_a_lease(const struct view *view)
{
    bool any = false, none = view->status.config->lease_ms > 0;
    for (uint32_t i = 0; i < view->status.config->member_count; i++) {
        const struct admin_call *call = &view->status.calls[i];
        any = any || !call->error;
        none = none && (call->error || call->reply->server_status->lease_left_ms == 0);
    }
    return any && none;
}

static void print_troubles(const struct view *view)
{
    const struct cluster_config *config = view->status.config;
    if (view->status.store_error)
        printf(
            "Stuck: the configuration manager cannot store a configuration: %s. Until it can, no "
            "failed server is replaced, and none joins.\n",
            error_sentence(view->status.store_error));
    if (nobody_has_a_lease(view))
        printf("Stuck: no server has a lease, so none answers clients; the log of the "
               "configuration manager says why.\n");
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct admin_call *call = &view->status.calls[i];
        if (!call->error && call->reply->server_status->damaged_places > 0)
            printf(
                "Damaged: server %u found %llu damaged places in its memory when it started; its "
                "log names the shards.\n",
                config->members[i].server,
                (unsigned long long)call->reply->server_status->damaged_places);
    }
}

static int print_status(const struct view *view, const struct counts *counts)
{
    const struct cluster_config *config = view->status.config;
    printf("cluster %016llx, term %llu: %u servers, %u shards, %u replicas",
           (unsigned long long)config->cluster, (unsigned long long)config->term,
           config->member_count, config->shard_count, config->replicas);
    if (config->lease_ms > 0)
        printf(", leases of %u ms, balancing %s", config->lease_ms,
               cluster_balance_name(config->balance));
    printf("\n\n");
    printf(
        "%6s  %-6s  %-10s  %-4s  %5s  %8s %8s %9s %8s %8s %8s %6s %6s  %-4s  %11s %11s  %11s %11s "
        "%9s %9s  "
        "%7s %7s %8s  %8s  %9s\n",
        "server", "fabric", "durability", "pm", "load", "segments", "free", "committed", "live MiB",
        "dead MiB", "cleaned", "w-amp", "device", "full", "objects", "tombstones", "puts", "gets",
        "deletes", "syncs", "workers", "digests", "reactors", "lease ms", "uptime");
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct admin_call *call = &view->status.calls[i];
        if (!call->error)
            print_server(call->reply->server_status);
        else
            printf("%6u  does not answer: %s (%s)\n", config->members[i].server,
                   error_sentence(call->error), config->members[i].address);
    }
    printf(
        "\nLoad: processor time for its shards, in cores, over the last half second. A segment has "
        "4 MiB. Committed: segments that are full, and all in them is on all replicas. Live: "
        "entries that the index names; dead: the rest of full segments. Cleaned: segments made "
        "free again. W-amp: bytes written into PM, by cleaning and zeroing too, for each byte of a "
        "write, in whole segments. Device: bytes that an Optane DIMM would write to its media for "
        "each of those, by its model (off: wear-model is; rowan-dlwa shows more). Objects: index "
        "items of all replicas that the server holds, deleted keys included. Tombstones: deleted "
        "keys; they go when all replicas have closed the segments that hold them, and no older "
        "version is left. Lease ms: how long the server may go on answering clients, if nobody "
        "renews its lease.\n");
    print_troubles(view);
    if (counts->under_replicated > 0)
        printf("Replicas: %u shards have fewer than %u, as others failed or came without whole "
               "data; rowan shards shows who is left. New ones are being filled of %u.\n",
               counts->under_replicated, config->replicas, counts->filling);
    if (counts->filling > 0)
        print_filling(counts);
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct share share = share_of(config, config->members[i].server);
        if (!cluster_wants(config, config->members[i].server))
            printf("Draining: server %u still leads %u shards and backs %u.\n",
                   config->members[i].server, share.leads, share.backs);
    }
    for (uint32_t i = 0; i < config->wanted_count; i++) {
        if (!cluster_member(config, config->wanted[i]))
            printf("Absent: server %u belongs to the cluster, and does not run or has not joined "
                   "yet.\n",
                   config->wanted[i]);
    }
    if (counts->incomplete > 0)
        printf("Possible loss: %u shards were started from data that may lack acknowledged writes; "
               "rowan shards marks them.\n",
               counts->incomplete);
    return EXIT_DONE;
}

static int tell_waiting(const struct cluster_config *config, uint32_t shards)
{
    uint32_t kept[CLUSTER_MAX_MEMBERS], count = 0;
    char servers[CLUSTER_MAX_MEMBERS * 4];
    for (uint32_t i = 0; i < config->member_count; i++) {
        if (config->members[i].kept)
            kept[count++] = config->members[i].server;
    }
    view_servers(kept, count, servers, sizeof servers);
    return tool_say("status: %u shards are not served: they wait for server %s to come back with "
                    "its data; only if that is lost, rowan give-up goes on without",
                    shards, servers);
}

int command_status(const struct rowan_settings *settings, char **words)
{
    struct view view;
    if (view_open(settings, words[0], &view))
        return EXIT_FAILED;
    const struct counts counts = view_count(&view);
    int code = settings->json ? print_status_json(&view, &counts) : print_status(&view, &counts);
    if (counts.silent > 0)
        code = EXIT_FAILED;
    if (counts.waiting > 0)
        code = tell_waiting(view.status.config, counts.waiting);
    else if (counts.silent == 0 && counts.start_segments > 0)
        code = tool_say("status: servers start: %llu of %llu segments are scanned",
                        (unsigned long long)counts.start_scanned,
                        (unsigned long long)counts.start_segments);
    else if (counts.silent == 0 && counts.recovering > 0)
        code = tool_say("status: %u of %u shards are recovering and not served yet",
                        counts.recovering, view.status.config->shard_count);
    else if (counts.silent == 0 && nobody_has_a_lease(&view))
        code = tool_say("status: no server has a lease, so none answers clients");
    view_close(&view);
    return code;
}
