/* window.h - what backends share of sending: the checks of arguments, and the window of Rowan sends. How the bytes
 * leave, and when they have landed, is the backend's own.
 *
 * 1. landed <= posted <= added <= landed + `most`, in blocks since the beginning.
 * 2. LANDED events come in the order of the calls, one for a batch (F2).
 */
#ifndef FABRIC_WINDOW_H
#define FABRIC_WINDOW_H

#include <string.h>

#include "common/base/copy.h"
#include "common/fabric/conn.h"

enum { WINDOW_BATCHES = 1024 };

struct window_block {
    const uint8_t *data;
    uint32_t bytes;
    uint32_t key; /* of its region */
};

struct window_batch {
    uint64_t end; /* in the count of blocks */
    uint64_t context;
};

struct window_ring {
    struct window_block *blocks;
    uint32_t mask; /* their number less 1, which is a power of two */
};

/* Of one connection. */
struct send_window {
    struct window_ring ring;
    uint64_t added, posted, landed;
    uint64_t batch_head, batch_tail;
    const struct region *region; /* that the last block lay in; NULL: none yet */
    struct window_batch batches[WINDOW_BATCHES];
};

/* --- arguments --- */

/* Of a block, or a segment's place. */
static inline bool window_is_strided(uint64_t bytes)
{
    return bytes % FABRIC_STRIDE == 0;
}

/* Whether [offset, offset + bytes) lies in `size` bytes and begins and ends at strides; bytes > 0. */
static inline bool window_range_fits(uint64_t offset, uint64_t bytes, uint64_t size)
{
    return bytes > 0 && window_is_strided(offset) && window_is_strided(bytes) && offset <= size &&
           bytes <= size - offset;
}

/* The bytes of a message. Errors: ROWAN_ECLOSED EINVALID. */
static inline int window_check_message(const struct conn *conn, const struct fabric_iov *iov,
                                       unsigned count, uint32_t *bytes)
{
    uint64_t total = 0;

    if (conn->state != CONN_OPEN)
        return ROWAN_ECLOSED;
    if (count > FABRIC_MAX_IOV)
        return ROWAN_EINVALID;
    for (; count > 0; count--, iov++) /* none may have no address */
        total += iov->bytes;
    if (total > FABRIC_MAX_MESSAGE_BYTES)
        return ROWAN_EINVALID;
    *bytes = (uint32_t)total;
    return 0;
}

/* Whether all pieces, one or more, are as long as most are, so that copy_inline takes them. A way for them that calls
 * nothing saves no registers. */
static inline bool window_is_short(const struct fabric_iov *iov, unsigned count, uint32_t *bytes)
{
    const struct fabric_iov *const end = iov + count;
    uint32_t total = 0;

    if (count - 1 >= FABRIC_MAX_IOV)
        return false;
    do {
        if (!copy_is_inline(iov->bytes))
            return false;
        total += iov->bytes;
    } while (++iov != end);
    *bytes = total;
    return true;
}

/* One piece behind the other. */
static inline void window_copy_short(uint8_t *to, const struct fabric_iov *iov, unsigned count)
{
    const struct fabric_iov *const end = iov + count;

    do {
        const uint32_t bytes = iov->bytes;

        copy_inline(to, iov->data, bytes);
        to += bytes;
    } while (++iov != end);
}

/* Any pieces. */
static inline void window_copy(uint8_t *to, const struct fabric_iov *iov, unsigned count)
{
    for (; count > 0; to += iov->bytes, count--, iov++) {
        if (iov->bytes > 0) /* else it may have no address */
            memcpy(to, iov->data, iov->bytes);
    }
}

/* --- Rowan sends --- */

/* window_open: gives the connection a window, in front of `bytes` in all of the backend's, which are 0. Errors:
 * ROWAN_ENOMEM. window_close: with what it lies in; there may be none. */
int window_open(struct conn *conn, size_t bytes, uint32_t most);
void window_close(struct conn *conn);

static inline const struct window_block *window_block(const struct window_ring *ring,
                                                      uint64_t number)
{
    return &ring->blocks[number & ring->mask];
}

/* A LANDED event waits to be told. */
static inline bool window_has_landed(const struct send_window *window)
{
    return window->batch_head < window->batch_tail &&
           window->batches[window->batch_head % WINDOW_BATCHES].end <= window->landed;
}

/* LANDED events. */
unsigned window_events(struct conn *conn, struct fabric_event *events, unsigned max);

/* --- of the ops table; a connection that can send has a `window` --- */
uint32_t window_rowan_room(const struct fabric_conn *conn);
int window_rowan_add(struct fabric_conn *conn, const void *block, uint32_t bytes);
int window_rowan_post(struct fabric_conn *conn, uint64_t context);

#endif
