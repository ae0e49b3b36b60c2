/* main.c - rowan-cm: one reactor with one role, until a signal or a failure ends it. SIGHUP makes it read its settings again. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cm/cm.h"
#include "cm/settings.h"
#include "common/base/address.h"
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/cluster/login.h"
#include "common/metrics/endpoint.h"
#include "common/reactor/descriptors.h"
#include "common/reactor/reload.h"
#include "common/reactor/service.h"
#include "release.h"

#define ZOOKEEPER_USER "rowan:"

enum { EXIT_USAGE = 2, ZOOKEEPER_LOGIN_BYTES = sizeof ZOOKEEPER_USER + 2 * MAC_BYTES };

static struct reactor *running; /* for the signal handler */
static struct metrics metrics;

/* --- settings that change while it runs --- */

static struct cm *tuned; /* NULL: there is none yet */

static const char *check_settings(const void *settings, char *why, size_t why_bytes)
{
    const struct cm_settings *fresh = settings;
    struct cm_state_options state = {0};
    struct fabric_verbs_options verbs;
    const char *wrong = cm_settings_apply(fresh, &state, why, why_bytes);
    return wrong ? wrong : verbs_settings_apply(&fresh->verbs, &verbs);
}

static void apply_settings(void *of)
{
    const struct cm_settings *settings = of;
    struct cm_state_options state = {0};
    char why[160];
    const bool right = !cm_settings_apply(settings, &state, why, sizeof why);
    ASSERT(right); /* check_settings */
    log_set_level((enum log_level)settings->log_level);
    log_limit(settings->log_bytes);
    if (running)
        reactor_spin(running, settings->spin_us * NS_PER_US);
    if (tuned)
        cm_tune(tuned, &state);
}

static struct config_live live = {.spec = &cm_settings_spec,
                                  .settings_bytes = sizeof(struct cm_settings),
                                  .check = check_settings,
                                  .apply = apply_settings};

/* --- start and end --- */

static void on_signal(int signal_number)
{
    (void)signal_number;
    reactor_stop(running);
}

static int catch_signals(struct reactor *reactor)
{
    running = reactor;
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    return sigaction(SIGTERM, &action, NULL) || sigaction(SIGINT, &action, NULL)
               ? error_from_errno(errno)
               : ROWAN_OK;
}

static int complain(const char *what, const char *name, int error)
{
    fprintf(stderr, "rowan-cm: %s%s%s: %s\n", what, name ? " " : "", name ? name : "",
            error_sentence(error));
    return EXIT_FAILURE;
}

static int cannot_serve(const char *address, int error)
{
    const char *wrong = address_wrong(address);
    fprintf(stderr, "rowan-cm: cannot serve at %s: %s\n", address,
            wrong ? wrong : address_why(error));
    return EXIT_FAILURE;
}

static void on_failed(void *context, int error, const char *detail)
{
    fprintf(stderr, "rowan-cm: %s (%s)\n", detail, error_sentence(error));
    reactor_stop(context);
}

/* Never 0: a 0 means "none" for a cluster's id and for an incarnation. */
static uint64_t entropy_u64(void)
{
    uint64_t value = 0;
    while (value == 0)
        random_entropy(&value, sizeof value);
    return value;
}

static const char *coord_place(const struct cm_settings *settings)
{
    return settings->coord == CM_COORD_FILE ? settings->coord_dir : settings->zookeeper;
}

static void wake(void *reactor)
{
    reactor_wake(reactor);
}

/* Runs until stopped. The exit code. */
static int serve(struct cm_options *options, const struct cm_settings *settings,
                 struct reactor *reactor)
{
    options->state.incarnation = entropy_u64();
    options->state.cluster = entropy_u64();
    random_entropy(options->state.secret, sizeof options->state.secret);
    options->failed = on_failed;
    options->failed_context = reactor;
    options->settings = &live;
    options->metrics = &metrics;

    const uint64_t descriptors = descriptors_raise();
    struct cm *cm;
    int error = cm_create(options, &cm);
    if (error)
        return cannot_serve(settings->address, error);

    tuned = cm;
    struct metrics_endpoint *endpoint;
    error = metrics_endpoint_open(settings->metrics, &metrics, wake, reactor, &endpoint);
    if (error) {
        cm_destroy(cm);
        fprintf(stderr, "rowan-cm: cannot answer Prometheus at %s: %s\n", settings->metrics,
                metrics_why(error));
        return EXIT_FAILURE;
    }
    struct event_source source;
    struct service *service = NULL;
    cm_source(cm, &source);
    int code = EXIT_SUCCESS;
    error = reactor_add_poller(reactor, &(struct poller){"cm", cm_poll, cm, NULL});
    if (!error)
        error = reactor_add_source(reactor, &source);
    if (!error)
        error = reload_attach(reactor);
    if (!error)
        error = service_attach(&reactor, 1, NULL, NULL, &service);
    if (!error)
        error = catch_signals(reactor);
    if (error) {
        code = complain("cannot start", NULL, error);
    } else {
        log_event(LOG_INFO, "started",
                  "address=%s servers=%s replicas=%llu coord=%s descriptors=%llu",
                  settings->address, settings->servers, (unsigned long long)settings->replicas,
                  coord_place(settings), (unsigned long long)descriptors);
        if (settings->recover)
            log_event(LOG_WARN, "recovering", "detail=\"%s\"", CM_RECOVER_MEANS);
        reactor_run(reactor);
        code = cm_error(cm) ? EXIT_FAILURE : EXIT_SUCCESS;
        log_event(LOG_INFO, "stopped", "error=%s", error_name(cm_error(cm)));
    }
    metrics_endpoint_close(endpoint);
    service_detach(service);
    cm_destroy(cm);
    return code;
}

/* The ensemble hears the secret as it is: so it gets one that is of use nowhere else. Without a file *login stays "". False: a sentence was
 * printed. */
static bool read_zookeeper_key(const char *path, char login[ZOOKEEPER_LOGIN_BYTES])
{
    struct login_secret secret, *key;
    uint8_t made[MAC_BYTES];
    if (!login_key_read("rowan-cm", "zookeeper-key", path, &secret, &key))
        return false;
    if (!key)
        return true;
    const bool done = mac_subkey(key->secret, key->bytes, "zookeeper", made);
    login_secret_fini(key);
    if (!done) {
        complain("cannot use zookeeper-key", path, ROWAN_ENOMEM);
        return false;
    }
    char *end = stpcpy(login, ZOOKEEPER_USER);
    for (unsigned i = 0; i < sizeof made; i++)
        end += sprintf(end, "%02x", made[i]);
    explicit_bzero(made, sizeof made);
    return true;
}

/* `login`: of the managers in ZooKeeper, or "". */
static int run(const struct cm_settings *settings, const struct scram_verifier *servers,
               const char *login)
{
    struct cm_options options = {.servers = servers, .address = settings->address};
    char why[CM_MAX_DETAIL_BYTES + 1];
    struct fabric_verbs_options verbs;
    const char *wrong = cm_settings_apply(settings, &options.state, why, sizeof why);
    if (!wrong)
        wrong = verbs_settings_apply(&settings->verbs, &verbs);
    if (wrong) {
        fprintf(stderr, "rowan-cm: %s\n", wrong);
        return EXIT_USAGE;
    }

    struct reactor *reactor;
    struct reactor_options reactor_options = {
        .name = "cm", .clock = clock_system(), .spin_ns = settings->spin_us * NS_PER_US, .cpu = -1};
    int code;
    int error = reactor_create(&reactor_options, &reactor);
    if (error)
        return complain("cannot start", NULL, error);
    error = fabric_open_with(NULL, settings->address, &verbs, &options.fabric);
    if (error) {
        code = cannot_serve(settings->address, error);
        goto out_reactor;
    }
    error = settings->coord == CM_COORD_FILE
                ? coord_open_file(settings->coord_dir, reactor, &options.coord)
                : coord_open_zookeeper(settings->zookeeper, *login ? login : NULL,
                                       (uint32_t)settings->session_ms, reactor, &options.coord);
    if (error) {
        code = complain("cannot keep the configuration in", coord_place(settings), error);
        goto out_fabric;
    }
    code = serve(&options, settings, reactor);
    coord_close(options.coord);
out_fabric:
    fabric_close(options.fabric);
out_reactor:
    signal(SIGTERM, SIG_IGN); /* it ends: the handler's reactor goes */
    signal(SIGINT, SIG_IGN);
    reload_ignore();
    reactor_destroy(reactor);
    return code;
}

/* What servers have to prove; NULL without a file. False: a sentence was printed. */
static bool read_key(const char *path, struct scram_verifier *verifier,
                     const struct scram_verifier **out)
{
    struct login_secret secret, *key;
    uint8_t salt[SCRAM_SALT_BYTES];
    if (!login_key_read("rowan-cm", "cluster-key", path, &secret, &key))
        return false;
    if (!key)
        return true;
    random_entropy(salt, sizeof salt);
    const int error = scram_verifier_make(verifier, key->secret, key->bytes, salt, LOGIN_ROUNDS);
    login_secret_fini(key);
    if (error) {
        complain("cannot use cluster-key", path, error);
        return false;
    }
    *out = verifier;
    return true;
}

int main(int argc, char **argv)
{
    struct cm_settings settings = {0};
    struct config_rest rest = {0};
    struct config_spec spec = cm_settings_spec;
    spec.release = ROWAN_RELEASE;
    enum config_outcome outcome = config_parse(&spec, argc, argv, &settings, &rest);
    if (outcome != CONFIG_OK)
        return outcome == CONFIG_HELP ? EXIT_SUCCESS : EXIT_USAGE;

    log_open(settings.log_bytes);
    log_set_node("cm");
    log_set_level((enum log_level)settings.log_level);
    struct scram_verifier verifier;
    const struct scram_verifier *servers = NULL;
    char login[ZOOKEEPER_LOGIN_BYTES] = "";
    live.argc = argc;
    live.argv = argv;
    live.file = rest.file;
    live.settings = live.context = &settings;
    const int error = reload_catch(&live);
    int code = EXIT_USAGE;
    if (error)
        code = complain("cannot catch signals", NULL, error);
    else if (read_key(settings.cluster_key, &verifier, &servers) &&
             read_zookeeper_key(settings.zookeeper_key, login))
        code = run(&settings, servers, login);
    explicit_bzero(login, sizeof login);
    config_free(&rest);
    return code;
}
