/* The server's lease: it asks the manager for one, several times in the length of one, and says until when this server may
 * answer clients (server/common.h, lease_ns). Workers look at that before their answers leave (worker.c, W13).
 *
 * Invariants:
 *  J1  A lease is over here before the manager takes it for over. Here it lasts 13/16 of its length, counted from before
 *      the renewal was sent; there its length, 2^-8 of that and 1 ms, counted from when the renewal arrived. So the
 *      manager's clock may run 1.0039 / 0.8125 = 1.2356 times as fast as this one. Linux lets two clocks differ by less:
 *      adjtimex(2) takes 10 % for the length of a tick and 500 ppm for the frequency, either way, which makes
 *      1.1005 / 0.8995 = 1.2235; the rest is for the oscillators. Both clocks count through suspend (common/base/clock.h).
 *  J2  Only the manager that the newest configuration names grants, and only its time is brought back to it: so for another
 *      one this server is not present from the moment that it knows of that configuration.
 *  J3  What was granted before holds until its end: a new manager waits for that.
 *  J9  A member that had no grant for six leases at one manager goes on to the next, whatever it hears there; one that was just
 *      named has before that what it may need. A connection to it that broke, or was silent, begins no new count. At the next
 *      manager it says how long it has been without a grant (cm/claim.h). As that may make another one lead, it goes round among
 *      the others for two leases before it comes back.
 *  J10 Who was not granted one asks again soon: a new manager, and one that waited for a member, needs a sign of everybody,
 *      brought back, before it grants anybody any.
 *  J8  A server that is asked to stop serves on until its last lease is over, if it has one, and renews it no more. Then it says
 *      that it leaves, also if others do, and nobody is granted a lease (cm/manage.c, M8): the manager need not wait to find it
 *      silent, and its backups take over as in a failover. It backs shards until it is removed: so nobody waits for it. It ends
 *      when it is removed, or nobody is there to do that, or in time; and at once when it is granted a lease nevertheless: an
 *      older manager does not know of that, and finds it silent the sooner.
 */
#include "common/base/fault.h"
#include "common/base/log.h"
#include "server/control/control_state.h"

enum { LEASE_PARTS = 16, LEASE_PARTS_HERE = 13, LEASE_RENEW = 4, LEASES_TO_LEAVE = 4 };

#define LEASE_SOON_NS (2 * NS_PER_MS) /* J10, at least: on verbs a sixteenth is less */

static uint64_t lease_length_ns(const struct cluster_config *config)
{
    return config->lease_ms * NS_PER_MS;
}

static uint64_t granted_until_ns(const struct control *control)
{
    return atomic_load_explicit(&control->common->lease_ns, memory_order_relaxed);
}

static void set_until(struct control *control, uint64_t until_ns)
{
    atomic_store_explicit(&control->common->lease_ns, until_ns, memory_order_relaxed);
}

static void tell_change(struct control *control, uint64_t term, uint64_t *wake_ns)
{
    struct lease *lease = &control->lease;
    const bool holds = control->now_ns < granted_until_ns(control);
    if (holds)
        wake_at(wake_ns, granted_until_ns(control));
    if (holds == lease->holds)
        return;
    const uint64_t ms = (control->now_ns - lease->since_ns) / NS_PER_MS;
    if (holds)
        log_event(LOG_INFO, "lease_granted", "term=%lu without_ms=%lu", term, ms);
    else
        log_event(LOG_WARN, "lease_lost", "term=%lu held_ms=%lu", term, ms);
    lease->holds = holds;
    lease->since_ns = control->now_ns;
    /* A write for whose refusal a client had no room needs none to begin. */
    for (uint32_t i = 0; holds && i < control->options->workers; i++)
        inbox_wake(&worker_role(control->workers[i])->inbox);
}

/* Servers to which sends of some worker stay incomplete. */
static uint32_t list_incomplete(const struct control *control,
                                uint32_t servers[CLUSTER_MAX_MEMBERS])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < control->options->workers * CLUSTER_MAX_MEMBERS; i++) {
        const uint32_t server =
            worker_incomplete(control->workers[i / CLUSTER_MAX_MEMBERS], i % CLUSTER_MAX_MEMBERS);
        bool listed = server == 0 || count == CLUSTER_MAX_MEMBERS;
        for (uint32_t k = 0; k < count; k++)
            listed = listed || servers[k] == server;
        if (!listed)
            servers[count++] = server;
    }
    return count;
}

/* One that is lost on its way is followed by the next. */
static void renew(struct control *control, const struct cluster_config *config)
{
    struct lease *lease = &control->lease;
    Rowan__Renew body = ROWAN__RENEW__INIT;
    uint32_t incomplete[CLUSTER_MAX_MEMBERS];
    body.term = config->term;
    body.incomplete = incomplete;
    body.n_incomplete = list_incomplete(control, incomplete);
    body.manager = config->manager;
    body.manager_ns = lease->manager == config->manager ? lease->manager_ns : 0; /* J2 */
    lease->sent_ns[++lease->tag % LEASE_RENEWALS] = control->now_ns;             /* J1: not later */
    lease->renew_ns = control->now_ns + lease_length_ns(config) / LEASE_RENEW;
    body.leaves = lease->leaves_ns > 0;
    (void)control_message_send(control->cm_conn, lease->tag, &CONTROL_MESSAGE(RENEW, renew, &body));
    if (FAULT(NEWS))
        (void)control_message_send(control->cm_conn, lease->tag,
                                   &(Rowan__ControlMessage)ROWAN__CONTROL_MESSAGE__INIT);
}

/* J8. Is it still to be waited for? */
static bool is_missed(const struct control *control, const struct cluster_config *config)
{
    uint32_t others = 0;
    for (uint32_t i = 0; config && i < config->member_count; i++)
        others += !config->members[i].kept && config->members[i].server != control->common->server;
    return others > 0 && control->now_ns < control->lease.leaves_ns;
}

/* J8. True: the last lease still runs. */
static bool leave(struct control *control, uint64_t *wake_ns)
{
    struct lease *lease = &control->lease;
    const uint64_t granted_ns = granted_until_ns(control), now_ns = control->now_ns;
    const bool holds = granted_ns != UINT64_MAX && now_ns < granted_ns;
    const struct cluster_config *config = control_config_known(control);
    if (lease->leaves_ns == 0) {
        log_event(LOG_INFO, "stopping", "lease_ms=%lu", control_lease_left_ms(control));
        lease->leaves_ns = now_ns + control->options->stop_timeout_ns;
    }
    if (config && !holds && !lease->left) {
        const uint64_t end_ns = now_ns + LEASES_TO_LEAVE * lease_length_ns(config);
        lease->leaves_ns = end_ns < lease->leaves_ns ? end_ns : lease->leaves_ns;
        lease->renew_ns = now_ns;
        lease->left = true;
        lease->left_tag = lease->tag + 1;
    }
    if (!is_missed(control, config))
        server_end(control->common);
    wake_at(wake_ns, holds && granted_ns < lease->leaves_ns ? granted_ns : lease->leaves_ns);
    return holds;
}

void control_lease_poll(struct control *control, uint64_t *wake_ns)
{
    const struct cluster_config *config = control_config_known(control);
    if (control->lease.since_ns == 0)
        control->lease.since_ns = control->now_ns;
    if (atomic_load_explicit(&control->common->stop, memory_order_relaxed) &&
        leave(control, wake_ns))
        return;
    if (!config)
        return;
    struct lease *lease = &control->lease;
    if (config->manager != lease->named || (lease->left_term && config->term > lease->left_term)) {
        lease->named =
            config->manager; /* or it is named again, and we did not hear of the one between */
        lease->named_ns = control->now_ns;
        lease->left_term = 0;
    }
    const bool has_leases = config->lease_ms > 0;
    if (has_leases == (granted_until_ns(control) == UINT64_MAX))
        set_until(control, has_leases ? 0 : UINT64_MAX);
    if (!has_leases)
        return;
    tell_change(control, config->term, wake_ns);
    if (!control->cm_connected || !control->cm_leads)
        return;
    if (control->now_ns >= control->lease.renew_ns)
        renew(control, config);
    wake_at(wake_ns, control->lease.renew_ns);
}

uint64_t control_lease_without_ms(const struct control *control)
{
    const uint64_t since_ns = control->config
                                  ? clock_latest(control->lease.grant_ns, control->lease.named_ns)
                                  : control->cm_led_ns;
    return (control->now_ns - since_ns) / NS_PER_MS;
}

uint64_t control_lease_patience_ns(const struct control *control)
{
    const struct cluster_config *config = control->config ? control_config_known(control) : NULL;
    if (!config || !config->lease_ms || control->lease.leaves_ns)
        return WAKE_NEVER;
    const uint64_t lease_ns = lease_length_ns(config);
    const struct lease *lease = &control->lease;
    const uint64_t here_ns =
        lease->granter == control->managers.current + 1 ? 0 : control->cm_begun_ns;
    const uint64_t least_ns = control->cm_begun_ns + lease_ns; /* what an answer may take */
    return clock_latest(least_ns,
                        MANAGERS_LEASES * lease_ns +
                            clock_latest(clock_latest(here_ns, lease->grant_ns),
                                         lease->named_ns + managers_takeover_ns(lease_ns)));
}

uint64_t control_lease_left_ms(const struct control *control)
{
    const uint64_t until_ns = granted_until_ns(control);
    return until_ns == UINT64_MAX || control->now_ns >= until_ns
               ? 0
               : (until_ns - control->now_ns + NS_PER_MS - 1) / NS_PER_MS;
}

void control_lease_is(struct control *control, uint32_t tag, const Rowan__LeaseIs *is)
{
    struct lease *lease = &control->lease;
    const struct cluster_config *config = control_config_known(control);
    if (!config || is->manager != config->manager) /* J2 */
        return;
    const uint64_t part_ns = lease_length_ns(config) / LEASE_PARTS;
    const uint64_t soon_ns = control->now_ns + (part_ns > LEASE_SOON_NS ? part_ns : LEASE_SOON_NS);
    lease->manager = is->manager;
    lease->manager_ns = is->manager_ns;
    if (!is->granted && soon_ns < lease->renew_ns)
        lease->renew_ns = soon_ns;                                            /* J10 */
    if (is->granted && lease->left && tag - lease->left_tag < LEASE_RENEWALS) /* J8 */
        server_end(control->common);
    if (!is->granted || lease->leaves_ns || lease->tag - tag >= LEASE_RENEWALS)
        return;
    lease->grant_ns = control->now_ns;
    lease->granter = control->managers.current + 1;
    const uint64_t granted_ns = lease->sent_ns[tag % LEASE_RENEWALS] +
                                lease_length_ns(config) / LEASE_PARTS * LEASE_PARTS_HERE;
    if (granted_ns > granted_until_ns(control))
        set_until(control, granted_ns);
}
