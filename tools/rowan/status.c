/* status and shards: what the configuration and the servers' own figures say. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/entry/entry.h"
#include "common/pm/wear.h"
#include "tools/rowan/rowan.h"

#define CORE 1e6 /* loads are in millionths of one (proto/control.proto) */

enum { HOT_LOAD = 100000 };

struct view {
    struct admin *admin;
    struct admin_status status;
};

static json_t *servers_json(const uint32_t *servers, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer(servers[i]));
    return array;
}

/* On an error, which it tells, the view is closed. */
static int view_look(const struct rowan_settings *settings, const char *command, struct view *view)
{
    const int error =
        admin_status_get(view->admin, settings->timeout_ms * NS_PER_MS, &view->status);
    if (error) {
        tool_say("%s: %s: %s", command, settings->cm, error_sentence(error));
        admin_close(view->admin);
    }
    return error;
}

static int view_open(const struct rowan_settings *settings, const char *command, struct view *view)
{
    struct admin_missing missing;
    int error = command_connect(settings, command, &view->admin, &missing);
    if (error == ROWAN_EAGAIN && settings->json)
        tool_print_json(
            json_pack("{s:o}", "waiting_for", servers_json(missing.servers, missing.count)));
    return error ? error : view_look(settings, command, view);
}

static void view_close(struct view *view)
{
    admin_status_free(&view->status);
    admin_close(view->admin);
}

/* NULL: that server does not answer. */
static const Rowan__ServerStatus *status_of(const struct view *view, uint32_t server)
{
    const struct cluster_config *config = view->status.config;
    const struct admin_call *call =
        &view->status.calls[cluster_member(config, server) - config->members];
    return call->error ? NULL : call->reply->server_status;
}

/* The server's status of a shard that it holds; NULL: it does not answer. */
static const Rowan__ShardStatus *replica_of(const struct view *view, const struct shard *shard,
                                            uint32_t server)
{
    const Rowan__ServerStatus *status = status_of(view, server);
    for (size_t i = 0; status && i < status->n_shards; i++) {
        if (status->shards[i]->id == shard->id)
            return status->shards[i];
    }
    return NULL;
}

/* Not served: its primary is recovering it, or does not answer. */
static bool is_recovering(const struct view *view, const struct shard *shard)
{
    const Rowan__ShardStatus *status = replica_of(view, shard, shard->primary);
    return !status || status->recovering;
}

/* --- status --- */

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

/* In cores: what its shards cost it, those that it backs too. */
static double server_load(const Rowan__ServerStatus *status)
{
    double load = 0;
    for (size_t i = 0; i < status->n_shards; i++)
        load += status->shards[i]->load;
    return load / CORE;
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
    json_t *object = json_pack("{s:i, s:s, s:b, s:b, s:i, s:i, s:i}", "server", (int)member->server,
                               "address", member->address, "reachable", !call->error, "draining",
                               !cluster_wants(config, member->server), "leads", (int)share.leads,
                               "backs", (int)share.backs, "fills", (int)share.fills);
    if (call->error) {
        json_object_set_new(object, "error", json_string(error_name(call->error)));
        return object;
    }
    const Rowan__ServerStatus *status = call->reply->server_status;
    json_t *more = json_pack(
        "{s:s, s:s, s:s, s:b, s:i, s:i, s:i, s:f, s:f}", "fabric", status->fabric, "durability",
        status->durability, "pm", status->pm_backend, "full", status->full, "workers",
        (int)status->workers, "digests", (int)status->digests, "reactors", (int)status->reactors,
        "write_amplification", write_amplification(status), "load", server_load(status));
    json_object_set_new(more, "wear_mode", json_integer(status->wear_mode));
    json_object_set_new(more, "device_write_amplification",
                        status->wear_mode ? json_real(device_amplification(status)) : json_null());
    add_numbers(more, status);
    json_object_update(object, more);
    json_decref(more);
    return object;
}

/* Of all servers or shards those that ... */
struct counts {
    uint32_t silent, recovering, incomplete, under_replicated, filling;
    uint64_t start_scanned, start_segments; /* of all that start */
    uint64_t fill_left, fill_rate, fill_s;  /* of all; the longest estimate, 0: none yet */
    uint64_t fill_waits;
};

static struct counts count(const struct view *view)
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
        counts.recovering += is_recovering(view, &config->shards[i]);
        counts.incomplete += config->shards[i].possibly_incomplete;
        counts.filling += config->shards[i].filling_count > 0;
        counts.under_replicated += config->shards[i].backup_count + 1 < config->replicas;
    }
    return counts;
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
    return tool_print_json(json_pack(
        "{s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o}", "cluster", cluster, "term",
        (json_int_t)config->term, "replicas", (int)config->replicas, "shards",
        (int)config->shard_count, "recovering", (int)counts->recovering, "under_replicated",
        (int)counts->under_replicated, "possibly_incomplete", (int)counts->incomplete, "filling",
        (int)counts->filling, "lease_ms", (int)config->lease_ms, "wanted",
        servers_json(config->wanted, config->wanted_count), "servers", servers));
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
        status->server, status->fabric, status->durability, status->pm_backend, server_load(status),
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

static void print_status(const struct view *view, const struct counts *counts)
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
        "4 MiB. Committed: segments that are full, and all in them is on all "
        "replicas. Live: entries that the index names; dead: the rest of full segments. Cleaned: "
        "segments made free again. W-amp: bytes written into PM, by cleaning and zeroing too, "
        "for each byte of a write, in whole segments. Device: bytes that an Optane DIMM would "
        "write to its "
        "media for each of those, by its model (off: wear-model is; rowan-dlwa shows more). "
        "Objects: index items of all replicas that "
        "the server holds, deleted keys included. Tombstones: deleted keys; they go when all "
        "replicas "
        "have closed the segments that hold them, and no older version is left. Lease ms: how long "
        "the server may go on answering clients, if nobody renews its lease.\n");
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct admin_call *call = &view->status.calls[i];
        if (!call->error && call->reply->server_status->damaged_places > 0)
            printf(
                "Damaged: server %u found %llu damaged places in its memory when it started; its "
                "log names the shards.\n",
                config->members[i].server,
                (unsigned long long)call->reply->server_status->damaged_places);
    }
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
}

int command_status(const struct rowan_settings *settings, char **words)
{
    struct view view;
    if (view_open(settings, words[0], &view))
        return EXIT_FAILED;
    const struct counts counts = count(&view);
    int code = counts.silent > 0 ? EXIT_FAILED : EXIT_DONE;
    if (!settings->json)
        print_status(&view, &counts);
    else if (print_status_json(&view, &counts))
        code = EXIT_FAILED;
    if (counts.silent == 0 && counts.start_segments > 0)
        code = tool_say("status: servers start: %llu of %llu segments are scanned",
                        (unsigned long long)counts.start_scanned,
                        (unsigned long long)counts.start_segments);
    else if (counts.silent == 0 && counts.recovering > 0)
        code = tool_say("status: %u of %u shards are recovering and not served yet",
                        counts.recovering, view.status.config->shard_count);
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

/* The lowest settled version of its replicas; 0: one does not answer. */
static uint64_t settled_at_all(const struct view *view, const struct shard *shard)
{
    const Rowan__ShardStatus *replica = replica_of(view, shard, shard->primary);
    uint64_t lowest = replica ? replica->settled : 0;

    for (uint32_t i = 0; i < shard->backup_count; i++) {
        replica = replica_of(view, shard, shard->backups[i]);
        if (!replica || replica->settled < lowest)
            lowest = replica ? replica->settled : 0;
    }
    return lowest;
}

static const char *show_version(uint64_t version, char *out, size_t out_bytes)
{
    if (version)
        snprintf(out, out_bytes, "%u.%llu", version_epoch(version),
                 (unsigned long long)version_counter(version));
    return version ? out : "?";
}

static void join_servers(const uint32_t *servers, uint32_t count, char *out, size_t out_bytes)
{
    size_t at = 0;

    snprintf(out, out_bytes, "-");
    for (uint32_t i = 0; i < count && at < out_bytes; i++)
        at += (size_t)snprintf(out + at, out_bytes - at, "%s%u", i ? "," : "", servers[i]);
}

static const char *state_of(const struct view *view, const struct shard *shard)
{
    if (!status_of(view, shard->primary))
        return "no answer";
    if (shard->split != SPLIT_NONE)
        return "is split";
    return is_recovering(view, shard) ? "recovering" : "serves";
}

/* Most of its load is one slot's, and that is not little. */
static bool is_hot(const Rowan__ShardStatus *lead)
{
    return lead && lead->load > HOT_LOAD && lead->hot_load > lead->load / 2;
}

/* What there is to say of its load. */
static void print_heat(const struct shard *shard, const Rowan__ShardStatus *lead)
{
    if (!is_hot(lead))
        return;
    printf(", %u %% of its load is slot %u's", (unsigned)(100ull * lead->hot_load / lead->load),
           lead->hot_slot);
    if (*lead->hot_key)
        printf(", most of it key %s", lead->hot_key);
    if (shard->first_slot == shard->last_slot)
        printf(": as small as it gets");
}

static void print_shards(const struct view *view)
{
    const struct cluster_config *config = view->status.config;
    char slots[24], primary[24], backups[64], filling[64], missing[64], objects[24], commit[24],
        settled[24];

    printf("%5s  %-11s  %8s  %-14s  %-12s  %-8s  %6s  %10s  %14s  %14s  %-10s  %s\n", "shard",
           "slots", "epoch", "primary:worker", "backups", "filling", "load", "objects", "commit",
           "settled", "missing at", "state");
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        const Rowan__ShardStatus *lead = replica_of(view, shard, shard->primary);
        uint32_t lacking[CLUSTER_MAX_REPLICAS];

        snprintf(slots, sizeof slots, "%u-%u", shard->first_slot, shard->last_slot);
        snprintf(primary, sizeof primary, "%u:%u", shard->primary, shard->worker);
        join_servers(shard->backups, shard->backup_count, backups, sizeof backups);
        join_servers(shard->filling, shard->filling_count, filling, sizeof filling);
        join_servers(lacking, missing_at(view, shard, lacking), missing, sizeof missing);
        strcpy(objects, "?");
        if (lead)
            snprintf(objects, sizeof objects, "%llu", (unsigned long long)lead->objects);
        printf("%5u  %-11s  %8u  %-14s  %-12s  %-8s  %6.3f  %10s  %14s  %14s  %-10s  %s%s",
               shard->id, slots, shard->epoch, primary, backups, filling,
               lead ? lead->load / CORE : 0, objects,
               show_version(lead ? lead->commit : 0, commit, sizeof commit),
               show_version(settled_at_all(view, shard), settled, sizeof settled), missing,
               state_of(view, shard), shard->possibly_incomplete ? ", possible loss" : "");
        print_heat(shard, lead);
        printf("\n");
    }
    printf("\nLoad: of its primary's cores. Commit: every version up to it, written EPOCH.NUMBER, "
           "is on all replicas. Settled: "
           "what is\nat or below it, and in no segment, is dead. Missing at: backups that never "
           "got some "
           "committed versions,\nand are fetching them.\n");
}

static int print_shards_json(const struct view *view)
{
    const struct cluster_config *config = view->status.config;
    json_t *array = json_array();

    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        const Rowan__ShardStatus *lead = replica_of(view, shard, shard->primary);
        json_t *objects = lead ? json_integer((json_int_t)lead->objects) : json_null();
        json_t *commit = lead ? json_integer((json_int_t)lead->commit) : json_null();
        json_t *hot_key = lead && *lead->hot_key ? json_string(lead->hot_key) : json_null();
        uint32_t lacking[CLUSTER_MAX_REPLICAS], count = missing_at(view, shard, lacking);

        json_array_append_new(
            array,
            json_pack(
                "{s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:I, s:o, s:b, s:b, s:b, s:i, "
                "s:f, s:i, s:f, s:o}",
                "shard", shard->id, "first_slot", shard->first_slot, "last_slot", shard->last_slot,
                "epoch", (int)shard->epoch, "primary", (int)shard->primary, "worker",
                (int)shard->worker, "backups", servers_json(shard->backups, shard->backup_count),
                "filling", servers_json(shard->filling, shard->filling_count), "objects", objects,
                "commit", commit, "settled", (json_int_t)settled_at_all(view, shard), "missing_at",
                servers_json(lacking, count), "recovering", is_recovering(view, shard),
                "possibly_incomplete", shard->possibly_incomplete, "split",
                shard->split != SPLIT_NONE, "moves_to", (int)shard->move_to, "load",
                lead ? lead->load / CORE : 0, "hot_slot", lead ? (int)lead->hot_slot : 0,
                "hot_load", lead ? lead->hot_load / CORE : 0, "hot_key", hot_key));
    }
    return tool_print_json(
        json_pack("{s:I, s:o}", "term", (json_int_t)config->term, "shards", array));
}

static uint32_t count_recovering(const struct view *view)
{
    const struct cluster_config *config = view->status.config;
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->shard_count; i++)
        count += is_recovering(view, &config->shards[i]);
    return count;
}

/* Until each shard is served: the configuration says by whom, the servers whether they do. */
static int await_served(const struct rowan_settings *settings, const char *command,
                        struct view *view)
{
    struct progress progress;
    uint32_t left;
    int error = 0;
    progress_init(&progress, clock_now_ns(clock_system()));
    while (!error && (left = count_recovering(view)) > 0) {
        const uint64_t now_ns = clock_now_ns(clock_system());
        if (progress_due(&progress, now_ns))
            progress_line(&progress, "shards: %u of %u are recovering", left,
                          view->status.config->shard_count);
        (void)admin_wait(view->admin, now_ns + NS_PER_S / 10); /* what fails, fails below */
        admin_status_free(&view->status);
        error = view_look(settings, command, view);
    }
    progress_end(&progress);
    return error;
}

int command_shards(const struct rowan_settings *settings, char **words)
{
    struct view view;
    int code = EXIT_DONE;
    if ((settings->wait && command_wait_whole(settings, words[0])) ||
        view_open(settings, words[0], &view) ||
        (settings->wait && await_served(settings, words[0], &view)))
        return EXIT_FAILED;
    if (!settings->json)
        print_shards(&view);
    else if (print_shards_json(&view))
        code = EXIT_FAILED;
    view_close(&view);
    return code;
}
