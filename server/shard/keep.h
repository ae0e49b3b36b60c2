/* keep.h - how long what a client has done is kept for it, at least, after it was last heard of. No client asks again that
 * late (client/rowan.h, ROWAN_MAX_TIMEOUT_MS).
 */
#ifndef SERVER_KEEP_H
#define SERVER_KEEP_H

#include <stdint.h>

#include "common/base/clock.h"

#ifdef ROWAN_SIM /* test/sim chooses: clients are forgotten within a run */
extern uint64_t clients_keep_ns;
#define CLIENTS_KEEP_NS clients_keep_ns
#else
#define CLIENTS_KEEP_NS (120 * NS_PER_S)
#endif

#endif
