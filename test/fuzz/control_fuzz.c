/* control_fuzz.c - control_decode on arbitrary bytes: what it accepts, it can encode again.
 *
 * That need not decode: protobuf-c accepts an unknown field of number 0 when its tag is padded to two
 * bytes, writes the tag in one, and does not accept that.
 * Inputs that do not start with a right header get one, so that the fuzzer's time goes to protobuf.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/cluster/control.h"
#include "proto/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const uint8_t *data, size_t size)
{
    uint32_t tag, tag_again;
    Rowan__ControlMessage *message, *again;
    if (control_decode(data, size, &tag, &message))
        return;
    size_t bytes =
        sizeof(struct message_control) + rowan__control_message__get_packed_size(message);
    uint8_t *encoded = malloc(bytes);
    ASSERT(encoded);
    ASSERT(control_encode(tag, message, encoded, bytes) == bytes);
    if (control_decode(encoded, bytes, &tag_again, &again) == 0) {
        ASSERT(tag_again == tag && again->body_case == message->body_case);
        control_free(again);
    }
    free(encoded);
    control_free(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size);

    const struct message_control header = {.type = MESSAGE_CONTROL, .layout = MESSAGE_LAYOUT};
    uint8_t *message = malloc(sizeof header + size);
    ASSERT(message);
    memcpy(message, &header, sizeof header);
    if (size > 0)
        memcpy(message + sizeof header, data, size);
    check(message, sizeof header + size);
    free(message);
    return 0;
}
