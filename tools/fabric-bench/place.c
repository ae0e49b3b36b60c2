/* place.c - directories and memory. */
#include "tools/fabric-bench/place.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/error.h"

enum { CHECKED_BYTES = 4096 }; /* a file that begins with so many zeros counts as empty */

int place_make(struct place *place)
{
    static const char pattern[] = "/dev/shm/rowan-fabric-bench.XXXXXX";

    snprintf(place->directory, sizeof place->directory, "%s", pattern);
    if (!mkdtemp(place->directory)) {
        place->directory[0] = 0;
        return error_from_errno(errno);
    }
    return 0;
}

/* Sockets and locks that the fabric left lie in it, and no directories. */
void place_remove(struct place *place)
{
    DIR *directory = *place->directory ? opendir(place->directory) : NULL;
    struct dirent *entry;

    if (!directory)
        return;
    while ((entry = readdir(directory)) != NULL)
        unlinkat(dirfd(directory), entry->d_name, 0); /* "." and "..": refused */
    closedir(directory);
    rmdir(place->directory);
    place->directory[0] = 0;
}

int place_memory(const struct place *place, const char *name, uint64_t bytes, struct pm **out)
{
    char path[sizeof place->directory + 32];
    bool made;
    snprintf(path, sizeof path, "%s/%s", place->directory, name);
    int error = place_open(path, bytes, PM_NONE, false, out, &made);
    if (!error)
        unlink(path);
    return error;
}

static bool holds_data(const struct pm *pm)
{
    for (uint64_t i = 0; i < CHECKED_BYTES; i++) {
        if (pm->base[i])
            return true;
    }
    return false;
}

int place_open(const char *path, uint64_t bytes, enum pm_durability durability, bool overwrite,
               struct pm **out, bool *made)
{
    struct pm_open_options options = {.path = path, .bytes = bytes, .durability = durability};
    const bool is_there = access(path, F_OK) == 0;
    struct pm *pm;

    options.create = !is_there;
    int error = pm_open(&options, &pm);

    if (error)
        return error;
    if (is_there && holds_data(pm) && !overwrite) {
        pm_close(pm);
        return ROWAN_EEXISTS;
    }
    *made = !is_there;
    *out = pm;
    return 0;
}
