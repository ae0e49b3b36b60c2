/* Short copies: every length, and nothing beside it. */
#include "common/base/copy.h"
#include "test/lib/unit.h"

TEST(every_length_is_copied_and_nothing_else)
{
    uint8_t from[256], to[256 + 2];

    for (unsigned i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)(i + 1);
    for (unsigned bytes = 0; bytes <= sizeof from; bytes++) {
        memset(to, 0, sizeof to);
        copy_short(to + 1, bytes ? from : NULL, bytes);
        assert_memory_equal(to + 1, from, bytes);
        for (unsigned i = bytes + 1; i < sizeof to; i++)
            assert_int_equal(to[i], 0);
        assert_int_equal(to[0], 0);
    }
}

UNIT_MAIN(NULL, NULL)
