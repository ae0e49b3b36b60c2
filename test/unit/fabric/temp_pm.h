/* temp_pm.h - PM of a test in a file that has no name any more. Include after cmocka.h. */
#ifndef TEST_TEMP_PM_H
#define TEST_TEMP_PM_H

#include <stdio.h>
#include <unistd.h>

#include "common/pm/pm.h"
#include "test/lib/temp_dir.h"

/* Of zeros; `number` is no other's that is being opened. What pm_open answers. */
static inline int temp_pm_open(const struct temp_dir *dir, unsigned number, uint64_t bytes,
                               enum pm_durability durability, struct pm **out)
{
    char path[512];
    const struct pm_open_options options = {
        .path = path, .bytes = bytes, .create = 1, .durability = durability};
    int error;

    snprintf(path, sizeof path, "%s/pm-%u", dir->path, number);
    error = pm_open(&options, out);
    unlink(path);
    return error;
}

#endif
