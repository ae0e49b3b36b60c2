/* Checkpoints on PM images made by hand: the clean role writes one, and a start takes it, or does without it. */
#include "clean_server.h"
#include "server/store/checkpoint.h"

enum { COVERED = 8, POLLS = 50, CLIENT = 7 };

/* --- one life of a server --- */

static void start_server(struct image *image)
{
    begin_server(image, 1, true);
    leader.has_all = true;
    leader.shards[LED] = led;
    backed->suffix.completed = &backed->completed;
    suffix_drop(&backed->suffix, v(1000)); /* all of it is settled */
    backer.shards[BACKED] = backed;
}

/* Of seconds that the role is given. */
static void run(unsigned seconds)
{
    uint64_t wake_ns = UINT64_MAX;
    for (unsigned i = 0; i < seconds * POLLS; i++, now_ns += NS_PER_S / POLLS) {
        clean_poll(clean, now_ns, &wake_ns);
        worker_client_answer(&leader);
        digest_tail_answer(&backer);
    }
}

static const char *key_of(unsigned number)
{
    static char key[16];
    snprintf(key, sizeof key, "key-%u", number);
    return key;
}

/* Committed segments: in each a put of LED by a client, one of BACKED, and in every second a tombstone. */
static void fill(struct image *image)
{
    for (unsigned i = 0; i < COVERED; i++) {
        begin_segment(image, OWNER_BACKUP_LOG);
        write_entry(image, &(struct entry){.shard = LED,
                                           .version = v(1 + i),
                                           .key = key_of(i),
                                           .value_bytes = 40 * i,
                                           .client = CLIENT,
                                           .operation = 1 + i});
        write_entry(image, &(struct entry){.shard = BACKED,
                                           .version = v(1 + 2 * i),
                                           .key = key_of(i),
                                           .client = CLIENT,
                                           .operation = 101 + i});
        if (i % 2)
            write_entry(image, &(struct entry){.type = ENTRY_DELETE,
                                               .shard = BACKED,
                                               .version = v(2 + 2 * i),
                                               .key = key_of(100 + i)});
        store_transition(image->store, image->segment, SEGMENT_USED);
        store_transition(image->store, image->segment, SEGMENT_COMMITTED);
    }
}

static void write_checkpoint(struct image *image)
{
    fill(image);
    start_server(image);
    run(3);
    assert_int_equal(clean_checkpoints(clean), 1);
    assert_int_equal(store_segments_owned(image->store, OWNER_CHECKPOINT), 1);
}

/* The process ends, and the next one finds that many items in a checkpoint. */
static void restart(struct image *image, unsigned restored)
{
    end_server();
    recover(image);
    assert_int_equal(recover_counts(image->recover).restored, restored);
    take_shards(image);
}

enum { ITEMS = 2 * COVERED + COVERED / 2 };

/* And so many others. */
static void assert_all_found_but(const struct image *image, unsigned others)
{
    for (unsigned i = 0; i < COVERED; i++) {
        uint64_t version = 0;
        assert_int_equal(entry_version(pm_at(image->common.pm, find(led, key_of(i)))), v(1 + i));
        assert_int_equal(entry_version(pm_at(image->common.pm, find(backed, key_of(i)))),
                         v(1 + 2 * i));
        assert_true((find(backed, key_of(100 + i)) != 0) == i % 2);
        assert_int_equal(records_look(&led->records, CLIENT, 1 + i, 0, &version), RECORDS_DONE);
        assert_int_equal(version, v(1 + i));
    }
    assert_int_equal(apply_promote(backed), 0);
    for (unsigned i = 0; i < COVERED; i++)
        assert_int_equal(records_look(&backed->records, CLIENT, 101 + i, 0, &(uint64_t){0}),
                         RECORDS_DONE);
    assert_int_equal(index_items(led->index), COVERED + others);
    assert_int_equal(index_items(backed->index), COVERED + COVERED / 2);
}

static void assert_all_found(const struct image *image)
{
    assert_all_found_but(image, 0);
}

static uint64_t segment_of_checkpoint(const struct image *image)
{
    uint64_t segment = 0;
    while (store_meta(image->store, segment).owner != OWNER_CHECKPOINT)
        segment++;
    return segment;
}

/* --- what a start takes --- */

TEST(a_start_finds_in_a_checkpoint_what_a_scan_would_yield)
{
    uint64_t words[SEGMENTS];
    uint32_t tombstones[SEGMENTS];
    write_checkpoint(image);
    const struct live *before = store_live(image->store);
    for (unsigned i = 0; i < SEGMENTS; i++) {
        words[i] = atomic_load(&before->words[i]);
        tombstones[i] = atomic_load(&before->tombstones[i]);
    }
    restart(image, ITEMS);
    assert_all_found(image);
    const struct live *after = store_live(image->store);
    for (unsigned i = 0; i < SEGMENTS; i++) {
        assert_int_equal(atomic_load(&after->words[i]), words[i]);
        assert_int_equal(atomic_load(&after->tombstones[i]), tombstones[i]);
    }
    assert_int_equal(atomic_load(&backed->commit), v(1000));
    assert_int_equal(recover_counts(image->recover).segments, 1); /* the checkpoint's */
}

TEST(checkpoints_are_written_once_that_is_set)
{
    fill(image);
    start_server(image);
    clean_tune(clean, CLEAN_LIVE_PERCENT, false);
    run(3);
    assert_int_equal(clean_checkpoints(clean), 0);
    clean_tune(clean, CLEAN_LIVE_PERCENT, true);
    run(3);
    assert_int_equal(clean_checkpoints(clean), 1);
}

TEST(what_was_written_since_is_scanned)
{
    write_checkpoint(image);
    begin_segment(image, OWNER_BACKUP_LOG);
    const uint64_t newer = write_put(image, LED, v(50), key_of(0));
    const uint64_t fresh = write_put(image, BACKED, v(51), "fresh");
    restart(image, ITEMS);
    assert_true(find(led, key_of(0)) == newer && find(backed, "fresh") == fresh);
    assert_int_equal(index_items(led->index), COVERED);
}

/* Cleaned, and used again under another number. */
TEST(items_of_segments_in_another_life_are_nothing)
{
    write_checkpoint(image);
    const uint64_t gone = store_segment_at(image->store, find(led, key_of(3)));
    const uint64_t copied = store_segment_at(image->store, find(led, key_of(4)));
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t segment = i ? gone : copied;
        store_transition(image->store, segment, SEGMENT_DIRTY);
        pm_zero(image->common.pm, store_segment_offset(image->store, segment), STORE_SEGMENT_BYTES);
        store_transition(image->store, segment, SEGMENT_FREE);
    }
    do
        begin_segment(image, OWNER_CLEAN);
    while (image->segment != copied);
    const uint64_t copy = write_entry(
        image,
        &(struct entry){.shard = LED, .version = v(5), .key = key_of(4), .value_bytes = 4 * 40});
    restart(image, ITEMS - 2 - 3); /* key 3 and its tombstone among them */
    assert_true(find(led, key_of(4)) == copy);
    assert_true(find(led, key_of(3)) == 0 && find(backed, key_of(3)) == 0);
    assert_int_equal(index_items(led->index), COVERED - 1);
}

/* --- what it does without --- */

/* In each of its blocks. */
TEST(a_checkpoint_of_which_a_bit_is_wrong_is_ignored)
{
    struct entry_header header;
    unsigned blocks = 0;
    write_checkpoint(image);
    uint8_t *base =
        image->heap->pm.base + store_segment_offset(image->store, segment_of_checkpoint(image));
    for (uint32_t at = 0, bytes; entry_decode(&image->common.format, base + at,
                                              STORE_SEGMENT_BYTES - at, &header, &bytes) == 0;
         at += bytes) {
        base[at + 9 + blocks] ^= 4;
        restart(image, 0);
        assert_all_found(image);
        base[at + 9 + blocks] ^= 4;
        blocks++;
    }
    assert_int_equal(header.client_id, CHECKPOINT_END);
    assert_true(blocks > 8);
    restart(image, ITEMS);
}

TEST(a_checkpoint_that_does_not_fit_what_is_held_is_ignored)
{
    write_checkpoint(image);
    /* It has no records of a shard that was another's to lead. */
    struct shard *row = &image->config->shards[1];
    row->primary = 1;
    row->backups[0] = 2;
    restart(image, 0);
    row->primary = 2;
    row->backups[0] = 1;
    restart(image, ITEMS);
    /* The shard has left, and come back. */
    store_replica_set(image->store, BACKED,
                      &(struct replica_row){.state = REPLICA_FULL, .first_epoch = FIRST + 1});
    assert_int_equal(store_replica_sync(image->store), 1);
    restart(image, 0);
}

/* Segments that were a checkpoint's may have been used again, and the host has lost who did. */
TEST(where_data_may_be_incomplete_a_checkpoints_segments_are_like_others)
{
    write_checkpoint(image);
    begin_segment(image, OWNER_CHECKPOINT);
    const uint64_t offset = write_put(image, LED, v(70), "found");
    restart(image, ITEMS);
    assert_true(find(led, "found") == 0);
    image->options.possibly_incomplete = true;
    restart(image, 0);
    assert_all_found_but(image, 1);
    assert_true(find(led, "found") == offset);
    assert_int_equal(store_segments_owned(image->store, OWNER_CHECKPOINT), 0);
    assert_int_equal(store_segments_owned(image->store, OWNER_BACKUP_LOG), COVERED + 2);
}

/* Blocks of 256 B hold 25 items, and chains are long where an index could not grow. */
TEST(a_bucket_that_no_block_takes_whole_is_in_several)
{
    enum { KEYS = 20000 };
    uint64_t buckets, previous;
    fill(image);
    start_server(image);
    begin_segment(image, OWNER_BACKUP_LOG);
    assert_true(index_dump_begin(backed->index, &buckets));
    for (unsigned i = 0; i < KEYS; i++) {
        const char *key = key_of(1000 + i);
        const uint32_t bytes = (uint32_t)strlen(key);
        const uint64_t offset = write_put(image, BACKED, v(100 + i), key);
        assert_int_equal(index_update(backed->index, index_hash(key, bytes), key, bytes, v(100 + i),
                                      offset, &previous),
                         INDEX_INSERTED);
        live_indexed(store_live(image->store), offset, 0);
    }
    index_dump_end(backed->index);
    store_transition(image->store, image->segment, SEGMENT_USED);
    store_transition(image->store, image->segment, SEGMENT_COMMITTED);
    run(20);
    assert_int_equal(clean_checkpoints(clean), 1);
    restart(image, ITEMS + KEYS);
    for (unsigned i = 0; i < KEYS; i++)
        assert_true(find(backed, key_of(1000 + i)) != 0);
}

/* --- when one is whole --- */

TEST(it_is_whole_when_what_it_leaves_out_is_committed)
{
    fill(image);
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, BACKED, v(60),
              key_of(1)); /* the item leads there, and no other to the old one */
    start_server(image);
    atomic_store(&backed->commit, v(59));
    run(3);
    assert_int_equal(clean_checkpoints(clean), 0);
    restart(image, 0);
    start_server(image);
    atomic_store(&backed->commit, v(60));
    run(3);
    assert_int_equal(clean_checkpoints(clean), 1);
    restart(image, ITEMS - 1);
    assert_int_equal(entry_version(pm_at(image->common.pm, find(backed, key_of(1)))), v(60));
}

TEST(the_one_before_goes_when_the_next_is_whole_and_both_when_there_is_no_space)
{
    write_checkpoint(image);
    const uint64_t first = segment_of_checkpoint(image);
    for (unsigned i = 0; i < 2; i++) { /* half of it is new */
        begin_segment(image, OWNER_BACKUP_LOG);
        write_put(image, BACKED, v(40 + i), key_of(40 + i));
        store_transition(image->store, image->segment, SEGMENT_USED);
        store_transition(image->store, image->segment, SEGMENT_COMMITTED);
    }
    run(7);
    assert_int_equal(clean_checkpoints(clean), 1); /* two are not worth it */
    image->common.checkpoint = 1;                  /* as if all were new */
    atomic_fetch_add(&image->common.periods, 1);
    run(7);
    assert_int_equal(clean_checkpoints(clean), 2);
    assert_int_equal(store_meta(image->store, first).state, SEGMENT_FREE);
    assert_int_equal(store_segments_owned(image->store, OWNER_CHECKPOINT), 1);
    atomic_store(&image->common.reserve, SEGMENTS);
    run(1);
    assert_int_equal(store_segments_owned(image->store, OWNER_CHECKPOINT), 0);
    assert_int_equal(image->common.checkpoint, 0);
}

UNIT_MAIN(NULL, NULL)
