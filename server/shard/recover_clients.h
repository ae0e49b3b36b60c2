/* recover_clients.h - whose completion records a start makes of what it finds: the tables of clients that workers write at
 * the heads of their logs' segments (common/entry/commit.h).
 *
 * Rows with clients' lowest unanswered numbers may be cleaned away while old entries of those clients live on, so that
 * a scan cannot tell from the rows it meets who will never ask again. The newest table says it: of a shard's entries up
 * to the version that the table tells, only those need a record whose client it names, with an operation not below its
 * lowest. Of later entries nobody knows: rows that follow the table (or none) tell. Where no table is whole each entry
 * gives a record, which costs memory only, until the worker forgets the clients that do not come back.
 *
 * A table speaks for all lower epochs, too, because its writer led the shard in all of them, or took the records over:
 * from a start like this one, or, when it was promoted, from what it knew as a backup (D8 in server/digest/digest_tail.c).
 */
#ifndef SERVER_RECOVER_CLIENTS_H
#define SERVER_RECOVER_CLIENTS_H

#include "server/common.h"
#include "server/shard/records.h"

struct recover_table;

struct recover_clients {
    const struct server_common *common;
    struct recover_speaker {
        uint64_t upto;                     /* a version */
        uint32_t epoch;                    /* of the shard, if it is led here; else 0 */
        const struct recover_table *table; /* NULL: none was found */
    } * speakers;                          /* by shard: STORE_SHARD_IDS */
    uint32_t unknown; /* shards led here for which nobody speaks yet; 0: no older table is needed */
    struct recover_table *tables;
};

/* Errors: ROWAN_ENOMEM. */
int recover_clients_init(struct recover_clients *clients, const struct server_common *common);
void recover_clients_fini(struct recover_clients *clients);

/* This server leads the shard, in that epoch. */
void recover_clients_lead(struct recover_clients *clients, uint16_t shard, uint32_t epoch);

/* recover_clients_read: the table at the head of the segment at `offset` of the map, if there is a whole one, for the
 * shards for which nobody speaks yet. So the newest segment comes first. Errors: ROWAN_ENOMEM. */
int recover_clients_read(struct recover_clients *clients, uint64_t offset);

/* May the client of that entry, or record stub, still ask for its operation? */
bool recover_clients_ask(const struct recover_clients *clients, const struct entry_header *header);

/* recover_clients_raise: the records of that shard, once all are found, get the lowest numbers that its table tells: the
 * rows may be nowhere else any more, and without them the next table would tell lower ones. */
void recover_clients_raise(const struct recover_clients *clients, uint16_t shard,
                           struct records *records);

#endif
