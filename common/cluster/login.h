/* login.h - how who connects proves who he is, on any connection, by control messages: SCRAM-SHA-256 (common/auth/scram.h)
 * without its texts. The secret itself never leaves whoever has it, and what was overheard is of no use on another connection,
 * because each side chooses a part of what is signed.
 *
 *   who connects                               who was connected to
 *   Login: name, nonce               ->
 *                                    <-        Challenge: nonce, salt, rounds (of nobody, too: none can tell)
 *   Proof                            ->
 *                                    <-        LoggedIn: it knows the verifier, so it is of this cluster; or Failure ROWAN_ELOGIN
 *
 * Both sides sign whom they take for the one who was connected to: the address that was dialled, which he knows as his own, his id
 * and his run (struct fabric_acceptor). So nobody who got somebody's address passes on what he hears there. Versions before that
 * sign without it. LOGIN_MARK at the end of a nonce says that its side signs it, and nonces are signed: nobody in between can have
 * two that know better agree on less.
 *
 * Servers and managers have the cluster's key instead of a user: LOGIN_SERVER.
 */
#ifndef CLUSTER_LOGIN_H
#define CLUSTER_LOGIN_H

#include "common/auth/mac.h"
#include "common/auth/users.h"
#include "common/cluster/cluster.h"
#include "common/cluster/control.h"

enum { LOGIN_NONCE_BYTES = 16, LOGIN_ROUNDS = 16384 };

#define LOGIN_MARK   "ends 2"  /* the rest of the nonce is drawn */
#define LOGIN_SERVER "@server" /* no user can have this name */

/* All that both sides sign. */
struct login_words {
    char name[USER_NAME_BYTES + 1];
    uint8_t rounds[4]; /* little-endian */
    uint8_t salt[SCRAM_SALT_BYTES];
    uint8_t nonces[2][LOGIN_NONCE_BYTES]; /* of who connects, of the other */
    /* Where both of these have the mark: a struct fabric_acceptor. */
    uint8_t acceptor[sizeof(struct fabric_acceptor)];
};

_Static_assert(offsetof(struct login_words, acceptor) == 85 && sizeof(struct login_words) == 117,
               "without gaps");

/* What shows that a manager has given this client id to this user: a MAC with the cluster's key for that (keys.h). Nobody else uses it,
 * for a client's operations are told from retries by its id. False: no memory in libcrypto. */
bool login_ticket(const uint8_t key[CLUSTER_SECRET_BYTES], uint32_t client, const char *user,
                  uint8_t ticket[MAC_BYTES]);

/* The setting of servers and managers, read by login_key_read. */
#define CLUSTER_KEY_KEY(field)                                                                     \
    {                                                                                              \
        "cluster-key", CONFIG_STRING, (field), "", 0, 0, NULL,                                     \
            "file with the secret by which servers and managers know each other, 12 to 256 "       \
            "bytes; without "                                                                      \
            "it whoever reaches a manager may say that he is a server"                             \
    }

/* --- whoever connects --- */

/* A name and its secret; the keys are made of it when a salt is known, once for all connections. */
struct login_secret {
    char name[USER_NAME_BYTES + 1];
    uint8_t secret[USER_MAX_SECRET_BYTES];
    uint32_t bytes;
    bool has_ticket; /* for workers: of the client id that the manager gave */
    uint8_t ticket[MAC_BYTES];
    bool derived; /* the keys, with: */
    uint8_t salt[SCRAM_SALT_BYTES];
    uint32_t rounds;
    struct scram_client keys;
};

/* login_secret_read: the secret is what the file holds, without its last line end. Errors: ROWAN_EINVALID (the name; the secret has
 * not USER_MIN_SECRET_BYTES to USER_MAX_SECRET_BYTES), ROWAN_EPERMISSION (it cannot be read, or others than its owner and group
 * can read it too), ROWAN_ENOTFOUND EIO. login_secret_fini: nothing of it stays in memory. */
int login_secret_read(struct login_secret *secret, const char *name, const char *path);
void login_secret_fini(struct login_secret *secret);

/* login_key_read: the key that a setting names the file of; *key is NULL if the name is empty. False: a sentence, which begins with
 * the program's name, was printed on standard error. */
bool login_key_read(const char *program, const char *setting, const char *path,
                    struct login_secret *secret, struct login_secret **key);

struct login_try {
    bool proved; /* the proof is sent */
    struct login_words words;
};

enum login_step {
    LOGIN_NO_PART, /* the message is no part of a login */
    LOGIN_GOES_ON,
    LOGIN_DONE,
    LOGIN_FAILED, /* `error`: ROWAN_ELOGIN, or of the connection; it is of no further use */
};

/* login_begin: sends the first message. Errors: those of control_message_send. login_go_on: takes what came; for some milliseconds
 * if keys are to be made. */
int login_begin(struct login_try *login, const struct login_secret *secret,
                struct fabric_conn *conn);
enum login_step login_go_on(struct login_try *login, struct login_secret *secret,
                            struct fabric_conn *conn, const Rowan__ControlMessage *message,
                            int *error);

/* --- whoever was connected to --- */

/* Of one passive connection, since it asked to log in. */
struct login {
    bool done;
    bool spent; /* it has failed, and there is no second try on this connection */
    /* There is somebody of that name, who has the ticket; else it fails, at the end, as with a wrong secret. */
    bool known;
    struct scram_verifier verifier;
    struct login_words words;
};

/* Who may log in. */
struct login_book {
    const struct users *users;           /* NULL: none */
    const struct scram_verifier *server; /* of LOGIN_SERVER; NULL: nobody */
    /* SCRAM_SALT_BYTES that others do not know: cluster_cover. NULL: nobody can log in yet (ROWAN_EAGAIN). */
    const uint8_t *cover;
    uint32_t client;           /* a client id whose ticket is asked for; 0: none */
    const uint8_t *ticket_key; /* then: that it is made with */
};

/* login_take: takes what came on a connection, whose login is *login (NULL at first; the caller frees it), and answers.
 * After LOGIN_DONE words.name is who it is. LOGIN_FAILED with ROWAN_ELOGIN: he has been told, and closes the connection; with any
 * other error the caller should. */
enum login_step login_take(struct login **login, const struct login_book *book,
                           struct fabric_conn *conn, uint32_t tag,
                           const Rowan__ControlMessage *message, int *error);

/* The user who has logged in, as `users` know him now; NULL: nobody has, or he is gone, or has another secret. */
const struct user *login_user(const struct login *login, const struct users *users);

/* Who it is that tries to, for a log: "?" if nobody can have that name. */
const char *login_name(const struct login *login);

/* Where logins are not required, a line of the log says so; once until that changes (*told). `users`: of the newest configuration.
 * `address`: of this process; NULL: of none. */
void login_tell_off(const struct users *users, const char *address, bool *told);

/* Is it whoever has the cluster's key? */
bool login_is_server(const struct login *login);

#endif
