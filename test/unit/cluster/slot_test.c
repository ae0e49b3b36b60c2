/* slot_test.c - slots against values of the Redis Cluster specification and of CLUSTER KEYSLOT. */
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

/* CRC16/XMODEM bit by bit, as its definition reads: shares nothing with the table. */
static uint16_t crc16_by_bits(const char *bytes, size_t count)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < count; i++) {
        crc ^= (uint32_t)(uint8_t)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 0x8000) ? (crc << 1) ^ 0x1021 : crc << 1;
        crc &= 0xffff;
    }
    return (uint16_t)crc;
}

TEST(a_key_with_an_empty_or_open_tag_is_hashed_whole)
{
    static const char *const keys[] = {"foo{}{bar}", "{}", "foo{bar", "{", "foo}bar", "}{", "{}x"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        assert_int_equal(slot(keys[i]), crc16_by_bits(keys[i], strlen(keys[i])) % SLOT_COUNT);
}

TEST(every_byte_value_goes_through_the_table_rightly)
{
    for (int a = 0; a < 256; a++) {
        char key[2] = {'k', (char)a};
        assert_int_equal(slot_of_key(key, 2), crc16_by_bits(key, 2) % SLOT_COUNT);
        key[0] = (char)a;
        key[1] = '\0';
        assert_int_equal(slot_of_key(key, 2), crc16_by_bits(key, 2) % SLOT_COUNT);
    }
}

UNIT_MAIN(NULL, NULL)
