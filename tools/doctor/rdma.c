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
    const char *device;
    unsigned number;
    unsigned state; /* IBV_PORT_* */
    bool is_ethernet;
    uint32_t gid_count;
    struct ibv_gid_entry gids[MAX_NAMES];
    char netdevs[MAX_NAMES][IFNAMSIZ];
};

static struct check *say_obstacle(struct doctor *doctor, enum verdict verdict, const char *name,
                                  const struct verbs_obstacle *obstacle)
{
    struct check *check = doctor_say(doctor, verdict, ON_VERBS, name, "%s", obstacle->what);

    check_mend(check, "%s", obstacle->mend);
    return check;
}

/* --- what sysfs says of a port --- */

static void read_gid(const struct doctor *doctor, struct port *port, const char *index)
{
    struct ibv_gid_entry *entry = &port->gids[port->gid_count];
    char *netdev = port->netdevs[port->gid_count];
    char text[64];

    memset(entry, 0, sizeof *entry);
    if (!host_read(doctor, text, sizeof text, CLASS "/%s/ports/%u/gids/%s", port->device,
                   port->number, index) ||
        inet_pton(AF_INET6, text, entry->gid.raw) != 1)
        return;
    entry->gid_index = (uint32_t)strtoul(index, NULL, 10);
    entry->port_num = port->number;
    /* An empty entry has no type: reading it fails. */
    if (!host_read(doctor, text, sizeof text, CLASS "/%s/ports/%u/gid_attrs/types/%s", port->device,
                   port->number, index))
        text[0] = '\0';
    if (strcmp(text, "RoCE v2") == 0)
        entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    else
        entry->gid_type = port->is_ethernet ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_IB;
    if (!host_read(doctor, netdev, IFNAMSIZ, CLASS "/%s/ports/%u/gid_attrs/ndevs/%s", port->device,
                   port->number, index))
        netdev[0] = '\0';
    port->gid_count++;
}

static bool read_port(const struct doctor *doctor, const char *device, const char *number,
                      struct port *out)
{
    struct host_names names;
    char folder[PATH_MAX], text[64];

    memset(out, 0, sizeof *out);
    out->device = device;
    out->number = (unsigned)strtoul(number, NULL, 10);
    if (!host_read(doctor, text, sizeof text, CLASS "/%s/ports/%u/state", device, out->number))
        return false;
    out->state = (unsigned)strtoul(text, NULL, 10); /* "4: ACTIVE" */
    out->is_ethernet = host_read(doctor, text, sizeof text, CLASS "/%s/ports/%u/link_layer", device,
                                 out->number) &&
                       strcmp(text, "Ethernet") == 0;
    snprintf(folder, sizeof folder, CLASS "/%s/ports/%u/gids", device, out->number);
    host_list(doctor, folder, "", &names);
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
static void check_mtu_of_netdev(struct doctor *doctor, const char *check_name, const char *netdev)
{
    struct verbs_obstacle obstacle = {0};
    uint32_t bytes = 4096;
    int64_t mtu;

    if (!*netdev || !host_number(doctor, &mtu, "/sys/class/net/%s/mtu", netdev)) {
        doctor_say(doctor, VERDICT_UNKNOWN, 0, check_name, "cannot be read without the device");
        return;
    }
    while (bytes > 256 && (int64_t)bytes + 96 > mtu)
        bytes /= 2;
    if (verbs_mtu_is_small(netdev, bytes, &obstacle))
        say_obstacle(doctor, VERDICT_WRONG, check_name, &obstacle)->blocks = 0;
    else
        doctor_say(doctor, VERDICT_OK, 0, check_name,
                   "%u bytes a packet, by the MTU of %s (%" PRId64 ")", bytes, netdev, mtu);
}

/* True: usable, as far as sysfs says. */
static bool check_port(struct doctor *doctor, const struct port *port)
{
    struct verbs_obstacle obstacle = {0};
    struct ibv_gid_entry gid;
    char name[64], text[INET6_ADDRSTRLEN];

    snprintf(name, sizeof name, "rdma-port-%.40s/%u", port->device, port->number);
    if (port->state != IBV_PORT_ACTIVE) {
        verbs_obstacle_port(port->device, port->number, port->state, netdev_of(port), &obstacle);
        say_obstacle(doctor, VERDICT_WRONG, name, &obstacle);
        return false;
    }
    doctor_say(doctor, VERDICT_OK, 0, name, "active, %s%s%s",
               port->is_ethernet ? "Ethernet (RoCE)" : "InfiniBand",
               *netdev_of(port) ? ", network device " : "", netdev_of(port));
    snprintf(name, sizeof name, "rdma-gid-%.40s/%u", port->device, port->number);
    if (!verbs_best_gid(port->gids, port->gid_count, port->number, port->is_ethernet, NULL, 0,
                        &gid)) {
        verbs_obstacle_gid(port->device, port->number, netdev_of(port), 0, &obstacle);
        say_obstacle(doctor, VERDICT_MISSING, name, &obstacle);
        return false;
    }
    inet_ntop(AF_INET6, gid.gid.raw, text, sizeof text);
    doctor_say(doctor, VERDICT_OK, 0, name, "GID index %u is taken: %s, %s", gid.gid_index, text,
               verbs_gid_type_name(port->is_ethernet, gid.gid_type, &gid.gid));
    if (!host_is_real(doctor)) {
        snprintf(name, sizeof name, "rdma-mtu-%.40s/%u", port->device, port->number);
        check_mtu_of_netdev(doctor, name, netdev_of(port));
    }
    return true;
}

/* --- the device itself --- */

/* The file under /dev/infiniband. False: there is none. */
static bool find_uverbs(const struct doctor *doctor, const char *device, char *out,
                        size_t out_bytes)
{
    struct host_names names;
    char owner[128];

    host_list(doctor, UVERBS, "uverbs", &names);
    for (uint32_t i = 0; i < names.count; i++) {
        if (host_read(doctor, owner, sizeof owner, UVERBS "/%s/ibdev", names.names[i]) &&
            strcmp(owner, device) == 0) {
            snprintf(out, out_bytes, "%.40s", names.names[i]);
            return true;
        }
    }
    return false;
}

static bool check_access(struct doctor *doctor, const char *device)
{
    struct verbs_obstacle obstacle = {0};
    char file[64], name[64];
    int failed;

    snprintf(name, sizeof name, "rdma-access-%.40s", device);
    if (!find_uverbs(doctor, device, file, sizeof file)) {
        verbs_obstacle_no_device(NULL, device, false, &obstacle);
        say_obstacle(doctor, VERDICT_MISSING, name, &obstacle);
        return false;
    }
    failed = host_access(doctor, R_OK | W_OK, "/dev/infiniband/%s", file);
    if (failed) {
        verbs_obstacle_open(device, file, failed, &obstacle);
        say_obstacle(doctor, VERDICT_WRONG, name, &obstacle);
        return false;
    }
    doctor_say(doctor, VERDICT_OK, 0, name, "/dev/infiniband/%s may be read and written", file);
    return true;
}

static void report_opened(struct doctor *doctor, const struct verbs_device *device,
                          const char *name)
{
    struct verbs_obstacle obstacle = {0};
    char check_name[64];

    snprintf(check_name, sizeof check_name, "rdma-mtu-%.40s", name);
    if (verbs_mtu_is_small(device->netdev, device->mtu_bytes, &obstacle))
        say_obstacle(doctor, VERDICT_WRONG, check_name, &obstacle)->blocks = 0;
    else
        doctor_say(doctor, VERDICT_OK, 0, check_name, "%u bytes a packet%s", device->mtu_bytes,
                   device->mtu_bytes < 4096 ? " (the most are 4096)" : "");
    snprintf(check_name, sizeof check_name, "rdma-receive-%.40s", name);
    doctor_say(doctor, VERDICT_OK, 0, check_name, "%s (%s)", verbs_receive_name(device->receive),
               device->receive_reason);
    snprintf(check_name, sizeof check_name, "rdma-odp-%.40s", name);
    if (device->has_odp && device->receive != FABRIC_RECEIVE_MULTI_PACKET)
        doctor_say(doctor, VERDICT_OK, 0, check_name,
                   "on-demand paging: files on DAX can be registered, too");
    else if (device->has_odp)
        doctor_say(
            doctor, VERDICT_MISSING, 0, check_name,
            "the multi-packet queue cannot page on demand: persistent memory must be devdax");
    else
        doctor_say(doctor, VERDICT_MISSING, 0, check_name,
                   "no on-demand paging for all that is needed: persistent memory must be devdax");
}

/* What the firmware allows. False: it cannot register what a server has. */
static bool check_limits(struct doctor *doctor, const struct verbs_device *device, const char *name)
{
    const struct ibv_device_attr *limits = &device->attributes.orig_attr;
    char check_name[64];

    snprintf(check_name, sizeof check_name, "rdma-limits-%.40s", name);
    if (limits->max_mr_size < doctor->pm_bytes) {
        check_mend(doctor_say(doctor, VERDICT_WRONG, ON_VERBS, check_name,
                              "the firmware registers %" PRIu64
                              " bytes at once at most, and a server has %" PRIu64,
                              (uint64_t)limits->max_mr_size, doctor->pm_bytes),
                   "give each server less (--pm-bytes), and start more of them");
        return false;
    }
    doctor_say(doctor, VERDICT_OK, 0, check_name,
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
    char name[64], line[TEXT_BYTES];

    snprintf(name, sizeof name, "rdma-open-%.40s", device);
    if (verbs_device_try(NULL, &options, &opened, &obstacle)) {
        say_obstacle(doctor, VERDICT_WRONG, name, &obstacle);
        return false;
    }
    verbs_device_describe(opened, line, sizeof line);
    doctor_say(doctor, VERDICT_OK, 0, name, "%s", line);
    report_opened(doctor, opened, device);
    const bool enough = check_limits(doctor, opened, device);

    doctor->has_odp |= opened->has_odp && opened->receive != FABRIC_RECEIVE_MULTI_PACKET;
    verbs_device_close(opened);
    return enough;
}

static bool check_ports(struct doctor *doctor, const char *device)
{
    static struct port port; /* large */
    struct host_names names;
    char folder[PATH_MAX];
    bool usable = false;

    snprintf(folder, sizeof folder, CLASS "/%s/ports", device);
    host_list(doctor, folder, "", &names);
    for (uint32_t i = 0; i < names.count && i < MAX_LOOKED_PORTS; i++)
        if (read_port(doctor, device, names.names[i], &port))
            usable |= check_port(doctor, &port);
    return usable;
}

static bool check_device(struct doctor *doctor, const char *device)
{
    char firmware[64] = "", name[64];
    int64_t node = -1;

    host_read(doctor, firmware, sizeof firmware, CLASS "/%s/fw_ver", device);
    host_number(doctor, &node, CLASS "/%s/device/numa_node", device);
    snprintf(name, sizeof name, "rdma-device-%.40s", device);
    doctor_say(doctor, VERDICT_OK, 0, name,
               "the kernel has it; firmware \"%s\", NUMA node %" PRId64, firmware, node);
    const bool has_port = check_ports(doctor, device);
    bool usable = check_access(doctor, device) && has_port;

    if (usable && host_is_real(doctor))
        usable = check_open(doctor, device);
    if (usable && doctor->nic_node < 0)
        doctor->nic_node = node;
    return usable;
}

static void check_none(struct doctor *doctor)
{
    struct verbs_obstacle obstacle = {0};

    verbs_obstacle_no_device(*doctor->device ? doctor->device : NULL, NULL, false, &obstacle);
    say_obstacle(doctor, VERDICT_MISSING, "rdma-device", &obstacle);
}

void check_rdma(struct doctor *doctor)
{
    const uint32_t first = doctor->count;
    struct host_names names;
    uint32_t checked = 0;
    bool usable = false;

    if (!(doctor->asked & ON_VERBS))
        return;
    host_list(doctor, CLASS, "", &names);
    for (uint32_t i = 0; i < names.count && checked < MAX_CHECKED_DEVICES; i++) {
        if (*doctor->device && strcmp(names.names[i], doctor->device) != 0)
            continue;
        checked++;
        usable |= check_device(doctor, names.names[i]);
    }
    if (!checked)
        check_none(doctor);
    for (uint32_t i = first; usable && i < doctor->count; i++)
        doctor->checks[i].blocks = 0;
}
