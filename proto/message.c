/* message.c - checks the data-plane messages, whose bytes come from the network and may be anything:
 * every length fits the bytes that arrived, a message is exactly as long as its header says, and
 * reserved fields are zero, so that they can get a meaning later.
 */
#include "proto/message.h"

#include <string.h>

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
    if (!layout_is_read(request->layout) || request->zero != 0 || request->key_bytes == 0 ||
        request->key_bytes > MESSAGE_MAX_KEY_BYTES)
        return false;
    switch (request->type) {
    case MESSAGE_GET:
    case MESSAGE_DELETE:
        return request->value_bytes == 0 && request->expected == 0;
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
    struct message_request found;
    if (bytes < sizeof(found))
        return false;
    memcpy(&found, message, sizeof(found));
    if (!request_sound(&found) ||
        bytes != sizeof(found) + (size_t)found.key_bytes + found.value_bytes)
        return false;
    *request = found;
    *key = (const uint8_t *)message + sizeof(found);
    *value = *key + found.key_bytes;
    return true;
}

bool message_parse_reply(const void *message, size_t bytes, struct message_reply *reply,
                         const uint8_t **value)
{
    struct message_reply found;
    if (bytes < sizeof(found))
        return false;
    memcpy(&found, message, sizeof(found));
    if (found.type != MESSAGE_REPLY || !layout_is_read(found.layout) || found.status > 0 ||
        found.value_bytes > MESSAGE_MAX_VALUE_BYTES || bytes != sizeof(found) + found.value_bytes)
        return false;
    *reply = found;
    *value = (const uint8_t *)message + sizeof(found);
    return true;
}

bool message_parse_control(const void *message, size_t bytes, struct message_control *control,
                           const uint8_t **payload, size_t *payload_bytes)
{
    struct message_control found;
    if (bytes < sizeof(found))
        return false;
    memcpy(&found, message, sizeof(found));
    if (found.type != MESSAGE_CONTROL || !layout_is_read(found.layout) || found.zero != 0)
        return false;
    *control = found;
    *payload = (const uint8_t *)message + sizeof(found);
    *payload_bytes = bytes - sizeof(found);
    return true;
}
