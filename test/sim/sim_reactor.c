/* A reactor without a thread. */
#include "test/sim/sim_reactor.h"

#include "client/session.h"
#include "common/base/assert.h"
#include "test/sim/sim_coord.h"
#include "test/sim/sim_fabric.h"
#ifdef ROWAN_SIM
#include "test/sim/sim_fault.h"
#endif

/* --- what common/reactor/reactor.h promises --- */

int reactor_add_poller(struct reactor *reactor, const struct poller *poller)
{
    ASSERT(reactor->role_count < SIM_REACTOR_ROLES);
    /* The first poll is due at once. */
    reactor->roles[reactor->role_count++] = (struct sim_role){.poller = *poller};
    return 0;
}

int reactor_add_source(struct reactor *reactor, const struct event_source *source)
{
    ASSERT(reactor->source_count < SIM_REACTOR_SOURCES);
    reactor->sources[reactor->source_count++] = source->context;
    return 0;
}

void reactor_wake(struct reactor *reactor)
{
    reactor->woken = true;
}

/* --- turns --- */

/* Operations, since its beginning. */
static uint64_t posts(const struct session *session)
{
    return session_completed(session) + session_outstanding(session);
}

bool sim_reactor_is_awake(const struct reactor *reactor, uint64_t now_ns)
{
    if (reactor->woken || reactor->busy || reactor->late || sim_reactor_wake_ns(reactor) <= now_ns)
        return true;
    if (reactor->session && posts(reactor->session) != reactor->posts)
        return true;
    for (uint32_t i = 0; i < reactor->source_count; i++) {
        if (sim_fabric_has_work(reactor->sources[i]))
            return true;
    }
    return reactor->coord && sim_coord_has_work(reactor->coord);
}

void sim_reactor_begin(struct reactor *reactor, bool for_nothing)
{
    reactor->woken = reactor->busy = reactor->late = false;
    for (uint32_t i = 0; i < reactor->role_count; i++) {
        struct sim_role *role = &reactor->roles[i];
        /* Who did not have his last turn yet has it for the reason of that. */
        role->for_nothing = for_nothing && (role->for_nothing || !role->turn);
        role->turn = true;
    }
}

/* How often a site has made a role do less than there was, with nobody to wake it for the rest. */
static uint64_t lateness(void)
{
#ifdef ROWAN_SIM
    return sim_fault_count(FAULT_LATE_ROLE) + sim_fault_count(FAULT_NO_ROOM);
#else
    return 0;
#endif
}

enum poll_result sim_reactor_poll(struct reactor *reactor, const struct sim_role *role,
                                  uint64_t process_ns, uint64_t *wake_ns)
{
    const uint64_t before = lateness();
    *wake_ns = WAKE_NEVER;
    enum poll_result result = role->poller.poll(role->poller.role, process_ns, wake_ns);
    reactor->busy |= result == POLL_BUSY;
    reactor->late |= lateness() != before;
    if (reactor->session)
        reactor->posts = posts(reactor->session);
    return result;
}

uint64_t sim_reactor_wake_ns(const struct reactor *reactor)
{
    uint64_t wake_ns = WAKE_NEVER;
    for (uint32_t i = 0; i < reactor->role_count; i++) {
        const struct sim_role *role = &reactor->roles[i];
        if (!role->turn && role->wake_ns < wake_ns)
            wake_ns = role->wake_ns;
    }
    return wake_ns;
}
