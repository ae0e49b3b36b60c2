/* worker_read.h - the way of a get: index, entry, reply straight from the log. May call what answers. */
#ifndef SERVER_WORKER_READ_H
#define SERVER_WORKER_READ_H

#include "server/worker/worker_state.h"

/* The object at an index offset: 0 and its header, ROWAN_ENOTFOUND (none, or a tombstone), or
 * ROWAN_EDAMAGED. */
int worker_object(struct worker *worker, uint64_t offset, struct entry_header *header);

/* Answers a get. False if the client has no room for the reply: the request is to be kept. */
bool worker_read(struct worker *worker, const struct request *request);

#endif
