/* roll.c - a table of reports by server. Pure. */
#include "cm/roll.h"

#include "common/base/assert.h"

const struct candidate *roll_find(const struct roll *roll, uint32_t server)
{
    for (uint32_t i = 0; i < CLUSTER_MAX_MEMBERS; i++) {
        const struct candidate *candidate = &roll->candidates[i];
        if (candidate->present && candidate->join.server == server)
            return candidate;
    }
    return NULL;
}

static struct candidate *find(struct roll *roll, uint32_t server)
{
    return (struct candidate *)roll_find(roll, server);
}

void roll_contest(struct roll *roll, uint32_t server, uint32_t rival)
{
    struct candidate *candidate = find(roll, server);
    if (!candidate)
        return;
    candidate->contested = true;
    candidate->rival = rival;
}

bool roll_counts(const struct roll *roll, uint32_t server)
{
    const struct candidate *candidate = roll_find(roll, server);
    return candidate && !candidate->contested;
}

void roll_add(struct roll *roll, uint32_t connection, const struct cm_join *join)
{
    const struct candidate *old = roll_find(roll, join->server);
    struct candidate added = {.present = true, .connection = connection, .join = *join};
    if (old && old->connection == connection) {
        added.contested = old->contested;
        added.rival = old->rival;
    }
    roll_remove(roll, join->server);
    uint32_t place = 0;
    while (place < CLUSTER_MAX_MEMBERS && roll->candidates[place].present)
        place++;
    ASSERT(place < CLUSTER_MAX_MEMBERS);
    roll->candidates[place] = added;
    roll->count++;
}

static void remove_at(struct roll *roll, uint32_t place)
{
    roll->candidates[place].present = false;
    roll->count--;
}

void roll_remove(struct roll *roll, uint32_t server)
{
    for (uint32_t i = 0; i < CLUSTER_MAX_MEMBERS; i++) {
        if (roll->candidates[i].present && roll->candidates[i].join.server == server)
            remove_at(roll, i);
    }
}

void roll_remove_connection(struct roll *roll, uint32_t connection)
{
    for (uint32_t i = 0; i < CLUSTER_MAX_MEMBERS; i++) {
        struct candidate *candidate = &roll->candidates[i];
        if (candidate->present && candidate->connection == connection)
            remove_at(roll, i);
        else if (candidate->contested && candidate->rival == connection)
            candidate->contested = false;
    }
}

bool roll_fits(const struct roll *roll, const struct cm_join *join, char *why, size_t why_bytes)
{
    for (uint32_t i = 0; i < CLUSTER_MAX_MEMBERS; i++) {
        const struct candidate *other = &roll->candidates[i];
        if (other->present && other->join.server != join->server &&
            !join_fits(join, &other->join, why, why_bytes))
            return false;
    }
    return true;
}
