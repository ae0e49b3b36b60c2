/* shards: who holds which slots, and what state they are in. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "tools/rowan/rowan.h"

enum { HOT_LOAD = 100000 };

/* The backups that lack committed versions. */
static uint32_t missing_at(const struct view *view, const struct shard *shard,
                           uint32_t servers[CLUSTER_MAX_REPLICAS])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < shard->backup_count; i++) {
        const Rowan__ShardStatus *replica = view_replica(view, shard, shard->backups[i]);

        if (replica && replica->missing)
            servers[count++] = shard->backups[i];
    }
    return count;
}

/* The lowest settled version of its replicas; 0: one does not answer. */
static uint64_t settled_at_all(const struct view *view, const struct shard *shard)
{
    const Rowan__ShardStatus *replica = view_replica(view, shard, shard->primary);
    uint64_t lowest = replica ? replica->settled : 0;

    for (uint32_t i = 0; i < shard->backup_count; i++) {
        replica = view_replica(view, shard, shard->backups[i]);
        if (!replica || replica->settled < lowest)
            lowest = replica ? replica->settled : 0;
    }
    return lowest;
}

static const char *state_of(const struct view *view, const struct shard *shard)
{
    if (!view_status(view, shard->primary))
        return "no answer";
    if (shard->split != SPLIT_NONE)
        return "is split";
    return view_is_recovering(view, shard) ? "recovering" : "serves";
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

static int print_shards(const struct view *view)
{
    const struct cluster_config *config = view->status.config;
    char slots[24], primary[24], backups[64], filling[64], missing[64], objects[24], commit[24],
        settled[24];

    printf("%5s  %-11s  %8s  %-14s  %-12s  %-8s  %6s  %10s  %14s  %14s  %-10s  %s\n", "shard",
           "slots", "epoch", "primary:worker", "backups", "filling", "load", "objects", "commit",
           "settled", "missing at", "state");
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        const Rowan__ShardStatus *lead = view_replica(view, shard, shard->primary);
        uint32_t lacking[CLUSTER_MAX_REPLICAS];

        snprintf(slots, sizeof slots, "%u-%u", shard->first_slot, shard->last_slot);
        snprintf(primary, sizeof primary, "%u:%u", shard->primary, shard->worker);
        view_servers(shard->backups, shard->backup_count, backups, sizeof backups);
        view_servers(shard->filling, shard->filling_count, filling, sizeof filling);
        view_servers(lacking, missing_at(view, shard, lacking), missing, sizeof missing);
        strcpy(objects, "?");
        if (lead)
            snprintf(objects, sizeof objects, "%llu", (unsigned long long)lead->objects);
        printf("%5u  %-11s  %8u  %-14s  %-12s  %-8s  %6.3f  %10s  %14s  %14s  %-10s  %s%s",
               shard->id, slots, shard->epoch, primary, backups, filling,
               lead ? lead->load / CORE : 0, objects,
               view_version(lead ? lead->commit : 0, commit, sizeof commit),
               view_version(settled_at_all(view, shard), settled, sizeof settled), missing,
               state_of(view, shard), shard->possibly_incomplete ? ", possible loss" : "");
        print_heat(shard, lead);
        printf("\n");
    }
    printf("\nLoad: of its primary's cores. Commit: every version up to it, written EPOCH.NUMBER, "
           "is on all replicas. Settled: what is\nat or below it, and in no segment, is dead. "
           "Missing at: backups that never got some committed versions,\nand are fetching them.\n");
    return EXIT_DONE;
}

static int print_shards_json(const struct view *view)
{
    const struct cluster_config *config = view->status.config;
    json_t *array = json_array();

    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        const Rowan__ShardStatus *lead = view_replica(view, shard, shard->primary);
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
                "epoch", shard->epoch, "primary", shard->primary, "worker", shard->worker,
                "backups", view_servers_json(shard->backups, shard->backup_count), "filling",
                view_servers_json(shard->filling, shard->filling_count), "objects", objects,
                "commit", commit, "settled", (json_int_t)settled_at_all(view, shard), "missing_at",
                view_servers_json(lacking, count), "recovering", view_is_recovering(view, shard),
                "possibly_incomplete", shard->possibly_incomplete, "split",
                shard->split != SPLIT_NONE, "moves_to", shard->move_to, "load",
                lead ? lead->load / CORE : 0, "hot_slot", lead ? lead->hot_slot : 0, "hot_load",
                lead ? lead->hot_load / CORE : 0, "hot_key", hot_key));
    }
    return tool_print_json(
        json_pack("{s:I, s:o}", "term", (json_int_t)config->term, "shards", array));
}

/* Until each shard is served: the configuration says by whom, the servers whether they do. */
static int await_served(const struct rowan_settings *settings, const char *command,
                        struct view *view)
{
    uint32_t left;
    int error = 0;
    while (!error && (left = view_count(view).recovering) > 0) {
        const uint64_t now_ns = clock_now_ns(clock_system());
        if (progress_due(now_ns))
            progress_line("shards: %u of %u are recovering", left,
                          view->status.config->shard_count);
        (void)admin_wait(view->admin, now_ns + NS_PER_S / 10); /* what fails, fails below */
        admin_status_free(&view->status);
        error = view_look(settings, command, view);
    }
    progress_end();
    return error;
}

int command_shards(const struct rowan_settings *settings, char **words)
{
    struct view view;
    if ((settings->wait && command_wait_whole(settings, words[0])) ||
        view_open(settings, words[0], &view) ||
        (settings->wait && await_served(settings, words[0], &view)))
        return EXIT_FAILED;
    const int code = settings->json ? print_shards_json(&view) : print_shards(&view);
    view_close(&view);
    return code;
}
