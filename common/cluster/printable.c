/* printable.c - strings of a message as a terminal may get them; see control.h. By protobuf-c's description of the message, so that a
 * field that is added is not forgotten.
 */
#include "common/cluster/control.h"

static void make_text_printable(char *text)
{
    for (; text && *text != '\0'; text++) {
        const uint8_t byte = (uint8_t)text[0], next = (uint8_t)text[1];
        if (byte == 0xc2 && next >= 0x80 && next < 0xa0)
            *text++ = '?'; /* C1: ECMA-48, section 5.3 */
        else if (byte >= 0x20 && byte != 0x7f)
            continue;
        *text = '?';
    }
}

static void make_message_printable(const ProtobufCMessage *message);

static void make_value_printable(const ProtobufCFieldDescriptor *field, void *value)
{
    if (field->type == PROTOBUF_C_TYPE_STRING)
        make_text_printable(*(char **)value);
    else if (field->type == PROTOBUF_C_TYPE_MESSAGE && *(ProtobufCMessage **)value)
        make_message_printable(*(ProtobufCMessage **)value);
}

/* Messages nest as deep as control.proto says, which no message of it does within itself. */
static void make_message_printable(const ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        uint8_t *const base = (uint8_t *)(uintptr_t)message;
        void *const value = base + field->offset;
        const uint32_t chosen = *(const uint32_t *)(const void *)(base + field->quantifier_offset);
        if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            const size_t count = *(const size_t *)(const void *)(base + field->quantifier_offset);
            for (size_t k = 0; k < count; k++)
                make_value_printable(field, *(void ***)value + k);
        } else if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) || chosen == field->id) {
            make_value_printable(field, value);
        }
    }
}

void control_make_printable(Rowan__ControlMessage *message)
{
    make_message_printable(&message->base);
}
