/* A range of seeds. What is printed does not depend on the order in which runs end. */
#include "test/sim/seeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/assert.h"
#include "common/base/clock.h"

enum { STORIES_MOST = 3, PROGRESS_S = 10 };

struct failed {
    struct job_result result;
    struct failed *next; /* by rising seed */
};

struct seeds {
    const struct seeds_options *options;
    uint64_t next; /* to be started */
    uint64_t stop; /* none above this is started */
    uint64_t done;
    uint64_t *hashes; /* of each seed */
    struct failed *failed;
    uint64_t failures;
    struct run_counts sum;
    double began_s, told_s;
    bool terminal;
};

static double wall_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* --- adding up --- */

static void add(struct run_counts *sum, const struct run_counts *more)
{
    sum->operations += more->operations;
    sum->unknown += more->unknown;
    sum->rejected += more->rejected;
    sum->keys += more->keys;
    sum->losses += more->losses;
    sum->turned_back += more->turned_back;
    sum->states += more->states;
    sum->simulated_ns += more->simulated_ns;
    sum->rounds += more->rounds;
    sum->fault_sites += more->fault_sites;
    sum->splits += more->splits;
    sum->longs += more->longs;
    sum->joined += more->joined;
    sum->cleaned += more->cleaned;
    sum->tombstones += more->tombstones;
    sum->from_checkpoint += more->from_checkpoint;
    sum->promoted += more->promoted;
    sum->refilled += more->refilled;
    sum->split_off += more->split_off;
    sum->nemesis.removed += more->nemesis.removed;
    sum->nemesis.stopped += more->nemesis.stopped;
    sum->nemesis.planned += more->nemesis.planned;
    sum->nemesis.emptied += more->nemesis.emptied;
    sum->nemesis.readdressed += more->nemesis.readdressed;
    sum->mutant += more->mutant;
    sum->living += more->living;
    sum->gone += more->gone;
    sum->went_back += more->went_back;
    sum->thirds += more->thirds;
    sum->unequal += more->unequal;
    sum->nemesis.refusers += more->nemesis.refusers;
    for (unsigned i = 0; i < NEMESIS_FAULTS; i++)
        sum->nemesis.injected[i] += more->nemesis.injected[i];
    sum->nemesis.faults += more->nemesis.faults;
    sum->nemesis.crashes += more->nemesis.crashes;
    sum->nemesis.partitions += more->nemesis.partitions;
    sum->nemesis.power_losses += more->nemesis.power_losses;
    sum->nemesis.flips += more->nemesis.flips;
    sum->nemesis.lost_fences += more->nemesis.lost_fences;
    sum->nemesis.lost_words += more->nemesis.lost_words;
    sum->network.torn += more->network.torn;
    sum->network.late += more->network.late;
    sum->network.dry += more->network.dry;
    sum->network.broken += more->network.broken;
}

static void keep(struct seeds *seeds, const struct job_result *result)
{
    struct failed *failed = malloc(sizeof *failed);
    struct failed **link = &seeds->failed;
    ASSERT(failed);
    *failed = (struct failed){.result = *result};
    failed->result.text = strdup(result->text);
    ASSERT(failed->result.text);
    while (*link && (*link)->result.job.seed < result->job.seed)
        link = &(*link)->next;
    failed->next = *link;
    *link = failed;
    seeds->failures++;
}

static void tell_progress(struct seeds *seeds)
{
    double now_s = wall_s();
    uint64_t all = seeds->options->to - seeds->options->from + 1;
    if (seeds->options->jobs.trace || now_s - seeds->told_s < (seeds->terminal ? 0.2 : PROGRESS_S))
        return;
    seeds->told_s = now_s;
    fprintf(stderr, "%s%" PRIu64 " of %" PRIu64 " seeds, %" PRIu64 " failed%s",
            seeds->terminal ? "\r" : "", seeds->done, all, seeds->failures,
            seeds->terminal ? "" : "\n");
}

static bool next(void *context, struct job *out)
{
    struct seeds *seeds = context;
    if (seeds->next > seeds->stop || seeds->next < seeds->options->from)
        return false;
    *out = (struct job){.seed = seeds->next++,
                        .failovers = seeds->options->failovers,
                        .mutant = seeds->options->mutant};
    return true;
}

static void done(void *context, const struct job_result *result)
{
    struct seeds *seeds = context;
    seeds->done++;
    seeds->hashes[result->job.seed - seeds->options->from] = result->run.hash;
    add(&seeds->sum, &result->run.counts);
    if (result->run.failure.kind != FAILURE_NONE) {
        keep(seeds, result);
        if (seeds->options->until_caught && result->job.seed < seeds->stop)
            seeds->stop = result->job.seed;
    }
    tell_progress(seeds);
}

/* --- telling --- */

void seeds_tell_failure(const struct job_result *result, FILE *out)
{
    const struct failure *failure = &result->run.failure;
    const char *kind = failure->kind == FAILURE_CORRECTNESS ? "correctness"
                       : failure->kind == FAILURE_LIVENESS  ? "liveness"
                                                            : "crash";
    fprintf(out, "seed %" PRIu64 " FAILED: %s, found by \"%s\"", result->job.seed, kind,
            failure->checker);
    if (failure->at_ns)
        fprintf(out, " at %.6f s", (double)failure->at_ns / 1e9);
    fprintf(out, ": %s\n", failure->why);
}

static void tell_story(const struct seeds *seeds, const struct failed *failed)
{
    const struct job_result *result = &failed->result;
    bool mutant = seeds->options->mutant != MUTANT_COUNT;
    printf("\n");
    seeds_tell_failure(result, stdout);
    printf("%s", result->text);
    printf("again, with a trace: rowan-sim --seeds %" PRIu64 ":%" PRIu64 "%s%s", result->job.seed,
           result->job.seed, mutant ? " --mutant " : "",
           mutant ? sim_mutant_name(seeds->options->mutant) : "");
    if (seeds->options->failovers)
        printf(" --failovers %u", seeds->options->failovers);
    printf(" --trace\n");
}

static int tell_failures(struct seeds *seeds)
{
    int code = 0;
    uint64_t told = 0;
    for (struct failed *at = seeds->failed; at; at = at->next) {
        int kind = (int)at->result.run.failure.kind;
        code = code == 0 || kind < code ? kind : code;
        if (told++ < STORIES_MOST)
            tell_story(seeds, at);
        else
            seeds_tell_failure(&at->result, stdout);
    }
    return code;
}

static void tell_sum(const struct seeds *seeds)
{
    const struct run_counts *sum = &seeds->sum;
    double simulated_s = (double)sum->simulated_ns / 1e9, took_s = wall_s() - seeds->began_s;
    /* Of the seeds in their order; of one seed its own. */
    uint64_t count = seeds->options->to - seeds->options->from + 1;
    uint64_t hash =
        count == 1 ? seeds->hashes[0] : XXH3_64bits(seeds->hashes, count * sizeof *seeds->hashes);
    printf("%" PRIu64 " seeds, %" PRIu64 " failed: %" PRIu64 " operations checked, %" PRIu64
           " of them of unknown outcome, %" PRIu64 " others rejected; %" PRIu64 " faults: %" PRIu64
           " crashes, %" PRIu64 " partitions, %" PRIu64 " power losses, %" PRIu64
           " flipped bits, %" PRIu64 " torn landings, %" PRIu64 " lost fences; %" PRIu64
           " shards without fences lost data, %" PRIu64 " keys went back; %" PRIu64
           " fault sites fired; %" PRIu64 " index splits; %" PRIu64
           " long entries written, %" PRIu64 " joined; %" PRIu64 " segments cleaned, %" PRIu64
           " tombstones gone; %" PRIu64 " starts from checkpoints; %" PRIu64
           " shards got another primary, %" PRIu64 " replicas filled, %" PRIu64
           " shards split off, %" PRIu64 " servers removed while they ran, %" PRIu64
           " asked to stop, %" PRIu64 " planned changes, %" PRIu64 " PMs lost, %" PRIu64
           " new addresses, %" PRIu64 " servers gone for good, %" PRIu64
           " configurations went back, %" PRIu64 " managers ended of that; %" PRIu64
           " runs with a third manager, %" PRIu64 " with a small server, %" PRIu64
           " ended without a restart; %" PRIu64 " rounds; %.0f simulated seconds, %.1f in a wall "
           "second; trace hash %016" PRIx64 "\n",
           seeds->done, seeds->failures, sum->operations, sum->unknown, sum->rejected,
           sum->nemesis.faults, sum->nemesis.crashes, sum->nemesis.partitions,
           sum->nemesis.power_losses, sum->nemesis.flips, sum->network.torn,
           sum->nemesis.lost_fences, sum->losses, sum->turned_back, sum->fault_sites, sum->splits,
           sum->longs, sum->joined, sum->cleaned, sum->tombstones, sum->from_checkpoint,
           sum->promoted, sum->refilled, sum->split_off, sum->nemesis.removed, sum->nemesis.stopped,
           sum->nemesis.planned, sum->nemesis.emptied, sum->nemesis.readdressed, sum->gone,
           sum->went_back, sum->nemesis.refusers, sum->thirds, sum->unequal, sum->living,
           sum->rounds, simulated_s, simulated_s / took_s, hash);
    if (seeds->options->mutant != MUTANT_COUNT)
        printf("the mutant's place was reached %" PRIu64 " times\n", sum->mutant);
}

int seeds_run(const struct seeds_options *options)
{
    struct seeds seeds = {.options = options,
                          .next = options->from,
                          .stop = options->to,
                          .began_s = wall_s(),
                          .terminal = isatty(STDERR_FILENO)};
    struct jobs_options jobs = options->jobs;
    seeds.told_s = seeds.began_s;
    seeds.hashes = calloc(options->to - options->from + 1, sizeof *seeds.hashes);
    ASSERT(seeds.hashes);
    jobs.next = next;
    jobs.done = done;
    jobs.context = &seeds;
    int error = jobs_run(&jobs);
    if (seeds.terminal && !options->jobs.trace)
        fprintf(stderr, "\r%60s\r", "");
    int code = tell_failures(&seeds);
    if (!error)
        tell_sum(&seeds);
    while (seeds.failed) {
        struct failed *failed = seeds.failed;
        seeds.failed = failed->next;
        free(failed->result.text);
        free(failed);
    }
    free(seeds.hashes);
    return error ? -error : code;
}
