#include <math.h>

#include "common/base/random.h"
#include "test/lib/unit.h"

/* The first outputs of the authors' xoshiro256starstar.c from the state 1, 2, 3, 4. */
TEST(sequence_is_that_of_the_reference_code)
{
    static const uint64_t golden[] = {
        11520,
        0,
        1509978240,
        1215971899390074240,
        1216172134540287360,
        607988272756665600,
        UINT64_C(16172922978634559625),
        UINT64_C(8476171486693032832),
        UINT64_C(10595114339597558777),
        2904607092377533576,
    };
    struct random random = {.s = {1, 2, 3, 4}};

    for (unsigned i = 0; i < sizeof(golden) / sizeof(golden[0]); i++)
        assert_true(random_u64(&random) == golden[i]);
}

/* The published first outputs of splitmix64 for this seed. */
TEST(seed_is_spread_by_splitmix64)
{
    static const uint64_t golden[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                      UINT64_C(9817491932198370423), UINT64_C(4593380528125082431)};
    struct random random;

    random_init(&random, 1234567);
    assert_memory_equal(random.s, golden, sizeof(golden));
}

TEST(numbers_below_a_bound_are_spread_evenly)
{
    enum { BOUND = 10, DRAWS = 100000 };
    unsigned counts[BOUND] = {0};
    struct random random;

    random_init(&random, 1);
    for (unsigned i = 0; i < DRAWS; i++) {
        uint64_t drawn = random_below(&random, BOUND);

        assert_true(drawn < BOUND);
        counts[drawn]++;
    }
    for (unsigned i = 0; i < BOUND; i++) /* ten deviations of about 95 */
        assert_in_range(counts[i], DRAWS / BOUND - 950, DRAWS / BOUND + 950);
    assert_int_equal(random_below(&random, 1), 0);
}

/* With a bound of 3/4 of 2^64, a plain multiplication or remainder favours some numbers twofold:
 * every third number in one, the lower third of the range in the other. */
TEST(a_large_bound_has_no_bias)
{
    enum { DRAWS = 30000 };
    const uint64_t bound = UINT64_C(3) << 62;
    unsigned by_remainder[3] = {0}, by_third[3] = {0};
    struct random random;

    random_init(&random, 2);
    for (unsigned i = 0; i < DRAWS; i++) {
        uint64_t drawn = random_below(&random, bound);

        assert_true(drawn < bound);
        by_remainder[drawn % 3]++;
        by_third[drawn / (UINT64_C(1) << 62)]++;
    }
    for (unsigned i = 0; i < 3; i++) { /* ten deviations of about 82 */
        assert_in_range(by_remainder[i], DRAWS / 3 - 820, DRAWS / 3 + 820);
        assert_in_range(by_third[i], DRAWS / 3 - 820, DRAWS / 3 + 820);
    }
}

TEST(units_stay_below_one)
{
    struct random random;
    double sum = 0;

    random_init(&random, 3);
    for (unsigned i = 0; i < 100000; i++) {
        double unit = random_unit(&random);

        assert_true(unit >= 0 && unit < 1);
        sum += unit;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 0.01);
}

TEST(entropy_fills_the_whole_buffer_and_differs)
{
    unsigned char first[256] = {0}, second[256] = {0};
    static const unsigned char zeros[16];

    random_entropy(first, sizeof(first));
    random_entropy(second, sizeof(second));
    assert_memory_not_equal(first, second, sizeof(first));
    assert_memory_not_equal(first + sizeof(first) - sizeof(zeros), zeros, sizeof(zeros));
}

UNIT_MAIN(NULL, NULL)
