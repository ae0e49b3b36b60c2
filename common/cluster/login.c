/* login.c - see login.h. */
#include "common/cluster/login.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/address.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/random.h"

void login_secret_fini(struct login_secret *secret)
{
    scram_client_fini(&secret->keys);
    explicit_bzero(secret, sizeof *secret);
}

/* --- what both sides sign --- */

static void put_u32(uint8_t out[4], uint32_t value)
{
    for (unsigned i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

enum { MARK_BYTES = sizeof LOGIN_MARK - 1 };

static bool is_marked(const uint8_t nonce[LOGIN_NONCE_BYTES])
{
    return memcmp(nonce + LOGIN_NONCE_BYTES - MARK_BYTES, LOGIN_MARK, MARK_BYTES) == 0;
}

static void draw(uint8_t nonce[LOGIN_NONCE_BYTES], bool marked)
{
    random_entropy(nonce, LOGIN_NONCE_BYTES);
    if (marked)
        memcpy(nonce + LOGIN_NONCE_BYTES - MARK_BYTES, LOGIN_MARK, MARK_BYTES);
}

/* So many of the words are signed. */
static size_t signed_bytes(const struct login_words *words)
{
    const bool both = is_marked(words->nonces[0]) && is_marked(words->nonces[1]);
    return both ? sizeof *words : offsetof(struct login_words, acceptor);
}

bool login_ticket(const uint8_t key[CLUSTER_SECRET_BYTES], uint32_t client, const char *user,
                  uint8_t ticket[MAC_BYTES])
{
    struct {
        char what[16];
        uint8_t client[4]; /* little-endian */
        char user[USER_NAME_BYTES + 1];
    } words = {.what = "client id"};
    put_u32(words.client, client);
    snprintf(words.user, sizeof words.user, "%s", user);
    return mac_make(key, CLUSTER_SECRET_BYTES, &words, sizeof words, ticket);
}

/* --- whoever connects --- */

int login_begin(struct login_try *login, const struct login_secret *secret,
                struct fabric_conn *conn)
{
    Rowan__Login body = ROWAN__LOGIN__INIT;
    *login = (struct login_try){0};
    strcpy(login->words.name, secret->name);
    draw(login->words.nonces[0], true);
    memcpy(login->words.acceptor, &conn->acceptor, sizeof login->words.acceptor);
    body.user = login->words.name;
    body.nonce = control_bytes(login->words.nonces[0], LOGIN_NONCE_BYTES);
    if (secret->has_ticket)
        body.ticket = control_bytes(secret->ticket, sizeof secret->ticket);
    return control_message_send(conn, 0, &CONTROL_MESSAGE(LOGIN, login, &body));
}

/* The rounds are paid once, unless the user gets another salt. */
static int derive(struct login_secret *secret, const uint8_t salt[SCRAM_SALT_BYTES],
                  uint32_t rounds)
{
    if (secret->derived && secret->rounds == rounds &&
        memcmp(secret->salt, salt, sizeof secret->salt) == 0)
        return 0;
    const int error = scram_client_init(&secret->keys, secret->secret, secret->bytes, salt,
                                        SCRAM_SALT_BYTES, rounds);
    secret->derived = !error;
    secret->rounds = rounds;
    memcpy(secret->salt, salt, sizeof secret->salt);
    return error;
}

static int prove(struct login_try *login, struct login_secret *secret, struct fabric_conn *conn,
                 const Rowan__Challenge *challenge)
{
    struct login_words *words = &login->words;
    uint8_t proof[SCRAM_KEY_BYTES];
    Rowan__Proof body = ROWAN__PROOF__INIT;
    if (login->proved || !control_take(&challenge->nonce, words->nonces[1], LOGIN_NONCE_BYTES) ||
        !control_take(&challenge->salt, words->salt, sizeof words->salt))
        return ROWAN_EFORMAT;
    if (challenge->rounds > LOGIN_ROUNDS && strcmp(secret->name, LOGIN_SERVER) == 0)
        return ROWAN_EFORMAT; /* servers have no time for whoever has the address of one that is gone */
    put_u32(words->rounds, challenge->rounds);
    int error = derive(secret, words->salt, challenge->rounds);
    if (!error)
        error = scram_prove(&secret->keys, words, signed_bytes(words), proof);
    if (error)
        return error;
    body.proof = control_bytes(proof, sizeof proof);
    login->proved = true;
    return control_message_send(conn, 0, &CONTROL_MESSAGE(PROOF, proof, &body));
}

enum login_step login_go_on(struct login_try *login, struct login_secret *secret,
                            struct fabric_conn *conn, const Rowan__ControlMessage *message,
                            int *error)
{
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_CHALLENGE) {
        *error = prove(login, secret, conn, message->challenge);
        return *error ? LOGIN_FAILED : LOGIN_GOES_ON;
    }
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_LOGGED_IN) {
        const ProtobufCBinaryData *signature = &message->logged_in->signature;
        const bool right = login->proved && signature->len == SCRAM_KEY_BYTES &&
                           scram_check_signature(&secret->keys, &login->words,
                                                 signed_bytes(&login->words), signature->data);
        *error = right ? 0 : ROWAN_ELOGIN;
        return right ? LOGIN_DONE : LOGIN_FAILED;
    }
    if (message->body_case != ROWAN__CONTROL_MESSAGE__BODY_FAILURE)
        return LOGIN_NO_PART;
    *error = message->failure->error;
    return LOGIN_FAILED;
}

/* --- whoever was connected to --- */

static const struct scram_verifier *verifier_of(const struct login_book *book, const char *name)
{
    if (strcmp(name, LOGIN_SERVER) == 0)
        return book->server;
    const struct user *user = users_find(book->users, name);
    return user ? &user->verifier : NULL;
}

static bool has_ticket(const struct login_book *book, const Rowan__Login *asked)
{
    uint8_t right[MAC_BYTES];
    return !book->client || (asked->ticket.len == sizeof right &&
                             login_ticket(book->ticket_key, book->client, asked->user, right) &&
                             mac_equal(right, asked->ticket.data));
}

static int challenge(struct login **out, const struct login_book *book, struct fabric_conn *conn,
                     uint32_t tag, const Rowan__Login *asked)
{
    if (!book->cover)
        return ROWAN_EAGAIN;
    if (*out || strlen(asked->user) > USER_NAME_BYTES || asked->nonce.len != LOGIN_NONCE_BYTES)
        return ROWAN_EFORMAT;
    struct login *login = calloc(1, sizeof *login);
    if (!login)
        return ROWAN_ENOMEM;
    *out = login;
    struct login_words *words = &login->words;
    strcpy(words->name, asked->user);
    memcpy(words->nonces[0], asked->nonce.data, LOGIN_NONCE_BYTES);
    draw(words->nonces[1], is_marked(words->nonces[0]));
    memcpy(words->acceptor, &conn->acceptor, sizeof words->acceptor);
    const struct scram_verifier *verifier = verifier_of(book, words->name);
    login->known = verifier && has_ticket(book, asked);
    if (verifier)
        login->verifier = *verifier;
    else if (!scram_verifier_pretend(&login->verifier, book->cover, words->name, LOGIN_ROUNDS))
        return ROWAN_ENOMEM;
    memcpy(words->salt, login->verifier.salt, sizeof words->salt);
    put_u32(words->rounds, login->verifier.rounds);
    Rowan__Challenge body = ROWAN__CHALLENGE__INIT;
    body.nonce = control_bytes(words->nonces[1], LOGIN_NONCE_BYTES);
    body.salt = control_bytes(words->salt, sizeof words->salt);
    body.rounds = login->verifier.rounds;
    return control_message_send(conn, tag, &CONTROL_MESSAGE(CHALLENGE, challenge, &body));
}

static int check(struct login *login, struct fabric_conn *conn, uint32_t tag,
                 const Rowan__Proof *given)
{
    uint8_t signature[SCRAM_KEY_BYTES];
    Rowan__LoggedIn body = ROWAN__LOGGED_IN__INIT;
    if (!login || login->done || login->spent || given->proof.len != SCRAM_KEY_BYTES)
        return ROWAN_EFORMAT;
    const size_t bytes = signed_bytes(&login->words);
    const bool right = scram_check(&login->verifier, &login->words, bytes, given->proof.data);
    login->spent = true;
    if (!right || !login->known)
        return ROWAN_ELOGIN;
    int error = scram_sign(&login->verifier, &login->words, bytes, signature);
    if (error)
        return error;
    body.signature = control_bytes(signature, sizeof signature);
    login->done = true;
    return control_message_send(conn, tag, &CONTROL_MESSAGE(LOGGED_IN, logged_in, &body));
}

enum login_step login_take(struct login **login, const struct login_book *book,
                           struct fabric_conn *conn, uint32_t tag,
                           const Rowan__ControlMessage *message, int *error)
{
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_LOGIN)
        *error = challenge(login, book, conn, tag, message->login);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_PROOF)
        *error = check(*login, conn, tag, message->proof);
    else
        return LOGIN_NO_PART;
    if (!*error)
        return (*login)->done ? LOGIN_DONE : LOGIN_GOES_ON;
    (void)control_failure_send(conn, tag, *error); /* it is closed anyway */
    return LOGIN_FAILED;
}

const struct user *login_user(const struct login *login, const struct users *users)
{
    if (!login || !login->done)
        return NULL;
    const struct user *user = users_find(users, login->words.name);
    return user && scram_verifier_equal(&user->verifier, &login->verifier) ? user : NULL;
}

const char *login_name(const struct login *login)
{
    const char *name = login ? login->words.name : "";
    return user_name_is_right(name) || strcmp(name, LOGIN_SERVER) == 0 ? name : "?";
}

bool login_is_server(const struct login *login)
{
    return login && login->done && strcmp(login->words.name, LOGIN_SERVER) == 0;
}

void login_tell_off(const struct users *users, const char *address, bool *told)
{
    const bool off = !users || !users->required;
    if (off && !*told)
        log_event(!address || address_is_local(address) ? LOG_INFO : LOG_WARN, "logins_off",
                  "detail=\"whoever reaches this process may do everything: make users, and then "
                  "require logins (rowan login required)\"");
    *told = off;
}
