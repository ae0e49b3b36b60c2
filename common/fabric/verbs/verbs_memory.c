/* verbs_memory.c - registered memory: a PM whole, under one key, and the backend's own buffers. Access is
 * local only; whoever else may read or write gets a key of its own for that (verbs_rc.c).
 *
 * Relaxed ordering stays off: a fence's read must push the writes before it out of the NIC and the bus
 * (PCIe: a read does not pass writes that are ordered), and a landing zone is read by what came last.
 */
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* --- what lies beneath a PM --- */

static enum verbs_memory_kind kind_of(const struct pm *pm)
{
    struct statfs system;
    struct stat status;

    if (pm->fd < 0)
        return VERBS_MEMORY_PLAIN;
    if (fstat(pm->fd, &status) == 0 && S_ISCHR(status.st_mode))
        return VERBS_MEMORY_DEVDAX;
    if (fstatfs(pm->fd, &system) == 0) {
        if (system.f_type == TMPFS_MAGIC)
            return VERBS_MEMORY_TMPFS;
        if (system.f_type == HUGETLBFS_MAGIC)
            return VERBS_MEMORY_HUGETLB;
    }
    return strcmp(pm->backend, "dax") == 0 ? VERBS_MEMORY_FSDAX : VERBS_MEMORY_FILE;
}

/* --- PM --- */

/* `may_demand`: by on-demand paging, if it cannot be had otherwise. NULL: refused, and *system_error says why. */
static struct ibv_mr *register_range(const struct verbs_device *device, void *base, uint64_t bytes,
                                     unsigned access, bool may_demand, int *system_error)
{
    struct ibv_mr *mr;

    errno = 0;
    mr = ibv_reg_mr(device->pd, base, bytes, access);
    if (!mr && may_demand)
        mr = ibv_reg_mr(device->pd, base, bytes, access | IBV_ACCESS_ON_DEMAND);
    *system_error = mr ? 0 : errno ? errno : EINVAL;
    return mr;
}

/* The limit on locked memory is the likeliest reason for these two. The kernel is asked first: only it
 * knows what the process is exempt from. */
static bool is_limit(int system_error, uint64_t bytes, struct verbs_obstacle *why)
{
    struct verbs_locked_memory memory;

    return (system_error == ENOMEM || system_error == EPERM) &&
           verbs_read_locked_memory("", &memory) == 0 && !verbs_may_pin(&memory, bytes, why);
}

/* Pages of a DAX file cannot be pinned for long, because the file system may move its blocks; the device
 * then has to ask for each page. The multi-packet queue, made past the kernel's verbs, cannot. */
static int register_pm(struct verbs_device *device, const struct pm *pm, struct ibv_mr **out,
                       struct verbs_obstacle *why)
{
    const enum verbs_memory_kind kind = kind_of(pm);
    const bool may_demand = kind == VERBS_MEMORY_FSDAX && device->has_odp &&
                            device->receive != FABRIC_RECEIVE_MULTI_PACKET;
    int failed;
    struct ibv_mr *mr =
        register_range(device, pm->base, pm->bytes, IBV_ACCESS_LOCAL_WRITE, may_demand, &failed);

    if (!mr) {
        if (!is_limit(failed, pm->bytes, why))
            verbs_obstacle_register(verbs_device_name(device), kind, device->receive,
                                    device->has_odp, failed, why);
        return why->error;
    }
    log_event(LOG_INFO, "verbs_registered", "kind=%s bytes=%llu device=%s",
              verbs_memory_kind_name(kind), (unsigned long long)pm->bytes,
              verbs_device_name(device));
    *out = mr;
    return 0;
}

int verbs_register(struct fabric *base, struct pm *pm)
{
    struct verbs_fabric *fabric = (struct verbs_fabric *)base;
    struct regions *regions = &fabric->base.regions;
    struct verbs_obstacle obstacle = {0};
    struct ibv_mr *mr = NULL;
    int error;

    base->why[0] = '\0';
    if (regions->count == REGIONS_MAX)
        return ROWAN_ETOOMANY;
    if (strcmp(pm->backend, "file") == 0 && pm->durability != PM_NONE)
        error = verbs_obstacle(
            &obstacle, ROWAN_EUNSUPPORTED,
            "use devdax (durable at once), or durability none, or the fabric tcp",
            "durability \"%s\" cannot be had with RDMA on a plain file: a NIC syncs no file",
            pm_durability_name(pm->durability));
    else
        error = register_pm(fabric->device, pm, &mr, &obstacle);
    if (error) {
        snprintf(base->why, sizeof base->why, "%s; what mends it: %s", obstacle.what,
                 obstacle.mend);
        return error;
    }
    fabric->mrs[regions->count] = mr;
    regions_add(regions, pm);
    regions->all[regions->count - 1].key = mr->lkey;
    return 0;
}

void verbs_unregister_all(struct verbs_fabric *fabric)
{
    while (fabric->base.regions.count > 0)
        ibv_dereg_mr(fabric->mrs[--fabric->base.regions.count]);
}

/* --- buffers of the backend --- */

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static void *map(uint64_t bytes, int flags)
{
    /* Shared: a fork leaves both processes the page that the device knows (verbs_device.c). */
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE | flags, -1, 0);

    return data == MAP_FAILED ? NULL : data;
}

/* Huge pages are fewer entries in the device's tables. Reserved ones only, and none for what would leave
 * most of one empty. */
static int map_buffer(uint64_t bytes, struct verbs_buffer *out)
{
    if (bytes >= HUGE_PAGE_BYTES / 2) {
        out->mapped_bytes = round_up(bytes, HUGE_PAGE_BYTES);
        out->data = map(out->mapped_bytes, MAP_HUGETLB | 21 << MAP_HUGE_SHIFT);
        if (out->data)
            return 0;
    }
    out->mapped_bytes = round_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE));
    out->data = map(out->mapped_bytes, 0);
    return out->data ? 0 : ROWAN_ENOMEM;
}

int verbs_buffer_try(struct verbs_device *device, uint64_t bytes, unsigned access,
                     struct verbs_buffer *out, struct verbs_obstacle *why)
{
    struct verbs_buffer buffer;
    int failed;

    if (map_buffer(bytes, &buffer))
        return verbs_obstacle_refused(verbs_device_name(device), "memory for buffers", ENOMEM, why);
    buffer.mr = register_range(device, buffer.data, buffer.mapped_bytes, access, false, &failed);
    if (!buffer.mr) {
        munmap(buffer.data, buffer.mapped_bytes);
        if (!is_limit(failed, buffer.mapped_bytes, why))
            verbs_obstacle_register(verbs_device_name(device), VERBS_MEMORY_PLAIN, device->receive,
                                    device->has_odp, failed, why);
        return why->error;
    }
    *out = buffer;
    return 0;
}

int verbs_buffer_open(struct verbs_device *device, uint64_t bytes, struct verbs_buffer *out)
{
    struct verbs_obstacle obstacle = {0};
    int error = verbs_buffer_try(device, bytes, IBV_ACCESS_LOCAL_WRITE, out, &obstacle);

    if (error)
        verbs_obstacle_log(&obstacle);
    return error;
}

void verbs_buffer_close(struct verbs_buffer *buffer)
{
    if (!buffer->data)
        return;
    ibv_dereg_mr(buffer->mr);
    munmap(buffer->data, buffer->mapped_bytes);
    *buffer = (struct verbs_buffer){0};
}
