/* From the PM as it was left to serving: looks for damage (verify.h), and reports; with the first configuration formats
 * or opens the store, scans it (recover.c), writes the run record, hands the shards to their owners, opens the landing
 * zone.
 *
 *  1. Nothing is written before a configuration names this incarnation: until then another process
 *     may be the server that the cluster knows.
 *  2. The run record is written when all that the scan found, and the replica rows, are durable. It
 *     is durable before the zone is opened or anything new is written. So a run that has a record had
 *     all data of the one before. So is the configuration (control_stored.c).
 *  3. No peer is admitted before the zone is open, and every digest role has its shards before it
 *     sees the first segment: no entry can land for a shard that nobody here knows (design, H16).
 *  4. A run on possibly incomplete data says so in its record until all shards that this concerns are reconciled, so
 *     that a run after a crash knows it, too. One that nobody serves yet is not reconciled. The manager is told of each
 *     one that is.
 *  5. Where damage is found and the shard is this server's all the same, no replica is whole: its data are possibly
 *     incomplete. That is in the record of the last run before the damaged places become void: until then the next
 *     start finds them, too.
 *
 *  VERIFY --> (first configuration) --> FORMAT --\
 *                                  \----(MARK)----> RECOVER --> RUN --> (serving)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "server/control/control_state.h"

#define RECONCILED_CHECK_NS (100 * NS_PER_MS)

/* --- what is there --- */

int control_open_read(struct control *control)
{
    const struct pm *pm = control->common->pm;
    struct control_data *data = &control->data;
    struct store_identity identity;
    struct store_run run;
    int error = store_read_identity(pm, &identity);
    control->opening = OPENING_NOTHING;
    if (error == ROWAN_ENOTFOUND)
        return 0;
    if (error)
        return error;
    if (identity.server != control->common->server)
        return ROWAN_ECLUSTER;
    data->cluster = identity.cluster;
    control_stored_read(control);
    error = store_read_run(pm, &run);
    if (error == ROWAN_ENOTFOUND)
        return 0;
    if (error)
        return error;
    data->had_run = true;
    data->rebooted = memcmp(run.boot_id, control->options->boot_id, sizeof run.boot_id) != 0;
    data->possibly_incomplete = store_run_is_incomplete(&run, control->options->boot_id);
    atomic_store_explicit(&control->common->possibly_incomplete, data->possibly_incomplete,
                          memory_order_relaxed);
    if (data->possibly_incomplete)
        return 0; /* of all shards */
    control->opening = OPENING_VERIFY;
    verify_begin(&control->verify, pm);
    return 0;
}

static bool verify_some(struct control *control)
{
    const struct verify *verify = &control->verify;
    if (!verify_step(&control->verify))
        return true;
    control->opening = OPENING_NOTHING;
    if (verify->places)
        log_event(LOG_ERROR, "pm_damaged", "places=%lu first_offset=%lu shards=%u others=%d",
                  verify->places, control->common->pm->offset + verify->first_offset,
                  verify->damage.count, verify->damage.all);
    for (uint32_t i = 0; i < verify->damage.count; i++)
        log_event(LOG_WARN, "shard_damaged", "shard=%u", verify->damage.shards[i].shard);
    return true;
}

/* Invariant 5: is a shard that it concerns this server's? */
static bool holds_damage(const struct control *control, const struct cluster_config *config)
{
    const uint32_t self = control->common->server;
    bool holds = false;
    for (uint32_t i = 0; i < config->shard_count && !holds; i++) {
        const struct shard *shard = &config->shards[i];
        holds = shard_is_full_at(shard, self) &&
                damage_concerns(&control->verify.damage, config, shard->id);
    }
    return holds;
}

/* --- opening --- */

/* `coming` stays: a configuration that follows does not begin anew. */
static void fail(struct control *control, int error, const char *why)
{
    control->opening = OPENING_NOTHING;
    server_fail(control->common, error, why);
}

/* This server must be able to encode such blocks and its fabric to send them, all blocks of the largest
 * entry in one batch. */
static int check_block_limit(const struct control *control, const struct cluster_config *config)
{
    const struct fabric_caps *caps = fabric_caps(control->common->fabric);
    const struct entry_format format = {.block_limit = config->block_limit};
    uint32_t most = caps->block_limit;
    if (most > ENTRY_MAX_BLOCK_LIMIT)
        most = ENTRY_MAX_BLOCK_LIMIT;
    if (format.block_limit < ENTRY_MIN_BLOCK_LIMIT || format.block_limit > most)
        return ROWAN_EUNSUPPORTED;
    return entry_blocks(&format, ENTRY_MAX_KEY_BYTES, ENTRY_MAX_VALUE_BYTES) <=
                   caps->max_batch_blocks
               ? 0
               : ROWAN_EUNSUPPORTED;
}

static struct store_identity owner(const struct control *control)
{
    return (struct store_identity){.cluster = control->coming->cluster,
                                   .server = control->common->server,
                                   .format = {.seed = cluster_seed(control->coming),
                                              .block_limit = control->coming->block_limit}};
}

/* One role on each reactor (server_attach): control on the first, on number n the role n + 1. */
static uint32_t recover_parts(const struct control *control)
{
    const struct server_options *options = control->options;
    const uint32_t parts =
        options->reactors < control->role_count ? options->reactors : control->role_count;
    return parts ? parts : 1;
}

static int hand_out_parts(struct control *control)
{
    int error = 0;
    for (uint32_t i = 1; i < recover_parts(control) && !error; i++)
        error = command_push(
            &control->roles[i]->inbox,
            &(struct command){.kind = COMMAND_RECOVER, .part = recover_part(control->recover, i)});
    return error;
}

static void start_recovery(struct control *control)
{
    struct server_common *common = control->common;
    const struct store_identity identity = owner(control);
    char why[160] = "the PM cannot be used for this configuration";
    int error = store_open(common->pm, &identity, &common->store);
    if (!error) {
        common->format = identity.format;
        const struct recover_options options = {
            .common = common,
            .config = control->coming,
            .had_data = control->data.cluster != 0,
            .had_run = control->data.had_run,
            .rebooted = control->data.rebooted,
            .possibly_incomplete = control->data.possibly_incomplete,
            .verified = control->verify.pm && !control->verify.places && !control->verify.torn,
            .damage = control->data.damaged ? &control->verify.damage : NULL,
            .parts = recover_parts(control)};
        error = recover_create(&options, &control->recover, why, sizeof why);
    }
    if (!error)
        error = hand_out_parts(control);
    control->opening = OPENING_RECOVER;
    if (error)
        fail(control, error, why);
}

/* Invariant 5 */
static void mark_damage(struct control *control)
{
    struct pm *pm = control->common->pm;
    struct store_run run;
    int error = store_read_run(pm, &run);
    run.possibly_incomplete = control->data.possibly_incomplete = true;
    control->data.damaged = true;
    atomic_store_explicit(&control->common->possibly_incomplete, true, memory_order_relaxed);
    if (!error)
        error = store_run_write(pm, &run);
    control->run_ticket = pm_sync_start(pm);
    control->opening = OPENING_MARK;
    if (error)
        fail(control, error, "the damage could not be recorded");
}

void control_open_start(struct control *control, struct cluster_config *config)
{
    control->coming = config;
    int error = check_block_limit(control, config);
    if (error) {
        fail(control, error, "the first configuration cannot be used");
    } else if (control->data.had_run && !control->data.possibly_incomplete &&
               holds_damage(control, config)) {
        mark_damage(control);
    } else if (control->data.cluster) {
        start_recovery(control);
    } else {
        const struct store_identity identity = owner(control);
        error = store_format_start(control->common->pm, &identity, &control->format);
        control->opening = OPENING_FORMAT;
        if (error)
            fail(control, error, "the PM cannot be formatted");
    }
}

/* --- the run record --- */

static int write_run(struct control *control)
{
    struct pm *pm = control->common->pm;
    struct store_run run = {.incarnation = control->common->incarnation,
                            .durability = pm->durability,
                            .possibly_incomplete = control->data.possibly_incomplete};
    memcpy(run.boot_id, control->options->boot_id, sizeof run.boot_id);
    int error = store_run_write(pm, &run);
    /* After a power loss the record of a run that fenced must not stand beside data of one that did not, nor be torn. */
    control->run_ticket = pm_sync_start(pm);
    return error;
}

static void start_run(struct control *control)
{
    int error = write_run(control);
    control->opening = OPENING_RUN;
    if (error)
        fail(control, error, "the run record cannot be written");
}

static bool is_reconciled(const struct control *control, uint32_t position)
{
    const struct shard_state *shard = control->shards[position];
    return !shard_is_kept(control->config, &control->config->shards[position]) &&
           atomic_load_explicit(&shard->commit, memory_order_acquire) >=
               version_make(shard->epoch, 0) && /* D11 in digest.c */
           !atomic_load_explicit(&shard->missing, memory_order_relaxed);
}

/* Invariant 4. */
static void record_reconciliation(struct control *control, uint64_t *wake_ns)
{
    bool all = true, any = false;
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        struct shard_state *shard = control->shards[i];
        if (!shard || !atomic_load_explicit(&shard->possibly_incomplete, memory_order_relaxed))
            continue;
        const bool reconciled = is_reconciled(control, i);
        atomic_store_explicit(&shard->possibly_incomplete, !reconciled, memory_order_relaxed);
        all = all && reconciled;
        any = any || reconciled;
    }
    if (any)
        control_config_report(control); /* its replicas count as whole again (cm/comeback.h) */
    if (!all) {
        wake_at(wake_ns, control->now_ns + RECONCILED_CHECK_NS);
        return;
    }
    /* What is cleaned now is above the settled versions that the start found. */
    control_commit_rows(control, false);
    if (!control_commit_sync(control))
        return;
    control->data.possibly_incomplete = false;
    int error =
        write_run(control); /* nobody waits for it: if it is lost, the next run reconciles */
    if (error)
        server_fail(control->common, error, "the run record cannot be written");
    atomic_store_explicit(&control->common->possibly_incomplete, false, memory_order_release);
}

/* --- serving --- */

static int hand_out_shard(struct control *control, uint32_t position)
{
    const struct shard *row = &control->config->shards[position];
    struct shard_state *shard = recover_take(control->recover, row->id);
    if (!shard)
        return 0;
    /* The same at each replica: what of earlier epochs was found differs, as tombstones go. */
    if (row->epoch > 1)
        atomic_store_explicit(&shard->version, version_make(row->epoch, 0), memory_order_relaxed);
    shard->digest = control_digest_of(control, row);
    control->shards[position] = shard;
    int error = command_push(&control_owner(control, row)->inbox,
                             &(struct command){.kind = COMMAND_SHARD, .shard = shard});
    if (error) {
        control->shards[position] = NULL;
        shard_state_destroy(shard);
        return error;
    }
    return control_tell_clean(control, row, shard);
}

/* From now on they hold only what they say (reclaim.h). */
static void tell_owners(struct control *control)
{
    atomic_store_explicit(&control->common->handed_out, true, memory_order_release);
    for (uint32_t i = 0; i < control->role_count; i++)
        inbox_wake(&control->roles[i]->inbox);
}

static void serve(struct control *control)
{
    control->config = control->coming;
    control->coming = NULL;
    control->opening = OPENING_NOTHING;
    control->shards = calloc(control->config->shard_count, sizeof(struct shard_state *));
    control->adoption.shards =
        calloc(control->config->shard_count, sizeof *control->adoption.shards);
    int error = control->shards && control->adoption.shards ? control_config_hand_out(control)
                                                            : ROWAN_ENOMEM;
    for (uint32_t i = 0; i < control->config->shard_count && !error; i++)
        error = hand_out_shard(control, i);
    tell_owners(control);
    recover_destroy(control->recover);
    control->recover = NULL;
    if (!error)
        error = control_commit_open(control);
    if (!error)
        error = control_zone_open(control);
    if (!error)
        control_config_report(control);
    if (!error && control->config->lease_ms)
        error = control_adopt_first(control);
    if (error) {
        server_fail(control->common, error, "the first configuration could not be applied");
    } else if (control->next) {
        struct cluster_config *next = control->next;
        control->next = NULL;
        control_adopt_begin(control, next);
    }
}

bool control_open_poll(struct control *control, uint64_t *wake_ns)
{
    int done = 0;
    bool busy = false;
    switch (control->opening) {
    case OPENING_VERIFY:
        return verify_some(control);
    case OPENING_NOTHING:
        if (control->data.possibly_incomplete && control->zone)
            record_reconciliation(control, wake_ns);
        return false;
    case OPENING_FORMAT:
        done = store_format_poll(&control->format);
        if (done == 1)
            start_recovery(control);
        break;
    case OPENING_MARK:
        done = pm_sync_done(control->common->pm, control->run_ticket);
        if (done == 1)
            start_recovery(control);
        break;
    case OPENING_RECOVER:
        done = recover_poll(control->recover, control->now_ns, wake_ns, &busy);
        if (done == 1)
            start_run(control);
        break;
    case OPENING_RUN:
        done = pm_sync_done(control->common->pm, control->run_ticket);
        if (done == 1 && !control_stored_covers(control, control->coming))
            done = 0; /* 2 */
        if (done == 1)
            serve(control);
        break;
    }
    if (done == ROWAN_EIO)
        fail(control, done, SYNC_FAILED);
    else if (done < 0)
        fail(control, done, "the data of the last run could not be recovered");
    return done == 1 || busy;
}
