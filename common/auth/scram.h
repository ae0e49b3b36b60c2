/* scram.h - who knows a secret proves it, and so does who checks it, without showing it: SCRAM-SHA-256 (RFC 5802, RFC 7677), by
 * libcrypto. What is kept of a secret is a verifier: it lets check, not log in, unless the secret is found by trying.
 *
 * The two sides exchange what RFC 5802 calls AuthMessage and agree on its bytes; here it is any bytes that hold a nonce of each.
 * Whoever sends a proof that was seen before meets another nonce. Any thread; nothing is allocated that lives on.
 */
#ifndef AUTH_SCRAM_H
#define AUTH_SCRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SCRAM_KEY_BYTES = 32,
    SCRAM_SALT_BYTES = 16,
    SCRAM_MIN_ROUNDS = 4096, /* RFC 7677, section 4 */
    SCRAM_MAX_ROUNDS = 1 << 20,
};

/* What the checking side keeps: StoredKey and ServerKey. */
struct scram_verifier {
    uint8_t salt[SCRAM_SALT_BYTES];
    uint32_t rounds; /* SCRAM_MIN_ROUNDS to SCRAM_MAX_ROUNDS */
    uint8_t stored_key[SCRAM_KEY_BYTES], server_key[SCRAM_KEY_BYTES];
};

/* What a client keeps while it runs, so that the rounds are paid once: ClientKey and ServerKey. It is as good as the secret. */
struct scram_client {
    uint8_t client_key[SCRAM_KEY_BYTES], server_key[SCRAM_KEY_BYTES];
};

/* scram_client_init: some milliseconds for thousands of rounds. Errors: ROWAN_EINVALID (the rounds), ROWAN_ENOMEM (of libcrypto).
 * scram_client_fini: the keys are gone from memory. */
int scram_client_init(struct scram_client *client, const void *secret, size_t bytes,
                      const uint8_t *salt, size_t salt_bytes, uint32_t rounds);
void scram_client_fini(struct scram_client *client);

/* scram_verifier_make: of the same secret; the salt is new and random, or NULL is not allowed. Errors: likewise. */
int scram_verifier_make(struct scram_verifier *out, const void *secret, size_t bytes,
                        const uint8_t salt[SCRAM_SALT_BYTES], uint32_t rounds);

/* Of nobody: no proof satisfies it. Its salt comes from the name and `cover`, SCRAM_SALT_BYTES that others do not know, so that it
 * is the same at each try, as somebody's is. Whoever tries chooses the name: so the key is one for this use (mac_subkey). False: no memory in libcrypto. */
bool scram_verifier_pretend(struct scram_verifier *out, const uint8_t *cover, const char *name,
                            uint32_t rounds);

bool scram_verifier_equal(const struct scram_verifier *a, const struct scram_verifier *b);

/* scram_prove: the client's proof for these bytes. scram_check: is it one? Takes as long whatever differs. */
int scram_prove(const struct scram_client *client, const void *message, size_t bytes,
                uint8_t proof[SCRAM_KEY_BYTES]);
bool scram_check(const struct scram_verifier *verifier, const void *message, size_t bytes,
                 const uint8_t proof[SCRAM_KEY_BYTES]);

/* scram_sign: the checking side's proof, once it has checked. scram_check_signature: the client's look at it. */
int scram_sign(const struct scram_verifier *verifier, const void *message, size_t bytes,
               uint8_t signature[SCRAM_KEY_BYTES]);
bool scram_check_signature(const struct scram_client *client, const void *message, size_t bytes,
                           const uint8_t signature[SCRAM_KEY_BYTES]);

#endif
