/* temp_dir.h - a directory for one test, on a disk where the host has one: under TMPDIR, or
 * /var/tmp. */
#ifndef LIB_TEMP_DIR_H
#define LIB_TEMP_DIR_H

#include <ftw.h>

#include "test/lib/asserts.h"

struct temp_dir {
    char path[256];
};

static inline void temp_dir_init(struct temp_dir *dir)
{
    const char *parent = getenv("TMPDIR");

    snprintf(dir->path, sizeof(dir->path), "%s/rowan-test-XXXXXX", parent ? parent : "/var/tmp");
    assert_non_null(mkdtemp(dir->path));
}

static inline int temp_dir_remove_one(const char *path, const struct stat *st, int kind,
                                      struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static inline void temp_dir_fini(struct temp_dir *dir)
{
    assert_int_equal(nftw(dir->path, temp_dir_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* The path of `name` inside; good for four calls, not thread-safe. */
static inline const char *temp_dir_at(const struct temp_dir *dir, const char *name)
{
    static char paths[4][320];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", dir->path, name);
    return path;
}

/* Makes the file, with nothing but `text` in it. */
static inline void temp_dir_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

#endif
