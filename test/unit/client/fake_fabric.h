/* fake_fabric.h - a fabric whose other side is the test: it sees each message and says what comes
 * back, when connections open, break, and have no room. One endpoint, one thread, no clock. */
#ifndef CLIENT_FAKE_FABRIC_H
#define CLIENT_FAKE_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/fabric/fabric.h"

enum { FAKE_MAX_CONNS = 64, FAKE_MAX_SENT = 4096, FAKE_MAX_EVENTS = 4096, FAKE_SERVERS = 8 };

struct fake_conn {
    struct fabric_conn head; /* first */
    struct fake_fabric *fake;
    char address[64];
    uint32_t index;
    uint64_t context;
    bool open;      /* CONNECTED was given, and no end yet */
    bool over;      /* closed by either side */
    uint32_t room;  /* sends until EAGAIN */
    bool by_client; /* closed by the session */
};

/* A message that the session sent. */
struct fake_sent {
    struct fake_conn *conn;
    uint32_t bytes;
    uint8_t *data;
};

struct fake_fabric {
    struct fabric head; /* first */
    struct fabric_endpoint endpoint;
    struct fake_conn conns[FAKE_MAX_CONNS];
    uint32_t conn_count;
    uint64_t incarnations[FAKE_SERVERS]; /* of the process at "fake:" and the number */
    bool hold_connects;                  /* do not accept by itself */
    const char *refused;                 /* connections to this address are refused */
    struct fake_sent sent[FAKE_MAX_SENT];
    uint32_t sent_count, taken; /* `taken` of them by fake_take */
    uint32_t flushed;           /* of those sent */
    struct fabric_event events[FAKE_MAX_EVENTS];
    uint32_t event_head, event_tail;
    uint32_t unreleased; /* messages */
};

struct fake_fabric *fake_create(void);
void fake_destroy(struct fake_fabric *fake);

/* The next message that was sent and flushed; NULL: none. */
struct fake_sent *fake_take(struct fake_fabric *fake);

void fake_accept(struct fake_conn *conn);
void fake_close(struct fake_conn *conn, int error);
void fake_reply(struct fake_conn *conn, const void *head, uint32_t head_bytes, const void *tail,
                uint32_t tail_bytes);

/* The newest living connection to that endpoint, or NULL. */
struct fake_conn *fake_find(struct fake_fabric *fake, const char *address, uint32_t index);

#endif
