/* fabric.c - chooses the backend by the scheme of an address. */
#include "common/fabric/fabric.h"

#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"

uint16_t fabric_layout(const struct fabric_endpoint *endpoint, const struct fabric_identity *peer)
{
    return version_common(endpoint->identity.messages, peer->messages);
}

int fabric_admit_peer(const struct fabric_endpoint *endpoint, const struct fabric_identity *peer)
{
    if (fabric_layout(endpoint, peer) == 0)
        return ROWAN_EINCOMPATIBLE;
    return endpoint->admit ? endpoint->admit(endpoint->admit_context, peer) : 0;
}

static bool is_scheme(const char *text, size_t bytes, const char *scheme)
{
    return bytes == strlen(scheme) && memcmp(text, scheme, bytes) == 0;
}

static int refuse(const char *address, int error)
{
    log_event(
        LOG_ERROR, "address_refused",
        "address=\"%s\" reason=\"an address begins with its scheme, shm:, tcp: or verbs:, as in "
        "tcp:127.0.0.1:7300 or shm:/run/rowan/server-1\"",
        address);
    return error;
}

int fabric_open_with(const char *scheme, const char *address,
                     const struct fabric_verbs_options *verbs, struct fabric **out)
{
    static const struct fabric_verbs_options defaults;
    size_t bytes;

    if (address) {
        const char *colon = strchr(address, ':');

        if (!colon || colon == address)
            return refuse(address, ROWAN_EINVALID);
        scheme = address;
        bytes = (size_t)(colon - address);
    } else {
        if (!scheme)
            return ROWAN_EINVALID;
        bytes = strlen(scheme);
    }
    if (is_scheme(scheme, bytes, "shm"))
        return fabric_open_shm(address, out);
    if (is_scheme(scheme, bytes, "tcp"))
        return fabric_open_tcp(address, out);
    if (is_scheme(scheme, bytes, "verbs"))
        return fabric_open_verbs(address, verbs ? verbs : &defaults, out);
    return refuse(address ? address : scheme, ROWAN_EUNSUPPORTED);
}
