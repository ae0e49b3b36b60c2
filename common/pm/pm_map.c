/* pm_map.c - finds the size of a file or device, locks the range, reserves its space and maps it.
 *
 * 1. Every byte of a map lies inside the file when it is mapped, so that no load or store can meet
 *    SIGBUS, and has its block, so that no store can meet a full disk.
 * 2. The owner's lock and the descriptor that peers get are two open file descriptions: a lock lasts
 *    as long as its description, and the owner's must end with the owner, the peers' with the last
 *    of them (pm_lock.c). A peer opens the file again and locks before it closes what it got.
 * 3. A file that this call made is gone again when the call fails.
 */
#include "common/pm/pm_map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libpmem.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/pm/pm_device.h"
#include "common/pm/pm_lock.h"

enum { MAP_ALIGN_BYTES = 4096 };

/* The system's reason goes to the log, the caller gets the code. */
static int step_failed(const char *step, const char *path, int system_errno)
{
    log_event(LOG_WARN, "pm_open_failed", "path=%s step=\"%s\" reason=\"%s\"", path, step,
              strerror(system_errno));
    switch (system_errno) {
    case EFBIG: /* over the file system's or the process's limit for one file */
        return ROWAN_ENOSPACE;
    case ENOTDIR:
        return ROWAN_ENOTFOUND;
    case EISDIR:
        return ROWAN_EINVALID;
    default:
        return error_from_errno(system_errno);
    }
}

static bool range_is_valid(uint64_t offset, uint64_t bytes)
{
    /* Beyond it the locks of the peers lie, and these must fit an off_t. */
    return (offset | bytes) % MAP_ALIGN_BYTES == 0 && offset < PM_LOCK_PEERS &&
           bytes < PM_LOCK_PEERS - offset;
}

static int open_again(int fd)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static bool read_device(int fd, struct pm_device *out)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && pm_device_read(st.st_rdev, out) == 0;
}

/* How many bytes there are, and of what offset and length must be multiples. */
static int find_bytes(int fd, const char *path, uint64_t *bytes, uint64_t *align_bytes)
{
    struct pm_device device;
    struct stat st;
    off_t end;

    *align_bytes = MAP_ALIGN_BYTES;

    if (fstat(fd, &st) < 0)
        return step_failed("stat", path, errno);
    switch (st.st_mode & S_IFMT) {
    case S_IFREG:
        *bytes = (uint64_t)st.st_size;
        return 0;
    case S_IFBLK:
        end = lseek(fd, 0, SEEK_END);
        if (end < 0)
            return step_failed("device size", path, errno);
        *bytes = (uint64_t)end;
        return 0;
    case S_IFCHR:
        if (!read_device(fd, &device))
            return step_failed("kind of device", path, EINVAL);
        *bytes = device.bytes;
        *align_bytes = device.align_bytes;
        return 0;
    default:
        return step_failed("kind of file", path, EINVAL);
    }
}

/* Settles how many bytes the map has: `bytes` as asked, 0 for all there is behind `offset`. */
static int settle_bytes(int fd, const char *path, uint64_t offset, uint64_t *bytes)
{
    uint64_t there = 0, usable, align_bytes;
    int error = find_bytes(fd, path, &there, &align_bytes);

    if (error)
        return error;
    if (offset % align_bytes != 0 || *bytes % align_bytes != 0) {
        log_event(LOG_WARN, "pm_not_aligned",
                  "path=%s align=%" PRIu64 " offset=%" PRIu64 " wanted=%" PRIu64, path, align_bytes,
                  offset, *bytes);
        return ROWAN_EINVALID;
    }
    usable = there > offset ? there - offset : 0;
    if (*bytes == 0)
        *bytes = usable - usable % align_bytes;
    if (*bytes == 0 || *bytes > usable) {
        log_event(LOG_WARN, "pm_too_small",
                  "path=%s bytes=%" PRIu64 " offset=%" PRIu64 " wanted=%" PRIu64, path, there,
                  offset, *bytes);
        return ROWAN_EFORMAT;
    }
    return 0;
}

/* posix_fallocate writes a byte into each block where the file system cannot reserve. */
static int reserve_space(int fd, const char *path, uint64_t offset, uint64_t bytes)
{
    struct stat st;
    int system_errno;

    if (fstat(fd, &st) < 0)
        return step_failed("stat", path, errno);
    if (!S_ISREG(st.st_mode))
        return 0;
    do
        system_errno = posix_fallocate(fd, (off_t)offset, (off_t)bytes);
    while (system_errno == EINTR);
    return system_errno ? step_failed("reserve space", path, system_errno) : 0;
}

static int sync_directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *directory;
    int fd, error = 0;

    if (!slash)
        directory = strdup(".");
    else
        directory = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (!directory)
        return ROWAN_ENOMEM;
    fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        error = step_failed("sync directory", directory, errno);
    if (fd >= 0)
        close(fd);
    free(directory);
    return error;
}

/* Reserves, and where the file is new makes it durable under its name. */
static int prepare_file(int fd, const struct pm_open_options *options, uint64_t bytes)
{
    int error = reserve_space(fd, options->path, options->offset, bytes);

    if (error || !options->create || options->durability == PM_NONE)
        return error;
    if (fsync(fd) < 0)
        return step_failed("sync", options->path, errno);
    return sync_directory_of(options->path);
}

static int find_in_memory(int fd, const char *path, bool *in_memory)
{
    struct statfs fs;

    if (fstatfs(fd, &fs) < 0)
        return step_failed("file system", path, errno);
    *in_memory =
        fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC;
    return 0;
}

static int map_device(int fd, const char *path, const struct pm_device *device, uint64_t offset,
                      struct pm_map *map)
{
    const int access = PROT_READ | PROT_WRITE;
    void *place = pm_device_reserve(device, offset, map->bytes);

    if (place == MAP_FAILED)
        return step_failed("reserve addresses", path, errno);
    map->base = mmap(place, map->bytes, access, MAP_SHARED_VALIDATE | MAP_SYNC | MAP_FIXED, fd,
                     (off_t)offset);
    if (map->base == MAP_FAILED) {
        int error = step_failed("map", path, errno);
        munmap(place, map->bytes);
        return error;
    }
    map->synchronous = true;
    return 0;
}

/* MAP_SYNC succeeds on DAX only (mmap(2)). Large pages are left to the file system: it chose the
 * page size when it reserved the space. */
static int map_range(int fd, const char *path, uint64_t offset, struct pm_map *map)
{
    const int access = PROT_READ | PROT_WRITE;
    struct pm_device device;
    void *base;

    if (read_device(fd, &device))
        return map_device(fd, path, &device, offset, map);
    base = mmap(NULL, map->bytes, access, MAP_SHARED_VALIDATE | MAP_SYNC, fd, (off_t)offset);

    map->synchronous = base != MAP_FAILED;
    if (base == MAP_FAILED) {
        base = mmap(NULL, map->bytes, access, MAP_SHARED, fd, (off_t)offset);
        if (base == MAP_FAILED)
            return step_failed("map", path, errno);
        /* libpmem knows no mapping but its own, so this is true only where PMEM_IS_PMEM_FORCE=1
         * (libpmem(7)) says so: memory that a person vouches for, and the tests of dax. */
        map->synchronous = pmem_is_pmem(base, map->bytes);
    }
    map->base = base;
    return 0;
}

/* 0 for a regular file without a byte: just made, or by a process that ended before it reserved the
 * space. ROWAN_EEXISTS for any other. */
static int check_empty(int fd, const char *path)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return step_failed("stat", path, errno);
    return S_ISREG(st.st_mode) && st.st_size == 0 ? 0 : ROWAN_EEXISTS;
}

/* Opens a file that is there, or makes one. `*fd` is open on return, or -1. */
static int open_file(const struct pm_open_options *options, int *fd, bool *made)
{
    const int flags = O_RDWR | O_CLOEXEC;

    *fd = open(options->path, flags | (options->create ? O_CREAT | O_EXCL : 0), 0600);
    if (*fd < 0 && errno == EEXIST) {
        *fd = open(options->path, flags);
        return *fd < 0 ? ROWAN_EEXISTS : check_empty(*fd, options->path);
    }
    if (*fd < 0)
        return step_failed("open", options->path, errno);
    *made = options->create;
    return 0;
}

int pm_map_open(const struct pm_open_options *options, struct pm_map *out)
{
    struct pm_map map = {.bytes = options->bytes, .offset = options->offset, .fd = -1};
    bool made = false; /* a failure removes it */
    int error;

    if (!range_is_valid(options->offset, options->bytes) || (options->create && !options->bytes))
        return ROWAN_EINVALID;
    error = open_file(options, &map.lock_fd, &made);
    if (error)
        goto fail;
    if (!options->create) {
        error = settle_bytes(map.lock_fd, options->path, options->offset, &map.bytes);
        if (error)
            goto fail;
    }
    error =
        pm_lock_own(map.lock_fd, options->path, options->offset, map.bytes, options->peers_wait_ms);
    if (!error && options->create)
        error = check_empty(map.lock_fd, options->path); /* somebody may have been quicker */
    if (error == ROWAN_EINUSE || error == ROWAN_EEXISTS)
        made = false;
    if (error)
        goto fail;
    made = options->create;
    error = prepare_file(map.lock_fd, options, map.bytes);
    if (error)
        goto fail;
    error = find_in_memory(map.lock_fd, options->path, &map.in_memory);
    if (error)
        goto fail;
    map.fd = open_again(map.lock_fd);
    if (map.fd < 0) {
        error = step_failed("open again through /proc", options->path, errno);
        goto fail;
    }
    error = pm_lock_admit(map.lock_fd, map.fd, options->path, options->offset, map.bytes);
    if (error)
        goto fail_close_again;
    error = map_range(map.fd, options->path, options->offset, &map);
    if (error)
        goto fail_close_again;
    *out = map;
    return 0;

fail_close_again:
    close(map.fd);
fail:
    if (made)
        unlink(options->path);
    if (map.lock_fd >= 0)
        close(map.lock_fd);
    return error;
}

int pm_map_open_read(const char *path, uint64_t offset, uint64_t bytes, struct pm_map *out)
{
    struct pm_map map = {.bytes = bytes, .offset = offset, .lock_fd = -1};
    int error;

    if (!range_is_valid(offset, bytes))
        return ROWAN_EINVALID;
    map.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe has nobody to wait for */
    if (map.fd < 0)
        return step_failed("open", path, errno);
    error = settle_bytes(map.fd, path, offset, &map.bytes);
    if (!error)
        error = pm_lock_read(map.fd, path, offset, map.bytes);
    if (!error) {
        map.base = mmap(NULL, map.bytes, PROT_READ, MAP_SHARED, map.fd, (off_t)offset);
        error = map.base == MAP_FAILED ? step_failed("map", path, errno) : 0;
    }
    if (error) {
        close(map.fd);
        return error;
    }
    *out = map;
    return 0;
}

int pm_map_open_peer(int fd, uint64_t offset, uint64_t bytes, struct pm_map *out)
{
    static const char path[] = "(peer)";
    struct pm_map map = {.bytes = bytes, .offset = offset, .lock_fd = -1};
    int error;

    if (!range_is_valid(offset, bytes) || bytes == 0)
        return ROWAN_EINVALID;
    error = settle_bytes(fd, path, offset, &map.bytes);
    if (error)
        return error;
    error = find_in_memory(fd, path, &map.in_memory);
    if (error)
        return error;
    map.fd = open_again(fd);
    if (map.fd < 0)
        return step_failed("open again through /proc", path, errno);
    error = pm_lock_join(map.fd, path, offset, map.bytes);
    if (!error)
        error = map_range(map.fd, path, offset, &map);
    if (error) {
        close(map.fd);
        return error;
    }
    *out = map;
    return 0;
}

void pm_map_close(struct pm_map *map)
{
    munmap(map->base, map->bytes);
    close(map->fd);
    if (map->lock_fd >= 0)
        close(map->lock_fd);
}
