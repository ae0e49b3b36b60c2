/* Run records, and what a store says of a PM that it cannot use. */
#include "common/base/crc.h"
#include "common/base/error.h"
#include "server/store/store.h"
#include "test/lib/heap_pm.h"
#include "test/lib/unit.h"
#include "test/unit/server/format.h"

static struct heap_pm *formatted(void)
{
    const struct store_identity identity = {.cluster = 5, .server = 7};
    struct heap_pm *heap = heap_pm_create(11 * (uint64_t)STORE_SEGMENT_BYTES);
    assert_int_equal(store_format(&heap->pm, &identity), 0);
    return heap;
}

enum { RUN_OFFSET = 1024, RUN_STRIDE = 512, RUN_BYTES = 64, HEAD_SECOND_OFFSET = 4198400 };

static struct store_run run_of(uint64_t incarnation, enum pm_durability durability)
{
    struct store_run run = {.incarnation = incarnation, .durability = durability};
    for (unsigned i = 0; i < STORE_BOOT_ID_BYTES; i++)
        run.boot_id[i] = (uint8_t)(0xb0 + i);
    return run;
}

static void write_run(struct heap_pm *heap, uint64_t incarnation)
{
    struct store_run run = run_of(incarnation, PM_FENCE);
    assert_int_equal(store_run_write(&heap->pm, &run), 0);
}

static void assert_last_run(struct heap_pm *heap, uint64_t incarnation)
{
    struct store_run run;
    assert_int_equal(store_read_run(&heap->pm, &run), 0);
    assert_true(run.incarnation == incarnation);
}

TEST(a_run_record_has_these_bytes)
{
    struct heap_pm *heap = formatted();
    struct store_run run = run_of(UINT64_C(0x1122334455667788), PM_ASYNC), got;
    run.possibly_incomplete = true;
    assert_int_equal(store_run_write(&heap->pm, &run), 0);
    assert_true(run.sequence == 1);
    static const uint8_t head[60] = {
        1,    0,    0,    0,    0,    0,    0,    0,    /* sequence */
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, /* incarnation */
        0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, /* boot id */
        0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd, 0xbe, 0xbf, /* */
        1,    0,    0,    0,    1,    0,    0,    0,    /* async, possibly incomplete */
    };
    const uint8_t *slot = heap->pm.base + RUN_OFFSET + RUN_STRIDE;
    assert_memory_equal(slot, head, sizeof(head));
    assert_memory_equal(slot + HEAD_SECOND_OFFSET, slot, RUN_BYTES);
    uint32_t checksum;
    memcpy(&checksum, slot + sizeof(head), 4);
    assert_true(checksum == crc32c(0, head, sizeof(head)));
    assert_int_equal(store_read_run(&heap->pm, &got), 0);
    /* Without the padding behind the last field. */
    assert_memory_equal(&got, &run, offsetof(struct store_run, possibly_incomplete) + 1);
    heap_pm_destroy(heap);
}

TEST(the_last_of_many_runs_counts)
{
    struct heap_pm *heap = formatted();
    struct store_run run = {.sequence = 99};
    assert_int_equal(store_read_run(&heap->pm, &run), ROWAN_ENOTFOUND);
    assert_true(run.sequence == 99);
    for (uint64_t incarnation = 1; incarnation <= 5; incarnation++) {
        write_run(heap, incarnation);
        assert_last_run(heap, incarnation);
    }
    heap_pm_destroy(heap);
}

/* Any of the eight words of a slot may land, or not. */
TEST(a_torn_run_record_leaves_the_one_before)
{
    for (uint64_t runs = 0; runs < 4; runs++) {
        struct heap_pm *heap = formatted();
        for (uint64_t i = 1; i <= runs; i++)
            write_run(heap, i);
        const uint64_t offset = RUN_OFFSET + (runs + 1) % 2 * RUN_STRIDE;
        uint8_t *slot = heap->pm.base + offset, *second = slot + HEAD_SECOND_OFFSET;
        uint8_t old[RUN_BYTES], new[RUN_BYTES];
        memcpy(old, slot, RUN_BYTES);
        write_run(heap, 77);
        memcpy(new, slot, RUN_BYTES);
        for (unsigned landed = 0; landed < 255; landed++) {
            for (unsigned word = 0; word < 8; word++)
                memcpy(slot + 8 * word, (landed >> word & 1 ? new : old) + 8 * word, 8);
            memcpy(second, slot, RUN_BYTES);
            struct store_run run = {.incarnation = 0};
            bool whole = memcmp(slot, new, RUN_BYTES) == 0; /* what differs has landed */
            int result = store_read_run(&heap->pm, &run);
            assert_int_equal(result, runs || whole ? 0 : ROWAN_ENOTFOUND);
            assert_true(run.incarnation == (whole ? 77 : runs));
        }
        /* The next start writes over the torn one. */
        write_run(heap, 78);
        assert_last_run(heap, 78);
        heap_pm_destroy(heap);
    }
}

TEST(the_loss_of_either_copy_of_a_run_record_loses_nothing)
{
    struct heap_pm *heap = formatted();
    for (uint64_t run = 1; run <= 4; run++) {
        write_run(heap, run);
        for (unsigned copy = 0; copy < 2; copy++) {
            uint8_t *slots = heap->pm.base + (copy ? HEAD_SECOND_OFFSET : 0) + RUN_OFFSET;
            uint8_t good[RUN_STRIDE + RUN_BYTES];
            memcpy(good, slots, sizeof(good));
            slots[run % 2 * RUN_STRIDE + 9] ^= 1;
            assert_last_run(heap, run);
            memset(slots, 0, sizeof(good));
            assert_last_run(heap, run);
            memcpy(slots, good, sizeof(good));
        }
    }
    heap_pm_destroy(heap);
}

static void damage_run(struct heap_pm *heap, uint64_t run)
{
    heap->pm.base[RUN_OFFSET + run % 2 * RUN_STRIDE + 9] ^= 1;
    heap->pm.base[HEAD_SECOND_OFFSET + RUN_OFFSET + run % 2 * RUN_STRIDE + 9] ^= 2;
}

TEST(damaged_run_records_are_no_empty_store)
{
    struct heap_pm *heap = formatted();
    write_run(heap, 1);
    write_run(heap, 2);
    damage_run(heap, 2);
    assert_last_run(heap, 1);
    damage_run(heap, 1);
    struct store_run run = run_of(3, PM_FENCE);
    assert_int_equal(store_read_run(&heap->pm, &run), ROWAN_EDAMAGED);
    assert_int_equal(store_run_write(&heap->pm, &run), ROWAN_EDAMAGED);
    heap_pm_destroy(heap);
}

TEST(a_run_that_did_not_fence_is_incomplete_after_a_reboot)
{
    static const enum pm_durability all[] = {PM_FENCE, PM_ASYNC, PM_NONE};
    for (unsigned i = 0; i < 3; i++) {
        struct store_run run = run_of(1, all[i]);
        uint8_t boot_id[STORE_BOOT_ID_BYTES];
        memcpy(boot_id, run.boot_id, sizeof(boot_id));
        assert_false(store_run_is_incomplete(&run, boot_id));
        boot_id[15] ^= 1;
        assert_int_equal(store_run_is_incomplete(&run, boot_id), all[i] != PM_FENCE);
        run.possibly_incomplete = true; /* a doubt stays until it was removed */
        memcpy(boot_id, run.boot_id, sizeof(boot_id));
        assert_true(store_run_is_incomplete(&run, boot_id));
    }
}

static void assert_says(struct heap_pm *heap, int error, const char *part)
{
    char sentence[160];
    struct store_identity identity;
    assert_int_equal(store_read_identity(&heap->pm, &identity), error);
    store_why(&heap->pm, error, sentence, sizeof(sentence));
    if (!strstr(sentence, part))
        fail_msg("\"%s\" does not say \"%s\"", sentence, part);
}

TEST(what_cannot_be_opened_is_told_in_a_sentence)
{
    struct heap_pm *heap = formatted();
    uint8_t *first = heap->pm.base, *second = first + HEAD_SECOND_OFFSET;
    first[8] = second[8] = 9;
    assert_says(heap, ROWAN_EFORMAT, "made by a newer version: its format is 9");
    first[8] = second[8] = 7;
    assert_says(heap, ROWAN_EFORMAT, "made by an older version: its format is 7");
    first[8] = second[8] = 8;
    first[100] = second[100] = 1;
    assert_says(heap, ROWAN_EDAMAGED, "both copies of its superblock are damaged");
    first[100] = second[100] = 0;
    heap->pm.bytes -= STORE_SEGMENT_BYTES;
    assert_says(heap, ROWAN_EFORMAT, "are too few: it was made with 8 segments");
    heap->pm.bytes += STORE_SEGMENT_BYTES;
    memcpy(heap->pm.base, "\177ELF and more", 14);
    assert_says(heap, ROWAN_EFORMAT, "something else than a Rowan-KV server's data");
    heap_pm_destroy(heap);
}

UNIT_MAIN(NULL, NULL)
