/* completed.h - at a backup: operations of a shard that took effect, whose entries have left the uncommitted suffix, and
 * whose answer may be asked again. With what is still in the suffix they become the completion records (records.h) of the
 * primary that this replica is promoted to (apply_promote).
 *
 * No hash table, as nobody looks one up: an array, in which an operation may stand twice. Nothing is kept of an operation
 * that its client has acknowledged, as far as is known (struct acknowledged_clients), and nothing for longer than two
 * periods of CLIENTS_KEEP_NS: who asks again does so within ROWAN_MAX_TIMEOUT_MS (client/rowan.h).
 *
 * MEMORY. 16 B an operation. Beyond COMPLETED_MAX of them, 1 MiB a shard, or without memory, the older half is reduced to one
 * mark for each of its clients (RECORDS_UNKNOWN in records.h). Only with more clients than a primary serves (4 MiB), or where
 * there is no memory for the first operations, are any lost, and `lost` counts them: a retry would be carried out again.
 * Reducing sorts half of them in one call, 32 Ki at first.
 *
 * Pure; the owner of the shard's, one thread.
 */
#ifndef SERVER_COMPLETED_H
#define SERVER_COMPLETED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "server/shard/records.h"

/* How long what a client has done is kept for it, at least, after it was last heard of. No client asks again that late
 * (client/rowan.h, ROWAN_MAX_TIMEOUT_MS). */
#ifdef ROWAN_SIM /* test/sim chooses: clients are forgotten within a run */
extern uint64_t clients_keep_ns;
#define CLIENTS_KEEP_NS clients_keep_ns
#else
#define CLIENTS_KEEP_NS (120 * NS_PER_S)
#endif

enum {
    COMPLETED_MAX = 1 << 16,
    COMPLETED_MAX_MARKED = 2 * RECORDS_MAX_CLIENTS,
    ACKNOWLEDGED_PLACES = 4096, /* 32 KiB; a power of two */
};

/* The last that commit versions told of clients' lowest unanswered numbers, which are one for all shards. A client has one
 * place, and may lose it to another one: what it has acknowledged is kept then, for a while. All zeros: nothing is known. */
struct acknowledged_clients {
    struct acknowledged_client {
        uint32_t client, lowest;
    } places[ACKNOWLEDGED_PLACES];
};

/* Client ids are given out in blocks, so many are equal in their low bits. */
static inline uint32_t acknowledged_place(uint32_t client)
{
    return (client * UINT32_C(0x9e3779b1)) / (UINT32_MAX / ACKNOWLEDGED_PLACES + 1);
}

/* Such a number was told. It only rises. */
static inline void acknowledged_told(struct acknowledged_clients *clients, uint32_t client,
                                     uint32_t lowest)
{
    struct acknowledged_client *place = &clients->places[acknowledged_place(client)];
    if (place->client != client || lowest > place->lowest)
        *place = (struct acknowledged_client){.client = client, .lowest = lowest};
}

/* Is it known that nobody asks for the operation again? */
static inline bool acknowledged_has(const struct acknowledged_clients *clients, uint32_t client,
                                    uint32_t operation)
{
    const struct acknowledged_client *place = &clients->places[acknowledged_place(client)];
    return place->client == client && operation < place->lowest;
}

/* All zeros: empty, and nobody has acknowledged anything. */
struct completed {
    const struct acknowledged_clients *acknowledged; /* NULL: nothing is known */
    struct completed_item {
        uint64_t version;
        uint32_t client, operation;
    } * items;
    uint32_t count, capacity;
    uint32_t older;  /* so many, the first, are from before the last completed_age */
    uint32_t marked; /* how often some were reduced to marks */
    uint64_t lost;
};

/* It took effect; or a mark. */
void completed_add(struct completed *completed, uint32_t client, uint32_t operation,
                   uint64_t version);

/* A period is over: what was there when the last one ended goes. */
void completed_age(struct completed *completed);

/* completed_list: as records_list. */
uint32_t completed_list(const struct completed *completed, struct records_cursor *cursor,
                        struct records_row *rows, uint32_t max, bool *over);

/* Nothing is kept any more, and the memory is freed. */
void completed_clear(struct completed *completed);

#endif
