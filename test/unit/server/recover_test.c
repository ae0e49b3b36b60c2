/* A start's scan. */
#define TEST_FIXTURE open_image, close_image

#include "server/shard/recover_state.h"
#include "test/unit/server/image.h"

TEST(what_was_written_is_found)
{
    begin_segment(image, OWNER_WORKER);
    uint64_t led = write_put(image, LED, v(1), "a");
    begin_segment(image, OWNER_BACKUP_LOG);
    uint64_t backed = write_put(image, BACKED, v(1), "b");
    uint64_t deleted = write_entry(
        image, &(struct entry){.type = ENTRY_DELETE, .shard = BACKED, .version = v(2), .key = "c"});
    recover(image);
    struct shard_state *first = recover_take(image->recover, LED),
                       *second = recover_take(image->recover, BACKED);
    assert_true(first->primary && atomic_load(&first->recovering) && first->epoch == EPOCH);
    assert_false(second->primary || atomic_load(&second->recovering));
    assert_true(find(first, "a") == led && find(first, "b") == 0);
    assert_true(find(second, "b") == backed && find(second, "c") == deleted);
    assert_true(first->prefix.ranges[0].last == v(1) && second->prefix.ranges[0].last == v(2));
    assert_null(recover_take(image->recover, LED)); /* it is ours now */
    assert_null(recover_take(image->recover, ELSEWHERE));
    shard_state_destroy(first);
    shard_state_destroy(second);
}

TEST(garbage_holes_and_torn_blocks_hide_nothing_behind_them)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    image->suffix = 640;
    uint64_t first = write_put(image, BACKED, v(1), "behind-a-hole");
    memset(image->heap->pm.base + first + 128, 0xa5, 1000);
    image->suffix += 1024;
    uint64_t torn = write_put(image, BACKED, v(2), "torn");
    image->heap->pm.base[torn + 40] ^= 1;
    uint64_t last = write_put(image, BACKED, v(3), "behind-garbage");
    image->suffix = STORE_SEGMENT_BYTES - 128;
    uint64_t at_the_end = write_entry(
        image,
        &(struct entry){.shard = BACKED, .version = v(4), .key = "at-the-end", .value_bytes = 80});
    assert_int_equal(image->suffix, STORE_SEGMENT_BYTES);
    recover(image);
    struct shard_state *shard = recover_take(image->recover, BACKED);
    assert_true(find(shard, "behind-a-hole") == first);
    assert_true(find(shard, "torn") == 0);
    assert_true(find(shard, "behind-garbage") == last);
    assert_true(find(shard, "at-the-end") == at_the_end);
    assert_true(recover_counts(image->recover).entries == 3);
    assert_tail(shard, (const uint64_t[]){v(1), v(3), v(4)}, 3);
    assert_true(shard->prefix.upto == version_make(FIRST, 0));
    shard_state_destroy(shard);
}

TEST(the_newest_version_counts_wherever_it_lies)
{
    begin_segment(image, OWNER_WORKER);
    uint64_t newest = write_put(image, LED, v(9), "key");
    write_put(image, LED, v(8), "key");
    begin_segment(image, OWNER_WORKER);
    write_put(image, LED, v(7), "key");
    write_put(image, LED, v(9), "key"); /* sent again */
    recover(image);
    struct shard_state *shard = recover_take(image->recover, LED);
    assert_true(find(shard, "key") == newest);
    assert_tail(shard, (const uint64_t[]){v(7), v(8), v(9)}, 3);
    shard_state_destroy(shard);
}

TEST(dead_and_strange_entries_are_passed_over)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, BACKED, version_make(FIRST - 1, 7), "before-the-replica");
    write_put(image, ELSEWHERE, v(1), "not-held");
    write_put(image, 4711, v(1), "unknown");
    write_put(image, BACKED, version_make(EPOCH, 1), "of-the-coming-epoch");
    write_put(image, BACKED, version_make(EPOCH + 1, 1), "later-still");
    write_commit(image, BACKED, version_make(EPOCH, 3), 0, 0);
    uint64_t good = write_put(image, BACKED, version_make(FIRST, 1), "good");
    recover(image);
    struct recover_counts counts = recover_counts(image->recover);
    assert_true(counts.entries == 1 && counts.passed_over == 3 && counts.strange == 2);
    struct shard_state *shard = recover_take(image->recover, BACKED);
    assert_int_equal(index_items(shard->index), 1);
    assert_true(find(shard, "good") == good);
    assert_true(atomic_load(&shard->commit) == version_make(FIRST, 0));
    shard_state_destroy(shard);
}

/* --- commit versions --- */

TEST(what_a_commit_version_covers_stays_in_the_suffix)
{
    char key[16];
    begin_segment(image, OWNER_BACKUP_LOG);
    for (uint32_t i = 1; i <= 9; i++) {
        snprintf(key, sizeof key, "key-%u", i);
        write_put(image, BACKED, v(i), key);
        if (i == 4)
            write_commit(image, BACKED, v(0), 0, 0);
        if (i == 7)
            write_commit(image, BACKED, v(6), 0, 0);
    }
    recover(image);
    struct shard_state *shard = recover_take(image->recover, BACKED);
    assert_int_equal(index_items(shard->index), 9);
    assert_true(atomic_load(&shard->commit) == v(6) && shard->prefix.upto == v(9));
    assert_tail(shard, (const uint64_t[]){v(1), v(2), v(3), v(4), v(5), v(6), v(7), v(8), v(9)}, 9);
    shard_state_destroy(shard);
}

TEST(a_suffix_is_contiguous_up_to_its_first_hole)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    write_commit(image, BACKED, v(0), 0, 0);
    write_put(image, BACKED, v(1), "a");
    write_put(image, BACKED, v(3), "c");
    write_put(image, BACKED, v(4), "d");
    write_commit(image, BACKED, v(4), 0, 0);
    recover(image);
    struct shard_state *shard = recover_take(image->recover, BACKED);
    assert_true(atomic_load(&shard->commit) == v(4) && shard->prefix.upto == v(1));
    assert_tail(shard, (const uint64_t[]){v(1), v(3), v(4)}, 3);
    shard_state_destroy(shard);
}

/* No digest role could read the entry when its segment was committed. */
TEST(a_suffix_of_which_a_part_may_be_cleaned_is_exposed)
{
    for (unsigned committed = 0; committed < 2; committed++) {
        begin_segment(image, OWNER_BACKUP_LOG);
        write_put(image, LED, v(1 + committed), "k");
        store_transition(image->store, image->segment, SEGMENT_USED);
        if (committed)
            store_transition(image->store, image->segment, SEGMENT_COMMITTED);
        recover(image);
        struct shard_state *shard = recover_take(image->recover, LED);
        assert_int_equal(shard->suffix.count, 1 + committed);
        assert_int_equal(atomic_load(&shard->exposed),
                         committed ? shard->suffix.above : UINT64_MAX);
        shard_state_destroy(shard);
    }
}

TEST(incomplete_data_stay_in_the_suffix)
{
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, BACKED, v(1), "a");
    write_put(image, BACKED, v(2), "b");
    write_commit(image, BACKED, v(2), 0, 0);
    image->options.possibly_incomplete = true;
    recover(image);
    struct shard_state *shard = recover_take(image->recover, BACKED);
    assert_true(atomic_load(&shard->commit) == v(2));
    assert_tail(shard, (const uint64_t[]){v(1), v(2)}, 2);
    shard_state_destroy(shard);
}

TEST(records_are_those_of_led_shards_that_are_not_answered_yet)
{
    uint64_t version = 0;
    begin_segment(image, OWNER_WORKER);
    for (uint32_t i = 1; i <= 5; i++)
        write_entry(image,
                    &(struct entry){
                        .shard = LED, .version = v(i), .key = "key", .client = 70, .operation = i});
    write_commit(image, LED, v(5), 70, 3);
    write_entry(image,
                &(struct entry){
                    .shard = BACKED, .version = v(1), .key = "b", .client = 70, .operation = 9});
    recover(image);
    struct shard_state *led = recover_take(image->recover, LED),
                       *backed = recover_take(image->recover, BACKED);
    assert_true(records_count(&led->records) == 3);
    assert_int_equal(records_look(&led->records, 70, 4, 3, &version), RECORDS_DONE);
    assert_true(version == v(4));
    assert_int_equal(records_look(&led->records, 70, 2, 2, &version), RECORDS_STALE);
    assert_true(records_count(&backed->records) == 0);
    shard_state_destroy(led);
    shard_state_destroy(backed);
}

/* --- long entries --- */

TEST(a_long_entry_in_one_piece_is_indexed_where_it_lies)
{
    begin_segment(image, OWNER_WORKER);
    uint64_t offset = write_entry(
        image, &(struct entry){.shard = LED, .version = v(1), .key = "long", .value_bytes = 30000});
    recover(image);
    struct shard_state *shard = recover_take(image->recover, LED);
    assert_true(find(shard, "long") == offset);
    assert_true(recover_counts(image->recover).copied == 0);
    shard_state_destroy(shard);
}

/* Two long entries with their blocks in turn, over the end of a segment. */
static void write_parted_of(struct image *image, enum segment_owner owner, uint64_t version,
                            uint16_t first, uint16_t second)
{
    const struct entry
        one = {.shard = first, .version = version, .key = "one", .value_bytes = 5000},
        two = {.shard = second, .version = version + 1, .key = "two", .value_bytes = 5000};
    begin_segment(image, owner);
    for (uint32_t i = 0; i < header_of(image, &one).blocks; i++) {
        write_block(image, &one, i);
        if (i == 10)
            begin_segment(image, owner);
        write_block(image, &two, i);
    }
}

static void write_parted(struct image *image)
{
    write_parted_of(image, OWNER_BACKUP_LOG, v(1), BACKED, BACKED);
}

TEST(parted_blocks_are_joined_once)
{
    write_parted(image);
    for (unsigned start = 0; start < 3; start++) {
        recover(image);
        struct recover_counts counts = recover_counts(image->recover);
        struct shard_state *shard = recover_take(image->recover, BACKED);
        assert_true(counts.copied == (start == 0 ? 2 : 0));
        assert_true(store_segments_owned(image->store, OWNER_DIGEST) == 1);
        assert_true(shard->prefix.upto == version_make(FIRST, 0));
        assert_tail(shard, (const uint64_t[]){v(1), v(2)}, 2);
        for (unsigned i = 0; i < 2; i++) {
            uint64_t offset = shard->suffix.items[i].offset;
            assert_true(find(shard, i ? "two" : "one") == offset);
            assert_int_equal(entry_verify(&image->common.format, pm_at(image->common.pm, offset),
                                          STORE_SEGMENT_BYTES - offset % STORE_SEGMENT_BYTES, NULL),
                             0);
        }
        shard_state_destroy(shard);
    }
}

/* Two parts, where one segment is left that is not the clean role's; neither loses or repeats anything while another has
 * the log: first of what is found in copies, then of the rest. */
TEST(all_parts_join_into_one_segment_in_turn)
{
    struct recover_part *parts[PARTS] = {0};
    uint64_t fillers = 0;
    write_parted_of(image, OWNER_DIGEST, v(1), LED, BACKED);
    while (store_segments_free(image->store) > STORE_CLEAN_SEGMENTS + 3) {
        begin_segment(image, OWNER_BACKUP_LOG);
        write_put(image, LED, v(10 + fillers++), "filler");
    }
    write_parted_of(image, OWNER_WORKER, v(3), LED, BACKED);
    write_put(image, ELSEWHERE, v(1), "not-held");
    assert_int_equal(begin_recover(image, parts), 0);
    for (unsigned copied = 0; copied < 4; copied += 2) {
        atomic_store(&image->recover->log_is_in_use, true);
        assert_int_equal(poll_recover(image, parts, 100), 0);
        assert_int_equal(recover_counts(image->recover).copied, copied);
        atomic_store(&image->recover->log_is_in_use, false);
        while (recover_counts(image->recover).copied < copied + 2)
            assert_int_equal(poll_recover(image, parts, 1), 0);
    }
    assert_int_equal(poll_recover(image, parts, UINT64_MAX), 1);
    const struct recover_counts counts = recover_counts(image->recover);
    assert_true(counts.copied == 4 && counts.entries == 4 + fillers && counts.passed_over == 1);
    assert_true(store_segments_owned(image->store, OWNER_DIGEST) == 3);
}

/* As when their sender heard no answer and sent them again. */
TEST(parted_blocks_that_landed_twice_are_joined_once)
{
    write_parted(image);
    write_parted(image);
    recover(image);
    assert_int_equal(recover_counts(image->recover).copied, 2);
}

/* The power went while an entry was copied; the next start copies it again, and all later ones find that copy. */
TEST(a_torn_copy_of_an_entry_hides_no_whole_one)
{
    const struct entry one = {.shard = BACKED, .version = v(1), .key = "one", .value_bytes = 5000};
    write_parted(image);
    begin_segment(image, OWNER_DIGEST);
    for (uint32_t i = 0; i < header_of(image, &one).blocks; i++) {
        if (i == 3)
            image->suffix += LIMIT;
        else
            write_block(image, &one, i);
    }
    for (unsigned start = 0; start < 5; start++) {
        recover(image);
        assert_int_equal(recover_counts(image->recover).copied, start == 0 ? 2 : 0);
        assert_true(store_segments_owned(image->store, OWNER_DIGEST) == 2);
    }
}

/* The empty one is free before its list is applied. */
TEST(copies_behind_an_empty_segment_of_a_log_are_found)
{
    const struct entry one = {.shard = BACKED, .version = v(1), .key = "one", .value_bytes = 5000};
    write_parted(image);
    begin_segment(image, OWNER_DIGEST);
    begin_segment(image, OWNER_DIGEST);
    write_entry(image, &one);
    recover(image);
    assert_int_equal(recover_counts(image->recover).released, 1);
    assert_int_equal(recover_counts(image->recover).copied, 1); /* the other entry */
}

/* The power went twice while the entry was copied: each torn copy has what the other lacks. */
TEST(pieces_of_torn_copies_count_where_no_copy_is_whole)
{
    const struct entry one = {.shard = BACKED, .version = v(1), .key = "one", .value_bytes = 5000};
    const uint32_t blocks = header_of(image, &one).blocks;
    for (uint32_t segment = 0; segment < 2; segment++) {
        begin_segment(image, OWNER_DIGEST);
        for (uint32_t i = 0; i < blocks; i++) {
            if ((i < 2) == (segment == 0))
                write_block(image, &one, i);
        }
    }
    recover(image);
    assert_int_equal(recover_counts(image->recover).copied, 1);
    for (unsigned start = 0; start < 2; start++) {
        recover(image); /* that copy is whole */
        assert_int_equal(recover_counts(image->recover).copied, 0);
    }
}

TEST(a_long_entry_that_lacks_a_block_is_none)
{
    const struct entry entry = {.shard = LED, .version = v(1), .key = "k", .value_bytes = 5000};
    begin_segment(image, OWNER_WORKER);
    for (uint32_t i = 0; i < header_of(image, &entry).blocks; i++) {
        if (i != 3)
            write_block(image, &entry, i);
    }
    recover(image);
    struct shard_state *shard = recover_take(image->recover, LED);
    assert_int_equal(index_items(shard->index), 0);
    assert_int_equal(shard->suffix.count, 0);
    shard_state_destroy(shard);
}

/* --- segments and rows --- */

TEST(segments_are_what_is_in_them)
{
    uint64_t written, empty, torn;
    begin_segment(image, OWNER_WORKER);
    written = image->segment;
    write_put(image, LED, v(1), "a");
    begin_segment(image, OWNER_BACKUP_LOG);
    empty = image->segment;
    begin_segment(image, OWNER_BACKUP_LOG);
    torn = image->segment;
    image->heap->pm.base[store_segment_offset(image->store, torn) + 5000] = 1;
    recover(image);
    assert_int_equal(store_meta(image->store, written).state, SEGMENT_USED);
    assert_int_equal(store_meta(image->store, empty).state, SEGMENT_FREE);
    assert_int_equal(store_meta(image->store, torn).state, SEGMENT_USED);
    assert_true(recover_counts(image->recover).released == 1);
}

/* It was removed, and joins again: what it has is nobody's. */
TEST(who_holds_no_shard_scans_nothing_unless_something_is_torn)
{
    begin_segment(image, OWNER_WORKER);
    write_put(image, LED, v(1), "a");
    for (uint32_t i = 0; i < image->config->shard_count; i++) {
        struct shard *row = &image->config->shards[i];
        row->primary = 2;
        row->backup_count = 0;
    }
    recover(image);
    assert_int_equal(recover_counts(image->recover).segments, 1);
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, BACKED, v(1), "b");
    const uint64_t written = image->segment;
    image->options.verified = true;
    recover(image);
    assert_int_equal(recover_counts(image->recover).segments, 0);
    assert_int_equal(store_meta(image->store, written).state, SEGMENT_USED);
    assert_int_equal(store_replica(image->store, LED).state, REPLICA_NONE);
}

TEST(dirty_segments_are_zeroed_and_others_only_after_a_reboot)
{
    uint8_t *base = image->heap->pm.base;
    begin_segment(image, OWNER_WORKER);
    uint64_t dirty = image->segment, stale = SEGMENTS - 1;
    write_put(image, LED, v(1), "dead");
    store_transition(image->store, dirty, SEGMENT_DIRTY);
    uint64_t place = store_segment_offset(image->store, stale) + STORE_SEGMENT_BYTES - 1;
    base[place] = 1;
    recover(image);
    assert_int_equal(store_meta(image->store, dirty).state, SEGMENT_FREE);
    assert_true(store_segment_is_zero(image->store, dirty, 0, STORE_SEGMENT_BYTES));
    assert_true(recover_counts(image->recover).zeroed == 1 && base[place] == 1);

    image->options.rebooted = true;
    recover(image);
    assert_int_equal(store_meta(image->store, stale).state, SEGMENT_FREE);
    assert_true(recover_counts(image->recover).zeroed == 1 && base[place] == 0);
    assert_true(store_segments_free(image->store) == SEGMENTS);
}

TEST(rows_name_the_shards_that_are_held)
{
    recover(image);
    assert_int_equal(store_replica(image->store, LED).first_epoch, FIRST);
    assert_int_equal(store_replica(image->store, BACKED).state, REPLICA_FULL);
    assert_int_equal(store_replica(image->store, ELSEWHERE).state, REPLICA_NONE);
}

TEST(a_replica_that_is_not_there_is_not_made_up)
{
    store_replica_set(image->store, BACKED, &(struct replica_row){.state = REPLICA_NONE});
    assert_int_equal(try_recover(image), ROWAN_EDAMAGED);
    assert_null(image->recover);
    /* A store that was formatted and never ran: nothing was acknowledged on it. */
    image->options.had_run = false;
    assert_int_equal(try_recover(image), 1);
    recover_destroy(image->recover);
    image->recover = NULL;
    /* One that was not there when the server started. */
    store_replica_set(image->store, BACKED, &(struct replica_row){.state = REPLICA_NONE});
    image->options.had_data = false;
    assert_int_equal(try_recover(image), ROWAN_EDAMAGED);
}

TEST(a_new_cluster_has_nothing_to_unite)
{
    cluster_release(image->config);
    image->options.config = image->config = make_config(1);
    image->options.had_data = image->options.had_run = false;
    store_replica_set(image->store, LED, &(struct replica_row){.state = REPLICA_NONE});
    store_replica_set(image->store, BACKED, &(struct replica_row){.state = REPLICA_NONE});
    recover(image);
    struct shard_state *shard = recover_take(image->recover, LED);
    assert_false(atomic_load(&shard->recovering));
    assert_true(atomic_load(&shard->commit) == version_make(1, 0) &&
                shard->prefix.upto == version_make(1, 0));
    assert_int_equal(store_replica(image->store, LED).first_epoch, 1);
    shard_state_destroy(shard);
}

UNIT_MAIN(NULL, NULL)
