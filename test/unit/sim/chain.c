#include "chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const struct cluster_config *chain_last(const struct chain *chain)
{
    return chain->history[chain->version];
}

static void check_cold_start(struct chain *chain, const struct cluster_config *before,
                             const struct cluster_config *after)
{
    chain->cold_starts++;
    assert_true(after->next_client_id >= before->next_client_id);
    for (uint32_t i = 0; i < before->member_count; i++) {
        uint32_t server = before->members[i].server;
        assert_int_equal(after->members[i].server, server);
        assert_true(after->members[i].incarnation != before->members[i].incarnation);
        assert_true(chain->running[server] != before->members[i].incarnation);
    }
    for (uint32_t i = 0; i < before->shard_count; i++)
        assert_int_equal(after->shards[i].epoch, before->shards[i].epoch + 1);
}

static void check_next(struct chain *chain, const struct cluster_config *before,
                       const struct cluster_config *after)
{
    assert_int_equal(after->term, before->term + 1);
    assert_int_equal(after->cluster, before->cluster);
    assert_true(after->has_secret);
    assert_memory_equal(after->secret, before->secret, sizeof after->secret);
    assert_int_equal(after->member_count, before->member_count);
    assert_int_equal(after->shard_count, before->shard_count);
    if (after->members[0].incarnation != before->members[0].incarnation) {
        check_cold_start(chain, before, after);
        return;
    }
    assert_true(after->next_client_id > before->next_client_id);
    assert_memory_equal(after->members, before->members,
                        after->member_count * sizeof after->members[0]);
    assert_memory_equal(after->shards, before->shards,
                        after->shard_count * sizeof after->shards[0]);
}

void chain_look(struct chain *chain, const struct sim_registry *registry)
{
    const void *value;
    size_t bytes;
    uint64_t version = sim_registry_value(registry, &value, &bytes);
    if (version == chain->version)
        return;
    assert_true(chain->version == 0 || version == chain->version + 1);
    assert_true(version <= CHAIN_MAX);
    struct cluster_config *config;
    assert_int_equal(cluster_decode(value, bytes, &config), 0);
    assert_int_equal(config->term, version);
    if (chain->version > 0)
        check_next(chain, chain_last(chain), config);
    chain->history[version] = config;
    chain->version = version;
}

void chain_has(const struct chain *chain, const struct cluster_config *config)
{
    assert_true(config->term >= 1 && config->term <= chain->version);
    const struct cluster_config *stored = chain->history[config->term];
    assert_non_null(stored);
    size_t bytes = cluster_encoded_bytes(config, false);
    void *is = malloc(bytes), *was = malloc(bytes);
    assert_true(is && was && cluster_encoded_bytes(stored, false) == bytes);
    cluster_encode(config, false, is, bytes);
    cluster_encode(stored, false, was, bytes);
    assert_memory_equal(is, was, bytes);
    free(is);
    free(was);
}

void chain_clear(struct chain *chain)
{
    for (uint64_t i = 1; i <= chain->version; i++)
        cluster_release(chain->history[i]);
    memset(chain, 0, sizeof *chain);
}
