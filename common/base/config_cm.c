/* The one file of a rowan-local directory that programs read: where the CM is. It holds the address
 * and perhaps a newline. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/base/config.h"
#include "common/base/error.h"

int config_read_cm(const char *directory, char *out, size_t out_bytes)
{
    char path[PATH_MAX];
    char text[PATH_MAX] = "";
    int length = snprintf(path, sizeof(path), "%s/cm", directory);

    if (length < 0 || (size_t)length >= sizeof(path))
        return ROWAN_EINVALID;
    FILE *file = fopen(path, "re");

    if (file == NULL)
        return errno == ENOTDIR ? ROWAN_ENOTFOUND : error_from_errno(errno);
    int error =
        fgets(text, sizeof(text), file) == NULL && ferror(file) ? error_from_errno(errno) : 0;

    fclose(file);
    if (error)
        return error;
    size_t bytes = strcspn(text, "\r\n");

    if (bytes == 0 || bytes >= out_bytes)
        return ROWAN_EFORMAT;
    memcpy(out, text, bytes);
    out[bytes] = 0;
    return 0;
}
