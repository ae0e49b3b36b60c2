/* grants.c - the table of grants; see grants.h. */
#include "common/fabric/grants.h"

#include <stdlib.h>

#include "common/base/error.h"
#include "common/fabric/endpoint.h"
#include "common/fabric/shut_out.h"

static struct grant *free_grant(struct endpoint *endpoint)
{
    if (!endpoint->grants)
        endpoint->grants = calloc(1, sizeof *endpoint->grants);
    for (uint32_t i = 0; endpoint->grants && i < FABRIC_MAX_GRANTS; i++) {
        if (endpoint->grants->all[i].state == GRANT_FREE)
            return &endpoint->grants->all[i];
    }
    return NULL;
}

int grants_give(struct fabric_conn *base, uint64_t offset, uint64_t bytes, uint64_t context,
                struct fabric_grant *out)
{
    struct conn *conn = (struct conn *)base;
    struct endpoint *endpoint = conn_endpoint(conn);
    struct fabric_grant words;
    struct grant *grant;
    int error;

    if (conn->state != CONN_OPEN)
        return ROWAN_ECLOSED;
    if (!conn->may_be_granted || !endpoint->zone ||
        !window_range_fits(offset, bytes, endpoint->zone->pm->bytes))
        return ROWAN_EINVALID;
    grant = free_grant(endpoint);
    if (!grant)
        return endpoint->grants ? ROWAN_ETOOMANY : ROWAN_ENOMEM;
    grant->uses++;
    grant->conn = conn;
    grant->peer = conn->peer;
    grant->key = grant->uses * FABRIC_MAX_GRANTS + (uint64_t)(grant - endpoint->grants->all);
    grant->offset = offset;
    grant->bytes = bytes;
    grant->context = context;
    words = (struct fabric_grant){.words = {grant->key, bytes}};
    error = endpoint->backend->give ? endpoint->backend->give(conn, grant, &words) : 0;
    if (error)
        return error;
    grant->state = GRANT_LIVE;
    *out = words;
    return 0;
}

struct grant *grants_find(const struct conn *conn, uint64_t key)
{
    struct grants *grants = conn_endpoint(conn)->grants;

    for (uint32_t i = 0; grants && i < FABRIC_MAX_GRANTS; i++) {
        struct grant *grant = &grants->all[i];

        if (grant->state == GRANT_LIVE && grant->conn == conn && grant->key == key)
            return grant;
    }
    return NULL;
}

void grants_over(struct endpoint *endpoint, struct grant *grant)
{
    grant->state = GRANT_OVER;
    endpoint->grants->ending--;
    endpoint->grants->over++;
}

static void take_back(struct endpoint *endpoint, struct grant *grant)
{
    if (!endpoint->backend->take_back || endpoint->backend->take_back(endpoint, grant))
        grants_over(endpoint, grant);
}

static void end_grant(struct endpoint *endpoint, struct grant *grant)
{
    grant->state = GRANT_ENDING;
    grant->conn = NULL;
    endpoint->grants->ending++;
    take_back(endpoint, grant);
}

void grants_revoke(struct fabric_conn *base, const struct fabric_grant *words)
{
    struct conn *conn = (struct conn *)base;
    struct grant *grant = grants_find(conn, words->words[0]);

    if (!grant)
        return;
    end_grant(conn_endpoint(conn), grant);
    if (conn_endpoint(conn)->backend->revoked)
        conn_endpoint(conn)->backend->revoked(conn, grant);
}

void grants_end(const struct conn *conn)
{
    struct endpoint *endpoint = conn_endpoint(conn);

    for (uint32_t i = 0; endpoint->grants && i < FABRIC_MAX_GRANTS; i++) {
        struct grant *grant = &endpoint->grants->all[i];

        if (grant->state == GRANT_LIVE && grant->conn == conn)
            end_grant(endpoint, grant);
    }
}

bool grants_are_of(const struct endpoint *endpoint, const struct fabric_shut_out *out)
{
    for (uint32_t i = 0; endpoint->grants && i < FABRIC_MAX_GRANTS; i++) {
        const struct grant *grant = &endpoint->grants->all[i];

        if (grant->state != GRANT_FREE && shut_out_is_of(out, &grant->peer))
            return true;
    }
    return false;
}

unsigned grants_events(struct endpoint *endpoint, struct fabric_event *events, unsigned max)
{
    struct grants *grants = endpoint->grants;
    unsigned count = 0;

    for (uint32_t i = 0; i < FABRIC_MAX_GRANTS && grants_wait(endpoint); i++) {
        struct grant *grant = &grants->all[i];

        if (grant->state == GRANT_ENDING)
            take_back(endpoint, grant);
        if (grant->state != GRANT_OVER || count == max)
            continue;
        events[count++] = (struct fabric_event){.kind = FABRIC_REVOKED, .context = grant->context};
        grant->state = GRANT_FREE;
        grants->over--;
    }
    return count;
}

void grants_close(struct endpoint *endpoint)
{
    free(endpoint->grants);
    endpoint->grants = NULL;
}
