/* Notes between the roles of a server, and the walk that answers a digest note. */
#include "server/note.h"

#include <stdlib.h>
#include <string.h>
/* for the size of a streaming state, so that it can lie on the stack */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "common/base/error.h"

enum { DIGEST_BUCKETS_PER_STEP = 32 };

int note_push(struct inbox *inbox, const struct note *note)
{
    struct note *copy = malloc(sizeof *copy);
    if (!copy)
        return ROWAN_ENOMEM;
    *copy = *note;
    if (!inbox_push(inbox, copy)) {
        free(copy);
        return ROWAN_EAGAIN;
    }
    return 0;
}

bool note_pop(struct inbox *inbox, struct note *note)
{
    struct note *found = inbox_pop(inbox);
    if (!found)
        return false;
    *note = *found;
    free(found);
    return true;
}

void note_drain(struct inbox *inbox)
{
    struct note note;
    while (note_pop(inbox, &note)) {
        if (note.kind == NOTE_CONFIG)
            cluster_release(note.config);
        else if (note.kind == NOTE_SHARD)
            shard_state_destroy(note.shard);
        else if (note.kind == NOTE_DIGEST)
            free(note.job);
        else if (note.kind == NOTE_TAIL)
            free(note.tail);
    }
}

void digest_jobs_add(struct digest_jobs *jobs, struct digest_job *job, struct shard_state *state)
{
    job->state = state;
    job->version = state ? atomic_load_explicit(&state->version, memory_order_relaxed) : 0;
    job->next = NULL;
    if (jobs->last)
        jobs->last->next = job;
    else
        jobs->first = job;
    jobs->last = job;
}

void digest_jobs_drop(struct digest_jobs *jobs)
{
    while (jobs->first) {
        struct digest_job *job = jobs->first;
        jobs->first = job->next;
        free(job);
    }
    jobs->last = NULL;
}

struct walk {
    struct digest_job *job;
    const struct pm *pm;
    const struct entry_format *format;
};

/* The sum over live objects makes the digest independent of the order in which an index holds them.
 */
static void digest_visit(void *context, uint64_t offset)
{
    struct walk *walk = context;
    struct digest_job *job = walk->job;
    const uint8_t *at = pm_at(walk->pm, offset);
    uint64_t segment_end = (offset / STORE_SEGMENT_BYTES + 1) * STORE_SEGMENT_BYTES;
    struct entry_header header;
    if (entry_verify(walk->format, at, segment_end - offset, &header)) {
        if (job->damaged++ == 0)
            job->damaged_offset = offset;
        return;
    }
    if (header.type != ENTRY_PUT)
        return;
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    XXH3_64bits_update(&hash, &header.version, sizeof header.version);
    uint8_t key[ENTRY_MAX_KEY_BYTES];
    uint32_t key_bytes = entry_key(walk->format, at, key);
    XXH3_64bits_update(&hash, &header.key_bytes, sizeof header.key_bytes);
    XXH3_64bits_update(&hash, key, key_bytes);
    struct entry_piece pieces[16];
    unsigned count, first = 0;
    while ((count = entry_value_pieces(walk->format, &header, at, first, pieces, 16)) > 0) {
        for (unsigned i = 0; i < count; i++)
            XXH3_64bits_update(&hash, pieces[i].data, pieces[i].bytes);
        first += count;
    }
    job->digest += XXH3_64bits_digest(&hash);
    job->objects++;
}

/* False when the walk is over, or pointless because the shard is being written. */
static bool digest_step(struct digest_job *job, const struct pm *pm,
                        const struct entry_format *format)
{
    if (!job->state)
        return false;
    struct walk walk = {.job = job, .pm = pm, .format = format};
    bool more =
        index_walk(job->state->index, &job->cursor, DIGEST_BUCKETS_PER_STEP, digest_visit, &walk);
    uint64_t version = atomic_load_explicit(&job->state->version, memory_order_relaxed);
    job->missing = atomic_load_explicit(&job->state->missing, memory_order_relaxed);
    /* A version behind a hole was digested: what belongs into the hole is on its way. */
    bool hole = !job->state->primary && job->state->dense.count > 0;
    job->busy = version != job->version || job->state->first_in_flight || job->missing || hole ||
                atomic_load_explicit(&job->state->recovering, memory_order_relaxed);
    return more && !job->busy;
}

bool digest_jobs_poll(struct digest_jobs *jobs, struct inbox *outbox, const struct pm *pm,
                      const struct entry_format *format)
{
    struct digest_job *job = jobs->first;
    if (!job)
        return false;
    if (!job->done && digest_step(job, pm, format))
        return true;
    job->done = true;
    struct digest_job *next = job->next; /* once it is handed over, the job is the receiver's */
    if (note_push(outbox, &(struct note){.kind = NOTE_DIGEST, .job = job}))
        return true; /* no room or no memory now: the next poll tries again */
    jobs->first = next;
    if (!next)
        jobs->last = NULL;
    return true;
}
