/* fabric_tap_test.c - a landing zone in a tapped PM: each block is noted once, under the number of who sent it, over shm
 * by the sender itself and over tcp by the receiver; and an shm peer that knows no tap connects all the same. */
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "common/base/error.h"
#include "common/fabric/shm/shm.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

enum {
    PM_BYTES = 16 << 20,
    OWNER = 0,
    FROM = 8 << 20 /* where blocks are made */,
    BLOCKS = 50,
    BYTES = 192
};

static int tapped_pm(void *context, uint64_t bytes, struct pm **out)
{
    const int error = host_pm(context, bytes, out);

    return error ? error : pm_tap_open(*out, out);
}

static void open_tapped(enum host_kind kind)
{
    host_init(&host, kind);
    host.backend.pm_make = tapped_pm;
    world_open(&world, &host.backend, 3, PM_BYTES);
    side_open_zone(&world, OWNER, 2, 1);
}

static void close_tapped(void)
{
    world_close(&world);
    host_fini(&host);
}

static void blocks_are_noted(enum host_kind kind)
{
    struct fabric_conn *conns[3], *passive;
    struct pm_record record;
    uint32_t found[3] = {0}, senders[3] = {0};
    bool seen[BLOCKS * 2 * BYTES / 64] = {false};

    open_tapped(kind);
    for (unsigned side = 1; side < 3; side++) {
        world_connect(&world, side, OWNER, 0, &conns[side], &passive);
        senders[side] = conn_tap_sender(&world.sides[side].endpoint->identity);
        for (uint32_t i = 0; i < BLOCKS; i++)
            assert_int_equal(world_add_block(&world, side, conns[side], FROM + i * BYTES, i, BYTES),
                             0);
        assert_int_equal(fabric_rowan_post(conns[side], 1), 0);
        world_wait(&world, side, FABRIC_LANDED, 1);
    }
    assert_true(senders[1] != senders[2]);
    while (pm_tap_read(world.sides[OWNER].pm, &record)) {
        assert_false(record.zero);
        for (uint32_t i = 0; i < record.count; i++) {
            assert_true(record.first + i < sizeof seen);
            assert_false(seen[record.first + i]);
            seen[record.first + i] = true;
        }
        found[1] += record.sender == senders[1] ? record.count : 0;
        found[2] += record.sender == senders[2] ? record.count : 0;
    }
    assert_int_equal(found[1], BLOCKS * BYTES / 64);
    assert_int_equal(found[2], BLOCKS * BYTES / 64);
    assert_int_equal(pm_tap_lost(world.sides[OWNER].pm), 0);
    close_tapped();
}

WORLD_CASE(over_shm_the_sender_notes_its_blocks, blocks_are_noted(OVER_SHM))
WORLD_CASE(over_tcp_the_receiver_notes_them_as_the_senders, blocks_are_noted(OVER_TCP))

/* How many descriptors a server that speaks these layouts is given. */
static unsigned welcome_of(uint32_t highest, struct shm_welcome *welcome)
{
    const struct shm_hello hello = {
        .magic = SHM_MAGIC,
        .layouts = {VERSION_SHM_LOWEST, highest},
        .ring_bytes = SHM_RING_BYTES,
        .slot = 1,
        .identity = {.kind = FABRIC_SERVER, .id = 9, .messages = {1, MESSAGE_LAYOUT}}};
    void *door, *channel;
    int fds[HELLO_FDS + SHM_MAX_FDS], socket, error;
    unsigned count;

    assert_int_equal(memory_create("door", sizeof(struct shm_doorbell), &fds[0], &door), 0);
    fds[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_int_equal(memory_create("channel", sizeof(struct shm_channel), &fds[2], &channel), 0);
    assert_int_equal(socket_connect(host.dir.path, "server-0", 0, &socket), 0);
    assert_int_equal(socket_send(socket, &hello, sizeof hello, fds, HELLO_FDS), 0);
    while ((error = socket_receive(socket, welcome, sizeof *welcome, fds + HELLO_FDS, &count)) ==
           ROWAN_EAGAIN) {
        host.skipped_ns += SHM_CHECK_NS;
        world_poll(&world);
    }
    assert_int_equal(error, 0);
    assert_int_equal(welcome->error, 0);
    for (unsigned i = 0; i < HELLO_FDS + count; i++)
        close(fds[i]);
    close(socket);
    munmap(door, sizeof(struct shm_doorbell));
    munmap(channel, sizeof(struct shm_channel));
    return count;
}

TEST(an_shm_peer_of_before_is_given_no_tap_and_connects)
{
    struct shm_welcome welcome;

    open_tapped(OVER_SHM);
    assert_int_equal(welcome_of(VERSION_SHM_TAP - 1, &welcome), WELCOME_ZONE_FDS);
    assert_int_equal(welcome.tap_bytes, 0);
    assert_int_equal(welcome_of(VERSION_SHM_HIGHEST, &welcome), WELCOME_TAP_FDS);
    assert_int_equal(welcome.tap_bytes, pm_tap_bytes());
    close_tapped();
}

UNIT_MAIN(NULL, NULL)
