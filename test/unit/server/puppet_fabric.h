/* puppet_fabric.h - a fabric for a whole server whose other side is the test: it opens and breaks
 * connections, sends messages, gives and takes room, and says when blocks landed. A connection and
 * its messages are freed at the moment the seam allows it, so that a sanitizer sees a late use. */
#ifndef TEST_UNIT_SERVER_PUPPET_FABRIC_H
#define TEST_UNIT_SERVER_PUPPET_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/fabric/fabric.h"

enum {
    PUPPET_ENDPOINTS = 8,
    PUPPET_BLOCKS = 8192,
    PUPPET_EVENTS = 65536,
    PUPPET_SENT = 8192,
    PUPPET_LOG = 65536,
    PUPPET_SERVERS = 8
};

struct puppet_message {
    struct puppet_message *next;
    uint8_t data[];
};

struct puppet_conn {
    struct fabric_conn head; /* first */
    struct puppet_endpoint *at;
    struct puppet_conn *next; /* living ones of the endpoint */
    char address[64];         /* of an active one */
    uint64_t context;
    uint32_t id;            /* of a passive one's peer */
    bool over, closed_here; /* no further use by the server */
    uint32_t room;          /* sends until EAGAIN */
    bool
        shows_early; /* without room it shows what was sent, to make some, unless its endpoint holds it */
    uint32_t room_at_poll;  /* is added by the next poll, which gives no event for it */
    bool no_rowan_room;     /* for blocks */
    uint32_t added;         /* blocks in the open batch */
    uint32_t in_flight;     /* blocks posted and not landed */
    uint64_t batches[1024]; /* their contexts */
    uint32_t batch_blocks[1024], batch_first, batch_last;
    struct puppet_message *messages; /* not released */
};

struct puppet_sent {
    struct puppet_conn *conn;
    uint32_t bytes;
    uint8_t *data;
};

struct puppet_endpoint {
    struct fabric_endpoint head; /* first */
    struct puppet_fabric *fabric;
    struct puppet_conn *conns, *graves;
    struct fabric_event *events;
    uint32_t event_head, event_tail;
    uint32_t
        flushed; /* of what the server sent, on whatever endpoint: what lies behind goes when its connection is closed */
};

struct puppet_fabric {
    struct fabric head; /* first */
    struct puppet_endpoint endpoints[PUPPET_ENDPOINTS];
    struct fabric_zone zone;
    bool zone_is_open;
    struct pm *zone_pm;
    struct puppet_post {
        uint64_t offset, context;
    } posts[64]; /* of the landing zone, in order */
    uint32_t post_count, sealed;
    uint64_t shut_out;                     /* servers, a bit each */
    uint32_t shut_outs;                    /* of which no event has told yet */
    uint64_t incarnations[PUPPET_SERVERS]; /* of the process at "puppet:" and the number */
    bool unquiet; /* sealed segments do not become quiet: what is empty is not given back */
    struct puppet_block {
        const uint8_t *data; /* in the server's map */
        uint32_t bytes;
    } log[PUPPET_LOG]; /* every block that was added, on whatever connection */
    uint32_t log_count;
    struct puppet_sent sent[PUPPET_SENT];
    uint32_t sent_count, taken;
};

struct puppet_fabric *puppet_create(uint32_t block_limit);
void puppet_destroy(struct puppet_fabric *puppet);

/* Somebody connects to the server's endpoint `index`. NULL: refused. */
struct puppet_conn *puppet_accept(struct puppet_fabric *puppet, uint32_t index,
                                  const struct fabric_identity *peer);

/* The living connection that the endpoint opened to `address`, or NULL. */
struct puppet_conn *puppet_find(struct puppet_fabric *puppet, uint32_t index, const char *address);

/* False: the server has closed it, or was told of its end. */
bool puppet_lives(struct puppet_fabric *puppet, uint32_t index, const struct puppet_conn *conn);

/* It has reached the server whose number the address has, or a CM. */
void puppet_connected(struct puppet_conn *conn, bool has_zone);
void puppet_close(struct puppet_conn *conn, int error);
void puppet_message(struct puppet_conn *conn, const void *head, uint32_t head_bytes,
                    const void *key, uint32_t key_bytes, const void *value, uint32_t value_bytes);

/* The oldest posted batch has landed; false if there is none. */
bool puppet_land(struct puppet_conn *conn);

/* The oldest segment of the landing zone is sealed; false if none is posted. */
bool puppet_seal(struct puppet_fabric *puppet, uint32_t index);

/* FABRIC_VOID: `bytes` from `from` of the oldest segment that is not sealed are void. */
void puppet_void(struct puppet_fabric *puppet, uint32_t index, uint32_t from, uint32_t bytes);

/* FABRIC_SHUT_OUT for a server that the zone's owner shuts out. */
void puppet_shut_out(struct puppet_fabric *puppet, uint32_t index, uint32_t server, int error);

/* FABRIC_QUIET for the sealed segment that was posted as number `post`. */
void puppet_quiet(struct puppet_fabric *puppet, uint32_t index, uint32_t post);

/* The next message that the server sent, or NULL. */
const struct puppet_sent *puppet_take(struct puppet_fabric *puppet);

#endif
