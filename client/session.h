/* session.h - what is behind a `struct rowan`: a poller that routes operations, sends them, retries
 * those that were rejected, and ends each by its answer or its timeout.
 *
 * It knows no clock, thread or system call, so that the simulator drives it too; client/rowan.c
 * puts a clock, a fabric and sleep around it. One thread.
 */
#ifndef CLIENT_SESSION_H
#define CLIENT_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/rowan.h"
#include "common/cluster/cluster.h"
#include "common/fabric/fabric.h"
#include "common/reactor/reactor.h"
#include "proto/message.h"

struct session;

struct session_options {
    uint32_t depth;             /* operations outstanding at once, 1 to 65536 */
    uint64_t timeout_ns;        /* of each operation, from the first poll after its post; up to
                                   ROWAN_MAX_TIMEOUT_MS, because servers forget a client that
                                   stays away for longer */
    uint32_t operations_per_id; /* a new client id after so many; 0: near 2^32 */
    struct login_secret *login; /* who the session logs in as; it outlives it; NULL: nobody */
    uint32_t
        span; /* how far the numbers in use may lie apart; 0: MESSAGE_MAX_SPAN, which is most */
};

/* session_create: `endpoint` is open, has no connections and outlives the session, which owns its
 * events. `managers` is a list of addresses (managers.h), and is copied. Nothing is connected before the first poll.
 * Errors: ROWAN_EINVALID ENOMEM, those of managers_parse. */
int session_create(struct fabric_endpoint *endpoint, const char *managers,
                   const struct session_options *options, struct session **out);

/* Drops what is outstanding without completion. NULL is fine. */
void session_destroy(struct session *session);

/* A poll_function: sends what was posted, takes in answers, runs callbacks, retries, times out. It holds back what
 * is posted for a server that owes more than twice as many answers, and gives them: so batches grow. */
enum poll_result session_poll(void *session, uint64_t now_ns, uint64_t *wake_ns);

/* The caller is about to sleep: the next poll holds nothing back. True: something was, so poll first. */
bool session_release(struct session *session);

/* True once there is a client id and a configuration: operations may be posted. */
bool session_ready(const struct session *session);

/* While not ready, why: ROWAN_ETIMEDOUT when the CM is reached and has no configuration or no client id for us yet,
 * else what it refused with, or the last attempt to reach it met. After ROWAN_ELOGIN it is of no use to wait longer. */
int session_error(const struct session *session);

/* What is routed by; NULL before session_ready. */
const struct cluster_config *session_config(const struct session *session);

struct session_request {
    enum message_type type; /* GET, PUT, PUT_IF or DELETE */
    const void *key;        /* copied */
    size_t key_bytes;
    const void *value; /* PUT, PUT_IF: unchanged until the completion */
    size_t value_bytes;
    void *room; /* GET: stays until the completion */
    size_t room_bytes;
    uint64_t expected; /* PUT_IF */
    rowan_callback callback;
    void *context;
    /* Somebody waits for it: it may take the slot that is kept for that, and is not held back. */
    bool reserved;
};

/* session_post: also from a callback. Errors: ROWAN_EINVALID EKEYSIZE EVALUESIZE EAGAIN ENOMEM. */
int session_post(struct session *session, const struct session_request *request);

/* The next completion of an operation without callback; false: none. */
bool session_next(struct session *session, struct rowan_completion *out);

/* Posted and not completed; completed since the beginning, with callback or without; completed and
 * still to be had from session_next. */
uint32_t session_outstanding(const struct session *session);
uint64_t session_completed(const struct session *session);
uint32_t session_waiting(const struct session *session);

/* True while session_poll runs (that is, inside a callback). */
bool session_polling(const struct session *session);

#endif
