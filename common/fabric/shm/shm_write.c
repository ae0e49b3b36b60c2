/* shm_write.c - bulk writes on this host, the writer's side: it stores into the owner's memory itself, a piece in
 * each poll, through the steps of shm_grant.c.
 *
 * 1. written <= stored <= flushed (window.h), in writes since the beginning.
 * 2. Only between G2 and G3, both inside of one call, anything is stored: so a writer that moves on, or closes the
 *    connection, is not in the middle.
 * 3. Stores are visible before the grant is GRANTED again or VOID: that is a locked instruction behind the fence's
 *    start, which orders non-temporal stores, too (pm.h).
 */
#include "common/base/error.h"
#include "common/fabric/shm/shm.h"

enum { PIECE_BYTES = 1 << 20 /* stored at once, and in one push */ };

/* --- G2, G3 --- */

/* The place of the write in the owner's memory; false: it is not inside of a grant of ours. Read while the grant is
 * ours, so it is that of this generation. */
static bool find_place(const struct shm_conn *conn, const struct zone_grant *grant,
                       const struct window_write *write, uint64_t *place)
{
    const uint64_t offset = atomic_load_explicit(&grant->offset, memory_order_relaxed);
    const uint64_t bytes = atomic_load_explicit(&grant->bytes, memory_order_relaxed);
    const uint64_t end = conn->rowan->pm->bytes;

    *place = offset + write->at;
    return atomic_load_explicit(&grant->sender, memory_order_relaxed) ==
               (uint64_t)(conn->rowan->self - conn->rowan->control->senders) &&
           offset <= end && bytes <= end - offset && write->at <= bytes &&
           write->bytes <= bytes - write->at;
}

static bool move(struct zone_grant *grant, uint64_t generation, enum grant_word from,
                 enum grant_word to)
{
    uint64_t before = grant_pack(generation, from);

    return atomic_compare_exchange_strong_explicit(&grant->state, &before,
                                                   grant_pack(generation, to), memory_order_seq_cst,
                                                   memory_order_relaxed);
}

static struct zone_grant *grant_of(const struct shm_conn *conn, const struct window_write *write)
{
    return &conn->rowan->control->grants[grants_index(write->grant.words[0])];
}

/* The next piece of the oldest write. False: the grant is not there any more, or never was. */
static bool store_piece(struct shm_conn *conn)
{
    struct window_write *write = window_write(conn->base.writes, conn->stored);
    struct pm *pm = conn->rowan->pm;
    struct zone_grant *grant = grant_of(conn, write);
    const uint64_t generation = write->grant.words[0] / FABRIC_MAX_GRANTS;
    const uint32_t left = write->bytes - conn->stored_bytes;
    const uint32_t piece = left < PIECE_BYTES ? left : PIECE_BYTES;
    uint64_t place;
    bool found;

    if (!move(grant, generation, GRANT_GRANTED, GRANT_BUSY))
        return false;
    shm_step(STEP_BUSY, conn);
    found = find_place(conn, grant, write, &place);
    if (found)
        pm_store(pm, place + conn->stored_bytes, write->data + conn->stored_bytes, piece);
    shm_step(STEP_WRITTEN, conn);
    write->ticket = pm_fence_start(pm);
    if (!move(grant, generation, GRANT_BUSY, GRANT_GRANTED)) {
        move(grant, generation, GRANT_REVOKING, GRANT_VOID);
        return false;
    }
    if (!found)
        return false;
    conn->stored_bytes += piece;
    if (conn->stored_bytes == write->bytes) {
        conn->stored++;
        conn->stored_bytes = 0;
    }
    return true;
}

void shm_writer_push(struct shm_conn *conn)
{
    struct write_window *writes = conn->base.writes;
    uint32_t bytes = 0;

    writes->flushed = writes->added;
    while (conn->stored < writes->flushed && bytes < PIECE_BYTES) {
        bytes += window_write(writes, conn->stored)->bytes - conn->stored_bytes;
        if (!store_piece(conn)) {
            conn_break(&conn->base, ROWAN_ECLOSED, true);
            return;
        }
    }
}

/* --- WRITTEN --- */

unsigned shm_writer_poll(struct shm_conn *conn, struct fabric_event *events, unsigned max)
{
    struct write_window *writes = conn->base.writes;

    while (writes->written < conn->stored) {
        const int done =
            pm_fence_done(conn->rowan->pm, window_write(writes, writes->written)->ticket);

        if (done < 0) {
            conn_break(&conn->base, done, false);
            return 0;
        }
        if (done == 0)
            break;
        writes->written++;
    }
    return writes->reported < writes->written && shm_rowan_may_report(conn)
               ? window_write_events(&conn->base, events, max)
               : 0;
}

bool shm_writer_rests(const struct shm_conn *conn)
{
    return !conn->base.writes || conn->base.writes->reported == conn->base.writes->added;
}

bool shm_writer_is_syncing(const struct shm_conn *conn)
{
    struct write_window *writes = conn->base.writes;

    return writes && writes->written < conn->stored &&
           pm_fence_done(conn->rowan->pm, window_write(writes, conn->stored - 1)->ticket) == 0;
}
