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

/* Fills `servers` with those that a start waits for and that are not registered: members of `config` or,
 * without one, the servers of the options. Returns how many. */
uint32_t proposal_absent(const struct cm_state_options *options,
                         const struct cluster_config *config,
                         const struct registrations *registrations, uint32_t *servers);

/* All servers of the options are registered. Errors: ROWAN_ENOMEM. */
int proposal_first(const struct cm_state_options *options,
                   const struct registrations *registrations, struct proposal *out);

/* The first client ids of a series (ids.h) wait until every member has formatted its PM and stored the configuration: from
 * then on a member without data has lost it. holders[i]: the incarnation of member i that reported so; 0: none did. */
bool proposal_may_reserve(const struct cluster_config *config, const uint64_t *holders);

/* A member reports that its PM is formatted. */
void proposal_set_holder(const struct cluster_config *config, const struct cm_join *join,
                         uint64_t *holders);

/* `after` takes the place of `before`, and its members may have other positions. */
void proposal_move_holders(const struct cluster_config *before, const struct cluster_config *after,
                           uint64_t *holders);

/* If it may not: a sentence with the servers that it waits for. */
void proposal_why_not(const struct cluster_config *config, const uint64_t *holders, char *why,
                      size_t why_bytes);

/* proposal_may_reserve. Errors: ROWAN_ETOOMANY (no ids are left), ROWAN_ENOMEM. */
int proposal_block(const struct cluster_config *config, struct proposal *out);

/* All members are registered. Reserves ids if there are some left and not the first of a series. Errors:
 * those of cold_start; `why` has a sentence for each but ROWAN_ENOMEM. */
int proposal_cold(const struct cluster_config *config, const struct registrations *registrations,
                  struct proposal *out, char *why, size_t why_bytes);

#endif
