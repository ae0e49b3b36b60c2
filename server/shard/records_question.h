/* records_question.h - what the clean role asks the owner of a shard about completion records.
 *
 * Before an entry goes for good: may somebody still ask whether its operation was done?
 *
 * The clean role asks the shard's owner, a worker or a digest role, about the clients whose entries it drops. A client's lowest
 * unanswered number only rises, so an answer stays right. That a client was forgotten speaks only for what it had written
 * by then: it asks for nothing of that again (server/worker/clients.h), but it may come back and write more. An answer is
 * about entries of COMMITTED segments only: the record of a
 * write that is still in flight is not there yet.
 *
 * For a checkpoint: all records and clients of a shard, some in each answer (records_list); at a backup what it knows of
 * entries that are settled (completed_list).
 */
#ifndef SERVER_RECORDS_QUESTION_H
#define SERVER_RECORDS_QUESTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/assert.h"
#include "common/reactor/inbox.h"
#include "server/shard/records.h"

enum { RECORDS_QUESTION_ROWS = 64 };

/* The asker's, but from records_ask until it has seen `answered` (acquire). */
struct records_question {
    uint32_t count;
    struct records_question_row {
        uint16_t shard;
        uint32_t client;
        uint32_t
            lowest; /* the answer: nobody asks for lower operations of this client. UINT32_MAX: for none; 0: keep all,
                            as who is asked does not own the shard, or cannot tell */
    } rows[RECORDS_QUESTION_ROWS];
    bool lists; /* then there are no rows, but: */
    uint16_t shard;
    struct records_cursor cursor;
    struct records_row listed[RECORDS_QUESTION_ROWS];
    int listed_count; /* the answer; errors: those of records_list, ROWAN_EAGAIN (the shard is not its yet) */
    bool listed_all;

    struct inbox *wake; /* whose consumer is woken by the answer; NULL: nobody */
    _Atomic bool answered;
};

/* records_ask: the clean role's. The owner of that inbox answers in a later poll; the question must stay where it is until
 * then. False: too many wait, nothing was asked. */
static inline bool records_ask(struct inbox *inbox, struct records_question *question)
{
    ASSERT(question->count <= RECORDS_QUESTION_ROWS);
    atomic_store_explicit(&question->answered, false, memory_order_relaxed);
    return inbox_push(inbox, question);
}

static inline void records_answer(struct records_question *question)
{
    struct inbox *wake = question->wake;
    atomic_store_explicit(&question->answered, true, memory_order_release);
    if (wake) /* the question is its asker's again */
        inbox_wake(wake);
}

#endif
