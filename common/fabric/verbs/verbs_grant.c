/* verbs_grant.c - bulk writes at the receiver. A grant is a memory region of its own over exactly the range,
 * so it has a key of its own; deregistering it takes the key back, and when that returns no packet writes
 * there any more (IB specification 10.6.7.5). A memory window would do the same without a system call, but
 * its key is made by a request in the send queue of the granting side, which a multi-packet receiver has not
 * got (verbs_mlx5.c), and the peer could write before the request is done.
 *
 * Grants are for migration and refilling: the call pins the range, some 100 us for a segment of small pages.
 *
 * A device may give the number of a former key again. So the key alone shuts out who is still connected only
 * as far as the bounds of the new grant go: who grants a range anew to another first closes the connection
 * of the former peer, as a change of configuration does with every removed member.
 */
#include <string.h>

#include "common/base/log.h"
#include "common/fabric/verbs/verbs.h"

/* The words: the device's key, the bytes, the address. */
int verbs_give(struct conn *base, struct grant *grant, struct fabric_grant *words)
{
    const struct verbs_endpoint *endpoint = ((const struct verbs_conn *)base)->endpoint;
    uint8_t *data = endpoint->base.zone->pm->base + grant->offset;
    const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    int failed;
    /* On demand as the whole was, if it is a file on a DAX mount (verbs_memory.c). */
    struct ibv_mr *mr = verbs_register_range(endpoint->device, data, grant->bytes, access,
                                             endpoint->device->has_odp, &failed);

    if (!mr) {
        log_event(LOG_ERROR, "verbs_grant_refused", "bytes=%llu reason=\"%s\"",
                  (unsigned long long)grant->bytes, strerror(failed));
        return ROWAN_ENOMEM;
    }
    grant->own = mr;
    grant->key = words->words[0] = mr->rkey;
    words->words[2] = (uintptr_t)data;
    return 0;
}

bool verbs_take_back(struct endpoint *base, struct grant *grant)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
    const int error = ibv_dereg_mr(grant->own);

    if (error && !endpoint->kept_grant) {
        endpoint->kept_grant = true;
        log_event(LOG_ERROR, "verbs_deregister", "reason=\"%s\"", strerror(error));
    }
    return error == 0;
}
