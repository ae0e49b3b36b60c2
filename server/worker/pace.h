/* pace.h - how much of a thread a role's work in the background may take that goes on in steps, one in a turn of the thread
 * (from one poll of the role to the next). Where nobody asks the role for anything it is all: a request waits for one step.
 * While requests come all the time, each step is followed by a rest as long as the turn, so it takes half at most. After a
 * turn of more than PACE_REST_NS, as when the process stood still, the rest is no longer than that. Pure.
 */
#ifndef SERVER_PACE_H
#define SERVER_PACE_H

#include "common/reactor/reactor.h"

#define PACE_CLIENTS_NS (20 * NS_PER_US) /* without a request: nobody asks any more */
#define PACE_REST_NS    (10 * NS_PER_MS) /* the longest */

/* All zeros: nothing was done yet. */
struct pace {
    bool stepped;        /* in the last poll; the role takes it back if it found nothing to do */
    uint64_t step_ns;    /* the last step */
    uint64_t clients_ns; /* the last request */
    uint64_t rest_ns;    /* the end of the rest */
};

/* In each poll; `clients`: it has requests. True: a step may be done now. Else *wake_ns is no later than when one may. */
static inline bool pace_may_step(struct pace *pace, bool clients, uint64_t now_ns,
                                 uint64_t *wake_ns)
{
    const uint64_t turn_ns = now_ns - pace->step_ns;
    if (clients)
        pace->clients_ns = now_ns;
    if (pace->stepped)
        pace->rest_ns = now_ns + (turn_ns < PACE_REST_NS ? turn_ns : PACE_REST_NS);
    const uint64_t alone_ns = pace->clients_ns + PACE_CLIENTS_NS;
    const uint64_t end_ns = pace->rest_ns < alone_ns ? pace->rest_ns : alone_ns;
    pace->stepped = now_ns >= end_ns;
    if (pace->stepped)
        pace->step_ns = now_ns;
    else
        wake_at(wake_ns, end_ns);
    return pace->stepped;
}

#endif
