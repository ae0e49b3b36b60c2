/* pm_lock.c - locks the ranges of owners and peers, and finds out who holds a lock that is in the
 * way.
 *
 * An owner that is killed leaves its peers behind: processes that map the file, store into it with
 * nobody's help, and may be stopped in the middle of a store. Who opens the file next must not do so
 * before they are gone, and nothing but the kernel knows of them for sure.
 *
 * 1. The owner's lock is exclusive, on the bytes of its range. Its description is never handed out.
 * 2. The peers' lock is shared, on the same bytes beyond PM_LOCK_PEERS. The description that the
 *    owner hands out has it, and so has the one that each peer makes for its map. It is released by
 *    nothing but the end of these descriptions: a mapping does not outlive its process, and a peer
 *    unmaps before it closes.
 * 3. A new owner takes the owner's lock first, then the peers' lock exclusively: when it has both,
 *    no description of a former owner or peer is left, and none can come to be. Then it gives the
 *    second one up for its own peers. Nobody else can take it meanwhile, for want of the first.
 */
#include "common/pm/pm_lock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/error.h"
#include "common/base/log.h"

/* Bytes `start` to `end` - 1 of a file, or beyond its end. */
struct range {
    uint64_t start, end;
};

static struct range owner_range(uint64_t offset, uint64_t bytes)
{
    return (struct range){.start = offset, .end = offset + bytes};
}

static struct range peers_range(uint64_t offset, uint64_t bytes)
{
    return owner_range(PM_LOCK_PEERS + offset, bytes);
}

/* 0, ROWAN_EINUSE, or what else the system said, which goes to the log. */
static int set_lock(int fd, short type, struct range range, const char *path)
{
    struct flock lock = {.l_type = type,
                         .l_whence = SEEK_SET,
                         .l_start = (off_t)range.start,
                         .l_len = (off_t)(range.end - range.start)};

    if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
        return 0;
    if (errno == EAGAIN || errno == EACCES)
        return ROWAN_EINUSE;
    log_event(LOG_WARN, "pm_lock_failed", "path=%s reason=\"%s\"", path, strerror(errno));
    return errno == ENOLCK ? ROWAN_ENOMEM : ROWAN_EIO;
}

/* --- who holds it: the kernel names no process for such a lock, but each process's descriptors --- */

/* "lock: 1: OFDLCK ADVISORY READ -1 fe:00:1234 4611686018427387904 4611686018427453439", where the
 * last may be "EOF" (proc_pid_fdinfo(5)). */
static bool line_holds(const char *line, uint64_t inode, struct range range)
{
    uint64_t found, start;
    char end[24];
    const int fields =
        sscanf(line, "lock: %*s OFDLCK %*s %*s %*s %*x:%*x:%" SCNu64 " %" SCNu64 " %23s", &found,
               &start, end);

    return fields == 3 && found == inode && start < range.end &&
           (end[0] == 'E' || strtoull(end, NULL, 10) >= range.start);
}

static bool descriptor_holds(const char *path, uint64_t inode, struct range range)
{
    FILE *file = fopen(path, "re");
    char line[256];
    bool holds = false;

    if (!file)
        return false;
    while (!holds && fgets(line, sizeof line, file))
        holds = line_holds(line, inode, range);
    fclose(file);
    return holds;
}

static bool process_holds(const char *pid, uint64_t inode, struct range range)
{
    char path[600];
    const struct dirent *entry;
    bool holds = false;
    DIR *directory;

    snprintf(path, sizeof path, "/proc/%s/fdinfo", pid);
    directory = opendir(path);
    if (!directory) /* it has ended, or is another user's */
        return false;
    while (!holds && (entry = readdir(directory))) {
        snprintf(path, sizeof path, "/proc/%s/fdinfo/%s", pid, entry->d_name);
        holds = entry->d_name[0] != '.' && descriptor_holds(path, inode, range);
    }
    closedir(directory);
    return holds;
}

/* Writes the number of a process that holds the lock in `range`, or "unknown". */
static void name_holder(int fd, struct range range, char *out, size_t out_bytes)
{
    const struct dirent *entry;
    struct stat st;
    DIR *processes = opendir("/proc");

    snprintf(out, out_bytes, "unknown");
    if (!processes)
        return;
    while (fstat(fd, &st) == 0 && (entry = readdir(processes))) {
        if (isdigit((unsigned char)entry->d_name[0]) &&
            process_holds(entry->d_name, st.st_ino, range)) {
            snprintf(out, out_bytes, "%.20s", entry->d_name);
            break;
        }
    }
    closedir(processes);
}

static void log_holder(const char *event, int fd, const char *path, struct range range,
                       const char *reason)
{
    char pid[24];

    name_holder(fd, range, pid, sizeof pid);
    log_event(LOG_WARN, event, "path=%s pid=%s reason=\"%s\"", path, pid, reason);
}

/* --- the three steps --- */

static int await_peers(int fd, const char *path, struct range range, unsigned wait_ms)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int error = set_lock(fd, F_WRLCK, range, path);

    if (error == ROWAN_EINUSE && wait_ms > 0)
        log_holder("pm_waits_for_peer", fd, path, range,
                   "a process that an earlier server let in still maps this file");
    for (unsigned ms = 0; error == ROWAN_EINUSE && ms < wait_ms; ms++) {
        nanosleep(&pause, NULL);
        error = set_lock(fd, F_WRLCK, range, path);
    }
    if (error == ROWAN_EINUSE)
        log_holder("pm_in_use", fd, path, range,
                   "a process that an earlier server let in still maps this file and could change "
                   "it; let it go on if it is stopped, or end it, and start again");
    return error;
}

int pm_lock_read(int fd, const char *path, uint64_t offset, uint64_t bytes)
{
    const struct range own = owner_range(offset, bytes);
    int error = set_lock(fd, F_RDLCK, own, path);

    if (error == ROWAN_EINUSE)
        log_holder("pm_in_use", fd, path, own, "a server runs on this file");
    return error;
}

int pm_lock_own(int fd, const char *path, uint64_t offset, uint64_t bytes, unsigned wait_ms)
{
    const struct range own = owner_range(offset, bytes);
    int error = set_lock(fd, F_WRLCK, own, path);

    if (error == ROWAN_EINUSE)
        log_holder("pm_in_use", fd, path, own, "another server runs on this file");
    return error ? error : await_peers(fd, path, peers_range(offset, bytes), wait_ms);
}

int pm_lock_admit(int own_fd, int peer_fd, const char *path, uint64_t offset, uint64_t bytes)
{
    const struct range peers = peers_range(offset, bytes);
    int error = set_lock(own_fd, F_UNLCK, peers, path);

    if (!error)
        error = set_lock(peer_fd, F_RDLCK, peers, path);
    return error == ROWAN_EINUSE ? ROWAN_EIO : error; /* 3: it cannot be */
}

int pm_lock_join(int fd, const char *path, uint64_t offset, uint64_t bytes)
{
    return set_lock(fd, F_RDLCK, peers_range(offset, bytes), path);
}
