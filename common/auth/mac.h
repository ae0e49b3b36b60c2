/* mac.h - who has a key shows it by a code over some bytes: HMAC-SHA-256 (RFC 2104), by libcrypto. Any thread. */
#ifndef AUTH_MAC_H
#define AUTH_MAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAC_BYTES = 32 };

/* False: no memory in libcrypto. */
bool mac_make(const void *key, size_t key_bytes, const void *data, size_t bytes,
              uint8_t out[MAC_BYTES]);

/* A key for one use, of a key that has several: each use has a label of its own, so that no code made for one is right for another.
 * False: likewise. */
bool mac_subkey(const void *key, size_t key_bytes, const char *label, uint8_t out[MAC_BYTES]);

/* Takes as long whatever differs. */
bool mac_equal(const uint8_t a[MAC_BYTES], const uint8_t b[MAC_BYTES]);

#endif
