/* records_question.h - what the clean role asks the worker that owns a shard about completion records.
 *
 * Before an entry goes for good: may somebody still ask whether its operation was done?
 *
 * The clean role asks the worker that owns the shard about the clients whose entries it drops. A client's lowest
 * unanswered number only rises, so an answer stays right. That a client was forgotten speaks only for what it had written
 * by then: it asks for nothing of that again (server/worker/clients.h), but it may come back and write more. An answer is
 * about entries of COMMITTED segments only: the record of a
 * write that is still in flight is not there yet.
 *
 * For a checkpoint: all records and clients of a shard, some in each answer (records_list).
 */
#ifndef SERVER_RECORDS_QUESTION_H
#define SERVER_RECORDS_QUESTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/reactor/inbox.h"
#include "server/shard/records.h"

enum { RECORDS_QUESTION_ROWS = 64 };

/* The asker's, but from worker_ask until it has seen `answered` (acquire). */
struct records_question {
    uint32_t count;
    struct records_question_row {
        uint16_t shard;
        uint32_t client;
        uint32_t
            lowest; /* the answer: nobody asks for lower operations of this client. UINT32_MAX: for none; 0: keep all,
                            as the worker does not own the shard, or cannot tell */
    } rows[RECORDS_QUESTION_ROWS];
    bool lists; /* then there are no rows, but: */
    uint16_t shard;
    struct records_cursor cursor;
    struct records_row listed[RECORDS_QUESTION_ROWS];
    int listed_count; /* the answer; errors: those of records_list, ROWAN_EAGAIN (the worker does not own the shard yet) */
    bool listed_all;

    struct inbox *wake; /* whose consumer is woken by the answer; NULL: nobody */
    _Atomic bool answered;
};

#endif
