/* proposal.h - the configurations that the state proposes: the first, one that reserves client ids,
 * one after a cold start. Pure. */
#ifndef CM_PROPOSAL_H
#define CM_PROPOSAL_H

#include "cm/registrations.h"
#include "cm/state.h"

struct proposal {
    struct cluster_config *config;
    uint32_t first_id, end_id; /* the block of client ids that it reserves; equal: none */
};

/* Fills `servers` with those that a start waits for and that are not registered: members of `config`, or, without one,
 * whom the options list. Returns how many. */
uint32_t proposal_absent(const struct cm_state_options *options,
                         const struct cluster_config *config,
                         const struct registrations *registrations, uint32_t *servers);

/* All whom the options list are registered. Errors: ROWAN_ENOMEM. */
int proposal_first(const struct cm_state_options *options,
                   const struct registrations *registrations, struct proposal *out);

/* The first client ids of all wait until every member has formatted its PM: from then on a member without data
 * has lost it. holders[i]: the incarnation of member i that said so; 0: none did. */
bool proposal_may_reserve(const struct cluster_config *config, const uint64_t *holders);

/* Who is waited for, if it may not, as a sentence. */
void proposal_why_not(const struct cluster_config *config, const uint64_t *holders, char *why,
                      size_t why_bytes);

/* proposal_may_reserve. Errors: ROWAN_ETOOMANY (no ids are left), ROWAN_ENOMEM. */
int proposal_block(const struct cluster_config *config, struct proposal *out);

/* All members are registered. Reserves ids if there are some left and a client had some before. Errors: those of cold_start, of
 * which `why` has a sentence but for ROWAN_ENOMEM. */
int proposal_cold(const struct cluster_config *config, const struct registrations *registrations,
                  struct proposal *out, char *why, size_t why_bytes);

#endif
