/* tcp_limits_test.c - what is bounded: addresses, descriptors, connections, memory, and how much a
 * peer that does not read, or an owner who releases nothing, can pile up. */
#define TEST_FIXTURE open_all, close_host

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"
#include "common/reactor/descriptors.h"
#include "test/lib/tcp_raw.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#ifdef __SANITIZE_ADDRESS__
#define SANITIZED true
#else
#define SANITIZED false
#endif
#endif

enum { OWNER, OTHER, SIDES, PM_BYTES = 16 << 20 };

HOST_FIXTURE(open_all, OVER_TCP, SIDES, PM_BYTES)

static struct side *owner(void)
{
    return &world.sides[OWNER];
}

static struct tcp_endpoint *owner_endpoint(void)
{
    return (struct tcp_endpoint *)owner()->endpoint;
}

/* A client's connection. */
static int raw_client(void)
{
    const uint32_t accepted = side_count(owner(), FABRIC_ACCEPTED);
    struct tcp_greeting hello = raw_hello(1000, 0);
    const int fd = host_connect();

    hello.identity.kind = FABRIC_CLIENT;
    assert_true(raw_send(fd, &hello, sizeof hello));
    world_wait(&world, OWNER, FABRIC_ACCEPTED, accepted + 1);
    assert_int_equal(recv(fd, &hello, sizeof hello, 0), sizeof hello);
    assert_int_equal(hello.error, 0);
    return fd;
}

/* A connection of the other side asks and is answered. */
static void other_is_served(struct fabric_conn *conn, struct fabric_conn *passive)
{
    const struct fabric_iov iov = {.data = "hello", .bytes = 5};
    const uint32_t got = side_count(owner(), FABRIC_MESSAGE);
    const uint32_t answered = side_count(&world.sides[OTHER], FABRIC_MESSAGE);

    assert_int_equal(fabric_send(conn, &iov, 1), 0);
    world_wait(&world, OWNER, FABRIC_MESSAGE, got + 1);
    fabric_message_release(passive, side_event(owner(), FABRIC_MESSAGE, got)->message);
    assert_int_equal(fabric_send(passive, &iov, 1), 0);
    world_wait(&world, OTHER, FABRIC_MESSAGE, answered + 1);
    fabric_message_release(conn,
                           side_event(&world.sides[OTHER], FABRIC_MESSAGE, answered)->message);
}

/* --- addresses --- */

TEST(only_addresses_with_a_port_are_taken)
{
    static const char *const bad[] = {
        "tcp:",
        "tcp:127.0.0.1",
        "tcp:127.0.0.1:",
        "tcp:127.0.0.1:0",
        "tcp::7000",
        "tcp:127.0.0.1:65536",
        "tcp:127.0.0.1:7x",
        "tcp:127.0.0.1:-1",
        "tcp:[::1]",
        "tcp:[::1:7000",
        "tcp:::1:7000",
        "tcp:some host:7000",
        "tcp:0.0.0.0:1",
        "tcp:[::]:1",
        "tcp:224.0.0.1:7000",
        "tcp:127.0.0.1:123456",
        "tcp:300.0.0.1:7",
        "tcp:[127.0.0.1]:70",
        "tcp:127.0.0.1:7000 ",
        "tcp:[localhost]:70",
    };
    static const char *const good[] = {"tcp:127.0.0.1:1", "tcp:localhost:7000", "tcp:[::1]:65535",
                                       "tcp:10.1.2.3:65535", "tcp:[fd00::1:2]:7000"};
    struct fabric *fabric = NULL;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(fabric_open(NULL, bad[i], &fabric), ROWAN_EINVALID);
    assert_null(fabric);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(fabric_open(NULL, good[i], &fabric), 0);
        fabric_close(fabric);
    }
    assert_int_equal(fabric_open("tcp", NULL, &fabric), 0);
    fabric_close(fabric);
}

TEST(an_address_in_use_is_refused_and_one_that_is_not_ours_too)
{
    struct fabric_endpoint *endpoint;
    struct fabric *again;

    assert_int_equal(host_fabric(&host, OWNER, &again), 0);
    assert_int_equal(fabric_endpoint_open(again, 0, &endpoint), ROWAN_EINUSE);
    assert_int_equal(fabric_endpoint_open(again, 1, &endpoint), 0); /* the next port is free */
    fabric_endpoint_close(endpoint);
    assert_int_equal(fabric_endpoint_open(again, 65535, &endpoint), ROWAN_EINVALID);
    fabric_close(again);
    assert_int_equal(fabric_open(NULL, "tcp:192.0.2.1:7000", &again), 0); /* of RFC 5737 */
    assert_int_equal(fabric_endpoint_open(again, 0, &endpoint), ROWAN_EINVALID);
    fabric_close(again);
}

TEST(a_port_beyond_the_last_is_refused)
{
    struct fabric_conn *conn;

    assert_int_equal(
        fabric_connect(world.sides[OTHER].endpoint, "tcp:127.0.0.1:65535", 1, 0, &conn),
        ROWAN_EINVALID);
}

TEST(ipv6_works_where_the_host_has_it)
{
    struct fabric_identity identity = {.cluster = 7, .kind = FABRIC_CLIENT};
    struct fabric_endpoint *server, *client;
    struct fabric *a, *b;
    struct fabric_event event;
    struct fabric_conn *conn;
    char address[64];
    unsigned connected = 0;
    int error;

    snprintf(address, sizeof address, "tcp:[::1]:%u", host_port(&host, 5));
    assert_int_equal(fabric_open(NULL, address, &a), 0);
    error = fabric_endpoint_open(a, 0, &server);
    if (error) {
        print_message("# this host has no IPv6: skipped\n");
        fabric_close(a);
        skip();
    }
    assert_int_equal(fabric_open("tcp", NULL, &b), 0);
    assert_int_equal(fabric_endpoint_open(b, 0, &client), 0);
    fabric_endpoint_identity(client, &identity);
    assert_int_equal(fabric_connect(client, address, 0, 0, &conn), 0);
    for (unsigned i = 0; connected < 2 && i < 1000000; i++) {
        connected += fabric_poll(server, host_now_ns(&host), &event, 1);
        connected += fabric_poll(client, host_now_ns(&host), &event, 1);
        assert_int_not_equal(event.kind, FABRIC_CLOSED);
    }
    assert_int_equal(connected, 2);
    fabric_endpoint_close(client);
    fabric_endpoint_close(server);
    fabric_close(a);
    fabric_close(b);
}

TEST(a_server_that_comes_back_at_once_gets_its_port_and_its_peers)
{
    struct fabric_conn *conn, *passive;

    for (uint32_t round = 0; round < 20; round++) {
        const struct fabric_identity identity = {.cluster = 7, .kind = FABRIC_SERVER};

        side_open_zone(&world, OWNER, 2, 1);
        world_connect(&world, OTHER, OWNER, round, &conn, &passive);
        assert_int_equal(world_add_block(&world, OTHER, conn, 0, 0, 64), 0);
        assert_int_equal(fabric_rowan_post(conn, round), 0);
        world_wait(&world, OTHER, FABRIC_LANDED, round + 1);
        side_close(&world, OWNER); /* closes first: its end is the one that lingers */
        world_wait(&world, OTHER, FABRIC_CLOSED, round + 1);
        assert_int_equal(host_fabric(&host, OWNER, &owner()->fabric), 0);
        assert_int_equal(fabric_register(owner()->fabric, owner()->pm), 0);
        assert_int_equal(fabric_endpoint_open(owner()->fabric, 0, &owner()->endpoint), 0);
        fabric_endpoint_identity(owner()->endpoint, &identity);
    }
}

/* --- peers that do not read, owners that do not release --- */

static uint32_t outs_in_use(void)
{
    const struct tcp_slabs *slabs = &owner_endpoint()->slabs;

    return slabs->counts[SLAB_OUT] - slabs->free_count[SLAB_OUT];
}

TEST(unread_answers_are_refused_and_cost_bounded_memory)
{
    enum { CLIENTS = 40, BYTES = 1000, QUIET_ROUNDS = 50 };
    static const uint8_t answer[BYTES];
    const struct fabric_iov iov = {.data = answer, .bytes = BYTES};
    struct fabric_conn *conn, *passive;
    uint64_t sent = 0;
    int fds[CLIENTS];

    for (unsigned i = 0; i < CLIENTS; i++)
        fds[i] = raw_client();
    /* What the kernel has not carried over yet may make room once more. */
    for (unsigned quiet = 0; quiet < QUIET_ROUNDS;) {
        const uint64_t before = sent;

        for (unsigned i = 0; i < CLIENTS; i++) {
            struct fabric_conn *client = side_event(owner(), FABRIC_ACCEPTED, i)->conn;
            int error;

            while ((error = fabric_send(client, &iov, 1)) == 0)
                sent += BYTES;
            assert_int_equal(error, ROWAN_EAGAIN);
            side_poll(&world, OWNER);
        }
        assert_true(sent < (uint64_t)CLIENTS * (8 << 20)); /* buffers of both kernels and ours */
        quiet = sent == before && owner_endpoint()->base.counts[LIST_BLOCKED] == CLIENTS ? quiet + 1
                                                                                         : 0;
    }
    assert_int_equal(outs_in_use(), CLIENTS);
    assert_int_equal(owner_endpoint()->base.counts[LIST_BLOCKED], CLIENTS);
    world_connect(&world, OTHER, OWNER, 0, &conn, &passive);
    other_is_served(conn, passive);
    for (unsigned i = 0; i < CLIENTS; i++)
        close(fds[i]);
    world_wait(&world, OWNER, FABRIC_CLOSED, CLIENTS);
    world_poll_times(&world, 3);
    assert_int_equal(outs_in_use(), 0);
    assert_true(owner_endpoint()->slabs.free_count[SLAB_OUT] <= TCP_OUTS_KEPT);
}

/* As an owner does who keeps requests until there is a place for their answers. */
TEST(a_peer_who_ends_is_closed_also_when_the_owner_holds_its_messages_and_waits_for_places)
{
    enum { BYTES = 32000, QUIET_ROUNDS = 50 };
    static uint8_t message[sizeof(struct tcp_message_head) + BYTES];
    struct tcp_message_head head = {.magic = TCP_MESSAGE_MAGIC, .bytes = BYTES};
    const struct fabric_iov iov = {.data = message, .bytes = BYTES};
    const int fd = raw_client();
    struct fabric_conn *client = side_event(owner(), FABRIC_ACCEPTED, 0)->conn;

    for (; !((struct tcp_conn *)client)->in.stopped; head.number++) {
        memcpy(message, &head, sizeof head);
        assert_true(raw_send(fd, message, sizeof message));
        world_wait(&world, OWNER, FABRIC_MESSAGE, (uint32_t)head.number + 1);
    }
    for (unsigned quiet = 0; quiet < QUIET_ROUNDS; side_poll(&world, OWNER))
        quiet = fabric_send(client, &iov, 1) == 0 ? 0 : quiet + 1;
    close(fd);
    world_wait(&world, OWNER, FABRIC_CLOSED, 1);
}

TEST(a_reader_who_comes_back_gets_all_answers)
{
    enum { BYTES = 1000 };
    uint8_t answer[BYTES], got[sizeof(struct tcp_message_head) + BYTES];
    const struct fabric_iov iov = {.data = answer, .bytes = BYTES};
    struct fabric_conn *client;
    uint32_t sent = 0, refused = 0;
    const int fd = raw_client();

    client = side_event(owner(), FABRIC_ACCEPTED, 0)->conn;
    while (refused < 50) {
        int error;

        pattern_fill(answer, BYTES, sent);
        error = fabric_send(client, &iov, 1);
        sent += error == 0;
        refused = error ? refused + 1 : 0;
        side_poll(&world, OWNER);
    }
    for (uint32_t i = 0; i < sent; i++) {
        /* Not raw_receive: a reader who only peeks opens no window. */
        for (size_t have = 0; have < sizeof got;) {
            const ssize_t bytes = recv(fd, got + have, sizeof got - have, MSG_DONTWAIT);

            assert_true(bytes > 0 || (bytes < 0 && errno == EAGAIN));
            have += bytes > 0 ? (size_t)bytes : 0;
            side_poll(&world, OWNER);
            assert_int_equal(side_count(owner(), FABRIC_CLOSED), 0);
        }
        assert_true(pattern_is(got + sizeof(struct tcp_message_head), BYTES, i));
    }
    assert_int_equal(fabric_send(client, &iov, 1), 0);
    close(fd);
}

/* Long messages that are begun and never ended take all the memory for such; who really sends one
 * waits for them no longer than PARTIAL_STALL_NS. */
TEST(half_messages_do_not_keep_others_waiting_for_ever)
{
    const struct tcp_message_head head = {.magic = TCP_MESSAGE_MAGIC, .bytes = 1 << 20};
    static uint8_t large[1 << 20];
    const struct fabric_iov iov = {.data = large, .bytes = sizeof large};
    struct fabric_conn *conn, *passive;
    int fds[TCP_LARGES];

    for (unsigned i = 0; i < TCP_LARGES; i++) {
        fds[i] = raw_client();
        assert_true(raw_send(fds[i], &head, sizeof head));
        assert_true(raw_send(fds[i], large, 3000));
    }
    world_poll_times(&world, 10);
    assert_int_equal(owner_endpoint()->base.counts[LIST_BEGUN], TCP_LARGES);
    world_connect(&world, OTHER, OWNER, 0, &conn, &passive);
    pattern_fill(large, sizeof large, 1);
    assert_int_equal(fabric_send(conn, &iov, 1), 0);
    world_poll_times(&world, 200);
    assert_int_equal(side_count(owner(), FABRIC_MESSAGE), 0);
    assert_int_equal(side_count(owner(), FABRIC_CLOSED), 0); /* they have their time */
    host.skipped_ns += PARTIAL_STALL_NS + NS_PER_S;
    world_wait(&world, OWNER, FABRIC_MESSAGE, 1);
    assert_true(pattern_is(side_event(owner(), FABRIC_MESSAGE, 0)->data, sizeof large, 1));
    assert_true(side_count(owner(), FABRIC_CLOSED) >= 1);
    fabric_message_release(passive, side_event(owner(), FABRIC_MESSAGE, 0)->message);
    for (unsigned i = 0; i < TCP_LARGES; i++)
        close(fds[i]);
}

TEST(memory_goes_back_when_nothing_is_held)
{
    enum { MESSAGES = 300, BYTES = 60000 };
    static uint8_t data[BYTES];
    const struct fabric_iov iov = {.data = data, .bytes = BYTES};
    struct fabric_conn *conn, *passive;
    uint32_t sent = 0, released = 0, slabs = 0, most = 0;

    world_connect(&world, OTHER, OWNER, 0, &conn, &passive);
    while (released < MESSAGES) {
        if (sent < MESSAGES && fabric_send(conn, &iov, 1) == 0)
            sent++;
        world_poll(&world);
        slabs = 0;
        for (unsigned kind = 0; kind < SLAB_KINDS; kind++)
            slabs += owner_endpoint()->slabs.counts[kind];
        most = slabs > most ? slabs : most;
        if (side_count(owner(), FABRIC_MESSAGE) - released >= 7 || sent == MESSAGES) {
            while (released < side_count(owner(), FABRIC_MESSAGE))
                fabric_message_release(passive,
                                       side_event(owner(), FABRIC_MESSAGE, released++)->message);
        }
    }
    assert_true(most <= 16); /* of 18 MB that went through */
    assert_true(slabs <= 2 * TCP_SLABS_KEPT + TCP_LARGES_KEPT + TCP_OUTS_KEPT + 1);
}

/* --- numbers --- */

TEST(one_connection_too_many_is_told_so)
{
    struct tcp_endpoint *endpoint = owner_endpoint();
    struct fabric_conn *conn, *passive, *late;

    world_connect(&world, OTHER, OWNER, 0, &conn, &passive);
    endpoint->base.counts[LIST_ALL] += TCP_MAX_CONNS - 1; /* as if there were so many */
    assert_int_equal(
        fabric_connect(world.sides[OTHER].endpoint, host_address(&host, OWNER), 0, 8, &late), 0);
    world_wait(&world, OTHER, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(&world.sides[OTHER], FABRIC_CLOSED, 0)->error, ROWAN_ETOOMANY);
    other_is_served(conn, passive);
    endpoint->base.counts[LIST_ALL] -= TCP_MAX_CONNS - 1;
    world_connect(&world, OTHER, OWNER, 0, &late, &passive);
}

TEST(half_open_connections_make_room_for_others)
{
    enum { COUNT = TCP_MAX_HALF_OPEN + 20 };
    static int fds[COUNT];
    uint32_t closed = 0;
    struct fabric_conn *conn, *passive;

    side_poll(&world, OWNER);
    const uint64_t began_ns = owner_endpoint()->base.now_ns;

    for (unsigned i = 0; i < COUNT; i++) {
        fds[i] = host_connect();
        side_poll(&world, OWNER);
    }
    world_poll_times(&world, 50);
    const bool fast = owner_endpoint()->base.now_ns - began_ns < TCP_HALF_OPEN_NS;

    assert_int_equal(owner_endpoint()->base.counts[LIST_HALF_OPEN], TCP_MAX_HALF_OPEN);
    host.skipped_ns += TCP_HALF_OPEN_NS + NS_PER_MS;
    world_connect(&world, OTHER, OWNER, 0, &conn, &passive);
    other_is_served(conn, passive);
    for (unsigned i = 0; i < COUNT; i++) {
        closed += raw_is_closed(fds[i]);
        close(fds[i]);
    }
    assert_in_range(closed, 20, fast ? 30 : COUNT);
}

TEST(without_descriptors_those_who_are_there_are_served)
{
    struct rlimit before, tight;
    struct fabric_conn *conn, *passive;
    int fds[8], next, accepted;

    world_connect(&world, OTHER, OWNER, 0, &conn, &passive);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (unsigned i = 0; i < 8; i++)
        fds[i] = host_connect();
    next = dup(0);
    close(next);
    tight = (struct rlimit){.rlim_cur = (rlim_t)next + 2, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    for (unsigned i = 0; i < 300; i++) {
        other_is_served(conn, passive);
        host.skipped_ns += NS_PER_MS;
    }
    accepted = (int)owner_endpoint()->base.counts[LIST_HALF_OPEN];
    assert_in_range(accepted, 1, 2); /* the numbers below the limit may not all be free */
    assert_true(owner_endpoint()->base.listen_paused);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    host.skipped_ns += ACCEPT_PAUSE_NS;
    for (unsigned i = 0; i < 100000 && owner_endpoint()->base.counts[LIST_HALF_OPEN] < 8; i++)
        side_poll(&world, OWNER);
    assert_int_equal(owner_endpoint()->base.counts[LIST_HALF_OPEN], 8);
    for (unsigned i = 0; i < 8; i++)
        close(fds[i]);
}

/* --- ten thousand --- */

enum { THOUSANDS = 10000, WAVE = 200 };

/* In a process of its own, with a limit of descriptors of its own: connects, says hello, and is
 * silent until the pipe closes. Exit code 0: all were welcome. */
static void crowd_run(int control, int report)
{
    const struct sockaddr_in address = host_sockaddr(&host, OWNER, 0);
    static int fds[THOUSANDS];
    struct tcp_greeting hello = raw_hello(1, 0), answer;
    char byte = 0;

    hello.identity.kind = FABRIC_CLIENT;
    for (unsigned i = 0; i < THOUSANDS; i++) {
        fds[i] = raw_connect(&address);
        if (fds[i] < 0 || !raw_send(fds[i], &hello, sizeof hello))
            _exit(1);
        if ((i + 1) % WAVE > 0)
            continue;
        for (unsigned k = i + 1 - WAVE; k <= i; k++) {
            if (recv(fds[k], &answer, sizeof answer, MSG_WAITALL) != (ssize_t)sizeof answer ||
                answer.error != 0)
                _exit(2);
        }
    }
    if (write(report, &byte, 1) != 1)
        _exit(3);
    _exit(read(control, &byte, 1) == 0 ? 0 : 4);
}

static long resident_kb(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

TEST(ten_thousand_idle_connections_cost_little_and_disturb_nobody)
{
    const uint64_t limit = descriptors_raise();
    struct fabric_conn *conn, *passive;
    int control[2], report[2], status;
    struct pollfd wait;
    long before_kb, kb;
    uint64_t calls = 0;
    pid_t child;

    if (limit < THOUSANDS + 100) {
        print_message("# the limit on descriptors is %llu: SKIPPED, needs %u\n",
                      (unsigned long long)limit, THOUSANDS + 100);
        skip();
    }
    world_connect(&world, OTHER, OWNER, 0, &conn, &passive);
    assert_int_equal(pipe(control), 0);
    assert_int_equal(pipe(report), 0);
    before_kb = resident_kb();
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(control[1]);
        crowd_run(control[0], report[1]);
    }
    close(control[0]);
    close(report[1]);
    wait = (struct pollfd){.fd = report[0], .events = POLLIN};
    while (poll(&wait, 1, 0) == 0) {
        other_is_served(conn, passive);
        assert_int_equal(side_count(owner(), FABRIC_CLOSED), 0);
        if (owner()->event_count > SIDE_EVENTS - 1000)
            side_forget(owner());
        if (world.sides[OTHER].event_count > SIDE_EVENTS - 1000)
            side_forget(&world.sides[OTHER]);
    }
    assert_int_equal(owner_endpoint()->base.counts[LIST_ALL], THOUSANDS + 1);
    kb = resident_kb() - before_kb;
    print_message("# 10,000 idle connections take %ld KiB of this process\n", kb);
    if (!SANITIZED)
        assert_true(kb < THOUSANDS * 2); /* tables and all */
    for (unsigned kind = LIST_HANDSHAKE; kind < CONN_LISTS; kind++)
        calls += owner_endpoint()->base.counts[kind]; /* what a poll looks at */
    assert_int_equal(calls, 0);
    other_is_served(conn, passive);
    close(control[1]);
    side_forget(owner());
    side_forget(&world.sides[OTHER]);
    world_wait(&world, OWNER, FABRIC_CLOSED, THOUSANDS);
    side_forget(owner());
    other_is_served(conn, passive);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(report[0]);
}

int main(void)
{
    descriptors_raise();
    return unit_run(NULL, NULL);
}
