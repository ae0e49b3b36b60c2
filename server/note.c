/* Notes between the roles of a server, and the walk that answers a digest note. */
#include "server/note.h"

#include <stdlib.h>
#include <string.h>
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

void digest_job_start(struct digest_job *job, struct shard_state *state)
{
    job->state = state;
    job->cursor = 0;
    job->digest = 0;
    job->objects = 0;
    job->damaged = 0;
    job->busy = false;
    job->version = state ? atomic_load_explicit(&state->version, memory_order_relaxed) : 0;
}

struct walk {
    struct digest_job *job;
    const struct pm *pm;
    const struct entry_format *format;
};

/* The sum over live objects makes the digest independent of the order in which an index holds them. */
static void digest_visit(void *context, uint64_t offset)
{
    struct walk *walk = context;
    struct digest_job *job = walk->job;
    const uint8_t *at = pm_at(walk->pm, offset);
    uint64_t segment_end = (offset / STORE_SEGMENT_BYTES + 1) * STORE_SEGMENT_BYTES;
    if (entry_verify(walk->format, at, segment_end - offset, NULL)) {
        if (job->damaged++ == 0)
            job->damaged_offset = offset;
        return;
    }
    struct entry_header header;
    entry_peek(at, &header);
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
    while ((count = entry_value_pieces(walk->format, at, first, pieces, 16)) > 0) {
        for (unsigned i = 0; i < count; i++)
            XXH3_64bits_update(&hash, pieces[i].data, pieces[i].bytes);
        first += count;
    }
    job->digest += XXH3_64bits_digest(&hash);
    job->objects++;
}

bool digest_job_step(struct digest_job *job, const struct pm *pm, const struct entry_format *format)
{
    struct walk walk = {.job = job, .pm = pm, .format = format};
    bool more = index_walk(job->state->index, &job->cursor, DIGEST_BUCKETS_PER_STEP, digest_visit,
                           &walk);
    uint64_t version = atomic_load_explicit(&job->state->version, memory_order_relaxed);
    if (version != job->version || job->state->first_in_flight)
        job->busy = true;
    return more && !job->busy;
}
