/* temp_dir_fixture.h - the fixture of tests that need no more than a directory. */
#ifndef LIB_TEMP_DIR_FIXTURE_H
#define LIB_TEMP_DIR_FIXTURE_H

#include "test/lib/temp_dir.h"
#include "test/lib/unit.h"

static struct temp_dir dir;

static inline int setup(void **state)
{
    (void)state;
    temp_dir_init(&dir);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    temp_dir_fini(&dir);
    return 0;
}

#endif
