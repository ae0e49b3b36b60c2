/* lease.c - see lease.h.
 *
 * Invariants:
 *  L1 No time in an entry promises more than the clock that was read after the message: answered_ns and granted_ns are set by
 *     leases_tick alone, or by who ticked in the same step.
 *  L2 over_ns covers each grant of this manager to a server that is no member any more, or a kept one. What it does not
 *     cover, grants of others, is over when a new manager commits for the first time.
 *  L3 Who joins has had no lease: of another manager, as that one never knew it, or of this one, which grants it none. It holds nothing
 *     that could be served. So nobody waits for it, and its word counts for nothing, until it has adopted a configuration.
 *  L4 Whoever holds a shard, and comes when this manager has committed already, may have gone on renewing with the former one until
 *     then, if its server never answered this one: the commit waits for two of the longest leases, as the first one does.
 *  L5 One sick member takes everybody's lease, each time that it has no sign for one. A spell is that, if it is not this manager's
 *     (L6). One that has more than LEASE_SPELLS of them is silent as soon as that is so, and once removed waits longer after each
 *     before it is added again. One that is kept waits, too, but never longer than after LEASE_SPELLS: shards wait for it.
 *  L6 A member is silent only while all others that renew were present without a break for a lease since its last sign: they may have
 *     had the same trouble. Of one that said goodbye, or does not adopt, no last sign counts. So who is removed for silence was last
 *     heard at least a lease before who stays. One that limps is never steady, and its breaks may be too short for spells: after
 *     LEASE_STEADY_WITHIN it is enough to renew, or it would keep a dead one, and nobody would have a lease.
 */
#include "cm/lease.h"

#include <string.h>

#include "common/base/assert.h"

uint64_t lease_longest_ns(uint64_t lease_ns)
{
    return lease_ns + (lease_ns >> 8) + NS_PER_MS;
}

static struct lease *find(struct lease *entries, uint32_t count, uint32_t server)
{
    for (uint32_t i = 0; i < count; i++) {
        if (entries[i].server == server)
            return &entries[i];
    }
    return NULL;
}

struct lease *leases_of(struct leases *leases, uint32_t server)
{
    return find(leases->entries, leases->count, server);
}

static bool stays(const struct cluster_config *config, const struct lease *lease)
{
    const struct member *member = cluster_member(config, lease->server);
    return member && !member->kept && member->incarnation == lease->incarnation;
}

/* L2: of those that leave. */
static void let_go(struct leases *leases, const struct cluster_config *config)
{
    for (uint32_t i = 0; i < leases->count; i++) {
        const struct lease *lease = &leases->entries[i];
        if (stays(config, lease))
            continue;
        if (lease->granted_ns)
            leases->over_ns = clock_latest(leases->over_ns,
                                           lease->granted_ns + lease_longest_ns(leases->lease_ns));
        if (lease->present_ns && (!leases->begun_ns || lease->present_ns < leases->begun_ns))
            leases->begun_ns = lease->present_ns;
    }
}

static bool is_named(const struct cluster_config *config, uint32_t server)
{
    bool named = false;
    for (uint32_t i = 0; i < config->shard_count && !named; i++)
        named = shard_names(&config->shards[i], server);
    return named;
}

void leases_follow(struct leases *leases, const struct cluster_config *config, uint64_t manager,
                   uint64_t asked_ns, uint64_t now_ns)
{
    const bool manages = config->lease_ms && config->manager == manager, managed = leases->managing;
    if (!manages || !managed)
        memset(leases, 0, offsetof(struct leases, past));
    if (!manages)
        return;
    if (!managed) {
        leases->managing = true;
        leases->lease_ns = config->lease_ms * NS_PER_MS;
        leases->first_ns = leases->watched_ns = now_ns;
        leases->first_term = config->term;
    }
    let_go(leases, config);
    struct lease before[CLUSTER_MAX_MEMBERS];
    const uint32_t before_count = leases->count;
    memcpy(before, leases->entries, sizeof before);
    leases->count = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct member *member = &config->members[i];
        if (member->kept)
            continue;
        const struct lease *known = find(before, before_count, member->server);
        struct lease *lease = &leases->entries[leases->count++];
        *lease = known && stays(config, known)
                     ? *known
                     : (struct lease){.server = member->server,
                                      .incarnation = member->incarnation,
                                      .since_ns = now_ns,
                                      .joins = managed && !known,
                                      .returns = managed && is_named(config, member->server) &&
                                                 leases->past[member->server].answered_ns <
                                                     leases->first_ns, /* L4 */
                                      .present_ns = managed && !known ? asked_ns : 0,
                                      .steady_ns = asked_ns};
        lease->joins = lease->joins && !is_named(config, member->server); /* L3 */
        if (!lease->behind_ns)
            lease->behind_ns = now_ns;
    }
    leases->term = config->term;
    if (!leases->begun_ns)
        leases->begun_ns = now_ns;
}

void leases_pass(struct leases *leases, uint64_t before_ns, uint64_t now_ns)
{
    if (leases->managing && now_ns - before_ns > leases->lease_ns)
        leases->watched_ns = now_ns;
}

bool leases_renews(const struct leases *leases, const struct lease *lease, uint64_t now_ns)
{
    return !lease->left && lease->present_ns && now_ns - lease->present_ns <= leases->lease_ns;
}

/* L6. `any`: there are others. */
static bool others_are_steady(const struct leases *leases, const struct lease *lease,
                              uint64_t since_ns, uint64_t now_ns, bool *any)
{
    bool all = true;
    *any = false;
    for (uint32_t i = 0; i < leases->count && all; i++) {
        const struct lease *other = &leases->entries[i];
        if (other == lease || other->joins || !leases_renews(leases, other, now_ns))
            continue;
        *any = true;
        all = other->present_ns >= clock_latest(other->steady_ns, since_ns) + leases->lease_ns;
    }
    return all;
}

static void note_spell(struct leases *leases, struct lease *lease, uint64_t now_ns)
{
    bool any;
    bool lapsed = false;
    if (lease->present_ns && !lease->left)
        lapsed =
            others_are_steady(leases, lease, clock_latest(lease->present_ns, leases->watched_ns),
                              now_ns, &any) &&
            any;
    if (lapsed && !lease->lapsed) {
        struct lease_past *past = &leases->past[lease->server];
        const bool well = now_ns - clock_latest(past->spell_ns, lease->since_ns) >=
                          LEASE_STEADY_AFTER * leases->lease_ns;
        past->spells = well ? 1 : past->spells + 1;
        past->spell_ns = now_ns;
    }
    lease->lapsed = lapsed;
}

uint64_t leases_waits_until(const struct leases *leases, uint32_t server, bool kept)
{
    const uint32_t spells = leases->past[server].spells;
    const uint32_t count = kept && spells > LEASE_SPELLS ? LEASE_SPELLS : spells;
    uint64_t wait_ns = LEASE_STEADY_AFTER * leases->lease_ns;
    if (count < LEASE_SPELLS)
        return 0;
    if (count < 7 && leases->lease_ns << count < wait_ns)
        wait_ns = leases->lease_ns << count;
    if (wait_ns > LEASE_WAIT_MAX_NS)
        wait_ns = LEASE_WAIT_MAX_NS;
    return leases->past[server].spell_ns + wait_ns;
}

void leases_tick(struct leases *leases, uint64_t now_ns)
{
    leases->ticked_ns = now_ns;
    for (uint32_t i = 0; i < leases->count; i++) {
        struct lease *lease = &leases->entries[i];
        if (lease->answered && !lease->answered_ns)
            lease->answered_ns = now_ns; /* L1 */
        if (lease->answered)
            leases->past[lease->server].answered_ns = now_ns;
        note_spell(leases, lease, now_ns);
    }
}

/* One that knows no configuration of this manager yet may go on renewing with the one before. */
static void note_answer(const struct leases *leases, struct lease *lease, uint64_t term)
{
    lease->answered = lease->answered || term >= leases->first_term;
}

void leases_renewed(struct leases *leases, struct lease *lease, uint64_t term, uint64_t present_ns,
                    uint64_t now_ns)
{
    note_answer(leases, lease, term);
    if (present_ns < leases->first_ns || present_ns > now_ns || present_ns <= lease->present_ns)
        return;
    if (!lease->present_ns || now_ns - lease->present_ns > leases->lease_ns)
        lease->steady_ns = present_ns;
    lease->present_ns = present_ns;
}

bool leases_are_cut(const struct leases *leases, uint32_t from, uint32_t to)
{
    bool cut = false;
    for (uint32_t i = 0; i < leases->count; i++) {
        const struct lease *lease = &leases->entries[i];
        for (uint32_t k = 0; lease->server == from && k < lease->cut_count; k++)
            cut = cut || lease->cut[k] == to;
    }
    return cut;
}

void leases_adopted(struct leases *leases, struct lease *lease, uint64_t term, uint64_t now_ns)
{
    note_answer(leases, lease, term);
    if (term <= lease->adopted)
        return;
    lease->serves = true;
    lease->joins = false;
    lease->adopted = term;
    lease->behind_ns = term >= leases->term ? 0 : now_ns;
}

void leases_opens(struct lease *lease, const struct cluster_config *config)
{
    lease->joins = lease->joins || (!lease->serves && lease->adopted == 0 &&
                                    !is_named(config, lease->server)); /* L3 */
}

void leases_serves(struct lease *lease, uint64_t now_ns)
{
    if (!lease->serves && lease->behind_ns)
        lease->behind_ns = now_ns;
    lease->serves = true;
}

/* From then on there was no sign of it for too long, if nothing comes. */
static uint64_t no_word_at(const struct leases *leases, const struct lease *lease)
{
    const uint64_t watched_ns = clock_latest(lease->since_ns, leases->watched_ns);
    if (lease->present_ns)
        return clock_latest(lease->present_ns, watched_ns) + LEASE_SILENT_AFTER * leases->lease_ns;
    return watched_ns + lease_first_word_ns(leases->lease_ns);
}

/* From then on it should have adopted. */
static uint64_t late_at(const struct leases *leases, const struct lease *lease)
{
    if (!lease->serves || !lease->behind_ns)
        return UINT64_MAX;
    return clock_latest(lease->behind_ns, leases->watched_ns) +
           LEASE_ADOPTS_WITHIN * leases->lease_ns;
}

static uint64_t silent_at(const struct leases *leases, const struct lease *lease)
{
    if (lease->left)
        return 0;
    const uint64_t no_word_ns = no_word_at(leases, lease), late_ns = late_at(leases, lease);
    return no_word_ns < late_ns ? no_word_ns : late_ns;
}

bool leases_is_late(const struct leases *leases, const struct lease *lease, uint64_t now_ns)
{
    return now_ns < no_word_at(leases, lease) && now_ns >= late_at(leases, lease);
}

void leases_watch_anew(struct leases *leases, uint64_t now_ns)
{
    leases->watched_ns = now_ns;
    for (uint32_t i = 0; i < leases->count; i++) {
        leases->entries[i].present_ns = 0;
        leases->entries[i].since_ns = now_ns;
        leases->entries[i].serves = false; /* until it says so again */
    }
}

enum lease_presence leases_presence(const struct leases *leases, const struct lease *lease,
                                    uint64_t now_ns)
{
    const bool renews = leases_renews(leases, lease, now_ns),
               unsteady = leases->past[lease->server].spells > LEASE_SPELLS; /* L5 */
    const uint64_t since_ns = lease->left || renews ? 0 : lease->present_ns,
                   silent_ns = silent_at(leases, lease),
                   gone_ns =
                       lease->left ? clock_latest(lease->present_ns, lease->since_ns) : silent_ns;
    bool any;
    if ((now_ns >= silent_ns || (lease->lapsed && unsteady && !renews)) &&
        (others_are_steady(leases, lease, since_ns, now_ns, &any) ||
         now_ns >= gone_ns + LEASE_STEADY_WITHIN * leases->lease_ns))
        return LEASE_SILENT;
    return renews ? LEASE_PRESENT : LEASE_UNSURE;
}

bool leases_may_grant(const struct leases *leases, uint64_t now_ns)
{
    for (uint32_t i = 0; i < leases->count; i++) {
        const struct lease *lease = &leases->entries[i];
        if (!lease->joins && leases_presence(leases, lease, now_ns) != LEASE_PRESENT)
            return false;
    }
    return leases->managing;
}

uint64_t leases_commit_at(const struct leases *leases)
{
    if (!leases->managing || leases->committed == leases->term)
        return 0;
    const uint64_t two_ns = 2 * lease_longest_ns(leases->lease_ns);
    uint64_t at = leases->committed ? leases->over_ns
                                    : clock_latest(leases->over_ns, leases->first_ns + two_ns);
    for (uint32_t i = 0; i < leases->count; i++) {
        const struct lease *lease = &leases->entries[i];
        if (lease->joins)
            continue;
        if (lease->adopted < leases->term || !lease->answered_ns)
            return UINT64_MAX;
        if (!leases->committed || lease->returns)
            at = clock_latest(at, lease->answered_ns + two_ns);
    }
    return clock_latest(at, 1);
}

bool leases_is_committed(const struct leases *leases)
{
    return leases->managing && leases->committed == leases->term;
}

void leases_committed(struct leases *leases)
{
    ASSERT(leases->committed < leases->term);
    leases->committed = leases->term;
    leases->begun_ns = 0;
}

uint64_t leases_wake(const struct leases *leases, uint64_t now_ns)
{
    uint64_t at = leases->ticked_ns + leases->lease_ns / 4;
    for (uint32_t i = 0; i < leases->count; i++) {
        const struct lease *lease = &leases->entries[i];
        const uint64_t silent_ns = silent_at(leases, lease);
        if (lease->answered && !lease->answered_ns)
            return now_ns;
        if (silent_ns > now_ns && silent_ns < at)
            at = silent_ns;
    }
    const uint64_t commit_ns = leases_commit_at(leases);
    return commit_ns > now_ns && commit_ns < at ? commit_ns : at;
}
