/* worker_peer.h - a worker's connections to the servers that back its shards. Calls no other file of the
 * worker. */
#ifndef SERVER_WORKER_PEER_H
#define SERVER_WORKER_PEER_H

#include "server/worker/worker_state.h"

/* The peers of the configuration. Connections to those that it does not name any more are closed. */
void worker_peer_configure(struct worker *worker);

/* A shard's backups are connected to; the same, and their positions among the peers go into the shard. */
void worker_peer_need(struct worker *worker, const struct shard *row);
void worker_peer_resolve(struct worker *worker, struct shard_state *shard);

/* Connects where a connection is missing, and notes whose sends stay incomplete; lowers *wake_ns to when there is more to do. */
void worker_peer_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

/* The configuration of `term` is committed: whose connection was not needed before is watched from now on. By then it serves. */
void worker_peer_committed(struct worker *worker, uint64_t term, uint64_t now_ns);

/* What an event of a peer's connection means to the layers above. */
enum peer_news {
    PEER_NO_NEWS,
    PEER_UP, /* to be sent again: what has not landed there */
    PEER_DOWN,
    PEER_MESSAGE, /* the event's, to be released */
};

/* It is of no use: its connection is closed, and made anew a while later. For the caller it is PEER_DOWN. */
void worker_peer_break(struct worker *worker, struct worker_peer *peer, int error, uint64_t now_ns);

/* `event->conn->user` is the peer. */
enum peer_news worker_peer_event(struct worker *worker, const struct fabric_event *event,
                                 uint64_t now_ns);

/* Adds a block to the peer's batch of this poll, which lands in its landing zone; there is room. Only for the first
 * sends and resends of writes in flight, and for commit versions (worker_write.c, worker_commit.c): what a peer lacks
 * else is brought to it. */
void worker_peer_add(struct worker *worker, struct worker_peer *peer, const void *block,
                     uint32_t bytes);

/* The peer is to get these entries, as part of the open batch if it is connected. */
void worker_peer_owe(struct worker_peer *peer, struct load load);
void worker_peer_post(struct worker *worker);

/* In front of and behind what a poll adds, and before the log's segment is closed: keep what worker_sends_from tells. */
void worker_peer_poll_begins(struct worker *worker);
void worker_peer_log_closes(struct worker *worker);
void worker_peer_poll_ends(struct worker *worker);

/* A poll adds what it finds at `offset`, in a segment that the log may have left. */
void worker_peer_sends_from(struct worker *worker, uint64_t offset);

/* Ends the connection. A newer one is made, and ends what was on its way over this one (fabric.h, F11). Not between what a
 * poll adds and posts. */
void worker_peer_cut(struct worker *worker, struct worker_peer *peer, uint64_t now_ns);

/* Names the next question to a peer, or message of entries, for its answer. Never 0. */
uint32_t worker_peer_tag(struct worker *worker);

/* A message about a shard to a peer that lacks entries of it; *tag is that of its answer, ENTRIES_STORED or a failure. One
 * for each shard is on its way: that is the flow control. Errors: those of control_message_send, and *tag is 0. No room, or
 * memory, may be there later; a break comes as an event. */
int worker_peer_store(struct worker *worker, const struct worker_peer *peer,
                      const struct shard_state *shard, Rowan__StoreEntries *body, uint32_t *tag);

/* Likewise, these entries. */
int worker_peer_bring(struct worker *worker, const struct worker_peer *peer,
                      const struct shard_state *shard, const struct block_list *blocks,
                      uint32_t *tag);

/* Likewise, versions that are gone; `count` at most QUERY_GONE_RANGES. */
int worker_peer_tell_gone(struct worker *worker, const struct worker_peer *peer,
                          const struct shard_state *shard, const struct prefix_range *gone,
                          uint32_t count, uint32_t *tag);

/* What such an answer says: 0 that they are durable there, else why not; ROWAN_EAGAIN for any other message. */
int worker_peer_failure(const Rowan__ControlMessage *answer);

#endif
