/* A login between two sides that are called in turn: who is let in, what is refused, and that nothing overheard is of use. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/address.h"
#include "common/base/error.h"
#include "common/cluster/login.h"
#include "test/lib/unit.h"

enum { MESSAGE_ROOM = 512 };

/* One direction of a connection: what was sent last. */
struct wire {
    struct fabric_conn conn;
    uint8_t bytes[MESSAGE_ROOM];
    size_t count;
    int error;
};

static int wire_send(struct fabric_conn *conn, const struct fabric_iov *iov, unsigned count)
{
    struct wire *wire = (struct wire *)conn;
    if (wire->error)
        return wire->error;
    wire->count = 0;
    for (unsigned i = 0; i < count; i++) {
        assert_true(wire->count + iov[i].bytes <= sizeof wire->bytes);
        memcpy(wire->bytes + wire->count, iov[i].data, iov[i].bytes);
        wire->count += iov[i].bytes;
    }
    return 0;
}

static const struct fabric_ops ops = {.send = wire_send};
static const uint8_t cover[SCRAM_SALT_BYTES] = {1, 2, 3};
static struct wire up, down;
static struct login *login;
static struct login_try trying;
static struct login_secret secret;
static struct users *users;
static struct login_book book;

static struct login_secret secret_of(const char *name, const char *text)
{
    struct login_secret made = {.bytes = (uint32_t)strlen(text)};
    strcpy(made.name, name);
    memcpy(made.secret, text, made.bytes);
    return made;
}

static int begin(void **state)
{
    (void)state;
    struct user user = {.name = "ann", .role = USER_READ};
    const uint8_t salt[SCRAM_SALT_BYTES] = {9};
    up = down = (struct wire){.conn = {.ops = &ops, .layout = 1}};
    secret = secret_of("ann", "correct horse");
    assert_int_equal(
        scram_verifier_make(&user.verifier, secret.secret, secret.bytes, salt, SCRAM_MIN_ROUNDS),
        0);
    users = users_with(NULL, &user);
    book = (struct login_book){.users = users, .cover = cover};
    return users ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    free(login);
    login = NULL;
    users_release(users);
    login_secret_fini(&secret);
    return 0;
}

/* What lies on the wire arrives at the checking side; at the other one. */
static enum login_step arrive(int *error)
{
    Rowan__ControlMessage *message;
    uint32_t tag;
    assert_int_equal(control_decode(up.bytes, up.count, &tag, &message), 0);
    const enum login_step step = login_take(&login, &book, &down.conn, tag, message, error);
    control_free(message);
    return step;
}

static enum login_step come_back(int *error)
{
    Rowan__ControlMessage *message;
    uint32_t tag;
    assert_int_equal(control_decode(down.bytes, down.count, &tag, &message), 0);
    const enum login_step step = login_go_on(&trying, &secret, &up.conn, message, error);
    control_free(message);
    return step;
}

/* Both sides' ends. */
static void exchange(enum login_step theirs, enum login_step ours, int error)
{
    int met = 0;
    assert_int_equal(login_begin(&trying, &secret, &up.conn), 0);
    assert_int_equal(arrive(&met), LOGIN_GOES_ON);
    assert_int_equal(come_back(&met), LOGIN_GOES_ON);
    assert_int_equal(arrive(&met), theirs);
    assert_int_equal(come_back(&met), ours);
    assert_int_equal(met, error);
}

#define LOGIN_TEST(name) TEST_WITH(name, begin, end)

LOGIN_TEST(who_knows_the_secret_is_let_in_and_known_by_name)
{
    exchange(LOGIN_DONE, LOGIN_DONE, 0);
    assert_ptr_equal(login_user(login, users), &users->list[0]);
    assert_false(login_is_server(login));
}

LOGIN_TEST(another_secret_and_another_name_fail_alike)
{
    uint8_t salts[2][SCRAM_SALT_BYTES];
    secret = secret_of("ann", "wrong horse!!");
    exchange(LOGIN_FAILED, LOGIN_FAILED, ROWAN_ELOGIN);
    assert_null(login_user(login, users));
    for (unsigned i = 0; i < 2; i++) { /* nobody's salt is the same each time, as somebody's is */
        free(login);
        login = NULL;
        secret = secret_of("eve", "correct horse");
        exchange(LOGIN_FAILED, LOGIN_FAILED, ROWAN_ELOGIN);
        memcpy(salts[i], trying.words.salt, sizeof salts[i]);
    }
    assert_memory_equal(salts[0], salts[1], sizeof salts[0]);
}

LOGIN_TEST(a_client_s_number_is_used_with_its_user_s_ticket)
{
    static const uint8_t key[CLUSTER_SECRET_BYTES] = {4, 5, 6};
    const struct {
        uint32_t client;
        const char *user;
        const uint8_t *key;
        bool right;
    } tickets[] = {{0, NULL, key, false},
                   {7, "eve", key, false},
                   {8, "ann", key, false},
                   {7, "ann", cover, false},
                   {7, "ann", key, true}};
    book.client = 7;
    book.ticket_key = key;
    for (unsigned i = 0; i < 5; i++) {
        secret.has_ticket = tickets[i].user;
        if (tickets[i].user)
            assert_true(
                login_ticket(tickets[i].key, tickets[i].client, tickets[i].user, secret.ticket));
        if (tickets[i].right)
            exchange(LOGIN_DONE, LOGIN_DONE, 0);
        else
            exchange(LOGIN_FAILED, LOGIN_FAILED, ROWAN_ELOGIN);
        free(login);
        login = NULL;
    }
}

LOGIN_TEST(a_failed_login_has_no_second_try_on_its_connection)
{
    int error;
    secret = secret_of("ann", "wrong horse!!");
    exchange(LOGIN_FAILED, LOGIN_FAILED, ROWAN_ELOGIN);
    assert_int_equal(arrive(&error), LOGIN_FAILED); /* the proof again */
    assert_int_equal(error, ROWAN_EFORMAT);
    assert_int_equal(login_begin(&trying, &secret, &up.conn), 0);
    assert_int_equal(arrive(&error), LOGIN_FAILED);
    assert_int_equal(error, ROWAN_EFORMAT);
}

LOGIN_TEST(what_was_overheard_lets_nobody_in)
{
    struct wire heard[2];
    int error = 0;
    assert_int_equal(login_begin(&trying, &secret, &up.conn), 0);
    heard[0] = up;
    assert_int_equal(arrive(&error), LOGIN_GOES_ON);
    assert_int_equal(come_back(&error), LOGIN_GOES_ON);
    heard[1] = up;
    assert_int_equal(arrive(&error), LOGIN_DONE);
    free(login);
    login = NULL; /* another connection */
    up = heard[0];
    assert_int_equal(arrive(&error), LOGIN_GOES_ON);
    up = heard[1];
    assert_int_equal(arrive(&error), LOGIN_FAILED);
    assert_int_equal(error, ROWAN_ELOGIN);
    assert_null(login_user(login, users));
}

/* --- between two who see different acceptors, and whose versions differ --- */

/* What is on the way with another nonce: without its mark. */
static void unmark(struct wire *wire)
{
    Rowan__ControlMessage *message;
    uint32_t tag;
    assert_int_equal(control_decode(wire->bytes, wire->count, &tag, &message), 0);
    ProtobufCBinaryData *nonce = message->body_case == ROWAN__CONTROL_MESSAGE__BODY_LOGIN
                                     ? &message->login->nonce
                                     : &message->challenge->nonce;
    assert_memory_equal(nonce->data + LOGIN_NONCE_BYTES - 6, "ends 2", 6);
    nonce->data[LOGIN_NONCE_BYTES - 1] ^= 1;
    assert_int_equal(control_message_send(&wire->conn, tag, message), 0);
    control_free(message);
}

/* Whose nonces lose their mark: on the way, or because that side never had it. */
static void exchange_without(bool asked, bool asker_is_old, bool given, bool giver_is_old,
                             int error)
{
    const enum login_step end = error ? LOGIN_FAILED : LOGIN_DONE;
    int met = 0;
    free(login);
    login = NULL;
    assert_int_equal(login_begin(&trying, &secret, &up.conn), 0);
    if (asked)
        unmark(&up);
    trying.words.nonces[0][LOGIN_NONCE_BYTES - 1] ^= asker_is_old;
    assert_int_equal(arrive(&met), LOGIN_GOES_ON);
    if (given)
        unmark(&down);
    login->words.nonces[1][LOGIN_NONCE_BYTES - 1] ^= giver_is_old;
    assert_int_equal(come_back(&met), LOGIN_GOES_ON);
    assert_int_equal(arrive(&met), end);
    assert_int_equal(come_back(&met), end);
    assert_int_equal(met, error);
}

LOGIN_TEST(a_login_that_is_passed_on_to_somebody_else_fails)
{
    const struct fabric_acceptor dialled = {
        .host = {1}, .incarnation = 2, .id = 3, .port = 4, .kind = FABRIC_CM};
    for (unsigned i = 0; i < 6; i++) {
        up.conn.acceptor = down.conn.acceptor = dialled;
        down.conn.acceptor.host[15] ^= i == 1;
        down.conn.acceptor.port ^= i == 2;
        down.conn.acceptor.id ^= i == 3;
        down.conn.acceptor.incarnation ^= i == 4;
        down.conn.acceptor.kind ^= i == 5;
        exchange_without(false, false, false, false, i > 0 ? ROWAN_ELOGIN : 0);
    }
}

LOGIN_TEST(nobody_in_between_has_two_who_know_better_sign_less)
{
    down.conn.acceptor.port = 1;
    exchange_without(true, false, false, false, ROWAN_ELOGIN);
    exchange_without(false, false, true, false, ROWAN_ELOGIN);
}

/* The versions before sign what they know, with whomever. */
LOGIN_TEST(one_of_an_older_version_logs_in_and_is_logged_in_to)
{
    down.conn.acceptor.port = 1;
    exchange_without(true, true, false, false, 0);
    exchange_without(false, false, true, true, 0);
}

LOGIN_TEST(whoever_does_not_know_the_verifier_is_found_out)
{
    int error = 0;
    Rowan__LoggedIn body = ROWAN__LOGGED_IN__INIT;
    uint8_t nothing[SCRAM_KEY_BYTES] = {0};
    body.signature = (ProtobufCBinaryData){sizeof nothing, nothing};
    const Rowan__ControlMessage message = CONTROL_MESSAGE(LOGGED_IN, logged_in, &body);
    assert_int_equal(login_begin(&trying, &secret, &up.conn), 0);
    assert_int_equal(login_go_on(&trying, &secret, &up.conn, &message, &error),
                     LOGIN_FAILED); /* at once */
    assert_int_equal(error, ROWAN_ELOGIN);
    assert_int_equal(arrive(&error), LOGIN_GOES_ON);
    assert_int_equal(come_back(&error), LOGIN_GOES_ON);
    assert_int_equal(login_go_on(&trying, &secret, &up.conn, &message, &error), LOGIN_FAILED);
    assert_int_equal(error, ROWAN_ELOGIN);
}

LOGIN_TEST(who_is_removed_or_gets_another_secret_is_logged_in_no_longer)
{
    exchange(LOGIN_DONE, LOGIN_DONE, 0);
    struct users *none = users_without(users, "ann");
    assert_null(login_user(login, none));
    users_release(none);
    users->list[0].role = USER_ADMIN;
    assert_int_equal(login_user(login, users)->role, USER_ADMIN);
    users->list[0].verifier.stored_key[0] ^= 1;
    assert_null(login_user(login, users));
}

LOGIN_TEST(servers_have_a_key_where_there_is_one)
{
    secret = secret_of(LOGIN_SERVER, "correct horse");
    exchange(LOGIN_FAILED, LOGIN_FAILED, ROWAN_ELOGIN);
    free(login);
    login = NULL;
    book.server = &users->list[0].verifier;
    exchange(LOGIN_DONE, LOGIN_DONE, 0);
    assert_true(login_is_server(login));
    assert_null(login_user(login, users));
    /* Half a second of a server's time for each attempt. */
    int error = 0;
    users->list[0].verifier.rounds = LOGIN_ROUNDS + 1;
    free(login);
    login = NULL;
    assert_int_equal(login_begin(&trying, &secret, &up.conn), 0);
    assert_int_equal(arrive(&error), LOGIN_GOES_ON);
    assert_int_equal(come_back(&error), LOGIN_FAILED);
    assert_int_equal(error, ROWAN_EFORMAT);
}

LOGIN_TEST(nobody_logs_in_before_there_is_a_configuration)
{
    int error;
    book.cover = NULL;
    assert_int_equal(login_begin(&trying, &secret, &up.conn), 0);
    assert_int_equal(arrive(&error), LOGIN_FAILED);
    assert_int_equal(error, ROWAN_EAGAIN);
}

LOGIN_TEST(a_proof_without_a_challenge_and_lengths_that_are_wrong_are_refused)
{
    int error;
    Rowan__Proof proof = ROWAN__PROOF__INIT;
    Rowan__Login asked = ROWAN__LOGIN__INIT;
    Rowan__Challenge given = ROWAN__CHALLENGE__INIT;
    uint8_t bytes[64] = {0};
    proof.proof = (ProtobufCBinaryData){SCRAM_KEY_BYTES, bytes};
    assert_int_equal(
        login_take(&login, &book, &down.conn, 1, &CONTROL_MESSAGE(PROOF, proof, &proof), &error),
        LOGIN_FAILED);
    assert_int_equal(error, ROWAN_EFORMAT);
    char name[USER_NAME_BYTES + 2];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    asked.user = name;
    asked.nonce = (ProtobufCBinaryData){LOGIN_NONCE_BYTES, bytes};
    assert_int_equal(
        login_take(&login, &book, &down.conn, 1, &CONTROL_MESSAGE(LOGIN, login, &asked), &error),
        LOGIN_FAILED);
    asked.user = (char *)(uintptr_t) "ann";
    asked.nonce.len = LOGIN_NONCE_BYTES + 1;
    assert_int_equal(
        login_take(&login, &book, &down.conn, 1, &CONTROL_MESSAGE(LOGIN, login, &asked), &error),
        LOGIN_FAILED);
    assert_null(login);
    assert_int_equal(login_begin(&trying, &secret, &up.conn), 0);
    given.nonce = (ProtobufCBinaryData){LOGIN_NONCE_BYTES, bytes};
    given.salt = (ProtobufCBinaryData){SCRAM_SALT_BYTES + 1, bytes};
    given.rounds = SCRAM_MIN_ROUNDS;
    assert_int_equal(login_go_on(&trying, &secret, &up.conn,
                                 &CONTROL_MESSAGE(CHALLENGE, challenge, &given), &error),
                     LOGIN_FAILED);
    assert_int_equal(error, ROWAN_EFORMAT);
    given.salt.len = SCRAM_SALT_BYTES;
    given.rounds = SCRAM_MIN_ROUNDS - 1; /* a cheap guess is not given away */
    assert_int_equal(login_go_on(&trying, &secret, &up.conn,
                                 &CONTROL_MESSAGE(CHALLENGE, challenge, &given), &error),
                     LOGIN_FAILED);
    assert_int_equal(error, ROWAN_EINVALID);
}

static int secret_in(const char *text, size_t bytes, mode_t mode, struct login_secret *out)
{
    char path[] = "/tmp/rowan-secret-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, bytes), bytes);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    const int error = login_secret_read(out, "ann", path);
    unlink(path);
    return error;
}

TEST(a_secret_is_read_without_its_line_end_from_a_file_that_not_everybody_can_read)
{
    struct login_secret read;
    char much[USER_MAX_SECRET_BYTES + 2];
    memset(much, 'x', sizeof much);
    assert_int_equal(secret_in("correct horse\n", 14, 0640, &read), 0);
    assert_int_equal(read.bytes, 13);
    assert_memory_equal(read.secret, "correct horse", 13);
    assert_int_equal(secret_in("correct horse\n", 14, 0644, &read), ROWAN_EPERMISSION);
    assert_int_equal(secret_in("elevenbytes\n", 12, 0600, &read), ROWAN_EINVALID);
    assert_int_equal(secret_in(much, USER_MAX_SECRET_BYTES, 0600, &read), 0);
    assert_int_equal(secret_in(much, USER_MAX_SECRET_BYTES + 1, 0600, &read), ROWAN_EINVALID);
    assert_int_equal(login_secret_read(&read, "ann", "/nowhere/at-all"), ROWAN_ENOTFOUND);
    char directory[] = "/tmp/rowan-secret-XXXXXX", fifo[64];
    assert_non_null(mkdtemp(directory));
    snprintf(fifo, sizeof fifo, "%s/fifo", directory);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(login_secret_read(&read, "ann", fifo), ROWAN_EINVALID); /* at once */
    unlink(fifo);
    rmdir(directory);
}

/* By which it is said whether everybody who is let in is one of this host. */
TEST(shm_and_loopback_are_local_addresses)
{
    static const char *const local[] = {"shm:/run/a", "tcp:127.0.0.1:7000", "tcp:127.1.2.3:1",
                                        "tcp:[::1]:7000", "verbs:localhost:7000"};
    static const char *const others[] = {"tcp:10.0.0.1:7000",      "tcp:0.0.0.0:7000",
                                         "tcp:[::]:7000",          "tcp:db1.example:7000",
                                         "verbs:192.168.1.1:7000", "tcp:"};
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        assert_true(address_is_local(local[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(address_is_local(others[i]));
}

UNIT_MAIN(NULL, NULL)
