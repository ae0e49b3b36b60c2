/* sim_fault.h - decides which fault sites of the production code fire. One run at a time in a process. */
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include "common/base/fault.h"
#include "common/base/random.h"

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

#endif
