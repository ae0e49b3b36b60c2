/* The clients of a worker: their connections come and go, their completion records stay for a while.
 *
 * Invariants:
 *  W8  A client has one connection to the worker at most: a newer one marks the older for close before any
 *      request on it is taken. So nothing that was sent on the older one begins after a retry on the
 *      newer one.
 *  W9  A request carries the client id of its connection's handshake; 0 means that no retry will be
 *      told from a new write, and has no records. Sessions that only read have 0, and send no writes.
 *  W10 A client that has records in a shard of this worker has an entry in `known`, so that it is
 *      forgotten when it has had no connection for CLIENTS_KEEP_NS.
 *  W15 Where logins are required a client has its entry, and ends an older connection, once it has logged in as the user to whom
 *      a manager gave its id: it shows the ticket (login.h). Before that none of its requests is taken (W16).
 *  W16 What a client may do is what the newest configuration that the worker has says of the user who has logged in on its
 *      connection: `user` and `limited` are set anew with each that has other users.
 *  W18 A client is a guest (F13) while logins are required and it has not logged in. Whom a newer configuration makes one loses
 *      its connection.
 */
#include "server/worker/worker_client.h"

#include <stdlib.h>

#include "common/base/error.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/cluster/login.h"
#include "server/shard/records_question.h"
#include "server/worker/worker_commit.h"
#include "server/worker/worker_reply.h"
#include "server/worker/worker_write.h"

void worker_client_free(struct client_link *client)
{
    free(client->login);
    free(client);
}

/* W16 */
static void set_limits(const struct worker *worker, struct client_link *client)
{
    const struct user *user = login_user(client->login, worker->users);
    client->user = user;
    client->limited = user ? user->role < USER_WRITE || user->prefix_bytes > 0
                           : worker->users && worker->users->required;
}

/* W8, W15. Where nobody has to log in, the id in the handshake is believed. */
static void enter(struct worker *worker, struct client_link *client)
{
    struct client_link *older = NULL;
    const bool must_log_in = worker->users && worker->users->required;
    if (client->entered || !client->id || (must_log_in && !client->user))
        return;
    const int error = clients_enter(&worker->known, client->id, client, &older);
    if (error) {
        log_event(LOG_WARN, "client_refused", "worker=%u client=%u error=%s", worker->number,
                  client->id, error_name(error));
        worker_client_mark(worker, client);
        return;
    }
    client->entered = true;
    if (older)
        worker_client_mark(worker, older);
}

void worker_client_accepted(struct worker *worker, struct fabric_conn *conn, uint32_t id)
{
    struct client_link *client = calloc(1, sizeof *client);
    if (!client) {
        log_event(LOG_WARN, "client_refused", "worker=%u client=%u error=%s", worker->number, id,
                  error_name(ROWAN_ENOMEM));
        fabric_conn_close(conn);
        return;
    }
    client->kind = LINK_CLIENT;
    client->conn = conn;
    client->id = id;
    conn->user = client;
    set_limits(worker, client);
    LIST_APPEND(&worker->clients, client, all);
    enter(worker, client);
}

void worker_client_mark(struct worker *worker, struct client_link *client)
{
    if (client->closing)
        return;
    client->closing = true;
    client->closing_next = worker->closing;
    worker->closing = client;
}

void worker_client_cut(struct worker *worker)
{
    uint32_t count = 0;
    for (struct client_link *client = worker->clients.first; client; client = client->all.next) {
        if (client->told_batch != worker->batch || !client->conn)
            continue;
        fabric_conn_close(client->conn);
        client->conn = NULL;
        worker_client_mark(worker, client);
        count++;
    }
    log_event(LOG_WARN, "answers_dropped", "worker=%u clients=%u reason=\"the lease is over\"",
              worker->number, count);
}

void worker_client_bound(struct worker *worker)
{
    uint32_t left = worker->held_count;
    for (struct client_link *it = worker->closing; left > WORKER_HELD && it; it = it->closing_next)
        left -= it->held;
    while (left > WORKER_HELD) {
        uint32_t most = 0;
        for (const struct client_link *it = worker->clients.first; it; it = it->all.next)
            most = !it->closing && it->held > most ? it->held : most;
        ASSERT(most > 0);
        for (struct client_link *it = worker->clients.first; it && left > WORKER_HELD;
             it = it->all.next) {
            if (it->closing || it->held <= most / 2)
                continue;
            log_event(LOG_WARN, "client_does_not_read", "worker=%u held=%u", worker->number,
                      it->held);
            left -= it->held;
            worker_client_mark(worker, it);
        }
    }
}

/* Places for writes are few, and an answer that its client does not take keeps one. When half of them are kept so, who keeps most
 * goes; a client that comes back asks again. */
static void shed_one(struct worker *worker)
{
    struct client_link *most = NULL;
    for (uint32_t i = 0; i < worker->replying_count; i++) {
        if (worker->replying[i]->client)
            worker->replying[i]->client->unread = 0;
    }
    for (uint32_t i = 0; i < worker->replying_count; i++) {
        struct client_link *client = worker->replying[i]->client;
        if (!client || client->closing)
            continue;
        client->unread++;
        if (!most || client->unread > most->unread)
            most = client;
    }
    if (!most)
        return;
    log_event(LOG_WARN, "client_deaf", "worker=%u client=%u unread=%u", worker->number, most->id,
              most->unread);
    worker_client_mark(worker, most);
}

void worker_client_reap(struct worker *worker, uint64_t now_ns)
{
    if (worker->replying_count > WRITE_OP_TABLE_SIZE / 2)
        shed_one(worker);
    while (worker->closing) {
        struct client_link *client = worker->closing;
        worker->closing = client->closing_next;
        worker_write_forget(worker, client);
        uint32_t kept = 0;
        for (uint32_t i = 0; i < worker->held_count; i++) {
            if (worker->held[i].client != client)
                worker->held[kept++] = worker->held[i];
        }
        worker->held_count = kept;
        if (client->conn)
            fabric_conn_close(client->conn);
        if (client->id)
            clients_leave(&worker->known, client->id, client, now_ns);
        LIST_REMOVE(&worker->clients, client, all);
        worker_client_free(client);
    }
}

/* --- who may do what --- */

static void refuse(struct worker *worker, struct client_link *client, int error)
{
    counter_add(&worker->counts.refused_logins, 1);
    log_event(LOG_WARN, "login_refused", "worker=%u client=%u user=%s error=%s", worker->number,
              client->id, login_name(client->login), error_name(error));
    if (error != ROWAN_ELOGIN)
        worker_client_mark(worker, client);
}

void worker_client_control(struct worker *worker, struct client_link *client,
                           const struct fabric_event *event)
{
    Rowan__ControlMessage *message;
    uint32_t tag;
    enum login_step step = LOGIN_NO_PART;
    int error = control_decode(event->data, event->bytes, &tag, &message);
    worker_release(client, event->message);
    if (!error) {
        const struct login_book book = {
            .users = worker->users,
            .cover = worker->config ? cluster_cover(worker->config) : NULL,
            .client = client->id,
            .ticket_key = worker->config ? cluster_ticket_key(worker->config, client->id) : NULL,
        };
        step = login_take(&client->login, &book, client->conn, tag, message, &error);
        control_free(message);
    }
    if (step == LOGIN_DONE) {
        set_limits(worker, client);
        if (client->user) /* W18 */
            fabric_conn_trust(client->conn);
        enter(worker, client);
    } else if (step != LOGIN_GOES_ON)
        refuse(worker, client, error ? error : ROWAN_EFORMAT);
}

void worker_client_users(struct worker *worker)
{
    if (users_equal(worker->users, worker->config->users))
        return;
    users_release(worker->users);
    worker->users = users_hold(worker->config->users);
    const bool required = worker->users && worker->users->required;
    for (struct client_link *client = worker->clients.first; client; client = client->all.next) {
        set_limits(worker, client);
        const bool was_in =
            required ? client->conn && !client->conn->guest : client->login && client->login->done;
        if (was_in && !client->user) /* W18 */
            worker_client_mark(worker, client);
        else if (!client->closing)
            enter(worker, client);
    }
}

int worker_client_allow(struct worker *worker, const struct client_link *client,
                        const struct request *request)
{
    const struct message_request *header = &request->header;
    int error = users_allow(worker->users, client->user,
                            header->type == MESSAGE_GET ? USER_READ : USER_WRITE);
    if (!error && client->user && !user_has_key(client->user, request->key, header->key_bytes))
        error = ROWAN_EACCESS;
    if (error)
        counter_add(&worker->counts.refused_requests, 1);
    return error;
}

bool worker_client_may_ask(const struct client_link *client, const struct message_request *request)
{
    const uint32_t operation = request->operation; /* neither 0 nor UINT32_MAX, and not below: */
    return request->client_id == client->id && operation - 1 < UINT32_MAX - 1 &&
           (uint64_t)operation - request->lowest_unanswered < MESSAGE_MAX_SPAN;
}

/* --- records --- */

struct recall {
    struct worker *worker;
    uint64_t now_ns;
    uint32_t failed;
};

static void recall_client(void *context, uint32_t client, uint32_t lowest)
{
    struct recall *recall = context;
    if (clients_note(&recall->worker->known, client, recall->now_ns))
        recall->failed++;
    clients_raise(&recall->worker->known, client, lowest);
}

void worker_client_recall(struct worker *worker, const struct shard_state *shard, uint64_t now_ns)
{
    struct recall recall = {.worker = worker, .now_ns = now_ns};
    records_each(&shard->records, recall_client, &recall);
    if (recall.failed)
        log_event(LOG_WARN, "clients_not_recalled", "worker=%u shard=%u clients=%u", worker->number,
                  shard->id, recall.failed);
}

static void forget_client(struct worker *worker, uint32_t client)
{
    uint32_t highest = 0;
    struct shard_state *shard;
    for (uint32_t i = 0; worker->config && (shard = worker_next_shard(worker, &i));) {
        uint32_t seen = records_highest(&shard->records, client);
        highest = seen > highest ? seen : highest;
        records_lowest(&shard->records, client, UINT32_MAX);
    }
    if (highest)
        worker_commit_client_gone(worker, client, highest + 1);
}

bool worker_client_forget(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns)
{
    uint32_t forgotten = 0, client;
    while (forgotten < WORKER_FORGET &&
           (client = clients_forget(&worker->known, now_ns, wake_ns))) {
        forgotten++;
        forget_client(worker, client);
    }
    return forgotten > 0;
}

/* What lies in a COMMITTED segment was scanned by the start, or its records came out of a checkpoint, so its clients were
 * recalled; or it came in this run. */
static uint32_t lowest_asked(const struct worker *worker, const struct records_question_row *row)
{
    return worker->has_all && worker->shards[row->shard]
               ? clients_lowest(&worker->known, row->client)
               : 0;
}

static void list(const struct worker *worker, struct records_question *question)
{
    const struct shard_state *shard = worker->has_all ? worker->shards[question->shard] : NULL;
    question->listed_count =
        shard ? records_list(&shard->records, &question->cursor, question->listed,
                             RECORDS_QUESTION_ROWS, &question->listed_all)
              : ROWAN_EAGAIN;
}

bool worker_client_answer(struct worker *worker)
{
    struct records_question *question;
    uint32_t answers = 0;
    while (answers < WORKER_ANSWERS && (question = inbox_pop(&worker->role.questions))) {
        if (question->lists)
            list(worker, question);
        for (uint32_t i = 0; i < question->count; i++)
            question->rows[i].lowest = lowest_asked(worker, &question->rows[i]);
        records_answer(question);
        answers++;
    }
    return answers > 0;
}
