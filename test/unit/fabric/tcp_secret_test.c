/* tcp_secret_test.c - who sends blocks has to have the cluster's secret, and so does who takes them; and whoever has it not
 * disturbs nobody. */
#define TEST_FIXTURE open_all, close_host

#include "common/auth/mac.h"
#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"
#include "test/lib/caught_log.h"
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
    fabric_endpoint_secret(world.sides[side].endpoint, bytes, NULL, demands);
}

/* From one secret to the other. */
static void changes(unsigned side)
{
    fabric_endpoint_secret(world.sides[side].endpoint, other, secret, true);
}

static uint32_t count(unsigned side, enum fabric_event_kind kind)
{
    return side_count(&world.sides[side], kind);
}

/* How many proofs of others it has refused. */
static uint64_t refused(unsigned side)
{
    return counter_get(&world.sides[side].endpoint->ended.unproved);
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

/* One after the other hears that the secret changes, and then that everybody knows. Where one is ahead by both, nobody is. */
TEST(while_the_secret_changes_nobody_is_refused_and_then_the_former_one_is)
{
    enum { FORMER, BOTH, LATTER } has_now[SIDES] = {FORMER, FORMER};
    struct fabric_conn *active, *passive;

    for (unsigned step = 0; step < 8; step++) {
        const unsigned first = step < 4 ? OWNER : PEER; /* who hears first */
        const unsigned side = step % 2 ? SIDES - 1 - first : first;
        has_now[side] = step % 4 < 2 ? BOTH : LATTER;
        has_now[SIDES - 1 - side] = step == 4 ? FORMER : has_now[SIDES - 1 - side];
        for (unsigned i = 0; i < SIDES; i++) {
            if (has_now[i] == BOTH)
                changes(i);
            else
                has(i, has_now[i] == FORMER ? secret : other, true);
        }
        if (first == OWNER && has_now[OWNER] == LATTER && has_now[PEER] == BOTH)
            is_refused(); /* and shows the other one the next time */
        world_connect(&world, PEER, OWNER, 1, &active, &passive);
        assert_false(active->unproved || passive->unproved);
    }
    has(PEER, secret, true);
    is_refused();
    is_refused();
    has(PEER, other, true);
    has(OWNER, secret, true);
    is_refused();
}

TEST(a_connection_that_lives_through_a_change_is_shown_the_new_secret_on_or_counts_no_longer)
{
    struct fabric_conn *active, *passive;
    uint8_t shown[MAC_BYTES], right[MAC_BYTES];

    has(OWNER, secret, true);
    has(PEER, secret, true);
    world_connect(&world, PEER, OWNER, 1, &active, &passive);
    assert_true(fabric_proof_again(active, right));
    changes(OWNER);
    assert_false(fabric_is_unproved(passive));
    has(OWNER, other, true);
    assert_true(fabric_is_unproved(passive));
    for (unsigned i = 0; i < 2; i++) {
        assert_true(fabric_proof_again(active, shown) && fabric_proof_again(passive, right));
        assert_int_equal(mac_equal(shown, right), i == 1);
        changes(PEER);
    }
    fabric_proved_again(passive);
    assert_false(fabric_is_unproved(passive));
    has(PEER, other, true);
    world_connect(&world, PEER, OWNER, 2, &active, &passive);
    assert_true(fabric_proof_again(active, right));
    assert_false(mac_equal(shown, right)); /* one is of no use on another connection */
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

/* As those do that know only layout 2. */
static void sign_of_old(struct tcp_greeting *greeting)
{
    uint8_t mac[MAC_BYTES];

    memset(greeting->mac, 0, sizeof greeting->mac);
    assert_true(mac_make(secret, sizeof secret, greeting, sizeof *greeting, mac));
    memcpy(greeting->mac, mac, sizeof mac);
}

/* The owner, as whoever dials it sees it. */
static struct fabric_acceptor owner_dialled(void)
{
    const struct sockaddr_in address = host_sockaddr(&host, OWNER, 0);
    struct fabric_acceptor acceptor = {.host = {[10] = 0xff, [11] = 0xff},
                                       .incarnation = welcome.identity.incarnation,
                                       .id = welcome.identity.id,
                                       .port = ntohs(address.sin_port),
                                       .kind = FABRIC_SERVER};

    memcpy(acceptor.host + 12, &address.sin_addr, 4);
    return acceptor;
}

static void sign_for(struct tcp_greeting *greeting, const struct fabric_acceptor *acceptor)
{
    struct tcp_proof proof = {*greeting, *acceptor};
    uint8_t key[MAC_BYTES], mac[MAC_BYTES];

    memset(proof.greeting.mac, 0, sizeof proof.greeting.mac);
    assert_true(mac_subkey(secret, sizeof secret, "tcp proof", key));
    assert_true(mac_make(key, sizeof key, &proof, sizeof proof, mac));
    memcpy(greeting->mac, mac, sizeof mac);
}

static void sign(struct tcp_greeting *greeting)
{
    const struct fabric_acceptor acceptor = owner_dialled();

    sign_for(greeting, &acceptor);
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
    const uint64_t so_far = refused(OWNER);
    say_blocks(&again, -1);
    assert_int_equal(refused(OWNER), so_far + 1);
    close(fd);
}

TEST(who_only_says_that_it_is_a_server_takes_no_place_in_the_landing_zone)
{
    enum { HELLOS = FABRIC_MAX_ZONE_SENDERS + 44 };
    static int fds[HELLOS];
    const struct fabric_identity peer = {
        .cluster = 7, .id = 9, .kind = FABRIC_SERVER, .messages = VERSION_RANGE(MESSAGES)};
    struct fabric_conn *active, *passive;
    struct tcp_greeting hello;

    has(OWNER, secret, true);
    has(PEER, secret, true);
    for (unsigned i = 0; i < HELLOS; i++)
        fds[i] = begin_as_peer(&hello, &peer);
    world_connect(&world, PEER, OWNER, 1, &active, &passive);
    assert_true(active->has_zone);
    for (unsigned i = 0; i < HELLOS; i++)
        close(fds[i]);
}

/* Both have the secret, and the peer has connected. */
static struct fabric_identity known_peer(void)
{
    struct fabric_conn *active, *passive;

    has(OWNER, secret, true);
    has(PEER, secret, true);
    world_connect(&world, PEER, OWNER, 1, &active, &passive);
    return side_event(&world.sides[OWNER], FABRIC_ACCEPTED, 0)->peer;
}

TEST(a_proof_for_another_address_or_another_run_of_the_server_is_refused)
{
    const struct fabric_identity peer = known_peer();
    struct tcp_greeting hello;

    for (unsigned i = 0; i < 5; i++) {
        const int fd = begin_as_peer(&hello, &peer);
        struct fabric_acceptor acceptor = owner_dialled();
        acceptor.host[15] ^= i == 0;
        acceptor.port ^= i == 1;
        acceptor.id ^= i == 2;
        acceptor.incarnation ^= i == 3;
        sign_for(&hello, &acceptor);
        say_blocks(&hello, i == 4 ? 1 : -1);
        close(fd);
    }
    assert_int_equal(refused(OWNER), 4);
}

/* Of the part before: let in as it always was. But who says, signed, that he knows more has to do more. */
TEST(the_older_proof_is_for_those_alone_who_know_no_other)
{
    const struct fabric_identity peer = known_peer();
    struct tcp_greeting hello;

    int fd = begin_as_peer(&hello, &peer);
    sign_of_old(&hello);
    say_blocks(&hello, -1);
    close(fd);
    fd = begin_as_peer(&hello, &peer);
    sign_of_old(&hello);
    hello.layouts = (struct greeting_layouts){2, 2}; /* as somebody in between would have it */
    say_blocks(&hello, -1);
    close(fd);
    fd = begin_as_peer(&hello, &peer);
    hello.layouts = (struct greeting_layouts){2, 2};
    sign_of_old(&hello);
    say_blocks(&hello, 1);
    struct tcp_greeting signed_by_owner = welcome;
    sign_of_old(&welcome);
    assert_memory_equal(&welcome, &signed_by_owner, sizeof welcome);
    close(fd);
}

/* --- somebody in between: he has an address that the peer dials, and the owner's --- */

enum relay_kind { PASS_ON, SAY_OLD, MIRROR };

static struct {
    enum relay_kind kind;
    int listen_fd;
    unsigned count;
    int ends[8][2]; /* of the peer, of the owner; -1: closed */
    struct fabric_identity owner;
} relay;

static void relay_open(enum relay_kind kind)
{
    struct sockaddr_in address = host_sockaddr(&host, 2, 0);

    relay.kind = kind;
    relay.count = 0;
    relay.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(setsockopt(relay.listen_fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)),
                     0);
    assert_int_equal(bind(relay.listen_fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(relay.listen_fd, 8), 0);
}

static void relay_end(unsigned pair)
{
    for (unsigned end = 0; end < 2; end++) {
        if (relay.ends[pair][end] >= 0)
            close(relay.ends[pair][end]);
        relay.ends[pair][end] = -1;
    }
}

/* One greeting that came from `end`. */
static void relay_greeting(unsigned pair, unsigned end, struct tcp_greeting *greeting)
{
    unsigned to = !end;

    if (greeting->kind == GREETING_WELCOME)
        relay.owner = greeting->identity;
    if (relay.kind == SAY_OLD)
        greeting->layouts = (struct greeting_layouts){2, 2};
    if (relay.kind == MIRROR && greeting->kind == GREETING_BLOCKS) {
        greeting->kind = GREETING_WELCOME;
        greeting->identity = relay.owner;
        to = end;
    }
    if (!raw_send(relay.ends[pair][to], greeting, sizeof *greeting))
        relay_end(pair);
}

static void relay_step(void)
{
    const int fd = accept(relay.listen_fd, NULL, NULL);
    struct tcp_greeting greeting;

    if (fd >= 0) {
        relay.ends[relay.count][0] = fd;
        relay.ends[relay.count++][1] = host_connect();
    }
    for (unsigned pair = 0; pair < relay.count; pair++) {
        for (unsigned end = 0; end < 2 && relay.ends[pair][end] >= 0; end++) {
            const int got = raw_receive(relay.ends[pair][end], &greeting, sizeof greeting);
            if (got > 0)
                relay_greeting(pair, end, &greeting);
            else if (got < 0)
                relay_end(pair);
        }
    }
}

TEST(nobody_in_between_passes_a_proof_on_weakens_it_or_sends_it_back)
{
    struct fabric_conn *conn;
    char address[64];

    has(OWNER, secret, true);
    has(PEER, secret, true);
    for (enum relay_kind kind = PASS_ON; kind <= MIRROR; kind++) {
        relay_open(kind);
        log_catch();
        snprintf(address, sizeof address, "tcp:%s:%u", host.ip, host_port(&host, 2));
        assert_int_equal(fabric_connect(world.sides[PEER].endpoint, address, 0, 9, &conn), 0);
        for (unsigned i = 0; count(PEER, FABRIC_CLOSED) <= (unsigned)kind && i < 1000000; i++) {
            world_poll(&world);
            relay_step();
        }
        assert_int_equal(count(PEER, FABRIC_CLOSED), kind + 1);
        assert_non_null(strstr(log_caught(), " peer_refused "));
        assert_int_equal(refused(kind == MIRROR ? PEER : OWNER), kind == MIRROR ? 1 : kind + 1);
        assert_int_equal(count(PEER, FABRIC_CONNECTED), 0);
        assert_int_equal(count(OWNER, FABRIC_ACCEPTED), 0);
        for (unsigned pair = 0; pair < relay.count; pair++)
            relay_end(pair);
        close(relay.listen_fd);
    }
}

UNIT_MAIN(NULL, NULL)
