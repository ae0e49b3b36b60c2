/* shm_zone.c - a landing zone, the owner's side. The owner posts segments, finds out when one is
 * closed (no claim will be made in it any more), when it is sealed (every claim in it is DONE or
 * VOID) and when it is quiet (nobody can store into it any more). The sender's side, with its steps
 * S1 to S6, is in shm_rowan.c.
 *
 *   Z1 post: place of segment n into its slot, posted = n + 1 (seq_cst); then ring every sender
 *      that wants a segment.
 *   Z2 senders claim (S1, S2). One that finds no room makes the position (n, i, FULL).
 *   Z3 whoever sees FULL, we too, sets closed[n] = i and moves the position to (n + 1, 0, 0).
 *   Z4 closed[n] is known: look at claims 0 to i - 1 in order. All are DONE: SEALED, quiet.
 *   Z5 A claim stays EMPTY. Its sender is slow, stopped or dead. If no living sender that is not shut out has
 *      intent n, or SHM_VOID_NS have passed: compare-and-set it from EMPTY to VOID. Whoever loses this race
 *      against S4 has failed: here the claim counts, there the connection breaks. Of the time
 *      between two looks at most SHM_VOID_STEP_NS count: a pause that stopped us, too (a host that
 *      was suspended, or so loaded that nobody ran), is no sign of a sender that hangs.
 *   Z6 With a VOID claim the segment is SEALED, and quiet only when no living sender has intent n.
 *      Otherwise QUIET comes when those senders have moved on or died: until then they may still be
 *      in S3. What lies between claims that are DONE is void; VOID tells of it before SEALED.
 *   Z7 shut out (F12): the sender is revoked, then its intent is read. 0: it claims nothing any more (shm_rowan.c,
 *      5), and what it claimed is decided. Else, n being its segment: the owner closes n, as in Z3, though it may have
 *      free space, so that no compare-and-set of S2 which the sender has before it succeeds. What it has claimed lies
 *      in n or before, and lands or is void when n is sealed, which does not wait for it (Z5).
 *
 * 1. sealed <= posted <= sealed + depth. The position is in segment `posted` at most, and is only
 *    there when the zone is dry.
 * 2. The position never goes back, so no compare-and-set of a late sender or helper can succeed
 *    against a later state that looks the same (no ABA). `closed` and claim words carry the number
 *    of their segment; a word of an older segment counts as "not yet", one of the same or a newer
 *    one refuses the change. So a sender that was stopped before S4, and wakes when its slot holds
 *    n + depth, finds a newer word or its own VOID, fails, and changes nothing; a helper that was
 *    stopped in Z3 likewise. All words are written once in each generation, but for EMPTY.
 * 3. A sender that dies between S2 and S4 leaves an EMPTY claim and intent n. The intent was
 *    stored before S2, and closed[n] follows all claims in n, so whoever knows closed[n] sees it.
 *    A sender that dies between Z3's two steps, or before it rings us, is seen by its socket's end,
 *    and zone_check helps in its place.
 * 4. A sender slot is given again only when its sender has closed its end of the socket, which it
 *    does when it stores no more, or is dead. Our own closing is not enough: a stopped process
 * still has our memory. Until then the slot lingers, revoked, and counts in Z6.
 *
 *   segment:  posted -- Z3 --> closed -- Z4 --> sealed and quiet
 *                                 \-- Z5, Z6 --> sealed -- Z6 --> quiet
 *   slot:     FREE -- zone_join --> ACTIVE -- zone_leave --> LINGERING -- zone_check --> FREE
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/shm/shm.h"
#include "common/fabric/shut_out.h"

enum { SEAL_BUDGET = 8192 /* claims looked at in one poll */ };

/* --- open, close, post --- */

int shm_zone_open(struct zone *base)
{
    struct shm_zone *zone = (struct shm_zone *)base;
    void *control;

    if (base->pm->fd < 0) /* peers could not map it */
        return ROWAN_EUNSUPPORTED;
    zone->unquiet = calloc(base->depth, sizeof *zone->unquiet);
    if (!zone->unquiet)
        return ROWAN_ENOMEM;
    if (memory_create("rowan-zone", zone_control_bytes(base->depth), &zone->control_fd, &control)) {
        free(zone->unquiet);
        return ROWAN_ENOMEM;
    }
    ((struct shm_endpoint *)base->endpoint)->zone = zone;
    zone->control = control;
    return 0;
}

static void member_free(struct shm_zone *zone, uint32_t index)
{
    struct zone_member *member = &zone->members[index];

    close_fd(member->pid_fd);
    if (member->state == MEMBER_LINGERING) {
        close(member->socket_fd);
        zone->lingering--;
    }
    member->state = MEMBER_FREE;
    member->conn = NULL;
}

void shm_zone_close(struct zone *base)
{
    struct shm_zone *zone = (struct shm_zone *)base;

    for (uint32_t i = 0; i < FABRIC_MAX_ZONE_SENDERS; i++) {
        if (zone->members[i].state != MEMBER_FREE)
            member_free(zone, i);
    }
    munmap(zone->control, zone_control_bytes(base->depth));
    close(zone->control_fd);
    free(zone->unquiet);
}

/* Z1, the second half. */
static void ring_wanting(struct shm_zone *zone)
{
    struct zone_control *control = zone->control;

    if (!atomic_load_explicit(&control->wanted, memory_order_seq_cst))
        return;
    atomic_exchange_explicit(&control->wanted, 0, memory_order_seq_cst);
    for (uint32_t i = 0; i < FABRIC_MAX_ZONE_SENDERS; i++) {
        struct zone_member *member = &zone->members[i];

        if (member->state == MEMBER_ACTIVE && member->conn->base.state == CONN_OPEN &&
            atomic_load_explicit(&control->senders[i].want, memory_order_seq_cst) &&
            atomic_exchange_explicit(&control->senders[i].want, 0, memory_order_seq_cst))
            conn_ring(member->conn);
    }
}

void shm_zone_posted(struct zone *base)
{
    struct shm_zone *zone = (struct shm_zone *)base;
    const uint64_t newest = base->posted - 1;

    atomic_store_explicit(&zone->control->slots[newest % base->depth].offset,
                          zone_segment(base, newest)->offset, memory_order_relaxed);
    atomic_exchange_explicit(&zone->control->posted, base->posted, memory_order_seq_cst);
    ring_wanting(zone);
}

/* --- senders --- */

static int peer_pid_fd(int socket_fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;

    if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0 || peer.pid <= 0)
        return -1;
    return pidfd_open(peer.pid, 0);
}

int zone_join(struct shm_zone *zone, struct shm_conn *conn, int *out_member)
{
    uint32_t i = 0;

    while (i < FABRIC_MAX_ZONE_SENDERS && zone->members[i].state != MEMBER_FREE)
        i++;
    if (i == FABRIC_MAX_ZONE_SENDERS)
        return ROWAN_ETOOMANY;
    zone->members[i] = (struct zone_member){.state = MEMBER_ACTIVE,
                                            .peer = conn->base.peer,
                                            .conn = conn,
                                            .socket_fd = -1,
                                            .pid_fd = peer_pid_fd(conn->socket_fd)};
    atomic_store_explicit(&zone->control->senders[i].intent, 0, memory_order_relaxed);
    atomic_store_explicit(&zone->control->senders[i].want, 0, memory_order_relaxed);
    atomic_store_explicit(&zone->control->senders[i].revoked, 0, memory_order_release);
    *out_member = (int)i;
    return 0;
}

void zone_leave(struct shm_zone *zone, int index, int socket_fd)
{
    struct zone_member *member = &zone->members[index];

    ASSERT(member->state == MEMBER_ACTIVE);
    atomic_exchange_explicit(&zone->control->senders[index].revoked, 1, memory_order_seq_cst);
    shutdown(socket_fd, SHUT_WR); /* the peer sees an end; its own end stays for us to see */
    member->state = MEMBER_LINGERING;
    member->conn = NULL;
    member->socket_fd = socket_fd;
    zone->lingering++;
}

/* 4: it has closed its end, or is dead. */
static bool has_gone(const struct zone_member *member)
{
    struct pollfd fds[2] = {{.fd = member->socket_fd}, {.fd = member->pid_fd, .events = POLLIN}};

    return poll(fds, 2, 0) > 0 && ((fds[0].revents & POLLHUP) || (fds[1].revents & POLLIN));
}

static void free_lingering(struct shm_zone *zone)
{
    for (uint32_t i = 0; i < FABRIC_MAX_ZONE_SENDERS && zone->lingering > 0; i++) {
        if (zone->members[i].state == MEMBER_LINGERING && has_gone(&zone->members[i]))
            member_free(zone, i);
    }
}

static uint64_t intent_of(const struct shm_zone *zone, uint32_t member)
{
    return atomic_load_explicit(&zone->control->senders[member].intent, memory_order_seq_cst);
}

/* Some living sender may store into segment n. `shut_out`: also one of whom we do not wait for it. */
static bool is_intended(const struct shm_zone *zone, uint64_t segment, bool shut_out)
{
    for (uint32_t i = 0; i < FABRIC_MAX_ZONE_SENDERS; i++) {
        const struct zone_member *member = &zone->members[i];

        if (member->state != MEMBER_FREE && (shut_out || !member->shut_out) &&
            intent_of(zone, i) == segment + 1)
            return true;
    }
    return false;
}

/* Z3, of a segment that may have free space. */
static void close_segment(struct shm_zone *zone, uint64_t segment)
{
    _Atomic uint64_t *word = &zone->control->position;
    uint64_t position = atomic_load_explicit(word, memory_order_seq_cst), full;

    do {
        full = position_pack(segment, position_claim(position), POSITION_FULL);
        if (position_segment(position) != segment)
            return;
    } while (!atomic_compare_exchange_weak_explicit(word, &position, full, memory_order_seq_cst,
                                                    memory_order_seq_cst));
    zone_advance(zone->control, zone->base.depth, full);
}

void shm_close_segment(struct zone *base)
{
    close_segment((struct shm_zone *)base, base->sealed);
}

/* A sender has moved the position before it stores. */
uint64_t shm_zone_begun(const struct zone *base)
{
    const struct shm_zone *zone = (const struct shm_zone *)base;
    const uint64_t position = atomic_load_explicit(&zone->control->position, memory_order_seq_cst);
    return position_segment(position) + (position_claim(position) > 0);
}

/* Z7 */
uint64_t shm_shut_out(struct zone *base, const struct fabric_shut_out *out)
{
    struct shm_zone *zone = (struct shm_zone *)base;
    uint64_t sealed = 0;

    for (uint32_t i = 0; i < FABRIC_MAX_ZONE_SENDERS; i++) {
        struct zone_member *member = &zone->members[i];
        uint64_t intent;

        if (member->state == MEMBER_FREE || !shut_out_is_of(out, &member->peer))
            continue;
        ASSERT(member->state == MEMBER_LINGERING); /* revoked before its intent is read */
        member->shut_out = true;
        intent = intent_of(zone, i);
        if (intent <= sealed || intent > base->posted) /* nonsense: nobody can claim there */
            continue;
        close_segment(zone, intent - 1);
        sealed = intent;
    }
    return sealed;
}

/* --- sealing --- */

static _Atomic uint64_t *oldest_closed(const struct shm_zone *zone)
{
    return &zone->control->slots[zone->base.sealed % zone->base.depth].closed;
}

static bool is_closed(const struct shm_zone *zone)
{
    return zone->base.sealed != zone->base.posted &&
           closed_generation(atomic_load_explicit(oldest_closed(zone), memory_order_acquire)) ==
               zone->base.sealed + 1;
}

/* In the oldest segment, which is closed. Nonsense of a sender: no more claims can lie there. */
static uint32_t claims_made(const struct shm_zone *zone)
{
    const uint32_t claims =
        closed_claims(atomic_load_explicit(oldest_closed(zone), memory_order_acquire));

    return claims < ZONE_CLAIMS ? claims : ZONE_CLAIMS;
}

static _Atomic uint64_t *claim_word(const struct shm_zone *zone, uint32_t claim)
{
    return &zone->control->slots[zone->base.sealed % zone->base.depth].claims[claim];
}

/* Z6. Void claims that were not told yet end at stride `at`. */
static void tell_void(struct shm_zone *zone, uint32_t at, struct fabric_event *event)
{
    const struct zone_segment *segment = zone_segment(&zone->base, zone->base.sealed);
    const uint32_t strides = at > zone->end ? at - zone->end : 0; /* 0: nonsense of a sender */

    *event = (struct fabric_event){
        .kind = FABRIC_VOID,
        .context = segment->context,
        .data = pm_at(zone->base.pm, segment->offset + (uint64_t)zone->end * FABRIC_STRIDE),
        .bytes = strides * FABRIC_STRIDE};
    zone->has_void = false;
}

/* Z4: moves the cursor over claims that are decided; VOID events. Over all of them: *over. */
static unsigned walk_claims(struct shm_zone *zone, uint32_t *budget, struct fabric_event *events,
                            unsigned max, bool *over)
{
    const uint32_t claims = claims_made(zone);
    unsigned count = 0;

    zone->stuck = *over = false;
    for (; *budget > 0 && zone->cursor < claims; zone->cursor++, (*budget)--) {
        const uint64_t word =
            atomic_load_explicit(claim_word(zone, zone->cursor), memory_order_acquire);

        zone->stuck = claim_generation(word) != zone->base.sealed + 1;
        if (zone->stuck)
            return count;
        if (claim_state(word) != CLAIM_DONE) {
            zone->has_void = true;
            continue;
        }
        if (zone->has_void && count == max)
            return count;
        if (zone->has_void)
            tell_void(zone, claim_begin(word), &events[count++]);
        if (claim_end(word) <= ZONE_STRIDES)
            zone->end = claim_end(word);
    }
    if (zone->cursor == claims && zone->has_void && count < max)
        tell_void(zone, ZONE_STRIDES, &events[count++]);
    *over = zone->cursor == claims && !zone->has_void;
    return count;
}

static bool seal(struct shm_zone *zone, struct fabric_event *event)
{
    const uint64_t segment = zone->base.sealed;
    const bool quiet = zone->voided == 0 || !is_intended(zone, segment, true);

    if (!quiet) {
        if (zone->unquiet_count == zone->base.depth)
            return false;
        zone->unquiet[zone->unquiet_count++] = (struct unquiet){
            .segment = segment, .context = zone_segment(&zone->base, segment)->context};
    }
    zone_seal(&zone->base, quiet, event);
    zone->cursor = 0;
    zone->end = 0;
    zone->voided = 0;
    zone->stuck_ns = 0;
    zone->checked_ns = 0;
    return true;
}

static unsigned report_quiet(struct shm_zone *zone, struct fabric_event *events, unsigned max)
{
    unsigned count = 0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < zone->unquiet_count; i++) {
        const struct unquiet unquiet = zone->unquiet[i];

        if (count < max && !is_intended(zone, unquiet.segment, true))
            events[count++] = (struct fabric_event){
                .kind = FABRIC_QUIET, .quiet = true, .context = unquiet.context};
        else
            zone->unquiet[kept++] = unquiet;
    }
    zone->unquiet_count = kept;
    return count;
}

unsigned zone_poll(struct shm_zone *zone, struct fabric_event *events, unsigned max)
{
    uint32_t budget = SEAL_BUDGET;
    unsigned count = 0;
    bool over = true;

    if (zone->unquiet_count > 0)
        count = report_quiet(zone, events, max);
    while (over && count < max && is_closed(zone)) {
        count += walk_claims(zone, &budget, events + count, max - count, &over);
        over = over && count < max && seal(zone, &events[count]);
        count += over;
    }
    return count;
}

/* Z5. `deserted` was found before the claim is looked at: one that is EMPTY after nobody alive that we wait for had
 * intent n was left by the dead, or by who is shut out. */
static void void_claim(struct shm_zone *zone, uint32_t claim, bool deserted)
{
    _Atomic uint64_t *word = claim_word(zone, claim);
    uint64_t before = atomic_load_explicit(word, memory_order_acquire);

    if (claim_generation(before) == zone->base.sealed + 1 ||
        !atomic_compare_exchange_strong_explicit(word, &before,
                                                 claim_pack(zone->base.sealed, CLAIM_VOID),
                                                 memory_order_seq_cst, memory_order_relaxed))
        return;
    if (zone->voided++ == 0)
        log_event(LOG_WARN, "claim_voided", "endpoint=%u segment=%llu claim=%u reason=%s",
                  zone->base.endpoint->index, (unsigned long long)zone->base.sealed, claim,
                  deserted ? "deserted" : "late");
}

static bool is_late(struct shm_zone *zone)
{
    const uint64_t now_ns = zone->base.endpoint->now_ns;
    const uint64_t since_ns = zone->checked_ns ? now_ns - zone->checked_ns : 0;

    zone->stuck_ns += since_ns < SHM_VOID_STEP_NS ? since_ns : SHM_VOID_STEP_NS;
    zone->checked_ns = now_ns;
    return zone->stuck_ns > SHM_VOID_NS;
}

static void void_stuck(struct shm_zone *zone)
{
    const bool deserted = !is_intended(zone, zone->base.sealed, false);
    const bool late = is_late(zone);
    const uint32_t claims = claims_made(zone);

    for (uint32_t i = zone->cursor; (deserted || late) && i < claims; i++)
        void_claim(zone, i, deserted);
}

void zone_check(struct shm_zone *zone)
{
    const uint64_t position = atomic_load_explicit(&zone->control->position, memory_order_acquire);

    if (zone->lingering > 0)
        free_lingering(zone);
    if (position_stride(position) == POSITION_FULL) /* 3 */
        zone_advance(zone->control, zone->base.depth, position);
    if (zone->stuck)
        void_stuck(zone);
}

uint64_t zone_interval_ns(const struct shm_zone *zone)
{
    if (is_closed(zone))
        return 2 * NS_PER_MS;
    return zone->lingering > 0 || zone->unquiet_count > 0 ? 20 * NS_PER_MS : UINT64_MAX;
}
