/* workload_test.c - rowan-ycsb's numbers: the distributions have the shape that theory and the
 * profiles' source give them, everything follows from the seed, and the acked file keeps what was
 * acknowledged. */
#include <math.h>

#include "common/base/error.h"
#include "common/base/random.h"
#include "test/lib/unit.h"
#include "tools/rowan-ycsb/acked.h"
#include "tools/rowan-ycsb/workload.h"
#include "tools/rowan-ycsb/zipf.h"

enum { DRAWS = 1000000 };

TEST(zeta_agrees_with_the_plain_sum)
{
    struct zipf zipf;
    double sum = 0;

    for (uint64_t i = 1000000; i > 0; i--)
        sum += 1 / pow((double)i, ZIPF_THETA);
    zipf_init(&zipf, 1000000);
    assert_true(fabs(zipf.zetan - sum) < 1e-9);
    zipf_init(&zipf, 1);
    assert_true(fabs(zipf.zetan - 1) < 1e-12);
}

TEST(ranks_come_as_often_as_zipf_says)
{
    static uint32_t counts[100000];
    struct random random;
    struct zipf zipf;
    double first_ranks = 0, theory = 0;

    zipf_init(&zipf, 100000);
    random_init(&random, 7);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t rank = zipf_rank(&zipf, random_unit(&random));

        assert_true(rank < 100000);
        counts[rank]++;
    }
    assert_true(fabs(counts[0] * zipf.zetan / DRAWS - 1) < 0.02);
    assert_true(fabs(counts[1] * zipf.zetan * pow(2, ZIPF_THETA) / DRAWS - 1) < 0.02);
    /* Gray's method is exact for the first two ranks only; the shape behind them is near. */
    for (int i = 0; i < 1000; i++) {
        first_ranks += counts[i];
        theory += DRAWS / zipf.zetan / pow(i + 1, ZIPF_THETA);
    }
    assert_true(fabs(first_ranks / theory - 1) < 0.03);
}

TEST(the_smallest_ranges_are_drawn_from_whole)
{
    for (uint64_t count = 1; count <= 3; count++) {
        struct zipf zipf;
        uint64_t seen = 0;

        zipf_init(&zipf, count);
        for (int i = 0; i < 1000; i++) {
            uint64_t rank = zipf_rank(&zipf, i / 1000.0);

            assert_true(rank < count);
            seen |= 1u << rank;
        }
        assert_int_equal(seen, (1u << count) - 1);
    }
}

TEST(the_scramble_scatters_evenly)
{
    uint32_t buckets[64] = {0};

    for (uint64_t rank = 0; rank < 640000; rank++) {
        uint64_t place = zipf_scramble(rank, 1000000);

        assert_true(place < 1000000);
        buckets[place * 64 / 1000000]++;
    }
    for (int i = 0; i < 64; i++)
        assert_in_range(buckets[i], 9500, 10500);
    assert_int_not_equal(zipf_scramble(0, 1000000), zipf_scramble(1, 1000000));
}

static void check_sizes(const char *name, double key_mean, double key_deviation, double value_mean)
{
    struct profile *profile;
    char key[WORKLOAD_MAX_KEY_BYTES];
    double keys = 0, squares = 0, values = 0;
    enum { OBJECTS = 200000 };

    assert_int_equal(profile_create(name, &profile), 0);
    for (uint64_t record = 0; record < OBJECTS; record++) {
        uint32_t bytes = workload_key(profile, record, key);

        keys += bytes;
        squares += bytes * (double)bytes;
        bytes = workload_value_bytes(profile, record, workload_mix(record, 9));
        assert_true(bytes <= profile->max_value_bytes);
        values += bytes;
    }
    double mean = keys / OBJECTS;

    assert_true(fabs(mean / key_mean - 1) < 0.01);
    assert_true(fabs(values / OBJECTS / value_mean - 1) < 0.01);
    assert_true(fabs(sqrt(squares / OBJECTS - mean * mean) / key_deviation - 1) < 0.05);
    free(profile);
}

TEST(profiles_have_the_sizes_of_their_source)
{
    check_sizes("zippydb", 47.9, 3.7, 42.9);
    check_sizes("up2x", 10.45, 1.4, 46.8);
    check_sizes("udb", 27.1, 2.6, 126.7);
}

TEST(fixed_values_have_one_size)
{
    struct profile *profile;
    char key[WORKLOAD_MAX_KEY_BYTES];

    assert_int_equal(profile_create("fixed:1M", &profile), 0);
    assert_int_equal(profile->max_value_bytes, 1 << 20);
    assert_int_equal(workload_value_bytes(profile, 5, 6), 1 << 20);
    assert_int_equal(workload_key(profile, 5, key), WORKLOAD_FIXED_KEY_BYTES);
    free(profile);
    assert_int_equal(profile_create("fixed:", &profile), ROWAN_EINVALID);
    assert_int_equal(profile_create("fixed:1048577", &profile), ROWAN_EINVALID);
    assert_int_equal(profile_create("fixed:-1", &profile), ROWAN_EINVALID);
    assert_int_equal(profile_create("zippy", &profile), ROWAN_EINVALID);
}

TEST(keys_are_unique_whatever_their_length)
{
    struct profile *profile;
    char first[WORKLOAD_MAX_KEY_BYTES], second[WORKLOAD_MAX_KEY_BYTES];

    assert_int_equal(profile_create("up2x", &profile), 0);
    for (uint64_t record = 0; record < 100000; record++) {
        /* The digits in front are the record's number, so equal keys are equal records. */
        uint32_t bytes = workload_key(profile, record, first);
        uint64_t number = 0;

        assert_true(bytes >= WORKLOAD_KEY_DIGITS);
        for (int i = 0; i < WORKLOAD_KEY_DIGITS; i++)
            number =
                number * 32 + (uint64_t)(first[i] <= '9' ? first[i] - '0' : first[i] - 'a' + 10);
        assert_int_equal(number, record);
        assert_int_equal(workload_key(profile, record, second), bytes);
        assert_memory_equal(first, second, bytes);
    }
    free(profile);
}

TEST(values_follow_from_record_and_seed)
{
    uint8_t first[100], second[100];

    workload_value(3, 4, first, sizeof first);
    workload_value(3, 4, second, sizeof second);
    assert_memory_equal(first, second, sizeof first);
    workload_value(3, 5, second, sizeof second);
    assert_memory_not_equal(first, second, sizeof first);
    workload_value(4, 4, second, sizeof second);
    assert_memory_not_equal(first, second, sizeof first);
    memset(second, 0xee, sizeof second);
    workload_value(3, 4, second, 13); /* no byte more */
    assert_memory_equal(first, second, 13);
    assert_int_equal(second[13], 0xee);
}

static char path[] = "/tmp/rowan-acked-XXXXXX";

static int make_path(void **state)
{
    (void)state;
    int fd = mkstemp(path);

    return fd < 0 || close(fd) != 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

TEST(the_highest_acknowledged_version_counts)
{
    const struct acked_record first[] = {{5, 10, 100}, {6, 11, 101}};
    const struct acked_record second[] = {{5, 12, 102}, {5, 11, 103}};
    struct acked_table table;
    int fd;

    assert_int_equal(acked_open(path, "udb", &fd), 0);
    assert_int_equal(acked_append(fd, first, 2), 0);
    assert_int_equal(write(fd, "cut", 3), 3); /* the process was killed */
    close(fd);
    assert_int_equal(acked_load(path, &table), 0);
    assert_int_equal(table.writes, 2);
    acked_free(&table);
    assert_int_equal(acked_open(path, "udb", &fd), 0);
    assert_int_equal(acked_append(fd, second, 2), 0);
    close(fd);
    assert_int_equal(acked_load(path, &table), 0);
    assert_string_equal(table.profile, "udb");
    assert_int_equal(table.writes, 4);
    assert_int_equal(table.records, 2);
    assert_int_equal(table.last[5].version, 12);
    assert_int_equal(table.last[5].seed, 102);
    assert_int_equal(table.last[6].version, 11);
    assert_int_equal(table.last[7].version, 0);
    acked_free(&table);
}

TEST(another_profiles_or_another_file_is_refused)
{
    struct acked_table table;
    int fd;

    assert_int_equal(acked_open(path, "up2x", &fd), ROWAN_EINVALID);
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(acked_open(path, "udb", &fd), ROWAN_EFORMAT);
    assert_int_equal(acked_load(path, &table), ROWAN_EFORMAT);
    assert_int_equal(acked_load("/nowhere/at/all", &table), ROWAN_ENOTFOUND);
}

TEST(a_damaged_record_number_costs_no_memory)
{
    const struct acked_record bad = {UINT64_MAX, 1, 1};
    struct acked_table table;
    int fd;

    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(acked_open(path, "udb", &fd), 0);
    assert_int_equal(acked_append(fd, &bad, 1), 0);
    close(fd);
    assert_int_equal(acked_load(path, &table), ROWAN_EFORMAT);
}

UNIT_MAIN(make_path, remove_path)
