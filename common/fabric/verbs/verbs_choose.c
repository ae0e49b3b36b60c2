/* verbs_choose.c - which device, port and GID. The caller may name a device and a GID index; what is left
 * open is found: first the GID that is this process's own address, then the first device with an active
 * port; of a port's GIDs RoCEv2 with an IPv4 address, RoCEv2 with IPv6, then RoCEv1. On InfiniBand it is
 * GID 0. The wrong GID index is the commonest mistake in a set-up by hand.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/base/error.h"
#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_mlx5.h"

enum { MAX_GIDS = 1024 };

/* The better, the lower. */
enum rank {
    RANK_ADDRESS_V2, /* this process's own address */
    RANK_ADDRESS_V1,
    RANK_ASKED, /* by its index */
    RANK_V2_IPV4,
    RANK_V2_IPV6,
    RANK_V2_LINK_LOCAL,
    RANK_V1,
    RANK_NONE,
};

struct wish {
    const char *device;
    uint32_t gid_index_plus_1;
    bool has_address;
    union ibv_gid address; /* of this process, as a GID */
};

/* --- GIDs --- */

static bool is_v4(const union ibv_gid *gid)
{
    return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)gid->raw);
}

static bool is_link_local(const union ibv_gid *gid)
{
    return IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)(const void *)gid->raw);
}

/* False: `host` is no numeric address, or one that no other host can reach. */
static bool gid_of_host(const char *host, union ibv_gid *out)
{
    char v6[INET6_ADDRSTRLEN + 8];

    snprintf(v6, sizeof v6, "%s%s", strchr(host, ':') ? "" : "::ffff:", host);
    return inet_pton(AF_INET6, v6, out->raw) == 1;
}

static enum rank rank_of(const struct ibv_gid_entry *entry, bool is_ethernet,
                         const struct wish *wish)
{
    const bool is_v2 = entry->gid_type == IBV_GID_TYPE_ROCE_V2;

    if (bytes_are_zero(&entry->gid, sizeof entry->gid) || entry->gid_index > VERBS_MOST_GID_INDEX)
        return RANK_NONE;
    if (wish->gid_index_plus_1 && entry->gid_index != wish->gid_index_plus_1 - 1)
        return RANK_NONE;
    if (wish->has_address && memcmp(&entry->gid, &wish->address, sizeof entry->gid) == 0)
        return is_v2 ? RANK_ADDRESS_V2 : RANK_ADDRESS_V1;
    if (wish->gid_index_plus_1)
        return RANK_ASKED;
    if (!is_ethernet || !is_v2) /* of InfiniBand's the first is the port's own */
        return RANK_V1;
    if (is_v4(&entry->gid))
        return RANK_V2_IPV4;
    return is_link_local(&entry->gid) ? RANK_V2_LINK_LOCAL : RANK_V2_IPV6;
}

static enum rank best_gid(const struct ibv_gid_entry *entries, size_t count, unsigned port,
                          bool is_ethernet, const struct wish *wish, struct ibv_gid_entry *out)
{
    enum rank best = RANK_NONE;

    for (size_t i = 0; i < count; i++) {
        const enum rank rank = rank_of(&entries[i], is_ethernet, wish);

        if (entries[i].port_num == port && rank < best) {
            best = rank;
            *out = entries[i];
        }
    }
    return best;
}

bool verbs_best_gid(const struct ibv_gid_entry *entries, size_t count, unsigned port,
                    bool is_ethernet, struct ibv_gid_entry *out)
{
    static const struct wish none;

    return best_gid(entries, count, port, is_ethernet, &none, out) != RANK_NONE;
}

const char *verbs_gid_type_name(bool is_ethernet, uint32_t gid_type, const union ibv_gid *gid)
{
    if (!is_ethernet)
        return "infiniband";
    if (gid_type != IBV_GID_TYPE_ROCE_V2)
        return "rocev1";
    return is_v4(gid) ? "rocev2-ipv4" : "rocev2-ipv6";
}

/* --- ports --- */

static void name_of_netdev(uint32_t index, char out[IFNAMSIZ])
{
    if (!index || !if_indextoname(index, out))
        out[0] = '\0';
}

static void use_gid(struct verbs_device *device, const struct ibv_gid_entry *entry)
{
    device->gid_index = (int)entry->gid_index;
    device->gid = entry->gid;
    device->gid_type = entry->gid_type;
    name_of_netdev(entry->ndev_ifindex, device->netdev);
}

/* The network device of any of the port's GIDs, for a sentence. */
static void netdev_of_port(const struct ibv_gid_entry *entries, size_t count, unsigned port,
                           char out[IFNAMSIZ])
{
    out[0] = '\0';
    for (size_t i = 0; i < count && !out[0]; i++)
        if (entries[i].port_num == port)
            name_of_netdev(entries[i].ndev_ifindex, out);
}

/* What is nearest to a usable device is likeliest what the user means. */
enum step { STEP_TRANSPORT = 1, STEP_OPEN, STEP_PORT, STEP_GID };

static void keep_furthest(const struct verbs_obstacle *met, struct verbs_obstacle *why)
{
    if (met->error && (!why->error || met->step > why->step))
        *why = *met;
}

/* Looks at one port; `device` is filled if it can be used. */
static enum rank try_port(struct verbs_device *device, uint8_t port,
                          const struct ibv_gid_entry *entries, size_t count,
                          const struct wish *wish, struct verbs_obstacle *why)
{
    const char *name = verbs_device_name(device);
    struct ibv_port_attr attributes;
    struct ibv_gid_entry entry;
    char netdev[IFNAMSIZ];
    int failed = ibv_query_port(device->context, port, &attributes);

    if (failed) {
        verbs_obstacle_refused(name, "to describe its port", failed, why);
        return RANK_NONE;
    }
    netdev_of_port(entries, count, port, netdev);
    if (attributes.state != IBV_PORT_ACTIVE) {
        verbs_obstacle_port(name, port, attributes.state, netdev, why);
        why->step = STEP_PORT;
        return RANK_NONE;
    }
    const bool is_ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    const enum rank rank = best_gid(entries, count, port, is_ethernet, wish, &entry);

    if (rank == RANK_NONE) {
        verbs_obstacle_gid(name, port, netdev, wish->gid_index_plus_1, why);
        why->step = STEP_GID;
        return RANK_NONE;
    }
    device->port = port;
    device->port_attributes = attributes;
    device->is_ethernet = is_ethernet;
    device->mtu_bytes = UINT32_C(128) << attributes.active_mtu; /* IBV_MTU_256 is 1 */
    use_gid(device, &entry);
    return rank;
}

/* --- devices --- */

static enum rank best_port(struct verbs_device *device, const struct wish *wish,
                           struct verbs_obstacle *why)
{
    struct verbs_device tried = *device;
    enum rank best = RANK_NONE;
    struct ibv_gid_entry *entries = calloc(MAX_GIDS, sizeof *entries);

    if (!entries) {
        verbs_obstacle_refused(verbs_device_name(device), "a table of GIDs", ENOMEM, why);
        return RANK_NONE;
    }
    const ssize_t found = ibv_query_gid_table(device->context, entries, MAX_GIDS, 0);
    /* A failure is reported as what it means: there is no GID that we know of. */
    const size_t count = found > 0 ? (size_t)found : 0;

    for (unsigned port = 1; port <= device->attributes.orig_attr.phys_port_cnt; port++) {
        struct verbs_obstacle met = {0};
        const enum rank rank = try_port(&tried, (uint8_t)port, entries, count, wish, &met);

        keep_furthest(&met, why);
        if (rank < best) {
            best = rank;
            *device = tried;
        }
    }
    free(entries);
    return best;
}

/* Opens it and finds its best port. RANK_NONE: it is closed again, and `why` says why not. */
static enum rank try_device(struct ibv_device *found, const struct wish *wish,
                            struct verbs_device *device, struct verbs_obstacle *why)
{
    const char *name = ibv_get_device_name(found);

    memset(device, 0, sizeof *device);
    if (found->transport_type != IBV_TRANSPORT_IB) {
        verbs_obstacle(why, ROWAN_EUNSUPPORTED,
                       "take an InfiniBand or RoCE device (rdma link), or the fabric tcp",
                       "the device %s speaks neither InfiniBand nor RoCE: it lacks reliable "
                       "connections or datagrams",
                       name);
        why->step = STEP_TRANSPORT;
        return RANK_NONE;
    }
    errno = 0;
    device->context = verbs_mlx5_open(found); /* as everybody, and with what more an mlx5 takes */
    if (!device->context)
        device->context = ibv_open_device(found);
    if (!device->context) {
        verbs_obstacle_open(name, found->dev_name, errno ? errno : EIO, why);
        why->step = STEP_OPEN;
        return RANK_NONE;
    }
    int failed = ibv_query_device_ex(device->context, NULL, &device->attributes);
    enum rank rank = RANK_NONE;

    if (failed)
        verbs_obstacle_refused(name, "to describe itself", failed, why);
    else
        rank = best_port(device, wish, why);
    if (rank == RANK_NONE) {
        ibv_close_device(device->context);
        device->context = NULL;
    }
    return rank;
}

/* Why the library knows no device. */
static int explain_none(const char *wanted, struct verbs_obstacle *why)
{
    char name[NAME_MAX + 1] = "";
    struct dirent *entry;
    DIR *folder = opendir("/sys/class/infiniband");

    while (folder && (entry = readdir(folder)))
        if (entry->d_name[0] != '.')
            strcpy(name, entry->d_name);
    if (folder)
        closedir(folder);
    return verbs_obstacle_no_device(wanted, *name ? name : NULL,
                                    access("/sys/class/infiniband_verbs", F_OK) == 0, why);
}

/* The first of the lowest rank; the others are closed. */
static enum rank best_device(struct ibv_device **list, const struct wish *wish,
                             struct verbs_device *device, struct verbs_obstacle *why)
{
    enum rank best = RANK_NONE;
    bool was_there = false;

    for (unsigned i = 0; list[i]; i++) {
        struct verbs_device tried;

        if (wish->device && strcmp(ibv_get_device_name(list[i]), wish->device) != 0)
            continue;
        was_there = true;
        struct verbs_obstacle met = {0};
        const enum rank rank = try_device(list[i], wish, &tried, &met);

        keep_furthest(&met, why);
        /* Among devices only the address decides; else the first is as good as any. */
        if (rank < best && (best == RANK_NONE || rank <= RANK_ADDRESS_V1)) {
            if (device->context)
                ibv_close_device(device->context);
            *device = tried;
            best = rank;
        } else if (tried.context) {
            ibv_close_device(tried.context);
        }
    }
    if (!was_there)
        explain_none(wish->device, why);
    return best;
}

int verbs_choose(const char *host, const struct fabric_verbs_options *options,
                 struct verbs_device *device, struct verbs_obstacle *why)
{
    struct wish wish = {.device = options->device, .gid_index_plus_1 = options->gid_index_plus_1};
    struct ibv_device **list = ibv_get_device_list(NULL);

    wish.has_address = host && gid_of_host(host, &wish.address);
    if (!list)
        return explain_none(wish.device, why);
    const enum rank rank = best_device(list, &wish, device, why);

    ibv_free_device_list(list);
    if (rank == RANK_NONE)
        return why->error;
    if (wish.device)
        device->chosen_by = VERBS_BY_NAME;
    else if (rank == RANK_ADDRESS_V2 || rank == RANK_ADDRESS_V1)
        device->chosen_by = VERBS_BY_ADDRESS;
    else
        device->chosen_by = VERBS_BY_ORDER;
    return 0;
}
