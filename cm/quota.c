/* quota.c - see quota.h. A leaky bucket kept as one time, at which it is empty again: the generic cell rate algorithm
 * (ITU-T I.371). */
#include "cm/quota.h"

#include <string.h>
#include <xxhash.h>

#include "common/base/clock.h"

#define INTERVAL_NS (NS_PER_S / QUOTA_A_SECOND)

/* Its own, else a free one, else the one of all others. */
static struct quota_row *find(struct quota *quota, uint64_t who, uint64_t now_ns)
{
    struct quota_row *row = &quota->others;
    for (uint32_t i = 0; i < QUOTA_ROWS; i++) {
        struct quota_row *at = &quota->rows[(who + i) % QUOTA_ROWS];
        if (at->who == who && at->full_ns > now_ns)
            return at;
        if (at->full_ns <= now_ns && row == &quota->others)
            row = at;
    }
    return row;
}

bool quota_take(struct quota *quota, const char *user, uint64_t now_ns)
{
    if (!user)
        return true;
    const uint64_t who = XXH3_64bits(user, strlen(user));
    struct quota_row *row = find(quota, who, now_ns);
    const uint64_t from_ns = row->full_ns > now_ns ? row->full_ns : now_ns;
    if (from_ns + INTERVAL_NS - now_ns > QUOTA_BURST * INTERVAL_NS)
        return false;
    *row = (struct quota_row){.who = who, .full_ns = from_ns + INTERVAL_NS};
    return true;
}
