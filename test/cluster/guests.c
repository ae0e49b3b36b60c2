/* guests.c - connections that play what a table says, from many addresses of this host, for guests.py. They know nothing of what
 * they send.
 *
 * Usage: guests TABLE PLACES SEED. A line of TABLE, one for each habit:
 *
 *   PORT EVERY_MS CHUNK READS BYTES      CHUNK of BYTES (hexadecimal) each EVERY_MS, then silence; READS 1: answers are read
 *
 * Standard input says "want COUNT PER_SECOND BYTES_PER_SECOND": so many are kept, so many are new each second, in the place of random
 * ones once there are enough of them, and so much is sent at most; 0: all are closed. Prints each second
 * "progress OPENED now=N ended=N failed=N bytes=N", the totals since the start. Ends with its standard input. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/random.h"

enum { HABITS = 4096, TICK_MS = 10, LINE_BYTES = 1 << 20, SILENT_MS = 1000 };

struct habit {
    uint16_t port;
    bool reads;
    uint32_t every_ms;
    size_t chunk, bytes;
    uint8_t *data;
};

struct guest {
    int fd; /* -1: free */
    const struct habit *habit;
    size_t sent;
    uint64_t next_ns;
};

static struct habit habits[HABITS];
static uint32_t habit_count, places, now_open, wanted, per_second;
static struct guest *guests;
static uint64_t bytes_per_second, opened, ended, failed, bytes;
static struct random dice;

static uint32_t below(uint32_t bound)
{
    return (uint32_t)random_below(&dice, bound);
}

static bool read_table(const char *path)
{
    static char line[LINE_BYTES], hex[LINE_BYTES];
    FILE *file = fopen(path, "re");
    while (file && habit_count < HABITS && fgets(line, sizeof line, file)) {
        struct habit *habit = &habits[habit_count++];
        unsigned port, reads;
        if (sscanf(line, "%u %u %zu %u %s", &port, &habit->every_ms, &habit->chunk, &reads, hex) <
            4)
            return false;
        habit->port = (uint16_t)port;
        habit->reads = reads != 0;
        habit->bytes = strcmp(hex, "-") == 0 ? 0 : strlen(hex) / 2;
        habit->data = malloc(habit->bytes + 1);
        for (size_t i = 0; habit->data && i < habit->bytes; i++) {
            const char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};
            habit->data[i] = (uint8_t)strtoul(digits, NULL, 16);
        }
        if (!habit->data)
            return false;
    }
    return file && fclose(file) == 0 && habit_count > 0;
}

static int connect_to(uint16_t port)
{
    const int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* 127.1.0.1 to 127.254.255.254: as guarded.py tells them from others. */
    const uint32_t from = 127u << 24 | (1 + below(254)) << 16 | below(256) << 8 | (1 + below(254));
    const struct sockaddr_in source = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
    const struct sockaddr_in door = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&source, sizeof source) == 0 &&
        (connect(fd, (const struct sockaddr *)&door, sizeof door) == 0 || errno == EINPROGRESS))
        return fd;
    close(fd);
    return -1;
}

/* Half of them with a reset. */
static void end_guest(struct guest *guest)
{
    const struct linger none = {.l_onoff = 1};
    if (below(2) == 0)
        setsockopt(guest->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(guest->fd);
    guest->fd = -1;
    now_open--;
}

/* In a free place, else in that of a random one. */
static void open_guest(uint64_t now_ns)
{
    struct guest *guest = &guests[below(wanted)];
    for (uint32_t tries = 0; guest->fd >= 0 && now_open < wanted && tries < wanted; tries++)
        guest = guest + 1 == guests + wanted ? guests : guest + 1;
    if (guest->fd >= 0)
        end_guest(guest);
    *guest = (struct guest){.habit = &habits[below(habit_count)], .next_ns = now_ns};
    guest->fd = connect_to(guest->habit->port);
    if (guest->fd < 0) {
        failed++;
        return;
    }
    opened++;
    now_open++;
}

static bool is_over(const struct guest *guest)
{
    uint8_t data[16384];
    const ssize_t got =
        recv(guest->fd, data, sizeof data, MSG_DONTWAIT | (guest->habit->reads ? 0 : MSG_PEEK));
    return got == 0 || (got < 0 && errno != EAGAIN);
}

/* What it sends next; `budget`: of bytes that may still be sent in this tick. */
static void step(struct guest *guest, uint64_t now_ns, uint64_t *budget)
{
    const struct habit *habit = guest->habit;
    size_t more = habit->bytes - guest->sent;
    bool over = is_over(guest);
    if (more > habit->chunk)
        more = habit->chunk;
    if (more > *budget && more > 1)
        more = *budget;
    if (!over && more > 0) {
        const ssize_t got = send(guest->fd, habit->data + guest->sent, more, MSG_NOSIGNAL);
        over = got < 0 && errno != EAGAIN;
        if (got > 0) {
            guest->sent += (size_t)got;
            bytes += (uint64_t)got;
            *budget -= (uint64_t)got < *budget ? (uint64_t)got : *budget;
        }
    }
    if (over) {
        ended++;
        end_guest(guest);
    }
    const bool waits = more == 0 || guest->sent == habit->bytes; /* for nothing, or for a budget */
    const uint32_t pause_ms = waits ? SILENT_MS : habit->every_ms;
    guest->next_ns = now_ns + pause_ms * NS_PER_MS;
}

/* False: standard input has ended. */
static bool listen_to_orders(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char line[128];
    if (poll(&in, 1, TICK_MS) <= 0)
        return true;
    const ssize_t got = read(STDIN_FILENO, line, sizeof line - 1); /* one order at a time */
    if (got <= 0)
        return false;
    line[got] = 0;
    if (sscanf(line, "want %u %u %lu", &wanted, &per_second, &bytes_per_second) != 3)
        return false;
    if (wanted > places)
        wanted = places;
    for (uint32_t i = wanted; i < places; i++)
        if (guests[i].fd >= 0)
            end_guest(&guests[i]);
    return true;
}

static void play(void)
{
    uint64_t told_ns = 0, last_ns = clock_now_ns(clock_system()), owed = 0;
    while (listen_to_orders()) {
        const uint64_t now_ns = clock_now_ns(clock_system()), passed_ns = now_ns - last_ns;
        uint64_t budget = bytes_per_second * passed_ns / NS_PER_S;
        owed = wanted ? owed + per_second * passed_ns : 0;
        for (; owed >= NS_PER_S; owed -= NS_PER_S)
            open_guest(now_ns);
        const uint32_t first =
            wanted ? below(wanted) : 0; /* who is served while the budget lasts */
        for (uint32_t i = 0; i < wanted; i++) {
            struct guest *guest = &guests[(first + i) % wanted];
            if (guest->fd >= 0 && guest->next_ns <= now_ns)
                step(guest, now_ns, &budget);
        }
        if (now_ns - told_ns >= NS_PER_S) {
            printf("progress %lu now=%u ended=%lu failed=%lu bytes=%lu\n", opened, now_open, ended,
                   failed, bytes);
            fflush(stdout);
            told_ns = now_ns;
        }
        last_ns = now_ns;
    }
}

int main(int argc, char **argv)
{
    struct rlimit limit;
    if (argc != 4 || !read_table(argv[1])) {
        fprintf(stderr, "usage: guests TABLE PLACES SEED\n");
        return 2;
    }
    places = (uint32_t)strtoul(argv[2], NULL, 10);
    random_init(&dice, strtoull(argv[3], NULL, 10));
    guests = malloc(places * sizeof *guests);
    if (!guests || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    for (uint32_t i = 0; i < places; i++)
        guests[i].fd = -1;
    play();
    free(guests);
    return 0;
}
