/* scram.c - see scram.h. Names in comments are those of RFC 5802, section 3. */
#include "common/auth/scram.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <string.h>

#include "common/auth/mac.h"
#include "common/base/error.h"

static bool hash(const uint8_t data[SCRAM_KEY_BYTES], uint8_t out[SCRAM_KEY_BYTES])
{
    return SHA256(data, SCRAM_KEY_BYTES, out) != NULL;
}

int scram_client_init(struct scram_client *client, const void *secret, size_t bytes,
                      const uint8_t *salt, size_t salt_bytes, uint32_t rounds)
{
    static const char client_word[] = "Client Key", server_word[] = "Server Key";
    uint8_t salted[SCRAM_KEY_BYTES]; /* SaltedPassword */
    struct scram_client made;
    if (rounds < SCRAM_MIN_ROUNDS || rounds > SCRAM_MAX_ROUNDS || bytes > INT32_MAX ||
        salt_bytes > INT32_MAX)
        return ROWAN_EINVALID;
    const bool done =
        PKCS5_PBKDF2_HMAC(secret, (int)bytes, salt, (int)salt_bytes, (int)rounds, EVP_sha256(),
                          sizeof salted, salted) == 1 &&
        mac_make(salted, sizeof salted, client_word, sizeof client_word - 1, made.client_key) &&
        mac_make(salted, sizeof salted, server_word, sizeof server_word - 1, made.server_key);
    OPENSSL_cleanse(salted, sizeof salted);
    if (done)
        *client = made;
    scram_client_fini(&made);
    return done ? 0 : ROWAN_ENOMEM;
}

void scram_client_fini(struct scram_client *client)
{
    OPENSSL_cleanse(client, sizeof *client);
}

int scram_verifier_make(struct scram_verifier *out, const void *secret, size_t bytes,
                        const uint8_t salt[SCRAM_SALT_BYTES], uint32_t rounds)
{
    struct scram_client client;
    struct scram_verifier made = {.rounds = rounds};
    int error = scram_client_init(&client, secret, bytes, salt, SCRAM_SALT_BYTES, rounds);
    if (error)
        return error;
    memcpy(made.salt, salt, sizeof made.salt);
    memcpy(made.server_key, client.server_key, sizeof made.server_key);
    error = hash(client.client_key, made.stored_key) ? 0 : ROWAN_ENOMEM;
    scram_client_fini(&client);
    if (!error)
        *out = made;
    return error;
}

bool scram_verifier_pretend(struct scram_verifier *out, const uint8_t *cover, const char *name,
                            uint32_t rounds)
{
    uint8_t key[MAC_BYTES], salt[MAC_BYTES];
    *out = (struct scram_verifier){.rounds = rounds};
    if (!mac_subkey(cover, SCRAM_SALT_BYTES, "salt of nobody", key) ||
        !mac_make(key, sizeof key, name, strlen(name), salt))
        return false;
    memcpy(out->salt, salt, sizeof out->salt);
    return true;
}

bool scram_verifier_equal(const struct scram_verifier *a, const struct scram_verifier *b)
{
    return a->rounds == b->rounds && memcmp(a->salt, b->salt, sizeof a->salt) == 0 &&
           memcmp(a->stored_key, b->stored_key, sizeof a->stored_key) == 0 &&
           memcmp(a->server_key, b->server_key, sizeof a->server_key) == 0;
}

/* ClientSignature, which is to the exclusive or of ClientKey and ClientProof. */
static bool mask(const uint8_t stored_key[SCRAM_KEY_BYTES], const void *message, size_t bytes,
                 const uint8_t in[SCRAM_KEY_BYTES], uint8_t out[SCRAM_KEY_BYTES])
{
    uint8_t signature[SCRAM_KEY_BYTES];
    if (!mac_make(stored_key, SCRAM_KEY_BYTES, message, bytes, signature))
        return false;
    for (unsigned i = 0; i < SCRAM_KEY_BYTES; i++)
        out[i] = in[i] ^ signature[i];
    return true;
}

int scram_prove(const struct scram_client *client, const void *message, size_t bytes,
                uint8_t proof[SCRAM_KEY_BYTES])
{
    uint8_t stored_key[SCRAM_KEY_BYTES];
    const bool done = hash(client->client_key, stored_key) &&
                      mask(stored_key, message, bytes, client->client_key, proof);
    return done ? 0 : ROWAN_ENOMEM;
}

bool scram_check(const struct scram_verifier *verifier, const void *message, size_t bytes,
                 const uint8_t proof[SCRAM_KEY_BYTES])
{
    uint8_t client_key[SCRAM_KEY_BYTES], stored_key[SCRAM_KEY_BYTES];
    const bool right = mask(verifier->stored_key, message, bytes, proof, client_key) &&
                       hash(client_key, stored_key) && mac_equal(stored_key, verifier->stored_key);
    OPENSSL_cleanse(client_key, sizeof client_key);
    return right;
}

int scram_sign(const struct scram_verifier *verifier, const void *message, size_t bytes,
               uint8_t signature[SCRAM_KEY_BYTES])
{
    return mac_make(verifier->server_key, SCRAM_KEY_BYTES, message, bytes, signature)
               ? 0
               : ROWAN_ENOMEM;
}

bool scram_check_signature(const struct scram_client *client, const void *message, size_t bytes,
                           const uint8_t signature[SCRAM_KEY_BYTES])
{
    uint8_t right[SCRAM_KEY_BYTES];
    return mac_make(client->server_key, SCRAM_KEY_BYTES, message, bytes, right) &&
           mac_equal(right, signature);
}
