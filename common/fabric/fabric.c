/* fabric.c - chooses the backend by the scheme of an address. */
#include "common/fabric/fabric.h"

#include <string.h>

#include "common/base/error.h"
#include "common/fabric/shut_out.h"

uint16_t fabric_layout(const struct fabric_endpoint *endpoint, const struct fabric_identity *peer)
{
    return version_common(endpoint->identity.messages, peer->messages);
}

int fabric_admit_peer(const struct fabric_endpoint *endpoint, const struct fabric_identity *peer)
{
    if (fabric_layout(endpoint, peer) == 0)
        return ROWAN_EINCOMPATIBLE;
    if (shut_out_forbids(endpoint, peer))
        return ROWAN_EREFUSED;
    return endpoint->admit ? endpoint->admit(endpoint->admit_context, peer) : 0;
}

bool fabric_is_same_sender(const struct fabric_identity *a, const struct fabric_identity *b)
{
    return a->kind == FABRIC_SERVER && b->kind == FABRIC_SERVER && a->incarnation != 0 &&
           a->incarnation == b->incarnation && a->id == b->id && a->role == b->role &&
           a->cluster == b->cluster;
}

static bool is_scheme(const char *text, size_t bytes, const char *scheme)
{
    return bytes == strlen(scheme) && memcmp(text, scheme, bytes) == 0;
}

int fabric_open_with(const char *scheme, const char *address,
                     const struct fabric_verbs_options *verbs, struct fabric **out)
{
    const char *text = address ? address : scheme;
    const size_t bytes = text ? strcspn(text, ":") : 0;
    const bool has_scheme = bytes > 0 && text[bytes] == ':';

    if (!text)
        return ROWAN_EINVALID;
    if (address && !has_scheme)
        return ROWAN_EADDRESS;
    if (is_scheme(text, bytes, "shm"))
        return fabric_open_shm(address, out);
    if (is_scheme(text, bytes, "tcp"))
        return fabric_open_tcp(address, out);
    if (is_scheme(text, bytes, "verbs"))
        return fabric_open_verbs(address, verbs, out);
    return has_scheme ? ROWAN_EUNSUPPORTED : ROWAN_EADDRESS;
}
