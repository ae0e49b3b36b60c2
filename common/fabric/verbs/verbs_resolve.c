/* verbs_resolve.c - address handles, made on a thread of the fabric's own: the kernel may take a second for one.
 *
 * The kernel resolves the MAC of a RoCE address handle's destination itself (rdma_create_user_ah, ib_resolve_eth_dmac,
 * rdma_addr_find_l2_eth_by_grh: up to 1000 ms). Where the neighbour is known the answer comes at once; where nobody
 * answers the call takes that second and fails. A queue pair that is moved to RTR goes the same way: that the
 * endpoint does itself, after the handle to the same address was made, when the neighbour is known.
 *
 * 1. A job waits, is worked on, or is done. It is its connection's, until that takes the handle or forgets it: then a
 *    job that is worked on is the thread's, which destroys what it made.
 * 2. At most VERBS_JOBS are there: then connections are refused. What waits for a connection that ends is taken back. An
 *    address that nobody answered to lately comes behind all others: a host that is gone, and dialled again and again,
 *    costs the others a second each time at most.
 * 3. The thread starts with the first job, and ends with the fabric.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "common/base/assert.h"
#include "common/fabric/verbs/verbs_rc.h"
#include "common/fabric/verbs/verbs_stream.h"
#include "common/reactor/thread.h"

/* --- the thread --- */

/* With the lock. */
static void free_job(struct verbs_resolver *resolver, struct verbs_job *job)
{
    if (job->ah)
        ibv_destroy_ah(job->ah);
    resolver->count--;
    free(job);
}

/* With the lock. */
static void finish(struct verbs_resolver *resolver, struct verbs_job *job)
{
    job->is_done = true;
    if (!job->conn) { /* 1 */
        free_job(resolver, job);
        return;
    }
    job->conn->endpoint->has_resolved = true;
    eventfd_write(job->conn->endpoint->wake_fd, 1); /* full: it is awake anyway */
}

/* Where the address stands among the silent ones; silent_count: it is none of them. */
static uint32_t find_silent(const struct verbs_resolver *resolver, const union ibv_gid *gid)
{
    uint32_t i = 0;

    while (i < resolver->silent_count && memcmp(&resolver->silent[i], gid, sizeof *gid) != 0)
        i++;
    return i;
}

void verbs_resolver_remember(struct verbs_resolver *resolver, const union ibv_gid *gid,
                             bool answers)
{
    const uint32_t place = find_silent(resolver, gid);

    if (place < resolver->silent_count && answers) {
        resolver->silent[place] = resolver->silent[--resolver->silent_count];
    } else if (place == resolver->silent_count && !answers) {
        if (resolver->silent_count < VERBS_SILENT)
            resolver->silent[resolver->silent_count++] = *gid;
        else
            resolver->silent[resolver->silent_next++ % VERBS_SILENT] = *gid;
    }
}

static void take_off(struct verbs_resolver *resolver, struct verbs_job *job)
{
    LIST_REMOVE(&resolver->jobs, job, link);
    job->waits = false;
}

/* 2 */
struct verbs_job *verbs_resolver_next(struct verbs_resolver *resolver)
{
    struct verbs_job *job = resolver->jobs.first;

    while (job && find_silent(resolver, &job->attributes.grh.dgid) < resolver->silent_count)
        job = job->link.next;
    if (!job)
        job = resolver->jobs.first;
    if (job)
        take_off(resolver, job);
    return job;
}

static void *work(void *context)
{
    struct verbs_fabric *fabric = context;
    struct verbs_resolver *resolver = &fabric->resolver;

    pthread_mutex_lock(&resolver->mutex);
    while (!resolver->ends) {
        struct verbs_job *job = verbs_resolver_next(resolver);

        if (!job) {
            pthread_cond_wait(&resolver->wanted, &resolver->mutex);
            continue;
        }
        pthread_mutex_unlock(&resolver->mutex);
        job->ah = ibv_create_ah(fabric->device->pd, &job->attributes);
        pthread_mutex_lock(&resolver->mutex);
        verbs_resolver_remember(resolver, &job->attributes.grh.dgid, job->ah != NULL);
        finish(resolver, job);
    }
    pthread_mutex_unlock(&resolver->mutex);
    return NULL;
}

static int start(struct verbs_fabric *fabric)
{
    struct verbs_resolver *resolver = &fabric->resolver;
    int error = 0;

    if (!resolver->runs)
        error = thread_start(&resolver->thread, "verbs-resolve", work, fabric);
    resolver->runs = !error;
    return error;
}

void verbs_resolver_fini(struct verbs_fabric *fabric)
{
    struct verbs_resolver *resolver = &fabric->resolver;

    ASSERT(!resolver->jobs.first); /* the endpoints have left */
    pthread_mutex_lock(&resolver->mutex);
    resolver->ends = true;
    pthread_cond_signal(&resolver->wanted);
    pthread_mutex_unlock(&resolver->mutex);
    if (resolver->runs)
        pthread_join(resolver->thread, NULL);
    pthread_cond_destroy(&resolver->wanted);
    pthread_mutex_destroy(&resolver->mutex);
}

/* --- an endpoint's calls --- */

int verbs_resolve(struct verbs_conn *conn)
{
    struct verbs_resolver *resolver = &conn->endpoint->fabric->resolver;
    struct verbs_job *job = calloc(1, sizeof *job);
    int error;

    if (!job)
        return ROWAN_ENOMEM;
    job->conn = conn;
    verbs_rc_address(conn, &job->attributes);
    pthread_mutex_lock(&resolver->mutex);
    error = resolver->count >= VERBS_JOBS ? ROWAN_ETOOMANY /* 2 */ : start(conn->endpoint->fabric);
    if (!error) {
        LIST_APPEND(&resolver->jobs, job, link);
        job->waits = true;
        resolver->count++;
        pthread_cond_signal(&resolver->wanted);
    }
    pthread_mutex_unlock(&resolver->mutex);
    if (error)
        free(job);
    else
        conn->job = job;
    return error;
}

void verbs_resolve_forget(struct verbs_conn *conn)
{
    struct verbs_resolver *resolver = &conn->endpoint->fabric->resolver;
    struct verbs_job *job = conn->job;

    if (!job)
        return;
    conn->job = NULL;
    pthread_mutex_lock(&resolver->mutex);
    if (job->waits)
        take_off(resolver, job); /* 2 */
    else if (!job->is_done)
        job->conn = NULL; /* 1 */
    if (job->conn)
        free_job(resolver, job);
    pthread_mutex_unlock(&resolver->mutex);
}

void verbs_resolve_poll(struct verbs_endpoint *endpoint)
{
    if (!atomic_load_explicit(&endpoint->has_resolved, memory_order_relaxed))
        return;
    endpoint->has_resolved = false; /* before the look */
    for (CONN_EACH(verbs_conn, conn, &endpoint->base, LIST_HANDSHAKE)) {
        if (conn->job && conn->job->is_done) {
            struct ibv_ah *ah = conn->job->ah;

            conn->job->ah = NULL;
            verbs_resolve_forget(conn);
            verbs_connect_resolved(conn, ah);
        }
    }
    fabric_flush(endpoint->control);
}
