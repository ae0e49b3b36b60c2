/* user_proto.h - a user (common/auth/users.h) as protobuf, in configurations and plans. Pure. */
#ifndef CLUSTER_USER_PROTO_H
#define CLUSTER_USER_PROTO_H

#include "common/auth/users.h"
#include "control.pb-c.h"

/* `out` points into `user`. Without keys nothing in it says how the user logs in. */
void user_pack(const struct user *user, bool with_keys, Rowan__User *out);

/* Errors: ROWAN_EFORMAT (it is not right: users.h). */
int user_unpack(const Rowan__User *from, struct user *out);

#endif
