#include "common/base/histogram.h"
#include "common/base/random.h"
#include "test/lib/unit.h"

enum { VALUES = 20000 };

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The exact quantile is at most the answer, and the answer at most 1/64 above it. */
static void assert_near(uint64_t exact, uint64_t answer)
{
    assert_true(answer >= exact);
    assert_true(answer - exact <= exact / 64);
}

TEST(quantiles_are_at_most_a_64th_too_high)
{
    static const double quantiles[] = {0.01, 0.5, 0.9, 0.99, 0.999};
    static struct histogram histogram;
    static uint64_t values[VALUES];
    struct random random;

    random_init(&random, 7);
    histogram_reset(&histogram);
    for (unsigned i = 0; i < VALUES; i++) {
        values[i] = random_u64(&random) >> random_below(&random, 64); /* every order of magnitude */
        histogram_add(&histogram, values[i]);
    }
    qsort(values, VALUES, sizeof(values[0]), compare_u64);
    for (unsigned i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++) {
        size_t rank = (size_t)(quantiles[i] * VALUES + 0.5);

        assert_near(values[rank - 1], histogram_quantile(&histogram, quantiles[i]));
    }
    assert_true(histogram_quantile(&histogram, 1) == values[VALUES - 1]);
}

TEST(every_power_of_two_and_its_neighbours_keep_the_bound)
{
    static struct histogram histogram;

    for (unsigned bit = 0; bit < 64; bit++) {
        for (int step = -1; step <= 1; step++) {
            uint64_t value = (UINT64_C(1) << bit) + (uint64_t)(int64_t)step;

            histogram_reset(&histogram);
            histogram_add(&histogram, value);
            histogram_add(&histogram, UINT64_MAX); /* so that max does not hide the bucket */
            assert_near(value, histogram_quantile(&histogram, 0.5));
        }
    }
}

TEST(small_values_are_exact)
{
    static struct histogram histogram;

    histogram_reset(&histogram);
    for (uint64_t value = 1; value <= 100; value++)
        histogram_add(&histogram, value);
    assert_int_equal(histogram_quantile(&histogram, 0), 1);
    assert_int_equal(histogram_quantile(&histogram, 0.5), 50);
    assert_int_equal(histogram_quantile(&histogram, 0.99), 99);
    assert_int_equal(histogram_quantile(&histogram, 1), 100);
}

TEST(an_empty_histogram_answers_zero)
{
    static struct histogram histogram;

    histogram_reset(&histogram);
    assert_int_equal(histogram_quantile(&histogram, 0.5), 0);
    assert_int_equal(histogram_quantile(&histogram, 1), 0);
}

TEST(merging_equals_adding_to_one)
{
    static struct histogram one, two, all;
    struct random random;

    random_init(&random, 8);
    histogram_reset(&one);
    histogram_reset(&two);
    histogram_reset(&all);
    for (unsigned i = 0; i < VALUES; i++) {
        uint64_t value = random_below(&random, 1000000);

        histogram_add(i % 3 == 0 ? &one : &two, value);
        histogram_add(&all, value);
    }
    histogram_merge(&one, &two);
    assert_memory_equal(&one, &all, sizeof(all));
}

UNIT_MAIN(NULL, NULL)
