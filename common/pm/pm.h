/* pm.h - the persistent-memory seam: map, store, fence.
 *
 * A map holds offsets, never pointers, in what it stores. The semantics are the hardware's: a store
 * is visible to this host at once, durable only when a fence that was started after it is done.
 * To another thread a store is visible after the usual release/acquire, with a pm_fence_start of
 * the storing thread or a locked instruction (any read-modify-write) before the release: dax stores
 * are non-temporal, and no plain release orders those.
 *
 * Backends: dax (libpmem: real PM or CXL memory mapped with MAP_SYNC; tickets are done at once),
 * file (any file system; one group sync for all that was stored before it), and in test/sim one
 * with a working and a durable image.
 *
 * A failed sync is fatal, never retried: pm_fence_done answers ROWAN_EIO from then on.
 */
#ifndef PM_PM_H
#define PM_PM_H

#include <stddef.h>
#include <stdint.h>

struct reactor;

/* What a finished fence promises. The words of the `durability` setting. */
enum pm_durability {
    PM_FENCE, /* every fence waits until the bytes are on the medium */
    PM_ASYNC, /* fences are done at once, a sync follows behind: a power loss may cost the last
                 moments */
    PM_NONE,  /* fences are done at once, nothing is synced: survives the process, not the host */
};

/* A point in a map's order of stores. Done means: all stores made before it was issued are durable.
 */
struct pm_ticket {
    uint64_t number;
};

struct pm;

struct pm_ops {
    void (*close)(struct pm *pm);
    void (*store)(struct pm *pm, uint64_t offset, const void *source, size_t bytes);
    void (*zero)(struct pm *pm, uint64_t offset, size_t bytes);
    struct pm_ticket (*fence_start)(struct pm *pm);
    int (*fence_done)(struct pm *pm, struct pm_ticket ticket);
    struct pm_ticket (*sync_start)(struct pm *pm); /* NULL, with sync_done: as fences */
    int (*sync_done)(struct pm *pm, struct pm_ticket ticket);
    uint64_t (*sync_count)(const struct pm *pm);                 /* NULL: the backend never syncs */
    void (*flush)(struct pm *pm, uint64_t offset, size_t bytes); /* NULL: there is nothing to do */
};

/* The head of every backend's struct. */
struct pm {
    const struct pm_ops *ops;
    uint8_t *base; /* the mapping; read it freely, write only through pm_store (or pm_flush) */
    uint64_t bytes;
    int fd;                        /* of the file or device, -1 if there is none */
    uint64_t offset;               /* of the map there: a peer that maps `fd` needs it */
    enum pm_durability durability; /* as promised (a dax map is always PM_FENCE) */
    const char *backend;           /* "dax" | "file" | "sim" */
};

struct pm_open_options {
    const char *path;
    uint64_t offset; /* of the map inside the file or device; a multiple of 4096 */
    uint64_t bytes;  /* of the map; 0: all of an existing file or device */
    int create;      /* make the file, preallocated and zero; ROWAN_EEXISTS if it is there and
                      * not empty (whoever made it may have ended before it reserved the space) */
    enum pm_durability durability;
    unsigned peers_wait_ms;  /* how long to wait for a former owner's peers to leave */
    struct reactor *reactor; /* to wake when a fence is done; may be NULL */
};

/* pm_open: chooses dax where the path is on DAX, else file. Locks its range of the file against a
 * second opener until pm_close: ROWAN_EINUSE. The same is the answer while anybody else has a
 * descriptor (`fd`) that a former owner gave out, or a map made from one (pm_open_peer): such a
 * process, even a stopped one, could still store there. The log then names it. Reserves all its space, so
 * that no store can meet a full disk (ROWAN_ENOSPACE; the file, if this call made it, is gone
 * again). On tmpfs every durability becomes PM_NONE, with a warning in the log. Errors: ROWAN_EIO
 * ENOMEM EINUSE EEXISTS ENOSPACE ENOTFOUND EPERMISSION EINVALID, EFORMAT (the file or device is
 * smaller than offset and bytes ask for). */
int pm_open(const struct pm_open_options *options, struct pm **out);

/* pm_open_read: maps what is there for reading only: nothing is written, not even reserved, and pm_store must not be
 * called. `bytes` 0: all behind `offset`. While it is open no owner can open the range, and while an owner has it open
 * this fails: ROWAN_EINUSE. Other errors: ROWAN_EIO ENOMEM ENOTFOUND EPERMISSION EINVALID EFORMAT, as pm_open. */
int pm_open_read(const char *path, uint64_t offset, uint64_t bytes, struct pm **out);

/* pm_open_peer: maps another process's memory by a descriptor that came from it (shm fabric), so
 * that this process stores and syncs there itself. `fd` is owned by the map on success. The file
 * may be unlinked or a memfd; it is opened again through /proc, because the kernel reports a failed
 * sync only once to all who share an open file description. Until it is closed nobody can open the range
 * again after its owner (pm_open). Errors: ROWAN_EFORMAT (too small), EINVALID EPERMISSION EIO
 * ENOMEM, EINUSE (the descriptor is no owner's, and somebody opens the file just now). */
int pm_open_peer(int fd, uint64_t offset, uint64_t bytes, enum pm_durability durability,
                 struct reactor *reactor, struct pm **out);

/* NULL is fine. Waits for started syncs. */
static inline void pm_close(struct pm *pm)
{
    if (pm)
        pm->ops->close(pm);
}

/* Copies into the map (dax: non-temporal stores). Aligned 8-byte words land whole. Any thread;
 * ranges must not overlap another thread's. */
static inline void pm_store(struct pm *pm, uint64_t offset, const void *source, size_t bytes)
{
    pm->ops->store(pm, offset, source, bytes);
}

/* The same with zeros. */
static inline void pm_zero(struct pm *pm, uint64_t offset, size_t bytes)
{
    pm->ops->zero(pm, offset, bytes);
}

/* Makes a store of bytes that somebody else wrote into the map for this thread, past pm_store: the
 * kernel, that read a socket into it. As with pm_store, a fence behind it makes them durable. */
static inline void pm_flush(struct pm *pm, uint64_t offset, size_t bytes)
{
    if (pm->ops->flush)
        pm->ops->flush(pm, offset, bytes);
}

/* A ticket for all that this thread stored before (and whatever others had stored, in stores that
 * happened before this call). Cheap to call again: waiting fences share one sync. Any thread. */
static inline struct pm_ticket pm_fence_start(struct pm *pm)
{
    return pm->ops->fence_start(pm);
}

/* 1 done, 0 not yet, ROWAN_EIO when a sync has failed. Any thread. */
static inline int pm_fence_done(struct pm *pm, struct pm_ticket ticket)
{
    return pm->ops->fence_done(pm, ticket);
}

/* The same two, but done means durable with every `durability` (on tmpfs: as far as that goes). For the
 * few bytes that must outlive the host though the rest need not. */
static inline struct pm_ticket pm_sync_start(struct pm *pm)
{
    return pm->ops->sync_start ? pm->ops->sync_start(pm) : pm->ops->fence_start(pm);
}

static inline int pm_sync_done(struct pm *pm, struct pm_ticket ticket)
{
    return pm->ops->sync_done ? pm->ops->sync_done(pm, ticket) : pm->ops->fence_done(pm, ticket);
}

/* Syncs of the medium that have succeeded; for the status of a server. */
uint64_t pm_sync_count(const struct pm *pm);

/* "fence" | "async" | "none"; static. */
const char *pm_durability_name(enum pm_durability durability);

static inline const void *pm_at(const struct pm *pm, uint64_t offset)
{
    return pm->base + offset;
}

#endif
