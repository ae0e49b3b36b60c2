/* proposal.h - the configurations that the state proposes: the first, one that reserves client ids,
 * one after a cold start. Pure. The client ids that one reserves begin with the next_client_id of the one in force. */
#ifndef CM_PROPOSAL_H
#define CM_PROPOSAL_H

#include "cm/registrations.h"
#include "cm/state.h"

/* All servers of the options are registered. NULL: no memory. */
struct cluster_config *proposal_first(const struct cm_state_options *options,
                                      const struct registrations *registrations);

/* The first client ids of a series (ids.h) wait until every member has formatted its PM and stored the configuration: from
 * then on a member without data has lost it. holders: by server, the incarnation that reported so last; 0: none did. */
bool proposal_may_reserve(const struct cluster_config *config, const uint64_t *holders);

/* If it may not: a sentence with the servers that it waits for. */
void proposal_why_not(const struct cluster_config *config, const uint64_t *holders, char *why,
                      size_t why_bytes);

/* proposal_may_reserve. Errors: ROWAN_ETOOMANY (no ids are left), ROWAN_ENOMEM. */
int proposal_block(const struct cluster_config *config, struct cluster_config **out);

/* All members are registered. Reserves ids if there are some left and not the first of a series. Errors:
 * those of cold_start; `why` has a sentence for each but ROWAN_ENOMEM. */
int proposal_cold(const struct cluster_config *config, const struct registrations *registrations,
                  struct cluster_config **out, char *why, size_t why_bytes);

#endif
