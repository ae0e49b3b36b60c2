/* claim.h - when a manager that does not lead takes over because the members have no lease from the one that does (design,
 * section 6, "Managers"). A pure part of the state (state.h). Nothing is safe by these times: a new manager is named by a
 * compare-and-set, and waits for the leases of the old one (lease.h). They decide only when it is worth trying.
 *
 * A member whose manager does not answer goes on to the next one, and says how long it has had no grant.
 */
#ifndef CM_CLAIM_H
#define CM_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cluster/cluster.h"

/* For so many of the longest leases most members have had no grant, and the manager is the same, before another one tries. They
 * must say so when the manager has been the same for LEASE_FIRST_WORD_NS longer: who has found a new one says nothing here. */
enum { CLAIM_AFTER = 6 };

/* All zeros: no configuration with leases is known. */
struct claim {
    uint64_t manager,
        manager_ns;  /* that the newest configuration names, and when this one saw it first */
    uint32_t tries;  /* of this manager, since it last led */
    uint64_t try_ns; /* of the last one */
    struct claim_member {
        uint64_t told_ns;  /* when it last said so; 0: it has not */
        uint64_t since_ns; /* since then it has had no grant */
    } servers[CLUSTER_MAX_SERVER + 1];
};

/* `config` is in force now. */
void claim_follow(struct claim *claim, const struct cluster_config *config, uint64_t now_ns);

/* A process of that server, of any incarnation, has had no grant for `without_ms`; 0: it has one. */
void claim_told(struct claim *claim, uint32_t server, uint64_t without_ms, uint64_t now_ns);

/* Should this manager try to be named? What is added to the wait grows with each try, and differs by `incarnation`, which is
 * random: so two of them do not take turns for ever. */
bool claim_is_due(const struct claim *claim, const struct cluster_config *config,
                  uint64_t incarnation, uint64_t now_ns);

#endif
