/* hdr_test.c - histograms as HdrHistogram encodes them. test/cluster/ycsb.py decodes whole logs. */
#include "test/lib/unit.h"
#include "tools/rowan-ycsb/hdr.h"

static struct histogram histogram;
static uint8_t encoded[HDR_ENCODED_BYTES];

TEST(a_small_histogram_has_the_bytes_of_the_format)
{
    static const uint8_t golden[] = {
        0x1c, 0x84, 0x93, 0x13,                         /* V2 */
        0,    0,    0,    5,                            /* bytes of counts */
        0,    0,    0,    0,                            /* normalizing index offset */
        0,    0,    0,    2,                            /* significant digits */
        0,    0,    0,    0,    0,    0,    0,    1,    /* lowest discernible value */
        0,    0,    0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, /* highest trackable value */
        0x3f, 0xf0, 0,    0,    0,    0,    0,    0,    /* 1.0 */
        0x09,                                           /* 5 times nothing */
        0x04,                                           /* 5 ns: 2 */
        0x9f, 0x04,                                     /* 272 times nothing */
        0x02,                                           /* 300 ns, index 128 + 300 / 2: 1 */
    };

    histogram_reset(&histogram);
    histogram_add(&histogram, 5);
    histogram_add(&histogram, 300);
    histogram_add(&histogram, 5);
    assert_int_equal(hdr_encode(&histogram, encoded), sizeof golden);
    assert_memory_equal(encoded, golden, sizeof golden);
}

TEST(the_largest_values_and_counts_have_space)
{
    histogram_reset(&histogram);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        histogram.buckets[i] = INT64_MAX;
    histogram.max = UINT64_MAX;
    size_t bytes = hdr_encode(&histogram, encoded);

    assert_true(bytes <= sizeof encoded);
    /* Nine bytes a count, and one for the index between two counts of ours where it is skipped. */
    assert_int_equal(bytes - HDR_HEADER_BYTES, 9 * HISTOGRAM_BUCKETS + HISTOGRAM_BUCKETS - 128);
}

UNIT_MAIN(NULL, NULL)
