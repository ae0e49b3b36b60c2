/* control.h - one control-plane message (proto/control.proto) behind its struct message_control.
 *
 * Used by everybody who speaks the control plane: the CM, servers, clients, tools. Pure functions;
 * any thread. The sum of what a decode may allocate is bounded by the message's size.
 */
#ifndef CLUSTER_CONTROL_H
#define CLUSTER_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "common/auth/users.h"
#include "common/fabric/fabric.h"
#include "control.pb-c.h"

/* The largest control message that is encoded or decoded: more than a ConfigurationIs with the largest
 * configuration needs. */
enum { CONTROL_MAX_BYTES = 1 << 20 };

/* control_encode: writes header and message to `out`. Returns the bytes written, or 0 if they
 * exceed `capacity` or CONTROL_MAX_BYTES (then `out` is unchanged). */
size_t control_encode(uint32_t tag, const Rowan__ControlMessage *message, void *out,
                      size_t capacity);

/* control_decode: its sender may go on changing the message (shm): protobuf-c reads it twice, to count and to fill, so it reads a
 * copy. *out is the caller's, for control_free; it does not point into `message`. A body
 * of a kind that this build does not know decodes with body_case
 * ROWAN__CONTROL_MESSAGE__BODY__NOT_SET. Errors: ROWAN_EFORMAT (outputs unchanged), ROWAN_ENOMEM.
 */
int control_decode(const void *message, size_t bytes, uint32_t *tag, Rowan__ControlMessage **out);

/* A message of that kind whose body is `body`, a pointer: CONTROL_MESSAGE(FETCH, fetch, &fetch). */
#define CONTROL_MESSAGE(kind, member, of)                                                          \
    ((Rowan__ControlMessage){                                                                      \
        PROTOBUF_C_MESSAGE_INIT(&rowan__control_message__descriptor),                              \
        .body_case = ROWAN__CONTROL_MESSAGE__BODY_##kind,                                          \
        .member = (of),                                                                            \
    })

/* control_message_send: as fabric_send of the encoded message, in the connection's layout; the bytes
 * are copied. Errors: those of fabric_send, ROWAN_ENOMEM. */
int control_message_send(struct fabric_conn *conn, uint32_t tag,
                         const Rowan__ControlMessage *message);

/* The same of a Failure, with the sentence of that error. */
int control_failure_send(struct fabric_conn *conn, uint32_t tag, int error);

/* Bytes in a message: they stay where they are. control_take: false if there are not so many. */
static inline ProtobufCBinaryData control_bytes(const void *data, size_t bytes)
{
    return (ProtobufCBinaryData){bytes, (uint8_t *)(uintptr_t)data};
}
bool control_take(const ProtobufCBinaryData *from, uint8_t *to, size_t bytes);

/* Control characters in all strings of the message become '?', C1 ones in UTF-8 two of them: whoever sent it drives no terminal
 * of who prints it. */
void control_make_printable(Rowan__ControlMessage *message);

/* A user in configurations and plans. `out` points into `user`. Without keys nothing in it says how the user logs in. */
void user_pack(const struct user *user, bool with_keys, Rowan__User *out);

/* Errors: ROWAN_EFORMAT (it is not right: users.h). */
int user_unpack(const Rowan__User *from, struct user *out);

/* NULL is fine. */
void control_free(Rowan__ControlMessage *message);

#endif
