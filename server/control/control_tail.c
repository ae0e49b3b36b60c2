/* What a backup's control role does for a union (worker_reconcile.c): takes the primary's questions from
 * its connection to the shard's owner, and the answers back. An answer that finds no room waits, also
 * one that says "not now": whoever asks has one question for a shard, and waits for its answer. */
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "server/control/control_state.h"

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

/* Errors: ROWAN_EAGAIN (not ready for it), ENOMEM. */
static int take_question(struct control *control, struct link *link, uint32_t tag,
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

void control_tail_ask(struct control *control, struct link *link, uint32_t tag,
                      const Rowan__GetTail *question)
{
    int error = take_question(control, link, tag, question);
    if (error && link->refused_count == CONTROL_MAX_REFUSED) {
        log_event(LOG_WARN, "answer_dropped", "error=%s", error_name(error));
    } else if (error) {
        link->refused[link->refused_count++] = tag;
        control->refused_count++;
    }
}

/* --- answers --- */

void control_tail_done(struct tail_job *job)
{
    job->answered = true;
}

static int send_failure(struct link *link, uint32_t tag, int error)
{
    Rowan__Failure failure = ROWAN__FAILURE__INIT;
    failure.error = error;
    failure.detail = (char *)(uintptr_t)error_sentence(error);
    return control_message_send(link->conn, tag, &CONTROL_MESSAGE(FAILURE, failure, &failure));
}

static bool waits_for_room(int error)
{
    return error == ROWAN_EAGAIN || error == ROWAN_ENOMEM;
}

static bool refuse(struct control *control)
{
    bool any = false;
    for (struct link *link = control->links; link && control->refused_count; link = link->next) {
        while (link->refused_count &&
               !waits_for_room(
                   send_failure(link, link->refused[link->refused_count - 1], ROWAN_EAGAIN))) {
            link->refused_count--;
            control->refused_count--;
            any = true;
        }
    }
    return any;
}

static int send_answer(struct control *control, const struct tail_job *job)
{
    ProtobufCBinaryData blocks[TAIL_JOB_BLOCKS];
    Rowan__TailIs body = ROWAN__TAIL_IS__INIT;
    if (job->error)
        return send_failure(job->link, job->tag, job->error);
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
    return control_message_send(job->link->conn, job->tag,
                                &CONTROL_MESSAGE(TAIL_IS, tail_is, &body));
}

bool control_tail_poll(struct control *control, uint64_t *wake_ns)
{
    bool any = refuse(control);
    if (control->refused_count && control->now_ns + TAIL_RETRY_NS < *wake_ns)
        *wake_ns = control->now_ns + TAIL_RETRY_NS;
    for (uint32_t i = 0; i < CONTROL_MAX_TAILS; i++) {
        struct tail_job *job = control->tails[i];
        if (!job || !job->answered)
            continue;
        int error = job->link ? send_answer(control, job) : 0;
        if (waits_for_room(error)) {
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

void control_tail_forget(struct control *control, struct link *link)
{
    control->refused_count -= link->refused_count;
    link->refused_count = 0;
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
