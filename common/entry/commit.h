/* commit.h - the value of an ENTRY_COMMIT_VERSIONS entry: how far shards are resolved, and which
 * operations of clients need no record any more. Little-endian:
 *
 *   offset bytes
 *   0      4     shards: how many rows of the first kind
 *   4      4     clients: how many of the second kind
 *   8      16 x shards    shard (2), zero (6), commit version (8)
 *   ...    8 x clients    client id (4), lowest unanswered operation (4)
 *
 * The entry has no key; its header's version and shard are 0, client id is the sending server,
 * operation the sending worker. Pure functions; any thread.
 */
#ifndef ENTRY_COMMIT_H
#define ENTRY_COMMIT_H

#include <stdbool.h>
#include <stdint.h>

struct commit_shard {
    uint16_t shard;
    uint64_t version;
};

struct commit_client {
    uint32_t client;
    uint32_t lowest;
};

enum { COMMIT_HEAD_BYTES = 8, COMMIT_SHARD_BYTES = 16, COMMIT_CLIENT_BYTES = 8 };

/* Bytes of such a value. */
static inline uint32_t commit_bytes(uint32_t shards, uint32_t clients)
{
    return COMMIT_HEAD_BYTES + shards * COMMIT_SHARD_BYTES + clients * COMMIT_CLIENT_BYTES;
}

/* Writes the value; `out` has room for commit_bytes, which is returned. */
uint32_t commit_encode(const struct commit_shard *shards, uint32_t shard_count,
                       const struct commit_client *clients, uint32_t client_count, void *out);

/* A value, checked: every length fits, reserved bytes are zero. */
struct commit_value {
    uint32_t shards, clients;
    const uint8_t *bytes;
};

/* ROWAN_EFORMAT if it is not whole. *out points into `bytes`. */
int commit_decode(const void *bytes, uint32_t count, struct commit_value *out);
struct commit_shard commit_shard_at(const struct commit_value *value, uint32_t i);
struct commit_client commit_client_at(const struct commit_value *value, uint32_t i);

#endif
