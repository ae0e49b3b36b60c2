/* pm_device.c - device DAX is a character device: it has no size of its own and no file system that would choose
 * good addresses. Both are here, from sysfs. */
#include "common/pm/pm_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#define LARGEST_PAGE_BYTES (UINT64_C(1) << 30)

static int read_number(dev_t device, const char *name, uint64_t *out)
{
    char path[96], text[32];
    FILE *file;
    int fields = 0;

    snprintf(path, sizeof path, "/sys/dev/char/%u:%u/%s", major(device), minor(device), name);
    file = fopen(path, "re");
    if (!file)
        return -1;
    if (fgets(text, sizeof text, file)) /* "2097152", or "0x140000000" */
        fields = sscanf(text, "%" SCNi64, (int64_t *)out);
    fclose(file);
    return fields == 1 ? 0 : -1;
}

int pm_device_read(dev_t device, struct pm_device *out)
{
    struct pm_device found;

    if (read_number(device, "size", &found.bytes) ||
        read_number(device, "align", &found.align_bytes))
        return -1;
    if (found.align_bytes == 0 || found.align_bytes & (found.align_bytes - 1))
        return -1;
    if (read_number(device, "resource", &found.physical))
        found.physical = 0;
    *out = found;
    return 0;
}

void *pm_device_reserve(const struct pm_device *device, uint64_t offset, uint64_t bytes)
{
    const uint64_t wanted = (device->physical + offset) % LARGEST_PAGE_BYTES;
    uint8_t *all = mmap(NULL, bytes + LARGEST_PAGE_BYTES, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint64_t before, after;

    if (all == MAP_FAILED)
        return MAP_FAILED;
    before = (wanted - (uintptr_t)all) % LARGEST_PAGE_BYTES;
    after = LARGEST_PAGE_BYTES - before;
    if (before)
        munmap(all, before);
    munmap(all + before + bytes, after);
    return all + before;
}
