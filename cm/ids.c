/* ids.c - see ids.h. */
#include "cm/ids.h"

#include "common/cluster/cluster.h"

/* How many ids the series of `next` has: as many as lie behind it. */
static uint32_t series_count(uint32_t next)
{
    uint32_t count = UINT32_C(1) << 31;
    while (count > 1 && next >= UINT32_MAX - count + 1)
        count /= 2;
    return count;
}

uint32_t ids_series_end(uint32_t next)
{
    return UINT32_MAX - series_count(next) + 1;
}

bool ids_series_is_new(uint32_t next)
{
    const uint32_t start = ids_series_end(next) - series_count(next);
    return next - start <= CLUSTER_FIRST_CLIENT_ID;
}
