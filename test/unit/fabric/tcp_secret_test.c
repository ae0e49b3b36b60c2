/* tcp_secret_test.c - who sends blocks has to have the cluster's secret, and so does who takes them; and whoever has it not
 * disturbs nobody. */
#define TEST_FIXTURE open_all, close_host

#include "common/auth/mac.h"
#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"
#include "test/lib/tcp_raw.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

enum { OWNER, PEER, SIDES, PM_BYTES = 16 << 20 };

static const uint8_t secret[FABRIC_SECRET_BYTES] = "sixteen bytes...",
                     other[FABRIC_SECRET_BYTES] = "another sixteen.";

static int open_all(void **state)
{
    (void)state;
    open_host(OVER_TCP, SIDES, PM_BYTES);
    side_open_zone(&world, OWNER, 2, 1);
    return 0;
}

static void has(unsigned side, const uint8_t *bytes, bool demands)
{
    fabric_endpoint_secret(world.sides[side].endpoint, bytes, demands);
}

static uint32_t count(unsigned side, enum fabric_event_kind kind)
{
    return side_count(&world.sides[side], kind);
}

/* The peer tries, in a role of its own, and is nobody. */
static void is_refused(void)
{
    const uint32_t connected = count(PEER, FABRIC_CONNECTED), closed = count(PEER, FABRIC_CLOSED);
    struct fabric_conn *conn;

    side_take_role(&world, PEER);
    assert_int_equal(fabric_connect(world.sides[PEER].endpoint,
                                    world.backend->address(world.backend->context, OWNER), 0, 9,
                                    &conn),
                     0);
    world_wait(&world, PEER, FABRIC_CLOSED, closed + 1);
    assert_int_equal(count(PEER, FABRIC_CONNECTED), connected);
}

TEST(two_who_have_the_secret_send_each_other_blocks)
{
    struct fabric_conn *active, *passive;

    has(OWNER, secret, true);
    has(PEER, secret, true);
    world_connect(&world, PEER, OWNER, 1, &active, &passive);
    assert_true(active->has_zone);
    assert_int_equal(world_add_block(&world, PEER, active, 0, 0, 64), 0);
    assert_int_equal(fabric_rowan_post(active, 1), 0);
    world_wait(&world, PEER, FABRIC_LANDED, 1);
}

TEST(who_has_none_or_another_one_is_refused)
{
    has(OWNER, secret, true);
    is_refused();
    has(PEER, other, false);
    is_refused();
    assert_int_equal(count(OWNER, FABRIC_ACCEPTED), 0);
}

TEST(who_takes_blocks_without_the_secret_is_nobody)
{
    has(PEER, secret, true);
    is_refused();
    has(OWNER, other, false);
    is_refused();
}

/* Older versions know of no secret. */
TEST(where_nobody_demands_it_nobody_needs_it)
{
    struct fabric_conn *active, *passive;

    world_connect(&world, PEER, OWNER, 1, &active, &passive);
    has(OWNER, secret, false);
    world_connect(&world, PEER, OWNER, 2, &active, &passive);
    has(PEER, other, false);
    world_connect(&world, PEER, OWNER, 3, &active, &passive);
}

/* --- a peer that says what it likes --- */

static struct tcp_greeting welcome;

static void wait_for(int fd, int what)
{
    int got;

    for (unsigned i = 0; (got = raw_receive(fd, &welcome, sizeof welcome)) == 0 && i < 100000; i++)
        world_poll(&world);
    assert_int_equal(got, what);
}

/* As the living peer, up to the token. The socket. */
static int begin_as_peer(struct tcp_greeting *hello, const struct fabric_identity *peer)
{
    const int fd = host_connect();

    *hello = raw_hello(peer->id, 0);
    hello->identity = *peer;
    assert_true(raw_send(fd, hello, sizeof *hello));
    wait_for(fd, 1);
    assert_int_equal(welcome.error, 0);
    assert_int_equal(welcome.zone, 1);
    hello->token = welcome.token;
    hello->kind = GREETING_BLOCKS;
    hello->nonce = 5;
    return fd;
}

static void sign(struct tcp_greeting *greeting)
{
    uint8_t mac[MAC_BYTES];

    memset(greeting->mac, 0, sizeof greeting->mac);
    assert_true(mac_make(secret, sizeof secret, greeting, sizeof *greeting, mac));
    memcpy(greeting->mac, mac, sizeof mac);
}

/* What the owner does with that hello: 1 a welcome, -1 an end. */
static void say_blocks(const struct tcp_greeting *hello, int what)
{
    const int fd = host_connect();

    assert_true(raw_send(fd, hello, sizeof *hello));
    wait_for(fd, what);
    close(fd);
}

TEST(who_only_says_who_he_is_ends_nobody_s_connection_and_a_proof_counts_once)
{
    struct fabric_conn *active, *passive;
    struct tcp_greeting hello, again;

    has(OWNER, secret, true);
    has(PEER, secret, true);
    world_connect(&world, PEER, OWNER, 1, &active, &passive);
    const struct fabric_identity peer = side_event(&world.sides[OWNER], FABRIC_ACCEPTED, 0)->peer;
    int fd = begin_as_peer(&hello, &peer);
    say_blocks(&hello, -1);
    close(fd);
    fd = begin_as_peer(&hello, &peer); /* of another role, signed */
    hello.identity.role++;
    sign(&hello);
    say_blocks(&hello, -1);
    close(fd);
    world_poll_times(&world, 50);
    assert_int_equal(count(OWNER, FABRIC_CLOSED), 0);
    assert_int_equal(count(OWNER, FABRIC_ACCEPTED), 1);

    fd = begin_as_peer(&hello, &peer); /* as whoever has the secret would */
    sign(&hello);
    again = hello;
    say_blocks(&hello, 1);
    assert_int_equal(welcome.nonce, 5);
    struct tcp_greeting signed_by_owner = welcome;
    sign(&welcome);
    assert_memory_equal(&welcome, &signed_by_owner, sizeof welcome);
    world_wait(&world, OWNER, FABRIC_CLOSED, 1); /* F11 */
    close(fd);

    fd = begin_as_peer(&hello, &peer); /* the proof that was overheard, with the new token */
    again.token = hello.token;
    say_blocks(&again, -1);
    close(fd);
}

UNIT_MAIN(NULL, NULL)
