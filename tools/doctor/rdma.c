/* rdma.c - RDMA devices: first by sysfs, then by opening each as the verbs backend does. The choice of a GID
 * and all sentences are the backend's own. A device that cannot be used blocks verbs only if no other can be
 * used. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fabric/verbs/verbs_check.h"
#include "common/fabric/verbs/verbs_device.h"
#include "tools/doctor/doctor.h"

#define CLASS  "/sys/class/infiniband"
#define UVERBS "/sys/class/infiniband_verbs"

enum { MAX_CHECKED_DEVICES = 8, MAX_LOOKED_PORTS = 4 };

struct port {
    char name[64]; /* "mlx5_0/1" */
    const char *device;
    unsigned number;
    unsigned state; /* IBV_PORT_* */
    bool is_ethernet;
    uint32_t gid_count;
    struct ibv_gid_entry gids[MAX_NAMES];
    char netdevs[MAX_NAMES][IFNAMSIZ];
};

/* Reports an obstacle, which blocks these fabrics. False: the device or port cannot be used. */
static bool say_obstacle(struct doctor *doctor, enum verdict verdict, unsigned blocks,
                         const char *kind, const char *subject,
                         const struct verbs_obstacle *obstacle)
{
    doctor_say(doctor, verdict, blocks, kind, subject,
               "%s\n"
               "%s",
               obstacle->what, obstacle->mend);
    return false;
}

/* --- what sysfs says of a port --- */

/* Of a file in the port's folder. "": it cannot be read. */
static const char *read_of_port(const struct doctor *doctor, const struct port *port,
                                const char *file, const char *index, char *out, size_t out_bytes)
{
    *out = '\0';
    host_read(host_path(doctor, CLASS "/%s/ports/%u/%s%s", port->device, port->number, file, index),
              out, out_bytes);
    return out;
}

static void read_gid(const struct doctor *doctor, struct port *port, const char *index)
{
    struct ibv_gid_entry *entry = &port->gids[port->gid_count];
    char text[64];

    memset(entry, 0, sizeof *entry);
    if (inet_pton(AF_INET6, read_of_port(doctor, port, "gids/", index, text, sizeof text),
                  entry->gid.raw) != 1)
        return;
    entry->gid_index = (uint32_t)strtoul(index, NULL, 10);
    entry->port_num = port->number;
    /* An empty entry has no type: reading it fails. */
    read_of_port(doctor, port, "gid_attrs/types/", index, text, sizeof text);
    if (strcmp(text, "RoCE v2") == 0)
        entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    else
        entry->gid_type = port->is_ethernet ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_IB;
    read_of_port(doctor, port, "gid_attrs/ndevs/", index, port->netdevs[port->gid_count], IFNAMSIZ);
    port->gid_count++;
}

static bool read_port(const struct doctor *doctor, const char *device, const char *number,
                      struct port *out)
{
    struct host_names names;
    char text[64];

    memset(out, 0, sizeof *out);
    out->device = device;
    out->number = (unsigned)strtoul(number, NULL, 10);
    snprintf(out->name, sizeof out->name, "%.40s/%u", device, out->number);
    if (!*read_of_port(doctor, out, "state", "", text, sizeof text))
        return false;
    out->state = (unsigned)strtoul(text, NULL, 10); /* "4: ACTIVE" */
    read_of_port(doctor, out, "link_layer", "", text, sizeof text);
    out->is_ethernet = strcmp(text, "Ethernet") == 0;
    host_list(host_path(doctor, CLASS "/%s/ports/%u/gids", device, out->number), "", &names);
    for (uint32_t i = 0; i < names.count; i++)
        read_gid(doctor, out, names.names[i]);
    return true;
}

static const char *netdev_of(const struct port *port)
{
    for (uint32_t i = 0; i < port->gid_count; i++)
        if (*port->netdevs[i])
            return port->netdevs[i];
    return "";
}

/* --- checks of a port --- */

/* Where the device cannot be asked: the MTU that RoCE gets from the network device's, less its own headers (at
 * most 96 bytes), as the kernel computes it. */
static void check_mtu_of_netdev(struct doctor *doctor, const char *port, const char *netdev)
{
    struct verbs_obstacle obstacle = {0};
    uint32_t bytes = 4096;
    int64_t mtu;

    if (!*netdev || !host_number(host_path(doctor, "/sys/class/net/%s/mtu", netdev), &mtu)) {
        doctor_say(doctor, VERDICT_UNKNOWN, 0, "rdma-mtu", port,
                   "cannot be read without the device");
        return;
    }
    while (bytes > 256 && (int64_t)bytes + 96 > mtu)
        bytes /= 2;
    if (verbs_mtu_is_small(netdev, bytes, &obstacle))
        say_obstacle(doctor, VERDICT_WRONG, 0, "rdma-mtu", port, &obstacle);
    else
        doctor_ok(doctor, "rdma-mtu", port, "%u bytes a packet, by the MTU of %s (%" PRId64 ")",
                  bytes, netdev, mtu);
}

/* True: usable, as far as sysfs says. */
static bool check_port(struct doctor *doctor, const struct port *port)
{
    const char *netdev = netdev_of(port);
    struct verbs_obstacle obstacle = {0};
    struct ibv_gid_entry gid;
    char text[INET6_ADDRSTRLEN];

    if (port->state != IBV_PORT_ACTIVE) {
        verbs_obstacle_port(port->device, port->number, port->state, netdev, &obstacle);
        return say_obstacle(doctor, VERDICT_WRONG, ON_VERBS, "rdma-port", port->name, &obstacle);
    }
    doctor_ok(doctor, "rdma-port", port->name, "active, %s%s%s",
              port->is_ethernet ? "Ethernet (RoCE)" : "InfiniBand",
              *netdev ? ", network device " : "", netdev);
    if (!verbs_best_gid(port->gids, port->gid_count, port->number, port->is_ethernet, &gid)) {
        verbs_obstacle_gid(port->device, port->number, netdev, 0, &obstacle);
        return say_obstacle(doctor, VERDICT_MISSING, ON_VERBS, "rdma-gid", port->name, &obstacle);
    }
    inet_ntop(AF_INET6, gid.gid.raw, text, sizeof text);
    doctor_ok(doctor, "rdma-gid", port->name, "GID index %u is taken: %s, %s", gid.gid_index, text,
              verbs_gid_type_name(port->is_ethernet, gid.gid_type, &gid.gid));
    if (!host_is_real(doctor))
        check_mtu_of_netdev(doctor, port->name, netdev);
    return true;
}

/* --- the device itself --- */

static bool check_access(struct doctor *doctor, const char *device)
{
    struct verbs_obstacle obstacle = {0};
    char file[NAME_MAX + 1];

    if (!host_find(doctor, UVERBS, "uverbs", "ibdev", device, file)) {
        verbs_obstacle_no_device(NULL, device, false, &obstacle);
        return say_obstacle(doctor, VERDICT_MISSING, ON_VERBS, "rdma-access", device, &obstacle);
    }
    if (access(host_path(doctor, "/dev/infiniband/%s", file), R_OK | W_OK) != 0) {
        verbs_obstacle_open(device, file, errno, &obstacle);
        return say_obstacle(doctor, VERDICT_WRONG, ON_VERBS, "rdma-access", device, &obstacle);
    }
    doctor_ok(doctor, "rdma-access", device, "/dev/infiniband/%s may be read and written", file);
    return true;
}

static void report_opened(struct doctor *doctor, const struct verbs_device *device,
                          const char *name)
{
    const bool multi_packet = device->receive == FABRIC_RECEIVE_MULTI_PACKET;
    struct verbs_obstacle obstacle = {0};

    if (verbs_mtu_is_small(device->netdev, device->mtu_bytes, &obstacle))
        say_obstacle(doctor, VERDICT_WRONG, 0, "rdma-mtu", name, &obstacle);
    else
        doctor_ok(doctor, "rdma-mtu", name, "%u bytes a packet%s", device->mtu_bytes,
                  device->mtu_bytes < 4096 ? " (the most are 4096)" : "");
    doctor_ok(doctor, "rdma-receive", name, "%s (%s)", verbs_receive_name(device->receive),
              device->receive_reason);
    if (device->has_odp && !multi_packet)
        doctor_ok(doctor, "rdma-odp", name,
                  "on-demand paging: files on DAX can be registered, too");
    else
        doctor_say(doctor, VERDICT_MISSING, 0, "rdma-odp", name,
                   "%s: persistent memory must be devdax",
                   device->has_odp ? "the multi-packet queue cannot page on demand"
                                   : "no on-demand paging for all that is needed");
    doctor->has_odp |= device->has_odp && !multi_packet;
}

/* What the firmware allows. False: it cannot register what a server has. */
static bool check_limits(struct doctor *doctor, const struct verbs_device *device, const char *name)
{
    const struct ibv_device_attr *limits = &device->attributes.orig_attr;

    if (limits->max_mr_size < doctor->pm_bytes) {
        doctor_say(doctor, VERDICT_WRONG, ON_VERBS, "rdma-limits", name,
                   "the firmware registers %" PRIu64
                   " bytes at once at most, and a server has %" PRIu64 "\n"
                   "give each server less (--pm-bytes), and start more of them",
                   (uint64_t)limits->max_mr_size, doctor->pm_bytes);
        return false;
    }
    doctor_ok(doctor, "rdma-limits", name,
              "queue pairs %d of %d requests, shared receive queues %d of %d, completions %d, "
              "reads in flight %d, device memory %" PRIu64 " bytes",
              limits->max_qp, limits->max_qp_wr, limits->max_srq, limits->max_srq_wr,
              limits->max_cqe, limits->max_qp_rd_atom, (uint64_t)device->attributes.max_dm_size);
    return true;
}

/* Opens it as the backend would. */
static bool check_open(struct doctor *doctor, const char *device)
{
    const struct fabric_verbs_options options = {.device = device};
    struct verbs_obstacle obstacle = {0};
    struct verbs_device *opened;
    char line[TEXT_BYTES];

    if (verbs_device_try(NULL, &options, &opened, &obstacle))
        return say_obstacle(doctor, VERDICT_WRONG, ON_VERBS, "rdma-open", device, &obstacle);
    verbs_device_describe(opened, line, sizeof line);
    doctor_ok(doctor, "rdma-open", device, "%s", line);
    report_opened(doctor, opened, device);
    const bool enough = check_limits(doctor, opened, device);
    verbs_device_close(opened);
    return enough;
}

static bool check_ports(struct doctor *doctor, const char *device)
{
    static struct port port; /* large */
    struct host_names names;
    bool usable = false;

    host_list(host_path(doctor, CLASS "/%s/ports", device), "", &names);
    for (uint32_t i = 0; i < names.count && i < MAX_LOOKED_PORTS; i++)
        if (read_port(doctor, device, names.names[i], &port))
            usable |= check_port(doctor, &port);
    return usable;
}

static bool check_device(struct doctor *doctor, const char *device)
{
    char firmware[64] = "";
    int64_t node = -1;

    host_read(host_path(doctor, CLASS "/%s/fw_ver", device), firmware, sizeof firmware);
    host_number(host_path(doctor, CLASS "/%s/device/numa_node", device), &node);
    doctor_ok(doctor, "rdma-device", device,
              "the kernel has it; firmware \"%s\", NUMA node %" PRId64, firmware, node);
    const bool has_port = check_ports(doctor, device);
    bool usable = check_access(doctor, device) && has_port;

    if (usable && host_is_real(doctor))
        usable = check_open(doctor, device);
    if (usable && doctor->nic_node < 0)
        doctor->nic_node = node;
    return usable;
}

void check_rdma(struct doctor *doctor)
{
    const uint32_t first = doctor->count;
    struct verbs_obstacle obstacle = {0};
    struct host_names names;
    uint32_t checked = 0;
    bool usable = false;

    if (!(doctor->asked & ON_VERBS))
        return;
    host_list(host_path(doctor, CLASS), "", &names);
    for (uint32_t i = 0; i < names.count && checked < MAX_CHECKED_DEVICES; i++) {
        if (*doctor->device && strcmp(names.names[i], doctor->device) != 0)
            continue;
        checked++;
        usable |= check_device(doctor, names.names[i]);
    }
    if (!checked) {
        verbs_obstacle_no_device(*doctor->device ? doctor->device : NULL, NULL, false, &obstacle);
        say_obstacle(doctor, VERDICT_MISSING, ON_VERBS, "rdma-device", NULL, &obstacle);
    }
    for (uint32_t i = first; usable && i < doctor->count; i++)
        doctor->checks[i].blocks = 0;
}
