/* sim_fault.h - decides which fault sites of the production code fire, and which mutant is on
 * (mutant.h). One run at a time in a process.
 */
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include "common/base/fault.h"
#include "common/base/random.h"
#include "test/sim/mutant.h"

struct sim_fault_options {
    uint64_t seed;
    uint32_t one_in[FAULT_SITE_COUNT]; /* a site fires once in so many times on average; 0: never */
};

/* All sites are off before the first call, and after one with NULL. */
void sim_fault_begin(const struct sim_fault_options *options);

/* No site fires any more; what was counted stays, because what a site did may show later. */
void sim_fault_end(void);

/* How often a site has fired since sim_fault_begin. */
uint64_t sim_fault_count(enum fault_site site);

/* How often it was asked, and did not fire. */
uint64_t sim_fault_passed(enum fault_site site);

/* How often it has fired in that process (sim_log_node). */
uint64_t sim_fault_count_at(enum fault_site site, const char *node);
const char *sim_fault_name(enum fault_site site);

/* MUTANT_COUNT: none. */
void sim_fault_mutant(enum mutant mutant);

/* The mutant of that name; MUTANT_COUNT if there is none. And the name, the checkers that may catch it, what it does
 * wrong. */
enum mutant sim_mutant_find(const char *name);
const char *sim_mutant_name(enum mutant mutant);
const char *sim_mutant_checkers(enum mutant mutant);
const char *sim_mutant_text(enum mutant mutant);
uint64_t sim_mutant_seed(enum mutant mutant);  /* tried first */
bool sim_mutant_failovers(enum mutant mutant); /* all its runs have leases, and replace servers */

/* How often the mutant's place was reached since sim_fault_begin. */
uint64_t sim_mutant_count(void);

#endif
