/* The store: bytes on PM, whose they are, states of segments. */
#include <signal.h>
#include <sys/wait.h>

#include "common/base/crc.h"
#include "common/base/error.h"
#include "server/shard/shard.h"
#include "server/store/store.h"
#include "test/lib/heap_pm.h"
#include "test/lib/unit.h"
#include "test/unit/server/format.h"

enum {
    SEGMENTS = 8,
    REPLICA_OFFSET = 4096,
    HEAD_SECOND = REPLICA_OFFSET + (4 << 20),
    META_OFFSET = HEAD_SECOND + 4096,
    REPLICA_SECOND = META_OFFSET + 4096 + (1 << 20) + 4096 + (32 << 10),
    META_SECOND = REPLICA_SECOND + (4 << 20),
    ROW_BYTES = 64,
};
#define PM_BYTES ((uint64_t)(SEGMENTS + 3) * STORE_SEGMENT_BYTES)

static const struct store_identity IDENTITY = {
    .cluster = UINT64_C(0x1122334455667788), .server = 7, .format = {0x0a0b0c0d, 4096}};

static struct heap_pm *formatted(void)
{
    struct heap_pm *heap = heap_pm_create(PM_BYTES);
    assert_int_equal(store_format(&heap->pm, &IDENTITY), 0);
    return heap;
}

static struct store *opened(struct heap_pm *heap)
{
    struct store *store;
    assert_int_equal(store_open(&heap->pm, &IDENTITY, &store), 0);
    return store;
}

TEST(a_map_holds_as_many_segments_as_fit_beside_the_tables)
{
    const uint64_t segment = STORE_SEGMENT_BYTES;
    assert_true(store_segments_in(0) == 0);
    assert_true(store_segments_in(segment) == 0);
    assert_true(store_segments_in(4 * segment - 1) == 0);
    assert_true(store_segments_in(4 * segment) == 1);
    assert_true(store_segments_in(100 * segment + 5) == 97);
    /* Twice 40 KiB + 5 MiB of rows, configuration and void ranges + 8 B a segment: past 125,952 segments the tables need 4 MiB more. */
    assert_true(store_segments_in(125955 * segment) == 125952);
    assert_true(store_segments_in(125956 * segment) == 125952);
    assert_true(store_segments_in(125957 * segment) == 125953);
}

TEST(a_new_store_has_these_bytes)
{
    struct heap_pm *heap = formatted();
    static const uint8_t head[] = {
        'R',  'O',  'W',  'A',  'N',  'K',  'V',  '1',  /* magic */
        8,    0,    0,    0,    7,    0,    0,    0,    /* format, server */
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, /* cluster */
        8,    0,    0,    0,    0,    0,    0,    0,    /* segments */
        0,    0,    0x40, 0,    0,    0,    1,    0,    /* sizes */
        0,    0,    0xc0, 0,    0,    0,    0,    0,    /* segments */
        0x0d, 0x0c, 0x0b, 0x0a, 0,    0x10, 0,    0,    /* entries */
    };
    assert_memory_equal(heap->pm.base, head, sizeof(head));
    for (unsigned i = sizeof(head); i < 508; i++)
        assert_int_equal(heap->pm.base[i], 0);
    uint32_t checksum;
    memcpy(&checksum, heap->pm.base + 508, 4);
    assert_true(checksum == crc32c(0, heap->pm.base, 508));
    assert_memory_equal(heap->pm.base + HEAD_SECOND, heap->pm.base, 512);
    memset(heap->pm.base + HEAD_SECOND, 0, 512);
    for (uint64_t i = 512; i < 3 * STORE_SEGMENT_BYTES; i++)
        assert_int_equal(heap->pm.base[i], 0);
    assert_true(atomic_load(&heap->fences) == 2);
    heap_pm_destroy(heap);
}

TEST(a_segment_word_and_a_replica_row_have_these_bytes)
{
    struct heap_pm *heap = formatted();
    struct store *store = opened(heap);
    uint64_t segment;
    assert_int_equal(store_allocate(store, OWNER_WORKER, 5, &segment), 0);
    assert_int_equal(store_allocate(store, OWNER_BACKUP_LOG, 0, &segment), 0);
    assert_true(segment == 1);
    store_transition(store, segment, SEGMENT_USED);
    static const uint8_t words[] = {0x12, 5, 2, 0, 0, 0, 0, 0x70, 0x23, 0, 3, 0, 0, 0, 0, 0xaf};
    assert_memory_equal(heap->pm.base + META_OFFSET, words, sizeof(words));
    assert_memory_equal(heap->pm.base + META_SECOND, words, sizeof(words));

    store_replica_set(store, 3,
                      &(struct replica_row){.state = REPLICA_FULL,
                                            .first_epoch = 0x010203,
                                            .first_allocation = UINT64_C(0x1122334455),
                                            .settled = UINT64_C(0x0102030000000006)});
    assert_int_equal(store_replica_sync(store), 1);
    uint8_t shard_and_row[2 + ROW_BYTES] = {
        3,    0,                               /* shard: not part of the row */
        2,    0,    0,    0,    3,    2, 1, 0, /* state, first epoch */
        0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, /* first allocation */
        0,    0,    0,    0,    0,    0, 0, 0, /* zeros, checksum */
        1,    0,    0,    0,    0,    0, 0, 0, /* sequence */
        6,    0,    0,    0,    0,    3, 2, 1, /* settled */
    };
    const uint8_t *row = heap->pm.base + REPLICA_OFFSET + 3 * ROW_BYTES;
    uint32_t checksum = crc32c(0, shard_and_row, 2 + 20);
    memcpy(shard_and_row + 2 + 20, &checksum, 4);
    checksum = crc32c(0, shard_and_row, 2 + ROW_BYTES - 4);
    memcpy(shard_and_row + 2 + ROW_BYTES - 4, &checksum, 4);
    assert_memory_equal(row, shard_and_row + 2, ROW_BYTES);
    assert_memory_equal(heap->pm.base + REPLICA_SECOND + 3 * ROW_BYTES, row, ROW_BYTES);
    store_close(store);
    heap_pm_destroy(heap);
}

TEST(an_identity_is_read_back)
{
    struct heap_pm *heap = formatted();
    struct store_identity identity;
    assert_int_equal(store_read_identity(&heap->pm, &identity), 0);
    assert_true(identity.cluster == IDENTITY.cluster && identity.server == IDENTITY.server);
    assert_true(identity.format.seed == 0x0a0b0c0d && identity.format.block_limit == 4096);
    heap_pm_destroy(heap);
}

/* Opening fails with `error` and leaves the outputs alone. */
static void assert_refused(struct heap_pm *heap, int error)
{
    struct store_identity identity = {.server = 99};
    struct store *store = (struct store *)heap;
    assert_int_equal(store_open(&heap->pm, &IDENTITY, &store), error);
    assert_ptr_equal(store, heap);
    if (error != ROWAN_ECLUSTER) {
        assert_int_equal(store_read_identity(&heap->pm, &identity), error);
        assert_true(identity.server == 99);
    }
}

TEST(one_byte_behind_the_superblock_makes_a_map_somebodys)
{
    struct heap_pm *heap = heap_pm_create(4 * (uint64_t)STORE_SEGMENT_BYTES);
    const uint64_t places[] = {REPLICA_OFFSET, HEAD_SECOND - 1, META_OFFSET, heap->pm.bytes - 1};
    assert_true(store_is_blank(&heap->pm));
    for (unsigned i = 0; i < 4; i++) {
        heap->pm.base[places[i]] = 1;
        assert_false(store_is_blank(&heap->pm));
        heap->pm.base[places[i]] = 0;
    }
    heap_pm_destroy(heap);
}

TEST(a_store_is_formatted_once_and_only_where_it_fits)
{
    struct heap_pm *heap = formatted();
    assert_int_equal(store_format(&heap->pm, &IDENTITY), ROWAN_EEXISTS);
    /* Without its superblock a table in use is still no empty map. */
    struct store *store = opened(heap);
    uint64_t segment;
    assert_int_equal(store_allocate(store, OWNER_WORKER, 0, &segment), 0);
    store_close(store);
    memset(heap->pm.base, 0, 4096);
    memset(heap->pm.base + HEAD_SECOND, 0, 4096);
    assert_int_equal(store_format(&heap->pm, &IDENTITY), ROWAN_EEXISTS);
    assert_refused(heap, ROWAN_EDAMAGED);
    heap_pm_destroy(heap);

    heap = heap_pm_create(4 * (uint64_t)STORE_SEGMENT_BYTES - 4096);
    assert_int_equal(store_format(&heap->pm, &IDENTITY), ROWAN_EINVALID);
    assert_true(atomic_load(&heap->stores) == 0);
    heap_pm_destroy(heap);
}

static void flip_both(struct heap_pm *heap, unsigned offset, uint8_t bits)
{
    heap->pm.base[offset] ^= bits;
    heap->pm.base[HEAD_SECOND + offset] ^= bits;
}

static void recompute_checksums(struct heap_pm *heap)
{
    for (unsigned i = 0; i < 2; i++) {
        uint8_t *block = heap->pm.base + (i ? HEAD_SECOND : 0);
        uint32_t checksum = crc32c(0, block, 508);
        memcpy(block + 508, &checksum, 4);
    }
}

TEST(a_superblock_that_is_not_right_is_refused)
{
    struct heap_pm *heap = heap_pm_create(PM_BYTES);
    assert_refused(heap, ROWAN_ENOTFOUND);
    heap->pm.bytes = 100;
    assert_refused(heap, ROWAN_EFORMAT);
    heap->pm.bytes = PM_BYTES;
    heap_pm_destroy(heap);

    heap = formatted();
    static const struct {
        unsigned offset;
        int error;
    } flips[] = {{0, ROWAN_EFORMAT},    {7, ROWAN_EFORMAT},    {8, ROWAN_EFORMAT},
                 {12, ROWAN_EDAMAGED},  {16, ROWAN_EDAMAGED},  {24, ROWAN_EDAMAGED},
                 {32, ROWAN_EDAMAGED},  {40, ROWAN_EDAMAGED},  {48, ROWAN_EDAMAGED},
                 {507, ROWAN_EDAMAGED}, {508, ROWAN_EDAMAGED}, {511, ROWAN_EDAMAGED}};
    for (unsigned i = 0; i < sizeof(flips) / sizeof(flips[0]); i++) {
        flip_both(heap, flips[i].offset, 0x10);
        assert_refused(heap, flips[i].error);
        flip_both(heap, flips[i].offset, 0x10);
    }

    /* With a right checksum: another format version, and geometry that does not fit. */
    static const unsigned fields[] = {8, 24, 32, 36, 40};
    for (unsigned i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        flip_both(heap, fields[i], 0x40);
        recompute_checksums(heap);
        assert_refused(heap, ROWAN_EFORMAT);
        heap->pm.base[HEAD_SECOND + fields[i]] ^= 0x40;
        recompute_checksums(
            heap); /* another version's, and a copy of this version's is left over */
        assert_refused(heap, ROWAN_EFORMAT);
        heap->pm.base[fields[i]] ^= 0x40;
        recompute_checksums(heap);
    }
    heap->pm.bytes -= STORE_SEGMENT_BYTES;
    assert_refused(heap, ROWAN_EFORMAT);
    heap->pm.bytes = PM_BYTES;
    struct store *store = opened(heap);
    store_close(store);
    heap_pm_destroy(heap);
}

TEST(the_store_of_another_cluster_or_server_is_refused)
{
    struct heap_pm *heap = formatted();
    struct store_identity other = IDENTITY;
    struct store *store = NULL;
    other.cluster++;
    assert_int_equal(store_open(&heap->pm, &other, &store), ROWAN_ECLUSTER);
    other = IDENTITY;
    other.server++;
    assert_int_equal(store_open(&heap->pm, &other, &store), ROWAN_ECLUSTER);
    assert_null(store);
    store_close(NULL);
    heap_pm_destroy(heap);
}

TEST(the_loss_of_either_superblock_loses_nothing)
{
    struct heap_pm *heap = formatted();
    uint8_t good[512];
    memcpy(good, heap->pm.base, sizeof(good));
    for (unsigned i = 0; i < 2 * 512; i++) {
        uint8_t *block = heap->pm.base + (i % 2 ? HEAD_SECOND : 0);
        block[i / 2] ^= 1;
        store_close(opened(heap)); /* which mends it */
        assert_memory_equal(block, good, sizeof(good));
        memset(block, 0, 4096);
        store_close(opened(heap));
        assert_memory_equal(block, good, sizeof(good));
    }
    /* Of which the first was not lost, but overwritten by somebody else. */
    memcpy(heap->pm.base, "\177ELF and more", 14);
    assert_refused(heap, ROWAN_EFORMAT);
    heap_pm_destroy(heap);
}

TEST(a_crash_while_formatting_leaves_nothing_or_a_store)
{
    for (uint64_t crash_after = 0;; crash_after++) {
        struct heap_pm *heap = heap_pm_create(PM_BYTES);
        heap->crash_after = crash_after;
        assert_int_equal(store_format(&heap->pm, &IDENTITY), 0);
        bool whole = atomic_load(&heap->stores) <= crash_after;
        heap->crash_after = UINT64_MAX;
        struct store_identity identity;
        bool committed = crash_after > 2; /* one magic of two */
        if (!whole) {
            assert_int_equal(store_read_identity(&heap->pm, &identity),
                             committed ? 0 : ROWAN_ENOTFOUND);
            assert_true(store_is_blank(&heap->pm));
            assert_int_equal(store_format(&heap->pm, &IDENTITY), committed ? ROWAN_EEXISTS : 0);
        }
        assert_int_equal(store_read_identity(&heap->pm, &identity), 0);
        heap_pm_destroy(heap);
        if (whole)
            break;
    }
}

TEST(segments_lie_one_behind_the_other)
{
    struct heap_pm *heap = formatted();
    struct store *store = opened(heap);
    assert_ptr_equal(store_pm(store), &heap->pm);
    assert_true(store_segments(store) == SEGMENTS);
    for (uint64_t i = 0; i < SEGMENTS; i++)
        assert_true(store_segment_offset(store, i) == (i + 3) * STORE_SEGMENT_BYTES);
    store_close(store);
    heap_pm_destroy(heap);
}

TEST(a_full_store_refuses_until_a_segment_is_free)
{
    /* In the order of what each of them leaves to those in front of it. */
    static const enum segment_owner owners[] = {OWNER_CLEAN, OWNER_DIGEST, OWNER_WORKER,
                                                OWNER_BACKUP_LOG};
    static const unsigned left[] = {0, 2, 3, 4};
    struct heap_pm *heap = formatted();
    struct store *store = opened(heap);
    uint64_t segment, taken = 0, owned[2] = {0};
    for (unsigned i = 0; i < SEGMENTS; i++) {
        const unsigned free = SEGMENTS - i;
        unsigned may = 0;
        assert_true(store_segments_free(store) == free);
        for (; may < 4 && free > left[may]; may++)
            ;
        for (unsigned k = may; k < 4; k++)
            assert_int_equal(store_allocate(store, owners[k], i, &segment), ROWAN_EFULL);
        const enum segment_owner owner = may == 4 && i % 2 ? OWNER_DIGEST : owners[may - 1];
        owned[0] += owner == OWNER_BACKUP_LOG;
        owned[1] += owner == OWNER_DIGEST;
        assert_int_equal(store_allocate(store, owner, i, &segment), 0);
        struct segment_meta meta = store_meta(store, segment);
        assert_true(meta.state == SEGMENT_USING && meta.owner_number == i &&
                    meta.allocation == i + 2);
        taken |= UINT64_C(1) << segment;
    }
    assert_true(taken == (1 << SEGMENTS) - 1);
    assert_true(store_segments_owned(store, OWNER_WORKER) == 1);
    assert_true(store_segments_owned(store, OWNER_BACKUP_LOG) == owned[0]);
    assert_true(store_segments_owned(store, OWNER_DIGEST) == owned[1]);
    segment = 77;
    assert_int_equal(store_allocate(store, OWNER_WORKER, 0, &segment), ROWAN_EFULL);
    assert_true(segment == 77);

    store_transition(store, 5, SEGMENT_DIRTY);
    assert_int_equal(store_allocate(store, OWNER_CLEAN, 0, &segment), ROWAN_EFULL);
    store_transition(store, 5, SEGMENT_FREE);
    assert_true(store_segments_free(store) == 1);
    assert_true(store_segments_owned(store, OWNER_NONE) == 1);
    assert_int_equal(store_allocate(store, OWNER_WORKER, 0, &segment), ROWAN_EFULL);
    assert_int_equal(store_allocate(store, OWNER_CLEAN, 0, &segment), 0);
    assert_true(segment == 5);
    /* Only the two fences of the format and one of the open: allocation rides on the owner's. */
    assert_true(atomic_load(&heap->fences) == 3);
    store_close(store);
    heap_pm_destroy(heap);
}

TEST(states_and_allocation_numbers_outlive_the_process)
{
    struct heap_pm *heap = formatted();
    struct store *store = opened(heap);
    uint64_t segment;
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(store_allocate(store, OWNER_WORKER, i, &segment), 0);
    store_transition(store, 1, SEGMENT_USED);
    store_transition(store, 2, SEGMENT_USED);
    store_transition(store, 2, SEGMENT_COMMITTED);
    store_transition(store, 3, SEGMENT_COMMITTED);
    store_transition(store, 4, SEGMENT_DIRTY);
    store_close(store);

    store = opened(heap);
    static const enum segment_state states[SEGMENTS] = {
        SEGMENT_USING, SEGMENT_USED, SEGMENT_COMMITTED, SEGMENT_COMMITTED, SEGMENT_DIRTY};
    for (unsigned i = 0; i < SEGMENTS; i++) {
        struct segment_meta meta = store_meta(store, i);
        assert_int_equal(meta.state, states[i]);
        assert_int_equal(meta.owner, i < 4 ? OWNER_WORKER : OWNER_NONE);
        assert_true(meta.allocation == (i < 5 ? i + 2 : 0));
    }
    assert_true(store_segments_free(store) == 3);
    assert_true(store_segments_owned(store, OWNER_WORKER) == 4);
    /* The highest number was a segment's that is free by now. */
    store_transition(store, 4, SEGMENT_FREE);
    store_close(store);
    store = opened(heap);
    assert_int_equal(store_allocate(store, OWNER_WORKER, 0, &segment), 0);
    assert_true(store_meta(store, segment).allocation == 7);
    store_close(store);
    heap_pm_destroy(heap);
}

/* Its row says from which allocation on; 0 there says that nothing of before its first epoch counts. */
TEST(what_is_copied_to_a_replica_counts_though_its_pm_was_empty_before)
{
    struct heap_pm *heap = formatted();
    struct store *store = opened(heap);
    const struct shard_state shard = {.first_epoch = 3,
                                      .first_allocation = store_allocations(store)};
    uint64_t copied, landed;
    assert_int_equal(store_allocate(store, OWNER_DIGEST, 0, &copied), 0);
    assert_int_equal(store_allocate(store, OWNER_BACKUP_LOG, 0, &landed), 0);
    assert_true(shard_counts(&shard, version_make(1, 7), store, copied));
    assert_false(shard_counts(&shard, version_make(1, 7), store, landed));
    store_close(store);
    heap_pm_destroy(heap);
}

/* Puts segment 0 into `from` by allowed steps. */
static void bring_to(struct store *store, enum segment_state from)
{
    uint64_t segment;
    if (from == SEGMENT_FREE)
        return;
    assert_int_equal(store_allocate(store, OWNER_WORKER, 0, &segment), 0);
    assert_true(segment == 0);
    if (from != SEGMENT_USING)
        store_transition(store, 0, from);
}

/* Does the transition abort the process that makes it? */
static bool transition_aborts(enum segment_state from, enum segment_state to)
{
    struct heap_pm *heap = formatted();
    struct store *store = opened(heap);
    bring_to(store, from);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        store_transition(store, 0, to);
        _exit(store_meta(store, 0).state == to ? 0 : 1);
    }
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    store_close(store);
    heap_pm_destroy(heap);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST(only_the_allowed_transitions_are_made)
{
    /* Columns: to free, dirty, using, used, committed. */
    static const bool allowed[5][5] = {
        [SEGMENT_FREE] = {false, true, false, false, false},
        [SEGMENT_DIRTY] = {true, true, false, false, false},
        [SEGMENT_USING] = {false, true, false, true, true},
        [SEGMENT_USED] = {false, true, false, false, true},
        [SEGMENT_COMMITTED] = {false, true, false, false, false},
    };
    for (unsigned from = SEGMENT_FREE; from <= SEGMENT_COMMITTED; from++)
        for (unsigned to = SEGMENT_FREE; to <= SEGMENT_COMMITTED; to++)
            assert_int_equal(transition_aborts((enum segment_state)from, (enum segment_state)to),
                             !allowed[from][to]);
}

TEST(zeros_of_a_segment_are_told_from_bytes)
{
    struct heap_pm *heap = formatted();
    struct store *store = opened(heap);
    assert_true(store_segment_is_zero(store, 2, 0, STORE_SEGMENT_BYTES));
    heap->pm.base[store_segment_offset(store, 2) + 5000] = 1;
    assert_false(store_segment_is_zero(store, 2, 0, STORE_SEGMENT_BYTES));
    assert_true(store_segment_is_zero(store, 2, 0, 5000));
    assert_false(store_segment_is_zero(store, 2, 0, 5001));
    assert_false(store_segment_is_zero(store, 2, 5000, 1));
    assert_true(store_segment_is_zero(store, 2, 5001, STORE_SEGMENT_BYTES - 5001));
    assert_true(store_segment_is_zero(store, 1, 0, STORE_SEGMENT_BYTES));
    assert_true(store_segment_is_zero(store, 2, STORE_SEGMENT_BYTES, 0));
    store_close(store);
    heap_pm_destroy(heap);
}

UNIT_MAIN(NULL, NULL)
