/* join.c - checks on what a server says of itself. Pure. */
#include "cm/join.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK_STRIDE = 64 };

static bool text_is_right(const char *text, size_t capacity)
{
    if (text[0] == '\0' || !memchr(text, '\0', capacity))
        return false;
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    }
    return true;
}

bool join_is_right(const struct cm_join *join)
{
    return join->server >= 1 && join->server <= CLUSTER_MAX_SERVER && join->incarnation != 0 &&
           join->workers >= 1 && join->workers <= CLUSTER_MAX_WORKERS && join->block_limit > 0 &&
           join->block_limit % BLOCK_STRIDE == 0 &&
           text_is_right(join->address, sizeof join->address) &&
           text_is_right(join->fabric, sizeof join->fabric) &&
           text_is_right(join->durability, sizeof join->durability);
}

struct member join_member(const struct cm_join *join)
{
    struct member member = {
        .server = join->server, .incarnation = join->incarnation, .workers = join->workers};
    memcpy(member.address, join->address, sizeof member.address);
    return member;
}

bool join_fits(const struct cm_join *join, const struct cm_join *other, char *why, size_t why_bytes)
{
    const char *what = "fabric", *mine = join->fabric, *theirs = other->fabric;
    if (strcmp(mine, theirs) == 0) {
        what = "durability";
        mine = join->durability;
        theirs = other->durability;
    }
    if (strcmp(mine, theirs) == 0)
        return true;
    snprintf(why, why_bytes,
             "server %u has %s %s and server %u, which joined before it, has %s: all servers of a "
             "cluster must have the same",
             join->server, what, mine, other->server, theirs);
    return false;
}
