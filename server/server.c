/* Puts the roles of a server together. */
#include "server/server.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/cluster/cluster.h"
#include "server/clean/clean.h"
#include "server/control/control.h"
#include "server/digest/digest.h"
#include "server/wear.h"
#include "server/worker/worker.h"

struct server {
    struct server_common common;
    struct server_options options;
    struct control *control;
    struct worker *workers[CLUSTER_MAX_WORKERS];
    struct digest *digests[SERVER_MAX_DIGESTS];
    struct clean *clean;
    struct role *roles[CLUSTER_MAX_WORKERS + SERVER_MAX_DIGESTS + 1]; /* workers, digests, clean */
};

static uint32_t clean_percent(const struct server_options *options)
{
    return options->clean_percent ? options->clean_percent : CLEAN_LIVE_PERCENT;
}

static void add_metrics(struct server *server)
{
    struct metrics *metrics = server->options.metrics;
    for (uint32_t i = 0; i < server->options.workers; i++) {
        metrics_add(metrics, worker_metrics, WORKER_METRICS, worker_counts(server->workers[i]), "");
        role_metrics(&worker_role(server->workers[i])->busy_ns, metrics, "worker", i);
    }
    for (uint32_t i = 0; i < server->options.digests; i++)
        role_metrics(&digest_role(server->digests[i])->busy_ns, metrics, "digest", i);
    role_metrics(&clean_role(server->clean)->busy_ns, metrics, "clean", 0);
}

static int create_roles(struct server *server)
{
    const struct server_options *options = &server->options;
    int error = 0;
    for (uint32_t i = 0; i < options->workers && !error; i++)
        error = worker_create(&server->common, i, &server->workers[i]);
    for (uint32_t i = 0; i < options->digests && !error; i++)
        error = digest_create(&server->common, i, &server->digests[i]);
    if (!error)
        error = clean_create(&server->common, clean_percent(options), !options->no_checkpoints,
                             &server->clean);
    if (error)
        return error;
    struct role **role = server->roles;
    for (uint32_t i = 0; i < options->workers; i++)
        *role++ = worker_role(server->workers[i]);
    for (uint32_t i = 0; i < options->digests; i++)
        *role++ = digest_role(server->digests[i]);
    *role = clean_role(server->clean);
    add_metrics(server);
    return control_create(&server->common, options, server->workers, server->digests, server->clean,
                          server->roles, &server->control);
}

static void tune_workers(struct server *server, const struct server_options *options)
{
    struct server_common *common = &server->common;
    atomic_store_explicit(&common->fill_rate, options->fill_rate, memory_order_relaxed);
    atomic_store_explicit(&common->trace_one_in, options->trace_one_in, memory_order_relaxed);
}

int server_create(const struct server_options *options, struct fabric *fabric, struct pm *pm,
                  struct server **out)
{
    if (options->server == 0 || options->incarnation == 0 || !options->clock ||
        options->workers == 0 || options->workers > CLUSTER_MAX_WORKERS || options->digests == 0 ||
        options->digests > SERVER_MAX_DIGESTS || options->landing_segments < 2 ||
        options->landing_segments > 1024 || options->clean_percent > CLEAN_MAX_PERCENT)
        return ROWAN_EINVALID;
    struct server *server = calloc(1, sizeof *server);
    if (!server)
        return ROWAN_ENOMEM;
    server->options = *options;
    server->common.server = options->server;
    server->common.incarnation = options->incarnation;
    server->common.fabric = fabric;
    server->common.pm = pm;
    server->common.clock = options->clock;
    tune_workers(server, options);
    reclaim_init(&server->common.reclaim);
    int error = 0;
    if (options->wear)
        error = server_wear_create(&server->common, (enum server_wear_mode)options->wear,
                                   &server->common.wear);
    if (!error)
        error = create_roles(server);
    if (error) {
        server_destroy(server);
        return error;
    }
    *out = server;
    return 0;
}

void server_destroy(struct server *server)
{
    if (!server)
        return;
    /* Control first: it points into shards and inboxes of the others. The clean role points into their shards. */
    control_destroy(server->control);
    clean_destroy(server->clean);
    for (uint32_t i = 0; i < server->options.workers; i++)
        worker_destroy(server->workers[i]);
    for (uint32_t i = 0; i < server->options.digests; i++)
        digest_destroy(server->digests[i]);
    server_wear_destroy(server->common.wear);
    store_close(server->common.store);
    free(server);
}

void server_on_failure(struct server *server, void (*failed)(void *context), void *context)
{
    server->common.failed = failed;
    server->common.failed_context = context;
}

int server_error(const struct server *server)
{
    return atomic_load(&server->common.error);
}

const char *server_why(const struct server *server)
{
    return server->common.why;
}

void server_stop(struct server *server)
{
    atomic_store_explicit(&server->common.stop, true, memory_order_relaxed);
    inbox_wake(&server->roles[0]->outbox); /* the control role */
}

void server_tune(struct server *server, const struct server_options *options)
{
    server->options.stop_timeout_ns = options->stop_timeout_ns; /* the control role reads it */
    clean_tune(server->clean, clean_percent(options), !options->no_checkpoints);
    tune_workers(server, options);
    control_tune(server->control, options->cm);
    for (uint32_t i = 0; i < server->options.workers; i++)
        inbox_wake(&server->roles[i]->inbox); /* it may wait by the rate that was */
}

bool server_has_stopped(const struct server *server)
{
    return atomic_load(&server->common.ended);
}

bool server_serves(const struct server *server)
{
    return control_serves(server->control);
}

uint32_t server_roles(const struct server *server)
{
    return 1 + server->options.workers + server->options.digests + 1;
}

struct poller server_poller(struct server *server, uint32_t role)
{
    ASSERT(role < server_roles(server));
    if (role == 0)
        return (struct poller){"control", control_poll, server->control,
                               control_busy_ns(server->control)};
    const uint32_t worker = role - 1, digest = worker - server->options.workers;
    _Atomic uint64_t *busy_ns = &server->roles[role - 1]->busy_ns.value;
    if (worker < server->options.workers)
        return (struct poller){"worker", worker_poll, server->workers[worker], busy_ns};
    if (digest < server->options.digests)
        return (struct poller){"digest", digest_poll, server->digests[digest], busy_ns};
    return (struct poller){"clean", clean_poll, server->clean, busy_ns};
}

static int attach_endpoint(struct reactor *reactor, struct fabric_endpoint *endpoint)
{
    struct event_source source;
    fabric_endpoint_reactor(endpoint, reactor);
    fabric_endpoint_source(endpoint, &source);
    return reactor_add_source(reactor, &source);
}

int server_attach(struct server *server, struct reactor **reactors, uint32_t count)
{
    for (uint32_t role = 0; role < server_roles(server); role++) {
        struct reactor *reactor = reactors[role == 0 ? 0 : (role - 1) % count];
        struct poller poller = server_poller(server, role);
        int error = reactor_add_poller(reactor, &poller);
        if (error)
            return error;
        if (role > 0)
            role_attach(server->roles[role - 1], reactor, reactors[0]);
        if (role == 0)
            error = attach_endpoint(reactor, control_endpoint(server->control));
        else if (role <= server->options.workers)
            error = attach_endpoint(reactor, worker_endpoint(server->workers[role - 1]));
        if (error)
            return error;
    }
    if (!server->common.wear)
        return 0;
    return reactor_add_poller(
        reactors[0], &(struct poller){"wear", server_wear_poll, server->common.wear, NULL});
}
