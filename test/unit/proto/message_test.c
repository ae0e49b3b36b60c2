/* message_test.c - the data-plane messages against bytes written by hand. */
#include "proto/message.h"
#include "test/lib/unit.h"

/* type layout shard | epoch | client id | operation | lowest unanswered | key bytes, zero |
 * value bytes | tag | expected | key | value */
static const uint8_t get_bytes[] = {
    0x01, 0x01, 0x34, 0x12, 0x78, 0x56, 0x34, 0x00, 0xef, 0xbe, 0xad, 0xde, 0x0a, 0x00, 0x00,
    0x00, 0x09, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x03,
    0x02, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 'k',  'e',  'y',
};
static const uint8_t put_bytes[] = {
    0x02, 0x01, 0x07, 0x00, 0x01, 0x00, 0x00, 0x00, 0x2a, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff,
    0xfe, 0xff, 0xff, 0xff, 0x01, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x11, 0x22, 0x33, 0x44,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 'k',  'v',  'a',  'l',  'u',  'e',
};
static const uint8_t put_if_bytes[] = {
    0x03, 0x01, 0x07, 0x00, 0x01, 0x00, 0x00, 0x00, 0x2a, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00,
    0x00, 0x01, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x80, 0x9a, 0x78, 0x56, 0x34, 0x12, 0xef, 0xcd, 0xab, 'k',  '2',  'v',
};
static const uint8_t delete_bytes[] = {
    0x04, 0x01, 0x00, 0x02, 0xff, 0xff, 0xff, 0x00, 0x01, 0x00, 0x00, 0x00, 0x03, 0x00,
    0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 'd',
};
/* type layout status | operation | tag | value bytes | version | term | value */
static const uint8_t reply_bytes[] = {
    0x10, 0x01, 0x00, 0x00, 0x0a, 0x00, 0x00, 0x00, 0x04, 0x03, 0x02, 0x01,
    0x02, 0x00, 0x00, 0x00, 0x9a, 0x78, 0x56, 0x34, 0x12, 0xef, 0xcd, 0xab,
    0x11, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 'h',  'i',
};
static const uint8_t failure_bytes[] = {
    0x10, 0x01, 0xfe, 0xff, 0x0b, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x07, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x12, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
};
/* type layout zero | tag | payload */
static const uint8_t control_bytes[] = {
    0x20, 0x01, 0x00, 0x00, 0xdd, 0xcc, 0xbb, 0xaa, 0x32, 0x00,
};

enum kind { REQUEST, REPLY, CONTROL };

static const struct golden {
    enum kind kind;
    const uint8_t *bytes;
    size_t count;
} goldens[] = {
    {REQUEST, get_bytes, sizeof(get_bytes)},         {REQUEST, put_bytes, sizeof(put_bytes)},
    {REQUEST, put_if_bytes, sizeof(put_if_bytes)},   {REQUEST, delete_bytes, sizeof(delete_bytes)},
    {REPLY, reply_bytes, sizeof(reply_bytes)},       {REPLY, failure_bytes, sizeof(failure_bytes)},
    {CONTROL, control_bytes, sizeof(control_bytes)},
};
enum { GET, PUT, PUT_IF, DELETE, VALUE, FAILURE, ORDER, GOLDENS };

/* Parses from a heap block of exactly that size, so that ASan sees a read past its end. */
static bool parses(enum kind kind, const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count + 1); /* malloc(0) may be NULL: one more in front */
    struct message_request request;
    struct message_reply reply;
    struct message_control control;
    const uint8_t *key, *value;
    size_t value_bytes;
    memcpy(copy + 1, bytes, count);
    bool parsed = kind == REQUEST ? message_parse_request(copy + 1, count, &request, &key, &value)
                  : kind == REPLY
                      ? message_parse_reply(copy + 1, count, &reply, &value)
                      : message_parse_control(copy + 1, count, &control, &value, &value_bytes);
    free(copy);
    return parsed;
}

/* True if the golden message parses with byte `at` set to `with`. */
static bool parses_with(const struct golden *golden, size_t at, uint8_t with)
{
    uint8_t copy[64];
    memcpy(copy, golden->bytes, golden->count);
    copy[at] = with;
    return parses(golden->kind, copy, golden->count);
}

TEST(requests_are_parsed)
{
    const struct message_request expected[] = {
        {MESSAGE_GET, 1, 0x1234, 0x345678, 0xdeadbeef, 10, 9, 3, 0, 0, 0x01020304, 0},
        {MESSAGE_PUT, 1, 7, 1, 42, 0xffffffff, 0xfffffffe, 1, 0, 5, 0x44332211, 0},
        {MESSAGE_PUT_IF, 1, 7, 1, 42, 2, 1, 2, 0, 1, 0x80000000, 0xabcdef123456789a},
        {MESSAGE_DELETE, 1, 512, 0xffffff, 1, 3, 3, 1, 0, 0, 8, 0},
    };
    static const char *const keys[] = {"key", "k", "k2", "d"}, *const values[] = {"", "value", "v",
                                                                                  ""};
    for (size_t i = GET; i <= DELETE; i++) {
        struct message_request request;
        const uint8_t *key, *value;
        assert_true(
            message_parse_request(goldens[i].bytes, goldens[i].count, &request, &key, &value));
        assert_memory_equal(&request, &expected[i], sizeof(request));
        assert_ptr_equal(key, goldens[i].bytes + 40);
        assert_memory_equal(key, keys[i], request.key_bytes);
        assert_memory_equal(value, values[i], request.value_bytes);
        assert_memory_equal(&expected[i], goldens[i].bytes,
                            sizeof(request)); /* as they lie in memory */
    }
}

TEST(replies_are_parsed)
{
    const struct message_reply expected[] = {
        {MESSAGE_REPLY, 1, 0, 10, 0x01020304, 2, 0xabcdef123456789a, 0x8000000000000011},
        {MESSAGE_REPLY, 1, -2, 11, 5, 0, 0x10000000007, 18},
    };
    for (size_t i = 0; i < 2; i++) {
        const struct golden *golden = &goldens[VALUE + i];
        struct message_reply reply;
        const uint8_t *value;
        assert_true(message_parse_reply(golden->bytes, golden->count, &reply, &value));
        assert_memory_equal(&reply, &expected[i], sizeof(reply));
        assert_ptr_equal(value, golden->bytes + 32);
        assert_memory_equal(&expected[i], golden->bytes, sizeof(reply));
    }
}

TEST(a_control_message_is_parsed)
{
    const struct message_control expected = {MESSAGE_CONTROL, 1, 0, 0xaabbccdd};
    struct message_control control;
    const uint8_t *payload;
    size_t payload_bytes;
    assert_true(message_parse_control(control_bytes, sizeof(control_bytes), &control, &payload,
                                      &payload_bytes));
    assert_memory_equal(&control, &expected, sizeof(control));
    assert_memory_equal(&expected, control_bytes, sizeof(control));
    assert_ptr_equal(payload, control_bytes + 8);
    assert_int_equal(payload_bytes, 2);
    assert_true(parses(CONTROL, control_bytes, 8)); /* an empty ControlMessage is one */
}

TEST(the_type_is_told_of_layouts_that_are_read_only)
{
    for (size_t i = 0; i < GOLDENS; i++)
        assert_int_equal(message_type(goldens[i].bytes, 2), goldens[i].bytes[0]);
    assert_int_equal(message_type(control_bytes, 1), -1);
    assert_int_equal(message_type(control_bytes, 0), -1);
    assert_int_equal(message_type((uint8_t[]){MESSAGE_GET, MESSAGE_LAYOUT + 1}, 2), -1);
    assert_int_equal(message_type((uint8_t[]){MESSAGE_GET, MESSAGE_LAYOUT_LOWEST - 1}, 2), -1);
}

TEST(every_truncation_and_bytes_behind_the_message_are_refused)
{
    uint8_t longer[64] = {0};
    for (size_t i = 0; i < GOLDENS; i++) {
        const struct golden *golden = &goldens[i];
        const size_t least = golden->kind == CONTROL ? 8 : golden->count;
        for (size_t bytes = 0; bytes < least; bytes++)
            assert_false(parses(golden->kind, golden->bytes, bytes));
        memcpy(longer, golden->bytes, golden->count);
        assert_true(parses(golden->kind, longer, golden->count));
        assert_int_equal(parses(golden->kind, longer, golden->count + 1), golden->kind == CONTROL);
    }
}

TEST(other_types_and_layouts_are_refused)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        const bool request = byte == MESSAGE_GET || byte == MESSAGE_PUT || byte == MESSAGE_PUT_IF ||
                             byte == MESSAGE_DELETE;
        const bool layout = byte >= MESSAGE_LAYOUT_LOWEST && byte <= MESSAGE_LAYOUT;
        assert_int_equal(parses_with(&goldens[GET], 0, (uint8_t)byte), request);
        assert_int_equal(parses_with(&goldens[VALUE], 0, (uint8_t)byte), byte == MESSAGE_REPLY);
        assert_int_equal(parses_with(&goldens[ORDER], 0, (uint8_t)byte), byte == MESSAGE_CONTROL);
        for (size_t i = 0; i < GOLDENS; i++)
            assert_int_equal(parses_with(&goldens[i], 1, (uint8_t)byte), layout);
    }
}

TEST(reserved_fields_must_be_zero)
{
    for (unsigned bit = 0; bit < 8; bit++) {
        for (size_t at = 0; at < 2; at++) {
            assert_false(parses_with(&goldens[PUT], 22 + at, (uint8_t)(1 << bit)));
            assert_false(parses_with(&goldens[ORDER], 2 + at, (uint8_t)(1 << bit)));
        }
    }
}

TEST(only_a_conditional_put_expects_a_version)
{
    for (size_t at = 32; at < 40; at++) {
        for (size_t i = GET; i <= DELETE; i++)
            assert_int_equal(parses_with(&goldens[i], at, 1), i == PUT_IF);
    }
}

TEST(gets_and_deletes_carry_no_value)
{
    assert_true(parses_with(&goldens[PUT], 0, MESSAGE_PUT));
    assert_false(parses_with(&goldens[PUT], 0, MESSAGE_GET));
    assert_false(parses_with(&goldens[PUT], 0, MESSAGE_DELETE));
}

static bool sizes_parse(uint8_t *buffer, uint16_t key_bytes, uint32_t value_bytes)
{
    memcpy(buffer + 20, &key_bytes, sizeof(key_bytes));
    memcpy(buffer + 24, &value_bytes, sizeof(value_bytes));
    return parses(REQUEST, buffer, 40 + (size_t)key_bytes + value_bytes);
}

TEST(sizes_outside_the_limits_are_refused)
{
    uint8_t *buffer = calloc(1, 40 + UINT16_MAX + (2 << 20));
    assert_non_null(buffer);
    memcpy(buffer, put_bytes, 40);
    assert_true(sizes_parse(buffer, 1, 0));
    assert_true(sizes_parse(buffer, 1024, 1 << 20));
    assert_false(sizes_parse(buffer, 0, 5));
    assert_false(sizes_parse(buffer, 1025, 5));
    assert_false(sizes_parse(buffer, UINT16_MAX, 5));
    assert_false(sizes_parse(buffer, 1, (1 << 20) + 1));
    buffer[0] = MESSAGE_PUT_IF;
    assert_true(sizes_parse(buffer, 1, 1 << 20));
    assert_false(sizes_parse(buffer, 1, (1 << 20) + 1));
    /* Sums that wrap 32 bits to the right length. */
    uint32_t wraps = UINT32_MAX;
    uint16_t key_bytes = 6;
    memcpy(buffer + 20, &key_bytes, sizeof(key_bytes));
    memcpy(buffer + 24, &wraps, sizeof(wraps));
    assert_false(parses(REQUEST, buffer, 45));

    memcpy(buffer, reply_bytes, 32);
    uint32_t value_bytes = 1 << 20;
    memcpy(buffer + 12, &value_bytes, sizeof(value_bytes));
    assert_true(parses(REPLY, buffer, 32 + value_bytes));
    value_bytes++;
    memcpy(buffer + 12, &value_bytes, sizeof(value_bytes));
    assert_false(parses(REPLY, buffer, 32 + value_bytes));
    free(buffer);
}

TEST(a_reply_has_a_value_only_as_long_as_it_claims_and_no_positive_status)
{
    for (uint8_t bytes = 0; bytes < 5; bytes++)
        assert_int_equal(parses_with(&goldens[VALUE], 12, bytes), bytes == 2);
    assert_false(parses_with(&goldens[VALUE], 2, 1));
}

TEST(a_refusal_leaves_key_and_value_alone)
{
    struct message_request request;
    const uint8_t *key = NULL, *value = NULL;
    assert_false(message_parse_request(put_bytes, sizeof(put_bytes) - 1, &request, &key, &value));
    assert_null(key);
    assert_null(value);
}

UNIT_MAIN(NULL, NULL)
