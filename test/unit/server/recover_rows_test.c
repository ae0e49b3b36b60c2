/* What a start makes of its replica rows: damaged ones, and what they say is settled. */
#define TEST_FIXTURE open_image, close_image

#include "test/unit/server/image.h"

/* A byte of each copy of the shard's row. */
static void damage_row(struct image *image, uint16_t shard)
{
    const struct store_geometry at = store_geometry(SEGMENTS);
    for (unsigned i = 0; i < 2; i++)
        image->heap->pm.base[at.replicas[i] + (uint64_t)shard * ROW_BYTES + i] ^= 1;
}

TEST(a_damaged_row_is_no_missing_one_and_stops_nobody_who_does_not_hold_the_shard)
{
    damage_row(image, ELSEWHERE);
    recover(image);
    assert_int_equal(store_replica(image->store, ELSEWHERE).state, REPLICA_NONE);
    recover_destroy(image->recover);
    image->recover = NULL;
    /* Without a run that left data, a missing row would be taken for an empty replica's. */
    image->options.had_run = false;
    damage_row(image, BACKED);
    store_close(image->store);
    open_store(image);
    assert_int_equal(store_replica(image->store, ELSEWHERE).state, REPLICA_NONE);
    assert_int_equal(try_recover(image), ROWAN_EDAMAGED);
    assert_null(image->recover);
}

/* --- what is settled --- */

static void settle(struct image *image, uint64_t version)
{
    store_replica_set(
        image->store, BACKED,
        &(struct replica_row){.state = REPLICA_FULL, .first_epoch = FIRST, .settled = version});
    assert_int_equal(store_replica_sync(image->store), 1);
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, BACKED, v(2), "old");
    write_put(image, BACKED, v(4), "new");
}

static void assert_settled(struct image *image, uint64_t version, uint64_t prefix,
                           const uint64_t *suffix, uint32_t count)
{
    struct shard_state *shard = recover_take(image->recover, BACKED);
    assert_true(atomic_load(&shard->settled) == version && atomic_load(&shard->commit) == version);
    assert_true(shard->prefix.upto == prefix);
    assert_true(find(shard, "old") && find(shard, "new"));
    assert_tail(shard, suffix, count);
    shard_state_destroy(shard);
}

TEST(what_is_settled_and_in_no_segment_is_not_missing)
{
    settle(image, v(3));
    recover(image);
    assert_settled(image, v(3), v(4), (const uint64_t[]){v(4)}, 1);
}

/* Not even what came by a filling, in front of the first epoch. */
TEST(of_possibly_incomplete_data_nothing_of_any_epoch_is_settled)
{
    settle(image, v(3));
    image->options.possibly_incomplete = true;
    recover(image);
    assert_settled(image, version_make(1, 0), version_make(1, 0), (const uint64_t[]){v(2), v(4)},
                   2);
    /* What was cleaned by then is dead for the starts to come. */
    assert_true(store_replica(image->store, BACKED).settled == v(3));
}

TEST(a_settled_version_of_an_epoch_that_is_not_over_tells_nothing)
{
    settle(image, version_make(EPOCH, 1));
    recover(image);
    assert_settled(image, version_make(FIRST, 0), version_make(FIRST, 0),
                   (const uint64_t[]){v(2), v(4)}, 2);
}

/* Both copies. */
TEST(a_row_whose_settled_version_is_torn_counts_for_possibly_incomplete_data_only)
{
    const struct store_geometry at = store_geometry(SEGMENTS);
    settle(image, v(3));
    for (unsigned i = 0; i < 2; i++)
        image->heap->pm.base[at.replicas[i] + BACKED * ROW_BYTES + offsetof(struct row, settled)] ^=
            1;
    store_close(image->store);
    open_store(image);
    assert_int_equal(try_recover(image), ROWAN_EDAMAGED);
    image->options.possibly_incomplete = true;
    recover(image);
    assert_settled(image, version_make(1, 0), version_make(1, 0), (const uint64_t[]){v(2), v(4)},
                   2);
}

static struct {
    uint64_t offset[SEGMENTS], bytes, count;
} flushed;

static void note_flush(struct pm *pm, uint64_t offset, size_t bytes)
{
    (void)pm;
    flushed.offset[flushed.count++] = offset;
    flushed.bytes += bytes;
}

/* They may be in the processor's caches only: the last run was killed before it flushed what it received. */
TEST(the_bytes_of_segments_that_are_not_committed_are_flushed_before_they_count)
{
    struct pm_ops ops = *image->heap->pm.ops;
    flushed.count = flushed.bytes = 0;
    ops.flush = note_flush;
    image->heap->pm.ops = &ops;
    begin_segment(image, OWNER_BACKUP_LOG);
    write_put(image, BACKED, v(1), "committed");
    store_transition(image->store, image->segment, SEGMENT_COMMITTED);
    begin_segment(image, OWNER_BACKUP_LOG);
    uint64_t open = write_put(image, BACKED, v(2), "open");
    recover(image);
    assert_int_equal(flushed.count, 1);
    assert_true(flushed.offset[0] == open && flushed.bytes == STORE_SEGMENT_BYTES);
}

UNIT_MAIN(NULL, NULL)
