/* mutants.h - runs seeds with each mutant until one catches it: do the checkers see what they are for? */
#ifndef SIM_MUTANTS_H
#define SIM_MUTANTS_H

#include "test/sim/seeds.h"

/* For each mutant the seeds `from` to `to`, until one fails: first that of its paragraph in mutants.table. A seed that
 * fails without the mutant, too, has caught nothing. Prints a table. 0: all were caught; 1: not all; -errno. */
int mutants_run(const struct seeds_options *options);

#endif
