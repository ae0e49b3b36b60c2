/* acked.h - the file that records every acknowledged write, for `check` to verify later. */
#ifndef YCSB_ACKED_H
#define YCSB_ACKED_H

#include <stdint.h>

#include "tools/rowan-ycsb/workload.h"

/* One acknowledged write. Little-endian, as they lie in the file behind its header. */
struct acked_record {
    uint64_t record;
    uint64_t version;
    uint64_t seed; /* of the value */
};

/* acked_open: creates the file, or appends to that of an earlier run of the same profile; a last record
 * that is not whole is removed. *fd may be used by several threads. Errors: ROWAN_EINVALID (another
 * profile's), ROWAN_EFORMAT (not such a file), or what the system said. */
int acked_open(const char *path, const char *profile, int *fd);

/* Appends with one system call, so that records of several threads do not mix. */
int acked_append(int fd, const struct acked_record *records, uint32_t count);

/* The highest acknowledged write of each record. */
struct acked_table {
    uint64_t count;   /* records 0 to count - 1 */
    uint64_t writes;  /* in the file */
    uint64_t records; /* that have an acknowledged write */
    struct acked_last {
        uint64_t version; /* 0: none */
        uint64_t seed;
    } * last;
    char profile[WORKLOAD_NAME_BYTES];
};

/* acked_load: errors as above, ROWAN_ENOMEM. */
int acked_load(const char *path, struct acked_table *out);
void acked_free(struct acked_table *table);

#endif
