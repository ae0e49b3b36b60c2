/* rowan-sim: runs of the simulator, by seed. What it prints and its exit codes: README.md. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/config.h"
#include "test/sim/jobs.h"
#include "test/sim/mutants.h"
#include "test/sim/seeds.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

#define SEEDS_MOST 100000000

struct settings {
    const char *seeds, *mutant;
    uint64_t jobs, limit_s, failovers;
    bool trace, until_caught, mutants, here;
};

#define FLAG(key, field, words)                                                                    \
    {                                                                                              \
        .name = key, .type = CONFIG_BOOL, .offset = offsetof(struct settings, field),              \
        .fallback = "no", .help = words                                                            \
    }

static const struct config_key keys[] = {
    {.name = "seeds",
     .type = CONFIG_STRING,
     .offset = offsetof(struct settings, seeds),
     .help = "FROM:TO, both included, or one"},
    FLAG("trace", trace, "print every event as it comes; one run at a time"),
    {.name = "mutant",
     .type = CONFIG_STRING,
     .offset = offsetof(struct settings, mutant),
     .fallback = "",
     .help = "switch on this deliberate defect; `list` lists them"},
    FLAG("until-caught", until_caught, "stop at the first seed that fails"),
    FLAG("mutants", mutants, "each mutant in turn, until a seed catches it; print a table"),
    {.name = "jobs",
     .type = CONFIG_U64,
     .offset = offsetof(struct settings, jobs),
     .fallback = "0",
     .max = JOBS_MOST,
     .help = "runs at a time; 0: as many as there are cores"},
    {.name = "limit-s",
     .type = CONFIG_U64,
     .offset = offsetof(struct settings, limit_s),
     .fallback = "300",
     .min = 1,
     .max = 1000000,
     .help = "seconds of wall time that one run may take; one that takes longer hangs"},
    {.name = "failovers",
     .type = CONFIG_U64,
     .offset = offsetof(struct settings, failovers),
     .fallback = "0",
     .max = 100,
     .help = "of so many runs of a hundred servers have leases, and are replaced when they fail"},
    FLAG("here", here, "run in this process, without children; for debuggers"),
};

static const struct config_spec spec = {
    .program = "rowan-sim",
    .summary =
        "Runs a whole cluster in one thread, with faults, as each seed decides, and checks it.\n"
        "Exit code: 0 nothing found, 1 not all mutants were caught, 2 usage; found were\n"
        "3 wrong answers or data, 4 no progress after the last fault, 5 a crash.",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

static int usage(const char *sentence)
{
    fprintf(stderr, "rowan-sim: %s; see rowan-sim --help\n", sentence);
    return EXIT_USAGE;
}

static bool parse_seeds(const char *text, uint64_t *from, uint64_t *to)
{
    char *end;
    errno = 0;
    if (*text < '0' || *text > '9')
        return false;
    *from = *to = strtoull(text, &end, 10);
    if (*end == ':' && end[1] >= '0' && end[1] <= '9')
        *to = strtoull(end + 1, &end, 10);
    return !*end && !errno && *from <= *to && *to - *from < SEEDS_MOST;
}

static int list_mutants(void)
{
    for (unsigned i = 0; i < MUTANT_COUNT; i++)
        printf("%-18s %s\n", sim_mutant_name((enum mutant)i), sim_mutant_text((enum mutant)i));
    return EXIT_DONE;
}

static int run(const struct settings *settings, enum mutant mutant)
{
    struct seeds_options options = {.mutant = mutant,
                                    .failovers = (uint32_t)settings->failovers,
                                    .until_caught = settings->until_caught};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (!parse_seeds(settings->seeds, &options.from, &options.to))
        return usage("--seeds is FROM:TO, two numbers, the first not above the second");
    options.jobs.limit_s = settings->limit_s;
    options.jobs.trace = settings->trace;
    options.jobs.jobs = settings->jobs ? (uint32_t)settings->jobs : cores > 0 ? (uint32_t)cores : 1;
    if (options.jobs.jobs > JOBS_MOST)
        options.jobs.jobs = JOBS_MOST;
    if (sim_mutant_failovers(mutant))
        options.failovers = 100;
    if (settings->trace)
        options.jobs.jobs = 1;
    if (settings->here)
        options.jobs.jobs = 0;
    int code = settings->mutants ? mutants_run(&options) : seeds_run(&options);
    if (code < 0) {
        fprintf(stderr, "rowan-sim: cannot start a run: %s\n", strerror(-code));
        return EXIT_FAILED;
    }
    return code;
}

/* Each start of a server touches tens of megabytes for the first time: in small pages that is a third of a run, and so it is if
 * memory goes back to the kernel with each server that ends. glibc reads this when a program begins, so it begins
 * again; if that fails it is slower, and nothing else. */
#define MALLOC_KEEPS                                                                               \
    "glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=4294967296:"                               \
    "glibc.malloc.mmap_threshold=4294967296"
static void begin_with_huge_pages(char **argv)
{
    if (!getenv("GLIBC_TUNABLES") && setenv("GLIBC_TUNABLES", MALLOC_KEEPS, 1) == 0)
        execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    begin_with_huge_pages(argv);
    struct settings settings;
    struct config_rest rest;
    enum mutant mutant = MUTANT_COUNT;
    for (int i = 1; i < argc; i++) { /* needs no seeds */
        if (strcmp(argv[i], "--mutant=list") == 0 ||
            (strcmp(argv[i], "--mutant") == 0 && i + 1 < argc && strcmp(argv[i + 1], "list") == 0))
            return list_mutants();
    }
    switch (config_parse(&spec, argc, argv, &settings, &rest)) {
    case CONFIG_HELP:
        return EXIT_DONE;
    case CONFIG_USAGE:
        return EXIT_USAGE;
    default:
        break;
    }
    int code;
    if (settings.mutant[0])
        mutant = sim_mutant_find(settings.mutant);
    if (settings.mutant[0] && mutant == MUTANT_COUNT)
        code = usage("there is no such mutant: --mutant list names them");
    else if (settings.mutant[0] && settings.mutants)
        code = usage("--mutant and --mutants exclude each other");
    else
        code = run(&settings, mutant);
    config_free(&rest);
    if (fflush(stdout) || ferror(stdout)) { /* nobody was told: 0 would be a lie */
        fprintf(stderr, "rowan-sim: cannot write what was found: %s\n", strerror(errno));
        return code == EXIT_DONE ? EXIT_FAILED : code;
    }
    return code;
}
