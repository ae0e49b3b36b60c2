/* What a start makes of what a cleaner left: record stubs, copies, and workers' tables of clients. */
#define TEST_FIXTURE open_image, close_and_forget

#include "test/unit/server/image.h"

static int close_and_forget(void **state);

enum { ALSO_LED = ELSEWHERE };

/* Shard ELSEWHERE is led here, too. */
static void lead_both(struct image *image)
{
    image->config->shards[2].primary = 1;
}

static void write_stub(struct image *image, uint16_t shard, uint64_t version, uint32_t client,
                       uint32_t operation)
{
    write_entry(image, &(struct entry){.type = ENTRY_RECORD,
                                       .shard = shard,
                                       .version = version,
                                       .key = "",
                                       .client = client,
                                       .operation = operation});
}

static uint64_t write_of(struct image *image, uint16_t shard, uint64_t version, uint32_t client,
                         uint32_t operation)
{
    char key[16];
    snprintf(key, sizeof key, "%u", operation);
    return write_entry(image, &(struct entry){.shard = shard,
                                              .version = version,
                                              .key = key,
                                              .client = client,
                                              .operation = operation});
}

/* A table in one part that names one client. */
static void begin_with_table(struct image *image, uint16_t shard, uint64_t upto, uint32_t client,
                             uint32_t lowest)
{
    begin_segment(image, OWNER_WORKER);
    write_part(image, (struct commit_part){.parts = 1}, &(struct commit_shard){shard, upto}, 1,
               &(struct commit_client){client, lowest}, 1);
}

static struct {
    struct shard_state *shard[3];
} kept; /* of the last start, by id */

static void forget_taken(void)
{
    for (unsigned i = 0; i < 3; i++)
        shard_state_destroy(kept.shard[i]);
    memset(&kept, 0, sizeof kept);
}

/* The next start; what the last one found is forgotten. */
static void start(struct image *image)
{
    forget_taken();
    recover(image);
}

static struct shard_state *taken(struct image *image, uint16_t shard)
{
    struct shard_state **place = &kept.shard[shard - LED];
    if (!*place)
        *place = recover_take(image->recover, shard);
    return *place;
}

/* The version in the completion record; 0: there is none. */
static uint64_t record_of(struct image *image, uint16_t shard, uint32_t client, uint32_t operation)
{
    struct records *records = &taken(image, shard)->records;
    uint64_t version = 0;
    return records_look(records, client, operation, 0, &version) == RECORDS_DONE ? version : 0;
}

static int close_and_forget(void **state)
{
    forget_taken();
    return close_image(state);
}

/* --- stubs --- */

TEST(a_stub_gives_back_a_completion_record_and_nothing_else)
{
    begin_segment(image, OWNER_CLEAN);
    write_stub(image, LED, v(3), 7, 4);
    write_stub(image, BACKED, v(3), 7, 5);
    write_stub(image, LED, version_make(FIRST - 1, 3), 7, 6);
    write_stub(image, LED, version_make(EPOCH, 3), 7, 8);
    start(image);
    assert_true(record_of(image, LED, 7, 4) == v(3));
    assert_true(record_of(image, LED, 7, 6) == 0 && record_of(image, LED, 7, 8) == 0);
    const struct recover_counts counts = recover_counts(image->recover);
    assert_true(counts.records == 1 && counts.passed_over == 1 && counts.strange == 1);
    for (unsigned i = 0; i < 2; i++) {
        struct shard_state *shard = taken(image, i ? BACKED : LED);
        assert_int_equal(index_items(shard->index), 0);
        assert_int_equal(shard->suffix.count, 0);
        assert_true(shard->prefix.upto == version_make(FIRST, 0) && shard->prefix.count == 0);
        assert_int_equal(records_count(&shard->records), i == 0);
    }
}

/* --- tables --- */

TEST(a_table_tells_whose_records_are_needed_up_to_its_version)
{
    begin_segment(image, OWNER_CLEAN);
    write_of(image, LED, v(1), 7, 4); /* below the lowest */
    write_of(image, LED, v(2), 7, 5); /* the lowest */
    write_of(image, LED, v(3), 8, 9); /* of nobody that is named */
    write_stub(image, LED, v(4), 7, 3);
    write_stub(image, LED, v(5), 7, 6);
    write_stub(image, LED, v(6), 8, 10);
    write_of(image, LED, v(11), 8, 11); /* behind what the table speaks of */
    begin_with_table(image, LED, v(10), 7, 5);
    start(image);
    assert_true(record_of(image, LED, 7, 4) == 0 && record_of(image, LED, 7, 5) == v(2));
    assert_true(record_of(image, LED, 8, 9) == 0 && record_of(image, LED, 7, 3) == 0);
    assert_true(record_of(image, LED, 7, 6) == v(5) && record_of(image, LED, 8, 10) == 0);
    assert_true(record_of(image, LED, 8, 11) == v(11));
    assert_int_equal(recover_counts(image->recover).entries, 4);
    assert_int_equal(recover_counts(image->recover).strange, 0);
    /* Its versions are none that are committed. */
    assert_true(atomic_load(&taken(image, LED)->commit) == version_make(FIRST, 0));
}

static void tell_lowest(void *context, uint32_t client, uint32_t lowest)
{
    assert_int_equal(client, 7);
    *(uint32_t *)context = lowest;
}

/* The next table tells it, too. */
TEST(the_lowest_number_that_a_table_tells_is_known_after_the_start)
{
    uint32_t lowest = 0;

    begin_segment(image, OWNER_CLEAN);
    write_of(image, LED, v(1), 7, 4);
    write_of(image, LED, v(2), 7, 6);
    begin_with_table(image, LED, v(3), 7, 5);
    start(image);
    records_each(&taken(image, LED)->records, tell_lowest, &lowest);
    assert_int_equal(lowest, 5);
}

TEST(of_two_whole_tables_the_newer_counts_and_an_older_one_where_it_is_torn)
{
    begin_with_table(image, LED, v(5), 7, 1);
    write_of(image, LED, v(1), 7, 1);
    write_of(image, LED, v(2), 8, 2);
    begin_with_table(image, LED, v(9), 8, 1);
    start(image);
    assert_true(record_of(image, LED, 7, 1) == 0 && record_of(image, LED, 8, 2) == v(2));

    uint8_t *newer = image->heap->pm.base + store_segment_offset(image->store, image->segment);
    newer[40] ^= 1;
    start(image);
    assert_true(record_of(image, LED, 7, 1) == v(1) && record_of(image, LED, 8, 2) == 0);

    image->heap->pm.base[store_segment_offset(image->store, image->segment - 1) + 40] ^= 1;
    start(image); /* none is whole */
    assert_true(record_of(image, LED, 7, 1) == v(1) && record_of(image, LED, 8, 2) == v(2));
}

TEST(a_table_counts_only_if_all_its_parts_are_there)
{
    const struct commit_shard shard = {LED, v(9)};
    begin_with_table(image, LED, v(9), 7, 1);
    write_of(image, LED, v(1), 7, 1);
    write_of(image, LED, v(2), 8, 1);
    write_of(image, LED, v(3), 9, 1);
    begin_segment(image, OWNER_WORKER);
    write_part(image, (struct commit_part){0, 3}, &shard, 1, NULL, 0);
    const uint32_t middle = image->suffix;
    write_part(image, (struct commit_part){1, 3}, NULL, 0, &(struct commit_client){8, 1}, 1);
    write_part(image, (struct commit_part){2, 3}, NULL, 0, &(struct commit_client){9, 1}, 1);
    start(image);
    assert_true(record_of(image, LED, 7, 1) == 0 && record_of(image, LED, 8, 1) == v(2) &&
                record_of(image, LED, 9, 1) == v(3));
    image->heap->pm.base[store_segment_offset(image->store, image->segment) + middle + 36] ^= 1;
    start(image);
    assert_true(record_of(image, LED, 7, 1) == v(1) && record_of(image, LED, 8, 1) == 0 &&
                record_of(image, LED, 9, 1) == 0);
    begin_segment(image, OWNER_WORKER); /* the last part alone */
    write_part(image, (struct commit_part){1, 2}, &shard, 1, &(struct commit_client){9, 1}, 1);
    start(image);
    assert_true(record_of(image, LED, 7, 1) == v(1) && record_of(image, LED, 9, 1) == 0);
}

/* The one that leads a shard now may have opened its first segment before it led that. */
TEST(each_shard_has_the_newest_table_that_speaks_for_it)
{
    lead_both(image);
    begin_segment(image, OWNER_BACKUP_LOG); /* no worker's head */
    write_of(image, LED, v(1), 7, 1);
    write_of(image, LED, v(2), 8, 2);
    write_of(image, ALSO_LED, v(1), 7, 1);
    write_of(image, ALSO_LED, v(2), 8, 2);
    begin_with_table(image, ALSO_LED, v(9), 8, 1);
    begin_with_table(image, LED, v(5), 8, 1);
    begin_with_table(image, LED, v(9), 7, 1);
    begin_with_table(image, BACKED, v(9), 9, 1);
    begin_with_table(image, LED, version_make(EPOCH, 9), 9, 1); /* of an epoch that is to come */
    start(image);
    assert_true(record_of(image, LED, 7, 1) == v(1) && record_of(image, LED, 8, 2) == 0);
    assert_true(record_of(image, ALSO_LED, 7, 1) == 0 && record_of(image, ALSO_LED, 8, 2) == v(2));
}

/* --- copies --- */

static void settle(struct image *image, uint64_t version)
{
    store_replica_set(
        image->store, BACKED,
        &(struct replica_row){.state = REPLICA_FULL, .first_epoch = FIRST, .settled = version});
    assert_int_equal(store_replica_sync(image->store), 1);
}

/* They lie in a segment that was allocated late, in any order. */
TEST(what_a_cleaner_copied_is_in_the_index_and_lies_below_the_prefix)
{
    settle(image, v(7));
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, BACKED, v(8), "new");
    begin_segment(image, OWNER_CLEAN);
    const uint64_t five = write_put(image, BACKED, v(5), "five");
    write_put(image, BACKED, v(6), "new");
    const uint64_t one = write_put(image, BACKED, v(1), "one");
    start(image);
    struct shard_state *shard = taken(image, BACKED);
    assert_true(find(shard, "five") == five && find(shard, "one") == one);
    assert_int_equal(entry_version(pm_at(image->common.pm, find(shard, "new"))), v(8));
    assert_true(shard->prefix.upto == v(8) && shard->prefix.count == 0);
    assert_tail(shard, (const uint64_t[]){v(8)}, 1);
}

/* The blocks lie apart in the backup log, and whole copies in a digest log, a cleaner's, or both; a torn one hides none. */
TEST(a_long_entry_that_a_cleaner_copied_is_not_copied_again)
{
    const struct entry one = {.shard = BACKED, .version = v(1), .key = "one", .value_bytes = 5000};
    const uint32_t blocks = header_of(image, &one).blocks;
    for (unsigned doubt = 0; doubt < 2; doubt++) {
        settle(image, v(1));
        image->options.possibly_incomplete = doubt;
        if (!doubt) {
            begin_segment(image, OWNER_BACKUP_LOG);
            for (uint32_t i = blocks; i > 0; i--)
                write_block(image, &one, i - 1);
            begin_segment(image, OWNER_DIGEST);
            for (uint32_t i = 1; i < blocks; i++) /* torn */
                write_block(image, &one, i);
            begin_segment(image, OWNER_CLEAN);
            write_entry(image, &one);
            begin_segment(image, OWNER_CLEAN);
            write_entry(image, &one);
            for (uint32_t i = 0; i + 1 < blocks; i++) /* torn */
                write_block(image, &one, i);
        }
        start(image);
        struct shard_state *shard = taken(image, BACKED);
        assert_int_equal(recover_counts(image->recover).copied, 0);
        const uint64_t offset = find(shard, "one");
        assert_int_equal(entry_verify(&image->common.format, pm_at(image->common.pm, offset),
                                      STORE_SEGMENT_BYTES - offset % STORE_SEGMENT_BYTES, NULL),
                         0);
        assert_int_equal(shard->suffix.count, doubt);
    }
}

UNIT_MAIN(NULL, NULL)
