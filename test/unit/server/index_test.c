/* The index against a model, at each level of its growth, and when there is no memory. */
#include "common/base/error.h"
#include "common/base/random.h"
#include "test/lib/unit.h"
#include "test/unit/server/index_fixture.h"

enum { MIB = 1 << 20 };

/* Inserts key `number` with version 1; the result of index_update. */
static int insert(struct fixture *fixture, uint64_t number)
{
    uint64_t previous;
    return update(fixture, number, 1, append(fixture, number, 1), &previous);
}

TEST(the_hash_is_xxh3_of_the_whole_key)
{
    /* From xxHash's own sanity check: XXH3_64bits of nothing with seed 0. */
    assert_true(index_hash("", 0) == UINT64_C(0x2d06800538d394c2));
    assert_true(index_hash("a", 1) == UINT64_C(0xe6c632b61e964e1f));
}

TEST(a_tombstone_is_found_like_a_put)
{
    struct fixture fixture;
    fixture_init(&fixture, MIB);
    assert_int_equal(insert(&fixture, 1), INDEX_INSERTED);
    uint8_t key[KEY_BYTES];
    entry_log_key(1, key, KEY_BYTES);
    uint64_t tombstone = entry_log_append(&fixture.log, ENTRY_DELETE, key, KEY_BYTES, 0, 2);
    uint64_t previous;
    assert_int_equal(update(&fixture, 1, 2, tombstone, &previous), INDEX_REPLACED);
    assert_true(find(&fixture, 1) == tombstone);
    assert_int_equal(update(&fixture, 1, 1, previous, &previous), INDEX_OLDER);
    assert_true(find(&fixture, 1) == tombstone);
    fixture_fini(&fixture);
}

/* Callers pass the hash, so hashes can be crafted as long as no window has to be renewed. */
TEST(keys_with_one_hash_are_told_apart)
{
    enum { KEYS = 1000 };
    const uint64_t hashes[] = {0, UINT64_MAX, UINT64_C(0x8000000000000123)};
    for (unsigned h = 0; h < sizeof(hashes) / sizeof(hashes[0]); h++) {
        struct fixture fixture;
        fixture_init(&fixture, MIB);
        uint64_t offsets[KEYS], previous;
        uint8_t key[KEY_BYTES];
        for (uint64_t i = 0; i < KEYS; i++) {
            entry_log_key(i, key, KEY_BYTES);
            assert_true(index_find(fixture.index, hashes[h], key, KEY_BYTES) == 0);
            offsets[i] = append(&fixture, i, 1);
            assert_int_equal(
                index_update(fixture.index, hashes[h], key, KEY_BYTES, 1, offsets[i], &previous),
                INDEX_INSERTED);
        }
        for (uint64_t i = 0; i < KEYS; i++) {
            entry_log_key(i, key, KEY_BYTES);
            assert_true(index_find(fixture.index, hashes[h], key, KEY_BYTES) == offsets[i]);
        }
        fixture_fini(&fixture);
    }
}

TEST(long_chains_are_split_in_order)
{
    enum { CHAINED = 60, OTHERS = 200000, LOW_BITS = 14 };
    struct fixture fixture;
    fixture_init(&fixture, 32 * MIB);
    uint64_t chained[CHAINED];
    unsigned count = 0;
    for (uint64_t number = UINT64_C(1) << 40; count < CHAINED; number++)
        if ((key_hash(number) & ((1 << LOW_BITS) - 1)) == 0x2a5) {
            chained[count++] = number;
            assert_int_equal(insert(&fixture, number), INDEX_INSERTED);
        }
    for (uint64_t i = 0; i < OTHERS; i++) {
        assert_int_equal(insert(&fixture, i), INDEX_INSERTED);
        assert_true(find(&fixture, chained[i % CHAINED]) != 0);
    }
    for (uint64_t i = 0; i < OTHERS; i++)
        assert_true(find(&fixture, i) != 0);
    fixture_fini(&fixture);
}

struct model_key {
    uint64_t offset, version; /* of what is indexed; 0: nothing */
};

static void model_step(struct fixture *fixture, struct random *random, struct model_key *model,
                       uint64_t number)
{
    struct model_key *key = &model[number];
    uint64_t previous = 1;
    switch (random_below(random, 8)) {
    case 0: /* swap to a copy */
        if (key->offset) {
            uint64_t copy = append(fixture, number, key->version);
            uint64_t hash = key_hash(number);
            assert_int_equal(index_swap(fixture->index, hash, key->offset, copy), 1);
            assert_int_equal(index_swap(fixture->index, hash, key->offset, copy), 0);
            key->offset = copy;
        }
        return;
    case 1:
    case 2:
    case 3: { /* any version: newer, equal or older */
        uint64_t version =
            version_make((uint32_t)random_below(random, 3), 1 + random_below(random, 20));
        uint64_t offset = append(fixture, number, version);
        int result = update(fixture, number, version, offset, &previous);
        if (key->offset == 0)
            assert_int_equal(result, INDEX_INSERTED);
        else
            assert_int_equal(result, version > key->version ? INDEX_REPLACED : INDEX_OLDER);
        assert_true(previous == (result == INDEX_REPLACED ? key->offset : 0));
        if (result != INDEX_OLDER)
            *key = (struct model_key){offset, version};
        return;
    }
    default:
        assert_true(find(fixture, number) == key->offset);
    }
}

TEST(a_damaged_entry_is_never_taken_for_no_entry)
{
    struct fixture fixture;
    fixture_init(&fixture, MIB);
    uint64_t offset = append(&fixture, 1, 5), previous;
    uint64_t newer = append(&fixture, 1, 6);
    assert_int_equal(update(&fixture, 1, 5, offset, &previous), INDEX_INSERTED);
    uint8_t *entry = fixture.log.heap->pm.base + offset;
    for (uint32_t bit = 0; bit < ENTRY_ALIGN * 8; bit++) {
        entry[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(find(&fixture, 1), offset);
        entry[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* A new put of a key whose entry is damaged goes beside it, and is found. */
    entry[ENTRY_HEADER_BYTES] ^= 1;
    assert_int_equal(update(&fixture, 1, 6, newer, &previous), INDEX_INSERTED);
    assert_int_equal(find(&fixture, 1), newer);
    fixture_fini(&fixture);
}

TEST(random_operations_agree_with_a_model)
{
    enum { KEYS = 150000, OPERATIONS = 1000000 };
    const uint64_t seed = 20260;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct random random;
    random_init(&random, seed);
    struct fixture fixture;
    fixture_init(&fixture, 64 * MIB);
    struct model_key *model = calloc(KEYS, sizeof(*model));
    assert_non_null(model);
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        /* A few keys often, the others evenly. */
        uint64_t range = random_below(&random, 4) == 0 ? 100 : KEYS;
        model_step(&fixture, &random, model, random_below(&random, range));
    }
    uint64_t items = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        assert_true(find(&fixture, i) == model[i].offset);
        items += model[i].offset != 0;
    }
    assert_true(index_items(fixture.index) == items);
    free(model);
    fixture_fini(&fixture);
}

static void find_all(struct fixture *fixture, uint64_t count)
{
    /* insert() lays key i down as entry i, 64 B each. */
    for (uint64_t i = 0; i < count; i++)
        assert_true(find(fixture, i) == (i + 1) * ENTRY_ALIGN);
    for (uint64_t i = count; i < count + 1000; i++)
        assert_true(find(fixture, i) == 0);
}

/* Levels 12 and 18, at which the windows are renewed, lie inside. */
TEST(every_key_is_found_at_every_level_up_to_three_million)
{
    const uint64_t max = 3000000;
    struct fixture fixture;
    fixture_init(&fixture, (max + 1) * ENTRY_ALIGN);
    double most = 0;
    for (uint64_t i = 0; i < max; i++) {
        assert_int_equal(insert(&fixture, i), INDEX_INSERTED);
        uint64_t count = i + 1;
        if (count >= 1000000) {
            double each = (double)index_bytes(fixture.index) / (double)count;
            most = each > most ? each : most;
        }
        /* A round of splits ends and begins at 11/2 items a bucket; and one point inside it. */
        uint64_t round = count * 2 / 11;
        bool ends = count * 2 % 11 < 2 && (round & (round - 1)) == 0 && round >= 1024;
        bool inside = count * 2 % 11 < 2 && round % 3 == 0 && (round / 3 & (round / 3 - 1)) == 0;
        if (ends || inside || count % 1000000 == 0)
            find_all(&fixture, count);
    }
    print_message("# at most %.2f B an object from a million to three\n", most);
    assert_true(most > 64.0 / 7 && most <= 16);
    fixture_fini(&fixture);
}

struct visits {
    uint8_t *times; /* by entry */
    uint64_t total;
};

static void visit_count(void *context, uint64_t offset)
{
    struct visits *visits = context;
    visits->times[offset / ENTRY_ALIGN - 1]++;
    visits->total++;
}

/* Key 2 takes the place of key 1, to which an older look has led. */
TEST(a_removed_item_is_gone_and_hints_of_it_are_no_good)
{
    struct fixture fixture;
    fixture_init(&fixture, MIB);
    uint64_t first = append(&fixture, 1, 1), second = append(&fixture, 2, 1), previous, other = 2;
    while ((key_hash(other) ^ key_hash(1)) % 1024) /* the buckets of a new index */
        second = append(&fixture, ++other, 1);
    assert_int_equal(update(&fixture, 1, 1, first, &previous), INDEX_INSERTED);
    uint8_t key[KEY_BYTES];
    entry_log_key(1, key, KEY_BYTES);
    struct index_hint hint = index_prefetch_entry(
        fixture.index, index_prefetch(fixture.index, key_hash(1)), key_hash(1));
    assert_true(index_confirm(fixture.index, &hint, key_hash(1), key, KEY_BYTES));
    assert_int_equal(index_remove(fixture.index, key_hash(1), second), 0);
    assert_int_equal(index_remove(fixture.index, key_hash(1), first), 1);
    assert_true(find(&fixture, 1) == 0 && index_items(fixture.index) == 0);
    assert_int_equal(update(&fixture, other, 1, second, &previous), INDEX_INSERTED);
    uint64_t third = append(&fixture, 1, 2);
    assert_int_equal(
        index_update_hinted(fixture.index, hint, key_hash(1), key, KEY_BYTES, 2, third, &previous),
        INDEX_INSERTED);
    assert_true(find(&fixture, 1) == third && find(&fixture, other) == second);
    assert_true(index_items(fixture.index) == 2);
    fixture_fini(&fixture);
}

TEST(a_walk_visits_each_item_once)
{
    enum { KEYS = 100000 };
    struct fixture fixture;
    fixture_init(&fixture, 16 * MIB);
    for (uint64_t i = 0; i < KEYS; i++)
        assert_int_equal(insert(&fixture, i), INDEX_INSERTED);
    struct visits visits = {calloc(KEYS, 1), 0};
    assert_non_null(visits.times);
    uint64_t cursor = 0, calls = 1;
    while (index_walk(fixture.index, &cursor, 10, visit_count, &visits))
        calls++;
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(visits.times[i], 1);
    assert_true(visits.total == KEYS);
    assert_true(calls >= KEYS / 6 / 10 && calls <= KEYS / 5 / 10 + 1);
    free(visits.times);
    fixture_fini(&fixture);
}

/* Of half of the items, into an index that goes on growing. */
TEST(what_was_dumped_is_found_where_it_is_restored)
{
    enum { KEYS = 20000 };
    struct fixture fixture;
    struct index *again;
    uint64_t buckets, items[100];
    fixture_init(&fixture, 16 * MIB);
    for (uint64_t i = 0; i < KEYS; i++)
        assert_int_equal(insert(&fixture, i), INDEX_INSERTED);
    assert_true(index_dump_begin(fixture.index, &buckets));
    assert_int_equal(insert(&fixture, KEYS), INDEX_INSERTED); /* and grows no more */
    assert_int_equal(index_create(&fixture.log.heap->pm, &fixture.log.format, &again), 0);
    assert_true(index_can_restore(buckets) && !index_can_restore(1));
    assert_int_equal(index_restore(again, buckets), 0);
    const uint64_t middle = find(&fixture, KEYS / 2);
    uint64_t restored = 0;
    for (uint64_t bucket = 0; bucket < buckets; bucket++) {
        const uint32_t count = index_dump(fixture.index, bucket, items, 100);
        uint32_t kept = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (index_item_offset(items[i]) < middle)
                items[kept++] = items[i];
        }
        assert_int_equal(index_restore_bucket(again, bucket, items, kept), 0);
        restored += kept;
    }
    index_dump_end(fixture.index);
    assert_true(restored == KEYS / 2 && index_items(again) == restored);
    index_destroy(fixture.index);
    fixture.index = again;
    for (uint64_t i = 0; i < KEYS; i++)
        assert_true((find(&fixture, i) != 0) == (i < KEYS / 2));
    for (uint64_t i = KEYS / 2; i < 2 * KEYS; i++)
        assert_int_equal(insert(&fixture, KEYS + i), INDEX_INSERTED);
    for (uint64_t i = 0; i < KEYS / 2; i++)
        assert_true(find(&fixture, i) != 0);
    fixture_fini(&fixture);
}

TEST(without_memory_an_insert_is_refused_and_nothing_changes)
{
    enum { KEYS = 300000 };
    struct fixture fixture;
    fixture_init(&fixture, 32 * MIB);
    uint64_t stored = 0;
    while (stored < 6000)
        assert_int_equal(insert(&fixture, stored++), INDEX_INSERTED);
    uint64_t bytes = index_bytes(fixture.index);
    index_limit(fixture.index, bytes);

    /* Growing waits, chains get longer, and at last an insert needs a bucket that is not there. */
    uint64_t refused = 0;
    for (uint64_t i = stored; i < 20000; i++) {
        uint64_t offset = append(&fixture, i, 1), previous;
        int result = update(&fixture, i, 1, offset, &previous);
        if (result == ROWAN_ENOMEM) {
            refused++;
            assert_true(find(&fixture, i) == 0);
            assert_true(index_items(fixture.index) == i - refused + 1);
        } else {
            assert_int_equal(result, INDEX_INSERTED);
            assert_true(find(&fixture, i) == offset);
        }
    }
    assert_true(refused > 0);
    assert_true(index_bytes(fixture.index) == bytes);
    for (uint64_t i = 0; i < stored; i++)
        assert_true(find(&fixture, i) == (i + 1) * ENTRY_ALIGN);

    /* An update of a key that is there needs no memory. */
    uint64_t newer = append(&fixture, 0, 2), previous;
    assert_int_equal(update(&fixture, 0, 2, newer, &previous), INDEX_REPLACED);

    index_limit(fixture.index, UINT64_MAX);
    for (uint64_t i = 20000; i < KEYS; i++)
        assert_int_equal(insert(&fixture, i), INDEX_INSERTED);
    for (uint64_t i = 20000; i < KEYS; i++)
        assert_true(find(&fixture, i) != 0);
    /* Growth has caught up: the walk sees a bucket for every 5.5 items. */
    uint64_t cursor = 0;
    struct visits visits = {calloc(KEYS + 1, 1), 0};
    assert_non_null(visits.times);
    while (index_walk(fixture.index, &cursor, 64, visit_count, &visits))
        ;
    assert_true(visits.total == index_items(fixture.index));
    assert_true(cursor * 11 >= index_items(fixture.index) * 2 - 11);
    free(visits.times);
    fixture_fini(&fixture);
}

TEST(an_empty_index_is_small)
{
    struct fixture fixture;
    fixture_init(&fixture, MIB);
    assert_true(index_bytes(fixture.index) < 80 * 1024);
    uint64_t cursor = 0;
    struct visits visits = {0};
    assert_false(index_walk(fixture.index, &cursor, 1 << 20, visit_count, &visits));
    assert_true(visits.total == 0);
    fixture_fini(&fixture);
    index_destroy(NULL);
}

UNIT_MAIN(NULL, NULL)
