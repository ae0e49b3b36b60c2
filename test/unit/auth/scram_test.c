/* The exchange of RFC 7677, section 3, and what differs from it. */
#include <string.h>

#include "common/auth/mac.h"
#include "common/auth/scram.h"
#include "common/base/error.h"
#include "test/lib/unit.h"

/* RFC 7677: user "user", password "pencil", salt W22ZaJ0SNY7soEsUEjb6gQ==, 4096 rounds. */
static const uint8_t salt[SCRAM_SALT_BYTES] = {0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e,
                                               0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81};
static const char message[] =
    "n=user,r=rOprNGfwEbeRWgbNEkqO,"
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
/* p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ= */
static const uint8_t proof_of_rfc[SCRAM_KEY_BYTES] = {
    0x74, 0x7c, 0xdb, 0x65, 0xaa, 0x56, 0x22, 0x4e, 0x23, 0x52, 0x13, 0x7e, 0x52, 0xd7, 0xbd, 0xca,
    0xd6, 0xa0, 0xf7, 0x38, 0xdf, 0x30, 0x78, 0x2c, 0xaa, 0x69, 0xa2, 0xcf, 0xb0, 0x27, 0x75, 0x54};
/* v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4= */
static const uint8_t signature_of_rfc[SCRAM_KEY_BYTES] = {
    0xea, 0xba, 0xe2, 0x4d, 0x10, 0x62, 0xdb, 0x75, 0xa9, 0x45, 0x1f, 0xf0, 0xb6, 0xea, 0x7e, 0x98,
    0xc8, 0x54, 0x65, 0x49, 0xff, 0x74, 0x1e, 0x67, 0x2d, 0x32, 0x51, 0xb2, 0x39, 0x7d, 0xe4, 0x6e};

enum { BYTES = sizeof message - 1 };

static struct scram_client client;
static struct scram_verifier verifier;

static int begin(void **state)
{
    (void)state;
    return scram_client_init(&client, "pencil", 6, salt, sizeof salt, SCRAM_MIN_ROUNDS) ||
           scram_verifier_make(&verifier, "pencil", 6, salt, SCRAM_MIN_ROUNDS);
}

TEST_WITH(the_exchange_is_that_of_the_rfc, begin, NULL)
{
    uint8_t proof[SCRAM_KEY_BYTES], signature[SCRAM_KEY_BYTES];
    assert_int_equal(scram_prove(&client, message, BYTES, proof), 0);
    assert_memory_equal(proof, proof_of_rfc, sizeof proof);
    assert_true(scram_check(&verifier, message, BYTES, proof));
    assert_int_equal(scram_sign(&verifier, message, BYTES, signature), 0);
    assert_memory_equal(signature, signature_of_rfc, sizeof signature);
    assert_true(scram_check_signature(&client, message, BYTES, signature));
}

TEST_WITH(another_secret_salt_number_of_rounds_or_message_is_found, begin, NULL)
{
    uint8_t proof[SCRAM_KEY_BYTES], other_salt[SCRAM_SALT_BYTES];
    struct scram_client other;
    memcpy(other_salt, salt, sizeof salt);
    other_salt[15] ^= 1;
    const struct {
        const char *secret;
        const uint8_t *salt;
        uint32_t rounds;
    } cases[] = {{"pencij", salt, SCRAM_MIN_ROUNDS},
                 {"pencil", other_salt, SCRAM_MIN_ROUNDS},
                 {"pencil", salt, SCRAM_MIN_ROUNDS + 1}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(scram_client_init(&other, cases[i].secret, 6, cases[i].salt, sizeof salt,
                                           cases[i].rounds),
                         0);
        assert_int_equal(scram_prove(&other, message, BYTES, proof), 0);
        assert_false(scram_check(&verifier, message, BYTES, proof));
        assert_false(scram_check_signature(&other, message, BYTES, signature_of_rfc));
    }
    assert_false(scram_check(&verifier, message, BYTES - 1, proof_of_rfc)); /* a replay */
    assert_false(scram_check_signature(&client, message, BYTES - 1, signature_of_rfc));
}

TEST_WITH(each_bit_of_a_proof_counts, begin, NULL)
{
    uint8_t proof[SCRAM_KEY_BYTES];
    for (unsigned bit = 0; bit < 8 * SCRAM_KEY_BYTES; bit++) {
        memcpy(proof, proof_of_rfc, sizeof proof);
        proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(scram_check(&verifier, message, BYTES, proof));
    }
}

/* A label for each use: else whoever tries to log in would have texts of his own signed with the cluster's secret. */
TEST(the_salt_of_nobody_is_no_code_over_the_name_that_he_gives)
{
    static const char *const names[] = {"eve", "", "client id", "salt of nobody"};
    uint8_t code[MAC_BYTES];
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_true(scram_verifier_pretend(&verifier, salt, names[i], SCRAM_MIN_ROUNDS));
        assert_true(mac_make(salt, sizeof salt, names[i], strlen(names[i]), code));
        assert_memory_not_equal(verifier.salt, code, sizeof verifier.salt);
    }
}

TEST(too_few_and_too_many_rounds_are_refused)
{
    assert_int_equal(scram_client_init(&client, "", 0, salt, sizeof salt, SCRAM_MIN_ROUNDS - 1),
                     ROWAN_EINVALID);
    assert_int_equal(scram_verifier_make(&verifier, "", 0, salt, SCRAM_MAX_ROUNDS + 1),
                     ROWAN_EINVALID);
}

TEST(what_a_client_keeps_goes)
{
    static const struct scram_client nothing;
    assert_int_equal(begin(NULL), 0);
    scram_client_fini(&client);
    assert_memory_equal(&client, &nothing, sizeof client);
}

UNIT_MAIN(NULL, NULL)
