/* One seed, phase by phase. A run ends at the first failure: the story is told, and nothing is taken down. */
#include "test/sim/run.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "cm/lease.h"
#include "common/base/assert.h"
#include "server/clean/clean_state.h"
#include "server/index/index_table.h"
#include "server/shard/block_list.h"
#include "server/worker/clients.h"
#include "test/sim/checks.h"
#include "test/sim/digests.h"
#include "test/sim/history.h"
#include "test/sim/journal.h"
#include "test/sim/linear_loss.h"
#include "test/sim/load.h"
#include "test/sim/sim_log.h"
#include "test/sim/swarm.h"

#define LIVENESS_NS    (60 * NS_PER_S) /* from the end of the last fault */
#define PATIENCE_NS    (30 * NS_PER_S) /* of clients whose connections are cut after the last fault */
#define SAFETY_MOST    2 /* times as long as it should last, the safety phase may last */
#define LAST_WORDS_NS  (50 * NS_PER_MS) /* in which the last commit versions are told */
#define GONE_NS        (3 * NS_PER_S) /* and some leases: until a server that is gone has a successor */
#define GONE_WRITE_NS  (3 * NS_PER_S)   /* one write of each client to each shard behind that */
#define WRITE_PAUSE_NS (20 * NS_PER_MS) /* between writes while nothing fills */
#define QUIET_NS       (3 * NS_PER_S)   /* until what nobody asks for any more is given back */

enum {
    OPERATIONS_MIN = 2000, /* less shows nothing */
    FAULTS_MIN = 5,
    BUSY_ROUNDS_MOST = 500000, /* in which the clock does not move */
    GONE_LEASES = 8,
    GONE_ROUNDS = 2,
    MOST_LOSSES = 256, /* of a shard in a run */
    STORY_LINES = 60,
    TAIL_LINES = 40,
};

struct run {
    const struct run_options *options;
    struct run_result *out;
    struct swarm swarm;
    struct journal *journal;
    struct sim_cluster *cluster;
    struct history history;
    struct load *load;
    struct nemesis *nemesis;
    struct checks *checks;
    size_t verdict_from; /* the first operation of that phase, in the history */
    uint32_t busy_rounds;
    const char *phase;
};

static struct run *run_now; /* for run_tell_end */

static bool has_failed(const struct run *run)
{
    return run->out->failure.kind != FAILURE_NONE;
}

static void fail(struct run *run, enum failure_kind kind, const char *checker, const char *why)
{
    failure_set(&run->out->failure, kind, checker, run->cluster->clock.now_ns, JOURNAL_NO_KEY,
                JOURNAL_NO_SHARD, "%s", why);
}

static void enter(struct run *run, const char *phase)
{
    run->phase = phase;
    journal_note(run->journal, JOURNAL_PHASE, "", "%s", phase);
}

/* --- rounds --- */

/* What is due was looked at just now: only what comes bounds a jump of the clock. */
static void bound(uint64_t *until_ns, uint64_t now_ns, uint64_t at_ns)
{
    if (at_ns > now_ns && at_ns < *until_ns)
        *until_ns = at_ns;
}

/* One round of everybody; the clock does not jump past `end_ns`. */
static void step(struct run *run, uint64_t end_ns)
{
    struct sim_cluster *cluster = run->cluster;
    uint64_t now_ns = cluster->clock.now_ns;
    nemesis_step(run->nemesis);
    load_step(run->load);
    cluster->until_ns = WAKE_NEVER;
    bound(&cluster->until_ns, now_ns, end_ns);
    bound(&cluster->until_ns, now_ns, load_next_ns(run->load));
    bound(&cluster->until_ns, now_ns, nemesis_next_ns(run->nemesis));
    bool busy = sim_cluster_step(cluster);
    cluster->until_ns = WAKE_NEVER;
    checks_step(run->checks);
    run->out->counts.rounds++;
    run->busy_rounds = busy ? run->busy_rounds + 1 : 0;
    if (run->busy_rounds > BUSY_ROUNDS_MOST)
        fail(run, FAILURE_LIVENESS, "clock", "somebody is busy for ever: the clock stands still");
}

static void step_once(void *context)
{
    step(context, WAKE_NEVER);
}

static bool safety_is_over(const struct run *run, uint64_t began_ns)
{
    uint64_t lasted_ns = run->cluster->clock.now_ns - began_ns;
    if (nemesis_counts(run->nemesis).faults < FAULTS_MIN || lasted_ns < run->swarm.safety_ns)
        return false;
    /* Faults may leave clients no time: they get it in the next phase. */
    return load_is_over(run->load) || lasted_ns >= SAFETY_MOST * run->swarm.safety_ns;
}

static void run_safety(struct run *run)
{
    uint64_t began_ns = run->cluster->clock.now_ns;
    enter(run, "safety");
    while (!has_failed(run) && !safety_is_over(run, began_ns))
        step(run, began_ns + run->swarm.safety_ns);
}

/* Until every operation was asked and has its answer. */
static void settle(struct run *run, uint64_t end_ns)
{
    while (!has_failed(run) && (!load_is_over(run->load) || load_outstanding(run->load) > 0)) {
        if (run->cluster->clock.now_ns >= end_ns)
            fail(run, FAILURE_LIVENESS, "load",
                 "operations have no answer though all faults ended");
        else
            step(run, end_ns);
    }
}

static void rest(struct run *run, uint64_t ns)
{
    uint64_t end_ns = run->cluster->clock.now_ns + ns;
    while (!has_failed(run) && run->cluster->clock.now_ns < end_ns)
        step(run, end_ns);
}

/* A replica that may be incomplete, or is damaged, is none any more beside one that is whole, and nothing fills it
 * again. */
static bool may_be_dropped(const struct run *run)
{
    return nemesis_counts(run->nemesis).flips > 0 ||
           sim_cluster_any_rebooted_unfenced(run->cluster);
}

static bool all_replicas(const struct run *run)
{
    const struct cluster_config *config = run->cluster->cm ? sim_cluster_config(run->cluster) : 0;
    if (!config || config->shard_count > config->served_count || /* one is being split */
        !sim_cluster_is_started(run->cluster)) /* the next one may drop replicas */
        return false;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        if ((shard->backup_count + 1 != run->swarm.cluster.replicas && !may_be_dropped(run)) ||
            shard->filling_count > 0)
            return false;
    }
    return nemesis_is_newest(run->nemesis, config);
}

static bool any_fills(const struct run *run)
{
    const struct cluster_config *config = run->cluster->cm ? sim_cluster_config(run->cluster) : 0;
    bool any = false;
    for (uint32_t i = 0; config && i < config->shard_count; i++)
        any |= config->shards[i].filling_count > 0;
    return any;
}

/* Filling, which there is with leases only, ends though every shard is written all the time; now and then while servers are
 * still to come. A small PM would be full of that. */
static void write_while_filling(struct run *run, uint64_t end_ns)
{
    uint64_t next_ns = 0;
    if (run->swarm.load.may_fill || !run->swarm.cluster.lease_ms)
        return;
    while (!has_failed(run) && !all_replicas(run)) {
        if (run->cluster->clock.now_ns >= end_ns)
            fail(run, FAILURE_LIVENESS, "replicas",
                 "a shard that is written has not all its replicas");
        const uint64_t now_ns = run->cluster->clock.now_ns;
        if (load_outstanding(run->load) == 0 && (now_ns >= next_ns || any_fills(run))) {
            load_write_shards(run->load);
            next_ns = now_ns + WRITE_PAUSE_NS;
        }
        step(run, next_ns > now_ns && next_ns < end_ns ? next_ns : end_ns);
    }
    settle(run, end_ns);
}

/* With leases a server may still be removed while they are compared, for its silence before the last fault ended. */
static void compare_replicas(struct run *run, uint64_t end_ns)
{
    struct sim_digests digests;
    bool agree;
    do {
        while (!has_failed(run) && !all_replicas(run)) {
            if (run->cluster->clock.now_ns >= end_ns)
                fail(run, FAILURE_LIVENESS, "replicas", "a shard does not have all its replicas");
            else
                step(run, end_ns);
        }
        if (has_failed(run))
            return;
        const uint64_t now_ns = run->cluster->clock.now_ns;
        agree = sim_digests_agree(run->cluster, end_ns > now_ns ? end_ns - now_ns : 1, step_once,
                                  run, &digests);
    } while (agree && !all_replicas(run));
    if (agree)
        return;
    uint32_t shard = JOURNAL_NO_SHARD;
    sscanf(digests.why, "shard %u", &shard);
    failure_set(&run->out->failure, digests.late ? FAILURE_LIVENESS : FAILURE_CORRECTNESS,
                "C8 digests", run->cluster->clock.now_ns, JOURNAL_NO_KEY, shard, "%s", digests.why);
}

/* Before anything more is written: that would be followed by commit versions that hide those which were lost. */
static void compare_commits(struct run *run, uint64_t end_ns)
{
    struct checks_lag lag;
    while (!has_failed(run) && !checks_commits_agree(run->checks, &lag)) {
        if (run->cluster->clock.now_ns >= end_ns)
            failure_set(&run->out->failure, FAILURE_LIVENESS, "commit versions",
                        run->cluster->clock.now_ns, JOURNAL_NO_KEY, lag.shard, "%s", lag.why);
        else
            step(run, end_ns);
    }
}

/* Where faults stopped cleaning it needs its time. */
static void await_space(struct run *run, uint64_t end_ns)
{
    while (!has_failed(run) && checks_full(run->checks)) {
        if (run->cluster->clock.now_ns < end_ns)
            step(run, end_ns);
        else
            fail(run, FAILURE_LIVENESS, "space", "a server stays full");
    }
}

/* Before connections break again, and what they keep goes with them. */
static void await_releases(struct run *run, uint64_t end_ns)
{
    while (!has_failed(run)) {
        if (sim_network_held(run->cluster->network).unreleased == 0)
            return;
        if (run->cluster->clock.now_ns < end_ns)
            step(run, end_ns);
        else
            fail(run, FAILURE_LIVENESS, "leftovers", "messages are never released");
    }
}

/* The last fault of a run: commit versions that no write follows are on their way, and their connection is cut. */
static void cut_last_words(struct run *run)
{
    const struct sim_cluster *cluster = run->cluster;
    uint64_t end_ns = cluster->clock.now_ns + LAST_WORDS_NS;
    struct checks_lag lag = {0};
    while (!has_failed(run) && cluster->clock.now_ns < end_ns) {
        if (!checks_commits_agree(run->checks, &lag) && lag.backup)
            break;
        step(run, end_ns);
    }
    if (has_failed(run) || !lag.backup)
        return;
    const struct sim_process *primary = &cluster->servers[lag.primary - 1].process;
    const struct sim_process *backup = &cluster->servers[lag.backup - 1].process;
    journal_note(run->journal, JOURNAL_FAULT, primary->name, "loses its connections with %s",
                 backup->name);
    sim_network_break(cluster->network, primary->address, backup->address);
}

/* Before they are counted anew, and at the end of a run, whatever that is. */
static void take_counts_of_sites(struct run *run)
{
    for (unsigned i = 0; i < FAULT_SITE_COUNT; i++)
        run->out->counts.fault_sites += sim_fault_count((enum fault_site)i);
    run->out->counts.splits += sim_fault_passed(FAULT_LATE_SPLIT);
    run->out->counts.mutant += sim_mutant_count();
}

static void run_liveness(struct run *run)
{
    /* Who fell silent again and again waits that long before it is a member again (cm/lease.c, L5). */
    const uint64_t unsteady_ns = LEASE_STEADY_AFTER * run->swarm.cluster.lease_ms * NS_PER_MS;
    uint64_t end_ns = run->cluster->clock.now_ns + LIVENESS_NS + unsteady_ns;
    enter(run, "liveness");
    sim_fault_end();
    run->cluster->options.idle_wakes = 0;
    nemesis_heal(run->nemesis);
    settle(run, end_ns);
    write_while_filling(run, end_ns);
    compare_replicas(run, end_ns);
    compare_commits(run, end_ns);
    await_space(run, end_ns);
    await_releases(run, end_ns);
}

/* --- a server that is gone --- */

static bool is_named(const struct cluster_config *config, uint32_t server)
{
    bool named = !config;
    for (uint32_t i = 0; config && i < config->shard_count; i++)
        named |= shard_names(&config->shards[i], server);
    return named;
}

/* Whatever it held: every shard takes puts soon, and goes on to. Half of those that come back have lost their PM, if nobody
 * counts on it any more. */
static void run_gone(struct run *run)
{
    const uint32_t server = run->swarm.gone;
    struct sim_cluster *cluster = run->cluster;
    enter(run, "gone");
    for (const uint64_t end_ns = cluster->clock.now_ns + LIVENESS_NS;
         !has_failed(run) && sim_cluster_has_alone(cluster, server) &&
         cluster->clock.now_ns < end_ns;)
        step(run, end_ns);
    sim_cluster_kill_server(cluster, server, NULL);
    rest(run, GONE_NS + GONE_LEASES * run->swarm.cluster.lease_ms * NS_PER_MS);
    for (unsigned i = 0; i < GONE_ROUNDS && !has_failed(run); i++) {
        load_write_shards(run->load);
        settle(run, cluster->clock.now_ns + GONE_WRITE_NS);
        rest(run, NS_PER_S);
    }
    if (has_failed(run))
        return;
    run->out->counts.gone++;
    if (run->options->seed % 2 && !is_named(sim_cluster_config(cluster), server))
        sim_cluster_empty_server(cluster, server);
    sim_cluster_start_server(cluster, server);
    const uint64_t end_ns = cluster->clock.now_ns + LIVENESS_NS;
    compare_replicas(run, end_ns);
    compare_commits(run, end_ns);
    await_space(run, end_ns);
    await_releases(run, end_ns);
}

/* --- the verdict --- */

static void judge_key(struct run *run, uint32_t key, const struct history_op *ops, size_t count)
{
    struct linear_result result;
    struct linear_loss losses[MOST_LOSSES];
    uint32_t turned_back, loss_count = checks_losses(run->checks, key, losses, MOST_LOSSES);
    linear_check_losses(ops, count, losses, loss_count, 0, &result, &turned_back);
    run->out->counts.turned_back += turned_back > 0;
    run->out->counts.states += result.states;
    run->out->counts.keys++;
    if (result.verdict == LINEAR_YES)
        return;
    uint64_t at_ns = result.verdict == LINEAR_NO ? ops[result.stuck].answered_ns : 0;
    failure_set(&run->out->failure, FAILURE_CORRECTNESS, "linearizability", at_ns, key,
                JOURNAL_NO_SHARD, "%s",
                result.verdict == LINEAR_NO ? result.why : "no verdict: too many states");
}

static void count_op(struct run *run, const struct history_op *op, bool before_verdict)
{
    struct run_counts *counts = &run->out->counts;
    counts->operations += op->outcome != HISTORY_OPEN && op->outcome != HISTORY_REJECTED;
    counts->unknown += op->outcome == HISTORY_UNKNOWN;
    counts->rejected += op->outcome == HISTORY_REJECTED;
    counts->done[op->kind] += before_verdict && op->outcome == HISTORY_DONE;
}

/* Operations by key, in the order of their calls: counted, then laid out. */
static void judge(struct run *run)
{
    const struct history *history = &run->history;
    uint32_t keys = load_keys(run->load);
    size_t *first = calloc((size_t)keys + 2, sizeof *first);
    struct history_op *ops = malloc((history->count + 1) * sizeof *ops);
    ASSERT(first && ops);
    for (size_t i = 0; i < history->count; i++) {
        first[history->ops[i].key + 2]++;
        count_op(run, &history->ops[i], i < run->verdict_from);
    }
    for (uint32_t key = 0; key < keys; key++)
        first[key + 2] += first[key + 1];
    for (size_t i = 0; i < history->count; i++)
        ops[first[history->ops[i].key + 1]++] = history->ops[i];
    for (uint32_t key = 0; key < keys && !has_failed(run); key++)
        judge_key(run, key, ops + first[key], first[key + 1] - first[key]);
    free(ops);
    free(first);
}

/* Whoever asked on a connection that broke asks again, and must be answered: faults are over, and the timeout is long. */
static void write_through_cuts(struct run *run)
{
    const struct sim_cluster_options *options = &run->cluster->options;
    load_write_all(run->load, PATIENCE_NS);
    /* A write is under way for about so long. */
    nemesis_cut_each(run->nemesis, 4 * options->max_delay_ns + 2 * options->fence_ns);
    settle(run, run->cluster->clock.now_ns + LIVENESS_NS);
}

/* Of a key that is deleted nothing stays, once no segment of before is open. */
static void delete_all(struct run *run)
{
    enter(run, "delete");
    load_delete_all(run->load);
    settle(run, run->cluster->clock.now_ns + LIVENESS_NS);
    if (has_failed(run))
        return;
    if (!run->swarm.living) {
        sim_cluster_crash(run->cluster);
        sim_cluster_restart(run->cluster, false);
    }
    const uint64_t end_ns = run->cluster->clock.now_ns + LIVENESS_NS;
    compare_replicas(run, end_ns);
    await_space(run, end_ns);
    /* Of those that run some tombstones stay, in segments that are open. */
    while (!has_failed(run) && !run->swarm.living && checks_tombstones(run->checks) > 0) {
        if (run->cluster->clock.now_ns >= end_ns)
            fail(run, FAILURE_LIVENESS, "C5", "tombstones do not go");
        else
            step(run, end_ns);
    }
    load_read_all(run->load);
    settle(run, run->cluster->clock.now_ns + LIVENESS_NS);
}

/* A run in which little was asked, or little went wrong, passes and shows nothing. */
static bool shows_something(const struct run *run)
{
    const struct load_options *load = &run->swarm.load;
    const uint32_t weights[HISTORY_KINDS] = {load->gets, load->puts, load->put_ifs, load->deletes};
    bool all = true;
    for (unsigned kind = 0; kind < HISTORY_KINDS; kind++)
        all &= weights[kind] == 0 || run->out->counts.done[kind] > 0;
    return all && run->out->counts.operations >= OPERATIONS_MIN &&
           nemesis_counts(run->nemesis).faults >= FAULTS_MIN;
}

static void run_verdict(struct run *run)
{
    enter(run, "verdict");
    run->verdict_from = run->history.count;
    load_read_all(run->load);
    settle(run, run->cluster->clock.now_ns + LIVENESS_NS);
    load_write_some(run->load);
    settle(run, run->cluster->clock.now_ns + LIVENESS_NS);
    if (!has_failed(run))
        write_through_cuts(run);
    if (!has_failed(run) && run->swarm.load.may_fill)
        delete_all(run);
    load_write_shards(run->load);
    settle(run, run->cluster->clock.now_ns + LIVENESS_NS);
    cut_last_words(run);
    if (!has_failed(run))
        judge(run);
    rest(run, QUIET_NS);
    compare_replicas(run, run->cluster->clock.now_ns + LIVENESS_NS);
    compare_commits(run, run->cluster->clock.now_ns + LIVENESS_NS);
    if (!has_failed(run))
        checks_leftovers(run->checks);
    run->out->counts.living += run->swarm.living || !run->swarm.load.may_fill;
    ASSERT(has_failed(run) || shows_something(run));
}

/* --- putting together --- */

static void begin(struct run *run)
{
    struct swarm *swarm = &run->swarm;
    swarm_draw(run->options->seed, run->options->failovers, swarm);
    if (run->options->trace) {
        fprintf(run->options->trace, "seed %lu: ", run->options->seed);
        swarm_tell(swarm, run->options->trace);
    }
    run->journal = journal_create(NULL, run->options->trace);
    sim_log_journal(run->journal);
    swarm->cluster.journal = run->journal;
    fabric_segment_bytes = swarm->segment_bytes;
    clients_keep_ns = swarm->keep_ns;
    clean_tombstones_ns = swarm->tombstones_ns;
    clean_checkpoint_ns = swarm->checkpoint_ns;
    index_chunk_buckets = swarm->chunk_buckets;
    block_list_bytes = swarm->message_bytes;
    sim_fault_begin(NULL);
    sim_mutant_set(run->options->mutant);
    run->phase = "start";
    run->cluster = sim_cluster_create(&swarm->cluster);
    history_init(&run->history);
    run->load = load_create(run->cluster, &swarm->load, &run->history, &run->out->failure);
    run->swarm.nemesis.load = run->load;
    run->nemesis = nemesis_create(run->cluster, &run->swarm.nemesis);
    run->checks = checks_create(run->cluster, run->load, &run->out->failure);
    if (swarm->nemesis.flip_in)
        checks_expect_flips(run->checks);
    load_on_acknowledged(run->load, checks_acknowledged, run->checks);
    take_counts_of_sites(run);
    load_on_seen(run->load, checks_seen, run->checks);
    sim_fault_begin(&swarm->faults);
}

static void end(struct run *run)
{
    nemesis_destroy(run->nemesis);
    checks_destroy(run->checks);
    sim_cluster_destroy(run->cluster);
    load_destroy(run->load);
    history_fini(&run->history);
    sim_log_journal(NULL);
    journal_destroy(run->journal);
}

static void sum_up(struct run *run)
{
    struct run_counts *counts = &run->out->counts;
    counts->simulated_ns = run->cluster->clock.now_ns;
    counts->nemesis = nemesis_counts(run->nemesis);
    counts->network = sim_network_counts(run->cluster->network);
    counts->losses = checks_counts(run->checks).losses;
    counts->longs = checks_counts(run->checks).longs;
    counts->joined = checks_counts(run->checks).joined;
    counts->cleaned = checks_counts(run->checks).cleaned;
    counts->tombstones = checks_counts(run->checks).tombstones;
    counts->from_checkpoint = checks_counts(run->checks).from_checkpoint;
    counts->promoted = checks_counts(run->checks).promoted;
    counts->refilled = checks_counts(run->checks).refilled;
    counts->split_off = checks_counts(run->checks).split_off;
    counts->went_back = run->cluster->went_back;
    counts->thirds = run->swarm.cluster.third;
    counts->unequal = run->swarm.cluster.last_pm_bytes > 0;
    take_counts_of_sites(run);
    for (uint32_t i = 0; i < run->swarm.cluster.servers; i++)
        journal_mix(run->journal, &run->cluster->servers[i].pm->trace, sizeof(uint64_t));
    const uint64_t words[] = {journal_hash(run->journal), sim_network_trace(run->cluster->network),
                              counts->simulated_ns,       counts->rounds,
                              counts->operations,         (uint64_t)run->out->failure.kind};
    run->out->hash = XXH3_64bits(words, sizeof words);
}

static void tell(struct run *run)
{
    FILE *out = run->options->story;
    const struct failure *failure = &run->out->failure;
    uint32_t shard = failure->shard;
    char key[LOAD_KEY_BYTES];
    if (!out)
        return;
    fprintf(out, "swarm: ");
    swarm_tell(&run->swarm, out);
    if (failure->key != JOURNAL_NO_KEY) {
        uint32_t bytes = load_key(run->load, failure->key, key);
        const struct cluster_config *config =
            run->cluster->cm ? sim_cluster_config(run->cluster) : NULL;
        if (shard == JOURNAL_NO_SHARD && config)
            shard = cluster_shard_of_slot(config, slot_of_key(key, bytes))->id;
        fprintf(out, "the story of key %u \"%.*s\", shard %u:\n", failure->key,
                (int)(bytes < LOAD_SHORT_KEY_BYTES ? bytes : LOAD_SHORT_KEY_BYTES), key, shard);
    }
    journal_tell(run->journal, failure->key, shard, STORY_LINES, out);
    fflush(out);
}

void run_seed(const struct run_options *options, struct run_result *out)
{
    struct run run = {.options = options, .out = out};
    *out = (struct run_result){0};
    run_now = &run;
    begin(&run);
    run_safety(&run);
    if (!has_failed(&run))
        run_liveness(&run);
    if (!has_failed(&run) && run.swarm.gone)
        run_gone(&run);
    if (!has_failed(&run))
        run_verdict(&run);
    sum_up(&run);
    if (has_failed(&run))
        tell(&run);
    else
        end(&run);
    run_now = NULL;
}

void run_tell_end(FILE *out)
{
    if (!run_now)
        return;
    fprintf(out, "in phase %s; swarm: ", run_now->phase);
    swarm_tell(&run_now->swarm, out);
    if (run_now->journal)
        journal_tail(run_now->journal, TAIL_LINES, out);
}
