/* shm_grant.c - grants of a landing zone's memory, the owner's side; the writer's is in shm_write.c.
 *
 *   G1 grant: place and writer, then state (g, GRANTED), g being a number that the place in the table never had.
 *   G2 The writer makes (g, GRANTED) to (g, BUSY). Whoever cannot has no grant: its connection ends.
 *   G3 It looks where it may write, stores, starts a fence, and makes (g, BUSY) to (g, GRANTED). If it is (g,
 *      REVOKING) by now: to (g, VOID), and its connection ends.
 *   G4 revoke: (g, GRANTED) to (g, VOID): REVOKED. Or (g, BUSY) to (g, REVOKING): REVOKED comes with (g, VOID), or
 *   G5 when the writer's connection has ended and its process has closed its end of the socket, which it does when
 *      it stores no more, or is dead (shm_zone.c, 4).
 *
 * 1. All changes of the word are compare-and-sets with the grant's own number: a writer that was stopped before G2,
 *    and wakes when the place in the table was granted again, changes and stores nothing.
 * 2. What the word says is believed only as far as it concerns the writer itself: who writes nonsense there waits
 *    for G5, and holds up nobody else's grants.
 *
 *   FREE -- shm_grant --> LIVE -- G4 --> OVER -- REVOKED --> FREE
 *                            \-- G4 --> ENDING -- G3, G5 --> OVER
 */
#include "common/base/error.h"
#include "common/fabric/shm/shm.h"

static struct zone_grant *word_of(const struct shm_zone *zone, uint32_t index)
{
    return &shm_zone_control(zone)->grants[index];
}

static void set_over(struct shm_grants *grants, struct shm_grant *grant)
{
    grant->state = GRANT_OVER;
    grants->over++;
}

int shm_grant(struct fabric_conn *base, uint64_t offset, uint64_t bytes, uint64_t context,
              struct fabric_grant *out)
{
    const struct shm_conn *conn = (const struct shm_conn *)base;
    struct shm_zone *zone = conn->endpoint->zone;
    struct shm_grants *grants;
    struct zone_grant *word;
    uint32_t i = 0;

    if (conn->state >= CONN_BREAKING)
        return ROWAN_ECLOSED;
    if (!zone || conn->zone_member < 0 || bytes == 0 || bytes % FABRIC_STRIDE != 0 ||
        offset % FABRIC_STRIDE != 0 || offset > shm_zone_pm(zone)->bytes ||
        bytes > shm_zone_pm(zone)->bytes - offset)
        return ROWAN_EINVALID;
    grants = shm_zone_grants(zone);
    while (i < FABRIC_MAX_GRANTS && grants->all[i].state != GRANT_FREE)
        i++;
    if (i == FABRIC_MAX_GRANTS)
        return ROWAN_ETOOMANY;
    grants->all[i].state = GRANT_LIVE;
    grants->all[i].member = conn->zone_member;
    grants->all[i].generation++;
    grants->all[i].context = context;
    word = word_of(zone, i);
    atomic_store_explicit(&word->offset, offset, memory_order_relaxed);
    atomic_store_explicit(&word->bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&word->sender, (uint64_t)conn->zone_member, memory_order_relaxed);
    atomic_exchange_explicit(&word->state, grant_pack(grants->all[i].generation, GRANT_GRANTED),
                             memory_order_seq_cst); /* G1 */
    *out = (struct fabric_grant){.words = {i, grants->all[i].generation, bytes}};
    return 0;
}

/* G4 */
static void end_grant(struct shm_zone *zone, uint32_t index)
{
    struct shm_grants *grants = shm_zone_grants(zone);
    struct shm_grant *grant = &grants->all[index];
    _Atomic uint64_t *state = &word_of(zone, index)->state;
    uint64_t before = grant_pack(grant->generation, GRANT_GRANTED);

    while (before == grant_pack(grant->generation, GRANT_GRANTED) ||
           before == grant_pack(grant->generation, GRANT_BUSY)) {
        const enum grant_word to =
            before == grant_pack(grant->generation, GRANT_GRANTED) ? GRANT_VOID : GRANT_REVOKING;

        if (!atomic_compare_exchange_weak_explicit(state, &before,
                                                   grant_pack(grant->generation, to),
                                                   memory_order_seq_cst, memory_order_seq_cst))
            continue;
        if (to == GRANT_VOID) {
            set_over(grants, grant);
            return;
        }
        break;
    }
    grant->state = GRANT_ENDING; /* 2, too */
    grants->ending++;
}

void shm_revoke(struct fabric_conn *base, const struct fabric_grant *words)
{
    const struct shm_conn *conn = (const struct shm_conn *)base;
    struct shm_zone *zone = conn->endpoint->zone;
    const uint64_t index = words->words[0];
    const struct shm_grant *grant;

    if (!zone || index >= FABRIC_MAX_GRANTS)
        return;
    grant = &shm_zone_grants(zone)->all[index];
    if (grant->state == GRANT_LIVE && grant->generation == words->words[1])
        end_grant(zone, (uint32_t)index);
}

void shm_grants_leave(struct shm_zone *zone, int member)
{
    struct shm_grants *grants = shm_zone_grants(zone);

    for (uint32_t i = 0; i < FABRIC_MAX_GRANTS; i++) {
        if (grants->all[i].state == GRANT_LIVE && grants->all[i].member == member)
            end_grant(zone, i);
    }
}

/* G5 */
void shm_grants_desert(struct shm_zone *zone, int member)
{
    struct shm_grants *grants = shm_zone_grants(zone);

    for (uint32_t i = 0; i < FABRIC_MAX_GRANTS && grants->ending > 0; i++) {
        if (grants->all[i].state == GRANT_ENDING && grants->all[i].member == member) {
            grants->ending--;
            set_over(grants, &grants->all[i]);
        }
    }
}

unsigned shm_grants_poll(struct shm_zone *zone, struct fabric_event *events, unsigned max)
{
    struct shm_grants *grants = shm_zone_grants(zone);
    unsigned count = 0;

    for (uint32_t i = 0; i < FABRIC_MAX_GRANTS; i++) {
        struct shm_grant *grant = &grants->all[i];

        if (grant->state == GRANT_ENDING &&
            atomic_load_explicit(&word_of(zone, i)->state, memory_order_seq_cst) ==
                grant_pack(grant->generation, GRANT_VOID)) {
            grants->ending--;
            set_over(grants, grant);
        }
        if (grant->state == GRANT_OVER && count < max) {
            events[count++] =
                (struct fabric_event){.kind = FABRIC_REVOKED, .context = grant->context};
            grant->state = GRANT_FREE;
            grants->over--;
        }
    }
    return count;
}
