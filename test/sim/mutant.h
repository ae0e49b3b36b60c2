/* mutant.h - deliberate defects, which show that the simulator would notice such ones: its checkers must catch each.
 *
 * They stand in mutants.table. plant.py puts them into the copy of the sources that rowan-sim is built of, and of those that
 * some unit tests are linked with once more; what ships has nothing of them.
 */
#ifndef SIM_MUTANT_H
#define SIM_MUTANT_H

#include <stdbool.h>
#include <stdint.h>

#include "test/sim/mutant_names.h" /* made of mutants.table */

#define MUTANT_ENUM(constant, name, checkers, seed, failovers, what) constant,
enum mutant { MUTANTS(MUTANT_ENUM) MUTANT_COUNT };

/* What a planted defect asks wherever it stands. */
bool mutant_is_on(enum mutant mutant);

/* Switches it on. MUTANT_COUNT: none. */
void sim_mutant_set(enum mutant mutant);

/* The mutant of that name; MUTANT_COUNT if there is none. And the name, the checkers that may catch it, what it does
 * wrong. */
enum mutant sim_mutant_find(const char *name);
const char *sim_mutant_name(enum mutant mutant);
const char *sim_mutant_checkers(enum mutant mutant);
const char *sim_mutant_text(enum mutant mutant);
uint64_t sim_mutant_seed(enum mutant mutant);  /* tried first; 0: a unit test catches it */
bool sim_mutant_failovers(enum mutant mutant); /* all its runs have leases, and replace servers */

/* How often the mutant's place was reached since it was switched on. */
uint64_t sim_mutant_count(void);

#endif
