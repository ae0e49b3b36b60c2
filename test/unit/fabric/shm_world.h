/* shm_world.h - the shm backend as the conformance cases want it: addresses and PM files in a
 * directory of the test. Include after cmocka.h. */
#ifndef TEST_SHM_WORLD_H
#define TEST_SHM_WORLD_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "test/lib/fabric_world.h"
#include "test/unit/fabric/temp_pm.h"

struct shm_host {
    struct temp_dir dir;
    struct fabric_backend backend;
    unsigned files;
    uint64_t skipped_ns;           /* added to the clock */
    enum pm_durability durability; /* of PM files; PM_NONE at start */
};

static inline const char *shm_host_address(void *context, unsigned process)
{
    static char address[512];
    const struct shm_host *host = context;

    snprintf(address, sizeof address, "shm:%s/server-%u", host->dir.path, process);
    return address;
}

static inline int shm_host_fabric(void *context, unsigned process, struct fabric **out)
{
    return fabric_open(NULL, shm_host_address(context, process), out);
}

static inline int shm_host_pm(void *context, uint64_t bytes, struct pm **out)
{
    struct shm_host *host = context;

    return temp_pm_open(&host->dir, host->files++, bytes, host->durability, out);
}

static inline uint64_t shm_host_now_ns(void *context)
{
    const struct shm_host *host = context;

    return clock_now_ns(clock_system()) + host->skipped_ns;
}

static inline void shm_host_init(struct shm_host *host)
{
    *host = (struct shm_host){.durability = PM_NONE,
                              .backend = {.context = host,
                                          .fabric_make = shm_host_fabric,
                                          .address = shm_host_address,
                                          .pm_make = shm_host_pm,
                                          .now_ns = shm_host_now_ns}};
    temp_dir_init(&host->dir);
}

static inline void shm_host_fini(struct shm_host *host)
{
    temp_dir_fini(&host->dir);
}

#endif
