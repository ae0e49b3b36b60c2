/* What a backup's control role does for a union (worker_union.c): takes the primary's questions from
 * its connection to the shard's owner, and the answers back. An answer that finds no room waits. */
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "server/control_state.h"

#define TAIL_RETRY_NS NS_PER_MS

/* --- questions --- */

/* Where the job goes: the owner of the shard, if this server backs it in that epoch. */
static struct inbox *owner(struct control *control, uint32_t id, uint32_t epoch)
{
    const struct shard *row = control->shards && id < STORE_SHARD_IDS
                                  ? cluster_shard(control->config, (uint16_t)id)
                                  : NULL;
    if (!row || !control->shards[row - control->config->shards] || row->epoch != epoch ||
        row->primary == control->common->server)
        return NULL;
    return digest_inbox(control->digests[row->id % control->options.digests]);
}

int control_tail_ask(struct control *control, struct link *link, uint32_t tag,
                     const Rowan__GetTail *question)
{
    struct inbox *inbox = link->peer ? owner(control, question->shard, question->epoch) : NULL;
    uint32_t slot = 0;
    while (slot < CONTROL_MAX_TAILS && control->tails[slot])
        slot++;
    if (!inbox || slot == CONTROL_MAX_TAILS)
        return ROWAN_EAGAIN;
    struct tail_job *job = calloc(1, sizeof *job);
    if (!job)
        return ROWAN_ENOMEM;
    job->link = link;
    job->tag = tag;
    job->shard = (uint16_t)question->shard;
    job->epoch = question->epoch;
    job->asked_commit = question->commit;
    job->after = question->after;
    job->cursor = question->cursor;
    int error = note_push(inbox, &(struct note){.kind = NOTE_TAIL, .tail = job});
    if (error) {
        free(job);
        return error;
    }
    control->tails[slot] = job;
    return 0;
}

/* --- answers --- */

void control_tail_done(struct tail_job *job)
{
    job->answered = true;
}

static int send_answer(struct control *control, const struct tail_job *job)
{
    ProtobufCBinaryData blocks[TAIL_JOB_BLOCKS];
    Rowan__TailIs body = ROWAN__TAIL_IS__INIT;
    Rowan__Failure failure = ROWAN__FAILURE__INIT;
    Rowan__ControlMessage message = ROWAN__CONTROL_MESSAGE__INIT;
    if (job->error) {
        failure.error = job->error;
        failure.detail = (char *)(uintptr_t)error_sentence(job->error);
        message.body_case = ROWAN__CONTROL_MESSAGE__BODY_FAILURE;
        message.failure = &failure;
        return control_try_send(job->link, job->tag, &message);
    }
    for (uint32_t i = 0; i < job->count; i++) {
        blocks[i].len = job->blocks[i].bytes;
        blocks[i].data = (uint8_t *)(uintptr_t)pm_at(control->common->pm, job->blocks[i].offset);
    }
    body.shard = job->shard;
    body.epoch = job->epoch;
    body.commit = job->commit;
    body.dense = job->dense;
    body.cursor = job->next_cursor;
    body.n_blocks = job->count;
    body.blocks = blocks;
    message.body_case = ROWAN__CONTROL_MESSAGE__BODY_TAIL_IS;
    message.tail_is = &body;
    return control_try_send(job->link, job->tag, &message);
}

bool control_tail_poll(struct control *control, uint64_t *wake_ns)
{
    bool any = false;
    for (uint32_t i = 0; i < CONTROL_MAX_TAILS; i++) {
        struct tail_job *job = control->tails[i];
        if (!job || !job->answered)
            continue;
        int error = job->link ? send_answer(control, job) : 0;
        if (error == ROWAN_EAGAIN || error == ROWAN_ENOMEM) {
            if (control->now_ns + TAIL_RETRY_NS < *wake_ns)
                *wake_ns = control->now_ns + TAIL_RETRY_NS;
            continue;
        }
        free(job); /* any other error: the connection is gone, and its end comes as an event */
        control->tails[i] = NULL;
        any = true;
    }
    return any;
}

void control_tail_forget(struct control *control, const struct link *link)
{
    for (uint32_t i = 0; i < CONTROL_MAX_TAILS; i++) {
        if (control->tails[i] && control->tails[i]->link == link)
            control->tails[i]->link = NULL;
    }
}

void control_tail_close(struct control *control)
{
    for (uint32_t i = 0; i < CONTROL_MAX_TAILS; i++) {
        if (control->tails[i] && control->tails[i]->answered)
            free(control->tails[i]); /* the others are their owners' */
    }
}
