/* tcp_slab.c - memory that messages lie in, shared by all connections of an endpoint, so that an idle
 * one costs none. Four kinds, each with a limit:
 *
 *   chunks   what is read goes into one chunk, connection after connection; whole messages are
 *            delivered where they lie. A chunk is free when the last of them is released.
 *   middle, large   one message each that the end of a read has cut, or that is sent and is too
 *            large for one of these:
 *   out      what one connection sends, while it waits.
 *
 * 1. A slab is used while it has references. The chunk that is read into needs none.
 * 2. At most `kept` free slabs of a kind are kept; the others go back to the system.
 */
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/fabric/tcp/tcp.h"

static const struct {
    uint32_t count, bytes, kept;
} kinds[SLAB_KINDS] = {
    [SLAB_CHUNK] = {TCP_CHUNKS, TCP_CHUNK_BYTES, TCP_SLABS_KEPT},
    [SLAB_MIDDLE] = {TCP_MIDDLES, TCP_MIDDLE_BYTES, TCP_SLABS_KEPT},
    [SLAB_LARGE] = {TCP_LARGES, TCP_LARGE_BYTES, TCP_LARGES_KEPT},
    [SLAB_OUT] = {TCP_OUTS, TCP_OUT_BYTES, TCP_OUTS_KEPT},
};

static struct tcp_slab *slab_create(struct tcp_slabs *slabs, enum slab_kind kind)
{
    const size_t alignment = kind == SLAB_OUT ? _Alignof(struct tcp_slab) : TCP_SLAB_ALIGNMENT;
    struct tcp_slab *slab;
    void *memory;

    if (slabs->counts[kind] == kinds[kind].count ||
        posix_memalign(&memory, alignment, sizeof *slab + kinds[kind].bytes) != 0)
        return NULL;
    slab = memory;
    slab->kind = kind;
    slabs->counts[kind]++;
    return slab;
}

struct tcp_slab *slab_take(struct tcp_endpoint *endpoint, enum slab_kind kind)
{
    struct tcp_slabs *slabs = &endpoint->slabs;
    struct tcp_slab *slab = slabs->free[kind];

    if (slab) {
        slabs->free[kind] = slab->next_free;
        slabs->free_count[kind]--;
    } else {
        slab = slab_create(slabs, kind);
        if (!slab) {
            slabs->wanted |= kind == SLAB_OUT ? 0 : UINT32_C(1) << kind; /* tcp_send.c, 2 */
            return NULL;
        }
    }
    slab->refs = 1;
    slab->used = 0;
    return slab;
}

static void slab_free(struct tcp_slabs *slabs, struct tcp_slab *slab)
{
    slabs->wanted &=
        ~(UINT32_C(1) << slab->kind); /* there is one again; who still finds none says so */
    if (slabs->free_count[slab->kind] == kinds[slab->kind].kept) { /* 2 */
        slabs->counts[slab->kind]--;
        free(slab);
        return;
    }
    slab->next_free = slabs->free[slab->kind];
    slabs->free[slab->kind] = slab;
    slabs->free_count[slab->kind]++;
}

void slabs_try_again(struct tcp_endpoint *endpoint)
{
    struct conn *conn;

    while ((conn = conn_list_take(&endpoint->base, LIST_NO_MEMORY)))
        conn_list_add(conn, LIST_ACTIVE);
}

void slab_unused(struct tcp_endpoint *endpoint, struct tcp_slab *slab)
{
    const bool is_out = slab->kind == SLAB_OUT; /* for which nobody waits */

    if (slab == endpoint->slabs.chunk)
        slab->used = 0;
    else
        slab_free(&endpoint->slabs, slab);
    if (!is_out)
        slabs_try_again(endpoint);
}

struct tcp_slab *slab_chunk(struct tcp_endpoint *endpoint)
{
    struct tcp_slabs *slabs = &endpoint->slabs;
    struct tcp_slab *chunk = slabs->chunk;

    if (chunk && TCP_CHUNK_BYTES - chunk->used >= TCP_READ_ROOM)
        return chunk;
    chunk = slab_take(endpoint, SLAB_CHUNK);
    if (!chunk)
        return NULL;
    chunk->refs = 0;
    /* The full one has references, or its `used` were 0: the last of them will free it. */
    slabs->chunk = chunk;
    return chunk;
}

void slabs_fini(struct tcp_endpoint *endpoint)
{
    struct tcp_slabs *slabs = &endpoint->slabs;

    for (unsigned kind = 0; kind < SLAB_KINDS; kind++) {
        struct tcp_slab *slab;

        while ((slab = slabs->free[kind])) {
            slabs->free[kind] = slab->next_free;
            free(slab);
        }
    }
    free(slabs->chunk);
}
