/* The values that clients write: false entries lie where a scan would find them. */
#include "test/sim/load_value.h"

#include "test/lib/unit.h"

/* Scans what is left of the block behind its damaged begin. */
static uint32_t count_found(const struct entry_format *format, const uint8_t *log, uint32_t bytes)
{
    struct entry_scan scan;
    struct entry_header header;
    uint32_t offset, block_bytes, count = 0;
    entry_scan_init(&scan, format, log, bytes, 0);
    enum entry_scan_result result;
    while ((result = entry_scan_next(&scan, false, &header, &offset, &block_bytes)) !=
           ENTRY_SCAN_END)
        count += result == ENTRY_SCAN_BLOCK;
    return count;
}

TEST(false_entries_lie_where_a_scan_looks)
{
    static _Alignas(64) uint8_t log[16384];
    static uint8_t value[4000];
    struct random random;
    random_init(&random, 1);
    for (uint32_t key_bytes = 1; key_bytes <= 64; key_bytes++) {
        const struct load_false_entry entry = {
            .type = ENTRY_PUT, .shard = 1, .version = 7, .key_bytes = 64, .key = "key"};
        const struct entry_format secret = {.seed = 0x1234567, .block_limit = 1024},
                                  none = {.seed = 0, .block_limit = 1024};
        uint32_t made = 0;
        char key[64] = "k";
        load_value_make(&random, 1, value, sizeof value);
        for (uint32_t at = 8; at; made += at != 0)
            at = load_value_forge(&entry, 1024, key_bytes, 0, value, sizeof value, at);
        assert_true(made >= 20);
        struct entry_header header = {.type = ENTRY_PUT,
                                      .version = 1,
                                      .key_bytes = (uint16_t)key_bytes,
                                      .value_bytes = sizeof value,
                                      .blocks =
                                          (uint16_t)entry_blocks(&secret, key_bytes, sizeof value)};
        uint32_t bytes = 0;
        for (; header.block < header.blocks; header.block++) {
            uint32_t block = entry_encode_block(&secret, &header, key, value, log + bytes);
            log[bytes + 1] ^= 1; /* torn */
            bytes += block;
        }
        assert_int_equal(count_found(&none, log, bytes), made);
        assert_int_equal(count_found(&secret, log, bytes), 0);
    }
}

UNIT_MAIN(NULL, NULL)
