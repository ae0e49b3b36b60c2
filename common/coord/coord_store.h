/* coord_store.h - the directory of the file backend: its value and its two locks. Every function
 * here blocks. Internal to common/coord and its tests. */
#ifndef COORD_COORD_STORE_H
#define COORD_COORD_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/coord/coord.h"

/* The head of the file `value`; the value's bytes follow and end the file. Little-endian. */
struct coord_header {
    uint8_t magic[8];    /* "RWCOORD1": the last byte is the format's number */
    uint64_t version;    /* from 1 */
    uint32_t bytes;      /* of the value */
    uint32_t value_crc;  /* CRC32C of the value */
    uint32_t reserved;   /* 0 */
    uint32_t header_crc; /* CRC32C of all before */
};

enum { COORD_IMAGE_BYTES = (int)sizeof(struct coord_header) + COORD_MAX_VALUE_BYTES };

/* A file whose exclusive lock stands for something. */
struct coord_lock {
    const char *name;
    int fd; /* -1: not open */
    bool held;
};

struct coord_store {
    int directory_fd;
    struct coord_lock leader; /* held: this process leads */
    struct coord_lock value;  /* held during a compare-and-set */
};

/* Errors: ROWAN_ENOTFOUND EPERMISSION EIO. */
int coord_store_open(struct coord_store *store, const char *directory);

/* Gives up what is held. */
void coord_store_close(struct coord_store *store);

/* Reads header and value into `image` (COORD_IMAGE_BYTES + 1). What it found is durable on return.
 * *version and *bytes are 0 when there is no value. Errors: ROWAN_EFORMAT EINCOMPATIBLE EIO. */
int coord_store_read(struct coord_store *store, uint8_t *image, size_t *bytes, uint64_t *version);

/* The version alone; the value is not read. Errors as above. */
int coord_store_peek(struct coord_store *store, uint64_t *version);

/* If the value's version is `expected`, replaces it by the `bytes` in `image` behind the space for a
 * header; durable with version expected + 1 on return. Errors: ROWAN_EAGAIN (another process is in
 * one), EVERSION, EFORMAT, ENOSPACE, EIO: nothing changed; EUNKNOWN: visible, perhaps not durable. */
int coord_store_cas(struct coord_store *store, uint64_t expected, uint8_t *image, size_t bytes);

/* Wins or confirms leadership. Errors: ROWAN_EAGAIN (another leads, or the lock file was replaced),
 * EIO. */
int coord_store_lead(struct coord_store *store);

#endif
