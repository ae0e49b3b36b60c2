/* verbs_check.c - the sentences about what stands in the way of RDMA, and the commands that mend it. */
#include "common/fabric/verbs/verbs_check.h"

#include <errno.h>
#include <limits.h>
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

#define WHAT(out, ...) snprintf((out)->what, sizeof(out)->what, __VA_ARGS__)
#define MEND(out, ...) snprintf((out)->mend, sizeof(out)->mend, __VA_ARGS__)

/* --- device and port --- */

void verbs_obstacle_no_device(const char *wanted, const char *kernel_device, bool has_uverbs,
                              struct verbs_obstacle *out)
{
    out->error = ROWAN_ENOTFOUND;
    if (kernel_device && !has_uverbs) {
        WHAT(out,
             "the kernel has the RDMA device %s, but programs cannot reach it: the module "
             "ib_uverbs is not loaded",
             kernel_device);
        MEND(out, "modprobe ib_uverbs");
    } else if (wanted) {
        WHAT(out, "there is no RDMA device named %s that this process may use", wanted);
        MEND(out, "rdma link (lists the devices; take one of them, or none to have it found)");
    } else if (kernel_device) {
        WHAT(out, "the kernel has the RDMA device %s, but the library has no driver for it",
             kernel_device);
        MEND(out, "apt-get install ibverbs-providers");
    } else {
        WHAT(out, "there is no RDMA device on this host");
        MEND(out, "rdma link; with a ConnectX: modprobe mlx5_ib; without a NIC, to try things out: "
                  "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0");
    }
}

void verbs_obstacle_open(const char *device, const char *file, int system_error,
                         struct verbs_obstacle *out)
{
    out->error = error_from_errno(system_error);
    if (out->error == ROWAN_EPERMISSION) {
        WHAT(out, "this process has no permission to open /dev/infiniband/%s (device %s)", file,
             device);
        MEND(out,
             "chmod 666 /dev/infiniband/%s (as root; the udev rules of the package rdma-core do "
             "it at each start)",
             file);
        return;
    }
    WHAT(out, "/dev/infiniband/%s (device %s) cannot be opened: %s", file, device,
         strerror(system_error));
    MEND(out, "modprobe ib_uverbs; ls -l /dev/infiniband (in a container: give it that device)");
}

void verbs_obstacle_transport(const char *device, struct verbs_obstacle *out)
{
    out->error = ROWAN_EUNSUPPORTED;
    WHAT(out,
         "the device %s speaks neither InfiniBand nor RoCE: it lacks reliable connections or "
         "datagrams",
         device);
    MEND(out, "take an InfiniBand or RoCE device (rdma link), or the fabric tcp");
}

static const char *port_state(unsigned state)
{
    switch (state) {
    case IBV_PORT_DOWN:
        return "down";
    case IBV_PORT_INIT:
        return "initialising: no subnet manager has configured it";
    case IBV_PORT_ARMED:
        return "armed: the subnet manager has not activated it yet";
    case IBV_PORT_ACTIVE_DEFER:
        return "in deferred state";
    default:
        return "not active";
    }
}

void verbs_obstacle_port(const char *device, unsigned port, unsigned state, const char *netdev,
                         struct verbs_obstacle *out)
{
    out->error = ROWAN_EUNSUPPORTED;
    WHAT(out, "port %u of %s is %s", port, device, port_state(state));
    if (state == IBV_PORT_INIT || state == IBV_PORT_ARMED)
        MEND(out,
             "start a subnet manager on one host or switch of the fabric: systemctl start opensm");
    else if (*netdev)
        MEND(out, "ip link set %s up (and look at its cable: ethtool %s)", netdev, netdev);
    else
        MEND(out, "rdma link show %s/%u (names its network device); ip link set NETDEV up", device,
             port);
}

void verbs_obstacle_gid(const char *device, unsigned port, const char *netdev,
                        uint32_t index_plus_1, struct verbs_obstacle *out)
{
    const char *name = *netdev ? netdev : "NETDEV";

    out->error = ROWAN_EUNSUPPORTED;
    if (index_plus_1 > VERBS_MOST_GID_INDEX + 1)
        out->error = ROWAN_EINVALID;
    if (index_plus_1 > VERBS_MOST_GID_INDEX + 1)
        WHAT(out, "the GID with index %u was asked for: verbs can name those from 0 to %d only",
             index_plus_1 - 1, VERBS_MOST_GID_INDEX);
    else if (index_plus_1)
        WHAT(out, "port %u of %s has no GID with index %u", port, device, index_plus_1 - 1);
    else
        WHAT(out, "port %u of %s has no GID: its network device has no address", port, device);
    if (index_plus_1)
        MEND(out,
             "rdma-core's ibv_devinfo -v -d %s lists the GIDs; leave the index out to have it "
             "found",
             device);
    else
        MEND(out, "ip addr add ADDRESS/24 dev %s && ip link set %s up", name, name);
}

bool verbs_mtu_is_small(const char *netdev, uint32_t mtu_bytes, struct verbs_obstacle *out)
{
    if (mtu_bytes >= VERBS_GOOD_MTU_BYTES)
        return false;
    out->error = 0;
    WHAT(out, "packets carry %u bytes only: blocks are limited to that, and all is slower",
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

void verbs_obstacle_slot(uint32_t slot_bytes, uint32_t mtu_bytes, struct verbs_obstacle *out)
{
    out->error = ROWAN_EINVALID;
    WHAT(out,
         "slots of %u bytes were asked for: they must be a power of two, from 256 to the path "
         "MTU, %u",
         slot_bytes, mtu_bytes);
    MEND(out, "leave the slot size out: 256 bytes are taken");
}

void verbs_obstacle_multi_packet(const char *device, const char *why, struct verbs_obstacle *out)
{
    out->error = ROWAN_EUNSUPPORTED;
    WHAT(out, "the way to receive \"multi-packet\" was asked for, which %s cannot do: %s", device,
         why);
    MEND(out, "choose \"auto\": the best that the device can is taken");
}

void verbs_obstacle_shared(const char *device, const char *why, struct verbs_obstacle *out)
{
    out->error = ROWAN_EUNSUPPORTED;
    WHAT(out, "the device %s cannot be used without a shared receive queue: %s", device, why);
    MEND(out, "take another device (rdma link), or the fabric tcp");
}

void verbs_obstacle_refused(const char *device, const char *thing, int system_error,
                            struct verbs_obstacle *out)
{
    struct verbs_locked_memory memory;

    out->error = error_from_errno(system_error);
    WHAT(out, "the device %s refused %s: %s", device, thing, strerror(system_error));
    /* Providers pin the memory of queues, so a small limit looks like a lack of memory. */
    if (system_error == ENOMEM && verbs_read_locked_memory("", &memory) == 0 && !memory.is_exempt &&
        memory.limit_bytes != UINT64_MAX)
        MEND(out,
             "ulimit -l unlimited, or LimitMEMLOCK=infinity in the systemd unit (now: %llu "
             "bytes)",
             (unsigned long long)memory.limit_bytes);
    else
        MEND(out, "dmesg | tail (the driver may say why); rdma resource show (what is in use)");
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
    out->error = ROWAN_EPERMISSION;
    WHAT(out,
         "%llu bytes must be locked in memory, and %llu are already; the limit (RLIMIT_MEMLOCK) "
         "is %llu",
         (unsigned long long)bytes, (unsigned long long)memory->pinned_bytes,
         (unsigned long long)memory->limit_bytes);
    MEND(out, "ulimit -l unlimited, or LimitMEMLOCK=infinity in the systemd unit, or setcap "
              "cap_ipc_lock+ep on the program");
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

static void explain_fsdax(const char *device, enum fabric_receive receive, bool has_odp,
                          struct verbs_obstacle *out)
{
    out->error = ROWAN_EUNSUPPORTED;
    if (has_odp && receive == FABRIC_RECEIVE_MULTI_PACKET) {
        WHAT(out,
             "files on a DAX file system can be registered for on-demand paging only, which the "
             "multi-packet queue of %s cannot use",
             device);
        MEND(out,
             "ndctl create-namespace -f -e NAMESPACE -m devdax --align 2M (its data is lost), or "
             "choose \"shared\" as the way to receive");
        return;
    }
    WHAT(out,
         "files on a DAX file system can be registered for on-demand paging only, which %s "
         "cannot do for all that is needed",
         device);
    MEND(out, "ndctl create-namespace -f -e NAMESPACE -m devdax --align 2M (its data is lost), and "
              "give the server /dev/daxX.Y as its memory; or take the fabric tcp");
}

void verbs_obstacle_register(const char *device, enum verbs_memory_kind kind,
                             enum fabric_receive receive, bool has_odp, int system_error,
                             struct verbs_obstacle *out)
{
    if (kind == VERBS_MEMORY_FSDAX) {
        explain_fsdax(device, receive, has_odp, out);
        return;
    }
    out->error = error_from_errno(system_error);
    WHAT(out, "%s cannot register memory of kind %s: %s", device, verbs_memory_kind_name(kind),
         strerror(system_error));
    if (kind == VERBS_MEMORY_FILE) {
        out->error = ROWAN_EUNSUPPORTED;
        MEND(out,
             "put the server's memory on devdax, tmpfs or hugetlbfs: newer kernels pin no pages of "
             "other file systems");
    } else {
        MEND(out,
             "ulimit -l unlimited (in a container or user namespace CAP_IPC_LOCK does not count); "
             "free -m (pinned memory must be free memory); dmesg | tail");
    }
}

void verbs_obstacle_durability(const char *durability, struct verbs_obstacle *out)
{
    out->error = ROWAN_EUNSUPPORTED;
    WHAT(out, "durability \"%s\" cannot be had with RDMA on a plain file: a NIC syncs no file",
         durability);
    MEND(out, "use devdax (durable at once), or durability none, or the fabric tcp");
}
