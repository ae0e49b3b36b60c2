/* coord_file_test.c - the file backend against the conformance cases. */

#include <sys/stat.h>

#include "test/lib/asserts.h"
#include "test/lib/coord_conformance.h"
#include "test/lib/temp_dir.h"
#include "test/lib/wait.h"

static struct temp_dir dir;

static void start(void *context)
{
    (void)context;
    temp_dir_init(&dir);
}

static void stop(void *context)
{
    (void)context;
    temp_dir_fini(&dir);
}

static struct coord *open_handle(void *context)
{
    struct coord *coord;
    (void)context;
    assert_int_equal(coord_open_file(dir.path, NULL, &coord), 0);
    return coord;
}

static uint64_t tick(void *context)
{
    (void)context;
    wait_pause();
    return clock_now_ns(clock_system());
}

int main(void)
{
    const struct coord_backend backend = {
        .name = "file", .start = start, .stop = stop, .open = open_handle, .tick = tick};
    return coord_conformance_run("coord_file", &backend, 1);
}
