/* The parts of a start's scan, each on a thread of its own. */
#include <pthread.h>
#include <sched.h>

#define TEST_FIXTURE open_image, close_image

#include "test/unit/server/image.h"

enum { KEYS = 12, ENTRIES = 6000, LONGS = 300 };

static void *help(void *argument)
{
    struct recover_part *part = argument;
    uint64_t wake_ns = WAKE_NEVER;
    while (part)
        if (!recover_help(&part, 0, &wake_ns))
            sched_yield();
    return NULL;
}

static void recover_threaded(struct image *image)
{
    char why[160];
    bool busy;
    uint64_t wake_ns = WAKE_NEVER;
    pthread_t threads[PARTS];
    int done = recover_create(&image->options, &image->recover, why, sizeof why);
    for (uint32_t i = 1; i < PARTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, help, recover_part(image->recover, i)),
                         0);
    while (!done)
        done = recover_poll(image->recover, 0, &wake_ns, &busy);
    assert_int_equal(done, 1);
    for (uint32_t i = 1; i < PARTS; i++)
        pthread_join(threads[i], NULL);
}

/* Long entries of both shards, their blocks in turn. All are to be copied. */
static void write_parted(struct image *image)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    for (uint32_t i = 0; i < LONGS; i++) {
        const struct entry longs[] = {
            {.shard = LED, .version = v(1 + i), .key = "long", .value_bytes = 5000},
            {.shard = BACKED, .version = v(1 + i), .key = "long", .value_bytes = 5000}};
        for (uint32_t block = 0; block < header_of(image, &longs[0]).blocks; block++)
            for (unsigned which = 0; which < 2; which++)
                write_block(image, &longs[which], block);
    }
}

TEST(parts_on_threads_of_their_own_join_into_one_log)
{
    write_parted(image);
    recover_threaded(image);
    assert_int_equal(recover_counts(image->recover).copied, 2 * LONGS);
    assert_true(store_segments_owned(image->store, OWNER_DIGEST) == 1);
    for (uint32_t which = 0; which < 2; which++) {
        struct shard_state *shard = recover_take(image->recover, which ? BACKED : LED);
        assert_int_equal(shard->suffix.count, LONGS);
        for (uint32_t i = 0; i < LONGS; i++) {
            struct entry_header header;
            const uint64_t offset = shard->suffix.items[i].offset;
            assert_int_equal(entry_verify(&image->common.format, pm_at(image->common.pm, offset),
                                          STORE_SEGMENT_BYTES - offset % STORE_SEGMENT_BYTES,
                                          &header),
                             0);
            assert_true(header.shard == shard->id && header.version == v(1 + i));
        }
        shard_state_destroy(shard);
    }
}

TEST(parts_on_threads_of_their_own_find_what_one_finds)
{
    uint64_t newest[2][KEYS] = {0};
    for (uint32_t i = 0; i < ENTRIES; i++) {
        const uint32_t which = i % 2, key = i / 2 % KEYS;
        char name[16];
        snprintf(name, sizeof name, "key-%u", key);
        if (i % (ENTRIES / (SEGMENTS - 4)) == 0)
            begin_segment(image, i % 3 ? OWNER_WORKER : OWNER_BACKUP_LOG);
        newest[which][key] = write_put(image, which ? BACKED : LED, v(1 + i / 2), name);
    }
    recover_threaded(image);
    assert_int_equal(recover_counts(image->recover).entries, ENTRIES);
    for (uint32_t which = 0; which < 2; which++) {
        struct shard_state *shard = recover_take(image->recover, which ? BACKED : LED);
        assert_true(shard->suffix.count == ENTRIES / 2 && shard->prefix.count == 1 &&
                    shard->prefix.ranges[0].last == v(ENTRIES / 2));
        for (uint32_t key = 0; key < KEYS; key++) {
            char name[16];
            snprintf(name, sizeof name, "key-%u", key);
            assert_true(find(shard, name) == newest[which][key]);
        }
        shard_state_destroy(shard);
    }
}

UNIT_MAIN(NULL, NULL)
