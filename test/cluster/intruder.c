/* intruder.c - says in its handshakes whatever it is told to, over tcp, for access.py. It reads commands, a line each, and answers
 * each with a line; connections are numbered from 0.
 *
 *   connect ADDRESS INDEX client|server ID INCARNATION CLUSTER ROLE   "connected SERVER INCARNATION CLUSTER", or "refused ERROR"
 *   login N USER FILE     "in", or "out ERROR"; with the ticket of the last `id`
 *   secret HEX            shows it, as servers do, from now on: "ok"
 *   ticket HEX ID USER    makes one with that key, as if the last `id` had: "ok"
 *   id N                  of a manager's connection: "id NUMBER", 0 if it gets none
 *   ids N COUNT           until it gets none, at most so many: their number
 *   ask N                 GetStatus: "answered", or "failed ERROR"
 *   set N                 SetSetting log-level=debug: likewise
 *   ended N               waits for the end of a connection: "ended", after 20 s "open"
 *   open N                is it, as far as is known now: "open", or "ended"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/cluster/login.h"
#include "common/fabric/fabric.h"

enum { CONNS = 64, WORD_BYTES = 256, WORDS = 8, WAIT_SECONDS = 20 };

struct link {
    struct fabric_conn *conn;
    bool up, ended;
    int error;
    struct fabric_identity reached;
    Rowan__ControlMessage *heard; /* the last that came, not looked at yet */
};

static struct fabric *fabric;
static struct fabric_endpoint *endpoint;
static struct link links[CONNS];
static unsigned count;
static struct login_secret ticket; /* of which only that counts */

static void take(const struct fabric_event *event)
{
    struct link *link = event->conn->user;
    uint32_t tag;
    if (event->kind == FABRIC_CONNECTED) {
        link->up = true;
        link->reached = event->peer;
    } else if (event->kind == FABRIC_CLOSED) {
        link->ended = true;
        link->error = event->error;
    } else if (event->kind == FABRIC_MESSAGE) {
        control_free(link->heard);
        link->heard = NULL;
        (void)control_decode(event->data, event->bytes, &tag, &link->heard);
        fabric_message_release(event->conn, event->message);
    }
}

enum awaited { LINK_UP, LINK_HEARD, LINK_ENDED };

static bool is_over(const struct link *link, enum awaited what)
{
    return link->ended || (what == LINK_UP && link->up) || (what == LINK_HEARD && link->heard);
}

/* False: too late. */
static bool await(struct link *link, enum awaited what)
{
    const uint64_t until_ns = clock_now_ns(clock_system()) + WAIT_SECONDS * NS_PER_S;
    uint64_t now_ns = 0;
    while (!is_over(link, what) && now_ns < until_ns) {
        struct fabric_event events[16];
        now_ns = clock_now_ns(clock_system());
        const unsigned got = fabric_poll(endpoint, now_ns, events, 16);
        for (unsigned i = 0; i < got; i++)
            take(&events[i]);
        fabric_flush(endpoint);
    }
    return is_over(link, what);
}

/* The next message of it, or NULL. */
static Rowan__ControlMessage *hear(struct link *link)
{
    await(link, LINK_HEARD);
    Rowan__ControlMessage *message = link->heard;
    link->heard = NULL;
    return message;
}

static void do_connect(char words[][WORD_BYTES])
{
    struct link *link = &links[count++];
    fabric_endpoint_identity(
        endpoint, &(struct fabric_identity){.kind = strcmp(words[3], "server") == 0 ? FABRIC_SERVER
                                                                                    : FABRIC_CLIENT,
                                            .id = (uint32_t)atoi(words[4]),
                                            .incarnation = strtoull(words[5], NULL, 0),
                                            .cluster = strtoull(words[6], NULL, 0),
                                            .role = (uint32_t)atoi(words[7])});
    int error = fabric_connect(endpoint, words[1], (uint32_t)atoi(words[2]), 0, &link->conn);
    if (!error) {
        link->conn->user = link;
        await(link, LINK_UP);
        error = link->error;
    }
    if (error || !link->up)
        printf("refused %s\n", error_name(error));
    else
        printf("connected %u %llu %llu\n", link->reached.id,
               (unsigned long long)link->reached.incarnation,
               (unsigned long long)link->reached.cluster);
}

static void do_login(struct link *link, const char *user, const char *path)
{
    struct login_secret secret;
    struct login_try trying;
    int error = login_secret_read(&secret, user, path);
    enum login_step step = LOGIN_GOES_ON;
    secret.has_ticket = ticket.has_ticket;
    memcpy(secret.ticket, ticket.ticket, sizeof secret.ticket);
    if (!error)
        error = login_begin(&trying, &secret, link->conn);
    while (!error && step == LOGIN_GOES_ON) {
        Rowan__ControlMessage *message = hear(link);
        if (!message)
            error = ROWAN_ECLOSED;
        else
            step = login_go_on(&trying, &secret, link->conn, message, &error);
        control_free(message);
    }
    if (step == LOGIN_DONE)
        puts("in");
    else
        printf("out %s\n", error_name(error));
    login_secret_fini(&secret);
}

/* 0: none. */
static uint32_t new_id(struct link *link)
{
    Rowan__NewClientId ask = ROWAN__NEW_CLIENT_ID__INIT;
    (void)control_message_send(link->conn, 1, &CONTROL_MESSAGE(NEW_CLIENT_ID, new_client_id, &ask));
    Rowan__ControlMessage *message = hear(link);
    uint32_t number = 0;
    if (message && message->body_case == ROWAN__CONTROL_MESSAGE__BODY_CLIENT_ID_IS) {
        const Rowan__ClientIdIs *is = message->client_id_is;
        ticket.has_ticket = is->ticket.len == sizeof ticket.ticket;
        if (ticket.has_ticket)
            memcpy(ticket.ticket, is->ticket.data, sizeof ticket.ticket);
        number = is->client_id;
    }
    control_free(message);
    return number;
}

/* Until it gets none, at most so many. */
static void do_ids(struct link *link, uint32_t most)
{
    uint32_t got = 0;
    while (got < most && new_id(link))
        got++;
    printf("%u\n", got);
}

static void do_ask(struct link *link, bool sets)
{
    Rowan__GetStatus get = ROWAN__GET_STATUS__INIT;
    Rowan__SetSetting set = ROWAN__SET_SETTING__INIT;
    set.key = (char *)(uintptr_t) "log-level";
    set.value = (char *)(uintptr_t) "debug";
    (void)control_message_send(link->conn, 1,
                               sets ? &CONTROL_MESSAGE(SET_SETTING, set_setting, &set)
                                    : &CONTROL_MESSAGE(GET_STATUS, get_status, &get));
    Rowan__ControlMessage *message = hear(link);
    while (message && message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SPACE_IS) {
        control_free(message); /* servers are told unasked */
        message = hear(link);
    }
    if (!message)
        puts("failed ROWAN_ECLOSED");
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FAILURE)
        printf("failed %s\n", error_name(message->failure->error));
    else
        puts("answered");
    control_free(message);
}

/* Of 32 digits. */
static const uint8_t *bytes_of(const char *digits)
{
    static uint8_t bytes[CLUSTER_SECRET_BYTES];
    for (unsigned i = 0; i < sizeof bytes; i++)
        sscanf(digits + 2 * i, "%2hhx", &bytes[i]);
    return bytes;
}

static void do_secret(const char *digits)
{
    fabric_endpoint_secret(endpoint, bytes_of(digits), NULL, false);
    puts("ok");
}

static void do_ticket(const char *digits, const char *id, const char *user)
{
    ticket.has_ticket = login_ticket(bytes_of(digits), (uint32_t)atoi(id), user, ticket.ticket);
    puts("ok");
}

static void obey(char words[][WORD_BYTES])
{
    struct link *link = &links[(unsigned)atoi(words[1]) % CONNS];
    if (strcmp(words[0], "connect") == 0 && count < CONNS)
        do_connect(words);
    else if (strcmp(words[0], "login") == 0)
        do_login(link, words[2], words[3]);
    else if (strcmp(words[0], "secret") == 0)
        do_secret(words[1]);
    else if (strcmp(words[0], "ticket") == 0)
        do_ticket(words[1], words[2], words[3]);
    else if (strcmp(words[0], "id") == 0)
        printf("id %u\n", new_id(link));
    else if (strcmp(words[0], "ids") == 0)
        do_ids(link, (uint32_t)atoi(words[2]));
    else if (strcmp(words[0], "ask") == 0 || strcmp(words[0], "set") == 0)
        do_ask(link, words[0][0] == 's');
    else if (strcmp(words[0], "ended") == 0)
        puts(await(link, LINK_ENDED) ? "ended" : "open");
    else
        puts(link->ended ? "ended" : "open");
    fflush(stdout);
}

int main(void)
{
    char line[WORDS * WORD_BYTES];
    int error = fabric_open("tcp", NULL, &fabric);
    if (!error)
        error = fabric_endpoint_open(fabric, 0, &endpoint);
    if (error) {
        fprintf(stderr, "intruder: %s\n", error_sentence(error));
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        char words[WORDS][WORD_BYTES] = {""};
        unsigned number = 0;
        for (char *word = strtok(line, " \n"); word && number < WORDS; word = strtok(NULL, " \n"))
            snprintf(words[number++], WORD_BYTES, "%s", word);
        obey(words);
    }
    for (unsigned i = 0; i < count; i++)
        control_free(links[i].heard);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    return 0;
}
