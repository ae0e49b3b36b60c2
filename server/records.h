/* records.h - completion records of one shard: which operations of which clients took effect, with
 * what version, until the client says that it has the answer (design, section 6, exactly once).
 *
 * Only writes that took effect have a record: they are the entries of the log, so that a scan
 * rebuilds them. A write that was refused, lost its condition or found nothing had no effect, and
 * may be judged anew when it is asked again.
 *
 * Pure; one thread; memory comes in chunks, never per operation, and is bounded by RECORDS_MAX.
 */
#ifndef SERVER_RECORDS_H
#define SERVER_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RECORDS_MAX = 1 << 20, /* of one shard; beyond it a new operation is refused with ROWAN_EBUSY */
};

struct records_inside;

struct records {
    struct records_inside *inside; /* NULL: empty */
};

/* Gives all memory back; the records are empty again. */
void records_fini(struct records *records);

enum records_verdict {
    RECORDS_FRESH, /* a number higher than any seen of this client: no retry */
    RECORDS_AGAIN, /* seen or passed before, and no record: in flight, or it took no effect */
    RECORDS_DONE,  /* it took effect: *version */
    RECORDS_STALE, /* below the client's lowest unanswered number: it has its answer */
};

/* records_look: a request of `client` with its number and its lowest unanswered number arrives.
 * Notes the number as seen, and forgets the client's records below `lowest`. Errors (negative):
 * ROWAN_EBUSY (RECORDS_MAX), ROWAN_ENOMEM. After FRESH or AGAIN a records_add of this operation
 * cannot fail. */
int records_look(struct records *records, uint32_t client, uint32_t operation, uint32_t lowest,
                 uint64_t *version);

/* records_add: the operation took effect. From a scan the numbers may come in any order, without
 * records_look: then ROWAN_ENOMEM or ROWAN_EBUSY are possible. */
int records_add(struct records *records, uint32_t client, uint32_t operation, uint64_t version);

/* Records of `client` below `lowest` are not needed. UINT32_MAX: none is, the client has gone. */
void records_lowest(struct records *records, uint32_t client, uint32_t lowest);

/* How many there are; the bytes they hold. */
uint64_t records_count(const struct records *records);
uint64_t records_bytes(const struct records *records);

/* Calls `visit` for each client with its lowest unanswered number, if that changed since the last
 * walk; for commit versions (entry/commit.h), which carry them on. */
void records_changed(struct records *records,
                     void (*visit)(void *context, uint32_t client, uint32_t lowest), void *context);

#endif
