/* The CM and the configuration: joins, asks, applies what comes, hands it to the other roles. What
 * the first configuration starts is in control_open.c.
 *
 * Without leases a shard keeps its primary, backups and epoch for good. A configuration that says otherwise ends the server
 * with a sentence, because serving on would be wrong. With leases control_adopt.c follows it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/version.h"
#include "server/control/control_state.h"

/* --- talking to the CM --- */

const struct cluster_config *control_config_known(const struct control *control)
{
    return control->next ? control->next : control->config ? control->config : control->coming;
}

/* What a start found damaged; of a run, which shards are not reconciled yet (control_open.c, invariant 4), and of which an entry
 * could not be read. */
static struct damage doubts(const struct control *control)
{
    struct damage damage = {0};
    if (!control->config)
        return control->verify.damage;
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        const struct shard_state *shard = control->shards[i];
        if (shard && atomic_load_explicit(&shard->possibly_incomplete, memory_order_relaxed))
            damage_add(&damage, shard->id, DAMAGE_NO_SLOT);
        else if (shard && atomic_load_explicit(&shard->damaged, memory_order_relaxed))
            damage_found(&damage, shard->id);
    }
    return damage;
}

/* Reports for duty. From then on the CM also sends later configurations on this connection. */
static void join(struct control *control)
{
    const struct fabric_caps *caps = fabric_caps(control->common->fabric);
    Rowan__Join body = ROWAN__JOIN__INIT;
    body.server = control->common->server;
    body.incarnation = control->common->incarnation;
    body.workers = control->options->workers;
    body.address = (char *)(uintptr_t)control->options->address;
    body.block_limit = caps->block_limit;
    body.fabric = (char *)(uintptr_t)caps->backend;
    body.data_cluster = control->data.cluster;
    const struct damage damage = doubts(control);
    Rowan__DamagedShard rows[DAMAGE_MAX_SHARDS], *damaged[DAMAGE_MAX_SHARDS];
    for (uint32_t i = 0; i < damage.count; i++) {
        rows[i] = (Rowan__DamagedShard)ROWAN__DAMAGED_SHARD__INIT;
        rows[i].shard = damage.shards[i].shard;
        rows[i].first_slot = damage.shards[i].first_slot;
        rows[i].last_slot = damage.shards[i].last_slot;
        rows[i].found = damage.shards[i].found;
        damaged[i] = &rows[i];
    }
    body.n_damaged = damage.count;
    body.damaged = damaged;
    body.possibly_incomplete =
        damage.all || (control->data.possibly_incomplete && !control->config);
    body.torn = control->verify.torn && !control->config;
    const struct cluster_config *known = control_config_known(control);
    body.named = known != NULL;
    body.known_term = known ? known->term : 0;
    body.known_manager = known ? known->manager : 0;
    body.formatted = control->config != NULL;
    body.registration_epoch = control->registration_epoch;
    body.stored_term = control->stored_term;
    body.format = VERSION_CONFIGURATION_HIGHEST;
    body.without_ms = control_lease_without_ms(control);
    body.nobody_leads = control->cm_leaderless >= control->managers.count;
    struct store_config stored;
    if (control->bring && store_config_read(control->common->pm, &stored) == 0) {
        body.stored.data = (uint8_t *)(uintptr_t)stored.bytes;
        body.stored.len = stored.byte_count;
    }
    body.durability = (char *)(uintptr_t)pm_durability_name(control->common->pm->durability);
    int error = control_message_send(control->cm_conn, ++control->join_tag,
                                     &CONTROL_MESSAGE(JOIN, join, &body));
    if (error)
        log_event(LOG_WARN, "cm_send_failed", "error=%s", error_name(error));
    control->join_again_ns = control->now_ns + CONTROL_JOIN_AGAIN_NS;
}

/* There is something new to report: the answer to an earlier report does not end the repetition. */
static void report_anew(struct control *control)
{
    control->joined = false;
    control->new_tag = control->join_tag + 1;
}

void control_config_report(struct control *control)
{
    control->data.cluster = control->config->cluster;
    report_anew(control);
    control->join_again_ns = control->now_ns;
}

/* At once: no damaged replica is promoted beside a whole one (cm/failover.c, F3). */
static void tell_damage(struct control *control)
{
    const uint64_t damages = atomic_load_explicit(&control->common->damages, memory_order_acquire);
    if (control->config && damages != control->damages_told)
        control_config_report(control);
    control->damages_told = damages;
}

/* A report may have been dropped, here or at the CM, for want of memory. And the CM waits until all
 * servers have reported in the current registration epoch (cm/state.c, S8). */
static void repeat_join(struct control *control, uint64_t *wake_ns)
{
    if (!control->cm_connected || control->joined || control->opening == OPENING_VERIFY)
        return;
    if (control->now_ns >= control->join_again_ns)
        join(control);
    wake_at(wake_ns, control->join_again_ns);
}

/* Managers are tried ten times a second: a manager's reason is logged once, until it has another one or one that leads is
 * found. True: it was not logged yet. */
static bool is_news(struct control *control, int error)
{
    int *logged = &control->cm_errors[control->managers.current];
    const bool news = *logged != error;
    *logged = error;
    return news;
}

/* On to the next manager, at once unless all were tried. */
static void leave_cm(struct control *control, const char *event, int error)
{
    if (is_news(control, error))
        log_event(LOG_WARN, event, "error=%s address=%s reason=\"%s\"", error_name(error),
                  managers_address(&control->managers), error_sentence(error));
    /* A host that is down answers nothing; where a process is gone the answer comes at once. */
    const bool refused = error == ROWAN_EUNREACHABLE &&
                         control->now_ns - control->cm_begun_ns < CONTROL_CM_AT_ONCE_NS;
    const bool leaderless = (refused || error == ROWAN_ENOTLEADING) &&
                            !managers_passes_over(&control->managers, control->now_ns);
    control->cm_leaderless = leaderless ? control->cm_leaderless + 1 : 0;
    control->cm_connected = false;
    control->cm_conn = NULL;
    control->cm_retry_ns = control->now_ns;
    if (!managers_next(&control->managers, control->now_ns))
        control->cm_retry_ns += CONTROL_CM_RETRY_NS;
}

/* It has answered: it leads. */
static void note_leader(struct control *control)
{
    control->cm_leaderless = 0;
    if (control->cm_leads)
        return;
    control->cm_leads = true;
    managers_found(&control->managers);
    memset(control->cm_errors, 0, sizeof control->cm_errors);
    log_event(LOG_INFO, "cm_connected", "address=%s", managers_address(&control->managers));
}

static void connect_to_cm(struct control *control, uint64_t *wake_ns)
{
    if (control->cm_conn)
        return;
    if (control->now_ns >= control->cm_retry_ns) {
        const struct cluster_config *known = control_config_known(control);
        fabric_endpoint_identity(
            control->endpoint,
            &(struct fabric_identity){.cluster = known ? known->cluster : 0,
                                      .term = control->config ? control->config->term : 0,
                                      .incarnation = control->common->incarnation,
                                      .id = control->common->server,
                                      .kind = FABRIC_SERVER});
        const char *address = managers_address(&control->managers);
        int error = fabric_connect(control->endpoint, address, 0, 0, &control->cm_conn);
        control->cm_heard_ns = control->cm_begun_ns = control->now_ns;
        if (!error)
            return;
        if (error == ROWAN_EINVALID && !control->config && !control->coming) {
            char why[CLUSTER_MAX_ADDRESS_BYTES + 64];
            snprintf(why, sizeof why, "cannot use the CM's address %s", address);
            server_fail(control->common, error, why);
        }
        leave_cm(control, "cm_connect_failed", error);
    }
    wake_at(wake_ns, control->cm_retry_ns);
}

void control_tune(struct control *control, const char *managers)
{
    struct managers by;
    if (!managers || managers_parse(managers, &by, NULL))
        return;
    managers_replace(&control->managers, &by);
    control->cm_leaderless = 0;
    control->lease.granter = 0;
    memset(control->cm_errors, 0, sizeof control->cm_errors);
}

/* --- applying a configuration --- */

int control_config_hand_out(struct control *control)
{
    const struct users *users = control->config->users;
    const bool demands = users && users->required;
    login_tell_off(users, control->options->address, &control->told_off);
    fabric_endpoint_secret(control->endpoint, cluster_proof(control->config),
                           cluster_former_proof(control->config), demands);
    fabric_endpoint_guests(control->endpoint, demands);
    if (demands)
        control_leave_guests(control);
    for (uint32_t i = 0; i < control->options->workers; i++) {
        struct command command = {.kind = COMMAND_CONFIG, .config = cluster_hold(control->config)};
        int error = command_push(&worker_role(control->workers[i])->inbox, &command);
        if (error) {
            cluster_release(control->config);
            return error;
        }
    }
    return 0;
}

/* Does the new configuration leave every shard where it was? */
static bool keeps_shards(const struct cluster_config *old, const struct cluster_config *new)
{
    if (old->shard_count != new->shard_count)
        return false;
    for (uint32_t i = 0; i < old->shard_count; i++) {
        const struct shard *a = &old->shards[i], *b = &new->shards[i];
        if (a->id != b->id || a->first_slot != b->first_slot || a->last_slot != b->last_slot ||
            a->epoch != b->epoch || a->primary != b->primary || a->worker != b->worker ||
            a->backup_count != b->backup_count ||
            memcmp(a->backups, b->backups, a->backup_count * sizeof a->backups[0]) != 0)
            return false;
    }
    return true;
}

/* A later configuration. While the server is opening it takes the place of the first one, unless it changes shards. */
static void replace_config(struct control *control, struct cluster_config *config)
{
    if (control->config && config->lease_ms) {
        control_adopt_begin(control, config);
        return;
    }
    struct cluster_config **current = control->config ? &control->config : &control->coming;
    const bool keeps = keeps_shards(*current, config);
    if (!control->config && config->lease_ms && (!keeps || control->next)) {
        cluster_release(control->next);
        control->next = config;
        return;
    }
    if (!keeps) {
        cluster_release(config);
        server_fail(control->common, ROWAN_EUNSUPPORTED,
                    "the configuration moved shards, which this version cannot do");
        return;
    }
    cluster_release(*current);
    *current = config;
    int error = control->config ? control_config_hand_out(control) : 0;
    if (error)
        server_fail(control->common, error, "the configuration could not be handed on");
}

static void apply_config(struct control *control, struct cluster_config *config)
{
    const struct member *self = cluster_member(config, control->common->server);
    bool valid = config->has_secret && self && self->incarnation == control->common->incarnation &&
                 self->workers == control->options->workers;
    const struct cluster_config *known = control_config_known(control);
    if (!valid || (known && (config->term <= known->term || config->cluster != known->cluster))) {
        log_event(LOG_DEBUG, "configuration_ignored", "term=%lu", config->term);
        cluster_release(config);
        return;
    }
    log_event(LOG_INFO, "configuration", "term=%lu members=%u shards=%u", config->term,
              config->member_count, config->shard_count);
    if (known)
        replace_config(control, config);
    else
        control_open_start(control, config);
}

/* Is the manager to answer now? It answers reports, ten a second, until one is a member; then, with leases, several renewals in
 * the length of one. */
static bool is_asking(const struct control *control)
{
    const struct cluster_config *config = control_config_known(control);
    return config ? config->lease_ms > 0 : control->opening != OPENING_VERIFY;
}

/* A manager that is stopped keeps its connections; one that limps says something now and then (J9). */
static void leave_useless_cm(struct control *control, uint64_t *wake_ns)
{
    if (!control->cm_conn || !is_asking(control)) {
        control->cm_heard_ns = control->now_ns;
        return;
    }
    const struct cluster_config *config = control_config_known(control);
    const uint64_t leases_ns = config ? CONTROL_CM_SILENT_LEASES * config->lease_ms * NS_PER_MS : 0;
    const uint64_t silent_ns = control->cm_heard_ns + clock_latest(leases_ns, CONTROL_CM_SILENT_NS);
    const uint64_t patience_ns = control_lease_patience_ns(control);
    if (control->now_ns < silent_ns && control->now_ns < patience_ns) {
        wake_at(wake_ns, silent_ns < patience_ns ? silent_ns : patience_ns);
        return;
    }
    fabric_conn_close(control->cm_conn);
    if (control->now_ns >= patience_ns) {
        control->lease.granter = 0;
        managers_pass_over(&control->managers, control->now_ns + 2 * config->lease_ms * NS_PER_MS);
    }
    leave_cm(control, control->now_ns < silent_ns ? "cm_grants_nothing" : "cm_silent",
             ROWAN_ETIMEDOUT);
}

void control_config_poll(struct control *control, uint64_t *wake_ns)
{
    leave_useless_cm(control, wake_ns);
    connect_to_cm(control, wake_ns);
    tell_damage(control);
    repeat_join(control, wake_ns);
}

/* --- events of the connection to the CM --- */

/* Of a manager of another version, perhaps: said once for each that is found. */
static void note_unknown(struct control *control, const char *what, int error)
{
    if (control->unknown_messages++ == 0 || is_news(control, error))
        log_event(LOG_WARN, "cm_message_unknown", "error=%s detail=\"%s\"", error_name(error),
                  what);
}

/* A failure is final only if it answers the last Join, or says that this process was removed or is refused: whatever else a manager
 * cannot do, the server goes on. A manager that does not lead is left. After ROWAN_EAGAIN the server reports again: the CM may still count connections
 * whose process has ended, such as that of our last run. A server that had a configuration ends instead: another process
 * has taken its place, and this one would go on answering from old data. */
static void apply_failure(struct control *control, uint32_t tag, const Rowan__Failure *failure)
{
    int error = failure->error < 0 ? failure->error : ROWAN_EREFUSED;
    if (error == ROWAN_ENOTLEADING) {
        const struct cluster_config *known = control_config_known(control);
        if (known && control->lease.granter == control->managers.current + 1)
            control->lease.left_term = known->term;
        fabric_conn_close(control->cm_conn);
        leave_cm(control, "cm_not_leading", error);
        return;
    }
    if (tag != control->join_tag && error != ROWAN_EREMOVED && error != ROWAN_EREFUSED) {
        note_unknown(control, failure->detail, error);
        return;
    }
    note_leader(control);
    if (control->lease.leaves_ns) { /* J8: it is removed */
        server_end(control->common);
        return;
    }
    if (error == ROWAN_EAGAIN && control_config_known(control))
        error = ROWAN_EREFUSED;
    if (error != ROWAN_EAGAIN) {
        server_fail(control->common, error, failure->detail);
        return;
    }
    if (is_news(control, error) ||
        strncmp(control->put_off, failure->detail, sizeof control->put_off - 1) != 0)
        log_event(LOG_WARN, "join_put_off", "detail=\"%s\"", failure->detail);
    snprintf(control->put_off, sizeof control->put_off, "%s", failure->detail);
}

/* A new one is reported back at once: all servers wait for that. */
static void apply_registration_epoch(struct control *control, uint64_t epoch)
{
    if (epoch == control->registration_epoch)
        return;
    control->registration_epoch = epoch;
    control->join_again_ns = control->now_ns;
}

static void apply_configuration_is(struct control *control, uint32_t tag,
                                   const Rowan__ConfigurationIs *is)
{
    struct cluster_config *config;
    note_leader(control);
    if (is->configuration.len == 0) {
        control->bring = is->bring;
        apply_registration_epoch(control, is->registration_epoch);
        return;
    }
    control->joined |= tag >= control->new_tag;
    int error = cluster_decode(is->configuration.data, is->configuration.len, &config);
    if (error == ROWAN_EINCOMPATIBLE)
        server_fail(
            control->common, error,
            "the cluster's configuration has a format that this server does not read: start a "
            "server of the configuration manager's version");
    else if (error)
        log_event(LOG_WARN, "configuration_damaged", "error=%s", error_name(error));
    else
        apply_config(control, config);
}

static void cm_reached(struct control *control)
{
    control->cm_connected = true;
    control->cm_leads = false;
    control->registration_epoch = 0;
    control->bring = false;
    control->lease.manager_ns = 0; /* no time of this one is known */
    control->lease.renew_ns = control->now_ns;
    report_anew(control);
    join(control);
    control->adoption.reported = 0;
}

/* Without a configuration a wrong key is a mistake; with one, nothing that somebody else at a manager's address says ends it. */
static void cm_refused(struct control *control, int error)
{
    if (error == ROWAN_ELOGIN && !control_config_known(control)) {
        server_fail(control->common, error,
                    "the configuration manager has another cluster key, or none: give it and all "
                    "servers the same (cluster-key)");
        return;
    }
    fabric_conn_close(control->cm_conn);
    leave_cm(control, "cm_login_failed", error);
}

static void cm_begin(struct control *control)
{
    const int error =
        login_begin(&control->cm_login, control->options->cluster_key, control->cm_conn);
    if (error)
        cm_refused(control, error);
}

/* Until it has shown that it has the key, too, nothing it says counts. */
static void cm_log_in(struct control *control, const Rowan__ControlMessage *message)
{
    int error = 0;
    const enum login_step step = login_go_on(&control->cm_login, control->options->cluster_key,
                                             control->cm_conn, message, &error);
    if (step == LOGIN_DONE)
        cm_reached(control);
    else if (step == LOGIN_FAILED)
        cm_refused(control, error);
}

static void cm_message(struct control *control, const struct fabric_event *event)
{
    Rowan__ControlMessage *message;
    uint32_t tag;
    int error = control_decode(event->data, event->bytes, &tag, &message);
    fabric_message_release(event->conn, event->message);
    control->cm_heard_ns = control->now_ns;
    if (control->cm_leads)
        control->cm_led_ns = control->now_ns;
    if (error) {
        log_event(LOG_WARN, "cm_garbage", "error=%s", error_name(error));
        return;
    }
    if (!control->cm_connected)
        cm_log_in(control, message);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FAILURE)
        apply_failure(control, tag, message->failure);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_CONFIGURATION_IS)
        apply_configuration_is(control, tag, message->configuration_is);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_COMMITTED)
        control_adopt_committed(control, message->committed->term);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_LEASE_IS)
        control_lease_is(control, tag, message->lease_is);
    else {
        note_unknown(control, "a message that this version does not know", ROWAN_EUNSUPPORTED);
        (void)control_failure_send(control->cm_conn, tag, ROWAN_EUNSUPPORTED);
    }
    control_free(message);
}

void control_config_event(struct control *control, const struct fabric_event *event)
{
    if (event->kind == FABRIC_CONNECTED && control->options->cluster_key) {
        cm_begin(control);
    } else if (event->kind == FABRIC_CONNECTED) {
        cm_reached(control);
    } else if (event->kind == FABRIC_CLOSED) {
        leave_cm(control, control->cm_connected ? "cm_lost" : "cm_connect_failed", event->error);
    } else if (event->kind == FABRIC_MESSAGE) {
        cm_message(control, event);
    }
}
