/* The way of a get. An entry's checksum is looked at each time: a damaged object is answered with
 * ROWAN_EDAMAGED, never with its bytes. */
#include "server/worker/worker_read.h"

#include <string.h>

#include "common/base/error.h"
#include "server/worker/worker_reply.h"
#include "server/worker/worker_trace.h"

enum { REPLY_MAX_PIECES = FABRIC_MAX_IOV - 1 };

int worker_object(struct worker *worker, uint64_t offset, struct entry_header *header)
{
    if (offset == 0)
        return ROWAN_ENOTFOUND;
    uint64_t room = STORE_SEGMENT_BYTES - offset % STORE_SEGMENT_BYTES;
    if (entry_verify(&worker->common->format, pm_at(worker->common->pm, offset), room, header))
        return ROWAN_EDAMAGED;
    return header->type == ENTRY_PUT ? 0 : ROWAN_ENOTFOUND;
}

/* The value's pieces as further pieces of a message, `iov` having room for REPLY_MAX_PIECES. A value in
 * more blocks than that is put together in the worker's buffer. Returns how many. */
static unsigned gather_value(struct worker *worker, const struct entry_header *header,
                             uint64_t offset, struct fabric_iov *iov)
{
    const struct entry_format *format = &worker->common->format;
    const void *at = pm_at(worker->common->pm, offset);
    if (header->blocks == 1) {
        iov[0] = (struct fabric_iov){entry_value_in_place(header, at), header->value_bytes};
        return 1;
    }
    struct entry_piece pieces[REPLY_MAX_PIECES];
    unsigned count = entry_value_pieces(format, header, at, 0, pieces, REPLY_MAX_PIECES);
    if (count < REPLY_MAX_PIECES) {
        for (unsigned i = 0; i < count; i++)
            iov[i] = (struct fabric_iov){pieces[i].data, pieces[i].bytes};
        return count;
    }
    uint32_t bytes = 0;
    for (unsigned first = 0; count > 0; first += count) {
        count = entry_value_pieces(format, header, at, first, pieces, REPLY_MAX_PIECES);
        for (unsigned i = 0; i < count; i++) {
            memcpy(worker->value + bytes, pieces[i].data, pieces[i].bytes);
            bytes += pieces[i].bytes;
        }
    }
    iov[0] = (struct fabric_iov){worker->value, bytes};
    return 1;
}

/* A key that is in the index passed worker_check_slot when it
 * was written, so only an answer without a value asks for it. */
bool worker_read(struct worker *worker, const struct request *request)
{
    const struct message_request *asked = &request->header;
    struct message_reply reply = {.operation = asked->operation, .tag = asked->tag};
    struct fabric_iov iov[FABRIC_MAX_IOV]; /* not initialized: it is 640 bytes */
    struct entry_header header;
    unsigned count = 1;
    const uint64_t begun_ns = request->arrived_ns ? worker_trace_clock(worker) : 0;
    uint64_t offset = index_find_hinted(request->shard->index, request->hint, request->hash,
                                        request->key, asked->key_bytes);
    if (offset == 0)
        offset = worker_find_in_parent(worker, request->shard, request->hash, request->key,
                                       asked->key_bytes);
    int status = worker_object(worker, offset, &header);
    if (!status) {
        reply.version = header.version;
        reply.value_bytes = header.value_bytes;
        count += gather_value(worker, &header, offset, iov + 1);
    } else if (worker_check_slot(worker, request)) {
        status = ROWAN_ENOTMINE;
    }
    if (status == ROWAN_EDAMAGED)
        shard_found_damage(request->shard, &worker->common->damages);
    reply.status = (int16_t)status;
    if (!worker_reply_pieces(worker, request->client, &reply, iov, count))
        return false;
    if (status == 0 && request->begun_ns == 0) /* worker_count, for what nearly all gets are */
        worker->ended[MESSAGE_GET - 1].count++;
    else
        worker_count_other(worker, MESSAGE_GET, worker_outcome(status), request->begun_ns);
    if (begun_ns)
        worker_trace_get(worker, request, begun_ns, &reply);
    return true;
}
