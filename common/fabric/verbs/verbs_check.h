/* verbs_check.h - what stands in the way of RDMA on a host: for each such thing one sentence, and the
 * command that mends it. The backend logs them; rowan-doctor prints the same.
 *
 * All but verbs_read_locked_memory are functions of the facts they are given, and fill an obstacle or leave
 * it alone.
 */
#ifndef FABRIC_VERBS_CHECK_H
#define FABRIC_VERBS_CHECK_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/fabric/fabric.h"

struct verbs_obstacle {
    int error;      /* ROWAN_E*; 0: there is none */
    unsigned step;  /* how far it was to here: of several devices' obstacles the furthest is told */
    char what[256]; /* a sentence without its full stop */
    char mend[256]; /* a command, or what to do */
};

/* Fills it in; `error` comes back, as from all functions below that return an int. */
int verbs_obstacle(struct verbs_obstacle *out, int error, const char *mend, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

/* As an error in the log: event verbs_obstacle. */
void verbs_obstacle_log(const struct verbs_obstacle *obstacle);

/* Why no device was found. `wanted`: by name, or NULL. `kernel_device`: one that the kernel has (in
 * /sys/class/infiniband), or NULL; `has_uverbs`: /sys/class/infiniband_verbs is there. */
int verbs_obstacle_no_device(const char *wanted, const char *kernel_device, bool has_uverbs,
                             struct verbs_obstacle *out);

/* Opening /dev/infiniband/`file` failed. */
int verbs_obstacle_open(const char *device, const char *file, int system_error,
                        struct verbs_obstacle *out);

/* No active port. `state`: IBV_PORT_*; `netdev`: of the port, or "". */
int verbs_obstacle_port(const char *device, unsigned port, unsigned state, const char *netdev,
                        struct verbs_obstacle *out);

/* No usable GID; `index_plus_1`: the one that was asked for, or 0. */
int verbs_obstacle_gid(const char *device, unsigned port, const char *netdev, uint32_t index_plus_1,
                       struct verbs_obstacle *out);

/* The last row of a GID table that can be used: address handles have 8 bits for it (struct ibv_global_route). */
enum { VERBS_MOST_GID_INDEX = 255 };

/* Something that a device must have was refused by the system. */
int verbs_obstacle_refused(const char *device, const char *thing, int system_error,
                           struct verbs_obstacle *out);

/* "multi-packet" | "shared" | "auto"; static. */
const char *verbs_receive_name(enum fabric_receive receive);

/* A small MTU costs speed and the size of blocks. True: there is something to say (as a warning; `error`
 * stays 0). */
enum { VERBS_GOOD_MTU_BYTES = 1024 };
bool verbs_mtu_is_small(const char *netdev, uint32_t mtu_bytes, struct verbs_obstacle *out);

/* --- locked memory --- */

struct verbs_locked_memory {
    uint64_t limit_bytes;  /* RLIMIT_MEMLOCK, soft; UINT64_MAX: none */
    uint64_t pinned_bytes; /* by this process, so far */
    bool is_exempt;        /* CAP_IPC_LOCK (of a user namespace it may not count) */
};

/* Of this process, by the files of /proc/self below `root`, which is "" but for tests. Errors:
 * ROWAN_EIO. */
int verbs_read_locked_memory(const char *root, struct verbs_locked_memory *out);

/* Whether `bytes` more may be pinned. False, with the obstacle: they may not. */
bool verbs_may_pin(const struct verbs_locked_memory *memory, uint64_t bytes,
                   struct verbs_obstacle *out);

/* --- persistent memory --- */

enum verbs_memory_kind {
    VERBS_MEMORY_DEVDAX,
    VERBS_MEMORY_FSDAX,
    VERBS_MEMORY_TMPFS, /* and memfd */
    VERBS_MEMORY_HUGETLB,
    VERBS_MEMORY_FILE,  /* the page cache of a file system */
    VERBS_MEMORY_PLAIN, /* no file */
};

const char *verbs_memory_kind_name(enum verbs_memory_kind kind); /* "devdax"; static */

/* Registration of `kind` was refused with `system_error`; or, with 0, on-demand paging would be needed and
 * the device, or the way it receives, cannot do it. */
int verbs_obstacle_register(const char *device, enum verbs_memory_kind kind,
                            enum fabric_receive receive, bool has_odp, int system_error,
                            struct verbs_obstacle *out);

#endif
