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
 *
 * 1. FREE -> LIVE (granted) -> ENDING (taken back by its owner, or its connection ended) -> FREE, with one
 *    REVOKED event, given only when the region is gone.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/fabric/verbs/verbs_rc.h"
#include "common/fabric/verbs/verbs_zone.h"

enum grant_state { GRANT_FREE, GRANT_LIVE, GRANT_ENDING };

struct grant {
    enum grant_state state;
    const struct verbs_conn *conn; /* LIVE */
    struct ibv_mr *mr;             /* NULL: gone */
    uint64_t context;
    bool was_refused; /* to take it back; said once */
};

struct verbs_grants {
    uint32_t ending;
    struct grant grants[FABRIC_MAX_GRANTS];
};

static struct ibv_mr *register_range(const struct verbs_device *device, uint8_t *data,
                                     uint64_t bytes)
{
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = ibv_reg_mr(device->pd, data, bytes, access);

    if (!mr &&
        device->has_odp) /* as the whole was, if it is a file on a DAX mount (verbs_memory.c) */
        mr = ibv_reg_mr(device->pd, data, bytes, access | IBV_ACCESS_ON_DEMAND);
    if (!mr)
        log_event(LOG_ERROR, "verbs_grant_refused", "bytes=%llu reason=\"%s\"",
                  (unsigned long long)bytes, strerror(errno));
    return mr;
}

/* Landing blocks and bulk writes in one segment would overwrite each other. */
static bool is_posted(struct verbs_zone *zone, uint64_t offset, uint64_t bytes)
{
    for (uint64_t s = zone->sealed; s < zone->posted; s++) {
        const uint64_t segment = verbs_segment(zone, s)->offset;

        if (offset < segment + FABRIC_SEGMENT_BYTES && segment < offset + bytes)
            return true;
    }
    return false;
}

static struct grant *free_grant(struct verbs_endpoint *endpoint)
{
    for (uint32_t i = 0; i < FABRIC_MAX_GRANTS; i++) {
        if (endpoint->grants->grants[i].state == GRANT_FREE)
            return &endpoint->grants->grants[i];
    }
    return NULL;
}

int verbs_grant(struct fabric_conn *base, uint64_t offset, uint64_t bytes, uint64_t context,
                struct fabric_grant *out)
{
    struct verbs_conn *conn = (struct verbs_conn *)base;
    struct verbs_endpoint *endpoint = conn->endpoint;
    struct verbs_zone *zone = conn->rc ? conn->rc->zone : NULL;
    struct grant *grant;

    if (conn->state != VCONN_OPEN)
        return ROWAN_ECLOSED;
    if (!zone || offset % FABRIC_STRIDE != 0 || bytes % FABRIC_STRIDE != 0 || bytes == 0 ||
        offset > zone->pm->bytes || bytes > zone->pm->bytes - offset ||
        is_posted(zone, offset, bytes))
        return ROWAN_EINVALID;
    if (!endpoint->grants) {
        endpoint->grants = calloc(1, sizeof *endpoint->grants);
        if (!endpoint->grants)
            return ROWAN_ENOMEM;
    }
    grant = free_grant(endpoint);
    if (!grant)
        return ROWAN_ETOOMANY;
    grant->mr = register_range(endpoint->device, zone->pm->base + offset, bytes);
    if (!grant->mr)
        return ROWAN_ENOMEM;
    grant->state = GRANT_LIVE;
    grant->conn = conn;
    grant->context = context;
    *out = (struct fabric_grant){
        .words = {grant->mr->rkey, (uintptr_t)zone->pm->base + offset, bytes}};
    return 0;
}

static void take_back(struct grant *grant)
{
    const int error = grant->mr ? ibv_dereg_mr(grant->mr) : 0;

    if (error && !grant->was_refused)
        log_event(LOG_ERROR, "verbs_deregister", "reason=\"%s\"", strerror(error));
    grant->was_refused = error != 0;
    if (!error)
        grant->mr = NULL;
}

static void end_grant(struct verbs_grants *grants, struct grant *grant)
{
    grant->state = GRANT_ENDING;
    grant->conn = NULL;
    grants->ending++;
    take_back(grant);
}

void verbs_revoke(struct fabric_conn *base, const struct fabric_grant *words)
{
    const struct verbs_conn *conn = (const struct verbs_conn *)base;
    struct verbs_grants *grants = conn->endpoint->grants;

    for (uint32_t i = 0; grants && i < FABRIC_MAX_GRANTS; i++) {
        struct grant *grant = &grants->grants[i];

        if (grant->state == GRANT_LIVE && grant->conn == conn &&
            grant->mr->rkey == words->words[0]) {
            end_grant(grants, grant);
            return;
        }
    }
}

void verbs_grants_end(struct verbs_conn *conn)
{
    struct verbs_grants *grants = conn->endpoint->grants;

    for (uint32_t i = 0; grants && i < FABRIC_MAX_GRANTS; i++) {
        if (grants->grants[i].state == GRANT_LIVE && grants->grants[i].conn == conn)
            end_grant(grants, &grants->grants[i]);
    }
}

bool verbs_grants_has_events(const struct verbs_endpoint *endpoint)
{
    return endpoint->grants && endpoint->grants->ending > 0;
}

unsigned verbs_grants_poll(struct verbs_endpoint *endpoint, struct fabric_event *events,
                           unsigned max)
{
    struct verbs_grants *grants = endpoint->grants;
    unsigned count = 0;

    if (!verbs_grants_has_events(endpoint))
        return 0;
    for (uint32_t i = 0; i < FABRIC_MAX_GRANTS && count < max; i++) {
        struct grant *grant = &grants->grants[i];

        if (grant->state != GRANT_ENDING)
            continue;
        take_back(grant); /* once more, if the device would not */
        if (grant->mr)
            continue;
        events[count++] =
            (struct fabric_event){.kind = FABRIC_REVOKED, .context = grant->context}; /* 1 */
        *grant = (struct grant){.state = GRANT_FREE};
        grants->ending--;
    }
    return count;
}

void verbs_grants_destroy(struct verbs_endpoint *endpoint)
{
    struct verbs_grants *grants = endpoint->grants;

    for (uint32_t i = 0; grants && i < FABRIC_MAX_GRANTS; i++)
        take_back(&grants->grants[i]);
    free(grants);
    endpoint->grants = NULL;
}
