/* slot_test.c - slots against values of the Redis Cluster specification and of CLUSTER KEYSLOT. */
#include "common/base/crc.h"
#include "common/cluster/slot.h"
#include "test/lib/unit.h"

static uint16_t slot(const char *key)
{
    return slot_of_key(key, (uint32_t)strlen(key));
}

TEST(slot_is_the_crc16_of_the_specification)
{
    assert_int_equal(slot("123456789"), 0x31c3);
    assert_int_equal(slot(""), 0);
    assert_int_equal(slot("foo"), 12182);
    assert_int_equal(slot("bar"), 5061);
    assert_int_equal(slot("hello"), 866);
    assert_int_equal(slot("somekey"), 11058);
    assert_int_equal(slot("foo{hash_tag}"), 2515);
}

TEST(keys_with_one_tag_share_a_slot)
{
    assert_int_equal(slot("{user1000}.following"), slot("{user1000}.followers"));
    assert_int_equal(slot("{user1000}.following"), slot("user1000"));
    assert_int_equal(slot("foo{bar}"), slot("bar"));
    assert_int_equal(slot("foo{hash_tag}"), slot("bar{hash_tag}"));
}

TEST(only_the_first_pair_of_braces_counts)
{
    assert_int_equal(slot("foo{{bar}}zap"), slot("{bar"));
    assert_int_equal(slot("foo{bar}{zap}"), slot("bar"));
    assert_int_equal(slot("a}b{bar}"), slot("bar"));
}

TEST(a_key_with_an_empty_or_open_tag_is_hashed_whole)
{
    static const char *const keys[] = {"foo{}{bar}", "{}", "foo{bar", "{", "foo}bar", "}{", "{}x"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        assert_int_equal(slot(keys[i]), crc16_xmodem(keys[i], strlen(keys[i])) % SLOT_COUNT);
}

UNIT_MAIN(NULL, NULL)
