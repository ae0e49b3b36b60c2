/* ipmctl_test.c - rowan-dlwa reads both formats of ipmctl (samples: ipmctl/README.md), refuses what is damaged or not
 * ipmctl's with a sentence, and takes two readings apart only if they belong together. */
#include "tools/dlwa/ipmctl.h"

#include <stdio.h>
#include <string.h>

#include "test/lib/unit.h"
#include "tools/dlwa/dlwa.h"

enum { SAMPLE_BYTES = 8192 };

static char text[SAMPLE_BYTES], xml[SAMPLE_BYTES];
static struct ipmctl_reading reading;
static char why[IPMCTL_WHY_BYTES];

static void read_sample(const char *name, char *out)
{
    char path[512];

    snprintf(path, sizeof path, SAMPLES "/%s", name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    out[fread(out, 1, SAMPLE_BYTES - 1, file)] = '\0';
    fclose(file);
}

static int read_samples(void **state)
{
    (void)state;
    read_sample("recorded.txt", text);
    read_sample("made.xml", xml);
    return 0;
}

#undef TEST_FIXTURE
#define TEST_FIXTURE read_samples, NULL

static bool parse(const char *sample)
{
    const bool parsed = ipmctl_parse(sample, strlen(sample), &reading, why);

    assert_true(parsed == (why[0] == '\0'));
    return parsed;
}

/* With its first `what` replaced. */
static void assert_refused(const char *sample, const char *what, const char *by,
                           const char *sentence)
{
    char changed[SAMPLE_BYTES * 2];
    const char *at = strstr(sample, what);

    assert_non_null(at);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - sample), sample, by,
             at + strlen(what));
    assert_false(parse(changed));
    if (!strstr(why, sentence))
        fail_msg("\"%s\" does not say: %s", why, sentence);
}

static void assert_numbers(const char *sample)
{
    static const uint64_t expected[2][IPMCTL_COUNTERS] = {
        {0x115d003898, 0x5e952d8, 0x1810fb89564, 0x125eaeef513},
        {0x115ba3d21c, 0x5e94729, 0x152ef8c6250, 0xe3c535bfe1}};

    assert_true(parse(sample));
    assert_int_equal(reading.count, 2);
    assert_string_equal(reading.dimms[0].id, "0x0011");
    assert_string_equal(reading.dimms[1].id, "0x0021");
    for (unsigned i = 0; i < 2; i++)
        assert_memory_equal(reading.dimms[i].counters, expected[i], sizeof expected[i]);
}

TEST(both_formats_tell_the_same_numbers)
{
    assert_numbers(text);
    assert_numbers(xml);
}

TEST(a_sample_cut_off_anywhere_inside_a_dimm_is_refused)
{
    const char *const second = strstr(text, "---DimmID=0x0021");

    for (size_t bytes = 0; bytes + 1 < strlen(text); bytes++) {
        const bool between =
            bytes + 1 >= (size_t)(second - text) && bytes <= (size_t)(second - text);
        assert_true(ipmctl_parse(text, bytes, &reading, why) == between);
    }
    for (size_t bytes = 0; bytes + 1 < strlen(xml); bytes++)
        assert_false(ipmctl_parse(xml, bytes, &reading, why));
}

TEST(what_is_not_ipmctls_is_refused_with_its_line)
{
    assert_refused(text, "   MediaWrites", "Segmentation fault\n   MediaWrites", "line 3");
    assert_refused(text, "0x0000000000000000000000115d003898", "73014",
                   "32 hexadecimal digits"); /* decimal */
    assert_refused(text, "0x0000000000000000000000115d003898", "4.1 GiB", "32 hexadecimal digits");
    assert_refused(text, "115d003898\n", "115d0038zz\n", "32 hexadecimal digits");
    assert_refused(text, "0x0021", "0x0011", "a DIMM comes twice");
    assert_refused(text, "0x0021", "DIMM 2", "no number of a DIMM");
    assert_refused(text, "---DimmID=0x0011---\n", "", "before the first DIMM");
    assert_refused(text, "   ReadRequests", "   MediaWrites", "a counter comes twice");
    assert_refused(text, "   WriteRequests", "   OtherRequests", "0x0011 lacks counters");
    assert_refused(xml, "<DimmPerformanceList>", "<DimmList>", "this element is not");
    assert_refused(xml, "<DimmPerformance>", "<Dimm>", "this element is not");
    assert_refused(xml, "<MediaReads>", "<MediaReads><b/>", "this element is not");
    assert_refused(xml, "<DimmPerformance>", "<DimmPerformance>junk", "this text is not");
    assert_refused(xml, "<DimmPerformanceList>",
                   "<!DOCTYPE a [<!ENTITY b \"0x0\">]><DimmPerformanceList>", "document type");
    assert_false(parse(""));
    assert_false(parse("No functional DIMMs found.\n"));
    assert_false(parse("<DimmPerformanceList/>"));
    assert_string_equal(why, "no DIMM is in it");
}

TEST(a_counter_that_no_device_can_reach_is_refused)
{
    assert_refused(text, "0x0000000000000000000000115d003898", "0x0000000000000001000000115d003898",
                   "larger than any device");
    assert_refused(xml, "0x0000000000000000000000115d003898", "0x0000000000000000ffffffffffffffff",
                   "larger than any device");
}

TEST(what_another_version_has_more_is_skipped)
{
    char longer[SAMPLE_BYTES * 2];
    char *at = strstr(text, "   MediaReads");

    snprintf(longer, sizeof longer, "%.*s   NewCounter=0x%032x\r\n\r\n%s", (int)(at - text), text,
             5, at);
    assert_numbers(longer);
}

/* --- two readings --- */

static struct dlwa_sample before, after, difference;

static bool take_difference(void)
{
    return report_difference(&before, &after, 2, &difference, why);
}

static void make_samples(void)
{
    before = (struct dlwa_sample){.unit = "dimm", .count = 2};
    for (unsigned i = 0; i < 2; i++)
        before.rows[i] = (struct dlwa_row){.counts = {1000, 2000}, .origin = 1};
    strcpy(before.rows[0].name, "0x0011");
    strcpy(before.rows[1].name, "0x0021");
    after = before;
    after.rows[1].counts[DLWA_REQUEST_BYTES] += 640;
    after.rows[1].counts[DLWA_MEDIA_BYTES] += 768;
}

TEST(a_difference_is_taken_dimm_by_dimm)
{
    make_samples();
    assert_true(take_difference());
    assert_int_equal(difference.rows[0].counts[DLWA_MEDIA_BYTES], 0);
    assert_int_equal(difference.rows[1].counts[DLWA_MEDIA_BYTES], 768);
    assert_int_equal(difference.rows[1].counts[DLWA_REQUEST_BYTES], 640);
    assert_true(difference.rows[1].seconds > 1.99 && difference.rows[1].seconds < 2.01);
}

TEST(readings_of_other_dimms_or_in_the_wrong_order_have_no_difference)
{
    make_samples();
    strcpy(after.rows[1].name, "0x0121");
    assert_false(take_difference());
    assert_non_null(strstr(why, "not of the same dimms"));
    make_samples();
    after.count = 1;
    assert_false(take_difference());
    make_samples();
    after.rows[0].counts[DLWA_MEDIA_BYTES] = 1999;
    assert_false(take_difference());
    assert_non_null(strstr(why, "0x0011 counts less"));
}

TEST(a_server_that_began_anew_has_no_difference_and_the_others_have)
{
    make_samples();
    after.rows[0].origin = 2;
    after.rows[0].counts[DLWA_MEDIA_BYTES] = 5;
    assert_true(take_difference());
    assert_true(difference.rows[0].off && difference.rows[0].note);
    assert_false(difference.rows[1].off);
    assert_int_equal(difference.rows[1].counts[DLWA_MEDIA_BYTES], 768);
}

UNIT_MAIN(NULL, NULL)
