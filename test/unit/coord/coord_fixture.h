/* coord_fixture.h - a directory for each test, and owners of handles on it. */
#ifndef COORD_COORD_FIXTURE_H
#define COORD_COORD_FIXTURE_H

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/error.h"
#include "test/lib/coord_owner.h"
#include "test/lib/temp_dir_fixture.h"
#include "test/lib/unit.h"

static struct owner alice;

static inline void open_owner(struct owner *owner)
{
    memset(owner, 0, sizeof(*owner));
    assert_int_equal(coord_open_file(dir.path, NULL, &owner->coord), 0);
}

static inline void save_file(const char *name, const uint8_t *bytes, size_t count)
{
    int fd = open(temp_dir_at(&dir, name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
}

/* Takes and holds the lock of `name` as another process would. */
static inline int hold_lock(const char *name)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(temp_dir_at(&dir, name), O_RDWR | O_CREAT, 0600);

    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    return fd;
}

/* Made by a script apart from this code from the layout in coord_store.h. */
static const uint8_t golden[] = {0x52, 0x57, 0x43, 0x4f, 0x4f, 0x52, 0x44, 0x31, 0x07, 0x00,
                                 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00,
                                 0x4c, 0xbb, 0x71, 0x9a, 0x00, 0x00, 0x00, 0x00, 0x1d, 0xba,
                                 0xcd, 0x75, 0x68, 0x65, 0x6c, 0x6c, 0x6f};

#undef TEST_FIXTURE
#define TEST_FIXTURE setup, teardown

#endif
