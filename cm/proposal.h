/* proposal.h - configurations that the state proposes: one that reserves client ids, one after a cold start. Pure.
 *
 * The client ids that one reserves begin with the next_client_id of the one in force.
 * So that no id is given twice though nobody knows how many of them were reserved (recovery.h), ids come in series: such a
 * manager begins the next one. Each has half of what the ones before have left: the first all below 2^31. The first block of
 * a series waits until every server has stored a configuration that is in it (proposal_may_reserve): so once one of its
 * ids is given, no server brings an earlier series any more, but for one that is kept: that counts for nothing unless all
 * others have lost what they stored.
 */
#ifndef CM_PROPOSAL_H
#define CM_PROPOSAL_H

#include "cm/cold.h"
#include "cm/state.h"

/* Ids reserved by one change of the configuration. Who leads next gives up what is left of the last one's. */
enum { CM_CLIENT_ID_BLOCK = 16384 };

/* ids_series_end: the id behind the series that `next`, the first one not reserved, is in; at last UINT32_MAX. No block
 * reaches it. ids_series_is_new: none of that series is reserved. */
uint32_t ids_series_end(uint32_t next);
bool ids_series_is_new(uint32_t next);

/* The first client ids of a series wait until every member has formatted its PM and stored the configuration: from
 * then on a member without data has lost it. Kept members are not waited for if there ever were clients. holders: by
 * server, the incarnation that reported so last; 0: none did. */
bool proposal_may_reserve(const struct cluster_config *config, const uint64_t *holders);

/* If it may not: a sentence with the servers that it waits for. */
void proposal_why_not(const struct cluster_config *config, const uint64_t *holders, char *why,
                      size_t why_bytes);

/* proposal_may_reserve. Errors: ROWAN_ETOOMANY (no ids are left), ROWAN_ENOMEM. */
int proposal_block(const struct cluster_config *config, struct cluster_config **out);

/* cold.h. Reserves ids if there are some left and not the first of a series. */
int proposal_cold(const struct cluster_config *config, struct comeback *back, bool partly,
                  struct cluster_config **out, char *why, size_t why_bytes);

#endif
