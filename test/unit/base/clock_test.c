/* clock_test.c - the host's clock and the number of its boot. */
#include "common/base/clock.h"
#include "test/lib/unit.h"

TEST(the_clock_does_not_go_back)
{
    uint64_t before = clock_now_ns(clock_system());

    for (unsigned i = 0; i < 1000; i++) {
        const uint64_t now = clock_now_ns(clock_system());

        assert_true(now >= before);
        before = now;
    }
}

TEST(the_boot_id_is_the_kernels)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    char text[64], again[64];
    uint8_t id[16];

    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_int_equal(clock_boot_id(id), 0);
    snprintf(again, sizeof again,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", id[0], id[1],
             id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9], id[10], id[11], id[12], id[13],
             id[14], id[15]);
    assert_string_equal(again, text);
}

UNIT_MAIN(NULL, NULL)
