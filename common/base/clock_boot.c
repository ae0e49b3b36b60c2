/* clock_boot.c - the number of this host's boot, by libsystemd: apart, so that only servers need that. */
#include <string.h>
#include <systemd/sd-id128.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"

int clock_boot_id(uint8_t out[16])
{
    sd_id128_t id;
    const int failed = sd_id128_get_boot(&id);

    if (failed < 0) {
        log_event(LOG_WARN, "boot_id_unknown", "path=/proc/sys/kernel/random/boot_id reason=\"%s\"",
                  strerror(-failed));
        return ROWAN_EIO;
    }
    memcpy(out, id.bytes, sizeof id.bytes);
    return 0;
}
