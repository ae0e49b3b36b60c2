/* network_world.h - three processes, "sim:a" to "sim:c", with one endpoint each, on a simulated network whose clock
 * a test moves. Include after cmocka.h.
 */
#ifndef SIM_NETWORK_WORLD_H
#define SIM_NETWORK_WORLD_H

#include "test/sim/journal.h"
#include "test/sim/sim_fabric.h"
#include "test/sim/sim_pm.h"

enum {
    NW_PROCESSES = 3,
    NW_EVENTS = 4096,
    NW_SEGMENT = 64 << 10,
    NW_SEGMENTS = 8, /* at the start of each PM; behind them is what is sent */
    NW_BLOCK = 256,
};
#define NW_DELAY_NS (100 * NS_PER_US)

struct nw_process {
    struct fabric *fabric;
    struct fabric_endpoint *endpoint; /* NULL: dead */
    struct fabric_zone *zone;
    struct sim_pm *pm;
    bool stopped; /* is not polled */
    struct fabric_event events[NW_EVENTS];
    uint64_t at_ns[NW_EVENTS]; /* when they were handed out */
    uint32_t event_count;
};

struct network_world {
    struct sim_clock clock;
    struct sim_network *network;
    struct journal *journal;
    struct nw_process processes[NW_PROCESSES];
};

/* The processes, and a landing zone of 4 segments at "sim:a". The clock, journal, seed and travel time
 * are filled in; a travel time of 1 stays none. */
void nw_open(struct network_world *world, struct sim_network_options options);
void nw_close(struct network_world *world);
const char *nw_address(uint32_t process);

/* The end of a process; its memory stays. */
void nw_kill(struct network_world *world, uint32_t process);

/* From process `from` to `to`. Returns when both ends know. */
void nw_connect(struct network_world *world, uint32_t from, uint32_t to,
                struct fabric_conn **active, struct fabric_conn **passive);

/* Polls and flushes all that are not stopped, and moves the clock by up to `ns`: to where the network says
 * that something happens, as long as there is nothing to do now. */
void nw_run(struct network_world *world, uint64_t ns);

/* Polls and flushes everybody once. */
void nw_round(struct network_world *world);

/* Adds `count` blocks of NW_BLOCK bytes of `mark`, mark + 1, ... and posts and flushes them as one batch. */
void nw_send_blocks(struct network_world *world, uint32_t from, struct fabric_conn *conn,
                    uint8_t mark, uint32_t count);
/* A message of one byte, flushed. */
void nw_send(struct network_world *world, uint32_t from, struct fabric_conn *conn, uint8_t byte);

/* Events of that kind, and the place of the nth, from 0, in `events`. */
uint32_t nw_count(const struct network_world *world, uint32_t process, enum fabric_event_kind kind);
uint32_t nw_find(const struct network_world *world, uint32_t process, enum fabric_event_kind kind,
                 uint32_t nth);

/* How many bytes in a row at `offset` of the memory of "sim:a" are `byte`. */
uint32_t nw_run_of(const struct network_world *world, uint64_t offset, uint8_t byte);

/* How many blocks from `mark` on lie whole, one behind the other, at `offset`. */
uint32_t nw_landed(const struct network_world *world, uint64_t offset, uint8_t mark);

#endif
