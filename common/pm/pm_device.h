/* pm_device.h - what the kernel tells about a devdax device. Internal to common/pm. */
#ifndef PM_PM_DEVICE_H
#define PM_PM_DEVICE_H

#include <stdint.h>
#include <sys/types.h>

struct pm_device {
    uint64_t bytes;
    uint64_t align_bytes; /* of offset and length of a mapping; a power of two */
    uint64_t physical;    /* address of its first byte; 0: not told, as to anybody but root */
};

/* Errors: -1 where `device` is no devdax device. */
int pm_device_read(dev_t device, struct pm_device *out);

/* pm_device_reserve: an address range that may be mapped over (MAP_FIXED) with [offset, offset + bytes)
 * of the device, such that virtual and physical addresses agree in their low 30 bits: then the largest pages
 * fit, for the processor as for an RDMA device. MAP_FAILED and errno. */
void *pm_device_reserve(const struct pm_device *device, uint64_t offset, uint64_t bytes);

#endif
