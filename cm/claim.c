/* claim.c - see claim.h. */
#include "cm/claim.h"

#include "cm/lease.h"

/* A member tells a manager that does not lead nothing else; each round over the managers it comes by again, and waits at each
 * that is stopped for some leases. So whoever said it longer ago may have found one that leads. The same holds for what is said
 * while members may still be on their way to a new manager: that one grants nothing before all are there, or have had that
 * time (lease.h), and would be deposed for it. */
static bool counts(const struct claim *claim, const struct claim_member *member,
                   uint64_t longest_ns, uint64_t now_ns)
{
    const uint64_t way_ns = CLAIM_AFTER * longest_ns + LEASE_FIRST_WORD_NS;
    return member->told_ns >= claim->manager_ns + way_ns && now_ns - member->told_ns <= way_ns;
}

void claim_follow(struct claim *claim, const struct cluster_config *config, uint64_t now_ns)
{
    if (config->manager == claim->manager)
        return;
    claim->manager = config->manager;
    claim->manager_ns = now_ns;
}

void claim_told(struct claim *claim, uint32_t server, uint64_t without_ms, uint64_t now_ns)
{
    const uint64_t most_ms = now_ns / NS_PER_MS;
    claim->servers[server] = (struct claim_member){
        .told_ns = now_ns,
        .since_ns = without_ms == 0
                        ? UINT64_MAX
                        : now_ns - (without_ms < most_ms ? without_ms : most_ms) * NS_PER_MS};
}

/* Up to one of the longest leases for the first try, two for the second and so on. */
static uint64_t extra_ns(const struct claim *claim, uint64_t longest_ns, uint64_t incarnation)
{
    const uint64_t drawn = (incarnation + claim->tries) * UINT64_C(0x9e3779b97f4a7c15) >> 44;
    return ((longest_ns * (claim->tries + 1)) >> 20) * drawn;
}

bool claim_is_due(const struct claim *claim, const struct cluster_config *config,
                  uint64_t incarnation, uint64_t now_ns)
{
    const uint64_t longest_ns = lease_longest_ns(config->lease_ms * NS_PER_MS);
    const uint64_t wait_ns = CLAIM_AFTER * longest_ns + extra_ns(claim, longest_ns, incarnation);
    const uint64_t from_ns = claim->try_ns > claim->manager_ns ? claim->try_ns : claim->manager_ns;
    uint32_t without = 0;
    if (config->lease_ms == 0 || config->manager == incarnation || now_ns - from_ns < wait_ns)
        return false;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct claim_member *member = &claim->servers[config->members[i].server];
        without +=
            counts(claim, member, longest_ns, now_ns) && member->since_ns <= now_ns - wait_ns;
    }
    return 2 * without > config->member_count;
}
