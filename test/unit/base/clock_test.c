/* clock_test.c - the host's clock and the number of its boot. */
#include "common/base/clock.h"
#include "common/base/error.h"
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

TEST(a_boot_id_is_read_byte_by_byte)
{
    static const uint8_t expected[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                                         0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
    uint8_t id[16] = {0};

    assert_int_equal(clock_boot_id_decode("01234567-89ab-cdef-fedc-ba9876543210\n", id), 0);
    assert_memory_equal(id, expected, sizeof id);
    memset(id, 0, sizeof id);
    assert_int_equal(clock_boot_id_decode("01234567-89AB-CDEF-FEDC-BA9876543210", id), 0);
    assert_memory_equal(id, expected, sizeof id);
}

TEST(what_is_no_boot_id_is_refused)
{
    static const char *const texts[] = {
        "",
        "\n",
        "01234567-89ab-cdef-fedc-ba987654321",
        "01234567-89ab-cdef-fedc-ba98765432100",
        "01234567-89ab-cdef-fedc-ba9876543210\n\n",
        "0123456789ab-cdef-fedc-ba9876543210-",
        "01234567-89ab-cdef-fedc-ba987654321g",
        "0123456 -89ab-cdef-fedc-ba9876543210",
        "01234567_89ab-cdef-fedc-ba9876543210",
    };
    static const uint8_t untouched[16] = {42};
    uint8_t id[16] = {42};

    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(clock_boot_id_decode(texts[i], id), ROWAN_EIO);
        assert_memory_equal(id, untouched, sizeof id);
    }
}

UNIT_MAIN(NULL, NULL)
