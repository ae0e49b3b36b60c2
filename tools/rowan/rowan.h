/* rowan.h - the commands of `rowan`. Each returns the program's exit code. */
#ifndef TOOLS_ROWAN_ROWAN_H
#define TOOLS_ROWAN_ROWAN_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/admin.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct rowan_settings {
    const char *cm;
    const char *dir;
    const char *value_file; /* "": the value is on the command line */
    uint64_t timeout_ms;    /* 0: the command's own default */
    bool json;
};

/* "rowan: get: "k": not found" on standard error; returns EXIT_FAILED. `subject` may be NULL. */
int command_failed(const char *command, const char *subject, int error);

/* data.c */
int command_get(const struct rowan_settings *settings, const char *cm, const char *key);
int command_put(const struct rowan_settings *settings, const char *cm, const char *key,
                const char *value); /* NULL: from value_file; "-": from standard input */
int command_del(const struct rowan_settings *settings, const char *cm, const char *key);

/* status.c */
int command_status(const struct rowan_settings *settings, const char *cm);
int command_shards(const struct rowan_settings *settings, const char *cm);

/* verify.c */
int command_verify(const struct rowan_settings *settings, const char *cm);

#endif
