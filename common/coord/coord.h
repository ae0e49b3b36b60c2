/* coord.h - the coordination seam: one versioned value, compare-and-set, watch, leader election.
 *
 * The semantics are ZooKeeper's, so nothing here blocks and every answer comes from coord_poll on
 * the owner's thread. An answer ROWAN_EUNKNOWN to a compare-and-set means it may have won, or may win
 * yet: read again, go on from what is there, and let versions decide.
 *
 * A read may be a little old, but never older than what this handle answered or fired for before, what
 * was stored when it was opened, or what was stored when it won the leadership that it has.
 *
 * Backends: file (one directory: a lock, a value written to a new file, synced, renamed, the
 * directory synced; one machine), zookeeper (an ensemble), and in test/sim one in memory.
 */
#ifndef COORD_COORD_H
#define COORD_COORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/reactor/reactor.h"

enum {
    COORD_MAX_VALUE_BYTES = 1000000, /* a znode's limit, less some bytes for its header */
    COORD_MAX_PATH_BYTES = 255,      /* of the path in a ZooKeeper ensemble */
};

#define COORD_DEFAULT_PATH "/rowan"

struct coord;

/* `value` is valid during the call only. Version 0: there is no value yet. */
typedef void coord_read_done(void *context, int error, const void *value, size_t bytes,
                             uint64_t version);
/* `version` is that of the value now stored, when error is 0. */
typedef void coord_cas_done(void *context, int error, uint64_t version);
/* The value changed, or may have: read it. Fires once per coord_watch. */
typedef void coord_changed(void *context);
/* Leadership was won (true) or lost (false). */
typedef void coord_leader(void *context, bool leader);

struct coord_ops {
    void (*close)(struct coord *coord);
    int (*read)(struct coord *coord, coord_read_done *done, void *context);
    int (*cas)(struct coord *coord, uint64_t expected_version, const void *value, size_t bytes,
               coord_cas_done *done, void *context);
    int (*watch)(struct coord *coord, coord_changed *changed, void *context);
    int (*elect)(struct coord *coord, coord_leader *leader, void *context);
    enum poll_result (*poll)(struct coord *coord, uint64_t now_ns, uint64_t *wake_ns);
};

/* The head of every backend's struct. One owner thread. */
struct coord {
    const struct coord_ops *ops;
};

/* coord_open_file: `directory` must exist. `reactor` is woken when an answer is ready; may be NULL.
 * Errors: ROWAN_ENOTFOUND EPERMISSION EIO ENOMEM. */
int coord_open_file(const char *directory, struct reactor *reactor, struct coord **out);

/* coord_open_zookeeper: `ensemble` is "HOST:PORT", more of them behind commas, and a path behind the last, which is made
 * if it is not there; without one COORD_DEFAULT_PATH. Host names are looked up on a thread of their own, and waited for.
 * The ensemble need not be there: requests wait for it, and the log says so. `login`: "NAME:SECRET",
 * by which the ensemble tells who may read and write the nodes (ZooKeeper's scheme "digest"); whoever has not that one is answered
 * ROWAN_EPERMISSION; NULL: everybody may. `session_ms`: after so long without a word the ensemble lets another one lead; it has bounds of its own for that. `reactor` sleeps on
 * the connection; before it runs; may be NULL. Errors: ROWAN_EINVALID (no such form) EIO ENOMEM. coord_zookeeper_is_right: has `ensemble` that form? */
bool coord_zookeeper_is_right(const char *ensemble);
int coord_open_zookeeper(const char *ensemble, const char *login, uint32_t session_ms,
                         struct reactor *reactor, struct coord **out);

/* Drops what is outstanding without calling back; gives leadership up. NULL is fine. Never from
 * inside an answer. */
static inline void coord_close(struct coord *coord)
{
    if (coord)
        coord->ops->close(coord);
}

/* The next four answer through coord_poll. Errors at once: ROWAN_EAGAIN (one of each may be
 * outstanding), ROWAN_EINVALID (value too large).
 * done: 0, ROWAN_EFORMAT (the stored value is damaged), EINCOMPATIBLE (of another
 * version), EIO, EPERMISSION. The value is durable when 0. */
static inline int coord_read(struct coord *coord, coord_read_done *done, void *context)
{
    return coord->ops->read(coord, done, context);
}

/* Stores `value` (copied) if the stored version is `expected_version` (0: if there is none).
 * done: 0, ROWAN_EVERSION (another value is there), EFORMAT, ENOSPACE, EIO, EPERMISSION (nothing changed),
 * ROWAN_EUNKNOWN. Durable when 0. */
static inline int coord_cas(struct coord *coord, uint64_t expected_version, const void *value,
                            size_t bytes, coord_cas_done *done, void *context)
{
    return coord->ops->cas(coord, expected_version, value, bytes, done, context);
}

/* Also fires if the value changed since the last version that this handle answered: read and watch may
 * come in either order, and a watch without any read fires as soon as there is a value. */
static inline int coord_watch(struct coord *coord, coord_changed *changed, void *context)
{
    return coord->ops->watch(coord, changed, context);
}

/* Stands for election until closed. */
static inline int coord_elect(struct coord *coord, coord_leader *leader, void *context)
{
    return coord->ops->elect(coord, leader, context);
}

static inline enum poll_result coord_poll(struct coord *coord, uint64_t now_ns, uint64_t *wake_ns)
{
    return coord->ops->poll(coord, now_ns, wake_ns);
}

#endif
