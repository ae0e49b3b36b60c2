/* commit.h - the value of an ENTRY_COMMIT_VERSIONS entry: how far shards are resolved, and which
 * operations of clients need no record any more. Little-endian:
 *
 *   offset bytes
 *   0      2     shards: how many rows of the first kind
 *   2      2     parts: of a table; 0: this is none
 *   4      2     clients: how many of the second kind
 *   6      2     part: which one, from 0; 0 if this is no table
 *   8      16 x shards    shard (2), zero (6), commit version (8)
 *   ...    8 x clients    client id (4), lowest unanswered operation (4)
 *
 * A table stands at the head of a segment of a worker's own log and is sent to nobody. Its parts lie one behind the
 * other, and together they name all clients that the worker knows. A shard's version in it is no commit version: up to
 * it the table speaks for the shard. Of entries up to there only those need a completion record whose client the table
 * names, with an operation not below its lowest (server/shard/recover_clients.h).
 *
 * The entry has no key; its header's version and shard are 0, client id is the sending server,
 * operation the sending worker. Pure functions; any thread.
 */
#ifndef ENTRY_COMMIT_H
#define ENTRY_COMMIT_H

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

enum { COMMIT_MAX_ROWS = UINT16_MAX }; /* of a kind */

struct commit_part {
    uint16_t part, parts;
};

/* Writes the value; `out` has room for commit_bytes, which is returned. No more than COMMIT_MAX_ROWS of a kind. */
uint32_t commit_encode(const struct commit_shard *shards, uint32_t shard_count,
                       const struct commit_client *clients, uint32_t client_count, void *out);

/* Makes a part of a table of the value that commit_encode wrote. */
void commit_make_part(void *value, struct commit_part part);

/* A value, checked: every length fits, reserved bytes are zero. */
struct commit_value {
    uint32_t shards, clients;
    const uint8_t *bytes;
};

/* commit_decode: *out points into `bytes`. A table's rows mean something else than others, so whoever asks for the one is
 * never given the other: with `part` a part of a table and which it is, without (NULL) what is none. Errors: ROWAN_EFORMAT. */
int commit_decode(const void *bytes, uint32_t count, struct commit_value *out,
                  struct commit_part *part);
struct commit_shard commit_shard_at(const struct commit_value *value, uint32_t i);
struct commit_client commit_client_at(const struct commit_value *value, uint32_t i);

#endif
