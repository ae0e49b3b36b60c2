/* error.c - the names and sentences of the error table, and the nearest code for a system errno. */
#include "common/base/error.h"

#include <errno.h>
#include <stdbool.h>

#define ERROR_NAME(name, number, sentence)     [number] = #name,
#define ERROR_SENTENCE(name, number, sentence) [number] = sentence,
static const char *const names[] = {"ROWAN_OK", ERROR_TABLE(ERROR_NAME)};
static const char *const sentences[] = {"done", ERROR_TABLE(ERROR_SENTENCE)};

static bool is_known(int error)
{
    return error <= 0 && error >= ERROR_LOWEST;
}

const char *error_sentence(int error)
{
    return is_known(error) ? sentences[-error]
                           : "an unknown error: this program does not know its number";
}

const char *error_name(int error)
{
    return is_known(error) ? names[-error] : "ROWAN_E?";
}

int error_from_errno(int system_errno)
{
    switch (system_errno) {
    case ENOENT:
        return ROWAN_ENOTFOUND;
    case ENOMEM:
        return ROWAN_ENOMEM;
    case ENOSPC:
    case EDQUOT:
        return ROWAN_ENOSPACE;
    case EACCES:
    case EPERM:
    case EROFS:
        return ROWAN_EPERMISSION;
    case EEXIST:
        return ROWAN_EEXISTS;
    case EADDRINUSE:
    case EBUSY:
    case ETXTBSY:
        return ROWAN_EINUSE;
    case EAGAIN:
    case EINTR:
    case ENOBUFS:
        return ROWAN_EAGAIN;
    case EINVAL:
    case ENAMETOOLONG:
    case ERANGE:
        return ROWAN_EINVALID;
    /* A connection that timed out says nothing about what was sent over it, so it is not
     * ROWAN_ETIMEDOUT, which promises that nothing was changed. */
    case ETIMEDOUT:
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
        return ROWAN_EUNREACHABLE;
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN:
    case EPIPE:
        return ROWAN_ECLOSED;
    case ENOSYS:
    case EOPNOTSUPP:
    case ENOPROTOOPT:
    case EAFNOSUPPORT:
        return ROWAN_EUNSUPPORTED;
    case EMFILE:
    case ENFILE:
        return ROWAN_ETOOMANY;
    default:
        return ROWAN_EIO;
    }
}
