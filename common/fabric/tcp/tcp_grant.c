/* tcp_grant.c - bulk writes at the one who granted them: from the socket into the granted memory, by whole reads.
 *
 * 1. What comes is stored by this thread alone, so a grant that is revoked is written no more at once.
 * 2. A head is checked, key and place, before a byte of its write is stored. One that is not inside of a live grant
 *    of this connection ends the connection, and so does the rest of a write whose grant was revoked.
 * 3. A write that has come in part holds up nobody, but for its own connection's others; one of which nothing has
 *    come for TCP_CUT_NS ends it, as a cut block does.
 *
 *   grant:  FREE -- tcp_grant --> LIVE -- tcp_revoke, or the connection's end --> OVER -- REVOKED --> FREE
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

enum grant_state { GRANT_FREE, GRANT_LIVE, GRANT_OVER };

struct grant {
    enum grant_state state;
    const struct tcp_conn *conn;
    uint64_t key;
    uint64_t offset, bytes;
    uint64_t context;
};

struct tcp_grants {
    uint32_t over; /* of these, to report */
    struct grant all[FABRIC_MAX_GRANTS];
};

struct tcp_bulk {
    struct tcp_receipt receipt;
    uint32_t head_got;
    uint32_t left;        /* bytes of a write that are to come; 0: a head is */
    struct grant *grant;  /* of that write */
    uint64_t at;          /* in the PM: where they go */
    uint64_t progress_ns; /* when it last grew */
    struct tcp_write_head head;
};

/* --- grant, revoke --- */

static struct grant *find_grant(const struct tcp_conn *conn, uint64_t key)
{
    struct tcp_grants *grants = conn->endpoint->grants;

    for (unsigned i = 0; grants && i < FABRIC_MAX_GRANTS; i++) {
        struct grant *grant = &grants->all[i];

        if (grant->state == GRANT_LIVE && grant->conn == conn && grant->key == key)
            return grant;
    }
    return NULL;
}

static struct grant *free_grant(struct tcp_grants *grants)
{
    for (unsigned i = 0; i < FABRIC_MAX_GRANTS; i++) {
        if (grants->all[i].state == GRANT_FREE)
            return &grants->all[i];
    }
    return NULL;
}

int tcp_grant(struct fabric_conn *base, uint64_t offset, uint64_t bytes, uint64_t context,
              struct fabric_grant *out)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;
    struct tcp_endpoint *endpoint = conn->endpoint;
    struct grant *grant;

    if (conn->state != CONN_OPEN)
        return ROWAN_ECLOSED;
    if (!conn->landing || bytes == 0 || bytes % FABRIC_STRIDE != 0 || offset % FABRIC_STRIDE != 0 ||
        offset > zone_pm(endpoint->zone)->bytes || bytes > zone_pm(endpoint->zone)->bytes - offset)
        return ROWAN_EINVALID;
    if (!endpoint->grants)
        endpoint->grants = calloc(1, sizeof *endpoint->grants);
    if (!endpoint->grants)
        return ROWAN_ENOMEM;
    grant = free_grant(endpoint->grants);
    if (!grant)
        return ROWAN_ETOOMANY;
    *grant = (struct grant){.state = GRANT_LIVE,
                            .conn = conn,
                            .key = random_u64(&endpoint->random),
                            .offset = offset,
                            .bytes = bytes,
                            .context = context};
    *out = (struct fabric_grant){.words = {grant->key, bytes}};
    return 0;
}

static void end_grant(struct tcp_endpoint *endpoint, struct grant *grant)
{
    grant->state = GRANT_OVER;
    grant->conn = NULL;
    endpoint->grants->over++;
}

void tcp_revoke(struct fabric_conn *base, const struct fabric_grant *words)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;
    struct grant *grant = find_grant(conn, words->words[0]);

    if (!grant)
        return;
    end_grant(conn->endpoint, grant);
    if (conn->bulk_in && conn->bulk_in->left > 0 && conn->bulk_in->grant == grant) /* 2 */
        tcp_conn_break(conn, ROWAN_ECLOSED, true);
}

void grants_end(struct tcp_conn *conn)
{
    struct tcp_grants *grants = conn->endpoint->grants;

    conn->bulk.readable = false;
    list_remove(conn, LIST_BULK);
    list_remove(conn, LIST_WRITING);
    for (unsigned i = 0; grants && i < FABRIC_MAX_GRANTS; i++) {
        if (grants->all[i].state == GRANT_LIVE && grants->all[i].conn == conn)
            end_grant(conn->endpoint, &grants->all[i]);
    }
}

bool grants_have_events(const struct tcp_endpoint *endpoint)
{
    return endpoint->grants && endpoint->grants->over > 0;
}

unsigned grants_poll(struct tcp_endpoint *endpoint, struct fabric_event *events, unsigned max)
{
    struct tcp_grants *grants = endpoint->grants;
    unsigned count = 0;

    for (unsigned i = 0; i < FABRIC_MAX_GRANTS && grants->over > 0 && count < max; i++) {
        struct grant *grant = &grants->all[i];

        if (grant->state != GRANT_OVER)
            continue;
        events[count++] = (struct fabric_event){.kind = FABRIC_REVOKED, .context = grant->context};
        *grant = (struct grant){.state = GRANT_FREE};
        grants->over--;
    }
    return count;
}

/* --- receive --- */

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
    struct grant *grant = find_grant(conn, head->key);

    bulk->head_got = 0;
    if (head->magic != TCP_WRITE_MAGIC || head->number != bulk->receipt.received || !grant ||
        head->bytes == 0 || head->bytes % FABRIC_STRIDE != 0 || head->at % FABRIC_STRIDE != 0 ||
        head->bytes > FABRIC_MAX_WRITE_BYTES || head->at > grant->bytes ||
        head->bytes > grant->bytes - head->at)
        return false;
    bulk->left = head->bytes;
    bulk->grant = grant;
    bulk->at = grant->offset + head->at;
    bulk->progress_ns = conn->endpoint->now_ns;
    list_add(conn, LIST_WRITING);
    return true;
}

/* `bytes` have come: what was missing of a write, then of the next head. False: nonsense. */
static bool take_read(struct tcp_conn *conn, uint32_t bytes)
{
    struct tcp_bulk *bulk = conn->bulk_in;
    const uint32_t part = bytes < bulk->left ? bytes : bulk->left;

    if (part > 0) {
        pm_flush(zone_pm(conn->endpoint->zone), bulk->at, part);
        bulk->at += part;
        bulk->left -= part;
        bulk->progress_ns = conn->endpoint->now_ns;
        if (bulk->left == 0) {
            bulk->receipt.received++;
            list_add(conn, LIST_FENCING);
            list_remove(conn, LIST_WRITING);
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
        pieces[count++] = (struct iovec){zone_pm(conn->endpoint->zone)->base + bulk->at,
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

static void read_bulk(struct tcp_conn *conn)
{
    size_t bytes = 0;

    for (unsigned i = 0; i < READS && bytes < READ_MAX && conn->bulk.readable; i++) {
        const ssize_t got = read_once(conn);

        if (got == ROWAN_ECLOSED) {
            tcp_conn_break(conn, ROWAN_ECLOSED, true);
            return;
        }
        if (got < 0)
            continue;
        bytes += (size_t)got;
        if (!take_read(conn, (uint32_t)got)) {
            log_event(LOG_WARN, "connection_garbage", "endpoint=%u peer=%u writes=%llu",
                      conn->endpoint->index, conn->peer.id,
                      (unsigned long long)conn->bulk_in->receipt.received);
            tcp_conn_break(conn, ROWAN_EFORMAT, false);
            return;
        }
    }
    if (conn->bulk.readable)
        list_add(conn, LIST_BULK);
}

void bulk_poll(struct tcp_endpoint *endpoint)
{
    const struct tcp_conn *last = endpoint->lists[LIST_BULK].last;
    struct tcp_conn *conn;
    bool is_last = false;

    while (!is_last && (conn = list_take(endpoint, LIST_BULK))) {
        is_last = conn == last;
        if (conn->state == CONN_OPEN && endpoint->zone)
            read_bulk(conn);
    }
}

void bulk_check(struct tcp_endpoint *endpoint)
{
    for (struct tcp_conn *conn = endpoint->lists[LIST_WRITING].first, *next; conn; conn = next) {
        next = conn->links[LIST_WRITING].next;
        if (!is_listed(conn, LIST_BULK) &&
            endpoint->now_ns - conn->bulk_in->progress_ns > TCP_CUT_NS) { /* 3 */
            log_event(LOG_WARN, "write_cut", "endpoint=%u peer=%u missing=%u", endpoint->index,
                      conn->peer.id, conn->bulk_in->left);
            tcp_conn_break(conn, ROWAN_ECLOSED, false);
        }
    }
}
