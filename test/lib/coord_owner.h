/* coord_owner.h - an owner of a handle of the coordination seam, and what the handle has answered. Include once. */
#ifndef TEST_COORD_OWNER_H
#define TEST_COORD_OWNER_H

#include "common/coord/coord.h"
#include "test/lib/asserts.h"
#include "test/lib/wait.h"

struct owner {
    struct coord *coord;
    bool answered; /* since somebody made it false */
    bool leads;
    unsigned reads, stores, changes, wins, losses;
    int error;
    uint64_t version;
    size_t bytes;
    uint8_t value[COORD_MAX_VALUE_BYTES];
};

static inline void on_read(void *context, int error, const void *value, size_t bytes,
                           uint64_t version)
{
    struct owner *owner = context;
    owner->answered = true;
    owner->reads++;
    owner->error = error;
    owner->version = version;
    owner->bytes = bytes;
    assert_true(bytes <= sizeof owner->value);
    if (bytes > 0)
        memcpy(owner->value, value, bytes);
}

static inline void on_cas(void *context, int error, uint64_t version)
{
    struct owner *owner = context;
    owner->answered = true;
    owner->stores++;
    owner->error = error;
    owner->version = version;
}

static inline void on_change(void *context)
{
    ((struct owner *)context)->changes++;
}

static inline void on_leader(void *context, bool leader)
{
    struct owner *owner = context;
    assert_true(owner->leads != leader);
    owner->leads = leader;
    owner->wins += leader;
    owner->losses += !leader;
}

/* --- in real time --- */

static inline enum poll_result poll_owner(struct owner *owner)
{
    uint64_t wake_ns = WAKE_NEVER;
    return coord_poll(owner->coord, clock_now_ns(clock_system()), &wake_ns);
}

static inline bool is_answered(struct owner *owner)
{
    poll_owner(owner);
    return owner->answered;
}

static inline bool has_won(struct owner *owner)
{
    poll_owner(owner);
    return owner->leads;
}

static inline bool has_lost(struct owner *owner)
{
    poll_owner(owner);
    return owner->losses > 0;
}

static inline int read_value(struct owner *owner)
{
    owner->answered = false;
    assert_int_equal(coord_read(owner->coord, on_read, owner), 0);
    assert_true(WAIT_FOR(is_answered(owner)));
    return owner->error;
}

static inline int cas_value(struct owner *owner, uint64_t expected, const void *value, size_t bytes)
{
    owner->answered = false;
    assert_int_equal(coord_cas(owner->coord, expected, value, bytes, on_cas, owner), 0);
    assert_true(WAIT_FOR(is_answered(owner)));
    return owner->error;
}

#endif
