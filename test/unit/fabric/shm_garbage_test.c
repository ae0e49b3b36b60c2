/* shm_garbage_test.c - peers that send nonsense: in the handshake, in the rings, in a zone's
 * control block. They lose their connection, and nobody else loses anything. */
#define TEST_FIXTURE open_all, close_host

#include <dirent.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/fabric/shm/shm.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

enum { PM_BYTES = 16 << 20, VICTIM = 0, PEER = 1, OTHER = 2 };

HOST_FIXTURE(open_all, OVER_SHM, 3, PM_BYTES)

static unsigned open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned count = 0;

    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void poll_for(uint64_t ns)
{
    for (uint64_t past = 0; past < ns; past += SHM_CHECK_NS) {
        host.skipped_ns += SHM_CHECK_NS;
        world_poll(&world);
    }
}

/* --- the passive side of the handshake --- */

struct offer {
    struct shm_hello hello;
    size_t bytes;
    int fds[SHM_MAX_FDS + 1];
    unsigned fd_count;
};

static int sealed_memory(uint64_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static struct offer good_offer(void)
{
    return (struct offer){
        .hello = {.magic = SHM_MAGIC,
                  .layouts = {VERSION_SHM_LOWEST, VERSION_SHM_HIGHEST},
                  .ring_bytes = SHM_RING_BYTES,
                  .slot = 3,
                  .identity = {.kind = FABRIC_SERVER, .messages = {1, 1}}},
        .bytes = sizeof(struct shm_hello),
        .fds = {sealed_memory(sizeof(struct shm_doorbell), F_SEAL_SHRINK),
                eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                sealed_memory(sizeof(struct shm_channel), F_SEAL_SHRINK | F_SEAL_GROW)},
        .fd_count = HELLO_FDS};
}

static void replace_fd(struct offer *offer, unsigned index, int fd)
{
    assert_true(fd >= 0);
    close(offer->fds[index]);
    offer->fds[index] = fd;
}

static void spoil(struct offer *offer, unsigned kind)
{
    int pipes[2];

    switch (kind) {
    case 0:
        offer->hello.magic ^= 1;
        break;
    case 1:
        offer->hello.layouts.lowest = offer->hello.layouts.highest = VERSION_SHM_HIGHEST + 1;
        break;
    case 2:
        offer->hello.ring_bytes *= 2;
        break;
    case 3:
        offer->hello.ring_bytes = 0;
        break;
    case 4:
        offer->hello.slot = SHM_MAX_CONNS;
        break;
    case 5:
        offer->hello.identity.kind = 0;
        break;
    case 6:
        offer->hello.identity.kind = 4;
        break;
    case 7:
        offer->bytes--;
        break;
    case 8:
        offer->bytes = 1;
        break;
    case 9: /* the last descriptor is missing */
        close(offer->fds[--offer->fd_count]);
        break;
    case 10:
        offer->fds[offer->fd_count++] = dup(0);
        break;
    case 11: /* a doorbell that can shrink */
        replace_fd(offer, 0, sealed_memory(sizeof(struct shm_doorbell), F_SEAL_GROW));
        break;
    case 12: /* too small */
        replace_fd(offer, 0, sealed_memory(sizeof(struct shm_doorbell) - 1, F_SEAL_SHRINK));
        break;
    case 13:
        replace_fd(offer, 2, sealed_memory(sizeof(struct shm_channel), F_SEAL_GROW));
        break;
    case 14:
        replace_fd(offer, 2, sealed_memory(sizeof(struct shm_channel) / 2, F_SEAL_SHRINK));
        break;
    case 15: /* a write to it would block */
        offer->hello.layouts.highest = VERSION_SHM_RING - 1;
        replace_fd(offer, 1, eventfd(0, EFD_CLOEXEC));
        break;
    case 16:
        offer->hello.layouts.highest = VERSION_SHM_RING - 1;
        assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
        replace_fd(offer, 1, pipes[1]);
        close(pipes[0]);
        break;
    case 17:
        replace_fd(offer, 0, dup(0));
        break;
    default:
        replace_fd(offer, 2, dup(offer->fds[1]));
        break;
    }
}

enum { SPOILS = 19 };

static int dial(void)
{
    int fd;

    assert_int_equal(socket_connect(host.dir.path, "server-0", 0, &fd), 0);
    return fd;
}

static void make_offer(const struct offer *offer, int fd)
{
    assert_int_equal(socket_send(fd, &offer->hello, offer->bytes, offer->fds, offer->fd_count), 0);
    for (unsigned i = 0; i < offer->fd_count; i++)
        close(offer->fds[i]);
}

/* The victim has hung up; what it said before, if anything. */
static int read_answer(int fd, struct shm_welcome *welcome)
{
    int fds[SHM_MAX_FDS];
    unsigned count;
    int error = socket_receive(fd, welcome, sizeof *welcome, fds, &count);

    if (!error && welcome->error) {
        char byte;

        assert_int_equal(count, 0);
        assert_int_equal(recv(fd, &byte, 1, 0), 0);
    }
    return error;
}

TEST(a_spoilt_hello_is_refused)
{
    struct fabric_conn *active, *passive;
    unsigned before;

    side_open_zone(&world, VICTIM, 2, 1);
    poll_for(3 * SHM_CHECK_NS);
    before = open_fds();
    for (unsigned kind = 0; kind < SPOILS; kind++) {
        struct offer offer = good_offer();
        struct shm_welcome welcome;
        int fd = dial();

        spoil(&offer, kind);
        make_offer(&offer, fd);
        poll_for(3 * SHM_CHECK_NS);
        assert_int_equal(read_answer(fd, &welcome), 0);
        assert_int_equal(welcome.error, kind == 1 ? ROWAN_EINCOMPATIBLE : ROWAN_EFORMAT);
        close(fd);
        poll_for(3 * SHM_CHECK_NS);
        assert_int_equal(open_fds(), before);
    }
    assert_int_equal(world.sides[VICTIM].event_count, 0);
    world_connect(&world, PEER, VICTIM, 0, &active, &passive); /* nobody else lost anything */
}

TEST(an_unspoilt_hello_is_taken)
{
    struct offer offer = good_offer();
    struct shm_welcome welcome;
    int fd = dial();

    make_offer(&offer, fd);
    poll_for(3 * SHM_CHECK_NS);
    assert_int_equal(side_count(&world.sides[VICTIM], FABRIC_ACCEPTED), 1);
    assert_int_equal(read_answer(fd, &welcome), 0);
    assert_int_equal(welcome.error, 0);
    /* A ring may come after it, and nothing else. */
    assert_int_equal(send(fd, "x", 1, 0), 1);
    poll_for(3 * SHM_CHECK_NS);
    assert_int_equal(side_count(&world.sides[VICTIM], FABRIC_CLOSED), 0);
    assert_int_equal(send(fd, "xy", 2, 0), 2);
    poll_for(3 * SHM_CHECK_NS);
    assert_int_equal(side_event(&world.sides[VICTIM], FABRIC_CLOSED, 0)->error, ROWAN_EFORMAT);
    close(fd);
}

/* It fills what it is woken by, takes O_NONBLOCK from that, and goes to sleep again and again. */
TEST(who_does_not_take_its_rings_lets_nobody_wait)
{
    const uint64_t most = UINT64_MAX - 1;
    const struct fabric_iov iov = {.data = "wake up", .bytes = 7};

    for (uint16_t i = 0; i < 2; i++) {
        struct offer offer = good_offer();
        const int bell = dup(offer.fds[1]), fd = dial();
        struct shm_welcome welcome;
        struct shm_doorbell *door;
        void *memory;
        char ring;

        offer.hello.layouts.highest = (uint16_t)(VERSION_SHM_RING - i);
        assert_int_equal(memory_map(offer.fds[0], sizeof *door, &memory), 0);
        door = memory;
        make_offer(&offer, fd);
        poll_for(3 * SHM_CHECK_NS);
        assert_int_equal(read_answer(fd, &welcome), 0);
        assert_int_equal(write(bell, &most, sizeof most), sizeof most);
        assert_int_equal(fcntl(bell, F_SETFL, 0), 0);
        for (uint32_t sleep = 1; sleep <= 1000; sleep++) {
            atomic_store(&door->sleeping, sleep);
            assert_int_equal(
                fabric_send(side_event(&world.sides[VICTIM], FABRIC_ACCEPTED, i)->conn, &iov, 1),
                0);
            side_poll(&world, VICTIM);
            assert_int_equal(atomic_load(&door->sleeping), 0);
        }
        assert_int_equal(recv(fd, &ring, 1, 0), i == 0 ? 1 : -1);
        assert_int_equal(side_count(&world.sides[VICTIM], FABRIC_CLOSED), i);
        munmap(memory, sizeof *door);
        close(bell);
        close(fd);
        world_wait(&world, VICTIM, FABRIC_CLOSED, i + 1);
    }
}

TEST(who_says_nothing_is_given_up)
{
    int silent = dial(), gone = dial();
    char byte;

    close(gone);
    poll_for(SHM_HANDSHAKE_NS / 2);
    assert_int_equal(recv(silent, &byte, 1, 0), -1);
    poll_for(SHM_HANDSHAKE_NS);
    assert_int_equal(recv(silent, &byte, 1, 0), 0);
    assert_int_equal(world.sides[VICTIM].event_count, 0);
    close(silent);
}

/* --- the active side of the handshake --- */

TEST(a_spoilt_welcome_closes_the_connection)
{
    const int listener = host_listen("evil");
    char address[512];

    snprintf(address, sizeof address, "shm:%s/evil", host.dir.path);
    for (unsigned kind = 0; kind < 6; kind++) {
        struct shm_welcome welcome = {.magic = SHM_MAGIC,
                                      .layouts = {VERSION_SHM_LOWEST, VERSION_SHM_HIGHEST},
                                      .identity = {.kind = FABRIC_SERVER, .messages = {1, 1}}};
        struct offer offer = good_offer();
        struct fabric_conn *conn;
        int fd, expected = ROWAN_EFORMAT;

        assert_int_equal(fabric_connect(world.sides[PEER].endpoint, address, 0, kind, &conn), 0);
        fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        assert_true(fd >= 0);
        welcome.has_zone = kind >= 3;
        welcome.zone_depth = 4;
        welcome.pm_bytes = 4096;
        if (kind == 0)
            welcome.magic++;
        if (kind == 1)
            welcome.error = 5;
        if (kind == 2)
            welcome.slot = UINT32_MAX;
        if (kind == 3)
            welcome.zone_depth = 1 << 30;
        if (kind == 4) /* the control block has another size */
            welcome.zone_sender = 0;
        if (kind == 5)
            expected = ROWAN_EUNREACHABLE; /* no answer at all */
        offer.fds[offer.fd_count++] = dup(0);
        if (expected == ROWAN_EFORMAT)
            assert_int_equal(socket_send(fd, &welcome, sizeof welcome, offer.fds,
                                         kind >= 3 ? WELCOME_ZONE_FDS : WELCOME_FDS),
                             0);
        for (unsigned i = 0; i < offer.fd_count; i++)
            close(offer.fds[i]);
        poll_for(expected == ROWAN_EFORMAT ? 3 * SHM_CHECK_NS : SHM_HANDSHAKE_NS * 2);
        assert_int_equal(side_count(&world.sides[PEER], FABRIC_CLOSED), kind + 1);
        assert_int_equal(side_event(&world.sides[PEER], FABRIC_CLOSED, kind)->error, expected);
        assert_int_equal(side_event(&world.sides[PEER], FABRIC_CLOSED, kind)->context, kind);
        close(fd);
    }
    close(listener);
}

/* --- rings --- */

static uint64_t record(uint32_t bytes, uint32_t kind)
{
    return (uint64_t)kind << 32 | bytes;
}

/* The victim's inbound ring as its peer could write it. */
static void spoil_ring(struct shm_ring *ring, uint64_t *data, unsigned kind)
{
    static const struct {
        uint64_t tail, first, second;
    } spoils[] = {
        {.tail = SHM_RING_BYTES + 8},
        {.tail = 12},
        {.tail = UINT64_MAX - 7},
        {.tail = 16, .first = 0},
        {.tail = 16, .first = (uint64_t)99 << 32},
        {.tail = 16, .first = (uint64_t)RECORD_WHOLE << 32 | 16},
        {.tail = 16, .first = (uint64_t)RECORD_WHOLE << 32 | UINT32_MAX},
        {.tail = SHM_RING_BYTES, .first = (uint64_t)RECORD_WHOLE << 32 | (SHM_SMALL_BYTES + 8)},
        {.tail = 16, .first = (uint64_t)RECORD_MORE << 32 | 8},
        {.tail = 16, .first = (uint64_t)RECORD_FIRST << 32 | 4},
        {.tail = 16, .first = (uint64_t)RECORD_FIRST << 32 | 8, .second = 0},
        {.tail = 16, .first = (uint64_t)RECORD_FIRST << 32 | 8, .second = UINT64_MAX},
        {.tail = 32, .first = (uint64_t)RECORD_FIRST << 32 | 24, .second = 8},
        {.tail = 16, .first = (uint64_t)RECORD_PAD << 32 | SHM_RING_BYTES},
    };

    data[0] = spoils[kind].first;
    data[1] = spoils[kind].second;
    atomic_store(&ring->tail, spoils[kind].tail);
}

enum { RING_SPOILS = 14 };

TEST(a_spoilt_ring_closes_the_connection)
{
    struct fabric_conn *other, *other_passive;
    const struct fabric_iov iov = {.data = "still here", .bytes = 10};

    world_connect(&world, OTHER, VICTIM, 0, &other, &other_passive);
    for (unsigned kind = 0; kind < RING_SPOILS; kind++) {
        struct fabric_conn *active, *passive;
        struct shm_conn *conn;

        world_connect(&world, PEER, VICTIM, 0, &active, &passive);
        conn = (struct shm_conn *)active;
        spoil_ring(conn->out.ring, (uint64_t *)(void *)conn->out.data, kind);
        conn_ring(conn);
        world_wait(&world, VICTIM, FABRIC_CLOSED, kind + 1);
        assert_int_equal(side_event(&world.sides[VICTIM], FABRIC_CLOSED, kind)->error,
                         ROWAN_EFORMAT);
        world_wait(&world, PEER, FABRIC_CLOSED, kind + 1);
    }
    assert_int_equal(fabric_send(other, &iov, 1), 0);
    world_wait(&world, VICTIM, FABRIC_MESSAGE, 1);
}

TEST(a_head_that_cannot_be_closes_the_connection)
{
    static const uint64_t heads[] = {UINT64_MAX - 7, 12, SHM_RING_BYTES, 1 << 20};
    static uint8_t bytes[60000];
    const struct fabric_iov iov = {.data = bytes, .bytes = sizeof bytes};

    for (unsigned kind = 0; kind < 4; kind++) {
        struct fabric_conn *active, *passive;
        int error = 0;

        world_connect(&world, PEER, VICTIM, 0, &active, &passive);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(fabric_send(active, &iov, 1), 0);
        atomic_store(&((struct shm_conn *)passive)->in.ring->head, heads[kind]);
        for (unsigned i = 0; i < 3 && !error; i++)
            error = fabric_send(active, &iov, 1);
        assert_int_equal(error, ROWAN_ECLOSED);
        world_wait(&world, PEER, FABRIC_CLOSED, kind + 1);
        assert_int_equal(side_event(&world.sides[PEER], FABRIC_CLOSED, kind)->error, ROWAN_EFORMAT);
        world_wait(&world, VICTIM, FABRIC_CLOSED, kind + 1);
    }
}

/* Any bytes at all: the sanitizers watch, and the connection ends or its messages stay in bounds.
 */
TEST(random_rings_harm_nobody)
{
    const char *text = getenv("SEED");
    const uint64_t seed = text ? strtoull(text, NULL, 0) : 1;
    struct random random;

    print_message("# SEED=%llu\n", (unsigned long long)seed);
    random_init(&random, seed);
    for (unsigned round = 0; round < 300; round++) {
        struct fabric_conn *active, *passive;
        struct shm_conn *conn;
        uint32_t seen = world.sides[VICTIM].event_count;
        uint64_t *data;

        world_connect(&world, PEER, VICTIM, 0, &active, &passive);
        conn = (struct shm_conn *)active;
        data = (uint64_t *)(void *)conn->out.data;
        for (uint32_t i = 0; i < SHM_RING_BYTES / 8; i++)
            data[i] =
                record((uint32_t)random_below(&random, UINT64_C(64) << random_below(&random, 12)),
                       (uint32_t)random_below(&random, 5));
        atomic_store(&conn->out.ring->tail, random_below(&random, SHM_RING_BYTES / 8) * 8);
        conn_ring(conn);
        for (unsigned i = 0; i < 20; i++) {
            side_poll(&world, VICTIM);
            for (; seen < world.sides[VICTIM].event_count; seen++) {
                const struct fabric_event *event = &world.sides[VICTIM].events[seen];
                uint64_t sum = 0;

                if (event->kind != FABRIC_MESSAGE)
                    continue;
                for (uint32_t at = 0; at < event->bytes; at++)
                    sum += ((const uint8_t *)event->data)[at];
                assert_true(sum < UINT64_MAX);
                fabric_message_release(event->conn, event->message);
            }
        }
        fabric_conn_close(active);
        world_wait(&world, VICTIM, FABRIC_CLOSED, round + 1);
        side_forget(&world.sides[PEER]);
    }
}

/* Peers that begin large messages and do not go on take all buffers; after a while they lose their
 * connections, because another one waits. */
TEST(half_sent_messages_hold_nobody_up_for_long)
{
    struct fabric_conn *active, *passive, *good;
    static uint8_t data[FABRIC_MAX_MESSAGE_BYTES];
    const struct fabric_iov iov = {.data = data, .bytes = sizeof data};

    world_connect(&world, OTHER, VICTIM, 0, &good, &passive);
    for (unsigned i = 0; i < SHM_BUFFERS; i++) {
        struct shm_conn *conn;
        uint64_t *words;

        world_connect(&world, PEER, VICTIM, i, &active, &passive);
        conn = (struct shm_conn *)active;
        words = (uint64_t *)(void *)conn->out.data;
        words[0] = record(16, RECORD_FIRST);
        words[1] = 1 << 20;
        atomic_store(&conn->out.ring->tail, 24);
        conn_ring(conn);
    }
    poll_for(2 * SHM_STALL_NS); /* nobody waits: they may take their time */
    assert_int_equal(side_count(&world.sides[VICTIM], FABRIC_CLOSED), 0);
    pattern_fill(data, sizeof data, 5);
    assert_int_equal(fabric_send(good, &iov, 1), 0);
    poll_for(3 * SHM_CHECK_NS);
    world_wait(&world, VICTIM, FABRIC_MESSAGE, 1);
    assert_true(
        pattern_is(side_event(&world.sides[VICTIM], FABRIC_MESSAGE, 0)->data, sizeof data, 5));
    assert_int_equal(side_event(&world.sides[VICTIM], FABRIC_CLOSED, 0)->error, ROWAN_ETIMEDOUT);
}

/* --- out of descriptors --- */

TEST(without_descriptors_accepting_pauses)
{
    struct fabric_conn *conn;
    struct event_source source;
    struct rlimit before, none;
    struct pollfd wait;
    int fd;

    poll_for(3 * SHM_CHECK_NS);
    fabric_endpoint_source(world.sides[VICTIM].endpoint, &source);
    wait = (struct pollfd){.fd = source.fd, .events = POLLIN};
    assert_int_equal(fabric_connect(world.sides[PEER].endpoint, host.backend.address(&host, VICTIM),
                                    0, 0, &conn),
                     0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    fd = dup(0);
    none = (struct rlimit){.rlim_cur = (rlim_t)fd, .rlim_max = before.rlim_max};
    close(fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(poll(&wait, 1, 0), 1); /* somebody waits */
    host.skipped_ns += SHM_CHECK_NS;
    side_poll(&world, VICTIM);
    assert_int_equal(poll(&wait, 1, 0), 0); /* a reactor may sleep all the same */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    poll_for(2 * ACCEPT_PAUSE_NS);
    assert_int_equal(side_count(&world.sides[PEER], FABRIC_CONNECTED), 1);
}

/* --- the zone's control block --- */

TEST(a_position_that_cannot_be_closes_the_sender)
{
    struct fabric_conn *active, *passive;
    struct zone_control *control;
    void *memory;
    const struct shm_zone *zone;

    side_open_zone(&world, VICTIM, 2, 2);
    world_connect(&world, PEER, VICTIM, 0, &active, &passive);
    zone = (struct shm_zone *)world.sides[VICTIM].zone;
    assert_int_equal(memory_map(zone->control_fd, zone_control_bytes(2), &memory), 0);
    control = memory;
    atomic_store(&control->position, position_pack(0, 5, ZONE_STRIDES + 1));
    assert_int_equal(world_add_block(&world, PEER, active, 0, 0, 64), 0);
    assert_int_equal(fabric_rowan_post(active, 0), 0);
    world_wait(&world, PEER, FABRIC_CLOSED, 1);
    assert_int_equal(side_count(&world.sides[PEER], FABRIC_LANDED), 0);
    /* The owner: a segment closed with more claims than there can be is sealed in the end. */
    atomic_store(&control->slots[0].closed, closed_pack(0, 0xffff));
    poll_for(3 * SHM_VOID_NS);
    assert_int_equal(side_count(&world.sides[VICTIM], FABRIC_SEALED), 1);
    munmap(memory, zone_control_bytes(2));
}

TEST(a_zone_has_places_for_so_many_senders)
{
    struct fabric_conn *active, *passive;

    side_open_zone(&world, VICTIM, 2, 2);
    for (uint32_t i = 0; i < FABRIC_MAX_ZONE_SENDERS; i++)
        world_connect(&world, PEER, VICTIM, i, &active, &passive);
    assert_int_equal(fabric_connect(world.sides[OTHER].endpoint,
                                    host.backend.address(&host, VICTIM), 0, 1, &active),
                     0);
    world_wait(&world, OTHER, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(&world.sides[OTHER], FABRIC_CLOSED, 0)->error, ROWAN_ETOOMANY);
    fabric_conn_close(passive);
    world_wait(&world, PEER, FABRIC_CLOSED, 1);
    poll_for(3 * SHM_CHECK_NS);
    world_connect(&world, OTHER, VICTIM, 1, &active, &passive); /* a place is free again */
}

UNIT_MAIN(NULL, NULL)
