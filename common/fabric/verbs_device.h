/* verbs_device.h - one RDMA device, as a process uses it: which one, its GID, MTU and limits, what it can,
 * and, where something is missing, the sentence and the command that mends it. rowan-doctor says the same
 * with the same functions. */
#ifndef FABRIC_VERBS_DEVICE_H
#define FABRIC_VERBS_DEVICE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/fabric/fabric.h"

struct verbs_device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_device_attr_ex attributes;
    uint8_t port;
    struct ibv_port_attr port_attributes;
    int gid_index;
    union ibv_gid gid;
    bool is_ethernet;   /* RoCE: a GRH is mandatory */
    uint32_t mtu_bytes; /* active: payload of a packet */
    uint32_t max_inline_bytes;
    uint32_t max_sge;
    bool has_odp;                /* RC sends, writes and SRQ receives on demand */
    enum fabric_receive receive; /* chosen; never AUTO */
    const char *receive_reason;  /* why not one that comes before it; static */
    uint32_t slot_bytes;
    struct ibv_dm
        *dm; /* 64 B of device memory for the persistence reads' sink; NULL: host memory */
    struct ibv_mr *sink_mr;
    uint64_t sink_address; /* as a work request wants it */
};

/* verbs_device_open: `host` is the IPv4 or IPv6 address of this process in text, or NULL. Chooses device,
 * port and GID, and the way to receive by a probe; logs all of it in one line (event verbs_device).
 * Errors: as fabric_open_verbs. */
int verbs_device_open(const char *host, const struct fabric_verbs_options *options,
                      struct verbs_device **out);
void verbs_device_close(struct verbs_device *device);

#endif
