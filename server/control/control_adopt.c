/* A later configuration in which there are leases, from its coming until it is committed (design, section 6, Failover).
 *
 * Invariants:
 *  J4  A configuration is answered with Adopted when nothing of a server that it removes can land here any more, when each
 *      worker and digest role has adopted it, when no send of this server can land any more for a shard that it leads no longer
 *      (worker_epoch.c, Z6), and when it is durable in the PM.
 *  J5  A shard that this server is to lead leaves its digest role when all is applied that others have sent here who led it:
 *      they are shut out, or have adopted the configuration, as all have when it is committed. Until then this server serves
 *      nothing of it. Who may have led it: whom the last configuration names whose commit was heard of here, and each one
 *      answered since, as others may have heard that it is committed.
 *  J6  A replica that fills has a durable row before Adopted is answered, so whatever lands for it belongs to that row; and
 *      one that has left has none. Nothing of the one before is written once the first allocation of a new row is known: its
 *      owner has given it back, and the clean role has forgotten it (design, H15).
 *  J7  A newer configuration takes the place of one that is not adopted yet, at any step. A shard that is between two owners
 *      goes to whom the newest names; but one that was to leave by any of them is gone, as writes did not wait for it.
 *
 *  SHUT_OUT --(J4)--> RELEASE --(who changes its owner is here)--> FORGET --(J6)--> ROLES --(all have answered)--> STORE
 *     --(durable)--> DONE;  any --(a newer configuration)--> SHUT_OUT
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "server/control/control_state.h"

#define ADOPT_NO_MEMORY "no memory for a change of the configuration"

/* --- what this version can do --- */

/* What the shard is at a server. */
enum shard_role { SHARD_NONE, SHARD_FILLING, SHARD_BACKUP, SHARD_PRIMARY };

static enum shard_role role_of(const struct shard *row, uint32_t server)
{
    if (row->split == SPLIT_ENDED)
        return SHARD_NONE;
    if (row->primary == server)
        return SHARD_PRIMARY;
    return shard_has_backup(row, server)    ? SHARD_BACKUP
           : shard_has_filling(row, server) ? SHARD_FILLING
                                            : SHARD_NONE;
}

/* Who holds nothing can only fill. Where a replica becomes one that fills, it leaves and begins anew: a configuration between the
 * two, by which it was none, may never have come here. */
static bool can_follow(const struct shard *old, const struct shard *new, uint32_t server)
{
    const enum shard_role from = role_of(old, server), to = role_of(new, server);
    return old->id == new->id && old->first_slot == new->first_slot &&
           old->last_slot == new->last_slot &&new->epoch >= old->epoch &&
           (from != SHARD_NONE || to <= SHARD_FILLING) &&
           (new->epoch > old->epoch ||
            (from == to && (to != SHARD_PRIMARY || new->worker == old->worker)));
}

static bool can_adopt(const struct control *control, const struct cluster_config *config)
{
    const struct cluster_config *old = control->config;
    const uint32_t server = control->common->server;
    for (uint32_t i = 0; i < old->shard_count; i++) {
        if (control->shards[i] && !cluster_shard(config, old->shards[i].id))
            return false; /* it was ended before */
    }
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *row = &config->shards[i], *before = cluster_shard(old, row->id);
        const bool follows =
            before ? can_follow(before, row, server)
                   : cluster_parent(config, row) || role_of(row, server) == SHARD_NONE;
        if (!follows)
            return false;
    }
    return config->lease_ms != 0;
}

/* What is kept by position goes to where the shards stand now. */
static int move_places(struct control *control, const struct cluster_config *config)
{
    const struct cluster_config *old = control->config;
    const uint32_t count = config->shard_count;
    struct shard_state **shards = calloc(count, sizeof(struct shard_state *));
    struct adopt_shard *places = calloc(count, sizeof *places);
    if (!shards || !places) {
        free(shards);
        free(places);
        return ROWAN_ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct shard *row = cluster_shard(old, config->shards[i].id);
        if (!row)
            continue;
        shards[i] = control->shards[row - old->shards];
        places[i] = control->adoption.shards[row - old->shards];
    }
    free(control->shards);
    free(control->adoption.shards);
    control->shards = shards;
    control->adoption.shards = places;
    control->commit_position = 0;
    for (struct control_link *link = control->links.first; link; link = link->place.next)
        link->settled_next = 0;
    return 0;
}

/* Does the replica that there was leave? Of one that fills only epochs tell whether it was none meanwhile. */
static bool leaves(const struct shard *old, const struct shard *new, uint32_t server)
{
    const enum shard_role from = role_of(old, server), to = role_of(new, server);
    return to == SHARD_NONE ||
           (to == SHARD_FILLING && (from != SHARD_FILLING || new->epoch > old->epoch + 1));
}

/* --- SHUT_OUT --- */

static int shut_out_removed(struct control *control, const struct cluster_config *config)
{
    int error = 0;
    for (uint32_t i = 0; i < control->config->member_count && !error; i++) {
        const struct member *old = &control->config->members[i];
        const struct member *new = cluster_member(config, old->server);
        if (old->server == control->common->server ||
            (new &&new->incarnation == old->incarnation && !new->kept))
            continue;
        log_event(LOG_INFO, "shut_out", "server=%u incarnation=%lx term=%lu", old->server,
                  old->incarnation, config->term);
        error = control_zone_shut_out(control, old->server, old->incarnation);
    }
    return error;
}

void control_adopt_begin(struct control *control, struct cluster_config *config)
{
    struct control_adoption *adoption = &control->adoption;
    if (!can_adopt(control, config)) {
        cluster_release(config);
        server_fail(control->common, ROWAN_EUNSUPPORTED,
                    "the configuration changes shards in a way that this version cannot follow");
        return;
    }
    int error = move_places(control, config);
    for (uint32_t i = 0; i < config->shard_count && !error; i++) {
        const struct shard *row = &config->shards[i];
        if (control->shards[i] &&
            leaves(cluster_shard(control->config, row->id), row, control->common->server))
            adoption->shards[i].leaves = true;
    }
    if (error) {
        cluster_release(config);
        server_fail(control->common, error, ADOPT_NO_MEMORY);
        return;
    }
    error = shut_out_removed(control, config);
    cluster_release(control->config);
    control->config = config;
    adoption->step = ADOPT_SHUT_OUT;
    adoption->releases = false;
    adoption->began_ns = control->now_ns;
    if (error)
        server_fail(control->common, error, "a server that was removed could not be shut out");
}

/* --- RELEASE --- */

static bool leads(const struct control *control, const struct shard *row)
{
    return role_of(row, control->common->server) == SHARD_PRIMARY;
}

/* The workers have a new configuration. What one of them leads no longer it gives back by itself. */
static int release_led(struct control *control)
{
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        const struct shard *row = &control->config->shards[i];
        const struct shard_state *shard = control->shards[i];
        struct adopt_shard *at = &control->adoption.shards[i];
        if (shard && at->place == ADOPT_WITH_OWNER && shard->primary &&
            !(leads(control, row) && row->worker == shard->worker))
            at->place = ADOPT_ASKED;
    }
    return control_config_hand_out(control);
}

/* J5: nothing of it lands here any more, or it is this server. */
static bool sender_is_gone(const struct control *control, const struct adopt_shard *at)
{
    const struct member *sender = cluster_member(control->config, at->sender);
    return !sender || sender->kept || sender->incarnation != at->incarnation ||
           sender->server == control->common->server;
}

/* J5. A configuration is about to be answered, or committed: its primaries may send to us. */
static void note_senders(struct control *control, bool committed)
{
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        struct adopt_shard *at = &control->adoption.shards[i];
        const uint32_t primary = control->config->shards[i].primary;
        const bool gone = sender_is_gone(control, at);
        if (committed)
            at->others = false;
        else if (primary == control->common->server || (primary == at->sender && !gone))
            continue;
        else
            at->others |= !gone;
        at->sender = primary;
        at->incarnation = cluster_member(control->config, primary)->incarnation;
    }
}

/* J5 */
static bool may_be_promoted(const struct control *control, uint32_t position)
{
    const struct control_adoption *adoption = &control->adoption;
    const struct adopt_shard *at = &adoption->shards[position];
    return adoption->committed == control->config->term ||
           (!at->others && sender_is_gone(control, at));
}

static bool is_to_release(const struct control *control, uint32_t position)
{
    return control->adoption.shards[position].leaves ||
           (leads(control, &control->config->shards[position]) &&
            may_be_promoted(control, position));
}

static int ask_digest(struct control *control, uint32_t position)
{
    const uint16_t id = control->shards[position]->id;
    struct adopt_shard *at = &control->adoption.shards[position];
    at->place = ADOPT_ASKED;
    control_zone_note_begun(control);
    return command_push(
        &digest_role(control->digests[control->shards[position]->digest])->inbox,
        &(struct command){.kind = COMMAND_RELEASE, .release = {.shard = id, .leaves = at->leaves}});
}

/* It has left its owner, and this server. What of it lies in segments is dead: the clean role frees all that leads there. */
static int forget(struct control *control, uint32_t position)
{
    struct shard_state *shard = control->shards[position];
    log_event(LOG_INFO, "shard_left", "shard=%u epoch=%u", shard->id, shard->epoch);
    store_replica_set(control->common->store, shard->id,
                      &(struct replica_row){.state = REPLICA_NONE});
    control->shards[position] = NULL;
    if (atomic_load_explicit(&shard->damaged, memory_order_relaxed)) /* that is told, too */
        atomic_fetch_add_explicit(&control->common->damages, 1, memory_order_release);
    struct adopt_shard *at = &control->adoption.shards[position];
    at->place = ADOPT_WITH_OWNER;
    at->leaves = false;
    at->commit_needs = 0;
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        if (control->shards[i] && control->shards[i]->parent == shard->id)
            atomic_store_explicit(&control->shards[i]->parent, SHARD_NO_ID, memory_order_relaxed);
    }
    return command_push(&clean_role(control->clean)->inbox,
                        &(struct command){.kind = COMMAND_SHARD, .shard = shard});
}

/* False: some are still with their owners. */
static bool release(struct control *control)
{
    bool all = true;
    int error = 0;
    for (uint32_t i = 0; i < control->config->shard_count && !error; i++) {
        const struct shard_state *shard = control->shards[i];
        const struct adopt_shard *at = &control->adoption.shards[i];
        if (!shard)
            continue;
        if (at->place == ADOPT_WITH_OWNER && !shard->primary && is_to_release(control, i))
            error = ask_digest(control, i);
        else if (at->place == ADOPT_HERE && at->leaves)
            error = forget(control, i);
        all &= at->place != ADOPT_ASKED;
    }
    if (error)
        server_fail(control->common, error, ADOPT_NO_MEMORY);
    return all;
}

void control_adopt_released(struct control *control, struct shard_state *shard)
{
    const struct shard *row = cluster_shard(control->config, shard->id);
    const uint32_t position = (uint32_t)(row - control->config->shards);
    ASSERT(control->shards[position] == shard &&
           control->adoption.shards[position].place == ADOPT_ASKED);
    control->adoption.shards[position].place = ADOPT_HERE;
}

/* --- FORGET --- */

static int ask_clean(struct control *control)
{
    control->adoption.waiting = 1;
    return command_push(&clean_role(control->clean)->inbox,
                        &(struct command){.kind = COMMAND_ADOPT, .term = control->config->term});
}

/* --- ROLES --- */

/* Of that shard this server has nothing yet; or, of a child, what it has of its parent. Its row is durable before this is
 * answered (STORE). */
static int open_replica(struct control *control, uint32_t position)
{
    struct server_common *common = control->common;
    const struct shard *row = &control->config->shards[position],
                       *parent = cluster_parent(control->config, row);
    struct shard_state *shard;
    const int error = shard_state_create(common->pm, &common->format, row, common->server, &shard);
    if (error)
        return error;
    shard_fill(shard, store_allocations(common->store));
    if (parent) {
        shard->filling = false;
        atomic_init(&shard->parent, parent->id);
        atomic_init(&shard->version, version_make(row->epoch, 0)); /* the same at each replica */
    }
    shard->digest = control_digest_of(control, row);
    shard->live = store_live(common->store);
    store_replica_set(common->store, row->id,
                      &(struct replica_row){.state = parent ? REPLICA_FULL : REPLICA_FILLING,
                                            .first_epoch = shard->first_epoch,
                                            .first_allocation = shard->first_allocation,
                                            .settled = atomic_load(&shard->settled)});
    control->shards[position] = shard;
    control->adoption.shards[position].place = ADOPT_HERE;
    log_event(LOG_INFO, parent ? "shard_split_off" : "shard_fills", "shard=%u epoch=%u primary=%u",
              row->id, row->epoch, row->primary);
    return 0;
}

static int open_all(struct control *control)
{
    int error = 0;
    for (uint32_t i = 0; i < control->config->shard_count && !error; i++) {
        if (!control->shards[i] &&
            role_of(&control->config->shards[i], control->common->server) != SHARD_NONE)
            error = open_replica(control, i);
    }
    return error;
}

/* J7: to whom the newest configuration names. */
static int hand_on(struct control *control, uint32_t position)
{
    const struct shard *row = &control->config->shards[position];
    struct shard_state *shard = control->shards[position];
    control->adoption.shards[position].place = ADOPT_WITH_OWNER;
    if (leads(control, row)) {
        if (!shard->primary)
            control_zone_close_segment(control, shard->landed_in); /* Z4 */
        shard->filling = false;
        log_event(LOG_INFO, "shard_promoted", "shard=%u worker=%u epoch=%u", shard->id, row->worker,
                  row->epoch);
    } else if (shard->primary) {
        log_event(LOG_INFO, "shard_deposed", "shard=%u primary=%u epoch=%u", shard->id,
                  row->primary, row->epoch);
    }
    shard->primary = leads(control, row);
    shard->worker = row->worker;
    atomic_store_explicit(&shard->recovering, leads(control, row), memory_order_relaxed);
    int error = command_push(&control_owner(control, row)->inbox,
                             &(struct command){.kind = COMMAND_SHARD, .shard = shard});
    return error ? error : control_tell_clean(control, row, shard);
}

/* One that is to be promoted once the configuration is committed stays in its epoch until then. */
static int tell_epoch(struct control *control, uint32_t position)
{
    const struct shard *row = &control->config->shards[position];
    if (leads(control, row) || control->adoption.shards[position].epoch == row->epoch)
        return 0;
    return command_push(
        &control_owner(control, row)->inbox,
        &(struct command){.kind = COMMAND_EPOCH,
                          .begun = {.shard = row->id,
                                    .epoch = row->epoch,
                                    .frozen = row->split != SPLIT_NONE,
                                    .filling = shard_has_filling(row, control->common->server)}});
}

/* What it pops last says that it has seen all before. */
static int ask_roles(struct control *control)
{
    const struct command command = {.kind = COMMAND_ADOPT, .term = control->config->term};
    int error = 0;
    control->adoption.waiting = control->role_count - 1; /* all but the clean role */
    for (uint32_t i = 0; i < control->adoption.waiting && !error; i++)
        error = command_push(&control->roles[i]->inbox, &command);
    return error;
}

static int tell_owners(struct control *control)
{
    int error = open_all(control);
    for (uint32_t i = 0; i < control->config->shard_count && !error; i++) {
        if (!control->shards[i])
            continue;
        if (control->adoption.shards[i].place == ADOPT_HERE)
            error = hand_on(control, i);
        if (!error)
            error = tell_epoch(control, i);
        control->adoption.shards[i].epoch = control->config->shards[i].epoch;
    }
    return error ? error : ask_roles(control);
}

void control_adopt_answered(struct control *control, uint64_t term)
{
    if (term == control->config->term)
        control->adoption.waiting--;
}

/* --- the first configuration --- */

int control_adopt_first(struct control *control)
{
    struct control_adoption *adoption = &control->adoption;
    for (uint32_t i = 0; i < control->config->shard_count; i++)
        adoption->shards[i].epoch = control->config->shards[i].epoch;
    adoption->step = ADOPT_ROLES;
    adoption->began_ns = control->now_ns;
    return tell_owners(control);
}

void control_adopt_close(struct control *control)
{
    for (uint32_t i = 0; control->adoption.shards && i < control->config->shard_count; i++) {
        if (control->adoption.shards[i].place == ADOPT_HERE)
            shard_state_destroy(control->shards[i]);
    }
    free(control->adoption.shards);
}

/* --- telling the manager --- */

/* Once on each connection to a manager that leads, and after each configuration. */
static void report(struct control *control)
{
    struct control_adoption *adoption = &control->adoption;
    if (adoption->step != ADOPT_DONE || !control->cm_leads || !control->cm_connected ||
        adoption->reported == control->config->term)
        return;
    Rowan__Adopted body = ROWAN__ADOPTED__INIT;
    body.term = control->config->term;
    if (!control_message_send(control->cm_conn, 0, &CONTROL_MESSAGE(ADOPTED, adopted, &body)))
        adoption->reported = control->config->term;
}

void control_adopt_filled(struct control *control, const struct command_filled *filled)
{
    Rowan__Filled body = ROWAN__FILLED__INIT;
    if (!control->cm_leads || !control->cm_connected)
        return;
    body.shard = filled->shard;
    body.epoch = filled->epoch;
    body.server = filled->server;
    (void)control_message_send(control->cm_conn, 0, &CONTROL_MESSAGE(FILLED, filled, &body));
}

void control_adopt_committed(struct control *control, uint64_t term)
{
    struct control_adoption *adoption = &control->adoption;
    if (!control->config || adoption->step != ADOPT_DONE || term != control->config->term ||
        adoption->committed == term)
        return;
    adoption->committed = term;
    adoption->releases = true;
    note_senders(control, true);
    control->lease.renew_ns = control->now_ns; /* there may be one now */
    log_event(LOG_INFO, "configuration_committed", "term=%lu", term);
    int error = 0;
    for (uint32_t i = 0; i < control->options->workers && !error; i++)
        error = command_push(&worker_role(control->workers[i])->inbox,
                             &(struct command){.kind = COMMAND_COMMITTED, .term = term});
    if (error)
        server_fail(control->common, error, ADOPT_NO_MEMORY);
}

/* J5: those whose former primary stays. */
static int promote_rest(struct control *control)
{
    struct control_adoption *adoption = &control->adoption;
    int error = 0;
    if (!release(control))
        return 0;
    adoption->releases = false;
    for (uint32_t i = 0; i < control->config->shard_count && !error; i++) {
        const struct shard *row = &control->config->shards[i];
        if (!control->shards[i] || adoption->shards[i].place != ADOPT_HERE)
            continue;
        error = hand_on(control, i);
        if (!error)
            error = command_push(
                &control_owner(control, row)->inbox,
                &(struct command){.kind = COMMAND_COMMITTED, .term = control->config->term});
    }
    return error;
}

/* --- the steps --- */

/* A server that came back under another incarnation, which need not be a higher one, is let in; nobody else is (control.c,
 * admit). */
static bool readmit(struct control *control)
{
    if (control_zone_is_shutting_out(control))
        return false;
    for (uint32_t i = 0; i < control->config->member_count; i++) {
        if (!control->config->members[i].kept)
            control_zone_readmit(control, control->config->members[i].server);
    }
    return true;
}

static bool is_through(struct control *control)
{
    switch (control->adoption.step) {
    case ADOPT_SHUT_OUT:
        return readmit(control);
    case ADOPT_RELEASE:
        return release(control);
    case ADOPT_FORGET:
    case ADOPT_ROLES:
        return control->adoption.waiting == 0;
    case ADOPT_STORE:
        return control_stored_covers(control, control->config) &&
               server_done(control->common, store_replica_sync(control->common->store));
    case ADOPT_DONE:
        break;
    }
    return false;
}

static int enter(struct control *control, enum adopt_step step)
{
    control->adoption.step = step;
    if (step == ADOPT_RELEASE)
        return release_led(control);
    if (step == ADOPT_FORGET)
        return ask_clean(control);
    if (step == ADOPT_ROLES)
        return tell_owners(control);
    if (step == ADOPT_DONE) {
        note_senders(control, false);
        log_event(LOG_INFO, "configuration_adopted", "term=%lu us=%lu", control->config->term,
                  (control->now_ns - control->adoption.began_ns) / NS_PER_US);
    }
    return 0;
}

bool control_adopt_poll(struct control *control)
{
    struct control_adoption *adoption = &control->adoption;
    bool any = false;
    int error = 0;
    if (control->config->lease_ms == 0)
        return false;
    while (!error && adoption->step != ADOPT_DONE && is_through(control)) {
        any = true;
        error = enter(control, adoption->step + 1);
    }
    if (!error && adoption->step == ADOPT_DONE && adoption->releases)
        error = promote_rest(control);
    if (error)
        server_fail(control->common, error, ADOPT_NO_MEMORY);
    report(control);
    return any;
}
