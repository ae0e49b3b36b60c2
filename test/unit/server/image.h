/* image.h - PM images made by hand, and a start on them. Include after TEST_FIXTURE. */
#ifndef TEST_UNIT_SERVER_IMAGE_H
#define TEST_UNIT_SERVER_IMAGE_H

#define TEST_STATE struct image *image

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/entry/commit.h"
#include "server/shard/recover.h"
#include "server/store/store_layout.h"
#include "test/lib/heap_pm.h"
#include "test/lib/unit.h"
#include "test/unit/server/format.h"

enum { SEGMENTS = 16, LIMIT = 256, EPOCH = 5, FIRST = 2, PARTS = 3 };
enum { LED = 10, BACKED = 11, ELSEWHERE = 12 };
#define PM_BYTES ((uint64_t)(SEGMENTS + 3) * STORE_SEGMENT_BYTES)

struct image {
    struct heap_pm *heap;
    struct store *store;
    struct server_common common;
    struct cluster_config *config;
    struct recover_options options;
    struct recover *recover;
    uint64_t segment;
    uint32_t suffix; /* of it */
    uint8_t value[40000];
};

static inline struct cluster_config *make_config(uint32_t epoch)
{
    struct cluster_config *config = cluster_create(2, 3);
    assert_non_null(config);
    config->term = 1;
    config->cluster = 77;
    config->block_limit = LIMIT;
    config->replicas = 2;
    for (uint32_t i = 0; i < 2; i++) {
        config->members[i] = (struct member){.server = i + 1, .incarnation = 9 + i, .workers = 1};
        snprintf(config->members[i].address, sizeof config->members[i].address, "sim:%u", i + 1);
    }
    config->shards[0] = (struct shard){.id = LED, .last_slot = 99, .epoch = epoch, .primary = 1};
    config->shards[0].backup_count = 1;
    config->shards[0].backups[0] = 2;
    config->shards[1] = (struct shard){
        .id = BACKED, .first_slot = 100, .last_slot = 199, .epoch = epoch, .primary = 2};
    config->shards[1].backup_count = 1;
    config->shards[1].backups[0] = 1;
    config->shards[2] = (struct shard){.id = ELSEWHERE,
                                       .first_slot = 200,
                                       .last_slot = SLOT_COUNT - 1,
                                       .epoch = epoch,
                                       .primary = 2};
    assert_int_equal(cluster_finish(config), 0);
    return config;
}

static inline void open_store(struct image *image)
{
    const struct store_identity identity = {
        .cluster = 77, .server = 1, .format = {.seed = 1234, .block_limit = LIMIT}};
    assert_int_equal(store_open(&image->heap->pm, &identity, &image->store), 0);
    image->common.store = image->store;
}

static inline int open_image(void **state)
{
    struct image *image = calloc(1, sizeof *image);
    const struct store_identity identity = {
        .cluster = 77, .server = 1, .format = {.seed = 1234, .block_limit = LIMIT}};
    assert_non_null(image);
    log_set_level(LOG_ERROR);
    image->heap = heap_pm_create(PM_BYTES);
    assert_int_equal(store_format(&image->heap->pm, &identity), 0);
    image->common = (struct server_common){
        .server = 1, .pm = &image->heap->pm, .format = {.seed = 1234, .block_limit = LIMIT}};
    open_store(image);
    image->config = make_config(EPOCH);
    image->options = (struct recover_options){.common = &image->common,
                                              .config = image->config,
                                              .had_data = true,
                                              .had_run = true,
                                              .parts = PARTS};
    static const uint16_t shards[] = {LED, BACKED, ELSEWHERE};
    for (unsigned i = 0; i < 3; i++)
        store_replica_set(image->store, shards[i],
                          &(struct replica_row){.state = REPLICA_FULL, .first_epoch = FIRST});
    assert_int_equal(store_replica_sync(image->store), 1);
    for (unsigned i = 0; i < sizeof image->value; i++)
        image->value[i] = (uint8_t)(i * 7 + i / 251);
    *state = image;
    return 0;
}

static inline int close_image(void **state)
{
    struct image *image = *state;
    recover_destroy(image->recover);
    store_close(image->store);
    heap_pm_destroy(image->heap);
    cluster_release(image->config);
    free(image);
    return 0;
}

/* --- writing --- */

static inline void begin_segment(struct image *image, enum segment_owner owner)
{
    assert_int_equal(store_allocate(image->store, owner, 0, &image->segment), 0);
    image->suffix = 0;
}

struct entry {
    enum entry_type type; /* 0: a put */
    uint16_t shard;
    uint64_t version;
    const char *key;
    uint32_t value_bytes, client, operation;
};

static inline struct entry_header header_of(const struct image *image, const struct entry *entry)
{
    uint16_t key_bytes = (uint16_t)strlen(entry->key);
    return (struct entry_header){
        .type = entry->type ? entry->type : ENTRY_PUT,
        .shard = entry->shard,
        .version = entry->version,
        .key_bytes = key_bytes,
        .value_bytes = entry->value_bytes,
        .blocks = (uint16_t)entry_blocks(&image->common.format, key_bytes, entry->value_bytes),
        .client_id = entry->client,
        .operation = entry->operation};
}

/* Block `block` at the end of the segment; its place in the map. */
static inline uint64_t write_block(struct image *image, const struct entry *entry, uint32_t block)
{
    uint8_t bytes[LIMIT];
    struct entry_header header = header_of(image, entry);
    header.block = (uint16_t)block;
    uint32_t count =
        entry_encode_block(&image->common.format, &header, entry->key, image->value, bytes);
    uint64_t offset = store_segment_offset(image->store, image->segment) + image->suffix;
    assert_true(image->suffix + count <= STORE_SEGMENT_BYTES);
    pm_store(image->common.pm, offset, bytes, count);
    image->suffix += count;
    return offset;
}

static inline uint64_t write_entry(struct image *image, const struct entry *entry)
{
    uint64_t offset = write_block(image, entry, 0);
    uint32_t blocks = header_of(image, entry).blocks;
    for (uint32_t i = 1; i < blocks; i++)
        write_block(image, entry, i);
    return offset;
}

static inline uint64_t write_put(struct image *image, uint16_t shard, uint64_t version,
                                 const char *key)
{
    return write_entry(
        image, &(struct entry){.shard = shard, .version = version, .key = key, .value_bytes = 20});
}

/* `part` of a table; or, if that has none, commit versions by themselves. */
static inline void write_part(struct image *image, struct commit_part part,
                              const struct commit_shard *shards, uint32_t shard_count,
                              const struct commit_client *clients, uint32_t client_count)
{
    uint8_t value[LIMIT], bytes[LIMIT];
    const struct entry_header header = {
        .type = ENTRY_COMMIT_VERSIONS,
        .blocks = 1,
        .value_bytes = commit_encode(shards, shard_count, clients, client_count, value)};
    if (part.parts)
        commit_make_part(value, part);
    uint32_t count = entry_encode_block(&image->common.format, &header, NULL, value, bytes);
    pm_store(image->common.pm, store_segment_offset(image->store, image->segment) + image->suffix,
             bytes, count);
    image->suffix += count;
}

static inline void write_commit(struct image *image, uint16_t shard, uint64_t version,
                                uint32_t client, uint32_t lowest)
{
    write_part(image, (struct commit_part){0}, &(struct commit_shard){shard, version}, 1,
               &(struct commit_client){client, lowest}, client != 0);
}

static inline uint64_t v(uint64_t counter)
{
    return version_make(EPOCH - 1, counter);
}

/* --- recovering --- */

static inline int begin_recover(struct image *image, struct recover_part *parts[PARTS])
{
    char why[160];
    int done = recover_create(&image->options, &image->recover, why, sizeof why);
    for (uint32_t i = 1; i < PARTS && !done; i++)
        parts[i] = recover_part(image->recover, i);
    return done;
}

/* Of all parts, until it is over. */
static inline int poll_recover(struct image *image, struct recover_part *parts[PARTS],
                               uint64_t polls)
{
    bool busy;
    uint64_t wake_ns = WAKE_NEVER;
    int done = 0;
    while (!done && polls-- > 0) {
        done = recover_poll(image->recover, 0, &wake_ns, &busy);
        for (uint32_t i = 1; i < PARTS; i++)
            if (parts[i])
                recover_help(&parts[i], 0, &wake_ns);
    }
    return done;
}

static inline int try_recover(struct image *image)
{
    struct recover_part *parts[PARTS] = {0};
    const int error = begin_recover(image, parts);
    return error ? error : poll_recover(image, parts, UINT64_MAX);
}

/* The process ends, and the next one starts. */
static inline void recover(struct image *image)
{
    recover_destroy(image->recover);
    image->recover = NULL;
    store_close(image->store);
    open_store(image);
    assert_int_equal(try_recover(image), 1);
}

/* The offset of the key's newest entry; 0: none. */
static inline uint64_t find(const struct shard_state *shard, const char *key)
{
    uint32_t bytes = (uint32_t)strlen(key);
    return index_find(shard->index, index_hash(key, bytes), key, bytes);
}

static inline void assert_tail(const struct shard_state *shard, const uint64_t *versions,
                               uint32_t count)
{
    assert_int_equal(shard->suffix.count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_true(shard->suffix.items[i].version == versions[i]);
}

#endif
