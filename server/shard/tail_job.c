/* What a backup has of a shard's tail. A cursor is the position in the sorted tail (32 bits), then
 * that of the block (16 bits), plus one; the tail does not change while the shard's epoch is united.
 */
#include "server/shard/tail_job.h"

#include <stdlib.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "server/note.h"

static uint64_t cursor_of(uint32_t item, uint32_t block)
{
    return ((uint64_t)item << 16 | block) + 1;
}

/* True while the answer has room for the entry's blocks; it may take some of them and say false. */
static bool take_item(struct tail_job *job, const struct pm *pm, const struct entry_format *format,
                      const struct tail_item *item, uint32_t position, uint32_t block,
                      uint32_t *bytes)
{
    struct entry_header header;
    const uint8_t *at = pm_at(pm, item->offset);
    uint64_t room = STORE_SEGMENT_BYTES - item->offset % STORE_SEGMENT_BYTES;
    if (entry_verify(format, at, room, &header)) {
        log_event(LOG_ERROR, "entry_damaged", "shard=%u version=%lx offset=%lu", job->shard,
                  item->version, item->offset);
        return true;
    }
    uint64_t offset = item->offset;
    for (uint32_t i = 0; i < header.blocks; i++) {
        uint32_t size = entry_block_bytes(format, header.key_bytes, header.value_bytes, i);
        if (i >= block) {
            if (job->count == TAIL_JOB_BLOCKS || *bytes + size > TAIL_JOB_BYTES) {
                job->next_cursor = cursor_of(position, i);
                return false;
            }
            job->blocks[job->count++] = (struct tail_block){.offset = offset, .bytes = size};
            *bytes += size;
        }
        offset += size;
    }
    return true;
}

static void take_blocks(struct tail_job *job, const struct tail *tail, const struct pm *pm,
                        const struct entry_format *format)
{
    uint32_t item = tail_find(tail, job->after), block = 0, bytes = 0;
    if (job->cursor) {
        uint64_t first = (job->cursor - 1) >> 16;
        item = first < tail->count ? (uint32_t)first : tail->count;
        block = (uint32_t)((job->cursor - 1) & 0xffff);
    }
    for (; item < tail->count; item++, block = 0) {
        if (!take_item(job, pm, format, &tail->items[item], item, block, &bytes))
            return;
    }
}

static void answer(struct tail_job *job, struct shard_state *shard, const struct pm *pm,
                   const struct entry_format *format)
{
    if (!shard || shard->primary || shard->epoch != job->epoch ||
        version_epoch(job->asked_commit) > shard->epoch) {
        job->error = ROWAN_EAGAIN;
        return;
    }
    dense_settle(&shard->dense, version_epoch(job->asked_commit));
    job->commit = atomic_load_explicit(&shard->commit, memory_order_relaxed);
    job->dense = shard->dense.upto;
    /* Once its epoch has a commit version the union is over, and the tail is gone. */
    if (job->after != TAIL_NONE && shard->tail.sorted)
        take_blocks(job, &shard->tail, pm, format);
}

void tail_jobs_add(struct tail_jobs *jobs, struct tail_job *job, struct shard_state *shard,
                   const struct pm *pm, const struct entry_format *format)
{
    answer(job, shard, pm, format);
    job->next = NULL;
    if (jobs->last)
        jobs->last->next = job;
    else
        jobs->first = job;
    jobs->last = job;
}

bool tail_jobs_poll(struct tail_jobs *jobs, struct inbox *outbox)
{
    struct tail_job *job = jobs->first;
    if (!job)
        return false;
    struct tail_job *next = job->next; /* once it is handed over, the job is the receiver's */
    if (note_push(outbox, &(struct note){.kind = NOTE_TAIL, .tail = job}))
        return true; /* no room or no memory now: the next poll tries again */
    jobs->first = next;
    if (!next)
        jobs->last = NULL;
    return true;
}

void tail_jobs_drop(struct tail_jobs *jobs)
{
    while (jobs->first) {
        struct tail_job *job = jobs->first;
        jobs->first = job->next;
        free(job);
    }
    jobs->last = NULL;
}
