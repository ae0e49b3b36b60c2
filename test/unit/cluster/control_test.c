/* control_test.c - the control message helper. */
#include "common/base/error.h"
#include "common/cluster/control.h"
#include "test/lib/fail_call.h"
#include "test/lib/unit.h"

/* header: type 32, layout 1, zero, tag 0x01020304; body: GetConfiguration (field 2) of 2 bytes,
 * known_term (field 1) = 7. By hand, from the protobuf encoding guide. */
static const uint8_t golden[] = {0x20, 0x01, 0x00, 0x00, 0x04, 0x03,
                                 0x02, 0x01, 0x12, 0x02, 0x08, 0x07};

TEST(a_message_has_the_bytes_of_the_format)
{
    Rowan__GetConfiguration get = ROWAN__GET_CONFIGURATION__INIT;
    get.known_term = 7;
    const Rowan__ControlMessage message =
        CONTROL_MESSAGE(GET_CONFIGURATION, get_configuration, &get);
    uint8_t bytes[64];
    assert_int_equal(control_encode(0x01020304, &message, bytes, sizeof bytes), sizeof golden);
    assert_memory_equal(bytes, golden, sizeof golden);
}

TEST(a_message_decodes_with_its_tag)
{
    uint32_t tag = 0;
    Rowan__ControlMessage *message = NULL;
    assert_int_equal(control_decode(golden, sizeof golden, &tag, &message), ROWAN_OK);
    assert_int_equal(tag, 0x01020304);
    assert_int_equal(message->body_case, ROWAN__CONTROL_MESSAGE__BODY_GET_CONFIGURATION);
    assert_int_equal(message->get_configuration->known_term, 7);
    control_free(message);
    control_free(NULL);
}

TEST(a_message_that_does_not_fit_is_not_written)
{
    Rowan__Failure failure = ROWAN__FAILURE__INIT;
    failure.error = ROWAN_EREFUSED;
    failure.detail = "no";
    const Rowan__ControlMessage message = CONTROL_MESSAGE(FAILURE, failure, &failure);
    uint8_t bytes[64], untouched[64];
    size_t count = control_encode(1, &message, bytes, sizeof bytes);
    assert_true(count > 8);
    memset(bytes, 0xa5, sizeof bytes);
    memset(untouched, 0xa5, sizeof untouched);
    for (size_t room = 0; room < count; room++)
        assert_int_equal(control_encode(1, &message, bytes, room), 0);
    assert_memory_equal(bytes, untouched, sizeof bytes);
    assert_int_equal(control_encode(1, &message, bytes, count), count);

    uint32_t tag;
    Rowan__ControlMessage *decoded;
    assert_int_equal(control_decode(bytes, count, &tag, &decoded), ROWAN_OK);
    assert_int_equal(decoded->failure->error, ROWAN_EREFUSED);
    assert_string_equal(decoded->failure->detail, "no");
    control_free(decoded);
}

TEST(damaged_messages_leave_the_outputs_alone)
{
    static const uint8_t other_type[] = {0x10, 0x01, 0, 0, 4, 3, 2, 1, 0x12, 0x02, 0x08, 0x07};
    static const uint8_t other_layout[] = {0x20, 0x02, 0, 0, 4, 3, 2, 1, 0x12, 0x02, 0x08, 0x07};
    static const uint8_t reserved_set[] = {0x20, 0x01, 1, 0, 4, 3, 2, 1, 0x12, 0x02, 0x08, 0x07};
    static const uint8_t long_field[] = {0x20, 0x01, 0, 0, 4, 3, 2, 1, 0x12, 0x03, 0x08, 0x07};
    const struct {
        const uint8_t *bytes;
        size_t count;
    } cases[] = {
        {other_type, sizeof other_type},
        {other_layout, sizeof other_layout},
        {reserved_set, sizeof reserved_set},
        {long_field, sizeof long_field},
        {golden, sizeof golden - 1},
        {golden, 7},
        {golden, 1},
        {golden, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t tag = 99;
        Rowan__ControlMessage *message = NULL;
        assert_int_equal(control_decode(cases[i].bytes, cases[i].count, &tag, &message),
                         ROWAN_EFORMAT);
        assert_int_equal(tag, 99);
        assert_null(message);
    }
}

TEST(a_kind_that_is_not_known_decodes_without_a_body)
{
    static const uint8_t unknown[] = {0x20, 0x01, 0,    0,    4,   3,
                                      2,    1,    0xa2, 0x06, 0x00}; /* field 100 */
    uint32_t tag;
    Rowan__ControlMessage *message;
    assert_int_equal(control_decode(unknown, sizeof unknown, &tag, &message), ROWAN_OK);
    assert_int_equal(message->body_case, ROWAN__CONTROL_MESSAGE__BODY__NOT_SET);
    control_free(message);
}

TEST(no_string_of_a_message_drives_a_terminal)
{
    Rowan__Setting one = ROWAN__SETTING__INIT, *both[] = {&one, &one};
    Rowan__SettingsAre are = ROWAN__SETTINGS_ARE__INIT;
    Rowan__Failure failure = ROWAN__FAILURE__INIT;
    Rowan__ControlMessage *decoded;
    uint8_t bytes[256];
    uint32_t tag;
    one.key = (char *)(uintptr_t) "replicas\x7f";
    one.value = (char *)(uintptr_t) "\x1b[2J\n\xc2\x9b"
                                    "1m M\xc3\xbcnchen";
    are.settings = both;
    are.n_settings = 2;
    failure.detail = (char *)(uintptr_t) "\x1b]0;owned\x07";
    const Rowan__ControlMessage messages[] = {CONTROL_MESSAGE(SETTINGS_ARE, settings_are, &are),
                                              CONTROL_MESSAGE(FAILURE, failure, &failure)};
    for (unsigned i = 0; i < 2; i++) {
        const size_t count = control_encode(1, &messages[i], bytes, sizeof bytes);
        assert_int_equal(control_decode(bytes, count, &tag, &decoded), 0);
        control_make_printable(decoded);
        if (i == 0) {
            assert_string_equal(decoded->settings_are->settings[1]->key, "replicas?");
            assert_string_equal(decoded->settings_are->settings[1]->value,
                                "?[2J???1m M\xc3\xbcnchen");
            assert_string_equal(decoded->settings_are->file, "");
        } else {
            assert_string_equal(decoded->failure->detail, "?]0;owned?");
        }
        control_free(decoded);
    }
}

/* A Renew of which the servers are `bytes` bytes of numbers, all of 10 bytes or all of 1. */
static size_t encode_renew(uint8_t *out, size_t bytes, bool longest)
{
    static const uint8_t head[] = {0x20, 1, 0, 0, 9, 0, 0, 0, 0x92, 0x01};
    static const uint8_t number[] = {0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0};
    const size_t field = 1 + 3 + bytes; /* its tag and three bytes that say how long it is */
    size_t at = sizeof head;
    memcpy(out, head, sizeof head);
    for (unsigned i = 0; i < 3; i++)
        out[at++] = (uint8_t)(field >> 7 * i | (i < 2 ? 0x80 : 0));
    out[at++] = 0x22; /* `incomplete`, packed */
    for (unsigned i = 0; i < 3; i++)
        out[at++] = (uint8_t)(bytes >> 7 * i | (i < 2 ? 0x80 : 0));
    for (size_t i = 0; i < bytes; i++)
        out[at++] = longest ? number[i % 10] : 1;
    return at;
}

static uint8_t shared[60100];
static size_t shared_bytes;
static uint32_t calls_left;

static void peer_shortens_its_numbers(void)
{
    if (--calls_left == 0)
        encode_renew(shared, shared_bytes, false);
}

/* Over shm the peer may write there at any time: here when the decoder asks for memory for the 1st, 2nd, 3rd ... time, which
 * protobuf-c does between counting the numbers and filling them in. */
TEST(a_message_that_is_changed_while_it_is_decoded_is_one_of_the_two)
{
    enum { CALLS = 12 };
    static const size_t sizes[] = {60000, 400};
    for (uint32_t i = 0; i < 2 * CALLS; i++) {
        Rowan__ControlMessage *message = NULL;
        uint32_t tag;
        shared_bytes = sizes[i % 2];
        const size_t bytes = encode_renew(shared, shared_bytes, true);
        calls_left = 1 + i / 2;
        fail_watch(peer_shortens_its_numbers);
        const int error = control_decode(shared, bytes, &tag, &message);
        fail_watch(NULL);
        assert_int_equal(error, 0);
        const size_t count = message->renew->n_incomplete;
        assert_true(count == shared_bytes / 10 || count == shared_bytes);
        for (size_t k = 0; k < count; k++)
            assert_int_equal(message->renew->incomplete[k], 1);
        control_free(message);
    }
}

/* Encodes a status of `shards` shards, each as short as it can be or as long. */
static size_t encode_status(size_t shards, uint64_t value, uint8_t *out, size_t room)
{
    Rowan__ShardStatus *each = calloc(shards, sizeof *each);
    Rowan__ShardStatus **list = calloc(shards, sizeof *list);
    for (size_t i = 0; i < shards; i++) {
        rowan__shard_status__init(&each[i]);
        each[i].id = (uint32_t)i;
        each[i].objects = each[i].version = each[i].index_bytes = value;
        list[i] = &each[i];
    }
    Rowan__ServerStatus status = ROWAN__SERVER_STATUS__INIT;
    status.shards = list;
    status.n_shards = shards;
    const Rowan__ControlMessage message = CONTROL_MESSAGE(SERVER_STATUS, server_status, &status);
    size_t bytes = control_encode(5, &message, out, room);
    free(list);
    free(each);
    return bytes;
}

TEST(a_status_of_every_shard_comes_through)
{
    uint8_t *bytes = malloc(CONTROL_MAX_BYTES);
    static const uint64_t values[] = {0, UINT64_MAX};
    for (size_t i = 0; i < 2; i++) {
        size_t count = encode_status(16384, values[i], bytes, CONTROL_MAX_BYTES);
        assert_true(count > 0);
        uint32_t tag;
        Rowan__ControlMessage *message;
        assert_int_equal(control_decode(bytes, count, &tag, &message), ROWAN_OK);
        assert_int_equal(message->server_status->n_shards, 16384);
        assert_int_equal(message->server_status->shards[16383]->objects, values[i]);
        control_free(message);
    }
    free(bytes);
}

TEST(a_message_over_the_limit_is_refused)
{
    size_t count = CONTROL_MAX_BYTES + 1;
    uint8_t *bytes = malloc(count);
    memset(bytes, 0, count);
    memcpy(bytes, golden, 8);
    memcpy(bytes + 8, (const uint8_t[]){0xa2, 0x06, 0xf4, 0xff, 0x3f}, 5); /* field 100 fills it */
    uint32_t tag;
    Rowan__ControlMessage *message = NULL;
    assert_int_equal(control_decode(bytes, count, &tag, &message), ROWAN_EFORMAT);
    assert_null(message);
    free(bytes);
}

/* A status with 300,000 shards of no bytes: well formed, and one byte of it costs some 40. */
TEST(a_message_that_unpacks_to_far_more_than_its_size_is_refused)
{
    enum { SHARDS = 300000 };
    static const uint8_t head[] = {0x20, 0x01, 0,    0,    4,    3,
                                   2,    1,    0x42, 0xa0, 0xf7, 0x36}; /* field 8, 900,000 bytes */
    size_t count = sizeof head + 3 * SHARDS;
    uint8_t *bytes = malloc(count);
    memcpy(bytes, head, sizeof head);
    for (size_t i = 0; i < SHARDS; i++)
        memcpy(bytes + sizeof head + 3 * i, (const uint8_t[]){0xa2, 0x01, 0x00}, 3); /* field 20 */

    Rowan__ControlMessage *whole = rowan__control_message__unpack(NULL, count - 8, bytes + 8);
    assert_non_null(whole); /* protobuf-c itself takes it */
    assert_int_equal(whole->server_status->n_shards, SHARDS);
    rowan__control_message__free_unpacked(whole, NULL);

    uint32_t tag;
    Rowan__ControlMessage *message = NULL;
    assert_int_equal(control_decode(bytes, count, &tag, &message), ROWAN_EFORMAT);
    assert_null(message);
    free(bytes);
}

UNIT_MAIN(NULL, NULL)
