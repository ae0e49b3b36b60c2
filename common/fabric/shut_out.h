/* shut_out.h - what backends share of F12: which servers are shut out of a landing zone, and when that is told. What
 * may still land of one, and when it no longer can, is the backend's own. Only backends and fabric.c include it.
 *
 * 1. ENDING: its connections are stopped, no new ones are admitted, and segments are still to be sealed into which it
 *    may have sent.
 * 2. FENCING begins in a poll behind the one that told the last VOID events that SHUT_OUT follows: so the
 *    fence covers what the zone's owner stored for them.
 *
 *   UNUSED -- shut_out_begin --> ENDING -- these are sealed --> FENCING -- fence done: SHUT_OUT --> TOLD
 *               ENDING, FENCING, TOLD -- shut_out_begin --> ENDING; -- fabric_readmit --> UNUSED
 */
#ifndef FABRIC_SHUT_OUT_H
#define FABRIC_SHUT_OUT_H

#include "common/base/clock.h"
#include "common/fabric/fabric.h"

enum shut_out_state { SHUT_OUT_UNUSED, SHUT_OUT_ENDING, SHUT_OUT_FENCING, SHUT_OUT_TOLD };

#define SHUT_OUT_LOOK_NS (1 * NS_PER_MS) /* while an event waits, and the endpoint sleeps */

/* Does it concern the peer? One that names no incarnation is older than all. */
static inline bool shut_out_is_of(const struct fabric_shut_out *out,
                                  const struct fabric_identity *peer)
{
    return out->state != SHUT_OUT_UNUSED && peer->kind == FABRIC_SERVER &&
           peer->id == out->server && peer->incarnation <= out->incarnation;
}

/* May the peer not connect, or not stay? */
bool shut_out_forbids(const struct fabric_endpoint *endpoint, const struct fabric_identity *peer);

/* ENDING; the caller does the rest of 1 and sets `sealed`. NULL: too many are. */
struct fabric_shut_out *shut_out_begin(struct fabric_endpoint *endpoint, struct fabric_zone *zone,
                                       uint32_t server, uint64_t incarnation, uint64_t context);

/* SHUT_OUT events; each poll while `shut_out_waiting`, before any other event of it. `pm`: the zone's; `sealed`: so many
 * segments of it are. */
unsigned shut_out_events(struct fabric_zone *zone, struct pm *pm, uint64_t sealed,
                         struct fabric_event *events, unsigned max);

#endif
