/* tcp_write.c - bulk writes at the writer. They go over a socket of their own, so that a landing zone without
 * segments and messages that nobody reads hold up no bulk write, and the reverse; it is made when the first one is
 * flushed, and what is added meanwhile waits. The peer answers with the count of those that are durable.
 *
 * 1. written <= begun <= flushed (window.h), in writes since the beginning.
 * 2. A write that was sent in part is finished before the next begins.
 */
#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

static void begin_write(struct tcp_writer *writer, struct write_window *writes)
{
    const struct window_write *write = window_write(writes, writer->begun);

    writer->head = (struct tcp_write_head){.magic = TCP_WRITE_MAGIC,
                                           .bytes = write->bytes,
                                           .number = writer->begun,
                                           .key = write->grant.words[0],
                                           .at = write->at};
    writer->begun++;
    writer->sent = 0;
}

/* What is left of the write on its way: 0, nothing is; else how many pieces it has. */
static unsigned gather(struct tcp_writer *writer, struct write_window *writes,
                       struct iovec pieces[2], uint64_t *asked)
{
    const uint64_t head = sizeof writer->head;
    const struct window_write *write = window_write(writes, writer->begun - 1);
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
    struct tcp_writer *writer = &conn->sender->writer;
    struct write_window *writes = conn->base.writes;

    writes->flushed = writes->added;
    if (!writer->usable)
        writer->usable = tcp_bulk_step(conn);
    if (writer->usable && conn->bulk.readable)
        conn_list_add(&conn->base, LIST_ACTIVE);
    while (writer->usable && conn->bulk.writable) {
        struct iovec pieces[2];
        uint64_t asked;
        const unsigned count = gather(writer, writes, pieces, &asked);

        if (count > 0) {
            writer->sent += tcp_conn_write(conn, &conn->bulk, pieces, count, asked);
        } else { /* 2 */
            if (writer->begun == writes->flushed)
                return;
            begin_write(writer, writes);
        }
    }
}

bool writer_has_events(const struct tcp_conn *conn)
{
    const struct write_window *writes = conn->base.writes;

    return writes &&
           (writes->reported < writes->written ||
            (conn->sender->writer.usable && conn->bulk.readable && conn->base.state == CONN_OPEN));
}

unsigned writer_poll(struct tcp_conn *conn, struct fabric_event *events, unsigned max)
{
    struct tcp_writer *writer = &conn->sender->writer;

    if (conn->base.state == CONN_OPEN && writer->usable && conn->bulk.readable) /* 1 */
        tcp_conn_read_count(conn, &conn->bulk, &writer->count, &conn->base.writes->written,
                            writer->begun);
    return window_write_events(&conn->base, events, max);
}
