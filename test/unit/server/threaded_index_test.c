/* Lookups, walks and swaps in other threads while the owner inserts, replaces and grows. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "common/base/error.h"
#include "common/base/random.h"
#include "test/lib/unit.h"
#include "test/unit/server/index_fixture.h"

#ifdef __SANITIZE_THREAD__ /* gcc's name */
#define UNDER_TSAN 1
#elif defined(__has_feature)
#define UNDER_TSAN __has_feature(thread_sanitizer)
#else
#define UNDER_TSAN 0
#endif

enum {
    READERS = 2,
    LESS = UNDER_TSAN ? 5 : 1, /* there a million inserts take half a minute */
    GROWN_KEYS = 1000000 / LESS,
};

/* Keys 0 .. `inserted` - 1 are in the index; key i's first entry is number i + 1 of the log. */
struct stage {
    struct fixture fixture;
    _Atomic uint64_t inserted;
    _Atomic uint64_t ready; /* threads that have begun */
    _Atomic uint64_t wrong; /* what threads saw that must not be */
    _Atomic bool over;
};

static void stage_init(struct stage *stage, uint64_t entries)
{
    fixture_init(&stage->fixture, (entries + 1) * ENTRY_ALIGN);
    atomic_init(&stage->inserted, 0);
    atomic_init(&stage->ready, 0);
    atomic_init(&stage->wrong, 0);
    atomic_init(&stage->over, false);
}

static void stage_fini(struct stage *stage)
{
    fixture_fini(&stage->fixture);
}

static int stage_update(struct stage *stage, uint64_t number, uint64_t version)
{
    uint64_t offset = append(&stage->fixture, number, version), previous;
    return update(&stage->fixture, number, version, offset, &previous);
}

static void stage_insert(struct stage *stage, uint64_t until)
{
    for (uint64_t i = atomic_load(&stage->inserted); i < until; i++) {
        assert_int_equal(stage_update(stage, i, 1), INDEX_INSERTED);
        atomic_store_explicit(&stage->inserted, i + 1, memory_order_release);
    }
}

static void start(pthread_t *thread, void *(*run)(void *), struct stage *stage)
{
    assert_int_equal(pthread_create(thread, NULL, run, stage), 0);
}

static void wait_ready(struct stage *stage, uint64_t threads)
{
    while (atomic_load(&stage->ready) < threads)
        sched_yield();
}

static void *reader_run(void *argument)
{
    struct stage *stage = argument;
    struct random random;
    random_init(&random, 1 + atomic_fetch_add(&stage->ready, 1));
    uint64_t wrong = 0;
    while (!atomic_load_explicit(&stage->over, memory_order_relaxed)) {
        uint64_t inserted = atomic_load_explicit(&stage->inserted, memory_order_acquire);
        if (inserted == 0)
            continue;
        uint64_t number = random_below(&random, inserted);
        wrong += find(&stage->fixture, number) != (number + 1) * ENTRY_ALIGN;
        wrong += find(&stage->fixture, inserted + (UINT64_C(1) << 32)) != 0;
    }
    atomic_fetch_add(&stage->wrong, wrong);
    return NULL;
}

TEST(readers_find_every_inserted_key_while_the_table_grows)
{
    struct stage stage;
    stage_init(&stage, GROWN_KEYS);
    pthread_t readers[READERS];
    for (unsigned i = 0; i < READERS; i++)
        start(&readers[i], reader_run, &stage);
    wait_ready(&stage, READERS);
    stage_insert(&stage, GROWN_KEYS);
    atomic_store(&stage.over, true);
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    assert_true(atomic_load(&stage.wrong) == 0);
    stage_fini(&stage);
}

enum { HOT_KEYS = 64 };

/* Versions of a key never go back in what one reader sees. */
static void *version_reader_run(void *argument)
{
    struct stage *stage = argument;
    struct random random;
    random_init(&random, 1 + atomic_fetch_add(&stage->ready, 1));
    uint64_t seen[HOT_KEYS] = {0}, wrong = 0;
    while (!atomic_load_explicit(&stage->over, memory_order_relaxed)) {
        uint64_t number = random_below(&random, HOT_KEYS);
        uint64_t offset = find(&stage->fixture, number);
        if (offset == 0) {
            wrong++;
            continue;
        }
        struct entry_header header;
        entry_peek(pm_at(&stage->fixture.log.heap->pm, offset), &header);
        wrong += header.version < seen[number];
        seen[number] = header.version;
    }
    atomic_fetch_add(&stage->wrong, wrong);
    return NULL;
}

TEST(readers_never_see_a_version_go_back)
{
    enum { ROUNDS = 200000 / LESS };
    struct stage stage;
    stage_init(&stage, HOT_KEYS + 2 * ROUNDS);
    stage_insert(&stage, HOT_KEYS);
    pthread_t readers[READERS];
    for (unsigned i = 0; i < READERS; i++)
        start(&readers[i], version_reader_run, &stage);
    wait_ready(&stage, READERS);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        assert_int_equal(stage_update(&stage, i % HOT_KEYS, 2 + i), INDEX_REPLACED);
        assert_int_equal(stage_update(&stage, HOT_KEYS + i, 1), INDEX_INSERTED);
    }
    atomic_store(&stage.over, true);
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    assert_true(atomic_load(&stage.wrong) == 0);
    stage_fini(&stage);
}

enum { SWAPPED_KEYS = 4000, SWAP_KEYS_MORE = 300000 / LESS };

/* Moves each key between its first entry and a copy, as a cleaner would. The copies lie behind the
 * first entries. */
static void *swapper_run(void *argument)
{
    struct stage *stage = argument;
    struct random random;
    random_init(&random, 1 + atomic_fetch_add(&stage->ready, 1));
    uint64_t wrong = 0;
    bool moved[SWAPPED_KEYS] = {false};
    while (!atomic_load_explicit(&stage->over, memory_order_relaxed)) {
        uint64_t number = random_below(&random, SWAPPED_KEYS);
        uint64_t first = (number + 1) * ENTRY_ALIGN;
        uint64_t copy = first + (uint64_t)SWAPPED_KEYS * ENTRY_ALIGN;
        uint64_t from = moved[number] ? copy : first, to = moved[number] ? first : copy;
        int result = index_swap(stage->fixture.index, key_hash(number), from, to);
        if (result == ROWAN_EAGAIN)
            continue;
        wrong += result != 1;
        moved[number] = !moved[number];
        wrong += find(&stage->fixture, number) != to;
        wrong += index_swap(stage->fixture.index, key_hash(number), from, to) == 1;
    }
    for (uint64_t i = 0; i < SWAPPED_KEYS; i++) {
        uint64_t first = (i + 1) * ENTRY_ALIGN;
        uint64_t copy = first + (uint64_t)SWAPPED_KEYS * ENTRY_ALIGN;
        wrong += find(&stage->fixture, i) != (moved[i] ? copy : first);
    }
    atomic_fetch_add(&stage->wrong, wrong);
    return NULL;
}

TEST(swaps_and_splits_lose_nothing_of_each_other)
{
    struct stage stage;
    stage_init(&stage, 2 * SWAPPED_KEYS + SWAP_KEYS_MORE);
    stage_insert(&stage, SWAPPED_KEYS);
    for (uint64_t i = 0; i < SWAPPED_KEYS; i++)
        append(&stage.fixture, i, 1);
    pthread_t swapper;
    start(&swapper, swapper_run, &stage);
    wait_ready(&stage, 1);
    for (uint64_t i = 0; i < SWAP_KEYS_MORE; i++)
        assert_int_equal(stage_update(&stage, SWAPPED_KEYS + i, 1), INDEX_INSERTED);
    atomic_store(&stage.over, true);
    pthread_join(swapper, NULL);
    assert_true(atomic_load(&stage.wrong) == 0);
    /* The gate is open again. */
    uint64_t offset = find(&stage.fixture, 0);
    assert_int_equal(index_swap(stage.fixture.index, key_hash(0), offset, offset), 1);
    stage_fini(&stage);
}

/* Few, so that a split often has the bucket of one that is taken out. */
enum { REMOVED_KEYS = 512, REMOVED_BATCH = 8, REMOVED_ROUNDS = 2000 / LESS };

static uint64_t entry_at(uint64_t number)
{
    return (number + 1) * ENTRY_ALIGN;
}

/* Takes each key out by its first entry, as the cleaner does with tombstones, while its owner puts a newer one there. */
static void *remover_run(void *argument)
{
    struct stage *stage = argument;
    atomic_fetch_add(&stage->ready, 1);
    uint64_t removed = 0;
    for (uint64_t i = 0; i < REMOVED_KEYS;) {
        if (i == atomic_load_explicit(&stage->inserted, memory_order_acquire))
            continue;
        const int result = index_remove(stage->fixture.index, key_hash(i), entry_at(i));
        if (result == ROWAN_EAGAIN)
            continue;
        removed += result == 1;
        i++;
    }
    atomic_fetch_sub(&stage->wrong, removed); /* for each the owner has found none there */
    return NULL;
}

/* Puts in the first entries of a batch of keys, and the second ones of the batch before, by hints of before that, as a worker
 * does. Returns how many of these were not there. */
static uint64_t put_batch(struct stage *stage, uint64_t from)
{
    struct fixture *fixture = &stage->fixture;
    struct index_hint hints[REMOVED_BATCH] = {0};
    uint8_t keys[REMOVED_BATCH][KEY_BYTES];
    uint64_t absent = 0, previous;
    const uint64_t again = from - REMOVED_BATCH;
    for (unsigned i = 0; i < REMOVED_BATCH && from > 0; i++) {
        const uint64_t hash = key_hash(again + i);
        entry_log_key(again + i, keys[i], KEY_BYTES);
        hints[i] = index_prefetch_entry(fixture->index, index_prefetch(fixture->index, hash), hash);
        (void)index_confirm(fixture->index, &hints[i], hash, keys[i], KEY_BYTES);
    }
    for (uint64_t i = from; i < from + REMOVED_BATCH && i < REMOVED_KEYS; i++) {
        assert_int_equal(update(fixture, i, 1, entry_at(i), &previous), INDEX_INSERTED);
        atomic_store_explicit(&stage->inserted, i + 1, memory_order_release);
    }
    for (unsigned i = 0; i < REMOVED_BATCH && from > 0; i++) {
        const int result =
            index_update_hinted(fixture->index, hints[i], key_hash(again + i), keys[i], KEY_BYTES,
                                2, entry_at(REMOVED_KEYS + again + i), &previous);
        assert_true(result == INDEX_INSERTED || result == INDEX_REPLACED);
        assert_true(previous == (result == INDEX_REPLACED ? entry_at(again + i) : 0));
        absent += result == INDEX_INSERTED;
    }
    return absent;
}

TEST(what_is_taken_out_is_there_again_when_its_owner_has_put_it_there)
{
    for (unsigned round = 0; round < REMOVED_ROUNDS; round++) {
        struct stage stage;
        pthread_t remover;
        stage_init(&stage, 2 * REMOVED_KEYS);
        for (uint64_t i = 0; i < 2 * REMOVED_KEYS; i++)
            append(&stage.fixture, i % REMOVED_KEYS, 1 + i / REMOVED_KEYS);
        start(&remover, remover_run, &stage);
        wait_ready(&stage, 1);
        for (uint64_t i = 0; i <= REMOVED_KEYS; i += REMOVED_BATCH)
            atomic_fetch_add(&stage.wrong, put_batch(&stage, i));
        pthread_join(remover, NULL);
        assert_true(atomic_load(&stage.wrong) == 0);
        assert_true(index_items(stage.fixture.index) == REMOVED_KEYS);
        for (uint64_t i = 0; i < REMOVED_KEYS; i++)
            assert_true(find(&stage.fixture, i) == entry_at(REMOVED_KEYS + i));
        stage_fini(&stage);
    }
}

enum { WALK_BEFORE = 100000 / LESS, WALK_DURING = 300000 / LESS };

static void visit_mark(void *context, uint64_t offset)
{
    uint8_t *seen = context;
    seen[offset / ENTRY_ALIGN - 1] = 1;
}

static void *walker_run(void *argument)
{
    struct stage *stage = argument;
    uint8_t *seen = malloc(WALK_BEFORE + WALK_DURING);
    atomic_fetch_add(&stage->ready, 1);
    uint64_t wrong = seen == NULL;
    while (seen && !atomic_load_explicit(&stage->over, memory_order_relaxed)) {
        for (uint64_t i = 0; i < WALK_BEFORE + WALK_DURING; i++)
            seen[i] = 0;
        uint64_t inserted = atomic_load_explicit(&stage->inserted, memory_order_acquire);
        uint64_t cursor = 0;
        while (index_walk(stage->fixture.index, &cursor, 100, visit_mark, seen))
            ;
        for (uint64_t i = 0; i < inserted; i++)
            wrong += !seen[i];
    }
    free(seen);
    atomic_fetch_add(&stage->wrong, wrong);
    return NULL;
}

TEST(a_walk_meets_every_item_that_was_there_before_it)
{
    struct stage stage;
    stage_init(&stage, WALK_BEFORE + WALK_DURING);
    stage_insert(&stage, WALK_BEFORE);
    pthread_t walker;
    start(&walker, walker_run, &stage);
    wait_ready(&stage, 1);
    stage_insert(&stage, WALK_BEFORE + WALK_DURING);
    atomic_store(&stage.over, true);
    pthread_join(walker, NULL);
    assert_true(atomic_load(&stage.wrong) == 0);
    stage_fini(&stage);
}

/* Key numbers in the order of their hashes' reversed bits: keys whose hashes end in the same bits
 * lie side by side, however many bits that are. */
struct watched_key {
    uint64_t reversed;
    uint32_t number;
};

enum { WATCHED_KEYS = 400000 / LESS, WATCHED_BEFORE = 20000, BUCKET_KEYS = 64 };

static struct watched_key watched[WATCHED_KEYS];

static uint64_t bits_reversed(uint64_t value)
{
    uint64_t reversed = 0;
    for (unsigned i = 0; i < 64; i++)
        reversed |= (value >> i & 1) << (63 - i);
    return reversed;
}

static int watched_order(const void *a, const void *b)
{
    uint64_t left = ((const struct watched_key *)a)->reversed;
    uint64_t right = ((const struct watched_key *)b)->reversed;
    return (left > right) - (left < right);
}

/* The keys of bucket `source`, which a split parts, that are among the first `inserted`. */
static unsigned watched_in(uint64_t source, unsigned level, uint64_t inserted, uint32_t *numbers)
{
    uint64_t from = bits_reversed(source), low = 0, high = WATCHED_KEYS;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (watched[middle].reversed < from)
            low = middle + 1;
        else
            high = middle;
    }
    unsigned count = 0;
    for (; low < WATCHED_KEYS && watched[low].reversed - from < UINT64_C(1) << (64 - level); low++)
        if (watched[low].number < inserted && count < BUCKET_KEYS)
            numbers[count++] = watched[low].number;
    return count;
}

static void visit_collect(void *context, uint64_t offset)
{
    uint64_t *seen = context; /* seen[0] counts */
    if (seen[0] < 4 * BUCKET_KEYS)
        seen[++seen[0]] = offset;
}

static bool seen_has(const uint64_t *seen, uint64_t offset)
{
    for (uint64_t i = 1; i <= seen[0]; i++)
        if (seen[i] == offset)
            return true;
    return false;
}

/* Looks up and walks where the owner is splitting. */
static void *watcher_run(void *argument)
{
    struct stage *stage = argument;
    atomic_fetch_add(&stage->ready, 1);
    uint64_t wrong = 0;
    while (!atomic_load_explicit(&stage->over, memory_order_relaxed)) {
        uint64_t inserted = atomic_load_explicit(&stage->inserted, memory_order_acquire);
        uint64_t buckets = inserted * 2 / 11 + 2; /* the owner's next split but one */
        unsigned level = 63 - (unsigned)__builtin_clzll(buckets);
        uint64_t source = buckets - (UINT64_C(1) << level);
        uint32_t numbers[BUCKET_KEYS];
        unsigned count = watched_in(source, level, inserted, numbers);
        while (atomic_load_explicit(&stage->inserted, memory_order_acquire) * 2 / 11 < buckets &&
               !atomic_load_explicit(&stage->over, memory_order_relaxed)) {
            for (unsigned i = 0; i < count; i++)
                wrong +=
                    find(&stage->fixture, numbers[i]) != (uint64_t)(numbers[i] + 1) * ENTRY_ALIGN;
            uint64_t seen[4 * BUCKET_KEYS + 1] = {0}, cursor = source;
            while (cursor == source)
                index_walk(stage->fixture.index, &cursor, 1, visit_collect, seen);
            cursor = source + (UINT64_C(1) << level);
            index_walk(stage->fixture.index, &cursor, 2, visit_collect, seen);
            /* A round later the same bucket is split again, to another target. */
            uint64_t now = atomic_load_explicit(&stage->inserted, memory_order_acquire) * 2 / 11;
            if (now + 4 >= buckets + (UINT64_C(1) << level))
                break;
            for (unsigned i = 0; i < count; i++)
                wrong += !seen_has(seen, (uint64_t)(numbers[i] + 1) * ENTRY_ALIGN);
        }
    }
    atomic_fetch_add(&stage->wrong, wrong);
    return NULL;
}

TEST(the_bucket_that_is_split_shows_all_its_keys_all_the_time)
{
    for (uint32_t i = 0; i < WATCHED_KEYS; i++)
        watched[i] = (struct watched_key){bits_reversed(key_hash(i)), i};
    qsort(watched, WATCHED_KEYS, sizeof(watched[0]), watched_order);
    struct stage stage;
    stage_init(&stage, WATCHED_KEYS);
    stage_insert(&stage, WATCHED_BEFORE);
    pthread_t watcher;
    start(&watcher, watcher_run, &stage);
    wait_ready(&stage, 1);
    stage_insert(&stage, WATCHED_KEYS);
    atomic_store(&stage.over, true);
    pthread_join(watcher, NULL);
    assert_true(atomic_load(&stage.wrong) == 0);
    stage_fini(&stage);
}

UNIT_MAIN(NULL, NULL)
