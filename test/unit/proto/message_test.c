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

/* Parses from a heap block of exactly that size, so that ASan sees a read past its end. */
static bool request_parses(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count + 1); /* malloc(0) may be NULL: one more in front */
    struct message_request request;
    const uint8_t *key, *value;
    memcpy(copy + 1, bytes, count);
    bool parsed = message_parse_request(copy + 1, count, &request, &key, &value);
    free(copy);
    return parsed;
}

static bool reply_parses(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count + 1);
    struct message_reply reply;
    const uint8_t *value;
    memcpy(copy + 1, bytes, count);
    bool parsed = message_parse_reply(copy + 1, count, &reply, &value);
    free(copy);
    return parsed;
}

static bool control_parses(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count + 1);
    struct message_control control;
    const uint8_t *payload;
    size_t payload_bytes;
    memcpy(copy + 1, bytes, count);
    bool parsed = message_parse_control(copy + 1, count, &control, &payload, &payload_bytes);
    free(copy);
    return parsed;
}

/* True if `bytes` parses with byte `at` set to `with`. */
static bool request_parses_with(const uint8_t *bytes, size_t count, size_t at, uint8_t with)
{
    uint8_t copy[64];
    memcpy(copy, bytes, count);
    copy[at] = with;
    return request_parses(copy, count);
}

TEST(a_get_is_parsed)
{
    struct message_request request;
    const uint8_t *key, *value;
    assert_true(message_parse_request(get_bytes, sizeof(get_bytes), &request, &key, &value));
    assert_int_equal(request.type, MESSAGE_GET);
    assert_int_equal(request.shard, 0x1234);
    assert_int_equal(request.epoch, 0x345678);
    assert_int_equal(request.client_id, 0xdeadbeef);
    assert_int_equal(request.operation, 10);
    assert_int_equal(request.lowest_unanswered, 9);
    assert_int_equal(request.key_bytes, 3);
    assert_int_equal(request.value_bytes, 0);
    assert_int_equal(request.tag, 0x01020304);
    assert_int_equal(request.expected, 0);
    assert_ptr_equal(key, get_bytes + 40);
    assert_memory_equal(key, "key", 3);
}

TEST(a_put_is_parsed)
{
    struct message_request request;
    const uint8_t *key, *value;
    assert_true(message_parse_request(put_bytes, sizeof(put_bytes), &request, &key, &value));
    assert_int_equal(request.type, MESSAGE_PUT);
    assert_int_equal(request.operation, 0xffffffff);
    assert_int_equal(request.lowest_unanswered, 0xfffffffe);
    assert_int_equal(request.tag, 0x44332211);
    assert_memory_equal(key, "k", 1);
    assert_int_equal(request.value_bytes, 5);
    assert_memory_equal(value, "value", 5);
}

TEST(a_conditional_put_is_parsed)
{
    struct message_request request;
    const uint8_t *key, *value;
    assert_true(message_parse_request(put_if_bytes, sizeof(put_if_bytes), &request, &key, &value));
    assert_int_equal(request.type, MESSAGE_PUT_IF);
    assert_int_equal(request.expected, UINT64_C(0xabcdef123456789a));
    assert_int_equal(request.tag, 0x80000000);
    assert_memory_equal(key, "k2", 2);
    assert_memory_equal(value, "v", 1);
}

TEST(a_delete_is_parsed)
{
    struct message_request request;
    const uint8_t *key, *value;
    assert_true(message_parse_request(delete_bytes, sizeof(delete_bytes), &request, &key, &value));
    assert_int_equal(request.type, MESSAGE_DELETE);
    assert_int_equal(request.shard, 512);
    assert_int_equal(request.epoch, 0xffffff);
    assert_memory_equal(key, "d", 1);
}

TEST(a_reply_is_parsed)
{
    struct message_reply reply;
    const uint8_t *value;
    assert_true(message_parse_reply(reply_bytes, sizeof(reply_bytes), &reply, &value));
    assert_int_equal(reply.status, 0);
    assert_int_equal(reply.operation, 10);
    assert_int_equal(reply.tag, 0x01020304);
    assert_int_equal(reply.value_bytes, 2);
    assert_int_equal(reply.version, UINT64_C(0xabcdef123456789a));
    assert_int_equal(reply.term, UINT64_C(0x8000000000000011));
    assert_ptr_equal(value, reply_bytes + 32);

    assert_true(message_parse_reply(failure_bytes, sizeof(failure_bytes), &reply, &value));
    assert_int_equal(reply.status, -2);
    assert_int_equal(reply.value_bytes, 0);
    assert_int_equal(reply.version, UINT64_C(0x0000010000000007));
}

TEST(a_control_message_is_parsed)
{
    struct message_control control;
    const uint8_t *payload;
    size_t payload_bytes;
    assert_true(message_parse_control(control_bytes, sizeof(control_bytes), &control, &payload,
                                      &payload_bytes));
    assert_int_equal(control.tag, 0xaabbccdd);
    assert_ptr_equal(payload, control_bytes + 8);
    assert_int_equal(payload_bytes, 2);
    assert_true(control_parses(control_bytes, 8)); /* an empty ControlMessage is one */
}

TEST(the_structs_in_memory_are_the_golden_bytes)
{
    struct message_request request = {.type = MESSAGE_GET,
                                      .layout = MESSAGE_LAYOUT,
                                      .shard = 0x1234,
                                      .epoch = 0x345678,
                                      .client_id = 0xdeadbeef,
                                      .operation = 10,
                                      .lowest_unanswered = 9,
                                      .key_bytes = 3,
                                      .tag = 0x01020304};
    struct message_reply reply = {.type = MESSAGE_REPLY,
                                  .layout = MESSAGE_LAYOUT,
                                  .status = -2,
                                  .operation = 11,
                                  .tag = 5,
                                  .version = UINT64_C(0x10000000007),
                                  .term = 18};
    struct message_control control = {
        .type = MESSAGE_CONTROL, .layout = MESSAGE_LAYOUT, .tag = 0xaabbccdd};
    assert_memory_equal(&request, get_bytes, sizeof(request));
    assert_memory_equal(&reply, failure_bytes, sizeof(reply));
    assert_memory_equal(&control, control_bytes, sizeof(control));
}

TEST(the_type_is_told_of_this_layout_only)
{
    assert_int_equal(message_type(get_bytes, sizeof(get_bytes)), MESSAGE_GET);
    assert_int_equal(message_type(reply_bytes, 2), MESSAGE_REPLY);
    assert_int_equal(message_type(control_bytes, sizeof(control_bytes)), MESSAGE_CONTROL);
    assert_int_equal(message_type(control_bytes, 1), -1);
    assert_int_equal(message_type(control_bytes, 0), -1);
    const uint8_t other[] = {MESSAGE_GET, MESSAGE_LAYOUT + 1};
    assert_int_equal(message_type(other, sizeof(other)), -1);
}

TEST(every_truncation_is_refused)
{
    for (size_t bytes = 0; bytes < sizeof(get_bytes); bytes++)
        assert_false(request_parses(get_bytes, bytes));
    for (size_t bytes = 0; bytes < sizeof(put_bytes); bytes++)
        assert_false(request_parses(put_bytes, bytes));
    for (size_t bytes = 0; bytes < sizeof(put_if_bytes); bytes++)
        assert_false(request_parses(put_if_bytes, bytes));
    for (size_t bytes = 0; bytes < sizeof(delete_bytes); bytes++)
        assert_false(request_parses(delete_bytes, bytes));
    for (size_t bytes = 0; bytes < sizeof(reply_bytes); bytes++)
        assert_false(reply_parses(reply_bytes, bytes));
    for (size_t bytes = 0; bytes < sizeof(failure_bytes); bytes++)
        assert_false(reply_parses(failure_bytes, bytes));
    for (size_t bytes = 0; bytes < 8; bytes++)
        assert_false(control_parses(control_bytes, bytes));
}

TEST(bytes_behind_the_message_are_refused)
{
    uint8_t longer[64] = {0};
    memcpy(longer, put_bytes, sizeof(put_bytes));
    assert_true(request_parses(longer, sizeof(put_bytes)));
    assert_false(request_parses(longer, sizeof(put_bytes) + 1));
    memcpy(longer, failure_bytes, sizeof(failure_bytes));
    assert_false(reply_parses(longer, sizeof(failure_bytes) + 1));
}

TEST(other_types_and_layouts_are_refused)
{
    for (unsigned type = 0; type < 256; type++) {
        bool known = type == MESSAGE_GET || type == MESSAGE_PUT || type == MESSAGE_PUT_IF ||
                     type == MESSAGE_DELETE;
        assert_int_equal(request_parses_with(get_bytes, sizeof(get_bytes), 0, (uint8_t)type),
                         known);
        uint8_t copy[64];
        memcpy(copy, reply_bytes, sizeof(reply_bytes));
        copy[0] = (uint8_t)type;
        assert_int_equal(reply_parses(copy, sizeof(reply_bytes)), type == MESSAGE_REPLY);
        memcpy(copy, control_bytes, sizeof(control_bytes));
        copy[0] = (uint8_t)type;
        assert_int_equal(control_parses(copy, sizeof(control_bytes)), type == MESSAGE_CONTROL);
    }
    for (unsigned layout = 0; layout < 256; layout++) {
        bool known = layout == MESSAGE_LAYOUT;
        uint8_t copy[64];
        assert_int_equal(request_parses_with(get_bytes, sizeof(get_bytes), 1, (uint8_t)layout),
                         known);
        memcpy(copy, reply_bytes, sizeof(reply_bytes));
        copy[1] = (uint8_t)layout;
        assert_int_equal(reply_parses(copy, sizeof(reply_bytes)), known);
        memcpy(copy, control_bytes, sizeof(control_bytes));
        copy[1] = (uint8_t)layout;
        assert_int_equal(control_parses(copy, sizeof(control_bytes)), known);
    }
}

TEST(reserved_fields_must_be_zero)
{
    for (unsigned bit = 0; bit < 8; bit++) {
        uint8_t with = (uint8_t)(1 << bit);
        for (size_t at = 22; at < 24; at++)
            assert_false(request_parses_with(put_bytes, sizeof(put_bytes), at, with));
        for (size_t at = 2; at < 4; at++) {
            uint8_t copy[sizeof(control_bytes)];
            memcpy(copy, control_bytes, sizeof(copy));
            copy[at] = with;
            assert_false(control_parses(copy, sizeof(copy)));
        }
    }
}

TEST(only_a_conditional_put_expects_a_version)
{
    for (size_t at = 32; at < 40; at++) {
        assert_false(request_parses_with(get_bytes, sizeof(get_bytes), at, 1));
        assert_false(request_parses_with(put_bytes, sizeof(put_bytes), at, 1));
        assert_false(request_parses_with(delete_bytes, sizeof(delete_bytes), at, 1));
        assert_true(request_parses_with(put_if_bytes, sizeof(put_if_bytes), at, 1));
    }
}

TEST(gets_and_deletes_carry_no_value)
{
    uint8_t copy[64];
    memcpy(copy, put_bytes, sizeof(put_bytes));
    assert_true(request_parses(copy, sizeof(put_bytes)));
    copy[0] = MESSAGE_GET;
    assert_false(request_parses(copy, sizeof(put_bytes)));
    copy[0] = MESSAGE_DELETE;
    assert_false(request_parses(copy, sizeof(put_bytes)));
}

static bool sizes_parse(uint8_t *buffer, uint16_t key_bytes, uint32_t value_bytes)
{
    memcpy(buffer + 20, &key_bytes, sizeof(key_bytes));
    memcpy(buffer + 24, &value_bytes, sizeof(value_bytes));
    return request_parses(buffer, 40 + (size_t)key_bytes + value_bytes);
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
    assert_false(request_parses(buffer, 45));

    memcpy(buffer, reply_bytes, 32);
    uint32_t value_bytes = 1 << 20;
    memcpy(buffer + 12, &value_bytes, sizeof(value_bytes));
    assert_true(reply_parses(buffer, 32 + value_bytes));
    value_bytes++;
    memcpy(buffer + 12, &value_bytes, sizeof(value_bytes));
    assert_false(reply_parses(buffer, 32 + value_bytes));
    free(buffer);
}

TEST(a_reply_has_a_value_only_as_long_as_it_claims_and_no_positive_status)
{
    uint8_t copy[sizeof(reply_bytes)];
    memcpy(copy, reply_bytes, sizeof(copy));
    copy[12] = 0;
    assert_false(reply_parses(copy, sizeof(copy)));
    copy[12] = 1;
    assert_false(reply_parses(copy, sizeof(copy)));
    copy[12] = 3;
    assert_false(reply_parses(copy, sizeof(copy)));
    copy[12] = 2;
    assert_true(reply_parses(copy, sizeof(copy)));
    copy[2] = 1;
    assert_false(reply_parses(copy, sizeof(copy)));
}

TEST(a_refusal_leaves_the_outputs_alone)
{
    struct message_request request = {.shard = 4711};
    const uint8_t *key = NULL, *value = NULL;
    assert_false(message_parse_request(put_bytes, sizeof(put_bytes) - 1, &request, &key, &value));
    assert_int_equal(request.shard, 4711);
    assert_null(key);
    assert_null(value);
}

UNIT_MAIN(NULL, NULL)
