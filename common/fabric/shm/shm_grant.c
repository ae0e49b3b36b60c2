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
 **/
#include "common/fabric/shm/shm.h"

static struct zone_grant *word_of(const struct endpoint *endpoint, const struct grant *grant)
{
    struct zone_control *control = ((const struct shm_endpoint *)endpoint)->zone->control;

    return &control->grants[grants_index(grant->key)];
}

int shm_give(struct conn *base, struct grant *grant, struct fabric_grant *words)
{
    const struct shm_conn *conn = (const struct shm_conn *)base;
    struct zone_grant *word = word_of(&conn->endpoint->base, grant);

    (void)words;
    grant->member = (uint32_t)conn->zone_member;
    atomic_store_explicit(&word->offset, grant->offset, memory_order_relaxed);
    atomic_store_explicit(&word->bytes, grant->bytes, memory_order_relaxed);
    atomic_store_explicit(&word->sender, grant->member, memory_order_relaxed);
    atomic_exchange_explicit(&word->state, grant_pack(grant->uses, GRANT_GRANTED),
                             memory_order_seq_cst); /* G1 */
    return 0;
}

/* G4 */
bool shm_take_back(struct endpoint *endpoint, struct grant *grant)
{
    _Atomic uint64_t *state = &word_of(endpoint, grant)->state;
    const uint64_t granted = grant_pack(grant->uses, GRANT_GRANTED);
    const uint64_t over = grant_pack(grant->uses, GRANT_VOID);
    uint64_t before = atomic_load_explicit(state, memory_order_seq_cst);

    while (before == granted || before == grant_pack(grant->uses, GRANT_BUSY)) {
        const uint64_t to = before == granted ? over : grant_pack(grant->uses, GRANT_REVOKING);

        if (atomic_compare_exchange_weak_explicit(state, &before, to, memory_order_seq_cst,
                                                  memory_order_seq_cst))
            before = to;
    }
    return before == over; /* 2 */
}

/* G5 */
void shm_grants_desert(struct endpoint *endpoint, uint32_t member)
{
    for (uint32_t i = 0; grants_wait(endpoint) && i < FABRIC_MAX_GRANTS; i++) {
        struct grant *grant = &endpoint->grants->all[i];

        if (grant->state == GRANT_ENDING && grant->member == member)
            grants_over(endpoint, grant);
    }
}
