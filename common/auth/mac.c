/* mac.c - see mac.h. */
#include "common/auth/mac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

bool mac_make(const void *key, size_t key_bytes, const void *data, size_t bytes,
              uint8_t out[MAC_BYTES])
{
    unsigned got = MAC_BYTES;
    return key_bytes <= INT32_MAX &&
           HMAC(EVP_sha256(), key, (int)key_bytes, data, bytes, out, &got);
}

bool mac_subkey(const void *key, size_t key_bytes, const char *label, uint8_t out[MAC_BYTES])
{
    return mac_make(key, key_bytes, label, strlen(label), out);
}

bool mac_equal(const uint8_t a[MAC_BYTES], const uint8_t b[MAC_BYTES])
{
    return CRYPTO_memcmp(a, b, MAC_BYTES) == 0;
}
