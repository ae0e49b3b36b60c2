/* pm_tap.c - the ring, and the map around a map that fills it.
 *
 * A record is two words, in slot n % RECORDS for the n-th claim; each word ends in the low bits of its turn, n / RECORDS + 1.
 *
 * 1. Words are stored whole, and a record counts if both have its turn. So a storer that was stopped for a turn of the ring
 *    and then writes into another's slot makes no wrong record: it takes that one away, and it is counted as lost.
 * 2. The number is claimed behind the store, so the order of numbers is an order in which the stores may have reached
 *    the memory.
 * 3. A faulty peer may write anything: the reader checks that a record lies in the map, and a position that went back
 *    or far ahead costs records, never a walk over more than the ring.
 */
#include "common/pm/pm_tap.h"

#include <assert.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"

enum {
    RECORDS = 1 << 18,
    TURN_BITS = 20,
    COUNT_BITS = 24,
    MAX_COUNT = (1 << COUNT_BITS) - 1,
};

struct tap_slot {
    _Atomic uint64_t place; /* first request (43 bits), zero (1), turn (20) */
    _Atomic uint64_t what;  /* count (24), sender (20), turn (20) */
};

struct tap_ring {
    _Alignas(64) _Atomic uint64_t claimed;
    _Alignas(64) struct tap_slot slots[RECORDS];
};

static_assert(PM_TAP_SENDERS == 1 << TURN_BITS, "20 bits for each");

/* A peer's, and the owner's. */
struct tap {
    struct pm_view view;
    int fd;        /* of the ring; the owner's only, else -1 */
    uint64_t read; /* records that were read or lost */
    uint64_t lost;
};

static uint64_t turn_of(uint64_t number)
{
    return (number / RECORDS + 1) & ((1 << TURN_BITS) - 1);
}

/* --- storing --- */

static void note(const struct pm_view *view, uint64_t offset, size_t bytes, bool zero)
{
    uint64_t first = offset / PM_TAP_REQUEST_BYTES, left;

    if (bytes == 0)
        return;
    left = (offset + bytes - 1) / PM_TAP_REQUEST_BYTES - first + 1;
    while (left > 0) {
        const uint64_t part = left < MAX_COUNT ? left : MAX_COUNT;
        const uint64_t number =
            atomic_fetch_add_explicit(&view->ring->claimed, 1, memory_order_relaxed);
        struct tap_slot *slot = &view->ring->slots[number % RECORDS];

        atomic_store_explicit(&slot->place, first << 21 | (uint64_t)zero << 20 | turn_of(number),
                              memory_order_relaxed);
        atomic_store_explicit(&slot->what,
                              part << 40 | (uint64_t)view->sender << TURN_BITS | turn_of(number),
                              memory_order_release);
        first += part;
        left -= part;
    }
}

static void tap_store(struct pm *pm, uint64_t offset, const void *source, size_t bytes)
{
    struct pm_view *view = (struct pm_view *)pm;

    pm_store(view->inner, offset, source, bytes);
    note(view, offset, bytes, false);
}

static void tap_zero(struct pm *pm, uint64_t offset, size_t bytes)
{
    struct pm_view *view = (struct pm_view *)pm;

    pm_zero(view->inner, offset, bytes);
    note(view, offset, bytes, true);
}

static void tap_flush(struct pm *pm, uint64_t offset, size_t bytes)
{
    struct pm_view *view = (struct pm_view *)pm;

    pm_flush(view->inner, offset, bytes);
    note(view, offset, bytes, false);
}

static struct pm_ticket tap_fence_start(struct pm *pm)
{
    return pm_fence_start(((struct pm_view *)pm)->inner);
}

static int tap_fence_done(struct pm *pm, struct pm_ticket ticket)
{
    return pm_fence_done(((struct pm_view *)pm)->inner, ticket);
}

static struct pm_ticket tap_sync_start(struct pm *pm)
{
    return pm_sync_start(((struct pm_view *)pm)->inner);
}

static int tap_sync_done(struct pm *pm, struct pm_ticket ticket)
{
    return pm_sync_done(((struct pm_view *)pm)->inner, ticket);
}

static uint64_t tap_sync_count(const struct pm *pm)
{
    return pm_sync_count(((const struct pm_view *)pm)->inner);
}

static void tap_close(struct pm *pm)
{
    struct tap *tap = (struct tap *)pm;

    pm_close(tap->view.inner);
    munmap(tap->view.ring, sizeof *tap->view.ring);
    if (tap->fd >= 0)
        close(tap->fd);
    free(tap);
}

static const struct pm_ops tap_ops = {.close = tap_close,
                                      .store = tap_store,
                                      .zero = tap_zero,
                                      .fence_start = tap_fence_start,
                                      .fence_done = tap_fence_done,
                                      .sync_start = tap_sync_start,
                                      .sync_done = tap_sync_done,
                                      .sync_count = tap_sync_count,
                                      .flush = tap_flush};

/* --- open --- */

static void init_view(struct pm_view *view, struct pm *inner, struct tap_ring *ring,
                      uint32_t sender)
{
    ASSERT(sender < PM_TAP_SENDERS);
    *view = (struct pm_view){.pm = *inner, .inner = inner, .ring = ring, .sender = sender};
    view->pm.ops = &tap_ops;
}

uint64_t pm_tap_bytes(void)
{
    return sizeof(struct tap_ring);
}

int pm_tap_join(struct pm *inner, void *memory, uint32_t sender, struct pm **out)
{
    struct tap *tap = calloc(1, sizeof *tap);

    if (!tap)
        return ROWAN_ENOMEM;
    init_view(&tap->view, inner, memory, sender);
    tap->fd = -1;
    *out = &tap->view.pm;
    return 0;
}

int pm_tap_open(struct pm *inner, struct pm **out)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const int fd = memfd_create("rowan-tap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *memory = MAP_FAILED;
    struct pm *pm;

    if (fd < 0)
        return ROWAN_ENOMEM;
    if (ftruncate(fd, sizeof(struct tap_ring)) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0)
        memory = mmap(NULL, sizeof(struct tap_ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        goto fail;
    if (pm_tap_join(inner, memory, 0, &pm))
        goto fail_unmap;
    ((struct tap *)pm)->fd = fd;
    *out = pm;
    return 0;

fail_unmap:
    munmap(memory, sizeof(struct tap_ring));
fail:
    close(fd);
    return ROWAN_ENOMEM;
}

int pm_tap_fd(const struct pm *pm)
{
    return pm->ops == &tap_ops ? ((const struct tap *)pm)->fd : -1;
}

struct pm *pm_tap_view(struct pm *pm, uint32_t sender, struct pm_view *view)
{
    if (pm->ops != &tap_ops)
        return pm;
    init_view(view, ((struct pm_view *)pm)->inner, ((struct pm_view *)pm)->ring, sender);
    return &view->pm;
}

struct pm *pm_tap_beneath(struct pm *pm)
{
    return pm->ops == &tap_ops ? ((struct pm_view *)pm)->inner : pm;
}

void pm_tap_note(struct pm *pm, uint64_t offset, size_t bytes)
{
    if (pm->ops == &tap_ops)
        note((struct pm_view *)pm, offset, bytes, false);
}

/* --- reading --- */

/* 3 */
static bool unpack(const struct tap *tap, uint64_t place, uint64_t what, struct pm_record *out)
{
    const uint64_t requests = tap->view.pm.bytes / PM_TAP_REQUEST_BYTES;
    const struct pm_record record = {.first = place >> 21,
                                     .count = (uint32_t)(what >> 40),
                                     .sender = (uint32_t)(what >> TURN_BITS) & (PM_TAP_SENDERS - 1),
                                     .zero = place >> 20 & 1};

    if (record.count == 0 || record.first > requests || record.count > requests - record.first)
        return false;
    *out = record;
    return true;
}

static bool has_turn(uint64_t word, uint64_t number)
{
    return (word & ((1 << TURN_BITS) - 1)) == turn_of(number);
}

bool pm_tap_read(struct pm *pm, struct pm_record *out)
{
    struct tap *tap = (struct tap *)pm;
    struct tap_ring *ring = tap->view.ring;
    const uint64_t claimed = atomic_load_explicit(&ring->claimed, memory_order_acquire);

    ASSERT(pm->ops == &tap_ops);
    if (claimed < tap->read) { /* 3 */
        tap->lost++;
        tap->read = claimed;
    }
    if (claimed - tap->read > RECORDS) {
        tap->lost += claimed - RECORDS - tap->read;
        tap->read = claimed - RECORDS;
    }
    while (tap->read < claimed) {
        const struct tap_slot *slot = &ring->slots[tap->read % RECORDS];
        const uint64_t what = atomic_load_explicit(&slot->what, memory_order_acquire);
        const uint64_t place = atomic_load_explicit(&slot->place, memory_order_acquire);
        const bool is_whole = has_turn(what, tap->read) && has_turn(place, tap->read);

        if (!is_whole && claimed - tap->read <= PM_TAP_PATIENCE)
            return false; /* it may be written yet */
        tap->read++;
        if (is_whole && unpack(tap, place, what, out))
            return true;
        tap->lost++;
    }
    return false;
}

uint64_t pm_tap_lost(const struct pm *pm)
{
    return ((const struct tap *)pm)->lost;
}
