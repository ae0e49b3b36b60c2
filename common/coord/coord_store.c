/* coord_store.c - a directory with one versioned value in it.
 *
 *   value       the value, complete and synced before it got this name; never written again
 *   value.new   the next value, being written; worthless after a crash
 *   value.lock  locked during a compare-and-set
 *   lock        locked by the leader
 *
 * A compare-and-set:
 *   1. lock value.lock
 *   2. read the version in value, compare
 *   3. write value.new, sync it
 *   4. rename it to value       <- the one step that commits it for every process
 *   5. sync the directory       <- and for a crash of the host
 *   6. unlock
 *
 * 1. Nobody is answered a value that a crash could take back: a writer that died between 4 and 5 leaves
 *    one that is visible but not durable, so a reader syncs the directory before it answers.
 * 2. A lock counts only while its file still has its name: a file removed and made again is another
 *    lock.
 */
#include "common/coord/coord_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/crc.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/version.h"

static const uint8_t coord_magic[8] = {'R', 'W', 'C', 'O',
                                       'O', 'R', 'D', '0' + VERSION_COORDINATION_HIGHEST};

_Static_assert(sizeof(struct coord_header) == 32, "the format of the value file");
_Static_assert(offsetof(struct coord_header, version) == 8, "the format of the value file");
_Static_assert(offsetof(struct coord_header, header_crc) == 28, "the format of the value file");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian");

static uint32_t header_crc(const struct coord_header *header)
{
    return crc32c(0, header, offsetof(struct coord_header, header_crc));
}

static int step_failed(const char *step)
{
    int system_errno = errno;

    log_event(LOG_WARN, "coord_failed", "step=\"%s\" reason=\"%s\"", step, strerror(system_errno));
    return system_errno == ENOSPC || system_errno == EDQUOT ? ROWAN_ENOSPACE : ROWAN_EIO;
}

static void close_lock(struct coord_lock *lock)
{
    if (lock->fd >= 0)
        close(lock->fd);
    lock->fd = -1;
    lock->held = false;
}

static int open_lock(struct coord_store *store, struct coord_lock *lock)
{
    if (lock->fd >= 0)
        return 0;
    lock->fd = openat(store->directory_fd, lock->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return lock->fd < 0 ? -1 : 0;
}

static bool lock_has_its_name(const struct coord_store *store, const struct coord_lock *lock)
{
    struct stat ours, named;

    return fstat(lock->fd, &ours) == 0 &&
           fstatat(store->directory_fd, lock->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

/* Open file description locks (fcntl(2)): two handles of one process exclude each other too, and
 * the death of a process releases them. */
static int take_lock(struct coord_store *store, struct coord_lock *lock)
{
    struct flock request = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (open_lock(store, lock) < 0)
        return step_failed("open lock");
    if (!lock->held) {
        if (fcntl(lock->fd, F_OFD_SETLK, &request) < 0)
            return errno == EAGAIN || errno == EACCES ? ROWAN_EAGAIN : step_failed("lock");
        lock->held = true;
    }
    if (!lock_has_its_name(store, lock)) {
        close_lock(lock);
        return ROWAN_EAGAIN;
    }
    return 0;
}

static void release_lock(struct coord_lock *lock)
{
    struct flock request = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

    if (fcntl(lock->fd, F_OFD_SETLK, &request) < 0)
        close_lock(lock); /* closing unlocks what unlocking could not */
    lock->held = false;
}

int coord_store_open(struct coord_store *store, const char *directory)
{
    struct coord_store opened = {.leader = {.name = "lock", .fd = -1},
                                 .value = {.name = "value.lock", .fd = -1}};
    int error;

    opened.directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened.directory_fd < 0)
        goto fail;
    if (open_lock(&opened, &opened.value) < 0)
        goto fail;
    *store = opened;
    return 0;

fail:
    error = errno == ENOTDIR ? ROWAN_ENOTFOUND : error_from_errno(errno);
    log_event(LOG_WARN, "coord_open_failed", "directory=%s reason=\"%s\"", directory,
              strerror(errno));
    if (opened.directory_fd >= 0)
        close(opened.directory_fd);
    return error == ROWAN_ENOTFOUND || error == ROWAN_EPERMISSION ? error : ROWAN_EIO;
}

void coord_store_close(struct coord_store *store)
{
    close_lock(&store->leader);
    close_lock(&store->value);
    close(store->directory_fd);
}

/* Reads up to `bytes`; fewer only at the end of the file. */
static ssize_t read_whole(int fd, uint8_t *buffer, size_t bytes)
{
    size_t have = 0;

    while (have < bytes) {
        ssize_t got = read(fd, buffer + have, bytes - have);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

static int write_whole(int fd, const uint8_t *buffer, size_t bytes)
{
    while (bytes > 0) {
        ssize_t put = write(fd, buffer, bytes);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -1;
        buffer += put;
        bytes -= (size_t)put;
    }
    return 0;
}

static int check_header(const struct coord_header *header)
{
    const size_t letters = sizeof(coord_magic) - 1;
    const uint8_t format = (uint8_t)(header->magic[letters] - '0');

    if (memcmp(header->magic, coord_magic, letters) != 0 ||
        header->header_crc != header_crc(header))
        return ROWAN_EFORMAT;
    if (format < VERSION_COORDINATION_LOWEST || format > VERSION_COORDINATION_HIGHEST)
        return ROWAN_EINCOMPATIBLE;
    if (header->reserved != 0 || header->version == 0 || header->bytes > COORD_MAX_VALUE_BYTES)
        return ROWAN_EFORMAT;
    return 0;
}

/* Reads up to `bytes` of the file; *have is 0 when there is none. Checks the header only. */
static int load_image(struct coord_store *store, uint8_t *image, size_t bytes, size_t *have,
                      struct coord_header *header)
{
    int fd = openat(store->directory_fd, "value", O_RDONLY | O_CLOEXEC);
    ssize_t got;

    *have = 0;
    memset(header, 0, sizeof(*header));
    if (fd < 0)
        return errno == ENOENT ? 0 : step_failed("open value");
    got = read_whole(fd, image, bytes);
    close(fd);
    if (got < 0)
        return step_failed("read value");
    if ((size_t)got < sizeof(*header))
        return ROWAN_EFORMAT;
    *have = (size_t)got;
    memcpy(header, image, sizeof(*header));
    return check_header(header);
}

int coord_store_read(struct coord_store *store, uint8_t *image, size_t *bytes, uint64_t *version)
{
    struct coord_header header;
    size_t have;
    /* One byte more than the largest image, so that a longer file is noticed. */
    int error = load_image(store, image, COORD_IMAGE_BYTES + 1, &have, &header);

    if (error)
        return error;
    if (have > 0 && (have != sizeof(header) + header.bytes ||
                     crc32c(0, image + sizeof(header), header.bytes) != header.value_crc))
        return ROWAN_EFORMAT;
    if (fsync(store->directory_fd) < 0)
        return step_failed("sync directory");
    *bytes = header.bytes;
    *version = header.version;
    return 0;
}

int coord_store_peek(struct coord_store *store, uint64_t *version)
{
    uint8_t image[sizeof(struct coord_header)];
    struct coord_header header;
    size_t have;
    int error = load_image(store, image, sizeof(image), &have, &header);

    if (!error)
        *version = header.version;
    return error;
}

static int write_new(struct coord_store *store, const uint8_t *image, size_t bytes)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    int fd = openat(store->directory_fd, "value.new", flags, 0600);
    int error = 0;

    if (fd < 0)
        return step_failed("create value.new");
    if (write_whole(fd, image, bytes) < 0)
        error = step_failed("write value.new");
    else if (fsync(fd) < 0)
        error = step_failed("sync value.new");
    close(fd);
    return error;
}

/* Steps 2 to 5. */
static int replace_value(struct coord_store *store, uint64_t expected, uint8_t *image, size_t bytes)
{
    struct coord_header header = {.bytes = (uint32_t)bytes};
    uint64_t version;
    int error = coord_store_peek(store, &version);

    if (error)
        return error;
    if (version != expected)
        return ROWAN_EVERSION;
    memcpy(header.magic, coord_magic, sizeof(coord_magic));
    header.version = expected + 1;
    header.value_crc = crc32c(0, image + sizeof(header), bytes);
    header.header_crc = header_crc(&header);
    memcpy(image, &header, sizeof(header));
    error = write_new(store, image, sizeof(header) + bytes);
    if (error)
        goto remove;
    if (renameat(store->directory_fd, "value.new", store->directory_fd, "value") < 0) {
        error = step_failed("rename value.new");
        goto remove;
    }
    if (fsync(store->directory_fd) < 0) {
        step_failed("sync directory");
        return ROWAN_EUNKNOWN;
    }
    return 0;

remove:
    unlinkat(store->directory_fd, "value.new", 0);
    return error;
}

int coord_store_cas(struct coord_store *store, uint64_t expected, uint8_t *image, size_t bytes)
{
    int error = take_lock(store, &store->value);

    if (error)
        return error;
    error = replace_value(store, expected, image, bytes);
    release_lock(&store->value);
    return error;
}

int coord_store_lead(struct coord_store *store)
{
    return take_lock(store, &store->leader);
}
