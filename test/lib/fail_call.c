/* fail_call.c - see fail_call.h. The linker's --wrap leads each call of `name` to __wrap_name; the list in
 * test/meson.build must be the one below. */
#include "test/lib/fail_call.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Calls up to the one that fails, and that one; 0 or less: it has. */
static atomic_int_fast64_t left;

void fail_call(uint32_t nth)
{
    atomic_store(&left, nth);
}

bool fail_stop(void)
{
    return atomic_exchange(&left, INT32_MIN) <= 0;
}

static void (*watcher)(void);

void fail_watch(void (*called)(void))
{
    watcher = called;
}

static bool fails(int error)
{
    if (watcher)
        watcher();
    if (atomic_fetch_sub(&left, 1) != 1)
        return false;
    errno = error;
    return true;
}

#define WRAP(type, name, error, failure, parameters, ...)                                          \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return fails(error) ? (failure) : __real_##name(__VA_ARGS__);                              \
    }

WRAP(void *, malloc, ENOMEM, NULL, (size_t bytes), bytes)
WRAP(void *, calloc, ENOMEM, NULL, (size_t count, size_t bytes), count, bytes)
WRAP(void *, realloc, ENOMEM, NULL, (void *old, size_t bytes), old, bytes)
WRAP(void *, aligned_alloc, ENOMEM, NULL, (size_t align, size_t bytes), align, bytes)
WRAP(int, posix_memalign, ENOMEM, ENOMEM, (void **out, size_t align, size_t bytes), out, align,
     bytes)
WRAP(char *, strdup, ENOMEM, NULL, (const char *text), text)
WRAP(void *, mmap64, ENOMEM, MAP_FAILED,
     (void *at, size_t bytes, int access, int flags, int fd, off64_t offset), at, bytes, access,
     flags, fd, offset)
WRAP(int, pthread_create, EAGAIN, EAGAIN,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument),
     thread, attributes, run, argument)
WRAP(int, openat64, EMFILE, -1, (int at, const char *path, int flags, mode_t mode), at, path, flags,
     mode)
WRAP(int, open64, EMFILE, -1, (const char *path, int flags, mode_t mode), path, flags, mode)
WRAP(int, fcntl64, EBADF, -1, (int fd, int command, long argument), fd, command, argument)
WRAP(int, fstat64, EIO, -1, (int fd, struct stat *out), fd, out)
WRAP(int, fstatfs64, EIO, -1, (int fd, struct statfs *out), fd, out)
WRAP(int, fsync, EIO, -1, (int fd), fd)
WRAP(int, fdatasync, EIO, -1, (int fd), fd)
WRAP(int, ftruncate64, EIO, -1, (int fd, off64_t bytes), fd, bytes)
WRAP(int, renameat, EIO, -1, (int from, const char *old, int to, const char *fresh), from, old, to,
     fresh)

/* The 8 bytes of an eventfd can always be read or written. */
WRAP(ssize_t, read, EIO, bytes == 8 ? __real_read(fd, to, bytes) : -1,
     (int fd, void *to, size_t bytes), fd, to, bytes)
WRAP(ssize_t, write, ENOSPC, bytes == 8 ? __real_write(fd, from, bytes) : -1,
     (int fd, const void *from, size_t bytes), fd, from, bytes)

WRAP(int, memfd_create, EMFILE, -1, (const char *name, unsigned flags), name, flags)
WRAP(int, epoll_create1, EMFILE, -1, (int flags), flags)
WRAP(int, epoll_ctl, ENOMEM, -1, (int epoll, int what, int fd, struct epoll_event *event), epoll,
     what, fd, event)
WRAP(int, ppoll, EINTR, -1,
     (struct pollfd * items, nfds_t count, const struct timespec *timeout, const sigset_t *mask),
     items, count, timeout, mask)
WRAP(int, eventfd, EMFILE, -1, (unsigned first, int flags), first, flags)
WRAP(int, socket, EMFILE, -1, (int domain, int kind, int protocol), domain, kind, protocol)
WRAP(int, bind, EACCES, -1, (int fd, const struct sockaddr *address, socklen_t bytes), fd, address,
     bytes)
WRAP(int, listen, ENOBUFS, -1, (int fd, int backlog), fd, backlog)
WRAP(int, connect, ENOBUFS, -1, (int fd, const struct sockaddr *address, socklen_t bytes), fd,
     address, bytes)
WRAP(int, accept4, EMFILE, -1, (int fd, struct sockaddr *address, socklen_t *bytes, int flags), fd,
     address, bytes, flags)
WRAP(int, setsockopt, ENOMEM, -1,
     (int fd, int level, int option, const void *value, socklen_t bytes), fd, level, option, value,
     bytes)
WRAP(int, getsockopt, ENOMEM, -1, (int fd, int level, int option, void *value, socklen_t *bytes),
     fd, level, option, value, bytes)

/* Reads fail as they do when the connection was reset, after which nobody can use it. */
#define RESET (shutdown(fd, SHUT_RDWR), errno = ECONNRESET, -1)

WRAP(ssize_t, recvmsg, 0, RESET, (int fd, struct msghdr *message, int flags), fd, message, flags)
WRAP(ssize_t, recv, 0, RESET, (int fd, void *to, size_t bytes, int flags), fd, to, bytes, flags)
WRAP(ssize_t, sendmsg, ENOBUFS, -1, (int fd, const struct msghdr *message, int flags), fd, message,
     flags)
WRAP(ssize_t, send, ENOBUFS, -1, (int fd, const void *from, size_t bytes, int flags), fd, from,
     bytes, flags)
