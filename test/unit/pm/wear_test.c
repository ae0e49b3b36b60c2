/* wear_test.c - the model of a DIMM's buffer: what the paper measured comes out of it, and each rule of wear.h. */
#include "common/pm/wear.h"
#include "test/lib/unit.h"

enum { FAR = 1 << 20 /* requests between two logs */ };

static struct wear wear;

static double ratio(void)
{
    const struct wear_count total = wear_total(&wear);

    return wear_ratio(total.request_bytes, total.media_bytes);
}

/* Streams that write on in turn, as in the paper's section 2.4. */
static double streams(uint64_t count, uint64_t requests)
{
    wear_init(&wear, WEAR_DIMMS, 7);
    for (uint64_t i = 0; i < 4000; i++) {
        for (uint64_t stream = 0; stream < count; stream++)
            wear_write(&wear, stream * FAR + i * requests, requests, WEAR_DATA);
    }
    return ratio();
}

static void assert_near(double value, double expected, double part)
{
    if (value < expected * (1 - part) || value > expected * (1 + part))
        fail_msg("%.3f, and not within %.0f %% of %.3f", value, part * 100, expected);
}

TEST(figure_2_of_the_paper_comes_out)
{
    for (uint64_t count = 9; count < 90; count += 9) {
        assert_near(streams(count, 1), 1, 0.05);
        assert_near(streams(count, 2), 1, 0.05);
    }
    assert_near(streams(144, 1), 2.48, 0.1);
    assert_near(streams(144, 2), 1.58, 0.1);
}

TEST(a_part_of_a_line_costs_a_whole_one_when_it_has_to_leave)
{
    wear_init(&wear, 1, 1);
    for (uint64_t i = 0; i < 10000; i++)
        wear_write(&wear, i * 4, 1, WEAR_DATA);
    assert_int_equal(wear_total(&wear).media_bytes,
                     (10000 - WEAR_LINES_PER_DIMM) * WEAR_LINE_BYTES);
    assert_int_equal(wear_total(&wear).request_bytes, 10000 * WEAR_REQUEST_BYTES);
}

TEST(writes_to_the_same_part_of_an_open_line_merge)
{
    wear_init(&wear, 1, 1);
    for (unsigned i = 0; i < 1000; i++)
        wear_write(&wear, 5, 1, WEAR_DATA);
    assert_int_equal(wear_total(&wear).media_bytes, 0);
    wear_write(&wear, 4, 4, WEAR_DATA);
    assert_int_equal(wear_total(&wear).media_bytes, WEAR_LINE_BYTES);
}

TEST(a_write_that_begins_and_ends_within_lines_leaves_both_open)
{
    wear_init(&wear, 1, 1);
    wear_write(&wear, 3, 10,
               WEAR_DATA); /* the last of a line, two whole ones, the first of a fourth */
    assert_int_equal(wear_total(&wear).media_bytes, 2 * WEAR_LINE_BYTES);
    wear_write(&wear, 0, 3, WEAR_DATA);
    assert_int_equal(wear_total(&wear).media_bytes, 3 * WEAR_LINE_BYTES);
    wear_write(&wear, 13, 3, WEAR_DATA);
    assert_int_equal(wear_total(&wear).media_bytes, 4 * WEAR_LINE_BYTES);
}

TEST(a_whole_line_takes_a_place_from_one_other_only)
{
    wear_init(&wear, 1, 1);
    for (uint64_t i = 0; i < WEAR_LINES_PER_DIMM; i++)
        wear_write(&wear, i * 4, 1, WEAR_DATA);
    wear_write(&wear, FAR, 4096, WEAR_CLEANING);
    assert_int_equal(wear.counts[WEAR_DATA].media_bytes, WEAR_LINE_BYTES);
    assert_int_equal(wear.counts[WEAR_CLEANING].media_bytes, 4096 * WEAR_REQUEST_BYTES);
}

TEST(a_line_is_on_the_account_of_who_wrote_it_last)
{
    wear_init(&wear, 1, 1);
    wear_write(&wear, 0, 3, WEAR_DATA);
    wear_write(&wear, 3, 1, WEAR_TABLES);
    assert_int_equal(wear.counts[WEAR_DATA].media_bytes, 0);
    assert_int_equal(wear.counts[WEAR_TABLES].media_bytes, WEAR_LINE_BYTES);
    assert_int_equal(wear.counts[WEAR_DATA].request_bytes, 3 * WEAR_REQUEST_BYTES);
}

TEST(years_are_the_endurance_over_the_rate)
{
    const double year_s = 365.25 * 24 * 3600;

    assert_near(wear_years(2000000000, 1, 3, 363), 363e15 * 3 / 2e9 / year_s, 1e-9);
    assert_true(wear_years(0, 1, 3, 363) == 0 && wear_years(1, 0, 3, 363) == 0);
}

UNIT_MAIN(NULL, NULL)
