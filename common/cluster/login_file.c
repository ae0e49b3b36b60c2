/* login_file.c - secrets come out of files: the part of login.h that calls the operating system. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/cluster/login.h"

static int read_secret(int fd, struct login_secret *secret)
{
    struct stat state;
    uint8_t bytes[USER_MAX_SECRET_BYTES + 2];
    if (fstat(fd, &state))
        return error_from_errno(errno);
    if (state.st_mode & S_IRWXO)
        return ROWAN_EPERMISSION;
    ssize_t count = read(fd, bytes, sizeof bytes);
    if (count < 0)
        return error_from_errno(errno);
    count -= count > 0 && bytes[count - 1] == '\n';
    const bool right = count >= USER_MIN_SECRET_BYTES && count <= USER_MAX_SECRET_BYTES;
    if (right) {
        memcpy(secret->secret, bytes, (size_t)count);
        secret->bytes = (uint32_t)count;
    }
    explicit_bzero(bytes, sizeof bytes);
    return right ? 0 : ROWAN_EINVALID;
}

int login_secret_read(struct login_secret *secret, const char *name, const char *path)
{
    memset(secret, 0, sizeof *secret);
    if (strlen(name) > USER_NAME_BYTES)
        return ROWAN_EINVALID;
    strcpy(secret->name, name);
    /* Nobody may write to a FIFO. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return error_from_errno(errno);
    const int error = read_secret(fd, secret);
    close(fd);
    return error;
}

bool login_key_read(const char *program, const char *setting, const char *path,
                    struct login_secret *secret, struct login_secret **key)
{
    *key = NULL;
    if (!*path)
        return true;
    const int error = login_secret_read(secret, LOGIN_SERVER, path);
    if (error)
        fprintf(stderr, "%s: %s %s: %s\n", program, setting, path,
                error == ROWAN_EINVALID      ? "a key has 12 to 256 bytes, and this file has not"
                : error == ROWAN_EPERMISSION ? "it must be this user's to read, and nobody else's "
                                               "but its group's (chmod o= it)"
                                             : error_sentence(error));
    *key = error ? NULL : secret;
    return !error;
}
