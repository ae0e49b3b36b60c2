/* verbs_check.c - the sentences about what stands in the way of RDMA, and the commands that mend it. */
#include "common/fabric/verbs/verbs_check.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"

void verbs_obstacle_log(const struct verbs_obstacle *obstacle)
{
    log_event(obstacle->error ? LOG_ERROR : LOG_WARN, "verbs_obstacle", "what=\"%s\" mend=\"%s\"",
              obstacle->what, obstacle->mend);
}

int verbs_obstacle(struct verbs_obstacle *out, int error, const char *mend, const char *what, ...)
{
    va_list args;

    va_start(args, what);
    vsnprintf(out->what, sizeof out->what, what, args);
    va_end(args);
    snprintf(out->mend, sizeof out->mend, "%s", mend);
    out->error = error;
    return error;
}

/* Where the mend has parameters, too. */
#define MEND(out, ...) snprintf((out)->mend, sizeof(out)->mend, __VA_ARGS__)

/* --- device and port --- */

int verbs_obstacle_no_device(const char *wanted, const char *kernel_device, bool has_uverbs,
                             struct verbs_obstacle *out)
{
    if (kernel_device && !has_uverbs)
        return verbs_obstacle(
            out, ROWAN_ENOTFOUND, "modprobe ib_uverbs",
            "the kernel has the RDMA device %s, but programs cannot reach it: the module "
            "ib_uverbs is not loaded",
            kernel_device);
    if (wanted)
        return verbs_obstacle(
            out, ROWAN_ENOTFOUND,
            "rdma link (lists the devices; take one of them, or none to have it found)",
            "there is no RDMA device named %s that this process may use", wanted);
    if (kernel_device)
        return verbs_obstacle(
            out, ROWAN_ENOTFOUND, "apt-get install ibverbs-providers",
            "the kernel has the RDMA device %s, but the library has no driver for it",
            kernel_device);
    return verbs_obstacle(
        out, ROWAN_ENOTFOUND,
        "rdma link; with a ConnectX: modprobe mlx5_ib; without a NIC, to try "
        "things out: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0",
        "there is no RDMA device on this host");
}

int verbs_obstacle_open(const char *device, const char *file, int system_error,
                        struct verbs_obstacle *out)
{
    const int error = error_from_errno(system_error);

    if (error != ROWAN_EPERMISSION)
        return verbs_obstacle(
            out, error,
            "modprobe ib_uverbs; ls -l /dev/infiniband (in a container: give it that device)",
            "/dev/infiniband/%s (device %s) cannot be opened: %s", file, device,
            strerror(system_error));
    verbs_obstacle(out, error, "",
                   "this process has no permission to open /dev/infiniband/%s (device %s)", file,
                   device);
    MEND(out,
         "chmod 666 /dev/infiniband/%s (as root; the udev rules of the package rdma-core do "
         "it at each start)",
         file);
    return error;
}

static const char *port_state(unsigned state)
{
    static const char *const states[] = {
        [IBV_PORT_DOWN] = "down",
        [IBV_PORT_INIT] = "initialising: no subnet manager has configured it",
        [IBV_PORT_ARMED] = "armed: the subnet manager has not activated it yet",
        [IBV_PORT_ACTIVE_DEFER] = "in deferred state"};

    return state < sizeof states / sizeof states[0] && states[state] ? states[state] : "not active";
}

int verbs_obstacle_port(const char *device, unsigned port, unsigned state, const char *netdev,
                        struct verbs_obstacle *out)
{
    verbs_obstacle(
        out, ROWAN_EUNSUPPORTED,
        "start a subnet manager on one host or switch of the fabric: systemctl start opensm",
        "port %u of %s is %s", port, device, port_state(state));
    if (state == IBV_PORT_INIT || state == IBV_PORT_ARMED)
        return out->error;
    if (*netdev)
        MEND(out, "ip link set %s up (and look at its cable: ethtool %s)", netdev, netdev);
    else
        MEND(out, "rdma link show %s/%u (names its network device); ip link set NETDEV up", device,
             port);
    return out->error;
}

int verbs_obstacle_gid(const char *device, unsigned port, const char *netdev, uint32_t index_plus_1,
                       struct verbs_obstacle *out)
{
    const char *name = *netdev ? netdev : "NETDEV";

    if (index_plus_1 == 0) {
        verbs_obstacle(out, ROWAN_EUNSUPPORTED, "",
                       "port %u of %s has no GID: its network device has no address", port, device);
        MEND(out, "ip addr add ADDRESS/24 dev %s && ip link set %s up", name, name);
        return out->error;
    }
    if (index_plus_1 > VERBS_MOST_GID_INDEX + 1)
        verbs_obstacle(
            out, ROWAN_EINVALID, "",
            "the GID with index %u was asked for: verbs can name those from 0 to %d only",
            index_plus_1 - 1, VERBS_MOST_GID_INDEX);
    else
        verbs_obstacle(out, ROWAN_EUNSUPPORTED, "", "port %u of %s has no GID with index %u", port,
                       device, index_plus_1 - 1);
    MEND(out,
         "rdma-core's ibv_devinfo -v -d %s lists the GIDs; leave the index out to have it "
         "found",
         device);
    return out->error;
}

bool verbs_mtu_is_small(const char *netdev, uint32_t mtu_bytes, struct verbs_obstacle *out)
{
    if (mtu_bytes >= VERBS_GOOD_MTU_BYTES)
        return false;
    verbs_obstacle(out, 0, "",
                   "packets carry %u bytes only: blocks are limited to that, and all is slower",
                   mtu_bytes);
    MEND(out,
         "ip link set %s mtu 4200 on every host, and on the switch (4096 bytes a packet; "
         "1500 give 1024)",
         *netdev ? netdev : "NETDEV");
    return true;
}

/* --- ways to receive --- */

const char *verbs_receive_name(enum fabric_receive receive)
{
    static const char *const names[] = {[FABRIC_RECEIVE_AUTO] = "auto",
                                        [FABRIC_RECEIVE_MULTI_PACKET] = "multi-packet",
                                        [FABRIC_RECEIVE_SHARED] = "shared"};

    return receive < sizeof names / sizeof names[0] ? names[receive] : "?";
}

int verbs_obstacle_refused(const char *device, const char *thing, int system_error,
                           struct verbs_obstacle *out)
{
    struct verbs_locked_memory memory;

    verbs_obstacle(out, error_from_errno(system_error),
                   "dmesg | tail (the driver may say why); rdma resource show (what is in use)",
                   "the device %s refused %s: %s", device, thing, strerror(system_error));
    /* Providers pin the memory of queues, so a small limit looks like a lack of memory. */
    if (system_error == ENOMEM && verbs_read_locked_memory("", &memory) == 0 && !memory.is_exempt &&
        memory.limit_bytes != UINT64_MAX)
        MEND(out,
             "ulimit -l unlimited, or LimitMEMLOCK=infinity in the systemd unit (now: %llu "
             "bytes)",
             (unsigned long long)memory.limit_bytes);
    return out->error;
}

/* --- locked memory --- */

/* The first line of `root`/proc/self/`file` that begins with `name`; what is behind it. */
static bool read_proc(const char *root, const char *file, const char *name, char *out,
                      size_t out_bytes)
{
    char path[PATH_MAX], line[256];
    const size_t length = strlen(name);
    bool found = false;

    if (snprintf(path, sizeof path, "%s/proc/self/%s", root, file) >= PATH_MAX)
        return false;
    FILE *stream = fopen(path, "re");

    if (!stream)
        return false;
    while (!found && fgets(line, sizeof line, stream)) {
        found = strncmp(line, name, length) == 0;
        if (found)
            snprintf(out, out_bytes, "%s", line + length + strspn(line + length, " \t"));
    }
    fclose(stream);
    return found;
}

int verbs_read_locked_memory(const char *root, struct verbs_locked_memory *out)
{
    enum { CAPABILITY_IPC_LOCK = 14 }; /* linux/capability.h */
    char limit[256], capabilities[256], pinned_kib[256];

    if (!read_proc(root, "limits", "Max locked memory", limit, sizeof limit) ||
        !read_proc(root, "status", "CapEff:", capabilities, sizeof capabilities) ||
        !read_proc(root, "status", "VmPin:", pinned_kib, sizeof pinned_kib))
        return ROWAN_EIO;
    out->limit_bytes = strncmp(limit, "unlimited", 9) == 0 ? UINT64_MAX : strtoull(limit, NULL, 10);
    out->pinned_bytes = strtoull(pinned_kib, NULL, 10) * 1024;
    out->is_exempt = strtoull(capabilities, NULL, 16) >> CAPABILITY_IPC_LOCK & 1;
    return 0;
}

bool verbs_may_pin(const struct verbs_locked_memory *memory, uint64_t bytes,
                   struct verbs_obstacle *out)
{
    if (memory->is_exempt ||
        (bytes <= memory->limit_bytes && memory->pinned_bytes <= memory->limit_bytes - bytes))
        return true;
    verbs_obstacle(
        out, ROWAN_EPERMISSION,
        "ulimit -l unlimited, or LimitMEMLOCK=infinity in the systemd unit, or setcap "
        "cap_ipc_lock+ep on the program",
        "%llu bytes must be locked in memory, and %llu are already; the limit (RLIMIT_MEMLOCK) "
        "is %llu",
        (unsigned long long)bytes, (unsigned long long)memory->pinned_bytes,
        (unsigned long long)memory->limit_bytes);
    return false;
}

/* --- persistent memory --- */

const char *verbs_memory_kind_name(enum verbs_memory_kind kind)
{
    static const char *const names[] = {
        [VERBS_MEMORY_DEVDAX] = "devdax", [VERBS_MEMORY_FSDAX] = "fsdax",
        [VERBS_MEMORY_TMPFS] = "tmpfs",   [VERBS_MEMORY_HUGETLB] = "hugetlb",
        [VERBS_MEMORY_FILE] = "file",     [VERBS_MEMORY_PLAIN] = "memory",
    };

    return kind < sizeof names / sizeof names[0] ? names[kind] : "?";
}

static int explain_fsdax(const char *device, enum fabric_receive receive, bool has_odp,
                         struct verbs_obstacle *out)
{
    if (has_odp && receive == FABRIC_RECEIVE_MULTI_PACKET)
        return verbs_obstacle(
            out, ROWAN_EUNSUPPORTED,
            "ndctl create-namespace -f -e NAMESPACE -m devdax --align 2M (its data is lost), or "
            "choose \"shared\" as the way to receive",
            "files on a DAX file system can be registered for on-demand paging only, which the "
            "multi-packet queue of %s cannot use",
            device);
    return verbs_obstacle(
        out, ROWAN_EUNSUPPORTED,
        "ndctl create-namespace -f -e NAMESPACE -m devdax --align 2M (its data is lost), and "
        "give the server /dev/daxX.Y as its memory; or take the fabric tcp",
        "files on a DAX file system can be registered for on-demand paging only, which %s "
        "cannot do for all that is needed",
        device);
}

int verbs_obstacle_register(const char *device, enum verbs_memory_kind kind,
                            enum fabric_receive receive, bool has_odp, int system_error,
                            struct verbs_obstacle *out)
{
    const bool is_file = kind == VERBS_MEMORY_FILE;

    if (kind == VERBS_MEMORY_FSDAX)
        return explain_fsdax(device, receive, has_odp, out);
    return verbs_obstacle(
        out, is_file ? ROWAN_EUNSUPPORTED : error_from_errno(system_error),
        is_file ? "put the server's memory on devdax, tmpfs or hugetlbfs: newer kernels pin no "
                  "pages of other file systems"
                : "ulimit -l unlimited (in a container or user namespace CAP_IPC_LOCK does not "
                  "count); free -m (pinned memory must be free memory); dmesg | tail",
        "%s cannot register memory of kind %s: %s", device, verbs_memory_kind_name(kind),
        strerror(system_error));
}
