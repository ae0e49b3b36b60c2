/* Which mutant is on, and what mutants.table says of each. */
#include "test/sim/mutant.h"

#include <string.h>

static enum mutant mutant_on = MUTANT_COUNT;
static uint64_t mutant_reached;

#define MUTANT_ROW(constant, name, checkers, seed, failovers, what)                                \
    {name, checkers, what, seed, failovers},
static const struct {
    const char *name, *checkers, *what;
    uint64_t seed;
    bool failovers;
} MUTANT_ROWS[] = {MUTANTS(MUTANT_ROW)};

void sim_mutant_set(enum mutant mutant)
{
    mutant_reached = 0;
    mutant_on = mutant;
}

bool mutant_is_on(enum mutant mutant)
{
    if (mutant != mutant_on)
        return false;
    mutant_reached++;
    return true;
}

uint64_t sim_mutant_count(void)
{
    return mutant_reached;
}

enum mutant sim_mutant_find(const char *name)
{
    unsigned i = 0;
    while (i < MUTANT_COUNT && strcmp(MUTANT_ROWS[i].name, name) != 0)
        i++;
    return (enum mutant)i;
}

const char *sim_mutant_name(enum mutant mutant)
{
    return MUTANT_ROWS[mutant].name;
}

const char *sim_mutant_checkers(enum mutant mutant)
{
    return MUTANT_ROWS[mutant].checkers;
}

uint64_t sim_mutant_seed(enum mutant mutant)
{
    return MUTANT_ROWS[mutant].seed;
}

bool sim_mutant_failovers(enum mutant mutant)
{
    return mutant < MUTANT_COUNT && MUTANT_ROWS[mutant].failovers;
}

const char *sim_mutant_text(enum mutant mutant)
{
    return MUTANT_ROWS[mutant].what;
}
