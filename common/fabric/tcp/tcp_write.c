/* tcp_write.c - bulk writes at the writer. They go over a socket of their own, so that a dry landing zone and
 * messages that nobody reads hold up no bulk write, and the reverse; it is made when the first one is added, and
 * what is added meanwhile waits. The peer answers with the count of those that are durable.
 *
 * 1. written <= begun <= flushed <= added <= written + TCP_WRITES, in writes since the beginning.
 * 2. A write that was sent in part is finished before the next begins.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

enum { ACK_READ_BYTES = 512 };

struct write {
    const uint8_t *data;
    uint32_t bytes;
    uint64_t key, at;
    uint64_t context;
};

struct tcp_writer {
    bool said_hello, usable; /* the socket */
    uint64_t added, flushed, begun, written, reported;
    uint64_t
        sent; /* bytes of the write before `begun`, its head included; all of them: none is on its way */
    struct tcp_write_head head;
    uint32_t ack_got; /* of a count that a read has cut */
    uint8_t ack[8];
    struct write writes[TCP_WRITES];
};

static struct write *write_at(struct tcp_writer *writer, uint64_t number)
{
    return &writer->writes[number % TCP_WRITES];
}

/* --- add --- */

static int writer_of(struct tcp_conn *conn)
{
    if (conn->writer)
        return 0;
    conn->writer = calloc(1, sizeof *conn->writer);
    if (!conn->writer)
        return ROWAN_ENOMEM;
    tcp_bulk_connect(conn);
    return conn->state == CONN_OPEN ? 0 : ROWAN_ECLOSED;
}

int tcp_write_bulk(struct fabric_conn *base, const struct fabric_grant *grant, uint64_t at,
                   const void *data, uint32_t bytes, uint64_t context)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;
    struct tcp_writer *writer;
    int error;

    if (conn->state != CONN_OPEN)
        return ROWAN_ECLOSED;
    if (!conn->sender || bytes == 0 || bytes % FABRIC_STRIDE != 0 || at % FABRIC_STRIDE != 0 ||
        bytes > FABRIC_MAX_WRITE_BYTES ||
        !regions_hold(&conn->endpoint->fabric->regions, data, bytes))
        return ROWAN_EINVALID;
    error = writer_of(conn);
    if (error)
        return error;
    writer = conn->writer;
    if (writer->added - writer->reported == TCP_WRITES)
        return ROWAN_EAGAIN;
    *write_at(writer, writer->added++) = (struct write){
        .data = data, .bytes = bytes, .key = grant->words[0], .at = at, .context = context};
    list_add(conn, LIST_DIRTY);
    return 0;
}

/* --- send --- */

static void begin_write(struct tcp_writer *writer)
{
    const struct write *write = write_at(writer, writer->begun);

    writer->head = (struct tcp_write_head){.magic = TCP_WRITE_MAGIC,
                                           .bytes = write->bytes,
                                           .number = writer->begun,
                                           .key = write->key,
                                           .at = write->at};
    writer->begun++;
    writer->sent = 0;
}

/* What is left of the write on its way: 0, nothing is; else how many pieces it has. */
static unsigned gather(struct tcp_writer *writer, struct iovec pieces[2], uint64_t *asked)
{
    const uint64_t head = sizeof writer->head;
    const struct write *write = write_at(writer, writer->begun - 1);
    unsigned count = 0;

    *asked = 0;
    if (writer->begun == 0 || writer->sent == head + write->bytes)
        return 0;
    *asked = head + write->bytes - writer->sent;
    if (writer->sent < head)
        pieces[count++] =
            (struct iovec){(uint8_t *)&writer->head + writer->sent, head - writer->sent};
    const uint64_t from = writer->sent < head ? 0 : writer->sent - head;

    pieces[count++] = (struct iovec){(void *)(uintptr_t)(write->data + from), write->bytes - from};
    return count;
}

void writer_push(struct tcp_conn *conn)
{
    struct tcp_writer *writer = conn->writer;

    writer->flushed = writer->added;
    if (!writer->usable)
        writer->usable = tcp_bulk_step(conn, &writer->said_hello);
    if (writer->usable && conn->bulk.readable)
        list_add(conn, LIST_ACTIVE);
    while (writer->usable && conn->bulk.writable) {
        struct iovec pieces[2];
        uint64_t asked;
        unsigned count = gather(writer, pieces, &asked);
        ssize_t sent;

        if (count == 0) { /* 2 */
            if (writer->begun == writer->flushed)
                return;
            begin_write(writer);
            continue;
        }
        sent = tcp_write(conn->bulk.fd, pieces, count);
        if (sent > 0)
            writer->sent += (uint64_t)sent;
        if (sent < 0 || (uint64_t)sent < asked)
            conn->bulk.writable = false;
        if (sent == ROWAN_ECLOSED) { /* what had arrived is read before CLOSED */
            conn->bulk.readable = true;
            list_add(conn, LIST_ACTIVE);
        }
    }
}

/* --- acknowledgements --- */

/* False: nonsense. */
static bool take_acks(struct tcp_writer *writer, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        size_t part = sizeof writer->ack - writer->ack_got;
        uint64_t written;

        part = bytes < part ? bytes : part;
        memcpy(writer->ack + writer->ack_got, data, part);
        writer->ack_got += (uint32_t)part;
        data += part;
        bytes -= part;
        if (writer->ack_got < sizeof writer->ack)
            break;
        writer->ack_got = 0;
        memcpy(&written, writer->ack, sizeof written);
        if (written <= writer->written || written > writer->begun) /* 1 */
            return false;
        writer->written = written;
    }
    return true;
}

static void read_acks(struct tcp_conn *conn)
{
    uint8_t data[ACK_READ_BYTES];
    const struct iovec piece = {data, sizeof data};
    const ssize_t got = tcp_read(conn->bulk.fd, &piece, 1);

    socket_was_read(&conn->bulk, got, sizeof data);
    if (got > 0 && !take_acks(conn->writer, data, (size_t)got))
        tcp_conn_break(conn, ROWAN_EFORMAT, false);
    else if (got == ROWAN_ECLOSED)
        tcp_conn_break(conn, ROWAN_ECLOSED, true);
}

bool writer_has_events(const struct tcp_conn *conn)
{
    const struct tcp_writer *writer = conn->writer;

    return writer && (writer->reported < writer->written ||
                      (writer->usable && conn->state == CONN_OPEN && conn->bulk.readable));
}

unsigned writer_poll(struct tcp_conn *conn, struct fabric_event *events, unsigned max)
{
    struct tcp_writer *writer = conn->writer;
    unsigned count = 0;

    if (conn->state == CONN_OPEN && writer->usable && conn->bulk.readable)
        read_acks(conn);
    while (count < max && writer->reported < writer->written) {
        events[count++] =
            (struct fabric_event){.kind = FABRIC_WRITTEN,
                                  .conn = &conn->base,
                                  .context = write_at(writer, writer->reported)->context,
                                  .peer = conn->peer};
        writer->reported++;
    }
    return count;
}
