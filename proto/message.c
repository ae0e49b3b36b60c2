/* message.c - checks the data-plane messages, whose bytes come from the network and may be anything:
 * every length fits the bytes that arrived, a message is exactly as long as its header says, and
 * reserved fields are zero, so that they can get a meaning later. Over shm the sender may still change them: what is
 * checked is what was copied out.
 */
#include "proto/message.h"

#include <string.h>

/* The compiler may not read the message again in the place of the copy. */
#define HEADER_READ(out, message)                                                                  \
    do {                                                                                           \
        memcpy((out), (message), sizeof *(out));                                                   \
        __asm__ volatile("" : "+m"(*(out)));                                                       \
    } while (0)

/* `layout` is the second byte of all three kinds. */
static bool layout_is_read(uint8_t layout)
{
    return layout >= MESSAGE_LAYOUT_LOWEST && layout <= MESSAGE_LAYOUT;
}

int message_type(const void *message, size_t bytes)
{
    const uint8_t *head = message;
    if (bytes < 2 || !layout_is_read(head[1]))
        return -1;
    return head[0];
}

static bool request_sound(const struct message_request *request)
{
    const uint32_t key_bytes_and_zero = request->key_bytes | (uint32_t)request->zero
                                                                 << 16; /* one load */
    if (!layout_is_read(request->layout) || key_bytes_and_zero - 1 >= MESSAGE_MAX_KEY_BYTES)
        return false;
    switch (request->type) {
    case MESSAGE_GET:
    case MESSAGE_DELETE:
        return (request->value_bytes | request->expected) == 0;
    case MESSAGE_PUT:
        return request->value_bytes <= MESSAGE_MAX_VALUE_BYTES && request->expected == 0;
    case MESSAGE_PUT_IF:
        return request->value_bytes <= MESSAGE_MAX_VALUE_BYTES;
    default:
        return false;
    }
}

bool message_parse_request(const void *message, size_t bytes, struct message_request *request,
                           const uint8_t **key, const uint8_t **value)
{
    if (bytes < sizeof *request)
        return false;
    HEADER_READ(request, message);
    if (!request_sound(request) ||
        bytes != sizeof *request + (size_t)request->key_bytes + request->value_bytes)
        return false;
    *key = (const uint8_t *)message + sizeof *request;
    *value = *key + request->key_bytes;
    return true;
}

bool message_parse_reply(const void *message, size_t bytes, struct message_reply *reply,
                         const uint8_t **value)
{
    if (bytes < sizeof *reply)
        return false;
    HEADER_READ(reply, message);
    if (reply->type != MESSAGE_REPLY || !layout_is_read(reply->layout) || reply->status > 0 ||
        reply->value_bytes > MESSAGE_MAX_VALUE_BYTES || bytes != sizeof *reply + reply->value_bytes)
        return false;
    *value = (const uint8_t *)message + sizeof *reply;
    return true;
}

bool message_parse_control(const void *message, size_t bytes, struct message_control *control,
                           const uint8_t **payload, size_t *payload_bytes)
{
    if (bytes < sizeof *control)
        return false;
    HEADER_READ(control, message);
    if (control->type != MESSAGE_CONTROL || !layout_is_read(control->layout) || control->zero != 0)
        return false;
    *payload = (const uint8_t *)message + sizeof *control;
    *payload_bytes = bytes - sizeof *control;
    return true;
}
