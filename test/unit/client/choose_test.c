/* choose_test.c - which records rowan-ycsb's operations are of: orders, distributions, and the inserts that
 * reads may find. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "test/lib/unit.h"
#include "tools/rowan-ycsb/choose.h"
#include "tools/rowan-ycsb/workload.h"

enum { RECORDS = 10000, DRAWS = 200000, THREADS = 4, INSERTS = 500000 };

static uint32_t counts[2 * RECORDS];

/* Counts DRAWS draws at `run_ns`; all are below `limit`. */
static void draw(struct chooser *chooser, uint64_t run_ns, uint64_t limit)
{
    struct random random;

    random_init(&random, 5);
    memset(counts, 0, sizeof counts);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t record = chooser_next(chooser, &random, run_ns);

        assert_true(record < limit);
        counts[record]++;
    }
}

static uint64_t hottest(void)
{
    uint64_t best = 0;

    for (uint64_t i = 0; i < 2 * RECORDS; i++)
        best = counts[i] > counts[best] ? i : best;
    return best;
}

TEST(the_permuted_order_meets_every_record_once)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 1000, 16384, 16385, 2 * RECORDS};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memset(counts, 0, sizeof counts);
        for (uint64_t place = 0; place < sizes[i]; place++) {
            uint64_t record = choose_permuted(place, sizes[i]);

            assert_true(record < sizes[i]);
            assert_int_equal(counts[record]++, 0);
        }
    }
}

TEST(the_permuted_order_has_no_neighbours_together)
{
    uint32_t together = 0;
    double distance = 0;

    for (uint64_t place = 0; place + 1 < RECORDS; place++) {
        double step = fabs((double)choose_permuted(place + 1, RECORDS) -
                           (double)choose_permuted(place, RECORDS));

        together += step <= 1;
        distance += step / RECORDS;
    }
    assert_true(together < 20);
    assert_true(fabs(distance / RECORDS - 1.0 / 3) < 0.05); /* that of two places at random */
}

TEST(a_sum_that_grew_is_that_of_all_ranks)
{
    struct zipf grown, whole;
    uint64_t count = 1;

    zipf_init(&grown, count);
    while (count < 300000) {
        count += count / 50 + 1;
        zipf_grow(&grown, count);
    }
    zipf_init(&whole, count);
    assert_int_equal(grown.count, count);
    assert_true(fabs(grown.zetan - whole.zetan) < 1e-7);
    assert_true(fabs(grown.eta - whole.eta) < 1e-7);
}

TEST(the_latest_are_drawn_by_their_age)
{
    struct choice choice = {.by = CHOOSE_LATEST, .records = RECORDS};
    struct chooser chooser;
    uint64_t record;

    zipf_init(&choice.zipf, RECORDS);
    choice.inserts = inserts_create(RECORDS, 1, WORKLOAD_MAX_RECORDS);
    chooser_init(&chooser, &choice);
    draw(&chooser, 0, RECORDS);
    assert_int_equal(hottest(), RECORDS - 1);
    assert_true(fabs(counts[RECORDS - 1] * choice.zipf.zetan / DRAWS - 1) < 0.05);
    for (int i = 0; i < 1000; i++) {
        assert_true(inserts_take(choice.inserts, &record));
        inserts_acknowledge(choice.inserts, record);
    }
    draw(&chooser, 0, RECORDS + 1000);
    assert_int_equal(hottest(), RECORDS + 999);
    assert_true(fabs(counts[RECORDS + 999] * chooser.latest.zetan / DRAWS - 1) < 0.05);
    assert_true(counts[RECORDS + 998] > counts[RECORDS + 990] && counts[RECORDS + 990] > 0);
    assert_true(counts[RECORDS - 1] > 0); /* what was loaded is older, not gone */
    free(choice.inserts);
}

TEST(a_record_is_drawn_only_when_its_insert_and_all_before_are_acknowledged)
{
    struct choice choice = {.by = CHOOSE_LATEST, .records = RECORDS};
    struct chooser chooser;
    uint64_t records[3];

    zipf_init(&choice.zipf, RECORDS);
    choice.inserts = inserts_create(RECORDS + 1, 4, WORKLOAD_MAX_RECORDS); /* the second of four */
    chooser_init(&chooser, &choice);
    for (uint64_t i = 0; i < 3; i++) {
        assert_true(inserts_take(choice.inserts, &records[i]));
        assert_int_equal(records[i], RECORDS + 1 + 4 * i);
    }
    inserts_acknowledge(choice.inserts, records[1]);
    inserts_acknowledge(choice.inserts, records[2]);
    draw(&chooser, 0, RECORDS);
    inserts_acknowledge(choice.inserts, records[0]);
    assert_int_equal(inserts_acked(choice.inserts), 3);
    chooser.latest.count /= 2; /* so that three more make it grow */
    draw(&chooser, 0, RECORDS + 10);
    assert_int_equal(hottest(), RECORDS + 9);
    for (uint64_t record = RECORDS; record < RECORDS + 9; record++)
        assert_int_equal(counts[record] > 0, record == records[0] || record == records[1]);
    free(choice.inserts);
}

TEST(inserts_do_not_run_away_from_the_oldest)
{
    struct inserts *inserts = inserts_create(0, 1, WORKLOAD_MAX_RECORDS);
    uint64_t record, oldest, taken = 1;

    assert_true(inserts_take(inserts, &oldest));
    while (inserts_take(inserts, &record)) {
        inserts_acknowledge(inserts, record);
        taken++;
    }
    assert_in_range(taken, INSERTS_WINDOW / 2, INSERTS_WINDOW);
    assert_int_equal(inserts_acked(inserts), 0);
    inserts_acknowledge(inserts, oldest);
    assert_int_equal(inserts_acked(inserts), taken);
    assert_true(inserts_take(inserts, &record));
    assert_int_equal(record, taken);
    free(inserts);
}

/* Takes a few at once, as many as the window allows, and acknowledges the last one first. */
static void *insert_many(void *argument)
{
    struct inserts *inserts = argument;
    uint64_t records[7];

    for (int done = 0; done < INSERTS;) {
        int taken = 0;

        while (taken < 7 && done + taken < INSERTS && inserts_take(inserts, &records[taken]))
            taken++;
        done += taken;
        while (taken > 0)
            inserts_acknowledge(inserts, records[--taken]);
    }
    return NULL;
}

TEST(threads_that_insert_together_leave_no_gap)
{
    struct inserts *inserts = inserts_create(0, 1, WORKLOAD_MAX_RECORDS);
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, insert_many, inserts), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(inserts_acked(inserts), INSERTS * THREADS);
    free(inserts);
}

/* How many of the DRAWS were of records that are drawn at least `often` times; sets how many those are. */
static uint64_t drawn_often(uint32_t often, uint64_t *records)
{
    uint64_t draws = 0;

    *records = 0;
    for (uint64_t i = 0; i < RECORDS; i++) {
        draws += counts[i] >= often ? counts[i] : 0;
        *records += counts[i] >= often;
    }
    return draws;
}

TEST(hot_records_have_their_share_and_become_others)
{
    /* 500 hot records, each drawn 320 times; the others 4 times. */
    struct choice choice = {.by = CHOOSE_HOTSPOT,
                            .records = RECORDS,
                            .hot_fraction = 0.05,
                            .hot_operations = 0.8,
                            .hot_moves_ns = 1000,
                            .seed = 3};
    struct chooser chooser;
    uint64_t records, before, in_a_row = 0;
    static bool hot[RECORDS];

    chooser_init(&chooser, &choice);
    draw(&chooser, 999, RECORDS);
    assert_true(fabs((double)drawn_often(100, &records) / DRAWS - 0.8) < 0.01);
    assert_int_equal(records, 500);
    for (uint64_t i = 0; i < RECORDS; i++) {
        hot[i] = counts[i] >= 100;
        in_a_row += i > 0 && hot[i] && hot[i - 1];
    }
    assert_true(in_a_row < 100); /* they are scattered */
    draw(&chooser, 1000, RECORDS);
    assert_true(fabs((double)drawn_often(100, &before) / DRAWS - 0.8) < 0.01);
    assert_int_equal(before, 500);
    for (uint64_t i = 0; i < RECORDS; i++)
        records -= hot[i] && counts[i] >= 100;
    assert_true(records > 400);
}

TEST(the_hottest_record_of_zipf_moves_and_lanes_agree_on_it)
{
    struct choice choice = {.records = RECORDS, .hot_moves_ns = 1000, .seed = 3};
    struct chooser first, second;

    zipf_init(&choice.zipf, RECORDS);
    chooser_init(&first, &choice);
    chooser_init(&second, &choice);
    draw(&first, 0, RECORDS);
    uint64_t at_first = hottest();

    draw(&first, 7500, RECORDS);
    uint64_t later = hottest();

    assert_int_not_equal(at_first, later);
    assert_true(fabs(counts[later] * choice.zipf.zetan / DRAWS - 1) < 0.05);
    draw(&second, 7000, RECORDS);
    assert_int_equal(hottest(), later);
}

UNIT_MAIN(NULL, NULL)
