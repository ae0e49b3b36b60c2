/* verbs_resolve.c - address handles, made on a thread of the fabric's own: the kernel may take a second for one.
 *
 * The kernel resolves the MAC of a RoCE address handle's destination itself (rdma_create_user_ah, ib_resolve_eth_dmac,
 * rdma_addr_find_l2_eth_by_grh: up to 1000 ms). Where the neighbour is known the answer comes at once; where nobody
 * answers the call takes that second and fails. A queue pair that is moved to RTR goes the same way: that the
 * endpoint does itself, after the handle to the same address was made, when the neighbour is known.
 *
 * 1. A job is free, waits, is worked on, or is done; the first three lists are the fabric's, the last one its
 *    endpoint's. It names its connection by number and token, and the connection may be gone when it is done.
 * 2. At most VERBS_JOBS wait: then connections are refused. What waits for a connection that ends is taken back. An
 *    address that nobody answered to lately comes behind all others: a host that is gone, and dialled again and again,
 *    costs the others a second each time at most.
 * 3. An endpoint that closes leaves the job that is being worked on to the thread, which destroys what it made.
 * 4. The thread starts with the first job, and ends with the fabric.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>

#include "common/base/assert.h"
#include "common/fabric/verbs/verbs_rc.h"
#include "common/fabric/verbs/verbs_stream.h"
#include "common/reactor/thread.h"

/* --- the thread --- */

static void free_job(struct verbs_resolver *resolver, struct verbs_job *job)
{
    job->next = resolver->free;
    resolver->free = job;
}

/* 3, and tells the endpoint otherwise. With the lock. */
static void finish(struct verbs_resolver *resolver, struct verbs_job *job)
{
    struct verbs_endpoint *endpoint = job->endpoint;

    if (!endpoint) {
        if (job->ah)
            ibv_destroy_ah(job->ah);
        free_job(resolver, job);
        return;
    }
    job->next = endpoint->resolved;
    endpoint->resolved = job;
    atomic_store_explicit(&endpoint->has_resolved, true, memory_order_release);
    eventfd_write(endpoint->wake_fd, 1); /* full: it is awake anyway */
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

/* 2 */
struct verbs_job *verbs_resolver_next(struct verbs_resolver *resolver)
{
    struct verbs_job **link = &resolver->first, *job;

    while (*link && find_silent(resolver, &(*link)->attributes.grh.dgid) < resolver->silent_count)
        link = &(*link)->next;
    if (!*link)
        link = &resolver->first;
    job = *link;
    if (job)
        *link = job->next;
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
        resolver->working = job;
        pthread_mutex_unlock(&resolver->mutex);
        job->ah = ibv_create_ah(fabric->device->pd, &job->attributes);
        pthread_mutex_lock(&resolver->mutex);
        resolver->working = NULL;
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

int verbs_resolver_init(struct verbs_fabric *fabric)
{
    struct verbs_resolver *resolver = &fabric->resolver;

    for (uint32_t i = 0; i < VERBS_JOBS; i++)
        free_job(resolver, &resolver->jobs[i]);
    if (pthread_mutex_init(&resolver->mutex, NULL) != 0)
        return ROWAN_ENOMEM;
    if (pthread_cond_init(&resolver->wanted, NULL) != 0) {
        pthread_mutex_destroy(&resolver->mutex);
        return ROWAN_ENOMEM;
    }
    return 0;
}

void verbs_resolver_fini(struct verbs_fabric *fabric)
{
    struct verbs_resolver *resolver = &fabric->resolver;

    ASSERT(!resolver->first); /* the endpoints have left */
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

static void enqueue(struct verbs_resolver *resolver, struct verbs_job *job)
{
    struct verbs_job **link = &resolver->first;

    while (*link)
        link = &(*link)->next;
    job->next = NULL;
    *link = job;
    pthread_cond_signal(&resolver->wanted);
}

int verbs_resolve(struct verbs_conn *conn)
{
    struct verbs_resolver *resolver = &conn->endpoint->fabric->resolver;
    struct verbs_job *job;
    int error;

    pthread_mutex_lock(&resolver->mutex);
    error = start(conn->endpoint->fabric); /* 4 */
    job = resolver->free;
    if (!error && !job)
        error = ROWAN_ETOOMANY; /* 2 */
    if (!error) {
        resolver->free = job->next;
        *job = (struct verbs_job){
            .endpoint = conn->endpoint, .number = conn->number, .token = conn->token};
        verbs_rc_address(conn, &job->attributes);
        enqueue(resolver, job);
    }
    pthread_mutex_unlock(&resolver->mutex);
    return error;
}

static bool is_of(const struct verbs_job *job, const struct verbs_endpoint *endpoint,
                  const struct verbs_conn *conn)
{
    return job->endpoint == endpoint &&
           (!conn || (job->number == conn->number && job->token == conn->token));
}

/* Takes back what waits, of one connection or (NULL) of all. With the lock. */
static void take_back(struct verbs_endpoint *endpoint, const struct verbs_conn *conn)
{
    struct verbs_resolver *resolver = &endpoint->fabric->resolver;
    struct verbs_job **link = &resolver->first;

    while (*link) {
        struct verbs_job *job = *link;

        if (!is_of(job, endpoint, conn)) {
            link = &job->next;
            continue;
        }
        *link = job->next;
        free_job(resolver, job);
    }
}

void verbs_resolve_forget(struct verbs_conn *conn)
{
    struct verbs_resolver *resolver = &conn->endpoint->fabric->resolver;

    pthread_mutex_lock(&resolver->mutex);
    take_back(conn->endpoint, conn);
    pthread_mutex_unlock(&resolver->mutex);
}

/* 1 */
static void hand_over(struct verbs_endpoint *endpoint, const struct verbs_job *job)
{
    struct verbs_conn *conn = verbs_conn_of(endpoint, job->number);

    if (conn && conn->token == job->token && conn->base.state == CONN_RESOLVING)
        verbs_connect_resolved(conn, job->ah);
    else if (job->ah)
        ibv_destroy_ah(job->ah);
}

/* Hands over what is done, or destroys it. */
static void end_done(struct verbs_endpoint *endpoint, bool hands_over)
{
    struct verbs_resolver *resolver = &endpoint->fabric->resolver;
    struct verbs_job *jobs, *job;

    pthread_mutex_lock(&resolver->mutex);
    atomic_store_explicit(&endpoint->has_resolved, false, memory_order_relaxed);
    jobs = endpoint->resolved;
    endpoint->resolved = NULL;
    pthread_mutex_unlock(&resolver->mutex);
    for (job = jobs; job; job = job->next) {
        if (hands_over)
            hand_over(endpoint, job);
        else if (job->ah)
            ibv_destroy_ah(job->ah);
    }
    pthread_mutex_lock(&resolver->mutex);
    while ((job = jobs)) {
        jobs = job->next;
        free_job(resolver, job);
    }
    pthread_mutex_unlock(&resolver->mutex);
}

void verbs_resolve_poll(struct verbs_endpoint *endpoint)
{
    if (!atomic_load_explicit(&endpoint->has_resolved, memory_order_acquire))
        return;
    end_done(endpoint, true);
    fabric_flush(endpoint->control);
}

void verbs_resolve_leave(struct verbs_endpoint *endpoint)
{
    struct verbs_resolver *resolver = &endpoint->fabric->resolver;

    pthread_mutex_lock(&resolver->mutex);
    take_back(endpoint, NULL);
    if (resolver->working && resolver->working->endpoint == endpoint)
        resolver->working->endpoint = NULL; /* 3 */
    pthread_mutex_unlock(&resolver->mutex);
    end_done(endpoint, false);
}
