/* The vectors are those of RFC 3720, appendix B.4, and the usual check values. */
#include "common/base/crc.h"
#include "common/base/random.h"
#include "test/lib/unit.h"

TEST(check_value_is_the_published_one)
{
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(0, "", 0), 0);
}

TEST(crc8_is_the_published_one_and_finds_three_flipped_bits)
{
    uint8_t word[11] = {0x12, 5, 1};
    assert_int_equal(crc8_autosar("123456789", 9), 0xdf);
    uint8_t crc = crc8_autosar(word, sizeof word);
    for (unsigned i = 0; i < 88; i++) {
        for (unsigned j = i; j < 88; j++) {
            for (unsigned k = j; k < 88; k++) {
                uint8_t other[11];
                memcpy(other, word, sizeof word);
                other[i / 8] ^= (uint8_t)(1 << i % 8);
                other[j / 8] ^= (uint8_t)(1 << j % 8);
                other[k / 8] ^= (uint8_t)(1 << k % 8);
                assert_true(memcmp(other, word, sizeof word) == 0 ||
                            crc8_autosar(other, sizeof other) != crc);
            }
        }
    }
}

TEST(vectors_of_rfc_3720_hold)
{
    unsigned char bytes[32];

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

TEST(parts_chain_to_the_crc_of_the_whole)
{
    for (size_t cut = 0; cut <= 9; cut++) {
        uint32_t first = crc32c(0, "123456789", cut);

        assert_int_equal(crc32c(first, &"123456789"[cut], 9 - cut), 0xe3069283);
    }
}

/* CRC16/XMODEM bit by bit, as its definition reads. */
static uint16_t crc16_by_bits(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0;

    for (size_t i = 0; i < count; i++) {
        crc ^= (uint32_t)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 0x8000) ? (crc << 1) ^ 0x1021 : crc << 1;
        crc &= 0xffff;
    }
    return (uint16_t)crc;
}

TEST(crc16_is_that_of_its_definition_at_every_length_and_place)
{
    uint8_t bytes[1100];
    struct random random;

    assert_int_equal(crc16_xmodem("123456789", 9), 0x31c3);
    random_init(&random, 16);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)random_u64(&random);
    for (size_t count = 0; count <= 1024; count++) {
        const uint8_t *at = bytes + count % 9;
        uint16_t wanted = crc16_by_bits(at, count);

        assert_int_equal(crc16_xmodem(at, count), wanted);
        assert_int_equal(crc16_xmodem_by_table(at, count), wanted);
    }
}

/* Short ones go another way than long ones. */
TEST(a_head_and_its_rest_give_the_checksum_of_both)
{
    static uint8_t bytes[2048];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t rest = 0; rest <= sizeof(bytes) - 32; rest += 32)
        assert_int_equal(crc32c_headed(77, bytes, bytes + 32, rest), crc32c(77, bytes, 32 + rest));
}

UNIT_MAIN(NULL, NULL)
