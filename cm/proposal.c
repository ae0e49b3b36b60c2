/* proposal.c - see proposal.h. A cold start also reserves a block of client ids, so that the first
 * clients after it need no second change; but not the first one of a series. */
#include "cm/proposal.h"

#include <stdio.h>

#include "common/base/error.h"

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

static bool reserve_ids(struct cluster_config *config)
{
    const uint32_t next = config->next_client_id;
    if (ids_series_end(next) - next <= CM_CLIENT_ID_BLOCK)
        return false;
    config->next_client_id = next + CM_CLIENT_ID_BLOCK;
    return true;
}

static bool is_awaited(const struct cluster_config *config, const uint64_t *holders,
                       const struct member *member)
{
    return holders[member->server] != member->incarnation &&
           (!member->kept || cluster_is_unwritten(config));
}

bool proposal_may_reserve(const struct cluster_config *config, const uint64_t *holders)
{
    const bool first = ids_series_is_new(config->next_client_id);
    for (uint32_t i = 0; first && i < config->member_count; i++) {
        if (is_awaited(config, holders, &config->members[i]))
            return false;
    }
    return true;
}

void proposal_why_not(const struct cluster_config *config, const uint64_t *holders, char *why,
                      size_t why_bytes)
{
    const char *separator =
        "clients get their first ids when every server serves; not yet: server ";
    size_t at = 0;
    for (uint32_t i = 0; i < config->member_count && at < why_bytes; i++) {
        if (!is_awaited(config, holders, &config->members[i]))
            continue;
        at += (size_t)snprintf(why + at, why_bytes - at, "%s%u", separator,
                               config->members[i].server);
        separator = ", ";
    }
}

int proposal_block(const struct cluster_config *config, struct cluster_config **out)
{
    struct cluster_config *next = cluster_copy(config);
    if (!next)
        return ROWAN_ENOMEM;
    next->term++;
    if (!reserve_ids(next)) {
        cluster_release(next);
        return ROWAN_ETOOMANY;
    }
    *out = next;
    return ROWAN_OK;
}

int proposal_cold(const struct cluster_config *config, struct comeback *back, bool partly,
                  struct cluster_config **out, char *why, size_t why_bytes)
{
    const int error = cold_start(config, back, partly, out, why, why_bytes);
    if (*out && !ids_series_is_new(config->next_client_id))
        reserve_ids(*out);
    return error;
}
