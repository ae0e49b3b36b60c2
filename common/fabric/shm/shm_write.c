/* shm_write.c - bulk writes on this host, the writer's side: it stores into the owner's memory itself, a piece in
 * each poll, through the steps of shm_grant.c.
 *
 * 1. written <= stored <= flushed <= added <= reported + SHM_WRITES, in writes since the beginning.
 * 2. Only between G2 and G3, both inside of one call, anything is stored: so a writer that moves on, or closes the
 *    connection, is not in the middle.
 * 3. Stores are visible before the grant is GRANTED again or VOID: that is a locked instruction behind the fence's
 *    start, which orders non-temporal stores, too (pm.h).
 */
#include <stdlib.h>

#include "common/base/error.h"
#include "common/fabric/shm/shm.h"

enum { PIECE_BYTES = 1 << 20 /* stored at once, and in one push */ };

struct write {
    const uint8_t *data;
    uint32_t bytes;
    uint64_t index, generation; /* of the grant */
    uint64_t at;
    uint64_t context;
    struct pm_ticket ticket; /* once stored */
};

struct shm_writer {
    uint64_t added, flushed, stored, written, reported;
    uint32_t done; /* bytes of the write at `stored` that are */
    struct write writes[SHM_WRITES];
};

static struct write *write_at(struct shm_writer *writer, uint64_t number)
{
    return &writer->writes[number % SHM_WRITES];
}

int shm_write(struct fabric_conn *base, const struct fabric_grant *grant, uint64_t at,
              const void *data, uint32_t bytes, uint64_t context)
{
    struct shm_conn *conn = (struct shm_conn *)base;
    struct shm_writer *writer;

    if (conn->state >= CONN_BREAKING)
        return ROWAN_ECLOSED;
    if (!conn->rowan || !conn->announced || bytes == 0 || bytes % FABRIC_STRIDE != 0 ||
        at % FABRIC_STRIDE != 0 || bytes > FABRIC_MAX_WRITE_BYTES ||
        !regions_hold(&conn->endpoint->fabric->regions, data, bytes))
        return ROWAN_EINVALID;
    if (!conn->writer)
        conn->writer = calloc(1, sizeof *conn->writer);
    writer = conn->writer;
    if (!writer)
        return ROWAN_ENOMEM;
    if (writer->added - writer->reported == SHM_WRITES)
        return ROWAN_EAGAIN;
    *write_at(writer, writer->added++) = (struct write){.data = data,
                                                        .bytes = bytes,
                                                        .index = grant->words[0],
                                                        .generation = grant->words[1],
                                                        .at = at,
                                                        .context = context};
    conn_list(conn, LIST_DIRTY);
    conn_list(conn, LIST_ACTIVE);
    return 0;
}

/* --- G2, G3 --- */

/* The place of the write in the owner's memory; false: it is not inside of a grant of ours. Read while the grant is
 * ours, so it is that of this generation. */
static bool find_place(const struct shm_conn *conn, const struct zone_grant *grant,
                       const struct write *write, uint64_t *place)
{
    const uint64_t offset = atomic_load_explicit(&grant->offset, memory_order_relaxed);
    const uint64_t bytes = atomic_load_explicit(&grant->bytes, memory_order_relaxed);
    const uint64_t end = shm_rowan_pm(conn->rowan)->bytes;

    *place = offset + write->at;
    return atomic_load_explicit(&grant->sender, memory_order_relaxed) ==
               shm_rowan_sender(conn->rowan) &&
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

static struct zone_grant *grant_of(const struct shm_conn *conn, const struct write *write)
{
    return write->index < FABRIC_MAX_GRANTS ? &shm_rowan_control(conn->rowan)->grants[write->index]
                                            : NULL;
}

/* The next piece of the oldest write. False: the grant is not there any more, or never was. */
static bool store_piece(struct shm_conn *conn)
{
    struct shm_writer *writer = conn->writer;
    struct write *write = write_at(writer, writer->stored);
    struct pm *pm = shm_rowan_pm(conn->rowan);
    struct zone_grant *grant = grant_of(conn, write);
    const uint32_t left = write->bytes - writer->done;
    const uint32_t piece = left < PIECE_BYTES ? left : PIECE_BYTES;
    uint64_t place;
    bool found;

    if (!grant || !move(grant, write->generation, GRANT_GRANTED, GRANT_BUSY))
        return false;
    shm_step(STEP_BUSY, conn);
    found = find_place(conn, grant, write, &place);
    if (found)
        pm_store(pm, place + writer->done, write->data + writer->done, piece);
    shm_step(STEP_WRITTEN, conn);
    write->ticket = pm_fence_start(pm);
    if (!move(grant, write->generation, GRANT_BUSY, GRANT_GRANTED)) {
        move(grant, write->generation, GRANT_REVOKING, GRANT_VOID);
        return false;
    }
    if (!found)
        return false;
    writer->done += piece;
    if (writer->done == write->bytes) {
        writer->stored++;
        writer->done = 0;
    }
    return true;
}

void shm_writer_push(struct shm_conn *conn)
{
    struct shm_writer *writer = conn->writer;
    uint32_t bytes = 0;

    writer->flushed = writer->added;
    while (writer->stored < writer->flushed && bytes < PIECE_BYTES) {
        bytes += write_at(writer, writer->stored)->bytes - writer->done;
        if (!store_piece(conn)) {
            conn_break(conn, ROWAN_ECLOSED, true);
            return;
        }
    }
}

/* --- WRITTEN --- */

static bool is_revoked(const struct shm_conn *conn)
{
    const struct zone_control *control = shm_rowan_control(conn->rowan);

    return atomic_load_explicit(&control->senders[shm_rowan_sender(conn->rowan)].revoked,
                                memory_order_seq_cst);
}

unsigned shm_writer_poll(struct shm_conn *conn, struct fabric_event *events, unsigned max)
{
    struct shm_writer *writer = conn->writer;
    unsigned count = 0;

    while (writer->written < writer->stored) {
        const int done =
            pm_fence_done(shm_rowan_pm(conn->rowan), write_at(writer, writer->written)->ticket);

        if (done < 0) {
            conn_break(conn, done, false);
            return 0;
        }
        if (done == 0)
            break;
        writer->written++;
    }
    if (writer->reported == writer->written)
        return 0;
    if (is_revoked(conn)) {
        conn_break(conn, ROWAN_ECLOSED, true);
        conn->endpoint->woken = true;
        return 0;
    }
    while (count < max && writer->reported < writer->written)
        events[count++] =
            (struct fabric_event){.kind = FABRIC_WRITTEN,
                                  .conn = &conn->base,
                                  .context = write_at(writer, writer->reported++)->context};
    return count;
}

bool shm_writer_rests(const struct shm_conn *conn)
{
    return !conn->writer || conn->writer->reported == conn->writer->added;
}

bool shm_writer_is_syncing(const struct shm_conn *conn)
{
    struct shm_writer *writer = conn->writer;

    return writer && writer->written < writer->stored &&
           pm_fence_done(shm_rowan_pm(conn->rowan), write_at(writer, writer->stored - 1)->ticket) ==
               0;
}
