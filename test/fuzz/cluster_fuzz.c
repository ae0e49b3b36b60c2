/* cluster_fuzz.c - cluster_decode on arbitrary bytes: what it accepts obeys the rules, and encodes to
 * something that decodes to the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/cluster/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_lookups(const struct cluster_config *config)
{
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        ASSERT(cluster_shard(config, shard->id) == shard);
        ASSERT(cluster_shard_of_slot(config, shard->first_slot) == shard);
        ASSERT(cluster_shard_of_slot(config, shard->last_slot) == shard);
        ASSERT(cluster_member(config, shard->primary));
        for (uint32_t j = 0; j < shard->backup_count; j++)
            ASSERT(cluster_member(config, shard->backups[j]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cluster_config *config, *again;
    if (cluster_decode(data, size, &config))
        return 0;
    ASSERT(cluster_finish(config) == 0);
    check_lookups(config);

    size_t bytes = cluster_encoded_bytes(config, true);
    uint8_t *encoded = malloc(bytes);
    uint8_t *encoded_again = malloc(bytes);
    ASSERT(encoded && encoded_again);
    ASSERT(cluster_encode(config, true, encoded, bytes) == bytes);
    ASSERT(cluster_decode(encoded, bytes, &again) == 0);
    ASSERT(cluster_encode(again, true, encoded_again, bytes) == bytes);
    ASSERT(memcmp(encoded, encoded_again, bytes) == 0);
    cluster_release(again);
    free(encoded_again);
    free(encoded);
    cluster_release(config);
    return 0;
}
