/* pm.c - opens a map with the backend that fits its medium, and settles what its fences promise:
 * dax where the mapping is synchronous, file elsewhere; on a file system in memory no fence can
 * promise anything. */
#include "common/pm/pm.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/pm/pm_map.h"

/* Owns `map` on success. */
static int create_backend(const struct pm_map *map, const char *path, enum pm_durability durability,
                          struct reactor *reactor, struct pm **out)
{
    if (map->synchronous)
        return pm_dax_create(map, out);
    if (map->in_memory && durability != PM_NONE) {
        log_event(LOG_WARN, "pm_not_durable",
                  "path=%s asked=%s got=none reason=\"a file system in memory\"", path,
                  pm_durability_name(durability));
        durability = PM_NONE;
    }
    return pm_file_create(map, durability, reactor, out);
}

int pm_open(const struct pm_open_options *options, struct pm **out)
{
    struct pm_map map;
    int error = pm_map_open(options, &map);

    if (error)
        return error;
    error = create_backend(&map, options->path, options->durability, options->reactor, out);
    if (error) {
        if (options->create)
            unlink(options->path);
        pm_map_close(&map);
    }
    return error;
}

/* --- read only --- */

struct reader {
    struct pm pm;
    struct pm_map map;
};

static void close_reader(struct pm *pm)
{
    struct reader *reader = (struct reader *)pm;

    pm_map_close(&reader->map);
    free(reader);
}

int pm_open_read(const char *path, uint64_t offset, uint64_t bytes, struct pm **out)
{
    static const struct pm_ops ops = {.close = close_reader};
    struct reader *reader = calloc(1, sizeof *reader);
    int error = reader ? pm_map_open_read(path, offset, bytes, &reader->map) : ROWAN_ENOMEM;

    if (error) {
        free(reader);
        return error;
    }
    reader->pm = pm_map_head(&reader->map, &ops, PM_NONE, "read");
    reader->pm.fd = -1; /* for nobody else */
    *out = &reader->pm;
    return 0;
}

int pm_open_peer(int fd, uint64_t offset, uint64_t bytes, enum pm_durability durability,
                 struct reactor *reactor, struct pm **out)
{
    struct pm_map map;
    int error = pm_map_open_peer(fd, offset, bytes, &map);

    if (error)
        return error;
    error = create_backend(&map, "(peer)", durability, reactor, out);
    if (error) {
        pm_map_close(&map);
        return error;
    }
    close(fd);
    return 0;
}

uint64_t pm_sync_count(const struct pm *pm)
{
    return pm->ops->sync_count ? pm->ops->sync_count(pm) : 0;
}

const char *pm_durability_name(enum pm_durability durability)
{
    static const char *const names[] = {"fence", "async", "none"};
    return names[durability];
}
