/* verbs_device.h - one RDMA device, as a process uses it: which one, its GID, MTU and limits, what it can,
 * and, where something is missing, the sentence and the command that mends it (verbs_check.h).
 * rowan-doctor says the same with the same functions. */
#ifndef FABRIC_VERBS_DEVICE_H
#define FABRIC_VERBS_DEVICE_H

#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/fabric/fabric.h"
#include "common/fabric/verbs/verbs_check.h"

enum { VERBS_SINK_BYTES = 64, VERBS_FENCE_BYTES = 64, VERBS_SLOT_BYTES = 256 };

/* Memory of the backend itself: zeros, pinned, of huge pages where there are some. */
struct verbs_buffer {
    uint8_t *data;
    uint64_t mapped_bytes;
    struct ibv_mr *mr;
};

/* How the device was found. */
enum verbs_chosen_by { VERBS_BY_NAME, VERBS_BY_ADDRESS, VERBS_BY_ORDER };

struct verbs_device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_device_attr_ex attributes;
    enum verbs_chosen_by chosen_by;
    uint8_t port;
    struct ibv_port_attr port_attributes;
    int gid_index;
    union ibv_gid gid;
    uint32_t gid_type;           /* enum ibv_gid_type */
    char netdev[IFNAMSIZ];       /* of the GID; "": none, or not known */
    bool is_ethernet;            /* RoCE: a GRH is mandatory */
    uint32_t mtu_bytes;          /* active: payload of a packet */
    uint32_t max_inline_bytes;   /* that RC and UD queue pairs could be had with */
    bool has_odp;                /* RC sends, reads, receives: all that is needed, on demand */
    enum fabric_receive receive; /* chosen; never AUTO */
    const char *receive_reason;  /* why not one that comes before it; static */
    uint32_t slot_bytes;
    struct ibv_dm *dm;        /* 64 B of the device's, the sink of persistence reads; NULL: none */
    struct verbs_buffer sink; /* the host memory */
    struct ibv_mr *sink_mr;
    uint64_t sink_address; /* as a work request wants it */

    /* Whose first byte peers read behind what must be durable; they may read it and nothing else of this process. In
     * host memory: to read from the NIC's own would push nothing out of it. */
    struct verbs_buffer fence;
};

static inline const char *verbs_device_name(const struct verbs_device *device)
{
    return ibv_get_device_name(device->context->device);
}

/* verbs_device_open: `host` is the IPv4 or IPv6 address of this process in text, or NULL. Chooses device,
 * port and GID, and the way to receive by a probe; logs all of it in one line (event verbs_device).
 * Errors: as fabric_open_verbs; the log has an obstacle then (event verbs_obstacle). */
int verbs_device_open(const char *host, const struct fabric_verbs_options *options,
                      struct verbs_device **out);

/* The same without a word in the log; where it fails, the obstacle is in `why`. */
int verbs_device_try(const char *host, const struct fabric_verbs_options *options,
                     struct verbs_device **out, struct verbs_obstacle *why);

/* What was chosen, as key=value pairs in one line. */
void verbs_device_describe(const struct verbs_device *device, char *out, size_t out_bytes);

/* All that was made of its domain is gone already. NULL is fine. */
void verbs_device_close(struct verbs_device *device);

/* --- verbs_choose.c --- */

/* Opens the context and fills all that port and GID decide: `context` to `mtu_bytes`. Errors: as above. */
int verbs_choose(const char *host, const struct fabric_verbs_options *options,
                 struct verbs_device *device, struct verbs_obstacle *why);

/* The GID of a port's table that a process that wishes for nothing would use. False: none. */
bool verbs_best_gid(const struct ibv_gid_entry *entries, size_t count, unsigned port,
                    bool is_ethernet, struct ibv_gid_entry *out);

/* "rocev2-ipv4", "rocev2-ipv6", "rocev1" or "infiniband"; static. */
const char *verbs_gid_type_name(bool is_ethernet, uint32_t gid_type, const union ibv_gid *gid);

/* --- verbs_memory.c --- */

/* Errors: ROWAN_ENOMEM EPERMISSION EUNSUPPORTED, with a line in the log that says what mends it. */
int verbs_buffer_open(struct verbs_device *device, uint64_t bytes, struct verbs_buffer *out);

/* The same without a word in the log. `access`: IBV_ACCESS_..., of verbs_buffer_open local. */
int verbs_buffer_try(struct verbs_device *device, uint64_t bytes, unsigned access,
                     struct verbs_buffer *out, struct verbs_obstacle *why);

/* All zeros is fine. */
void verbs_buffer_close(struct verbs_buffer *buffer);

#endif
