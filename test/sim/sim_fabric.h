/* sim_fabric.h - the network seam inside one thread: fabrics that share a `struct sim_network` and
 * the clock and the seed it was given. Nothing happens but inside calls, so equal seeds and equal
 * calls give equal runs.
 *
 * What travels takes a time drawn from the seed, kept in order within a connection and direction
 * only (F1). Nothing leaves an endpoint before its fabric_flush. Blocks land a few at a time, some of them in
 * pieces, so those of several senders lie mixed in a landing zone. When a connection ends, each side hears of it at
 * a time of its own, and the seed decides how much of what was on its way still arrives until then (F3).
 *
 * fabric_poll's now_ns is not looked at: processes have clocks of their own, what happens follows the network's.
 *
 * It is strict where hardware would corrupt silently: posting a segment that is not zeros, sending
 * from memory that is not registered and using what was given back all abort; a closed connection's
 * memory is freed at once, so that a use of it is found by AddressSanitizer.
 */
#ifndef SIM_FABRIC_H
#define SIM_FABRIC_H

#include "common/fabric/fabric.h"
#include "test/sim/sim_clock.h"

struct sim_network;

struct sim_network_options {
    struct sim_clock *clock; /* outlives the network */
    uint64_t seed;
    uint32_t block_limit; /* 0: 65536 */
    /* F6, a power of two; 0: FABRIC_STRIDE. Above that a zone is a queue of slots: a segment is sealed when
     * its last one is filled, else when a block no longer fits. */
    uint32_t landing_stride;
    uint32_t max_batch_blocks; /* 0: 8192 */
    uint32_t max_messages;     /* sent on a connection and not released by its receiver; 0: 256 */
    uint64_t max_delay_ns;     /* longest travel; 0: what was flushed has arrived */
    /* Senders claim space in the landing zone, then store, as on shm; else the receiver places what
     * arrives, as on tcp. */
    bool one_sided;
    uint64_t void_ns;    /* one_sided: a sealer waits for a claim so long; 0: 20 ms */
    uint64_t silence_ns; /* connections whose one direction is blocked so long break; 0: never */
    uint32_t early_seal; /* one block of so many opens a new segment though it would fit; 0: none */
    struct journal *journal; /* is told of everything; NULL: nobody is */
};

struct sim_network *sim_network_create(const struct sim_network_options *options);
/* All fabrics must be closed. */
void sim_network_destroy(struct sim_network *network);

/* `address`: "sim:name", no two open fabrics have the same; NULL: nobody connects to it. Errors:
 * ROWAN_EINVALID EINUSE. Closed by fabric_close. */
int sim_fabric_open(struct sim_network *network, const char *address, struct fabric **out);

/* Cuts all connections between two processes, given by their addresses. Each side hears of it at a time of
 * its own; what was on its way to a side may still arrive there until then, blocks too (F3), and the last block that
 * does may land torn: any prefix of its bytes, then nothing, in space that stays taken. */
void sim_network_break(struct sim_network *network, const char *a, const char *b);

/* Are blocks on their way from one to the other? */
bool sim_network_sends(struct sim_network *network, const char *from, const char *to);

/* Nothing that `from` sends arrives at `to` until it is unblocked: it is late then, in order, not lost. Connections
 * blocked for silence_ns break, and none is made. Both directions are two calls. */
void sim_network_block(struct sim_network *network, const char *from, const char *to, bool blocked);

/* What is on its way between them, and what sets out until then, arrives no sooner than in `ns`. */
void sim_network_stall(struct sim_network *network, const char *a, const char *b, uint64_t ns);

/* The process at the address got a SIGSTOP, or a SIGCONT: its connections stay, nobody polls it. one_sided: it may
 * stand in the middle of a store, into a claim that becomes void meanwhile, and finish that store when it goes on;
 * until it has noticed, the segment is not quiet (F7). */
void sim_network_stop(struct sim_network *network, const char *address, bool stopped);

/* Ends every block and stall; a sealer is patient. */
void sim_network_heal(struct sim_network *network);

/* Cuts them, and lets no new one be made until joined again. One pair at a time. */

/* Would a reactor that sleeps on the endpoint wake now? */
bool sim_fabric_has_work(const struct fabric_endpoint *endpoint);

/* The next time at which something arrives; WAKE_NEVER if nothing is on its way. */
uint64_t sim_network_next_ns(const struct sim_network *network);

/* Rises whenever something set out or moved, also if nobody was shown an event. */
uint64_t sim_network_progress(const struct sim_network *network);

/* A hash over every event that was handed out and every block that landed, with its time. */
uint64_t sim_network_trace(const struct sim_network *network);

struct sim_network_counts {
    uint64_t messages;  /* received */
    uint64_t refused;   /* sends answered ROWAN_EAGAIN */
    uint64_t blocks;    /* landed */
    uint64_t mixed;     /* blocks that landed inside another sender's batch */
    uint64_t dry;       /* times a block met a dry landing zone */
    uint64_t lost;      /* messages and blocks of broken connections that never arrived */
    uint64_t connected; /* connections made */
    uint64_t broken;    /* connections that ended otherwise than by a close */
    uint64_t torn;      /* blocks of which a part landed */
    uint64_t late;      /* blocks that landed after their sender had given the connection up */
    uint64_t voided;    /* claims that became void */
    uint64_t stray;     /* stores into a claim after it was void */
    uint64_t unquiet;   /* segments sealed and not quiet */
};
struct sim_network_counts sim_network_counts(const struct sim_network *network);

#define SIM_NETWORK_LATE_NS NS_PER_S /* a message that waits so long has been forgotten */

/* What connections hold that nobody has closed. */
struct sim_network_held {
    uint64_t unreleased; /* messages that were handed out, and not given back */
    uint64_t waiting;    /* sent and not flushed; or late, and not handed out yet */
    const char *who;     /* has the first of these, its address; NULL: there are none */
};
struct sim_network_held sim_network_held(const struct sim_network *network);

/* Is a block that has not landed yet to be read from there? */
bool sim_network_reads(const struct sim_network *network, const uint8_t *data, uint64_t bytes);

#endif
