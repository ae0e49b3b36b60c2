/* pm_fixture.h - a directory for each test and a map in it. */
#ifndef PM_PM_FIXTURE_H
#define PM_PM_FIXTURE_H

#include <sys/stat.h>

#include "common/base/error.h"
#include "common/pm/pm.h"
#include "test/lib/temp_dir_fixture.h"
#include "test/lib/unit.h"

enum { PAGE = 4096, MAP_BYTES = 16 * PAGE };

static inline struct pm_open_options options_of(const char *name, int create)
{
    return (struct pm_open_options){.path = temp_dir_at(&dir, name),
                                    .bytes = MAP_BYTES,
                                    .create = create,
                                    .durability = PM_FENCE};
}

static inline struct pm *create_map(enum pm_durability durability)
{
    struct pm_open_options options = options_of("pm", 1);
    struct pm *pm = NULL;

    options.durability = durability;
    assert_int_equal(pm_open(&options, &pm), 0);
    return pm;
}

#undef TEST_FIXTURE
#define TEST_FIXTURE setup, teardown

#endif
