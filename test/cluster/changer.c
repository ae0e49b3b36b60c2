/* changer.c - a peer over shm that changes what it shares while the other side reads it, for sessions.py.
 *
 * Usage: changer TABLE SEED SECONDS. A line of TABLE is a session:
 *
 *   ADDRESS INDEX client|server|zone ID INCARNATION CLUSTER ROLE MESSAGE...      messages in hexadecimal; zone: a server, too
 *
 * It plays sessions drawn from it. During each of them a child process (1) writes into the connection's memory: bytes of messages, heads
 * of records, the words of both rings, the other side's doorbell, and of its landing zone if the line says so; mostly for an instant,
 * and again and again. Prints each second
 * "progress SESSIONS refused=N ended=N sent=N answered=N", the totals.
 *
 * 1. A process, so that whatever it writes to, it is there: mappings are its own.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/fabric/shm/shm.h"

enum { SESSIONS = 4096, MESSAGES = 64, NEAR_BYTES = 4096, MOST_TIMES = 1 << 12, PAUSE_US = 200 };

#define CONNECT_NS (2 * NS_PER_S)
#define ANSWER_NS  (3 * NS_PER_MS)

struct message {
    uint8_t *data;
    uint32_t bytes;
};

struct session {
    char address[256];
    bool zone; /* that changes, too */
    uint32_t index, count;
    struct fabric_identity identity;
    struct message messages[MESSAGES];
};

static struct session sessions[SESSIONS];
static uint32_t session_count;
static struct fabric_endpoint *endpoint;
static struct random dice;
static bool connected, closed;
static uint64_t played, refused, ended, sent, answered;

static uint32_t below(uint32_t bound)
{
    return (uint32_t)random_below(&dice, bound);
}

/* --- the table --- */

static bool read_message(const char *hex, struct message *out)
{
    out->bytes = (uint32_t)strlen(hex) / 2;
    out->data = malloc(out->bytes + 1);
    for (uint32_t i = 0; out->data && i < out->bytes; i++) {
        const char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out->data[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return out->data;
}

static bool read_session(char *line, struct session *session)
{
    struct fabric_identity *who = &session->identity;
    char kind[16];
    int at;
    if (sscanf(line, "%255s %u %15s %u %" SCNu64 " %" SCNu64 " %u%n", session->address,
               &session->index, kind, &who->id, &who->incarnation, &who->cluster, &who->role,
               &at) != 7)
        return false;
    who->kind = strcmp(kind, "client") == 0 ? FABRIC_CLIENT : FABRIC_SERVER;
    session->zone = strcmp(kind, "zone") == 0;
    for (char *word = strtok(line + at, " \n"); word && session->count < MESSAGES;
         word = strtok(NULL, " \n"))
        if (!read_message(word, &session->messages[session->count++]))
            return false;
    return true;
}

static bool read_table(const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t bytes = 0;
    bool right = file;
    while (right && session_count < SESSIONS && getline(&line, &bytes, file) > 0)
        right = read_session(line, &sessions[session_count++]);
    free(line);
    if (file)
        fclose(file);
    return right && session_count > 0;
}

/* --- the child --- */

/* Somewhere in `bytes`, at a multiple of `unit`. */
static uint8_t *somewhere(void *memory, size_t bytes, uint32_t unit)
{
    return (uint8_t *)memory + unit * below((uint32_t)(bytes / unit));
}

/* Where something was written last. */
static uint8_t *near_the_tail(struct shm_channel *channel)
{
    const uint64_t tail = atomic_load(&channel->ring[0].tail);
    const uint64_t back = 8 * (uint64_t)below(below(2) == 0 ? 16 : NEAR_BYTES / 8);
    return channel->data[0] + (tail - (back < tail ? back : tail)) % SHM_RING_BYTES / 8 * 8;
}

/* Mostly the words at its beginning, and those of its first claims. */
static uint8_t *in_the_zone(const struct shm_rowan *rowan)
{
    const uint64_t slot =
        offsetof(struct zone_control, slots) + below(rowan->depth) * sizeof(struct zone_slot);
    switch (below(3)) {
    case 0:
        return somewhere(rowan->control, 192, 8);
    case 1:
        return somewhere(rowan->control, zone_control_bytes(rowan->depth), 8);
    default:
        return somewhere((uint8_t *)rowan->control + slot, 1024, 8);
    }
}

static uint8_t *choose(const struct shm_conn *conn, bool zone)
{
    const uint32_t draw = below(100);
    if (zone && conn->rowan && below(4) > 0)
        return in_the_zone(conn->rowan);
    if (draw < 75)
        return near_the_tail(conn->channel);
    if (draw < 85)
        return somewhere(conn->channel->data, sizeof conn->channel->data - 8, 8);
    if (draw < 95)
        return somewhere(conn->channel->ring, sizeof conn->channel->ring, 8);
    return somewhere(conn->peer_door, sizeof *conn->peer_door, 8);
}

static uint64_t changed(uint64_t word)
{
    switch (below(6)) {
    case 0:
        return word ^ UINT64_C(1) << below(64);
    case 1:
        return word ^ (uint64_t)below(256) << 8 * below(8);
    case 2:
        return word + below(64) - 32;
    case 3:
        return UINT64_C(0x8080808080808080); /* a varint that goes on */
    case 4:
        return UINT64_C(0x0101010101010101);
    default:
        return random_u64(&dice);
    }
}

static void change_all_the_time(const struct shm_conn *conn, bool zone)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        volatile uint64_t *const place = (volatile uint64_t *)choose(conn, zone);
        const uint64_t was = *place, other = changed(was);
        for (uint32_t times = 1 + below(MOST_TIMES); times > 0; times--) {
            *place = other;
            *place = was;
        }
        if (below(2000) == 0)
            *place = other;
    }
}

/* --- a session --- */

static void poll_for(struct fabric_conn *conn, uint64_t ns)
{
    const uint64_t until_ns = clock_now_ns(clock_system()) + ns;
    const uint64_t before = answered;
    uint64_t now_ns = 0;
    while (!closed && (!conn || answered == before) && now_ns < until_ns && (conn || !connected)) {
        struct fabric_event events[16];
        now_ns = clock_now_ns(clock_system());
        const unsigned got = fabric_poll(endpoint, now_ns, events, 16);
        for (unsigned i = 0; i < got; i++) {
            connected = connected || events[i].kind == FABRIC_CONNECTED;
            closed = closed || events[i].kind == FABRIC_CLOSED;
            if (events[i].kind != FABRIC_MESSAGE)
                continue;
            fabric_message_release(events[i].conn, events[i].message);
            answered++;
        }
        fabric_flush(endpoint);
        usleep(PAUSE_US);
    }
}

static void send_all(const struct session *session, struct fabric_conn *conn)
{
    for (uint32_t i = 0; i < session->count && !closed; i++) {
        const struct message *message = &session->messages[i];
        const struct fabric_iov iov = {message->data, message->bytes};
        if (fabric_send(conn, &iov, 1) == 0)
            sent++;
        fabric_flush(endpoint);
        if (below(3) > 0)
            poll_for(conn, ANSWER_NS);
    }
    poll_for(conn, ANSWER_NS);
}

static void play(const struct session *session)
{
    struct fabric_conn *conn;
    connected = closed = false;
    fabric_endpoint_identity(endpoint, &session->identity);
    const int error = fabric_connect(endpoint, session->address, session->index, 0, &conn);
    if (!error)
        poll_for(NULL, CONNECT_NS);
    played++;
    if (error || !connected) {
        refused++;
        if (!error && !closed)
            fabric_conn_close(conn);
        return;
    }
    const pid_t child = fork();
    if (child == 0) {
        random_init(&dice, random_u64(&dice));
        change_all_the_time((const struct shm_conn *)conn, session->zone);
    }
    send_all(session, conn);
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    if (closed)
        ended++;
    else
        fabric_conn_close(conn);
}

int main(int argc, char **argv)
{
    struct fabric *fabric;
    if (argc != 4 || !read_table(argv[1])) {
        fprintf(stderr, "usage: changer TABLE SEED SECONDS\n");
        return 2;
    }
    random_init(&dice, strtoull(argv[2], NULL, 10));
    int error = fabric_open("shm", NULL, &fabric);
    if (!error)
        error = fabric_endpoint_open(fabric, 0, &endpoint);
    if (error) {
        fprintf(stderr, "changer: %s\n", error_sentence(error));
        return 1;
    }
    const uint64_t end_ns = clock_now_ns(clock_system()) + strtoull(argv[3], NULL, 10) * NS_PER_S;
    uint64_t told_ns = 0, now_ns;
    while ((now_ns = clock_now_ns(clock_system())) < end_ns) {
        play(&sessions[below(session_count)]);
        if (now_ns - told_ns < NS_PER_S)
            continue;
        printf("progress %" PRIu64 " refused=%" PRIu64 " ended=%" PRIu64 " sent=%" PRIu64
               " answered=%" PRIu64 "\n",
               played, refused, ended, sent, answered);
        fflush(stdout);
        told_ns = now_ns;
    }
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    for (uint32_t i = 0; i < session_count; i++)
        for (uint32_t k = 0; k < sessions[i].count; k++)
            free(sessions[i].messages[k].data);
    return 0;
}
