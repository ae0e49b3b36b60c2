/* tcp_grant.c - bulk writes at the one who granted them: from the socket into the granted memory, by whole reads.
 *
 * 1. What comes is stored by this thread alone, so a grant that is revoked is written no more at once.
 * 2. A head is checked, key and place, before a byte of its write is stored. One that is not inside of a live grant
 *    of this connection ends the connection, and so does the rest of a write whose grant was revoked.
 * 3. A write that has come in part holds up nobody, but for its own connection's others; one of which nothing has
 *    come for TCP_CUT_NS ends it, as a cut block does.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/tcp/tcp.h"

enum {
    READ_MAX = 1 << 20, /* bytes read of one connection in one poll */
    READS = 16,         /* likewise, calls */
};

struct tcp_bulk {
    struct tcp_receipt receipt;
    uint32_t head_got;
    uint32_t left;             /* bytes of a write that are to come; 0: a head is */
    const struct grant *grant; /* of that write */
    uint64_t at;               /* in the PM: where they go */
    uint64_t progress_ns;      /* when it last grew */
    struct tcp_write_head head;
};

/* 2 */
void tcp_revoked(struct conn *base, const struct grant *grant)
{
    const struct tcp_conn *conn = (const struct tcp_conn *)base;

    if (conn->bulk_in && conn->bulk_in->left > 0 && conn->bulk_in->grant == grant)
        conn_break(base, ROWAN_ECLOSED, true);
}

int bulk_join(struct tcp_conn *conn)
{
    if (conn->bulk_in)
        return ROWAN_EINVALID;
    conn->bulk_in = calloc(1, sizeof *conn->bulk_in);
    return conn->bulk_in ? 0 : ROWAN_ENOMEM;
}

struct tcp_receipt *bulk_receipt(struct tcp_conn *conn)
{
    return conn->bulk_in ? &conn->bulk_in->receipt : NULL;
}

/* 2. False: it is not inside of a live grant. */
static bool begin_write(struct tcp_conn *conn)
{
    struct tcp_bulk *bulk = conn->bulk_in;
    const struct tcp_write_head *head = &bulk->head;
    const struct grant *grant = grants_find(&conn->base, head->key);

    bulk->head_got = 0;
    if (head->magic != TCP_WRITE_MAGIC || head->number != bulk->receipt.received || !grant ||
        head->bytes > FABRIC_MAX_WRITE_BYTES ||
        !window_range_fits(head->at, head->bytes, grant->bytes))
        return false;
    bulk->left = head->bytes;
    bulk->grant = grant;
    bulk->at = grant->offset + head->at;
    bulk->progress_ns = conn->endpoint->base.now_ns;
    conn_list_add(&conn->base, LIST_WRITING);
    return true;
}

/* `bytes` have come: what was missing of a write, then of the next head. False: nonsense. */
static bool take_read(struct tcp_conn *conn, uint32_t bytes)
{
    struct tcp_bulk *bulk = conn->bulk_in;
    const uint32_t part = bytes < bulk->left ? bytes : bulk->left;

    if (part > 0) {
        pm_flush(conn->endpoint->zone->base.pm, bulk->at, part);
        bulk->at += part;
        bulk->left -= part;
        bulk->progress_ns = conn->endpoint->base.now_ns;
        if (bulk->left == 0) {
            bulk->receipt.received++;
            conn_list_add(&conn->base, LIST_FENCING);
            conn_list_remove(&conn->base, LIST_WRITING);
        }
    }
    bulk->head_got += bytes - part;
    return bulk->head_got < sizeof bulk->head || begin_write(conn);
}

/* One read: the rest of a write, as far as a poll's share goes, and the head behind it. */
static ssize_t read_once(struct tcp_conn *conn)
{
    struct tcp_bulk *bulk = conn->bulk_in;
    struct iovec pieces[2];
    unsigned count = 0;
    size_t asked = 0;
    ssize_t got;

    if (bulk->left > 0)
        pieces[count++] = (struct iovec){conn->endpoint->zone->base.pm->base + bulk->at,
                                         bulk->left < READ_MAX ? bulk->left : READ_MAX};
    if (bulk->left <= READ_MAX)
        pieces[count++] = (struct iovec){(uint8_t *)&bulk->head + bulk->head_got,
                                         sizeof bulk->head - bulk->head_got};
    for (unsigned i = 0; i < count; i++)
        asked += pieces[i].iov_len;
    got = tcp_read(conn->bulk.fd, pieces, count);
    socket_was_read(&conn->bulk, got, asked);
    return got;
}

static void read_bulk(struct conn *base)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;
    size_t bytes = 0;

    if (base->state != CONN_OPEN || !conn->endpoint->zone)
        return;
    for (unsigned i = 0; i < READS && bytes < READ_MAX && conn->bulk.readable; i++) {
        const ssize_t got = read_once(conn);

        if (got == ROWAN_ECLOSED) {
            conn_break(&conn->base, ROWAN_ECLOSED, true);
            return;
        }
        if (got < 0)
            continue;
        bytes += (size_t)got;
        if (!take_read(conn, (uint32_t)got)) {
            log_event(LOG_WARN, "connection_garbage", "endpoint=%u peer=%u writes=%llu",
                      conn->endpoint->base.index, conn->base.peer.id,
                      (unsigned long long)conn->bulk_in->receipt.received);
            conn_break(&conn->base, ROWAN_EFORMAT, false);
            return;
        }
    }
    if (conn->bulk.readable)
        conn_list_add(&conn->base, LIST_BULK);
}

void bulk_poll(struct tcp_endpoint *endpoint)
{
    conn_list_visit(&endpoint->base, LIST_BULK, read_bulk);
}

void bulk_check(struct tcp_endpoint *endpoint)
{
    for (CONN_EACH(tcp_conn, conn, &endpoint->base, LIST_WRITING)) {
        if (!conn_is_listed(&conn->base, LIST_BULK) &&
            endpoint->base.now_ns - conn->bulk_in->progress_ns > TCP_CUT_NS) { /* 3 */
            log_event(LOG_WARN, "write_cut", "endpoint=%u peer=%u missing=%u", endpoint->base.index,
                      conn->base.peer.id, conn->bulk_in->left);
            conn_break(&conn->base, ROWAN_ECLOSED, false);
        }
    }
}
