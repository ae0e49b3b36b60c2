/* index_fixture.h - an index of entries in a log, asked for keys by their numbers. Include after cmocka.h. */
#ifndef UNIT_SERVER_INDEX_FIXTURE_H
#define UNIT_SERVER_INDEX_FIXTURE_H

#include "server/index/index.h"
#include "test/lib/entry_log.h"

enum { KEY_BYTES = 16 };

struct fixture {
    struct entry_log log;
    struct index *index;
};

static inline void fixture_init(struct fixture *fixture, uint64_t pm_bytes)
{
    entry_log_init(&fixture->log, pm_bytes);
    assert_int_equal(index_create(&fixture->log.heap->pm, &fixture->log.format, &fixture->index),
                     0);
}

static inline void fixture_fini(struct fixture *fixture)
{
    index_destroy(fixture->index);
    entry_log_fini(&fixture->log);
}

static inline uint64_t key_hash(uint64_t number)
{
    uint8_t key[KEY_BYTES];
    entry_log_key(number, key, KEY_BYTES);
    return index_hash(key, KEY_BYTES);
}

static inline uint64_t append(struct fixture *fixture, uint64_t number, uint64_t version)
{
    uint8_t key[KEY_BYTES];
    entry_log_key(number, key, KEY_BYTES);
    return entry_log_append(&fixture->log, ENTRY_PUT, key, KEY_BYTES, 16, version);
}

static inline int update(struct fixture *fixture, uint64_t number, uint64_t version,
                         uint64_t offset, uint64_t *previous)
{
    uint8_t key[KEY_BYTES];
    entry_log_key(number, key, KEY_BYTES);
    return index_update(fixture->index, index_hash(key, KEY_BYTES), key, KEY_BYTES, version, offset,
                        previous);
}

static inline uint64_t find(struct fixture *fixture, uint64_t number)
{
    uint8_t key[KEY_BYTES];
    entry_log_key(number, key, KEY_BYTES);
    return index_find(fixture->index, index_hash(key, KEY_BYTES), key, KEY_BYTES);
}

#endif
