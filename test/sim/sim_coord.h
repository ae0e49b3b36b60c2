/* sim_coord.h - the coordination seam in memory: handles share one `struct sim_registry`, which
 * holds the value and knows who leads. One thread.
 *
 * The semantics are those of ZooKeeper (programmer's guide: watches, sessions, consistency guarantees), as
 * common/coord/coord.h states them: a compare-and-set by version, answers that come late or are lost though
 * the request took effect (ROWAN_EUNKNOWN), watches that fire once and late, and may be one change behind,
 * reads that may be a little old, sessions that the service ends while their owner does not know it yet, or
 * that outlive it for a while.
 */
#ifndef SIM_COORD_H
#define SIM_COORD_H

#include "common/coord/coord.h"
#include "test/sim/sim_clock.h"

struct sim_registry;

/* Zeros: what is asked is answered in the next poll, nothing is lost, a session ends with its handle. */
struct sim_registry_options {
    struct sim_clock *clock; /* NULL: no times below may be set */
    uint64_t seed;
    uint64_t
        max_delay_ns; /* until a request takes effect, and again until its answer comes; a watch likewise */
    uint64_t
        session_ns; /* how long the service keeps the session of a handle it does not hear of */
    uint32_t
        lost_reply; /* one compare-and-set of so many: no reply comes though it took effect, or it never arrived;
                              0: none */
};

struct sim_registry_counts {
    uint64_t writes;       /* compare-and-sets that took effect */
    uint64_t lost_effects; /* replies that were lost to such */
    uint64_t lost_writes;  /* requests that never arrived, and were answered ROWAN_EUNKNOWN */
    uint64_t expired;      /* sessions that ended while their handle was open */
};

/* `options` NULL: zeros. Aborts without memory. Destroyed after all its handles were closed. */
struct sim_registry *sim_registry_create(const struct sim_registry_options *options);
void sim_registry_destroy(struct sim_registry *registry);

/* Closed by coord_close; without a session_ns that ends its session, else the service finds out later, as after a
 * crash. Aborts without memory. */
struct coord *sim_coord_open(struct sim_registry *registry);

/* The service does not hear of this handle, nor the handle of the service, until it is joined again. */
void sim_coord_partition(struct coord *coord, bool partitioned);

/* The service ends the handle's session now; its owner hears of it when it next hears of the service. */
void sim_coord_expire(struct coord *coord);

/* Would a reactor that sleeps on the handle wake now? What keeps its session is a part of its poll, and counts. */
bool sim_coord_has_work(const struct coord *coord);

/* Changes the odds of lost replies from now on. */
void sim_registry_lose_replies(struct sim_registry *registry, uint32_t lost_reply);

/* When something is due; WAKE_NEVER if nothing is. */
uint64_t sim_registry_next_ns(const struct sim_registry *registry);

/* What is stored: valid until the next step. Version 0: nothing. */
uint64_t sim_registry_value(const struct sim_registry *registry, const void **value, size_t *bytes);

/* Somebody else stores a value at once, on no session: `value` is the registry's from now on. */
void sim_registry_store(struct sim_registry *registry, void *value, size_t bytes);

struct sim_registry_counts sim_registry_counts(const struct sim_registry *registry);

#endif
