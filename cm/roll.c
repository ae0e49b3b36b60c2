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

void roll_add(struct roll *roll, uint32_t connection, const struct cm_join *join)
{
    const struct candidate *old = roll_find(roll, join->server);
    bool again = old && old->connection == connection && old->join.incarnation == join->incarnation;
    roll_remove(roll, join->server);
    uint32_t place = 0;
    while (place < CLUSTER_MAX_MEMBERS && roll->candidates[place].present)
        place++;
    ASSERT(place < CLUSTER_MAX_MEMBERS);
    if (!again)
        roll->round++;
    roll->candidates[place] =
        (struct candidate){.present = true, .connection = connection, .join = *join};
    roll->count++;
}

bool roll_is_settled(const struct roll *roll)
{
    for (uint32_t i = 0; i < CLUSTER_MAX_MEMBERS; i++) {
        if (roll->candidates[i].present && roll->candidates[i].join.round != roll->round)
            return false;
    }
    return true;
}

void roll_call_again(struct roll *roll)
{
    roll->round++;
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
        if (roll->candidates[i].present && roll->candidates[i].connection == connection)
            remove_at(roll, i);
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
