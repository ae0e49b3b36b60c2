/* control.c - a ControlMessage behind its fixed header. */
#include "common/cluster/control.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/cluster/unpack.h"
#include "proto/message.h"

enum { SMALL_BYTES = 512 }; /* most messages, which need no memory of their own */

size_t control_encode(uint32_t tag, const Rowan__ControlMessage *message, void *out,
                      size_t capacity)
{
    struct message_control header = {.type = MESSAGE_CONTROL, .layout = MESSAGE_LAYOUT, .tag = tag};
    size_t payload_bytes = rowan__control_message__get_packed_size(message);
    size_t limit = capacity < CONTROL_MAX_BYTES ? capacity : CONTROL_MAX_BYTES;
    if (limit < sizeof header || payload_bytes > limit - sizeof header)
        return 0;

    memcpy(out, &header, sizeof header);
    rowan__control_message__pack(message, (uint8_t *)out + sizeof header);
    return sizeof header + payload_bytes;
}

int control_message_send(struct fabric_conn *conn, uint32_t tag,
                         const Rowan__ControlMessage *message)
{
    uint8_t small[SMALL_BYTES], *large = NULL, *buffer = small;
    size_t bytes = control_encode(tag, message, small, sizeof small);
    if (!bytes) {
        const size_t needed =
            sizeof(struct message_control) + rowan__control_message__get_packed_size(message);
        buffer = large = malloc(needed);
        bytes = large ? control_encode(tag, message, large, needed) : 0;
    }
    int error = ROWAN_ENOMEM;
    if (bytes) {
        buffer[offsetof(struct message_control, layout)] = (uint8_t)conn->layout;
        struct fabric_iov iov = {.data = buffer, .bytes = (uint32_t)bytes};
        error = fabric_send(conn, &iov, 1);
    }
    free(large);
    return error;
}

int control_failure_send(struct fabric_conn *conn, uint32_t tag, int error)
{
    Rowan__Failure failure = ROWAN__FAILURE__INIT;
    failure.error = error;
    failure.detail = (char *)(uintptr_t)error_sentence(error);
    return control_message_send(conn, tag, &CONTROL_MESSAGE(FAILURE, failure, &failure));
}

bool control_take(const ProtobufCBinaryData *from, uint8_t *to, size_t bytes)
{
    if (from->len == bytes)
        memcpy(to, from->data, bytes);
    return from->len == bytes;
}

int control_decode(const void *message, size_t bytes, uint32_t *tag, Rowan__ControlMessage **out)
{
    struct message_control header;
    uint8_t small[SMALL_BYTES], *large = NULL;
    const uint8_t *payload;
    size_t payload_bytes;
    if (bytes > CONTROL_MAX_BYTES ||
        !message_parse_control(message, bytes, &header, &payload, &payload_bytes))
        return ROWAN_EFORMAT;
    if (payload_bytes > sizeof small && !(large = malloc(payload_bytes)))
        return ROWAN_ENOMEM;
    uint8_t *own = large ? large : small;
    memcpy(own, payload, payload_bytes);

    ProtobufCMessage *unpacked;
    const int error =
        unpack_message(&rowan__control_message__descriptor, own, payload_bytes, &unpacked);
    free(large);
    if (error)
        return error;
    *tag = header.tag;
    *out = (Rowan__ControlMessage *)unpacked;
    return ROWAN_OK;
}

void control_free(Rowan__ControlMessage *message)
{
    unpack_free((ProtobufCMessage *)message);
}
