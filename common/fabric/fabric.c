/* fabric.c - chooses the backend by the scheme of an address. */
#include "common/fabric/fabric.h"

#include <string.h>

#include "common/base/error.h"

int fabric_open(const char *scheme, const char *address, struct fabric **out)
{
    size_t bytes;

    if (address) {
        const char *colon = strchr(address, ':');

        if (!colon || colon == address)
            return ROWAN_EINVALID;
        scheme = address;
        bytes = (size_t)(colon - address);
    } else {
        if (!scheme)
            return ROWAN_EINVALID;
        bytes = strlen(scheme);
    }
    if (bytes == 3 && memcmp(scheme, "shm", 3) == 0)
        return fabric_open_shm(address, out);
    if (bytes == 3 && memcmp(scheme, "tcp", 3) == 0)
        return fabric_open_tcp(address, out);
    return ROWAN_EUNSUPPORTED;
}
