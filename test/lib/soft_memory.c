/* soft_memory.c - registered regions and device memory; the checks of each access. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/lib/soft_verbs_impl.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

enum { REMOTE_ACCESS = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static struct soft_pd *pd_of(struct ibv_pd *pd)
{
    return SOFT_CONTAINER(pd, struct soft_pd, base);
}

/* Only what is mapped can be pinned. */
static bool is_mapped(const void *address, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)address & ~(page - 1);
    const uintptr_t end = ((uintptr_t)address + bytes + page - 1) & ~(page - 1);

    return msync((void *)first, end - first, MS_ASYNC) == 0;
}

/* Gives it a place and keys that no region had lately: lkey and rkey differ in the last bit. */
static bool key_take(struct soft_mr *mr)
{
    uint32_t slot = 0;

    while (slot < SOFT_MAX_MRS && soft.mrs[slot])
        slot++;
    if (slot == SOFT_MAX_MRS) {
        errno = ENOMEM;
        return false;
    }
    soft.mrs[slot] = mr;
    soft.mr_tags[slot] = (uint8_t)(soft.mr_tags[slot] + 2);
    mr->base.handle = slot;
    mr->lkey = mr->base.lkey = (slot + 1) << 8 | soft.mr_tags[slot];
    mr->rkey = mr->base.rkey = mr->access & REMOTE_ACCESS ? mr->lkey | 1 : 0;
    return true;
}

static struct ibv_mr *region_make(struct ibv_pd *pd, const struct soft_mr *like)
{
    struct soft_mr *mr = calloc(1, sizeof *mr);

    if (!mr)
        return NULL;
    *mr = *like;
    mr->base.context = pd->context;
    mr->base.pd = pd;
    mr->base.length = mr->bytes;
    if (!key_take(mr)) {
        free(mr);
        return NULL;
    }
    pd_of(pd)->children++;
    soft.stats.mrs++;
    return &mr->base;
}

static int region_check(const struct soft_device *device, void *address, size_t bytes,
                        unsigned access)
{
    const bool on_demand = access & IBV_ACCESS_ON_DEMAND;

    if (bytes == 0 || ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
                       !(access & IBV_ACCESS_LOCAL_WRITE)))
        return EINVAL;
    if (on_demand && !device->config.has_odp)
        return EOPNOTSUPP;
    if (!on_demand && device->config.locked_bytes > 0 &&
        device->locked_bytes + bytes > device->config.locked_bytes) {
        soft.stats.unlocked++;
        return ENOMEM;
    }
    return is_mapped(address, bytes) ? 0 : EFAULT;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova,
                                unsigned access)
{
    struct soft_device *device = soft_context_of(pd->context)->device;
    struct ibv_mr *mr = NULL;
    int error;

    soft_lock();
    error = region_check(device, address, bytes, access);
    if (error) {
        errno = error;
    } else if (!soft_call_fails()) {
        const bool pinned = !(access & IBV_ACCESS_ON_DEMAND);

        mr = region_make(pd, &(struct soft_mr){.base = {.addr = address},
                                               .host = address,
                                               .iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova,
                                               .bytes = bytes,
                                               .access = access,
                                               .locked_bytes = pinned ? bytes : 0});
        if (mr && pinned)
            device->locked_bytes += bytes;
    }
    soft_unlock();
    return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access)
{
    return ibv_reg_mr_iova2(pd, address, bytes, (uintptr_t)address, (unsigned)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    struct soft_mr *it = SOFT_CONTAINER(mr, struct soft_mr, base);

    soft_lock();
    if (mr->handle >= SOFT_MAX_MRS || soft.mrs[mr->handle] != it)
        soft_mistake("a region is deregistered that is none");
    soft.mrs[mr->handle] = NULL;
    soft_context_of(mr->context)->device->locked_bytes -= it->locked_bytes;
    pd_of(mr->pd)->children--;
    if (it->dm)
        it->dm->children--;
    soft.stats.mrs--;
    soft_unlock();
    free(it);
    return 0;
}

struct ibv_dm *soft_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
    struct soft_dm *dm = NULL;

    soft_lock();
    if (soft_context_of(context)->device->config.dm_bytes == 0)
        errno = EOPNOTSUPP;
    else if (attr->length == 0 || attr->comp_mask != 0 ||
             attr->length > soft_context_of(context)->device->config.dm_bytes)
        errno = EINVAL;
    else if (!soft_call_fails())
        dm = calloc(1, sizeof *dm + attr->length);
    if (dm) {
        dm->base = (struct ibv_dm){.context = context};
        dm->bytes = attr->length;
        dm->data = (uint8_t *)(dm + 1);
        soft_context_of(context)->children++;
        soft.stats.dms++;
    }
    soft_unlock();
    return dm ? &dm->base : NULL;
}

int soft_free_dm(struct ibv_dm *dm)
{
    struct soft_dm *it = SOFT_CONTAINER(dm, struct soft_dm, base);

    soft_lock();
    if (it->children > 0)
        soft_mistake("device memory is freed that is still registered");
    soft_context_of(dm->context)->children--;
    soft.stats.dms--;
    soft_unlock();
    free(it);
    return 0;
}

/* As mlx5 does: addresses in it begin at 0. */
struct ibv_mr *soft_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
                              unsigned access)
{
    struct soft_dm *it = SOFT_CONTAINER(dm, struct soft_dm, base);
    struct ibv_mr *mr = NULL;

    soft_lock();
    if (!(access & IBV_ACCESS_ZERO_BASED) || length == 0 || offset > it->bytes ||
        length > it->bytes - offset)
        errno = EINVAL;
    else if (!soft_call_fails())
        mr = region_make(
            pd, &(struct soft_mr){
                    .host = it->data + offset, .bytes = length, .access = access, .dm = it});
    if (mr)
        it->children++;
    soft_unlock();
    return mr;
}

static uint8_t *find(const struct ibv_pd *pd, uint32_t key, bool is_remote, uint64_t address,
                     uint64_t bytes, unsigned access)
{
    const uint32_t slot = (key >> 8) - 1;
    const struct soft_mr *mr = slot < SOFT_MAX_MRS ? soft.mrs[slot] : NULL;

    if (!mr || key == 0 || (is_remote ? mr->rkey : mr->lkey) != key || mr->base.pd != pd ||
        (mr->access & access) != access)
        return NULL;
    if (address < mr->iova || bytes > mr->bytes || address - mr->iova > mr->bytes - bytes)
        return NULL;
    return mr->host + (address - mr->iova);
}

uint8_t *soft_local(const struct ibv_pd *pd, uint32_t lkey, uint64_t address, uint64_t bytes,
                    unsigned access)
{
    return find(pd, lkey, false, address, bytes, access);
}

uint8_t *soft_remote(const struct ibv_pd *pd, uint32_t rkey, uint64_t address, uint64_t bytes,
                     unsigned access)
{
    return find(pd, rkey, true, address, bytes, access);
}

uint64_t soft_check_sges(const struct ibv_pd *pd, const struct ibv_sge *sges, uint32_t count,
                         unsigned access, const char *what)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (sges[i].length > 0 &&
            !soft_local(pd, sges[i].lkey, sges[i].addr, sges[i].length, access))
            soft_mistake("%s: piece %u, %#lx + %u with key %#x, is not registered for this", what,
                         i, sges[i].addr, sges[i].length, sges[i].lkey);
        bytes += sges[i].length;
    }
    return bytes;
}

/* Walks the pieces that hold bytes [at, at + bytes). */
static void walk(const struct ibv_pd *pd, const struct ibv_sge *sges, uint32_t count, uint32_t at,
                 uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    for (uint32_t i = 0; i < count && bytes > 0; i++) {
        uint32_t part;
        uint8_t *host;

        if (at >= sges[i].length) {
            at -= sges[i].length;
            continue;
        }
        part = sges[i].length - at < bytes ? sges[i].length - at : bytes;
        host = soft_local(pd, sges[i].lkey, sges[i].addr + at, part,
                          from ? IBV_ACCESS_LOCAL_WRITE : 0);
        if (!host)
            soft_mistake("%#lx + %u with key %#x was deregistered while a request used it",
                         sges[i].addr, sges[i].length, sges[i].lkey);
        if (from) {
            memcpy(host, from, part);
            from += part;
        } else {
            memcpy(to, host, part);
            to += part;
        }
        bytes -= part;
        at = 0;
    }
}

void soft_gather(const struct ibv_pd *pd, const struct ibv_sge *sges, uint32_t count, uint32_t at,
                 uint8_t *to, uint32_t bytes)
{
    walk(pd, sges, count, at, to, NULL, bytes);
}

void soft_scatter(const struct ibv_pd *pd, const struct ibv_sge *sges, uint32_t count, uint32_t at,
                  const uint8_t *from, uint32_t bytes)
{
    walk(pd, sges, count, at, NULL, from, bytes);
}
