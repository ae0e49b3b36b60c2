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
    uint32_t first, count, bytes, kept;
} kinds[SLAB_KINDS] = {
    [SLAB_CHUNK] = {0, TCP_CHUNKS, TCP_CHUNK_BYTES, TCP_SLABS_KEPT},
    [SLAB_MIDDLE] = {TCP_CHUNKS, TCP_MIDDLES, TCP_MIDDLE_BYTES, TCP_SLABS_KEPT},
    [SLAB_LARGE] = {TCP_CHUNKS + TCP_MIDDLES, TCP_LARGES, TCP_LARGE_BYTES, TCP_SLABS_KEPT},
    [SLAB_OUT] = {TCP_CHUNKS + TCP_MIDDLES + TCP_LARGES, TCP_OUTS, TCP_OUT_BYTES, TCP_OUTS_KEPT},
};

static struct tcp_slab *slab_create(struct tcp_slabs *slabs, enum slab_kind kind)
{
    struct tcp_slab *slab;
    uint32_t id = slabs->next_id[kind], looked = 0;

    while (looked < kinds[kind].count && slabs->by_id[kinds[kind].first + id]) {
        id = (id + 1) % kinds[kind].count;
        looked++;
    }
    if (looked == kinds[kind].count)
        return NULL;
    slab = malloc(sizeof *slab + kinds[kind].bytes);
    if (!slab)
        return NULL;
    *slab = (struct tcp_slab){.id = kinds[kind].first + id, .kind = kind};
    slabs->by_id[slab->id] = slab;
    slabs->next_id[kind] = (id + 1) % kinds[kind].count;
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
            slabs->wanted[kind] = kind != SLAB_OUT; /* tcp_send.c, 2 */
            return NULL;
        }
    }
    slab->refs = 1;
    slab->used = 0;
    return slab;
}

static void slab_free(struct tcp_slabs *slabs, struct tcp_slab *slab)
{
    slabs->wanted[slab->kind] = false; /* there is one again; who still finds none says so */
    if (slabs->free_count[slab->kind] == kinds[slab->kind].kept) { /* 2 */
        slabs->by_id[slab->id] = NULL;
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

static bool lies_in(const struct tcp_slab *slab, const void *data)
{
    return slab && (uintptr_t)data - (uintptr_t)slab->data < kinds[slab->kind].bytes;
}

struct tcp_slab *slab_of(const struct tcp_endpoint *endpoint, const void *data)
{
    uint32_t id = 0;

    while (!lies_in(endpoint->slabs.by_id[id], data)) {
        id++;
        ASSERT(id < TCP_SLABS);
    }
    return endpoint->slabs.by_id[id];
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
    for (uint32_t i = 0; i < TCP_SLABS; i++)
        free(endpoint->slabs.by_id[i]);
}
