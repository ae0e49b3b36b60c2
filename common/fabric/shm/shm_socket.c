/* shm_socket.c - addresses, unix sockets, descriptors passed through them, and sealed memory.
 * Everything here answers at once: sockets never block.
 *
 * 1. A socket's path may be longer than sun_path (108 bytes): its directory is opened and named
 *    through /proc/self/fd.
 * 2. Who listens at a name is decided under a lock of the directory: of two processes that both
 *    find a dead one's socket, only one replaces it, and nobody sees a socket that is bound but
 *    does not listen yet.
 * 3. A peer's memory is mapped only if it can no longer shrink: a shorter file would make every
 *    access a SIGBUS.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/shm/shm.h"

enum { BACKLOG = 1024 };

#define MEMORY_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int address_parse(const char *address, char **directory, char name[SHM_NAME_BYTES])
{
    static const char scheme[] = "shm:";
    const char *path, *slash;
    size_t bytes;

    if (strncmp(address, scheme, sizeof scheme - 1) != 0)
        return ROWAN_EINVALID;
    path = address + sizeof scheme - 1;
    slash = strrchr(path, '/');
    if (path[0] != '/' || slash[1] == '\0' || strlen(slash + 1) >= SHM_NAME_BYTES)
        return ROWAN_EINVALID;
    bytes = slash == path ? 1 : (size_t)(slash - path);
    *directory = strndup(path, bytes);
    if (!*directory)
        return ROWAN_ENOMEM;
    snprintf(name, SHM_NAME_BYTES, "%s", slash + 1);
    return 0;
}

static void fill_address(struct sockaddr_un *out, int directory_fd, const char *name,
                         uint32_t index)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%.*s.%u", directory_fd,
             SHM_NAME_BYTES, name, index);
}

static int socket_open(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* A bound name answers "refused" when nobody holds its socket any more. */
static bool is_stale(const struct sockaddr_un *address)
{
    int fd = socket_open();
    bool stale;

    if (fd < 0)
        return false;
    stale =
        connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 && errno == ECONNREFUSED;
    close(fd);
    return stale;
}

static int listen_locked(int fd, const struct sockaddr_un *address)
{
    int failed = bind(fd, (const struct sockaddr *)address, sizeof *address);

    if (failed < 0 && errno == EADDRINUSE && is_stale(address)) {
        if (unlink(address->sun_path) < 0)
            return error_from_errno(errno);
        failed = bind(fd, (const struct sockaddr *)address, sizeof *address);
    }
    if (failed < 0)
        return error_from_errno(errno);
    if (listen(fd, BACKLOG) < 0)
        return ROWAN_EIO;
    return 0;
}

int socket_listen(int directory_fd, const char *name, uint32_t index, int *out_fd)
{
    const int fd = socket_open();
    struct sockaddr_un address;
    int error = ROWAN_EIO;

    fill_address(&address, directory_fd, name, index);
    if (fd < 0)
        return error;
    if (flock(directory_fd, LOCK_EX) == 0)
        error = listen_locked(fd, &address);
    flock(directory_fd, LOCK_UN);
    if (error) {
        log_event(LOG_WARN, "shm_listen_failed", "name=%s index=%u reason=\"%s\"", name, index,
                  error_sentence(error));
        close(fd);
        return error;
    }
    *out_fd = fd;
    return 0;
}

void socket_unlink(int directory_fd, const char *name, uint32_t index)
{
    char file[SHM_NAME_BYTES + 16];

    snprintf(file, sizeof file, "%s.%u", name, index);
    unlinkat(directory_fd, file, 0);
}

int socket_connect(const char *directory, const char *name, uint32_t index, int *out_fd)
{
    const int directory_fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int fd = directory_fd < 0 ? -1 : socket_open();
    struct sockaddr_un address;
    int error = ROWAN_EUNREACHABLE;

    fill_address(&address, directory_fd, name, index);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        error = 0;
    else if (fd >= 0 && errno == EAGAIN)
        error = ROWAN_EAGAIN;
    close_fd(directory_fd);
    if (error)
        close_fd(fd);
    else
        *out_fd = fd;
    return error;
}

union control_buffer {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(SHM_MAX_FDS * sizeof(int))];
};

int socket_send(int fd, const void *data, size_t bytes, const int *fds, unsigned fd_count)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    union control_buffer control;
    ssize_t sent;

    if (fd_count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, fd_count * sizeof(int));
    }
    do
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return errno == EAGAIN ? ROWAN_EAGAIN : ROWAN_ECLOSED;
    return 0;
}

/* Collects passed descriptors; true if there was nothing else in the control data. */
static bool take_fds(struct msghdr *message, int fds[SHM_MAX_FDS], unsigned *fd_count)
{
    bool clean = !(message->msg_flags & (MSG_TRUNC | MSG_CTRUNC));

    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            clean = false;
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (*fd_count < SHM_MAX_FDS) {
                fds[(*fd_count)++] = fd;
            } else {
                close(fd);
                clean = false;
            }
        }
    }
    return clean;
}

int socket_receive(int fd, void *data, size_t bytes, int fds[SHM_MAX_FDS], unsigned *fd_count)
{
    struct iovec iov = {.iov_base = data, .iov_len = bytes};
    union control_buffer control;
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control};
    ssize_t got;
    bool clean;

    *fd_count = 0;
    do
        got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EAGAIN ? ROWAN_EAGAIN : ROWAN_ECLOSED;
    clean = take_fds(&message, fds, fd_count);
    if (clean && got == (ssize_t)bytes)
        return 0;
    while (*fd_count > 0)
        close(fds[--*fd_count]);
    return got == 0 ? ROWAN_ECLOSED : ROWAN_EFORMAT;
}

int memory_create(const char *name, uint64_t bytes, int *out_fd, void **out)
{
    void *memory;
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return ROWAN_ENOMEM;
    if (ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, MEMORY_SEALS) < 0)
        goto fail;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        goto fail;
    *out_fd = fd;
    *out = memory;
    return 0;

fail:
    close(fd);
    return ROWAN_ENOMEM;
}

int memory_map(int fd, uint64_t bytes, void **out)
{
    struct stat st;
    void *memory;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || (seals & F_SEAL_WRITE))
        return ROWAN_EFORMAT;
    if (fstat(fd, &st) < 0 || st.st_size != (off_t)bytes)
        return ROWAN_EFORMAT;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return ROWAN_ENOMEM;
    *out = memory;
    return 0;
}

bool is_eventfd(int fd)
{
    static const char wanted[] = "anon_inode:[eventfd]";
    char path[64], target[64];
    ssize_t bytes;
    int flags = fcntl(fd, F_GETFL);

    /* A write to a full one that blocks would stop us. */
    if (flags < 0 || !(flags & O_NONBLOCK))
        return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bytes = readlink(path, target, sizeof target);
    return bytes == (ssize_t)sizeof wanted - 1 && memcmp(target, wanted, sizeof wanted - 1) == 0;
}
