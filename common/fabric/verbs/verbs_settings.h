/* verbs_settings.h - how a person says which RDMA device to use, in the settings of every program that opens a
 * fabric with an address. */
#ifndef FABRIC_VERBS_SETTINGS_H
#define FABRIC_VERBS_SETTINGS_H

#include <stdint.h>

#include "common/base/config.h"
#include "common/fabric/fabric.h"

struct verbs_settings {
    const char *device;    /* "auto" or a name */
    const char *gid_index; /* "auto" or a number */
    const char *receive;   /* "auto", "multi-packet" or "shared" */
    uint64_t slot_bytes;
};

/* Rows of a table of settings; `at` is the offset of the struct verbs_settings there. */
/* clang-format off */
#define VERBS_DEVICE_KEYS(at)                                                                      \
    {"verbs-device", CONFIG_STRING, (at) + offsetof(struct verbs_settings, device), "auto", 0, 0,  \
     NULL, "over verbs: the RDMA device (mlx5_0), or auto"},                                       \
    {"verbs-gid-index", CONFIG_STRING, (at) + offsetof(struct verbs_settings, gid_index), "auto",  \
     0, 0, NULL,                                                                                   \
     "over verbs: row of the port's GID table, or auto: RoCEv2 with an IPv4 address first"}

#define VERBS_ZONE_KEYS(at)                                                                        \
    {"verbs-receive", CONFIG_STRING, (at) + offsetof(struct verbs_settings, receive), "auto", 0,   \
     0, NULL,                                                                                      \
     "over verbs: receive queue of the landing zone: multi-packet (of whole segments, mlx5), "     \
     "shared (of slots), or auto: the better that the device can"},                                \
    {"verbs-slot-bytes", CONFIG_U64, (at) + offsetof(struct verbs_settings, slot_bytes), "256",    \
     256, 4096, NULL, "over verbs: bytes of a slot; a power of two, at most the path MTU"}
/* clang-format on */

/* verbs_settings_apply: what fabric_open_with wants; points into `settings`. NULL, or a static sentence about
 * what is wrong, with `out` untouched. A program without VERBS_ZONE_KEYS leaves those fields 0. */
const char *verbs_settings_apply(const struct verbs_settings *settings,
                                 struct fabric_verbs_options *out);

#endif
