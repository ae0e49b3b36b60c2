/* stage.h - a whole server in one thread, with a CM, a peer and clients that the test plays. */
#ifndef TEST_UNIT_SERVER_STAGE_H
#define TEST_UNIT_SERVER_STAGE_H

#include "common/cluster/cluster.h"
#include "common/cluster/control.h"
#include "common/entry/entry.h"
#include "proto/message.h"
#include "puppet_fabric.h"
#include "server/server.h"
#include "test/lib/heap_pm.h"

/* The server is number 1, with one worker (endpoint 0), its control role (endpoint 1) and one
 * digest role. Shards 0 to 2, a quarter of the slots each, are led by it and backed by server 2;
 * shard 3 the other way round. All epochs are 1. */
struct stage {
    struct puppet_fabric *fabric;
    struct heap_pm *heap;
    struct server *server;
    struct cluster_config *config;
    struct puppet_conn *peer; /* the worker's connection to server 2; NULL: not asked for */
    struct pm_ops pm_ops;     /* the map's, with fences that the test may hold */
    const char *managers;     /* the addresses of the CMs; the first is "puppet:cm" */
    uint64_t now_ns;          /* of the next poll */
    struct clock clock; /* shows now_ns and `later_ns`: so much passes while a role is polled */
    uint64_t later_ns;
    uint64_t wake_ns;             /* asked for in the last poll */
    uint32_t operations, clients; /* so far */
    uint32_t starts;              /* of the server; its incarnation is 100 times this */
    uint8_t boot;                 /* of its host */
    uint32_t confirmed;           /* of what the server sent: entries up to there were confirmed */
};

enum { STAGE_WORKER = 0, STAGE_CONTROL = 1 };

enum { STAGE_BACKED = 3 }; /* the shard that server 2 leads */

/* A server that has found its CM, and waits. `block_limit` is the fabric's. */
void stage_start(struct stage *stage, uint32_t block_limit);
void stage_start_among(struct stage *stage, uint32_t block_limit, const char *managers);

/* Up to the first configuration, and the peer connected. */
void stage_open(struct stage *stage, uint32_t block_limit);
void stage_close(struct stage *stage);
void stage_reopen(struct stage *stage); /* a new server with new PM, in the midst of a case */

/* Fixture: *state is a stage, opened with STAGE_BLOCK_LIMIT; one that was opened otherwise is torn down so, too. */
enum { STAGE_BLOCK_LIMIT = 65536 };
struct stage *stage_new(void **state); /* to be opened */
int stage_setup(void **state);
int stage_teardown(void **state);

/* The end of the server. The configuration that will come is that of a cold start: all epochs are higher by one. */
void stage_end(struct stage *stage);

/* The next server on the same PM, up to its report to the CM. What server_create answers. */
int stage_try(struct stage *stage, uint32_t block_limit);

/* Both; the server must start. */
void stage_restart(struct stage *stage);

/* The configuration comes, and the peer is connected; that of the next server. */
void stage_begin(struct stage *stage);
void stage_return(struct stage *stage);

/* The connection to the peer breaks, and is made again a second later. */
void stage_reconnect_peer(struct stage *stage);

/* With leases: the CM says that the configuration of that term is committed; it grants a lease, for the server's last
 * renewal. */
void stage_commit(struct stage *stage, uint64_t term);
void stage_grant(struct stage *stage);

/* Polls every role once, or until all are idle. */
void stage_poll(struct stage *stage);
void stage_run(struct stage *stage);

/* Time goes on for `ns`, with a stop wherever a role wants to be polled. */
void stage_pass(struct stage *stage, uint64_t ns);

struct entry_format stage_format(const struct stage *stage);

/* A key of that shard; valid until the next call. */
const char *stage_key_of(uint32_t shard);

/* The CM sends this configuration, as its answer to the server's last Join; or to one with that tag. */
void stage_configure(struct stage *stage, const struct cluster_config *config);
void stage_adopt(struct stage *stage); /* the stage's, and it is read */
void stage_configure_for(struct stage *stage, const struct cluster_config *config, uint32_t tag);

/* The tag of the last Join. */
uint32_t stage_join_tag(const struct stage *stage);

/* The server's connection to the CM; NULL: none. Its digest role. */
struct puppet_conn *stage_cm(const struct stage *stage);
struct digest *stage_digest(const struct stage *stage);

/* A control message comes on the connection; the CM sends one, and it is read. */
void stage_tell(struct puppet_conn *conn, uint32_t tag, const Rowan__ControlMessage *message);
void stage_cm_tells(struct stage *stage, uint32_t tag, const Rowan__ControlMessage *message);

/* A client of its own; the client with this id, once more. */
struct puppet_conn *stage_client(struct stage *stage);
struct puppet_conn *stage_client_again(struct stage *stage, uint32_t id);
struct puppet_conn *stage_tool(struct stage *stage); /* a client of the control role */

/* Any request of the conn's client; shard and epoch are worked out here. */
void stage_send(struct stage *stage, struct puppet_conn *client,
                const struct message_request *request, const void *key, const void *value);

/* A request; returns its operation number, which is higher than all before. */
uint32_t stage_ask(struct stage *stage, struct puppet_conn *client, enum message_type type,
                   const void *key, uint32_t key_bytes, const void *value, uint32_t value_bytes,
                   uint64_t expected);
uint32_t stage_put(struct stage *stage, struct puppet_conn *client, const char *key);
uint32_t stage_put_if(struct stage *stage, struct puppet_conn *client, const char *key,
                      uint64_t expected);
uint32_t stage_get(struct stage *stage, struct puppet_conn *client, const char *key);

/* The next reply to any client; fails the test if there is none. Value bytes stay in the fabric. */
struct message_reply stage_reply(struct stage *stage);
bool stage_is_quiet(struct stage *stage); /* no further reply */

/* No fence is done from now on; or all are. */
void stage_hold_fences(struct stage *stage, bool hold);

/* The medium has failed: every fence answers ROWAN_EIO. */
void stage_fail_fences(struct stage *stage);

/* The peer confirms entries that it was brought by message; or it refuses them. True if there were any. */
bool stage_confirm(struct stage *stage, int error);

/* The next control message that was sent on that connection, whatever else was; NULL: there is none. Valid until the next
 * call. `tag` may be NULL. */
const Rowan__ControlMessage *stage_message(struct stage *stage, const struct puppet_conn *conn,
                                           uint32_t *tag);

/* The peer answers all that log reconciliation asks, or has asked: it has everything up to `commit` (0: to what the
 * question says), and nothing else. How many asked for a suffix. */
uint32_t stage_answer_suffixes(struct stage *stage, uint64_t commit);

/* The blocks of those that were sent from that message on, one behind the other; returns their bytes, which are valid until
 * the next call. */
uint32_t stage_brought(const struct stage *stage, uint32_t from, const uint8_t **bytes);

/* All posted batches land at the peer, which confirms what it was brought, and so does what follows from it. */
void stage_land_all(struct stage *stage);
uint32_t stage_put_lands(struct stage *stage, struct puppet_conn *client, const char *key);
void stage_land_done(struct stage *stage); /* and the next reply says so */

#endif
