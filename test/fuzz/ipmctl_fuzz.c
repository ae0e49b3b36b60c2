/* ipmctl_fuzz.c - any bytes as what ipmctl printed: either DIMMs with all their counters, or a sentence. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/assert.h"
#include "tools/dlwa/ipmctl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct ipmctl_reading reading;
    char why[IPMCTL_WHY_BYTES];

    if (!ipmctl_parse((const char *)data, bytes, &reading, why)) {
        ASSERT(why[0] != '\0' && memchr(why, '\0', sizeof why) != NULL);
        return 0;
    }
    ASSERT(reading.count >= 1 && reading.count <= IPMCTL_MAX_DIMMS);
    for (uint32_t i = 0; i < reading.count; i++) {
        ASSERT(memchr(reading.dimms[i].id, '\0', IPMCTL_ID_BYTES) != NULL);
        for (unsigned j = 0; j < IPMCTL_COUNTERS; j++)
            ASSERT(reading.dimms[i].counters[j] <= UINT64_MAX / IPMCTL_UNIT_BYTES);
    }
    return 0;
}
