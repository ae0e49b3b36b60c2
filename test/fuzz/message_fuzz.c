/* message_fuzz.c - the three parsers of data-plane messages on arbitrary bytes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "proto/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_request(const uint8_t *data, size_t size)
{
    struct message_request request;
    const uint8_t *key, *value;
    if (!message_parse_request(data, size, &request, &key, &value))
        return;
    ASSERT(message_type(data, size) == request.type);
    ASSERT(request.key_bytes >= 1 && request.key_bytes <= MESSAGE_MAX_KEY_BYTES);
    ASSERT(request.value_bytes <= MESSAGE_MAX_VALUE_BYTES && request.zero == 0);
    ASSERT(request.expected == 0 || request.type == MESSAGE_PUT_IF);
    ASSERT(key == data + sizeof(request) && value == key + request.key_bytes);
    ASSERT(value + request.value_bytes == data + size);
}

static void check_reply(const uint8_t *data, size_t size)
{
    struct message_reply reply;
    const uint8_t *value;
    if (!message_parse_reply(data, size, &reply, &value))
        return;
    ASSERT(message_type(data, size) == MESSAGE_REPLY && reply.status <= 0);
    ASSERT(reply.value_bytes <= MESSAGE_MAX_VALUE_BYTES);
    ASSERT(value == data + sizeof(reply) && value + reply.value_bytes == data + size);
}

static void check_control(const uint8_t *data, size_t size)
{
    struct message_control control;
    const uint8_t *payload;
    size_t payload_bytes;
    if (!message_parse_control(data, size, &control, &payload, &payload_bytes))
        return;
    ASSERT(message_type(data, size) == MESSAGE_CONTROL && control.zero == 0);
    ASSERT(payload == data + sizeof(control) && payload + payload_bytes == data + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_request(data, size);
    check_reply(data, size);
    check_control(data, size);
    return 0;
}
