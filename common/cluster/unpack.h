/* unpack.h - protobuf-c unpacking with a limit on memory: a message of two-byte elements would
 * otherwise cost its receiver fifty times its size. Inside common/cluster only. */
#ifndef CLUSTER_UNPACK_H
#define CLUSTER_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

/* *out is the caller's, for unpack_free. Errors: ROWAN_EFORMAT (malformed, or it needs more memory than
 * a message of that size may), ROWAN_ENOMEM. */
int unpack_message(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t count,
                   ProtobufCMessage **out);

/* NULL is fine. */
void unpack_free(ProtobufCMessage *message);

#endif
