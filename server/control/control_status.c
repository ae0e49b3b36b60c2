/* The status of the server: what `rowan status` is told, and, being the same figures, what Prometheus is. */
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/metrics/metrics.h"
#include "server/control/control_state.h"
#include "server/wear.h"

static void fill_shard_status(const struct shard_state *shard, bool keys, Rowan__ShardStatus *row)
{
    rowan__shard_status__init(row);
    row->id = shard->id;
    row->primary = shard->primary;
    row->objects = index_items(shard->index);
    row->version = atomic_load_explicit(&shard->version, memory_order_relaxed);
    row->index_bytes = index_bytes(shard->index);
    row->commit = atomic_load_explicit(&shard->commit, memory_order_relaxed);
    row->settled = atomic_load_explicit(&shard->settled, memory_order_relaxed);
    row->recovering = atomic_load_explicit(&shard->recovering, memory_order_relaxed);
    row->lost = atomic_load_explicit(&shard->lost, memory_order_relaxed);
    row->filling = shard->filling;
    row->load = shard->work.load;
    if (shard->primary && shard->work.spread.samples) {
        const struct work_spread *spread = &shard->work.spread;
        row->hot_slot = spread->hot_slot;
        row->hot_load = (uint32_t)((uint64_t)row->load * spread->hot_samples / spread->samples);
        if (keys)
            row->hot_key = (char *)(uintptr_t)spread->key;
    }
    row->missing = atomic_load_explicit(&shard->missing, memory_order_relaxed);
}

static void fill_ended(struct control *control, Rowan__ServerStatus *status)
{
    for (uint32_t i = 0; i <= control->options->workers; i++) {
        const struct fabric_endpoint *endpoint = i < control->options->workers
                                                     ? worker_endpoint(control->workers[i])
                                                     : control->endpoint;
        status->ended_unread += counter_get(&endpoint->ended.unread);
        status->ended_guests += counter_get(&endpoint->ended.guests);
        status->ended_crowded += counter_get(&endpoint->ended.crowded);
        status->refused_proofs += counter_get(&endpoint->ended.unproved);
    }
}

static void fill_counts(struct control *control, Rowan__ServerStatus *status)
{
    for (uint32_t i = 0; i < control->options->workers; i++) {
        const struct worker_counts *counts = worker_counts(control->workers[i]);
        status->gets += worker_operations(counts, MESSAGE_GET);
        status->puts +=
            worker_operations(counts, MESSAGE_PUT) + worker_operations(counts, MESSAGE_PUT_IF);
        status->deletes += worker_operations(counts, MESSAGE_DELETE);
        status->fill_left += counter_get(&counts->fill_left);
        status->fill_rate += counter_get(&counts->fill_rate);
        status->fill_waits += counter_get(&counts->fill_waits);
        status->refused_logins += counter_get(&counts->refused_logins);
        status->refused_requests += counter_get(&counts->refused_requests);
    }
    for (uint32_t i = 0; i < control->options->digests; i++) {
        status->entries_digested += digest_entries(control->digests[i]);
        status->fetches += digest_fetches(control->digests[i]);
    }
}

/* Segments and what is in them. */
static void fill_space(const struct control *control, Rowan__ServerStatus *status)
{
    const struct store *store = control->common->store;
    const struct live *counts = store_live(store);
    uint64_t closed = 0, live_there = 0;
    for (uint64_t i = 0; i < store_segments(store); i++) {
        const uint64_t live = live_bytes(counts, i), tombstones = live_tombstones(counts, i);
        const struct segment_meta meta = store_meta(store, i);
        const enum segment_state state = meta.state;
        status->live_bytes += live;
        status->tombstones += tombstones;
        if (state == SEGMENT_USING) {
            status->live_bytes_open += live;
            status->tombstones_open += tombstones;
        }
        if ((state != SEGMENT_USED && state != SEGMENT_COMMITTED) || meta.owner == OWNER_CHECKPOINT)
            continue;
        closed++;
        live_there += live;
    }
    status->dead_bytes = closed * STORE_SEGMENT_BYTES - live_there;
    status->segments = store_segments(store);
    status->segments_free = store_segments_free(store);
    status->segments_open = store_segments_with(store, SEGMENT_USING);
    status->segments_used = store_segments_with(store, SEGMENT_USED);
    status->segments_committed = store_segments_with(store, SEGMENT_COMMITTED);
    status->segments_backup_log = store_segments_owned(store, OWNER_BACKUP_LOG);
    status->segments_worker_log = store_segments_owned(store, OWNER_WORKER);
    status->segments_clean_log = store_segments_owned(store, OWNER_CLEAN);
    status->segments_checkpoint = store_segments_owned(store, OWNER_CHECKPOINT);
    status->segments_cleaned = clean_segments(control->clean);
    status->checkpoints = clean_checkpoints(control->clean);
    status->allocated_for_writes = store_segments_allocated(store, OWNER_WORKER) +
                                   store_segments_allocated(store, OWNER_BACKUP_LOG);
    status->damaged_places = control->verify.places;
    status->allocated_in_all = store_segments_allocated(store, OWNER_NONE);
}

/* How many versions lie between; of two epochs, those of the later one. */
static uint64_t versions_between(uint64_t from, uint64_t to)
{
    if (from >= to)
        return 0;
    return version_epoch(from) == version_epoch(to) ? to - from : version_counter(to);
}

/* Sums over the shards that are here. */
static void fill_shards(const struct control *control, Rowan__ServerStatus *status)
{
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        const struct shard_state *shard = control->shards[i];
        if (!shard)
            continue;
        Rowan__ShardStatus row;
        fill_shard_status(shard, false, &row);
        status->shards_led += row.primary ? 1 : 0;
        status->shards_filling += row.filling ? 1 : 0;
        status->shards_backed += row.primary || row.filling ? 0 : 1;
        status->shards_recovering += row.primary && row.recovering ? 1 : 0;
        status->shards_missing += row.missing ? 1 : 0;
        status->lost_versions += row.lost;
        status->index_items += row.objects;
        status->index_bytes += row.index_bytes;
        if (row.primary)
            status->commit_lag += versions_between(row.settled, row.version);
        else
            status->digest_lag += versions_between(row.version, row.commit);
    }
}

static void fill_status(struct control *control, Rowan__ServerStatus *status)
{
    const struct server_common *common = control->common;
    rowan__server_status__init(status);
    status->server = common->server;
    status->incarnation = common->incarnation;
    status->fabric = (char *)(uintptr_t)fabric_caps(common->fabric)->backend;
    status->durability = (char *)(uintptr_t)pm_durability_name(common->pm->durability);
    status->pm_backend = (char *)(uintptr_t)common->pm->backend;
    status->syncs = pm_sync_count(common->pm);
    status->memory_refused = memory_refused();
    status->workers = control->options->workers;
    status->digests = control->options->digests;
    status->reactors = control->options->reactors;
    status->uptime_seconds = (control->now_ns - control->start_ns) / NS_PER_S;
    if (control->recover)
        recover_progress(control->recover, &status->start_scanned, &status->start_segments);
    server_wear_report(common->wear, status);
    fill_ended(control, status);
    if (!control->shards)
        return;
    status->term = control->config->term;
    fill_space(control, status);
    status->full = atomic_load_explicit(&common->full, memory_order_relaxed);
    status->lease_left_ms = control_lease_left_ms(control);
    status->refused_logins = control->refused_logins;
    status->refused_requests = control->refused_requests;
    status->unknown_messages = control->unknown_messages;
    fill_counts(control, status);
    fill_shards(control, status);
    status->serves = control_serves(control);
    status->pm_full = status->full ? 1 : 0;
}

void control_status_send(struct control *control, struct control_link *link, uint32_t tag)
{
    /* Nothing wakes digest roles when an entry lands. Woken now, they have scanned it when the next
     * question comes. */
    control_wake_digests(control);
    Rowan__ServerStatus status;
    fill_status(control, &status);
    uint32_t count = control->shards ? control->config->shard_count : 0;
    Rowan__ShardStatus *rows = calloc(count + 1, sizeof *rows);
    Rowan__ShardStatus **pointers = calloc(count + 1, sizeof(Rowan__ShardStatus *));
    if (rows && pointers) {
        for (uint32_t i = 0; i < count; i++) {
            if (!control->shards[i])
                continue;
            pointers[status.n_shards] = &rows[status.n_shards];
            fill_shard_status(control->shards[i], control_may_see_keys(control, link),
                              &rows[status.n_shards++]);
        }
        status.shards = pointers;
        control_send(link, tag, &CONTROL_MESSAGE(SERVER_STATUS, server_status, &status));
    } else {
        control_query_refuse(control, link, tag, ROWAN_ENOMEM);
    }
    free(pointers);
    free(rows);
}

/* --- for Prometheus --- */

#define ROW(metric_name, help_text, label, metric_kind, field, metric_unit)                        \
    {                                                                                              \
        .name = (metric_name), .help = (help_text), .labels = (label), .kind = (metric_kind),      \
        .offset = offsetof(Rowan__ServerStatus, field), .unit = (metric_unit)                      \
    }
#define COUNTER(name, help, field)     ROW(name, help, "", METRIC_COUNTER, field, 0)
#define GAUGE(name, help, field)       ROW(name, help, "", METRIC_GAUGE, field, 0)
#define PART(name, help, label, field) ROW(name, help, label, METRIC_GAUGE, field, 0)

#define SEGMENTS "Segments of the PM, of 4 MiB each, by state."
#define OWNED    "Segments in use, by what they hold."
#define SHARDS   "Shards of which this server holds a replica, by its part."
#define REFUSED  "What was refused for want of a login or of a right."
#define ENDED    "Connections that were ended for the sake of others."
#define STARTS   "While the server starts: segments that it scans, and of these, how many are done."

#define REQUEST_BYTES                                                                              \
    "Bytes written to PM in requests of 64 B, as wear-model counts them; 0 while that is off."
#define MEDIA_BYTES                                                                                \
    "Bytes that the model of the device wrote to its media for them, in lines of 256 B."

/* Offsets in a Rowan__ServerStatus, of 64-bit fields: those of `image`, too. */
static const struct metric status_metrics[] = {
    GAUGE("rowan_term", "Term of the configuration in force.", term),
    GAUGE("rowan_serves", "1: the server answers clients; 0: it has no lease, or starts.", serves),
    ROW("rowan_lease_left_seconds",
        "How long the server may go on answering clients if nobody renews its lease.", "",
        METRIC_GAUGE, lease_left_ms, 1e-3),
    ROW("rowan_uptime_seconds", "Since the server started.", "", METRIC_GAUGE, uptime_seconds, 1),
    PART("rowan_shards", SHARDS, "part=\"primary\"", shards_led),
    PART("rowan_shards", SHARDS, "part=\"backup\"", shards_backed),
    PART("rowan_shards", SHARDS, "part=\"filling\"", shards_filling),
    GAUGE("rowan_shards_recovering", "Shards that it leads and does not serve yet.",
          shards_recovering),
    GAUGE("rowan_shards_missing_versions",
          "Shards of which a committed version never arrived here and is being fetched.",
          shards_missing),
    GAUGE("rowan_lost_versions",
          "Committed versions that a log reconciliation found on no replica: lost at most.",
          lost_versions),
    GAUGE("rowan_commit_lag_versions",
          "Versions of the shards that it leads which are completed and not settled everywhere.",
          commit_lag),
    GAUGE("rowan_digest_lag_versions",
          "Versions of the shards that it backs which are committed and not in its index.",
          digest_lag),
    PART("rowan_segments", SEGMENTS, "state=\"free\"", segments_free),
    PART("rowan_segments", SEGMENTS, "state=\"open\"", segments_open),
    PART("rowan_segments", SEGMENTS, "state=\"used\"", segments_used),
    PART("rowan_segments", SEGMENTS, "state=\"committed\"", segments_committed),
    PART("rowan_segments_owned", OWNED, "owner=\"worker_log\"", segments_worker_log),
    PART("rowan_segments_owned", OWNED, "owner=\"backup_log\"", segments_backup_log),
    PART("rowan_segments_owned", OWNED, "owner=\"clean_log\"", segments_clean_log),
    PART("rowan_segments_owned", OWNED, "owner=\"checkpoint\"", segments_checkpoint),
    COUNTER("rowan_segments_allocated_total", "Segments that were taken into use.",
            allocated_in_all),
    COUNTER("rowan_segments_allocated_for_writes_total",
            "Of these, those for writes of clients, here and of peers.", allocated_for_writes),
    COUNTER("rowan_segments_cleaned_total", "Segments that were made free again.",
            segments_cleaned),
    GAUGE("rowan_pm_full", "1: the server refuses writes, as its PM is full.", pm_full),
    GAUGE("rowan_live_bytes", "Of entries that an index names, or that cannot be dropped yet.",
          live_bytes),
    GAUGE("rowan_dead_bytes", "The rest of closed segments.", dead_bytes),
    GAUGE("rowan_index_items", "Keys in the indexes, tombstones included.", index_items),
    GAUGE("rowan_tombstones", "Deleted keys that are still kept.", tombstones),
    GAUGE("rowan_index_bytes", "Memory of the indexes.", index_bytes),
    COUNTER("rowan_entries_digested_total", "Entries applied from the backup log.",
            entries_digested),
    COUNTER("rowan_missing_versions_asked_total",
            "Questions for committed versions that never arrived here.", fetches),
    COUNTER("rowan_pm_syncs_total", "Syncs of the PM file by this server itself.", syncs),
    COUNTER("rowan_checkpoints_total", "Checkpoints of the index that were written.", checkpoints),
    GAUGE("rowan_damaged_places", "Damaged places that the start found in its PM.", damaged_places),
    GAUGE("rowan_filling_objects_left", "Objects that are still to be copied to filling replicas.",
          fill_left),
    GAUGE("rowan_filling_objects_per_second", "Objects that filling replicas confirm.", fill_rate),
    GAUGE("rowan_filling_waits", "Filling replicas that wait for memory or space.", fill_waits),
    PART("rowan_start_segments", STARTS, "part=\"all\"", start_segments),
    PART("rowan_start_segments", STARTS, "part=\"scanned\"", start_scanned),
    ROW("rowan_pm_request_bytes_total", REQUEST_BYTES, "", METRIC_COUNTER, wear_request_bytes, 0),
    ROW("rowan_pm_media_bytes_total", MEDIA_BYTES, "", METRIC_COUNTER, wear_media_bytes, 0),
    ROW("rowan_pm_cleaning_request_bytes_total", "Of the request bytes, those of cleaning.", "",
        METRIC_COUNTER, wear_clean_request_bytes, 0),
    ROW("rowan_pm_cleaning_media_bytes_total", "Of the media bytes, those of cleaning.", "",
        METRIC_COUNTER, wear_clean_media_bytes, 0),
    ROW("rowan_refused_total", REFUSED, "what=\"login\"", METRIC_COUNTER, refused_logins, 0),
    ROW("rowan_refused_total", REFUSED, "what=\"proof\"", METRIC_COUNTER, refused_proofs, 0),
    COUNTER("rowan_memory_refused_total",
            "Requests for memory that the system refused this process.", memory_refused),
    ROW("rowan_refused_total", REFUSED, "what=\"request\"", METRIC_COUNTER, refused_requests, 0),
    ROW("rowan_connections_ended_total", ENDED, "why=\"unread\"", METRIC_COUNTER, ended_unread, 0),
    ROW("rowan_connections_ended_total", ENDED, "why=\"guest\"", METRIC_COUNTER, ended_guests, 0),
    ROW("rowan_connections_ended_total", ENDED, "why=\"crowded\"", METRIC_COUNTER, ended_crowded,
        0),
    ROW("rowan_unknown_messages_total",
        "Messages between this server and a manager that one of them did not know.", "",
        METRIC_COUNTER, unknown_messages, 0),
};

void control_status_open(struct control *control)
{
    role_metrics(&control->busy_ns, control->options->metrics, "control", 0);
    metrics_add(control->options->metrics, status_metrics,
                sizeof status_metrics / sizeof status_metrics[0], control->image, "");
}

void control_status_poll(struct control *control)
{
    if (!metrics_asked(control->options->metrics))
        return;
    Rowan__ServerStatus status;
    fill_status(control, &status);
    for (size_t i = 0; i < sizeof status / sizeof(uint64_t); i++) {
        uint64_t word;
        memcpy(&word, (const char *)&status + i * sizeof word, sizeof word);
        counter_set(&control->image[i], word);
    }
    metrics_answer(control->options->metrics,
                   control_memory_is_short(control)
                       ? "not ready: the system refuses the server memory; the log tells more"
                   : status.serves ? NULL
                                   : "not ready: the server holds no lease, or has not started all "
                                     "its shards; rowan status tells more");
}
