/* claim.h - when a manager that does not lead tries to be named in the place of the one that does (design, section 6,
 * "Managers"). A pure part of the state (state.h). Nothing is safe by these times: a new manager is named by a
 * compare-and-set, and waits for the leases of the old one (lease.h). They decide only when it is worth trying.
 *
 * A manager grants to all of its configuration or to none. So the word of one server of the newest configuration is enough:
 *  claim-1 that it has had no grant for six of the longest leases, or for two where nobody leads at any address that it knows.
 *     They count from the last change of manager that is known, and a manager has first what it may need, to lead
 *     (MANAGERS_STORE_NS), or to grant (managers_takeover_ns).
 *  claim-2 A server that has not adopted a configuration, as it starts, says for how long no manager that leads has answered it.
 *     It is one of this configuration if it holds data of the cluster, or nobody can have written anything yet.
 *  claim-3 A server's word counts for one lease: it comes by again ten times a second until it finds who leads.
 *  claim-4 Each try makes the next wait longer, by a random time, until this manager commits something.
 */
#ifndef CM_CLAIM_H
#define CM_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "cm/join.h"
#include "common/cluster/cluster.h"

/* All zeros: no configuration with leases is known. */
struct claim {
    uint64_t manager,
        manager_ns;  /* that the newest configuration names, and when this one saw it first */
    bool changed;    /* another one was named before, as this process saw */
    uint32_t tries;  /* since this one committed something */
    uint64_t try_ns; /* the last one */
    struct claim_word {
        uint64_t told_ns; /* 0: it has said nothing that counts */
        uint64_t due_ns;  /* by it */
    } servers[CLUSTER_MAX_SERVER + 1];
};

/* `config` is in force now. */
void claim_follow(struct claim *claim, const struct cluster_config *config, uint64_t now_ns);

/* The server has reported to this manager, which does not lead. `incarnation` of the manager: it is random, so that two
 * of them do not take turns for ever. False: it does not speak for this cluster (claim-2). */
bool claim_told(struct claim *claim, const struct cluster_config *config, uint64_t incarnation,
                const struct cm_join *join, uint64_t now_ns);

/* Should this manager try to be named? */
bool claim_is_due(const struct claim *claim, const struct cluster_config *config, uint64_t now_ns);

/* When the next word is enough, if it still counts then; UINT64_MAX: none is. */
uint64_t claim_wake_ns(const struct claim *claim, const struct cluster_config *config,
                       uint64_t now_ns);

/* It does. */
void claim_tried(struct claim *claim, uint64_t now_ns);

#endif
