/* fabric_conformance.c - the rules of fabric.h, one case or more for each. A case's name begins
 * with its rule. Those of the landing zone (F6 to F9, F11, F12) are in fabric_conformance_zone.c. */
#define TEST_FIXTURE open_three, close_three

#include "test/lib/fabric_conformance.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "test/lib/unit.h"

enum { PM_BYTES = CONFORMANCE_PM_BYTES };

#define FILL_NS (20 * NS_PER_S)

static const struct fabric_backend *backend;
struct world world;

int open_three(void **state)
{
    backend = *state;
    world_open(&world, backend, 3, PM_BYTES);
    return 0;
}

int close_three(void **state)
{
    (void)state;
    world_close(&world);
    return 0;
}

static void send_bytes(struct fabric_conn *conn, const void *data, uint32_t bytes)
{
    const struct fabric_iov iov = {.data = data, .bytes = bytes};
    int error;

    while ((error = fabric_send(conn, &iov, 1)) == ROWAN_EAGAIN)
        world_poll(&world);
    assert_int_equal(error, 0);
}

/* --- connections --- */

TEST(both_ends_learn_who_the_other_is)
{
    struct fabric_conn *active, *passive;
    const struct fabric_event *event;

    world_connect(&world, 1, 0, 42, &active, &passive);
    event = side_event(&world.sides[1], FABRIC_CONNECTED, 0);
    assert_int_equal(event->context, 42);
    assert_int_equal(event->peer.incarnation, 100);
    event = side_event(&world.sides[0], FABRIC_ACCEPTED, 0);
    assert_int_equal(event->peer.cluster, 7);
    assert_int_equal(event->peer.term, 3);
    assert_int_equal(event->peer.incarnation, 101);
    assert_int_equal(event->peer.id, 1);
    assert_int_equal(event->peer.kind, FABRIC_SERVER);
    assert_false(active->has_zone);
    assert_null(active->user);
}

static int refusal;

static int admit_nobody(void *context, const struct fabric_identity *peer)
{
    assert_ptr_equal(context, &world);
    assert_int_equal(peer->id, 1);
    return refusal;
}

static void check_refusal(int error)
{
    struct fabric_conn *conn;
    const struct fabric_event *event;

    refusal = error;
    fabric_endpoint_admit(world.sides[0].endpoint, admit_nobody, &world);
    assert_int_equal(
        fabric_connect(world.sides[1].endpoint, backend->address(backend->context, 0), 0, 9, &conn),
        0);
    world_wait(&world, 1, FABRIC_CLOSED, 1);
    event = side_event(&world.sides[1], FABRIC_CLOSED, 0);
    assert_int_equal(event->error, error);
    assert_int_equal(event->context, 9);
    assert_ptr_equal(event->conn, conn);
    assert_int_equal(world.sides[0].event_count, 0);
    assert_int_equal(world.sides[1].event_count, 1);
}

TEST(a_refused_peer_learns_why)
{
    check_refusal(ROWAN_EREFUSED);
}

/* The code by which the inside of a backend may say that nothing has come yet. */
TEST(a_peer_refused_for_now_learns_it_too)
{
    check_refusal(ROWAN_EAGAIN);
}

TEST(the_highest_layout_of_messages_that_both_speak_is_the_connection_s)
{
    static const struct {
        struct version_range theirs, ours;
        uint16_t layout;
    } cases[] = {
        {{1, 3}, {1, 1}, 1}, {{1, 3}, {2, 5}, 3}, {{2, 9}, {4, 4}, 4}, {{1, 2}, {3, 3}, 0}};
    struct fabric_endpoint *acceptor = world.sides[0].endpoint,
                           *connector = world.sides[1].endpoint;
    struct fabric_identity accepting = acceptor->identity, connecting = connector->identity;
    unsigned open = 0;

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fabric_conn *active, *passive;

        accepting.messages = cases[i].theirs;
        connecting.messages = cases[i].ours;
        fabric_endpoint_identity(acceptor, &accepting);
        fabric_endpoint_identity(connector, &connecting);
        if (cases[i].layout) {
            world_connect(&world, 1, 0, ++open, &active, &passive);
            assert_int_equal(active->layout, cases[i].layout);
            assert_int_equal(passive->layout, cases[i].layout);
            fabric_conn_close(active);
            fabric_conn_close(passive);
            continue;
        }
        assert_int_equal(
            fabric_connect(connector, backend->address(backend->context, 0), 0, 9, &active), 0);
        world_wait(&world, 1, FABRIC_CLOSED, 1);
        assert_int_equal(side_event(&world.sides[1], FABRIC_CLOSED, 0)->error, ROWAN_EINCOMPATIBLE);
        assert_int_equal(side_count(&world.sides[0], FABRIC_ACCEPTED), open);
    }
}

TEST(connecting_to_nobody_ends_in_closed)
{
    struct fabric_conn *conn;

    assert_int_equal(
        fabric_connect(world.sides[1].endpoint, backend->address(backend->context, 0), 5, 3, &conn),
        0);
    world_wait(&world, 1, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(&world.sides[1], FABRIC_CLOSED, 0)->error, ROWAN_EUNREACHABLE);
    assert_int_equal(side_event(&world.sides[1], FABRIC_CLOSED, 0)->context, 3);
}

TEST(nothing_comes_after_fabric_conn_close)
{
    struct fabric_conn *active, *passive;

    world_connect(&world, 1, 0, 0, &active, &passive);
    send_bytes(passive, "abc", 3);
    fabric_flush(world.sides[0].endpoint);
    fabric_conn_close(active);
    world_wait(&world, 0, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(&world.sides[0], FABRIC_CLOSED, 0)->error, ROWAN_ECLOSED);
    assert_int_equal(world.sides[1].event_count, 1); /* CONNECTED */
}

/* What a role may do that closes a connection while it works off a batch of events. */
TEST(a_closed_connection_may_be_looked_at_until_the_next_poll)
{
    struct fabric_conn *active, *passive;
    struct fabric_event batch[4];
    unsigned count = 0;

    world_connect(&world, 1, 0, 0, &active, &passive);
    send_bytes(active, "abc", 3);
    send_bytes(active, "abc", 3);
    fabric_flush(world.sides[1].endpoint);
    for (unsigned i = 0; count == 0 && i < 1000000; i++) {
        count = fabric_poll(world.sides[0].endpoint, world.backend->now_ns(world.backend->context),
                            batch, 4);
        side_poll(&world, 1);
    }
    assert_true(count > 0);
    fabric_conn_close(passive);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(batch[i].kind, FABRIC_MESSAGE);
        assert_ptr_equal(batch[i].conn, passive);
        assert_ptr_equal(batch[i].conn->endpoint, world.sides[0].endpoint);
        assert_memory_equal(batch[i].data, "abc", 3);
    }
    side_poll(&world, 0);
}

/* --- F1, F2 --- */

TEST(f1_messages_arrive_in_the_order_they_were_sent)
{
    static const uint32_t sizes[] = {8,     100,    4096, 65536,
                                     65537, 300000, 16,   FABRIC_MAX_MESSAGE_BYTES};
    enum { COUNT = 200 };
    struct fabric_conn *active, *passive;
    uint8_t *data = malloc(FABRIC_MAX_MESSAGE_BYTES);
    uint32_t got = 0;

    world_connect(&world, 1, 0, 0, &active, &passive);
    for (uint32_t sent = 0; got < COUNT;) {
        const uint32_t bytes = sizes[sent % 8];
        const struct fabric_iov iov = {.data = data, .bytes = bytes};
        uint32_t seen = side_count(&world.sides[0], FABRIC_MESSAGE);

        if (sent < COUNT) {
            pattern_fill(data, bytes, sent);
            if (fabric_send(active, &iov, 1) == 0) {
                memset(data, 0xee, bytes); /* F4: the call has taken the bytes */
                sent++;
            }
        }
        for (; got < seen; got++) {
            const struct fabric_event *event = side_event(&world.sides[0], FABRIC_MESSAGE, got);

            assert_int_equal(event->bytes, sizes[got % 8]);
            assert_int_equal((uintptr_t)event->data % 8, 0);
            assert_true(pattern_is(event->data, event->bytes, got));
            fabric_message_release(passive, event->message);
        }
        world_poll(&world);
    }
    free(data);
}

TEST(f1_f2_f6_blocks_of_many_senders_land_one_after_another)
{
    enum { BATCHES = 60, PER_BATCH = 40 };
    struct fabric_conn *conns[3], *passive;
    uint32_t next[SIDE_MAX] = {0}, numbers[3] = {0};
    const uint32_t limit = world.sides[0].caps.block_limit / 64;
    struct random random;

    random_init(&random, 1);
    side_open_zone(&world, 0, 4, 4);
    for (unsigned s = 1; s < 3; s++) {
        world_connect(&world, s, 0, s, &conns[s], &passive);
        assert_true(conns[s]->has_zone);
    }
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        for (unsigned s = 1; s < 3; s++) {
            uint64_t at = (uint64_t)batch * (512 << 10);

            for (uint32_t i = 0; i < PER_BATCH; i++) {
                const uint32_t bytes =
                    64 * (1 + (uint32_t)random_below(&random, limit < 30 ? limit : 30));

                while (fabric_rowan_room(conns[s]) == 0)
                    world_poll(&world);
                assert_int_equal(world_add_block(&world, s, conns[s], at, numbers[s]++, bytes), 0);
                at += bytes;
            }
            assert_int_equal(fabric_rowan_post(conns[s], 1000 + batch), 0);
        }
        world_poll(&world);
    }
    for (unsigned s = 1; s < 3; s++) {
        world_wait(&world, s, FABRIC_LANDED, BATCHES);
        for (uint32_t batch = 0; batch < BATCHES; batch++)
            assert_int_equal(side_event(&world.sides[s], FABRIC_LANDED, batch)->context,
                             1000 + batch);
    }
    assert_int_equal(world_walk_zone(&world, 0, 4, next), 2 * BATCHES * PER_BATCH);
    assert_int_equal(next[1], BATCHES * PER_BATCH);
    assert_int_equal(next[2], BATCHES * PER_BATCH);
}

TEST(f2_what_landed_is_there_and_was_not_before)
{
    struct fabric_conn *conn, *passive;
    uint32_t next[SIDE_MAX] = {0};

    side_open_zone(&world, 0, 2, 2);
    world_connect(&world, 1, 0, 0, &conn, &passive);
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(world_add_block(&world, 1, conn, 0, i, 128), 0);
        world_poll_times(&world, 2); /* a batch that is not posted does not land */
        assert_int_equal(side_count(&world.sides[1], FABRIC_LANDED), i);
        assert_int_equal(fabric_rowan_post(conn, i), 0);
        world_wait(&world, 1, FABRIC_LANDED, i + 1);
        memset(next, 0, sizeof next);
        assert_int_equal(world_walk_zone(&world, 0, 1, next), i + 1);
    }
    assert_int_equal(fabric_rowan_post(conn, 7), 0); /* empty: no event */
    world_poll_times(&world, 50);
    assert_int_equal(side_count(&world.sides[1], FABRIC_LANDED), 200);
}

/* --- F3 --- */

TEST(f3_closed_is_the_last_event_and_what_waited_never_lands)
{
    struct fabric_conn *conn, *passive;
    const struct fabric_iov iov = {.data = "x", .bytes = 1};
    uint32_t count;

    side_open_zone(&world, 0, 2, 0);
    world_connect(&world, 1, 0, 11, &conn, &passive);
    assert_int_equal(world_add_block(&world, 1, conn, 0, 0, 64), 0);
    assert_int_equal(fabric_rowan_post(conn, 5), 0);
    world_poll_times(&world, 10);
    fabric_conn_close(passive);
    while (side_count(&world.sides[1], FABRIC_CLOSED) == 0) {
        side_poll(&world, 0);
        world.sides[1].event_count +=
            fabric_poll(world.sides[1].endpoint, backend->now_ns(backend->context),
                        world.sides[1].events + world.sides[1].event_count, 1);
    }
    /* Until the next poll the connection is there, and refuses. */
    assert_int_equal(fabric_send(conn, &iov, 1), ROWAN_ECLOSED);
    assert_int_equal(fabric_rowan_add(conn, pm_at(world.sides[1].pm, 0), 64), ROWAN_ECLOSED);
    assert_int_equal(fabric_rowan_post(conn, 6), ROWAN_ECLOSED);
    count = world.sides[1].event_count;
    assert_int_equal(world.sides[1].events[count - 1].kind, FABRIC_CLOSED);
    assert_int_equal(world.sides[1].events[count - 1].context, 11);
    assert_int_equal(fabric_zone_post(world.sides[0].zone, 0, 0), 0);
    world_poll_times(&world, 100);
    assert_int_equal(world.sides[1].event_count, count);
    assert_int_equal(side_count(&world.sides[1], FABRIC_LANDED), 0);
}

/* --- F4 --- */

TEST(f4_messages_are_copied_when_they_are_sent)
{
    enum { COUNT = 40, PIECE = 30000, MOST = 34 }; /* to 1 MiB: far beyond any ring */
    static uint8_t bytes[MOST * PIECE];
    struct fabric_conn *active, *passive;

    world_connect(&world, 1, 0, 0, &active, &passive);
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t pieces = 1 + i % MOST;
        const struct fabric_event *event;
        struct fabric_iov iov[MOST];
        int error;

        pattern_fill(bytes, pieces * PIECE, i);
        for (uint32_t p = 0; p < pieces; p++)
            iov[p] = (struct fabric_iov){.data = bytes + p * PIECE, .bytes = PIECE};
        while ((error = fabric_send(active, iov, pieces)) == ROWAN_EAGAIN)
            world_poll(&world); /* the last one has come, and may not be acknowledged yet */
        assert_int_equal(error, 0);
        memset(bytes, 0xdd, sizeof bytes);
        world_wait(&world, 0, FABRIC_MESSAGE, i + 1);
        event = side_event(&world.sides[0], FABRIC_MESSAGE, i);
        assert_int_equal(event->bytes, pieces * PIECE);
        assert_true(pattern_is(event->data, event->bytes, i));
        fabric_message_release(passive, event->message);
    }
}

TEST(f4_short_pieces_of_every_length_go_one_behind_the_other)
{
    enum { BYTES = 160 };
    struct fabric_conn *active, *passive;
    uint8_t bytes[BYTES];

    world_connect(&world, 1, 0, 0, &active, &passive);
    for (uint32_t cut = 0; cut <= BYTES; cut++) {
        const struct fabric_iov iov[2] = {{.data = bytes, .bytes = cut},
                                          {.data = bytes + cut, .bytes = BYTES - cut}};

        pattern_fill(bytes, BYTES, cut);
        for (unsigned pieces = 1; pieces <= 2; pieces++) { /* both before a flush */
            while (fabric_send(active, iov, pieces) == ROWAN_EAGAIN)
                world_poll(&world);
        }
        world_wait(&world, 0, FABRIC_MESSAGE, 2 * cut + 2);
        for (uint32_t i = 0; i < 2; i++) {
            const struct fabric_event *event =
                side_event(&world.sides[0], FABRIC_MESSAGE, 2 * cut + i);

            assert_int_equal(event->bytes, i == 0 ? cut : BYTES);
            assert_true(pattern_is(event->data, event->bytes, cut));
            fabric_message_release(passive, event->message);
        }
    }
}

TEST(f4_unregistered_memory_and_bad_sizes_are_refused)
{
    struct fabric_conn *conn, *passive;
    struct pm *pm = world.sides[1].pm;
    _Alignas(64) static uint8_t strange[64];
    const struct fabric_iov large = {.data = pm_at(pm, 0), .bytes = FABRIC_MAX_MESSAGE_BYTES + 1};
    const uint32_t limit = fabric_caps(world.sides[1].fabric)->block_limit;

    side_open_zone(&world, 0, 2, 1);
    world_connect(&world, 1, 0, 0, &conn, &passive);
    assert_int_equal(fabric_rowan_add(conn, strange, 64), ROWAN_EINVALID);
    assert_int_equal(fabric_rowan_add(conn, pm_at(pm, PM_BYTES - 64), 128), ROWAN_EINVALID);
    assert_int_equal(fabric_rowan_add(conn, pm_at(pm, 0), 0), ROWAN_EINVALID);
    assert_int_equal(fabric_rowan_add(conn, pm_at(pm, 0), 65), ROWAN_EINVALID);
    assert_int_equal(fabric_rowan_add(conn, pm_at(pm, 0), limit + 64), ROWAN_EINVALID);
    assert_int_equal(fabric_rowan_add(passive, pm_at(world.sides[0].pm, 0), 64), ROWAN_EINVALID);
    assert_int_equal(fabric_send(conn, &large, 1), ROWAN_EINVALID);
    pm_store(pm, 0, &(const uint64_t){1 << 8}, 8); /* what verbs takes for a block */
    assert_int_equal(fabric_rowan_add(conn, pm_at(pm, 0), limit), 0);
}

/* --- F5, F9: messages --- */

/* How many small messages a busy machine's sockets may hold, and more. */
enum { FILL_MOST = 100000 };

/* Sends messages of `bytes`, numbered, until there is no room, at least `least`: what is on its way may still make room, and one that the
 * network loses takes a while. */
static uint32_t fill_with_messages(struct fabric_conn *conn, uint32_t bytes, uint32_t first,
                                   uint32_t least)
{
    uint8_t *data = malloc(bytes);
    const struct fabric_iov iov = {.data = data, .bytes = bytes};
    uint32_t sent = 0, refused = 0;
    const uint64_t end_ns = backend->now_ns(backend->context) + FILL_NS;

    while (refused < 100 || sent < least) {
        int error;

        pattern_fill(data, bytes, first + sent);
        error = fabric_send(conn, &iov, 1);
        assert_true(error == 0 || error == ROWAN_EAGAIN);
        sent += error == 0;
        refused = error ? refused + 1 : 0;
        assert_true(backend->now_ns(backend->context) < end_ns);
        world_poll(&world);
        assert_true(sent < FILL_MOST);
    }
    free(data);
    return sent;
}

static void f5_held_messages_stop_the_sender_and_keep_their_bytes(uint32_t bytes)
{
    struct fabric_conn *active, *passive;
    struct random random;
    static uint32_t order[FILL_MOST];
    uint32_t sent, again;

    random_init(&random, bytes);
    world_connect(&world, 1, 0, 0, &active, &passive);
    sent = fill_with_messages(active, bytes, 0, 2);
    world_wait(&world, 0, FABRIC_MESSAGE, 1);
    again = side_count(&world.sides[0], FABRIC_MESSAGE);
    assert_true(again <= sent);
    for (uint32_t i = 0; i < again; i++) {
        const uint32_t j = (uint32_t)random_below(&random, i + 1);

        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t i = 0; i < again; i++) { /* in any order */
        const struct fabric_event *event = side_event(&world.sides[0], FABRIC_MESSAGE, order[i]);

        assert_true(pattern_is(event->data, event->bytes, order[i]));
        fabric_message_release(passive, event->message);
    }
    /* Now there is room, and nothing of what had been refused has arrived. The sender may have taken more
     * than the receiver holds at a time. */
    for (uint32_t i = again; i < sent; i++) {
        const struct fabric_event *event;

        world_wait(&world, 0, FABRIC_MESSAGE, i + 1);
        event = side_event(&world.sides[0], FABRIC_MESSAGE, i);
        assert_true(pattern_is(event->data, event->bytes, i));
        fabric_message_release(passive, event->message);
    }
    assert_true(fill_with_messages(active, bytes, sent, 1) > 0);
}

TEST(f5_f9_held_small_messages_stop_the_sender)
{
    f5_held_messages_stop_the_sender_and_keep_their_bytes(100);
}

TEST(f5_f9_held_middle_messages_stop_the_sender)
{
    f5_held_messages_stop_the_sender_and_keep_their_bytes(20000);
}

TEST(f5_f9_held_large_messages_stop_the_sender)
{
    f5_held_messages_stop_the_sender_and_keep_their_bytes(700000);
}

TEST(messages_of_every_size_keep_their_bytes)
{
    struct fabric_conn *active, *passive;
    uint8_t *data = malloc(FABRIC_MAX_MESSAGE_BYTES);
    uint32_t sizes[128], count = 0;

    for (uint32_t bytes = 0; bytes < 18; bytes++)
        sizes[count++] = bytes;
    for (uint32_t power = 32; power <= FABRIC_MAX_MESSAGE_BYTES; power *= 2) {
        for (uint32_t bytes = power - 9; bytes <= power + 1; bytes += 5)
            sizes[count++] = bytes;
        sizes[count++] = power;
    }
    sizes[count++] = FABRIC_MAX_MESSAGE_BYTES - 1;
    sizes[count++] = FABRIC_MAX_MESSAGE_BYTES;
    world_connect(&world, 1, 0, 0, &active, &passive);
    for (uint32_t i = 0; i < 2 * count; i++) {
        const uint32_t bytes = sizes[i % count];
        const struct fabric_event *event;

        pattern_fill(data, bytes, i);
        send_bytes(active, data, bytes);
        world_wait(&world, 0, FABRIC_MESSAGE, i + 1);
        event = side_event(&world.sides[0], FABRIC_MESSAGE, i);
        assert_int_equal(event->bytes, bytes);
        assert_true(pattern_is(event->data, bytes, i));
        fabric_message_release(passive, event->message);
    }
    free(data);
}

TEST(what_an_endpoint_holds_goes_with_its_connection)
{
    struct fabric_conn *active, *passive;
    uint8_t data[1000] = {0};
    const struct fabric_iov iov = {.data = data, .bytes = sizeof data};
    struct fabric_event events[8];
    uint32_t sent = 0;

    world_connect(&world, 1, 0, 0, &active, &passive);
    world.sides[1].endpoint->holds = true;
    while (sent < 1000 && fabric_send(active, &iov, 1) == 0)
        sent++;
    assert_true(sent > 0);
    (void)fabric_poll(world.sides[1].endpoint, backend->now_ns(backend->context), events, 8);
    for (int i = 0; i < 100; i++)
        side_poll(&world, 0);
    fabric_conn_close(active);
    world_wait(&world, 0, FABRIC_CLOSED, 1);
    assert_int_equal(side_count(&world.sides[0], FABRIC_MESSAGE), 0);
}

int fabric_conformance_run(const char *group, const struct fabric_backend *under_test)
{
    const struct unit_case *lists[] = {unit_cases, conformance_zone_cases()};
    struct CMUnitTest all[64];
    size_t count = 0;

    for (int i = 0; i < 2; i++) {
        assert_true(count + unit_list(lists[i], NULL, NULL) <= 64);
        count += unit_list(lists[i], (void *)(uintptr_t)under_test, all + count);
    }
    return _cmocka_run_group_tests(group, all, count, NULL, NULL);
}
