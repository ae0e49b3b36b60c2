/* worker_client.h - clients of a worker: their connections come and go, their completion records stay for
 * a while. May call what answers and what writes. */
#ifndef SERVER_WORKER_CLIENT_H
#define SERVER_WORKER_CLIENT_H

#include "server/worker/worker_state.h"

/* A client has connected: `id` of its handshake, 0 if it is none that could ask again. Its older
 * connection is marked for close. */
void worker_client_accepted(struct worker *worker, struct fabric_conn *conn, uint32_t id);

/* The connection is to be closed, and the link freed, by worker_client_reap, before the fabric is polled again. Until then
 * it stays whole: some requests taken in this poll may be its own. */
void worker_client_mark(struct worker *worker, struct client_link *client);
void worker_client_reap(struct worker *worker, uint64_t now_ns);

/* While too many requests are held, who has most of them loses its connection: its answers pile up and it takes none. So do as many
 * as it takes that there is room for the requests of one more poll: what those that are closed hold goes before that. */
void worker_client_bound(struct worker *worker);

/* W13: closes the connections of those to whom this poll's answers tell of data; they are reaped in the next. */
void worker_client_cut(struct worker *worker);

/* The records of a shard that this worker leads came from a scan or a reconciliation: their clients, too, are
 * forgotten if they do not connect. To be called before the shard is served. */
void worker_client_recall(struct worker *worker, const struct shard_state *shard, uint64_t now_ns);

/* Forgets clients whose time is over; lowers *wake_ns to the next. True: there were some. */
bool worker_client_forget(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

/* Answers some of what the cleaner has asked (server/shard/records_question.h). True: there were some. */
bool worker_client_answer(struct worker *worker);

void worker_client_free(struct client_link *client);

/* A control message from a client: it logs in, or its connection ends. worker_client_users: the configuration has other users:
 * who is not one of them any more, with the same secret, loses his connection. */
void worker_client_control(struct worker *worker, struct client_link *client,
                           const struct fabric_event *event);
void worker_client_users(struct worker *worker);

/* May the client do that? For one that is `limited`; else it may. 0, ROWAN_ELOGIN or ROWAN_EACCESS. */
int worker_client_allow(struct worker *worker, const struct client_link *client,
                        const struct request *request);

/* Is the request one that the client of this connection may send? */
bool worker_client_may_ask(const struct client_link *client, const struct message_request *request);

#endif
