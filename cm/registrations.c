/* registrations.c - a table of reports by server. Pure. */
#include "cm/registrations.h"

#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"

static uint32_t place_of(const struct registrations *registrations, uint32_t server)
{
    uint32_t place = 0;
    while (place < registrations->count && registrations->entries[place].join.server != server)
        place++;
    return place;
}

const struct registration *registrations_find(const struct registrations *registrations,
                                              uint32_t server)
{
    uint32_t place = place_of(registrations, server);
    return place < registrations->count ? &registrations->entries[place] : NULL;
}

void registrations_add(struct registrations *registrations, uint32_t connection,
                       const struct cm_join *join, uint64_t now_ns)
{
    uint32_t place = place_of(registrations, join->server);
    ASSERT(place < REGISTRATIONS_MAX);
    struct registration *entry = &registrations->entries[place];
    const bool repeated = place < registrations->count && entry->connection == connection &&
                          entry->join.incarnation == join->incarnation;
    if (!repeated)
        registrations->epoch++;
    if (place == registrations->count)
        registrations->count++;
    *entry = (struct registration){.connection = connection,
                                   .since_ns = repeated ? entry->since_ns : now_ns,
                                   .reported_ns = now_ns,
                                   .join = *join};
}

uint64_t registrations_since(const struct registrations *registrations)
{
    uint64_t since_ns = registrations->entries[0].since_ns;
    for (uint32_t i = 1; i < registrations->count; i++) {
        if (registrations->entries[i].since_ns < since_ns)
            since_ns = registrations->entries[i].since_ns;
    }
    return since_ns;
}

bool registrations_is_current(const struct registrations *registrations,
                              const struct registration *registration)
{
    return registration->join.registration_epoch == registrations->epoch;
}

bool registrations_are_current(const struct registrations *registrations,
                               const struct cluster_config *config)
{
    for (uint32_t i = 0; i < registrations->count; i++) {
        const struct registration *registration = &registrations->entries[i];
        if ((!config || cluster_member(config, registration->join.server)) &&
            !registrations_is_current(registrations, registration))
            return false;
    }
    return true;
}

void registrations_expire(struct registrations *registrations)
{
    registrations->epoch++;
}

void registrations_remove(struct registrations *registrations, uint32_t connection)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < registrations->count; i++) {
        if (registrations->entries[i].connection != connection)
            registrations->entries[kept++] = registrations->entries[i];
    }
    registrations->count = kept;
}

const char *registrations_unfit(const struct registrations *registrations,
                                const struct cm_join *join, char *why, size_t why_bytes)
{
    for (uint32_t i = 0; i < registrations->count; i++) {
        const struct cm_join *other = &registrations->entries[i].join;
        const bool fabric = strcmp(join->fabric, other->fabric) != 0;
        if (other->server == join->server ||
            (!fabric && strcmp(join->durability, other->durability) == 0))
            continue;
        snprintf(
            why, why_bytes,
            "server %u has %s %s and server %u, which joined before it, has %s: all servers of "
            "a cluster must have the same",
            join->server, fabric ? "fabric" : "durability",
            fabric ? join->fabric : join->durability, other->server,
            fabric ? other->fabric : other->durability);
        return why;
    }
    return NULL;
}
