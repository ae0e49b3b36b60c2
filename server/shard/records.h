/* records.h - completion records of one shard: which operations of which clients took effect, with
 * what version, until the client says that it has the answer (design, section 6, exactly once).
 *
 * Only writes that took effect have a record: they are the entries of the log, so that a scan
 * rebuilds them. A write that was refused, lost its condition or found nothing had no effect, and
 * may be judged anew when it is asked again.
 *
 * Where there was no space for a record, here or at a replica before, its client is marked instead: whether its operations
 * up to that number took effect is unknown (design, section 6). Such a mark travels like a record, with the version
 * RECORDS_UNKNOWN.
 *
 * MEMORY. 32 B for each operation between its first arrival and its client's lowest unanswered
 * number, whether it took effect or not; 64 B for each client; 8 B of hash table for each of both;
 * allocated and freed in chunks of 1 to 4 KiB, never per operation. Empty: 0. At most RECORDS_MAX and
 * RECORDS_MAX_CLIENTS of them, 50 MiB in all. An operation that arrived after one with a higher
 * number is kept as long as that one.
 *
 * Pure; one thread.
 */
#ifndef SERVER_RECORDS_H
#define SERVER_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RECORDS_MAX = 1 << 20, /* of one shard; beyond it a new operation is refused with ROWAN_EBUSY */
    RECORDS_MAX_CLIENTS = 1 << 17, /* of one shard; likewise */
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
    RECORDS_STALE, /* below the client's lowest unanswered number: it has its answer. Or it is unknown */
};

#define RECORDS_UNKNOWN UINT64_C(1) /* epoch 0, which no entry has */

/* records_look: a request of `client` with its number and its lowest unanswered number arrives.
 * Marks the number as seen, and forgets the client's records below `lowest`. Errors (negative):
 * ROWAN_EBUSY (RECORDS_MAX), ROWAN_ENOMEM. After FRESH or AGAIN a records_add of this operation
 * cannot fail. `client` is not 0; 0 < operation < UINT32_MAX; lowest <= operation. */
int records_look(struct records *records, uint32_t client, uint32_t operation, uint32_t lowest,
                 uint64_t *version);

/* records_add: the operation took effect; nothing is kept if the client has its answer already, or is 0,
 * or the number is 0 or UINT32_MAX: nobody asks for those again.
 * From a scan the numbers may come in any order, and more than once, without records_look: then the client may be
 * marked, and ROWAN_ENOMEM or ROWAN_EBUSY (RECORDS_MAX_CLIENTS) are possible. `version` is not 0. */
int records_add(struct records *records, uint32_t client, uint32_t operation, uint64_t version);

/* Records of `client` below `lowest` are not needed. UINT32_MAX: none is, the client has gone; if
 * it comes back, it is as new. */
void records_lowest(struct records *records, uint32_t client, uint32_t lowest);

/* The same from a scan: such a number was found in the log. A client without records counts as gone,
 * so that those of long ago use no memory; later entries may bring it back. */
void records_found_lowest(struct records *records, uint32_t client, uint32_t lowest);

/* The highest number seen of the client; 0: none. */
uint32_t records_highest(const struct records *records, uint32_t client);

/* How many operations are kept that took effect; how many clients are known; the bytes of all. */
uint64_t records_count(const struct records *records);
uint32_t records_clients(const struct records *records);
uint64_t records_bytes(const struct records *records);

typedef void records_visit(void *context, uint32_t client, uint32_t lowest);

/* Calls `visit` for each client whose lowest unanswered number has changed since the last call. Commit
 * versions (entry/commit.h) carry the numbers to the backups. Of a client that has gone it is the number
 * after the highest seen. */
void records_changed(struct records *records, records_visit *visit, void *context);

/* records_list: a bounded part of all records and clients. All zeros at first. What is there from the first call to the last
 * is told, some of it twice. */
struct records_cursor {
    bool clients;             /* the records are told */
    uint32_t bucket, buckets; /* the next; of the table, by the last call */
};
struct records_row {
    uint32_t client;
    uint32_t
        operation; /* that took effect, or, if `version` is 0, the client's lowest unanswered one */
    uint64_t version;
};

/* Writes up to `max` rows, tells how many, and whether that was all. Errors: ROWAN_EBUSY (a bucket has more than `max`). */
int records_list(const struct records *records, struct records_cursor *cursor,
                 struct records_row *rows, uint32_t max, bool *over);

/* Calls `visit` for each client that is known and has not gone. */
void records_each(const struct records *records, records_visit *visit, void *context);

#endif
