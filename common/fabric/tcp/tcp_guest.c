/* tcp_guest.c - messages of guests (F13). A guest has a buffer of its own, for one message, and no part of the memory that
 * connections share: what it sends is read there, and delivered where it lies.
 *
 * 1. While it is a guest `in` is stopped, so tcp_receive.c reads nothing.
 * 2. Its next message is read when the owner has released the one before.
 * 3. Guests are looked at GUESTS_AT_ONCE times in GUESTS_EVERY_NS, in turn, and each time at most one message is delivered: so they
 *    take little time, however many they are and whatever they send, and few of the buffers that answers lie in until the flush. A
 *    guest that does not take its answer at once is cut off (tcp_send.c).
 * 4. Whom the owner trusts goes on in tcp_receive.c when its last message is released. What it has sent behind that lies
 *    in the buffer, and moves to a chunk; until there is one it stays.
 */
#include <stdlib.h>

#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

enum { GUESTS_AT_ONCE = 16 };

#define GUESTS_EVERY_NS NS_PER_MS

struct tcp_guest {
    uint32_t got;  /* bytes from the beginning, where a head is */
    uint32_t done; /* of these, of the message that was delivered */
    bool held;     /* by the owner */
    _Alignas(8) uint8_t data[sizeof(struct tcp_message_head) + FABRIC_GUEST_BYTES];
};

void tcp_guest_release(struct fabric_conn *base, uint64_t message)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;

    (void)message; /* there is one */
    conn->guest->held = false;
    if (conn->base.state == CONN_OPEN)
        conn_list_add(&conn->base, LIST_GUEST_IN);
}

int tcp_guest_came(struct conn *base)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;
    struct tcp_guest *guest = malloc(sizeof *guest);

    if (!guest)
        return ROWAN_ENOMEM;
    guest->got = guest->done = 0;
    guest->held = false;
    conn->guest = guest;
    conn->in.stopped = true; /* 1 */
    conn->base.base.ops = &tcp_guest_ops;
    tcp_guest_event(conn);
    return 0;
}

void tcp_guest_went(struct conn *base)
{
    const struct tcp_conn *conn = (const struct tcp_conn *)base;

    if (base->state == CONN_OPEN && !conn->guest->held)
        conn_list_add(base, LIST_GUEST_IN);
}

void tcp_guest_event(struct tcp_conn *conn)
{
    if (conn->messages.readable && !conn->guest->held)
        conn_list_add(&conn->base, LIST_GUEST_IN);
}

/* 2 */
static void drop_done(struct tcp_guest *guest)
{
    guest->got -= guest->done;
    memmove(guest->data, guest->data + guest->done, guest->got);
    guest->done = 0;
}

/* 4 */
static void go_on(struct tcp_conn *conn)
{
    struct tcp_guest *guest = conn->guest;

    if (guest->got > 0 && !tcp_in_take_over(conn, guest->data, guest->got)) {
        if (conn->messages.ended)
            conn_break(&conn->base, ROWAN_ECLOSED, false);
        else
            conn_list_add(&conn->base, LIST_GUEST_IN);
        return;
    }
    conn->base.base.ops = conn->endpoint->base.base.ops;
    conn->guest = NULL;
    free(guest);
    conn->in.stopped = false;
    conn_list_add(&conn->base, LIST_ACTIVE);
}

static void read_more(struct tcp_conn *conn)
{
    struct tcp_guest *guest = conn->guest;
    const struct iovec iov = {guest->data + guest->got, sizeof guest->data - guest->got};
    const ssize_t got = tcp_read(conn->messages.fd, &iov, 1);

    socket_was_read(&conn->messages, got, iov.iov_len);
    if (got > 0)
        guest->got += (uint32_t)got;
    else if (got != ROWAN_EAGAIN)
        conn_break(&conn->base, ROWAN_ECLOSED, false);
}

static enum unread look(const struct tcp_conn *conn, uint32_t *bytes)
{
    return look_at_unread(conn->guest->data, conn->guest->got, conn->in.number, bytes);
}

static void deliver(struct tcp_conn *conn, uint32_t bytes, struct fabric_event *event)
{
    struct tcp_guest *guest = conn->guest;

    guest->held = true;
    guest->done = message_wire_bytes(bytes);
    conn->in.number++;
    *event = (struct fabric_event){.kind = FABRIC_MESSAGE,
                                   .conn = &conn->base.base,
                                   .bytes = bytes,
                                   .data = guest->data + sizeof(struct tcp_message_head)};
}

/* True: there is an event. */
static bool poll_guest(struct tcp_conn *conn, struct fabric_event *event)
{
    enum unread what;
    uint32_t bytes = 0;

    drop_done(conn->guest);
    what = look(conn, &bytes);
    if (what != UNREAD_WHOLE && conn->guest->got < sizeof conn->guest->data &&
        conn->messages.readable) {
        read_more(conn);
        what = look(conn, &bytes);
    }
    if (conn->base.state != CONN_OPEN)
        return false;
    if (what == UNREAD_GARBAGE) {
        tcp_tell_garbage(conn);
        conn_break(&conn->base, ROWAN_EFORMAT, false);
    } else if (what != UNREAD_CUT_HEAD && bytes > FABRIC_GUEST_BYTES) {
        guest_end(&conn->base, ROWAN_ELOGIN);
    } else if (what == UNREAD_WHOLE) {
        deliver(conn, bytes, event);
        return true;
    } else {
        tcp_guest_event(conn);
    }
    return false;
}

unsigned tcp_guests_poll(struct tcp_endpoint *endpoint, struct fabric_event *events, unsigned max)
{
    const uint64_t now_ns = endpoint->base.now_ns;
    uint32_t left = endpoint->base.counts[LIST_GUEST_IN];
    unsigned count = 0;
    struct conn *base;

    if (now_ns - endpoint->guests_ns >= GUESTS_EVERY_NS) { /* 3 */
        endpoint->guests_ns = now_ns;
        endpoint->guests_left = GUESTS_AT_ONCE;
    }
    if (left > endpoint->guests_left)
        left = endpoint->guests_left;
    while (left-- > 0 && count < max && (base = conn_list_take(&endpoint->base, LIST_GUEST_IN))) {
        struct tcp_conn *conn = (struct tcp_conn *)base;

        endpoint->guests_left--;
        if (base->base.guest) {
            count += poll_guest(conn, &events[count]);
        } else {
            drop_done(conn->guest);
            go_on(conn);
        }
    }
    return count;
}

uint64_t tcp_guests_wait_ns(const struct tcp_endpoint *endpoint)
{
    return endpoint->guests_left > 0 ? 1 : GUESTS_EVERY_NS;
}
