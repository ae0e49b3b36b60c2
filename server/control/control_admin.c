/* What the control role answers: status, and digests of shards. A digest is walked by the shard's
 * owner; here the request waits for it. */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "server/control/control_state.h"

static void send_failure(struct link *link, uint32_t tag, int error)
{
    Rowan__Failure failure = ROWAN__FAILURE__INIT;
    failure.error = error;
    failure.detail = (char *)(uintptr_t)error_sentence(error);
    const Rowan__ControlMessage message = CONTROL_MESSAGE(FAILURE, failure, &failure);
    control_send(link, tag, &message);
}

/* --- status --- */

static void fill_shard_status(const struct shard_state *shard, Rowan__ShardStatus *row)
{
    rowan__shard_status__init(row);
    row->id = shard->id;
    row->primary = shard->primary;
    row->objects = index_items(shard->index);
    row->version = atomic_load_explicit(&shard->version, memory_order_relaxed);
    row->index_bytes = index_bytes(shard->index);
    row->commit = atomic_load_explicit(&shard->commit, memory_order_relaxed);
    row->recovering = atomic_load_explicit(&shard->recovering, memory_order_relaxed);
    row->lost = atomic_load_explicit(&shard->lost, memory_order_relaxed);
    row->missing = atomic_load_explicit(&shard->missing, memory_order_relaxed);
}

static void fill_counts(struct control *control, Rowan__ServerStatus *status)
{
    for (uint32_t i = 0; i < control->options.workers; i++) {
        const struct worker_counts *counts = worker_counts(control->workers[i]);
        status->gets += atomic_load_explicit(&counts->gets, memory_order_relaxed);
        status->puts += atomic_load_explicit(&counts->puts, memory_order_relaxed);
        status->deletes += atomic_load_explicit(&counts->deletes, memory_order_relaxed);
    }
    for (uint32_t i = 0; i < control->options.digests; i++) {
        status->entries_digested += digest_entries(control->digests[i]);
        status->fetches += digest_fetches(control->digests[i]);
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
    status->workers = control->options.workers;
    status->digests = control->options.digests;
    status->reactors = control->options.reactors;
    status->uptime_seconds = (control->now_ns - control->start_ns) / NS_PER_S;
    if (!control->shards)
        return;
    status->term = control->config->term;
    status->segments = store_segments(common->store);
    status->segments_free = store_segments_free(common->store);
    status->segments_backup_log = store_segments_owned(common->store, OWNER_BACKUP_LOG);
    status->segments_worker_log = store_segments_owned(common->store, OWNER_WORKER);
    status->full = atomic_load_explicit(&common->full, memory_order_relaxed);
    fill_counts(control, status);
}

static void send_status(struct control *control, struct link *link, uint32_t tag)
{
    /* Nobody wakes them for what lands: who asks again sees what they had not looked at yet. */
    for (uint32_t i = 0; i < control->options.digests; i++)
        inbox_wake(digest_inbox(control->digests[i]));
    Rowan__ServerStatus status;
    fill_status(control, &status);
    uint32_t room = control->shards ? control->config->shard_count : 0;
    Rowan__ShardStatus *rows = calloc(room + 1, sizeof *rows);
    Rowan__ShardStatus **pointers = calloc(room + 1, sizeof(Rowan__ShardStatus *));
    if (rows && pointers) {
        for (uint32_t i = 0; i < room; i++) {
            if (!control->shards[i])
                continue;
            pointers[status.n_shards] = &rows[status.n_shards];
            fill_shard_status(control->shards[i], &rows[status.n_shards++]);
        }
        status.shards = pointers;
        const Rowan__ControlMessage message =
            CONTROL_MESSAGE(SERVER_STATUS, server_status, &status);
        control_send(link, tag, &message);
    } else {
        send_failure(link, tag, ROWAN_ENOMEM);
    }
    free(pointers);
    free(rows);
}

/* --- digests --- */

static int start_digest(struct control *control, struct link *link, uint32_t tag, uint32_t id)
{
    const struct shard *row = control->shards && id < STORE_SHARD_IDS
                                  ? cluster_shard(control->config, (uint16_t)id)
                                  : NULL;
    if (!row || !control->shards[row - control->config->shards])
        return ROWAN_ENOTMINE;
    uint32_t slot = 0;
    while (slot < CONTROL_MAX_JOBS && control->jobs[slot])
        slot++;
    if (slot == CONTROL_MAX_JOBS)
        return ROWAN_EBUSY;
    struct digest_job *job = calloc(1, sizeof *job);
    if (!job)
        return ROWAN_ENOMEM;
    job->shard = row->id;
    job->link = link;
    job->tag = tag;
    bool primary = row->primary == control->common->server;
    struct inbox *inbox = primary
                              ? worker_inbox(control->workers[row->worker])
                              : digest_inbox(control->digests[row->id % control->options.digests]);
    int error = note_push(inbox, &(struct note){.kind = NOTE_DIGEST, .job = job});
    if (error) {
        free(job);
        return error;
    }
    control->jobs[slot] = job;
    return 0;
}

enum { SHOWN_KEY_BYTES = 64 };

/* The key of a damaged entry, as far as its header still tells and a terminal can show it. */
static void show_key(const struct server_common *common, uint64_t offset,
                     char shown[SHOWN_KEY_BYTES + 1])
{
    uint8_t key[ENTRY_MAX_KEY_BYTES];
    uint32_t bytes = 0;
    /* The lengths may be what was hit: nothing is read beyond the map for them. */
    if (common->pm->bytes - offset >= 2 * ENTRY_MAX_KEY_BYTES)
        bytes = entry_key(&common->format, pm_at(common->pm, offset), key);
    if (bytes > SHOWN_KEY_BYTES)
        bytes = SHOWN_KEY_BYTES;
    for (uint32_t i = 0; i < bytes; i++)
        shown[i] = key[i] >= ' ' && key[i] < 0x7f ? (char)key[i] : '?';
    shown[bytes] = '\0';
}

static void send_digest(struct control *control, const struct digest_job *job)
{
    char key[SHOWN_KEY_BYTES + 1];
    Rowan__DigestIs digest = ROWAN__DIGEST_IS__INIT;
    digest.shard = job->shard;
    digest.server = control->common->server;
    digest.primary = job->state->primary;
    digest.digest = job->digest;
    digest.objects = job->objects;
    digest.version = job->version;
    digest.busy = job->busy;
    digest.damaged = job->damaged;
    digest.damaged_offset = job->damaged_offset;
    digest.missing = job->missing;
    if (job->damaged) {
        show_key(control->common, job->damaged_offset, key);
        digest.damaged_key = key;
    }
    const Rowan__ControlMessage message = CONTROL_MESSAGE(DIGEST_IS, digest_is, &digest);
    control_send(job->link, job->tag, &message);
}

void control_admin_done(struct control *control, struct digest_job *job)
{
    for (uint32_t i = 0; i < CONTROL_MAX_JOBS; i++) {
        if (control->jobs[i] == job)
            control->jobs[i] = NULL;
    }
    if (job->link && job->state)
        send_digest(control, job);
    else if (job->link)
        send_failure(job->link, job->tag, ROWAN_ENOTMINE);
    free(job);
}

void control_admin_forget(struct control *control, const struct link *link)
{
    for (uint32_t i = 0; i < CONTROL_MAX_JOBS; i++) {
        if (control->jobs[i] && control->jobs[i]->link == link)
            control->jobs[i]->link = NULL;
    }
}

void control_admin_message(struct control *control, struct link *link, uint32_t tag,
                           const Rowan__ControlMessage *message)
{
    int error = ROWAN_EUNSUPPORTED;
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_STATUS) {
        send_status(control, link, tag);
        return;
    }
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_TAIL) {
        control_tail_ask(control, link, tag, message->get_tail);
        return;
    }
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_DIGEST)
        error = start_digest(control, link, tag, message->get_digest->shard);
    if (error)
        send_failure(link, tag, error);
}
