/* Mutants side by side, the seeds of each one after the other: first the one that its paragraph in mutants.table names,
 * then the others from the first on. Those without a seed are for unit tests to catch (mutants.py). Only a checker that the paragraph names can catch it. A catch is compared with the
 * same seed without the mutant, which is run once for all mutants. */
#include "test/sim/mutants.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"

enum { WHY_SHOWN = 90 };

struct row {
    uint64_t tried; /* seeds that did not catch it */
    bool running, caught;
    uint64_t reached; /* times its place was */
    struct failure failure;
};

struct mutants {
    const struct seeds_options *options;
    struct row rows[MUTANT_COUNT + 1]; /* the last: no mutant, for `plain` */
    enum {
        UNKNOWN,
        WANTED,
        CLEAN,
        FAILED
    } *
        plain[2];   /* of each seed without a mutant; [1]: with leases */
    bool comparing; /* only seeds that are WANTED are run */
};

static uint64_t first_seed(const struct seeds_options *options, enum mutant mutant)
{
    uint64_t seed = sim_mutant_seed(mutant);
    return seed < options->from || seed > options->to ? options->from : seed;
}

static uint64_t seed_of(const struct mutants *mutants, enum mutant mutant)
{
    const uint64_t tried = mutants->rows[mutant].tried;
    const uint64_t first = first_seed(mutants->options, mutant);
    const uint64_t seed = mutants->options->from + tried; /* one further than it is, for `first` */
    return tried == 0 ? first : seed > first ? seed : seed - 1;
}

static uint32_t failovers_of(enum mutant mutant)
{
    return sim_mutant_failovers(mutant) ? 100 : 0;
}

/* A row whose catch is not yet known to be one waits for its seed. */
static bool next_mutant(struct mutants *mutants, struct job *out)
{
    for (unsigned i = 0; i < MUTANT_COUNT; i++) {
        struct row *row = &mutants->rows[i];
        if (row->running || row->caught || sim_mutant_seed((enum mutant)i) == 0 ||
            row->tried > mutants->options->to - mutants->options->from)
            continue;
        row->running = true;
        *out = (struct job){.seed = seed_of(mutants, (enum mutant)i),
                            .failovers = failovers_of((enum mutant)i),
                            .mutant = (enum mutant)i};
        return true;
    }
    return false;
}

static bool next(void *context, struct job *out)
{
    struct mutants *mutants = context;
    const struct seeds_options *options = mutants->options;
    if (!mutants->comparing)
        return next_mutant(mutants, out);
    const uint64_t count = options->to - options->from + 1;
    for (uint64_t i = 0; i < 2 * count; i++) {
        if (mutants->plain[i / count][i % count] == WANTED) {
            mutants->plain[i / count][i % count] = UNKNOWN;
            *out = (struct job){.seed = options->from + i % count,
                                .failovers = i / count ? 100 : 0,
                                .mutant = MUTANT_COUNT};
            return true;
        }
    }
    return false;
}

static void done(void *context, const struct job_result *result)
{
    struct mutants *mutants = context;
    const uint64_t at = result->job.seed - mutants->options->from;
    const bool leases = result->job.failovers > 0;
    bool failed = result->run.failure.kind != FAILURE_NONE;
    if (result->job.mutant == MUTANT_COUNT) {
        mutants->plain[leases][at] = failed ? FAILED : CLEAN;
        return;
    }
    struct row *row = &mutants->rows[result->job.mutant];
    const char *checker = result->run.failure.checker;
    const bool named = failed && strstr(sim_mutant_checkers(result->job.mutant), checker);
    row->running = false;
    row->reached += result->run.counts.mutant;
    if (failed)
        fprintf(stderr, "%s: caught by seed %" PRIu64 ", by %s%s\n",
                sim_mutant_name(result->job.mutant), result->job.seed, checker,
                named ? "" : ", which its paragraph does not name: it does not count");
    if (named && mutants->plain[leases][at] != FAILED) {
        row->caught = true;
        row->failure = result->run.failure;
        if (mutants->plain[leases][at] == UNKNOWN)
            mutants->plain[leases][at] = WANTED;
    } else {
        row->tried++;
    }
}

/* Rows that were caught by a seed that fails anyway go on. True if there are any. */
static bool reopen(struct mutants *mutants)
{
    bool any = false;
    for (unsigned i = 0; i < MUTANT_COUNT; i++) {
        struct row *row = &mutants->rows[i];
        uint64_t seed = seed_of(mutants, (enum mutant)i);
        const bool leases = sim_mutant_failovers((enum mutant)i);
        if (!row->caught || mutants->plain[leases][seed - mutants->options->from] != FAILED)
            continue;
        row->caught = false;
        row->tried++;
        any = true;
    }
    return any;
}

static int print_table(const struct mutants *mutants)
{
    unsigned caught = 0, at_once = 0, all = 0;
    printf("%-18s %6s  %-22s %s\n", "mutant", "seed", "caught by", "what");
    for (unsigned i = 0; i < MUTANT_COUNT; i++) {
        const struct row *row = &mutants->rows[i];
        const char *name = sim_mutant_name((enum mutant)i);
        if (sim_mutant_seed((enum mutant)i) == 0)
            continue;
        all++;
        if (row->caught)
            printf("%-18s %6" PRIu64 "  %-22s %.*s\n", name, seed_of(mutants, (enum mutant)i),
                   row->failure.checker, WHY_SHOWN, row->failure.why);
        else
            printf("%-18s %6s  %-22s its place was reached %" PRIu64 " times\n", name, "-",
                   "NOT CAUGHT", row->reached);
        caught += row->caught;
        at_once += row->caught && row->tried == 0;
    }
    printf("%u of %u mutants caught by seeds from %" PRIu64 " to %" PRIu64 ", %u by the first\n",
           caught, all, mutants->options->from, mutants->options->to, at_once);
    return caught == all ? 0 : 1;
}

int mutants_run(const struct seeds_options *options)
{
    struct mutants mutants = {.options = options};
    struct jobs_options jobs = options->jobs;
    int error;
    jobs.next = next;
    jobs.done = done;
    jobs.context = &mutants;
    for (unsigned i = 0; i < 2; i++) {
        mutants.plain[i] = calloc(options->to - options->from + 1, sizeof *mutants.plain[i]);
        ASSERT(mutants.plain[i]);
    }
    do {
        mutants.comparing = false;
        error = jobs_run(&jobs);
        mutants.comparing = true;
        error = error ? error : jobs_run(&jobs);
    } while (!error && reopen(&mutants));
    int code = error ? -error : print_table(&mutants);
    free(mutants.plain[0]);
    free(mutants.plain[1]);
    return code;
}
