/* redis_load - the load of rowan-ycsb, for a Redis primary: the same keys, sizes, mix and draws of records, over
 * connections of which each has a batch of --depth commands outstanding. Behind a batch with writes goes
 * `WAIT replicas 0`, which Redis answers when so many replicas have them; a batch is done, and the next one
 * sent, when all its answers are there. One thread, as Redis has one. Prints operations a second as JSON.
 *
 * A batch is smaller than a socket's buffers, and is sent when nothing of the one before is unread: so a send
 * that blocks ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "tools/rowan-ycsb/workload.h"
#include "tools/rowan-ycsb/zipf.h"

enum {
    MOST_CONNECTIONS = 256,
    MOST_DEPTH = 256,
    MOST_REPLICAS = 9,
    BUFFER_BYTES = 1 << 18,
    COMMAND_BYTES = 1 << 10
};

enum workload { LOAD, A, C };

struct settings {
    const char *profile;
    uint64_t workload, port, records, connections, depth, replicas, ms, seed;
};

#define FIELD(name) offsetof(struct settings, name)
static const struct config_key keys[] = {
    {"port", CONFIG_U64, FIELD(port), "6379", 1, 65535, NULL, "of the primary, on this host"},
    {"workload", CONFIG_CHOICE, FIELD(workload), "a", 0, 0, "load|a|c",
     "each record once, 50 % writes, reads"},
    {"profile", CONFIG_STRING, FIELD(profile), "zippydb", 0, 0, NULL,
     "sizes, as rowan-ycsb has them"},
    {"records", CONFIG_U64, FIELD(records), "100000", 1, 100000000, NULL, "different keys"},
    {"connections", CONFIG_U64, FIELD(connections), "8", 1, MOST_CONNECTIONS, NULL,
     "to the primary"},
    {"depth", CONFIG_U64, FIELD(depth), "64", 1, MOST_DEPTH, NULL, "commands in a batch"},
    {"replicas", CONFIG_U64, FIELD(replicas), "2", 0, MOST_REPLICAS, NULL,
     "that WAIT names; 0: no WAIT"},
    {"ms", CONFIG_U64, FIELD(ms), "1000", 1, 600000, NULL, "how long to run (a, c)"},
    {"seed", CONFIG_U64, FIELD(seed), "1", 0, UINT64_MAX, NULL, "of all that is random"},
};

static const struct config_spec spec = {
    .program = "redis_load",
    .summary = "Runs a YCSB workload on a Redis primary; see test/bench/peers.",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

struct lane { /* a connection */
    int fd;
    uint32_t left;   /* answers outstanding */
    bool waiting;    /* the last of them is WAIT's */
    uint32_t unread; /* bytes in `in` */
    char in[BUFFER_BYTES];
};

static struct settings settings;
static struct profile *profile;
static struct zipf zipf;
static struct random draw;
static struct lane lanes[MOST_CONNECTIONS];
static uint64_t next_record, writes, operations, end_ns;
static bool loading;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "redis_load: %s: %s\n", what, why);
    exit(1);
}

static void fail_errno(const char *what)
{
    fail(what, strerror(errno));
}

/* --- a batch --- */

static char *add_word(char *out, const void *word, uint32_t bytes)
{
    out += sprintf(out, "$%u\r\n", bytes);
    memcpy(out, word, bytes);
    memcpy(out + bytes, "\r\n", 2);
    return out + bytes + 2;
}

static char *add_command(char *out, bool put)
{
    uint64_t record = loading
                          ? next_record++
                          : zipf_scramble(zipf_rank(&zipf, random_unit(&draw)), settings.records);
    char key[WORKLOAD_MAX_KEY_BYTES], value[COMMAND_BYTES];
    uint32_t key_bytes = workload_key(profile, record, key);

    if (!put)
        return add_word(out + sprintf(out, "*2\r\n$3\r\nGET\r\n"), key, key_bytes);
    uint64_t seed = workload_mix(settings.seed, writes++);
    uint32_t value_bytes = workload_value_bytes(profile, record, seed);

    workload_value(record, seed, value, value_bytes);
    out = add_word(out + sprintf(out, "*3\r\n$3\r\nSET\r\n"), key, key_bytes);
    return add_word(out, value, value_bytes);
}

static bool is_over(void)
{
    return loading ? next_record == settings.records : clock_now_ns(clock_system()) >= end_ns;
}

/* Returns false when the run is over. */
static bool send_batch(struct lane *lane)
{
    static char out[MOST_DEPTH * 2 * COMMAND_BYTES];
    char *at = out;

    if (is_over())
        return false;
    lane->waiting = false;
    while (lane->left < settings.depth && !(loading && next_record == settings.records)) {
        bool put = loading || (settings.workload == A && random_below(&draw, 2) == 0);

        at = add_command(at, put);
        lane->left++;
        lane->waiting |= put && settings.replicas > 0;
    }
    if (lane->waiting) {
        at +=
            sprintf(at, "*3\r\n$4\r\nWAIT\r\n$1\r\n%u\r\n$1\r\n0\r\n", (unsigned)settings.replicas);
        lane->left++;
    }
    for (const char *from = out; from < at;) {
        ssize_t sent = send(lane->fd, from, (size_t)(at - from), MSG_NOSIGNAL);

        if (sent < 0)
            fail_errno("send");
        from += sent;
    }
    return true;
}

/* --- answers --- */

/* The bytes of the whole answer at `at`, or 0: it has not all come. */
static size_t answer_bytes(const struct lane *lane, const char *at, const char *end)
{
    const char *line_end = memchr(at, '\n', (size_t)(end - at));

    if (!line_end)
        return 0;
    size_t bytes = (size_t)(line_end + 1 - at);

    if (*at == '$') {
        long length = atol(at + 1);

        if (length < 0)
            fail("GET", "a record is missing");
        bytes += (size_t)length + 2;
    } else if (*at == ':' && lane->waiting && lane->left == 1) {
        if (strtoul(at + 1, NULL, 10) < settings.replicas)
            fail("WAIT", "not so many replicas");
    } else if (*at != '+') {
        fprintf(stderr, "redis_load: Redis answers: %.*s\n", (int)bytes - 2, at);
        exit(1);
    }
    return bytes <= (size_t)(end - at) ? bytes : 0;
}

static void receive(struct lane *lane)
{
    ssize_t got =
        recv(lane->fd, lane->in + lane->unread, sizeof lane->in - lane->unread, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got < 0)
        fail_errno("receive");
    if (got == 0)
        fail("receive", "Redis closed the connection");
    const char *at = lane->in, *end = lane->in + lane->unread + got;

    for (size_t bytes; at < end && (bytes = answer_bytes(lane, at, end)) > 0; at += bytes) {
        if (lane->left == 0)
            fail("Redis answers", "more than was asked");
        operations += !(lane->waiting && lane->left == 1);
        lane->left--;
    }
    lane->unread = (uint32_t)(end - at);
    memmove(lane->in, at, lane->unread);
}

/* --- the run --- */

static void lane_open(struct lane *lane, int epoll)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)settings.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = lane};

    lane->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (lane->fd < 0 || connect(lane->fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(lane->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) != 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, lane->fd, &event) != 0)
        fail_errno("connection to the primary");
}

static double run(void)
{
    struct epoll_event events[MOST_CONNECTIONS];
    uint64_t busy = 0;
    int epoll = epoll_create1(0);

    for (uint64_t i = 0; i < settings.connections; i++)
        lane_open(&lanes[i], epoll);
    uint64_t start_ns = clock_now_ns(clock_system());

    end_ns = start_ns + settings.ms * NS_PER_MS;
    for (uint64_t i = 0; i < settings.connections; i++)
        busy += send_batch(&lanes[i]);
    while (busy > 0) {
        int count = epoll_wait(epoll, events, MOST_CONNECTIONS, -1);

        for (int i = 0; i < count; i++) {
            struct lane *lane = events[i].data.ptr;

            receive(lane);
            if (lane->left == 0 && !send_batch(lane))
                busy--;
        }
    }
    double seconds = (double)(clock_now_ns(clock_system()) - start_ns) / 1e9;

    for (uint64_t i = 0; i < settings.connections; i++)
        close(lanes[i].fd);
    close(epoll);
    return seconds;
}

int main(int argc, char **argv)
{
    struct config_rest rest;
    enum config_outcome outcome = config_parse(&spec, argc, argv, &settings, &rest);

    if (outcome != CONFIG_OK)
        return outcome == CONFIG_HELP ? 0 : 2;
    if (profile_create(settings.profile, &profile) != 0 || profile->max_value_bytes > COMMAND_BYTES)
        fail(settings.profile, "no such profile, or values too large for it");
    loading = settings.workload == LOAD;
    zipf_init(&zipf, settings.records);
    random_init(&draw, settings.seed);
    double seconds = run();

    printf("{\"operations\": %llu, \"seconds\": %.6f, \"ops_per_second\": %.1f}\n",
           (unsigned long long)operations, seconds, (double)operations / seconds);
    free(profile);
    config_free(&rest);
    return fflush(stdout) != 0;
}
