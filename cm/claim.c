/* claim.c - see claim.h. */
#include "cm/claim.h"

#include "cm/lease.h"
#include "common/cluster/managers.h"

enum { CLAIM_GONE_LEASES = 2, MOST_DOUBLINGS = 8 };

static void forget_words(struct claim *claim)
{
    for (uint32_t i = 0; i <= CLUSTER_MAX_SERVER; i++)
        claim->servers[i] = (struct claim_word){0};
}

void claim_follow(struct claim *claim, const struct cluster_config *config, uint64_t now_ns)
{
    if (config->manager == claim->manager)
        return;
    forget_words(claim); /* they were about the one before */
    claim->changed = claim->manager != 0;
    claim->manager = config->manager;
    claim->manager_ns = now_ns;
}

/* claim-2 */
static bool speaks_for(const struct cluster_config *config, const struct cm_join *join)
{
    const struct member *member = cluster_member(config, join->server);
    if (!member || member->incarnation == join->incarnation)
        return member != NULL;
    return !join->named && (join->data_cluster == config->cluster ||
                            (join->data_cluster == 0 && cluster_is_unwritten(config)));
}

/* claim-4. Up to a sixteenth of the longest lease for the first try, twice as much for the second and so on: of two that try at
 * once only one is stored, and nothing is lost but the other one's try. */
static uint64_t extra_ns(const struct claim *claim, uint64_t longest_ns, uint64_t incarnation)
{
    const uint64_t drawn = (incarnation + claim->tries) * UINT64_C(0x9e3779b97f4a7c15) >> 44;
    const uint32_t doublings = claim->tries < MOST_DOUBLINGS ? claim->tries : MOST_DOUBLINGS;
    return ((longest_ns << doublings) >> 12) * drawn >> 12;
}

bool claim_told(struct claim *claim, const struct cluster_config *config, uint64_t incarnation,
                const struct cm_join *join, uint64_t now_ns)
{
    struct claim_word *word = &claim->servers[join->server];
    const uint64_t longest_ns = lease_longest_ns(config->lease_ms * NS_PER_MS);
    const uint64_t most_ms = now_ns / NS_PER_MS;
    const uint64_t ms = join->without_ms < most_ms ? join->without_ms : most_ms;
    uint64_t since_ns = now_ns - ms * NS_PER_MS;
    const bool speaks = speaks_for(config, join);
    *word = (struct claim_word){0};
    /* Who knows a later configuration has another manager, perhaps, which this one has not read yet. */
    if (!speaks || join_knows_better(join, config))
        return speaks;
    const uint64_t wait_ns =
        (join->nobody_leads ? CLAIM_GONE_LEASES : MANAGERS_LEASES) * longest_ns;
    const uint64_t needs_ns =
        join->nobody_leads ? MANAGERS_STORE_NS : managers_takeover_ns(longest_ns);
    if (claim->changed)
        since_ns = clock_latest(since_ns, claim->manager_ns + needs_ns);
    since_ns = clock_latest(since_ns, claim->try_ns);
    *word = (struct claim_word){
        .told_ns = now_ns, .due_ns = since_ns + wait_ns + extra_ns(claim, longest_ns, incarnation)};
    return true;
}

bool claim_is_due(const struct claim *claim, const struct cluster_config *config, uint64_t now_ns)
{
    bool due = false;
    for (uint32_t i = 0; config->lease_ms > 0 && i < config->member_count; i++) {
        const struct claim_word *word = &claim->servers[config->members[i].server];
        due = due || (word->told_ns > 0 && now_ns >= word->due_ns &&
                      now_ns - word->told_ns <=
                          lease_longest_ns(config->lease_ms * NS_PER_MS)); /* claim-3 */
    }
    return due;
}

uint64_t claim_wake_ns(const struct claim *claim, const struct cluster_config *config,
                       uint64_t now_ns)
{
    uint64_t at_ns = UINT64_MAX;
    for (uint32_t i = 0; config->lease_ms > 0 && i < config->member_count; i++) {
        const struct claim_word *word = &claim->servers[config->members[i].server];
        const uint64_t until_ns = word->told_ns + lease_longest_ns(config->lease_ms * NS_PER_MS);
        if (word->told_ns && word->due_ns > now_ns && word->due_ns <= until_ns &&
            word->due_ns < at_ns)
            at_ns = word->due_ns;
    }
    return at_ns;
}

void claim_tried(struct claim *claim, uint64_t now_ns)
{
    claim->try_ns = now_ns;
    claim->tries += claim->tries < UINT8_MAX;
    forget_words(claim); /* they count from this try on */
}
