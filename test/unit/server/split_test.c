/* split_test.c - a replica copies a shard that is split to the two children, by hand: one log, three indexes. */
#define TEST_FIXTURE set_up, tear_down

#include "common/cluster/slot.h"
#include "server/shard/apply.h"
#include "server/shard/split.h"
#include "test/unit/server/image.h"

enum { PARENT = LED, LOW = 20, HIGH = 21, CLIENT = 5, KEYS = 300, MIDDLE = SLOT_COUNT / 2 };

static struct shard_state *parent, *low, *high;
static struct log own;
static struct split_owner owner;
static uint8_t key_room[ENTRY_MAX_KEY_BYTES];
static uint64_t now_ns;

static struct shard_state *make(struct image *image, uint16_t id, uint16_t first, uint16_t last)
{
    const struct shard row = {
        .id = id, .first_slot = first, .last_slot = last, .epoch = EPOCH, .primary = 2};
    struct shard_state *shard;
    assert_int_equal(shard_state_create(image->common.pm, &image->common.format, &row, 1, &shard),
                     0);
    shard->live = store_live(image->store);
    return shard;
}

/* A backup, in the epoch after the split. Its log has an open segment of before the children came. */
static int set_up(void **state)
{
    uint64_t unused;
    open_image(state);
    struct image *image = *state;
    parent = make(image, PARENT, 0, SLOT_COUNT - 1);
    low = make(image, LOW, 0, MIDDLE - 1);
    high = make(image, HIGH, MIDDLE, SLOT_COUNT - 1);
    parent->commit = version_make(EPOCH, 0);
    log_init(&own, image->store, OWNER_DIGEST, 0);
    assert_int_equal(log_reserve(&own, ENTRY_ALIGN, &unused), 0);
    shard_fill(low, store_allocations(image->store));
    shard_fill(high, store_allocations(image->store));
    owner = (struct split_owner){&image->common, &own, key_room, parent, {low, high}};
    now_ns = NS_PER_S;
    begin_segment(image, OWNER_BACKUP_LOG);
    return 0;
}

static int tear_down(void **state)
{
    shard_state_destroy(parent);
    shard_state_destroy(low);
    shard_state_destroy(high);
    return close_image(state);
}

/* A key whose slot is that one. */
static const char *key_in(uint16_t slot, char key[16])
{
    for (unsigned i = 0; i == 0 || slot_of_key(key, (uint32_t)strlen(key)) != slot; i++)
        snprintf(key, 16, "slot %u", i);
    return key;
}

static uint64_t write_to(struct image *image, struct shard_state *shard, struct entry entry)
{
    entry.shard = shard->id;
    const struct entry_header header = header_of(image, &entry);
    const uint64_t offset = write_entry(image, &entry);
    const struct apply_entry described =
        apply_describe(image->common.pm, &image->common.format, &header, offset, key_room);
    assert_int_equal(apply_entry(shard, &described), 1);
    return offset;
}

static void write_keys(struct image *image)
{
    for (unsigned i = 0; i < KEYS; i++) {
        char key[16];
        snprintf(key, sizeof key, "key %u", i);
        write_to(
            image, parent,
            (struct entry){
                .version = v(1 + i), .key = key, .value_bytes = i * 7 % 1000, .client = CLIENT});
    }
}

/* Until it waits, or all is copied. */
static void run(void)
{
    uint64_t wake_ns = WAKE_NEVER;
    for (unsigned i = 0; i < 10000 && wake_ns == WAKE_NEVER; i++) {
        if (!split_step(&owner, now_ns, &wake_ns))
            break;
    }
}

static bool is_over(void)
{
    uint64_t wake_ns = WAKE_NEVER;
    return split_tells(parent, now_ns, &wake_ns);
}

/* Of the child, in a segment that a start counts, that is closed, and with the value. */
static void assert_copied(struct image *image, const struct shard_state *child, const char *key,
                          uint64_t version, uint32_t value_bytes)
{
    const uint64_t at = find(child, key), segment = store_segment_at(image->store, at);
    struct entry_header header;
    struct entry_piece piece;
    assert_true(at != 0);
    assert_int_equal(entry_verify(&image->common.format, pm_at(image->common.pm, at),
                                  STORE_SEGMENT_BYTES - at % STORE_SEGMENT_BYTES, &header),
                     0);
    assert_int_equal(header.shard, child->id);
    assert_true(header.version == version && header.value_bytes == value_bytes);
    if (entry_value_pieces(&image->common.format, &header, pm_at(image->common.pm, at), 0, &piece,
                           1))
        assert_memory_equal(piece.data, image->value, piece.bytes);
    assert_int_equal(store_meta(image->store, segment).state, SEGMENT_USED);
    assert_true(shard_counts(child, version, image->store, segment));
    assert_true(live_items(store_live(image->store), segment) > 0);
    assert_int_equal(find(child == low ? high : low, key), 0);
}

/* Stubs of that shard in the owner's log; of all operations, or that one. */
static uint32_t stubs(const struct image *image, const struct shard_state *child, uint32_t client,
                      uint32_t operation)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < SEGMENTS; i++) {
        struct entry_scan scan;
        struct entry_header header;
        uint32_t offset, bytes;
        enum entry_scan_result result;
        if (store_meta(image->store, i).owner != OWNER_DIGEST)
            continue;
        entry_scan_init(&scan, &image->common.format,
                        pm_at(image->common.pm, store_segment_offset(image->store, i)),
                        STORE_SEGMENT_BYTES, 0);
        while ((result = entry_scan_next(&scan, false, &header, &offset, &bytes)) != ENTRY_SCAN_END)
            count += result == ENTRY_SCAN_BLOCK && header.type == ENTRY_RECORD &&
                     header.shard == child->id && header.client_id == client &&
                     (!operation || header.operation == operation) &&
                     store_meta(image->store, i).state == SEGMENT_USED &&
                     shard_counts(child, header.version, image->store, i);
    }
    return count;
}

TEST(every_item_is_copied_to_the_child_that_has_its_slot)
{
    static const uint16_t slots[] = {0, MIDDLE - 1, MIDDLE, SLOT_COUNT - 1};
    char key[16];
    write_keys(image);
    for (unsigned i = 0; i < 4; i++)
        write_to(image, parent,
                 (struct entry){.version = v(KEYS + 1 + i), .key = key_in(slots[i], key)});
    run();
    assert_true(is_over() && image->heap->fences > 0);
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "key %u", i);
        assert_copied(image, slot_of_key(key, (uint32_t)strlen(key)) < MIDDLE ? low : high, key,
                      v(1 + i), i * 7 % 1000);
    }
    for (unsigned i = 0; i < 4; i++)
        assert_copied(image, i < 2 ? low : high, key_in(slots[i], key), v(KEYS + 1 + i), 0);
}

TEST(a_backup_of_whose_data_nothing_is_settled_can_show_what_was_copied_and_any_other_need_not)
{
    char in_low[16], in_high[16];
    low->suffix.above = 0; /* as a start leaves it */
    write_to(image, parent,
             (struct entry){.version = v(1), .key = key_in(7, in_low), .client = CLIENT});
    write_to(image, parent, (struct entry){.version = v(2), .key = key_in(MIDDLE, in_high)});
    run();
    assert_true(is_over());
    assert_int_equal(high->suffix.count, 0);
    assert_int_equal(low->suffix.count, 1);
    const struct suffix_item *item = &low->suffix.items[0];
    assert_true(item->version == v(1) && item->offset == find(low, in_low) && item->client == 0);
}

TEST(what_the_child_has_that_is_newer_stays_and_what_was_deleted_stays_away)
{
    const uint64_t newer = version_make(EPOCH, 1);
    char put[16], gone[16];
    write_to(image, parent, (struct entry){.version = v(1), .key = key_in(3, put)});
    write_to(image, parent, (struct entry){.version = v(2), .key = key_in(MIDDLE + 3, gone)});
    write_to(image, parent, (struct entry){ENTRY_DELETE, .version = v(3), .key = "deleted"});
    const uint64_t at = write_to(image, low, (struct entry){.version = newer, .key = put}),
                   tombstone = write_to(
                       image, high, (struct entry){ENTRY_DELETE, .version = newer, .key = gone});
    run();
    assert_true(is_over() && find(low, put) == at && find(high, gone) == tombstone);
    assert_true(find(low, "deleted") == 0 && find(high, "deleted") == 0);
}

/* Whose buckets the first step would visit, were they small. */
TEST(a_step_ends_behind_some_large_values)
{
    enum { LARGE = 24, BUCKET = 7, FEW = (256 << 10) / sizeof image->value + 1 + BUCKET };
    uint64_t wake_ns = WAKE_NEVER;
    char key[16];
    for (unsigned i = 0, written = 0; written < LARGE; i++) {
        snprintf(key, sizeof key, "key %u", i);
        if (index_hash(key, (uint32_t)strlen(key)) % 1024 < 4)
            write_to(image, parent,
                     (struct entry){.version = v(++written),
                                    .key = key,
                                    .value_bytes = (uint32_t)sizeof image->value});
    }
    while (index_items(low->index) + index_items(high->index) == 0)
        assert_true(split_step(&owner, now_ns, &wake_ns));
    assert_in_range(index_items(low->index) + index_items(high->index), 1, FEW);
}

TEST(copying_that_begins_anew_stores_nothing_twice)
{
    write_keys(image);
    run();
    const uint64_t at = find(low, "key 1") + find(high, "key 1"), stores = image->heap->stores;
    split_forget(parent);
    run();
    assert_true(is_over() && find(low, "key 1") + find(high, "key 1") == at);
    assert_true(image->heap->stores < stores + 20); /* of segments */
}

TEST(nothing_is_copied_before_the_epoch_has_begun_in_which_nobody_writes_the_parent)
{
    parent->commit = version_make(EPOCH, 0) - 1;
    run();
    parent->commit = version_make(EPOCH, 0);
    parent->missing = true;
    run();
    parent->missing = false;
    owner.children[1] = NULL; /* on its way */
    run();
    parent->primary = parent->begun = low->begun = true;
    owner.children[1] = high; /* which has inherited nothing */
    run();
    assert_null(parent->splitting);
    high->begun = true;
    run();
    assert_true(is_over());
}

TEST(without_a_segment_copying_waits_and_then_goes_on_and_is_told_again)
{
    uint64_t taken[SEGMENTS], wake_ns = WAKE_NEVER;
    unsigned count = 0;
    write_keys(image);
    while (store_allocate(image->store, OWNER_DIGEST, 0, &taken[count]) == 0)
        count++;
    for (unsigned i = 0; i < 2; i++) { /* one for the copies; one that its end opens */
        run();
        assert_false(split_step(&owner, now_ns, &wake_ns) || is_over());
        assert_in_range(wake_ns, now_ns + 1, now_ns + NS_PER_S);
        now_ns = wake_ns;
        wake_ns = WAKE_NEVER;
        store_transition(image->store, taken[i], SEGMENT_DIRTY);
        store_transition(image->store, taken[i], SEGMENT_FREE);
    }
    run();
    assert_true(is_over() && index_items(low->index) + index_items(high->index) == KEYS);
    now_ns += SPLIT_TELL_NS - 1;
    assert_false(is_over());
    now_ns++;
    assert_true(is_over());
}

TEST(a_damaged_item_keeps_the_parent)
{
    write_keys(image);
    uint8_t *byte = (uint8_t *)pm_at(image->common.pm, find(parent, "key 7")) + ENTRY_HEADER_BYTES;
    *byte ^= 1;
    for (unsigned i = 0; i < 100; i++, now_ns += NS_PER_S) {
        run();
        assert_false(is_over());
        assert_true(atomic_load(&parent->damaged)); /* the manager hears of it */
    }
    *byte ^= 1;
    run();
    assert_true(is_over());
}

TEST(operations_of_a_backup_become_stubs_of_both_children)
{
    enum { MANY = 200 };
    for (uint32_t i = 1; i <= MANY; i++) {
        const struct suffix_item item = {.version = v(i), .client = CLIENT, .operation = i};
        assert_int_equal(suffix_add_item(&parent->suffix, item), 0);
        completed_add(&parent->completed, CLIENT + 1, i, i == 7 ? RECORDS_UNKNOWN : v(MANY + i));
    }
    assert_int_equal(suffix_add(&parent->suffix, v(MANY + 1), 64), 0); /* nobody asks for it */
    run();
    assert_true(is_over());
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(stubs(image, owner.children[i], CLIENT, 0), MANY);
        assert_int_equal(stubs(image, owner.children[i], CLIENT + 1, 0), MANY);
        assert_int_equal(stubs(image, owner.children[i], CLIENT + 1, 7), 1);
        assert_int_equal(stubs(image, owner.children[i], 0, 0), 0);
        assert_int_equal(owner.children[i]->completed.count, 2 * MANY);
    }
}

TEST(operations_that_find_no_place_in_a_child_are_counted)
{
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(records_add(&parent->records, CLIENT + i, 1, v(1 + i)), 0);
    for (uint32_t i = 0; i < RECORDS_MAX_CLIENTS - 1; i++)
        assert_int_equal(records_add(&low->records, CLIENT + 100 + i, 1, v(10)), 0);
    assert_int_equal(split_inherit(low, parent), 2);
    assert_int_equal(split_inherit(high, parent), 0);
}

TEST(operations_of_a_primary_are_inherited_and_become_stubs_but_not_the_childs_own)
{
    uint64_t version;
    parent->primary = low->primary = high->primary = true;
    parent->begun = low->begun = high->begun = true;
    for (uint32_t i = 1; i <= 100; i++)
        assert_int_equal(records_add(&parent->records, CLIENT + i % 3, i, v(i)), 0);
    assert_int_equal(records_add(&parent->records, CLIENT, 200, RECORDS_UNKNOWN), 0);
    records_lowest(&parent->records, CLIENT, 30);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(split_inherit(owner.children[i], parent), 0);
    assert_int_equal(records_add(&high->records, CLIENT + 1, 300, version_make(EPOCH, 1)), 0);
    run();
    assert_true(is_over());
    for (unsigned i = 0; i < 2; i++) {
        struct shard_state *child = owner.children[i];
        assert_int_equal(records_look(&child->records, CLIENT, 99, 30, &version), RECORDS_DONE);
        assert_true(version == v(99));
        assert_int_equal(records_look(&child->records, CLIENT, 12, 12, &version), RECORDS_STALE);
        assert_int_equal(stubs(image, child, CLIENT, 99), 1);
        assert_int_equal(stubs(image, child, CLIENT, 12), 0);
        assert_int_equal(stubs(image, child, CLIENT, 200), 1);
        assert_int_equal(stubs(image, child, CLIENT + 1, 0), 34);
    }
}

UNIT_MAIN(NULL, NULL)
