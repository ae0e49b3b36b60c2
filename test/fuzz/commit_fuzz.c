/* commit_fuzz.c - commit_decode, of either kind, on arbitrary bytes. What it admits gives rows that lie inside it and
 * encode to the very same bytes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/entry/commit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct commit_value value;
    struct commit_part part = {0};
    if (commit_decode(data, (uint32_t)size, &value, NULL) &&
        commit_decode(data, (uint32_t)size, &value, &part))
        return 0;
    ASSERT(commit_bytes(value.shards, value.clients) == size);
    struct commit_shard *shards = calloc(value.shards + 1, sizeof *shards);
    struct commit_client *clients = calloc(value.clients + 1, sizeof *clients);
    uint8_t *again = malloc(size);
    if (shards && clients && again) {
        for (uint32_t i = 0; i < value.shards; i++)
            shards[i] = commit_shard_at(&value, i);
        for (uint32_t i = 0; i < value.clients; i++)
            clients[i] = commit_client_at(&value, i);
        ASSERT(commit_encode(shards, value.shards, clients, value.clients, again) == size);
        if (part.parts)
            commit_make_part(again, part);
        ASSERT(memcmp(again, data, size) == 0);
    }
    free(again);
    free(clients);
    free(shards);
    return 0;
}
