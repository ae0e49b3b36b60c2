/* lease_fixture.h - a cluster with leases, and its members' part in time. Connection and server have the same number. */
#ifndef TEST_UNIT_CM_LEASE_FIXTURE_H
#define TEST_UNIT_CM_LEASE_FIXTURE_H

#include "common/base/clock.h"
#include "test/unit/cm/world.h"

enum { SERVERS = 3, LEASE_MS = 100 };

#define LEASE   (LEASE_MS * NS_PER_MS)
#define LONGEST (LEASE + LEASE / 256 + NS_PER_MS)

enum { ALL = 0xe, FIRST_TWO = 0x6 };

extern struct world_renewal last[SERVERS + 1]; /* what each member brings back */

/* Three servers and replicas. */
struct cm_state_options options_of(uint64_t manager);
struct world *standby(uint64_t incarnation, uint64_t now_ns); /* knows the cluster, does not lead */
struct world *manager_at(uint64_t incarnation, uint64_t now_ns); /* it leads */

/* A member says for how long it has had no grant, and whether nobody leads at any address that it knows. */
void say_without(struct world *world, uint32_t server, uint64_t without_ns, bool nobody_leads);

/* A new cluster, its configuration of term 1 in force; and one that is committed: nothing sent is remembered. */
struct world *cluster(void);
struct world *committed_cluster(void);

/* Three servers, one replica each: the third one is kept, as it was silent and holds the last of its shards. */
struct world *cluster_with_a_kept_member(void);

uint64_t term(const struct world *world);

/* The member's renewal, and the answer in the same moment. */
bool renew(struct world *world, uint32_t server);

/* Members whose bits are set renew every quarter of a lease up to `until_ns`. Bits of those that got the last one granted. */
uint32_t run(struct world *world, uint32_t members, uint64_t until_ns);

/* The member brings back what it was told last, and is silent from now on: since when, for the manager. The third
 * one is, until it is removed or kept. */
uint64_t last_sign_of(struct world *world, uint32_t server);
void fall_silent(struct world *world);

/* To whom it was said that this term is committed. */
uint32_t committed(const struct world *world, uint64_t of);

void adopt_all(struct world *world);

const struct cluster_config *in_force(const struct world *world);

/* Members whose bits are set adopt that, and renew for a quarter of a lease. */
void commit_among(struct world *world, uint32_t members);

/* A configuration of term 10 with leases and members as world_join_of has them, each shard in epoch 7 and without a server yet. */
struct cluster_config *config_by_hand(uint32_t members, uint32_t shards, uint32_t replicas);

#endif
