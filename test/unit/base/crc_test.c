/* The vectors are those of RFC 3720, appendix B.4, and the usual check value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "common/base/crc.h"

static void check_value_is_the_published_one(void **state)
{
    (void)state;
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(0, "", 0), 0);
}

static void vectors_of_rfc_3720_hold(void **state)
{
    unsigned char bytes[32];

    (void)state;
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(crc32c(0, bytes, sizeof(bytes)), 0x8a9136aa);
    memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(crc32c(0, bytes, sizeof(bytes)), 0x62a8ab43);
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(crc32c(0, bytes, sizeof(bytes)), 0x46dd794e);
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(31 - i);
    assert_int_equal(crc32c(0, bytes, sizeof(bytes)), 0x113fdb5c);
}

static void parts_chain_to_the_crc_of_the_whole(void **state)
{
    (void)state;
    for (size_t cut = 0; cut <= 9; cut++) {
        uint32_t first = crc32c(0, "123456789", cut);

        assert_int_equal(crc32c(first, &"123456789"[cut], 9 - cut), 0xe3069283);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_value_is_the_published_one),
        cmocka_unit_test(vectors_of_rfc_3720_hold),
        cmocka_unit_test(parts_chain_to_the_crc_of_the_whole),
    };

    return cmocka_run_group_tests_name("crc", tests, NULL, NULL);
}
