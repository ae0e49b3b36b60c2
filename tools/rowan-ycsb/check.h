/* check.h - `rowan-ycsb check FILE`: is every acknowledged write still there? */
#ifndef YCSB_CHECK_H
#define YCSB_CHECK_H

#include <stdbool.h>
#include <stdint.h>

struct check_options {
    const char *cm;
    const char *user, *secret_file; /* "": nobody logs in */
    const char *path;
    uint32_t depth, timeout_ms;
    bool json;
};

/* Reads each record that the file names. A record is right if its stored version is higher than the
 * highest acknowledged one, or is that one with the value that was written. Returns the program's
 * exit code: 0, or 1 if a write is lost or could not be read. */
int check_run(const struct check_options *options);

#endif
