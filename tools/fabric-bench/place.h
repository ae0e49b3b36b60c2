/* place.h - the files of a run: a directory in tmpfs for sockets and memory, gone when the program ends. */
#ifndef FABRIC_BENCH_PLACE_H
#define FABRIC_BENCH_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/pm/pm.h"

struct place {
    char directory[64]; /* "": none was made */
};

/* Errors: those of error_from_errno. */
int place_make(struct place *place);
void place_remove(struct place *place);

/* place_memory: memory of the run, in a file that is unlinked at once. Errors: those of pm_open. */
int place_memory(const struct place *place, const char *name, uint64_t bytes, struct pm **out);

/* place_open: `bytes` of a file or device that a user named. A file that is not there is made; *made tells the
 * caller to remove it. Errors: those of pm_open, ROWAN_EEXISTS: it holds data, and `overwrite` is not set. */
int place_open(const char *path, uint64_t bytes, enum pm_durability durability, bool overwrite,
               struct pm **out, bool *made);

#endif
