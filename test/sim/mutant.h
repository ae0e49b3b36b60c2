/* mutant.h - deliberate defects, which show that the simulator would notice such ones: its checkers must catch each.
 *
 * They stand in mutants.table. plant.py puts them into the copy of the sources that rowan-sim is built of; what ships
 * has nothing of them.
 */
#ifndef SIM_MUTANT_H
#define SIM_MUTANT_H

#include <stdbool.h>

#include "test/sim/mutant_names.h" /* made of mutants.table */

#define MUTANT_ENUM(constant, name, checkers, seed, failovers, what) constant,
enum mutant { MUTANTS(MUTANT_ENUM) MUTANT_COUNT };

/* What a planted defect asks wherever it stands. */
bool mutant_is_on(enum mutant mutant);

#endif
