/* ids.c - a queue of one request a connection, served round the circle. Pure. */
#include "cm/ids.h"

#include "common/base/assert.h"
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

void ids_want(struct ids *ids, uint32_t connection, uint32_t tag)
{
    ASSERT(connection < CM_MAX_CONNECTIONS && !ids->places[connection].wants);
    ids->places[connection].wants = true;
    ids->places[connection].tag = tag;
    ids->wanting++;
}

bool ids_wants(const struct ids *ids, uint32_t connection)
{
    return ids->places[connection].wants;
}

void ids_forget(struct ids *ids, uint32_t connection)
{
    if (!ids->places[connection].wants)
        return;
    ASSERT(ids->wanting > 0);
    ids->places[connection].wants = false;
    ids->wanting--;
}

void ids_grant(struct ids *ids, uint32_t first, uint32_t end)
{
    ASSERT(first <= end);
    ids->next = first;
    ids->end = end;
}

bool ids_turn(struct ids *ids, uint32_t *connection, uint32_t *tag)
{
    if (ids->wanting == 0)
        return false;
    while (!ids->places[ids->cursor % CM_MAX_CONNECTIONS].wants)
        ids->cursor++;
    *connection = ids->cursor % CM_MAX_CONNECTIONS;
    *tag = ids->places[*connection].tag;
    ids_forget(ids, *connection);
    return true;
}

bool ids_give(struct ids *ids, uint32_t *connection, uint32_t *tag, uint32_t *id)
{
    if (ids->next == ids->end || !ids_turn(ids, connection, tag))
        return false;
    *id = ids->next++;
    return true;
}
