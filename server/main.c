/* rowan-server: one server process. Reads its settings, opens the seams, runs the roles on reactors
 * until SIGTERM or SIGINT, or until a role cannot go on. SIGHUP makes it read its settings again. With --check it verifies
 * a stopped one's PM instead. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/address.h"
#include "common/base/clock.h"
#include "common/base/config_live.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/cluster/login.h"
#include "common/cluster/managers.h"
#include "common/fabric/verbs/verbs_settings.h"
#include "common/metrics/endpoint.h"
#include "common/pm/pm_tap.h"
#include "common/reactor/descriptors.h"
#include "common/reactor/reload.h"
#include "common/reactor/service.h"
#include "release.h"
#include "server/check/check.h"
#include "server/clean/clean.h"
#include "server/server.h"
#include "server/store/store.h"
#include "server/wear.h"

enum {
    MAX_REACTORS = 128,
    LEAST_FILL_RATE = 1 << 20, /* what is copied is not cleaned meanwhile */
    PEERS_WAIT_MS = 5000,      /* a peer closes its map of our PM soon after its server has gone */
};

struct settings {
    uint64_t server, pm_offset, pm_bytes, workers, digests, reactors, landing_segments, clean_below,
        fill_rate, trace_one_in, spin_us, stop_timeout;
    uint64_t durability, wear, log_level, log_bytes;
    const char *cm, *address, *cluster_key, *pm, *metrics;
    bool pin, checkpoints;
    struct verbs_settings verbs;
};

#define FIELD(name) offsetof(struct settings, name)
static const struct config_key keys[] = {
    {"server", CONFIG_U64, FIELD(server), NULL, 1, CLUSTER_MAX_SERVER, NULL,
     "this server's number"},
    {"cm", CONFIG_STRING | CONFIG_LIVE, FIELD(cm), NULL, 0, 0, NULL,
     "fabric addresses of the configuration managers, with commas between them"},
    {"address", CONFIG_STRING, FIELD(address), NULL, 0, 0, NULL,
     "fabric address of this process (shm:/directory/name, or tcp:HOST:PORT or verbs:HOST:PORT, "
     "where each worker and one more listen on a port of their own, from PORT on)"},
    CLUSTER_KEY_KEY(FIELD(cluster_key)),
    {"pm", CONFIG_STRING, FIELD(pm), NULL, 0, 0, NULL,
     "file or DAX device for the data; a file that is not there is made"},
    {"pm-offset", CONFIG_U64, FIELD(pm_offset), "0", 0, UINT64_C(1) << 46, NULL,
     "bytes of the file or device before this server's part; a multiple of 4096"},
    {"pm-bytes", CONFIG_U64, FIELD(pm_bytes), "4G", 32 << 20, UINT64_C(1) << 46, NULL,
     "bytes of this server's part, all reserved at start"},
    {"workers", CONFIG_U64, FIELD(workers), "1", 1, CLUSTER_MAX_WORKERS, NULL, "worker roles"},
    {"digests", CONFIG_U64, FIELD(digests), "1", 1, SERVER_MAX_DIGESTS, NULL, "digest roles"},
    {"reactors", CONFIG_U64, FIELD(reactors), "1", 1, MAX_REACTORS, NULL,
     "threads that run the roles"},
    {"landing-segments", CONFIG_U64, FIELD(landing_segments), "16", 2, 1024, NULL,
     "4 MiB segments posted to the landing zone at a time"},
    {"clean-below", CONFIG_U64 | CONFIG_LIVE, FIELD(clean_below), "75", 1, CLEAN_MAX_PERCENT, NULL,
     "per cent of live bytes below which a segment is cleaned, once space is needed; more cleans "
     "sooner, and writes more"},
    {"fill-rate", CONFIG_U64 | CONFIG_LIVE, FIELD(fill_rate), "1T", LEAST_FILL_RATE,
     UINT64_C(1) << 40, NULL,
     "bytes a second that each worker copies to replicas that fill, at most; while space is short, "
     "what it has begun goes at once"},
    {"trace-one-in", CONFIG_U64 | CONFIG_LIVE, FIELD(trace_one_in), "1024", 0, 1000000000, NULL,
     "one in so many operations is followed through its steps (rowan slow); 0: none"},
    {"checkpoints", CONFIG_BOOL | CONFIG_LIVE, FIELD(checkpoints), "yes", 0, 0, NULL,
     "write the index to the PM now and then, so that a start need not read all data"},
    {"spin-us", CONFIG_U64 | CONFIG_LIVE, FIELD(spin_us), "20", 0, 1000000, NULL,
     "microseconds an idle thread polls before it sleeps"},
    {"stop-timeout", CONFIG_U64 | CONFIG_LIVE, FIELD(stop_timeout), "10", 0, 3600, NULL,
     "seconds that the others have, when this server is asked to stop (SIGTERM), to take its "
     "place; a second signal, or SIGINT, stops it at once"},
    {"pin", CONFIG_BOOL, FIELD(pin), "no", 0, 0, NULL, "pin thread i to core i"},
    {"durability", CONFIG_CHOICE, FIELD(durability), "fence", 0, 0, "fence|async|none",
     "what an acknowledged write has survived: power loss | power loss after a moment | the "
     "process"},
    METRICS_KEY(FIELD(metrics)),
    {"wear-model", CONFIG_CHOICE, FIELD(wear), "off", 0, 0, SERVER_WEAR_MODES,
     "estimate what the writes to PM would cost an Optane DIMM (rowan-dlwa shows it); "
     "log-per-sender: as if "
     "each worker of other servers had a log of its own here"},
    {"log-bytes", CONFIG_U64 | CONFIG_LIVE, FIELD(log_bytes), "0", 0, UINT64_C(1) << 40, NULL,
     "where standard error is a file: bytes of it and of its predecessor, FILE.1, at most; 0: it "
     "grows"},
    {"log-level", CONFIG_CHOICE | CONFIG_LIVE, FIELD(log_level), "info", 0, 0,
     "error|warn|info|debug", "least important lines to log on standard error"},
    VERBS_DEVICE_KEYS(FIELD(verbs)),
    VERBS_ZONE_KEYS(FIELD(verbs)),
};

static const struct config_spec spec = {
    .program = "rowan-server",
    .release = ROWAN_RELEASE,
    .summary = "one server of a Rowan-KV cluster; with --check FILE it verifies the PM of one that "
               "does not run, "
               "and serves nobody (--check FILE --help)",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

static struct metrics metrics;
static struct reactor *reactors[MAX_REACTORS];
static uint32_t reactor_count;
static struct server *volatile running; /* for the signal handler */
static volatile sig_atomic_t told_to_stop;

static void stop_all(void *context)
{
    (void)context;
    for (uint32_t i = 0; i < reactor_count; i++)
        reactor_stop(reactors[i]);
}

static void on_signal(int number)
{
    if (number == SIGINT || told_to_stop || !running)
        stop_all(NULL);
    else
        server_stop(running);
    told_to_stop = 1;
}

/* --- settings that change while it runs --- */

static void tune(const struct settings *settings, struct server_options *options)
{
    options->cm = settings->cm;
    options->stop_timeout_ns = settings->stop_timeout * NS_PER_S;
    options->clean_percent = (uint32_t)settings->clean_below;
    options->fill_rate = settings->fill_rate;
    options->trace_one_in = (uint32_t)settings->trace_one_in;
    options->no_checkpoints = !settings->checkpoints;
}

static void apply_settings(void *of)
{
    const struct settings *settings = of;
    struct server_options options = {0};
    log_set_level((enum log_level)settings->log_level);
    log_limit(settings->log_bytes);
    for (uint32_t i = 0; i < reactor_count; i++)
        reactor_spin(reactors[i], settings->spin_us * NS_PER_US);
    tune(settings, &options);
    if (running)
        server_tune(running, &options);
}

static const char *check_settings(const void *of, char *why, size_t why_bytes)
{
    const struct settings *settings = of;
    struct fabric_verbs_options verbs;
    struct managers managers;
    const char *wrong = verbs_settings_apply(&settings->verbs, &verbs);
    if (!wrong && !metrics_address_is_right(settings->metrics))
        wrong = metrics_why(ROWAN_EADDRESS);
    if (wrong || !managers_parse(settings->cm, &managers, &wrong))
        return wrong;
    snprintf(why, why_bytes, "cannot use the CM's address %s: %s", settings->cm, wrong);
    return why;
}

static struct config_live live = {.spec = &spec,
                                  .settings_bytes = sizeof(struct settings),
                                  .check = check_settings,
                                  .apply = apply_settings};

/* --- start and end --- */

static int complain(const char *what, const char *name, const char *why)
{
    fprintf(stderr, "rowan-server: %s %s: %s\n", what, name, why);
    return 1;
}

static int fail(const char *what, const char *name, int error)
{
    return complain(what, name, error_sentence(error));
}

static int create_reactors(const struct settings *settings)
{
    for (uint32_t i = 0; i < settings->reactors; i++) {
        char name[16];
        snprintf(name, sizeof name, "rowan-%u", i);
        const struct reactor_options options = {.name = name,
                                                .clock = clock_system(),
                                                .spin_ns = settings->spin_us * NS_PER_US,
                                                .cpu = settings->pin ? (int)i : -1};
        int error = reactor_create(&options, &reactors[i]);
        if (error)
            return error;
        reactor_count++;
    }
    return 0;
}

static int refuse_pm(const struct settings *settings, const char *why)
{
    return complain("cannot use the PM file", settings->pm, why);
}

/* May this server use what the map holds: nothing yet, or its own data? */
static int refuse_other_pm(const struct settings *settings, const struct pm *pm, bool made)
{
    char why[640];
    struct store_identity identity;
    struct store_run run;
    int error = store_read_identity(pm, &identity);
    if (error == ROWAN_ENOTFOUND && !made && !store_is_blank(pm)) {
        snprintf(why, sizeof why,
                 "the %lu bytes from byte %lu on were never formatted and hold other things than "
                 "zeros; if they may go, write zeros over these, and no others (a device: daxio "
                 "--zero --output=%s --seek=%lu --len=%lu, of the package pmdk-tools)",
                 settings->pm_bytes, settings->pm_offset, settings->pm, settings->pm_offset,
                 settings->pm_bytes);
        return refuse_pm(settings, why);
    }
    if (error == ROWAN_ENOTFOUND)
        return 0;
    if (error) {
        store_why(pm, error, why, sizeof why);
        return refuse_pm(settings, why);
    }
    if (identity.server != settings->server) {
        snprintf(why, sizeof why, "it holds the data of server %u, and this is server %lu",
                 identity.server, settings->server);
        return refuse_pm(settings, why);
    }
    if (store_read_run(pm, &run) == ROWAN_EDAMAGED)
        return refuse_pm(settings, "its run records are damaged: what it holds cannot be trusted");
    return 0;
}

/* Makes a file that is not there. Prints what is wrong. */
static int open_pm(const struct settings *settings, struct pm **out, bool *made)
{
    struct pm_open_options options = {.path = settings->pm,
                                      .offset = settings->pm_offset,
                                      .bytes = settings->pm_bytes,
                                      .create = 1,
                                      .durability = (enum pm_durability)settings->durability,
                                      .peers_wait_ms = PEERS_WAIT_MS,
                                      .reactor = reactors[0]};
    struct pm *pm;
    int error = pm_open(&options, &pm);
    if (error == ROWAN_EEXISTS) {
        options.create = 0;
        error = pm_open(&options, &pm);
    }
    if (error == ROWAN_EFORMAT)
        return refuse_pm(settings, "it has fewer bytes than pm-offset and pm-bytes ask for");
    struct stat status;
    if (error == ROWAN_EINVALID && stat(settings->pm, &status) == 0 && S_ISDIR(status.st_mode))
        return refuse_pm(settings, "it is a directory: name a file in it");
    if (error == ROWAN_EINVALID)
        return refuse_pm(settings,
                         "pm-offset and pm-bytes must be multiples of 4096, and of a device's "
                         "alignment (the log above tells it)");
    if (!error && settings->wear != WEAR_OFF) {
        error = pm_tap_open(pm, &pm);
        if (error)
            pm_close(pm);
    }
    if (error)
        return refuse_pm(settings, error_sentence(error));
    if (refuse_other_pm(settings, pm, options.create)) {
        pm_close(pm);
        return 1;
    }
    *out = pm;
    *made = options.create;
    return 0;
}

/* Removes a file that this start made and did not use, because the server was refused. The map is
 * still locked: nobody else can have begun to use it. */
static void close_pm(const struct settings *settings, struct pm *pm, bool made)
{
    struct store_identity identity;
    if (pm && made && store_read_identity(pm, &identity) == ROWAN_ENOTFOUND &&
        unlink(settings->pm) == 0)
        log_event(LOG_INFO, "pm_removed", "path=%s reason=\"made by this start and never used\"",
                  settings->pm);
    pm_close(pm);
}

static void wake_control(void *context)
{
    (void)context;
    reactor_wake(reactors[0]);
}

static bool serves(const void *context)
{
    return server_serves(context);
}

/* Runs until a signal or a failure. *removed: the cluster went on without this process. */
static int run(struct server *server, const char *metrics_address, bool *removed)
{
    struct metrics_endpoint *endpoint;
    int error = metrics_endpoint_open(metrics_address, &metrics, wake_control, NULL, &endpoint);
    if (error)
        return complain("cannot answer Prometheus at", metrics_address, metrics_why(error));
    struct sigaction action = {.sa_handler = on_signal};
    struct service *service = NULL;
    running = server;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    server_on_failure(server, stop_all, NULL);
    error = server_attach(server, reactors, reactor_count);
    if (!error)
        error = reload_attach(reactors[0]); /* the control role's */
    if (!error)
        error = service_attach(reactors, reactor_count, serves, server, &service);
    for (uint32_t i = 1; i < reactor_count && !error; i++)
        error = reactor_start(reactors[i]);
    if (!error)
        reactor_run(reactors[0]);
    stop_all(NULL);
    for (uint32_t i = 1; i < reactor_count; i++)
        reactor_join(reactors[i]);
    running = NULL;
    metrics_endpoint_close(endpoint);
    service_detach(service);
    if (error)
        return fail("cannot start", "its threads", error);
    *removed = server_error(server) == ROWAN_EREMOVED;
    if (server_error(server))
        fprintf(stderr, "rowan-server: %s\n", server_why(server));
    return server_error(server) ? 1 : 0;
}

static int serve(const struct settings *settings, struct fabric *fabric, struct pm *pm,
                 struct login_secret *cluster_key, bool *removed)
{
    uint64_t incarnation = 0;
    while (incarnation == 0)
        random_entropy(&incarnation, sizeof incarnation);
    struct server_options options = {.server = (uint32_t)settings->server,
                                     .incarnation = incarnation,
                                     .clock = clock_system(),
                                     .address = settings->address,
                                     .cluster_key = cluster_key,
                                     .workers = (uint32_t)settings->workers,
                                     .digests = (uint32_t)settings->digests,
                                     .reactors = (uint32_t)settings->reactors,
                                     .landing_segments = (uint32_t)settings->landing_segments,
                                     .wear = (unsigned)settings->wear,
                                     .settings = &live,
                                     .metrics = &metrics};
    tune(settings, &options);
    int error = clock_boot_id(options.boot_id);
    if (error)
        return fail("cannot read", "/proc/sys/kernel/random/boot_id", error);
    const uint64_t descriptors = descriptors_raise();
    struct server *server;
    error = server_create(&options, fabric, pm, &server);
    if (error)
        return complain("cannot serve at", settings->address, address_why(error));
    log_event(LOG_INFO, "server_started",
              "server=%lu fabric=%s pm=%s durability=%s workers=%lu digests=%lu reactors=%lu "
              "descriptors=%lu",
              settings->server, fabric_caps(fabric)->backend, pm->backend,
              pm_durability_name(pm->durability), settings->workers, settings->digests,
              settings->reactors, descriptors);
    int status = run(server, settings->metrics, removed);
    log_event(LOG_INFO, "server_stopped", "server=%lu", settings->server);
    server_destroy(server);
    return status;
}

/* --- check --- */

struct check_settings {
    const char *path;
    uint64_t pm_offset, pm_bytes;
    bool json;
};

#define CHECK_FIELD(name) offsetof(struct check_settings, name)
static const struct config_key check_keys[] = {
    {"check", CONFIG_STRING, CHECK_FIELD(path), NULL, 0, 0, NULL,
     "file or DAX device of a server that does not run; nothing is written"},
    {"pm-offset", CONFIG_U64, CHECK_FIELD(pm_offset), "0", 0, UINT64_C(1) << 46, NULL,
     "bytes of the file or device before that server's part; a multiple of 4096"},
    {"pm-bytes", CONFIG_U64, CHECK_FIELD(pm_bytes), "0", 0, UINT64_C(1) << 46, NULL,
     "bytes of that server's part; 0: all that is there"},
    {"json", CONFIG_BOOL, CHECK_FIELD(json), "no", 0, 0, NULL,
     "print one JSON object, and nothing else, on standard output"},
};

static const struct config_spec check_spec = {
    .program = "rowan-server",
    .release = ROWAN_RELEASE,
    .summary = "verify the PM of a server that does not run. Exit codes: 0 nothing is damaged, 1 "
               "something is, or it cannot be read, 2 usage",
    .keys = check_keys,
    .key_count = sizeof check_keys / sizeof check_keys[0],
};

static bool is_check(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--check") == 0 || strncmp(argv[i], "--check=", 8) == 0)
            return true;
    }
    return false;
}

static bool print_report(const struct check_report *report, bool json)
{
    bool printed;
    if (json) {
        json_t *object = check_json(report);
        printed = object && json_dumpf(object, stdout, JSON_INDENT(2)) == 0 && putchar('\n') >= 0;
        json_decref(object);
    } else {
        char *text = check_text(report);
        printed = text && fputs(text, stdout) >= 0;
        free(text);
    }
    return printed && fflush(stdout) == 0;
}

static int cannot_check(const struct check_settings *settings, const char *why)
{
    return complain("cannot check", settings->path, why);
}

static int check_map(const struct check_settings *settings, const struct pm *pm)
{
    struct check_report *report;
    char why[160];
    int error = check_pm(pm, &report);
    if (error == ROWAN_ENOTFOUND)
        return cannot_check(settings, "it was never formatted: no server has used it");
    if (error) {
        store_why(pm, error, why, sizeof why);
        return cannot_check(settings, why);
    }
    const uint64_t found = check_found(report);
    const bool printed = print_report(report, settings->json);
    free(report);
    if (!printed)
        return cannot_check(settings, "the report could not be written");
    if (found)
        fprintf(stderr, "rowan-server: %s: %lu places are damaged, or may be\n", settings->path,
                found);
    return found ? 1 : 0;
}

static int check_main(int argc, char **argv)
{
    struct check_settings settings;
    struct config_rest rest;
    struct pm *pm;
    enum config_outcome outcome = config_parse(&check_spec, argc, argv, &settings, &rest);
    if (outcome != CONFIG_OK)
        return outcome == CONFIG_HELP ? 0 : 2;
    int error = pm_open_read(settings.path, settings.pm_offset, settings.pm_bytes, &pm);
    int status = error ? cannot_check(&settings, error_sentence(error)) : check_map(&settings, pm);
    if (!error)
        pm_close(pm);
    config_free(&rest);
    return status;
}

/* A process that was silent, and so removed, makes room for one with a new incarnation, which comes back and is filled.
 * Whoever watches this one sees it go on. Returns if it cannot. */
static void start_again(char **argv)
{
    log_event(LOG_INFO, "server_starts_again", "program=%s", argv[0]);
    execv("/proc/self/exe", argv);
    fail("cannot start again as", argv[0], error_from_errno(errno));
}

/* The log, and what changes while it runs. */
static void begin(struct settings *settings, const struct config_rest *rest, int argc, char **argv)
{
    log_open(settings->log_bytes);
    log_set_level((enum log_level)settings->log_level);
    char node[32];
    snprintf(node, sizeof node, "server-%lu", settings->server);
    log_set_node(node);
    live.argc = argc;
    live.argv = argv;
    live.file = rest->file;
    live.settings = live.context = settings;
}

int main(int argc, char **argv)
{
    if (is_check(argc, argv))
        return check_main(argc, argv);
    struct settings settings;
    struct config_rest rest;
    enum config_outcome outcome = config_parse(&spec, argc, argv, &settings, &rest);
    if (outcome != CONFIG_OK)
        return outcome == CONFIG_HELP ? 0 : 2;
    begin(&settings, &rest, argc, argv);
    struct fabric_verbs_options verbs;
    const char *why = verbs_settings_apply(&settings.verbs, &verbs);
    int error = reload_catch(&live);
    if (!why && !metrics_address_is_right(settings.metrics))
        why = metrics_why(ROWAN_EADDRESS);
    if (!why && error)
        why = error_sentence(error);
    if (why) {
        fprintf(stderr, "rowan-server: %s\n", why);
        config_free(&rest);
        return 2;
    }

    int status = 1;
    bool made = false, removed = false;
    struct pm *pm = NULL;
    struct fabric *fabric = NULL;
    struct managers managers;
    struct login_secret secret, *key;
    if (!login_key_read("rowan-server", "cluster-key", settings.cluster_key, &secret, &key)) {
        config_free(&rest);
        return 2;
    }
    error = managers_parse(settings.cm, &managers, &why);
    if (error) {
        complain("cannot use the CM's address", settings.cm, why);
        goto out;
    }
    error = create_reactors(&settings);
    if (error) {
        fail("cannot make", "its threads", error);
        goto out;
    }
    error = fabric_open_with(NULL, settings.address, &verbs, &fabric);
    if (error)
        complain("cannot use the address", settings.address,
                 address_wrong(settings.address) ? address_wrong(settings.address)
                                                 : address_why(error));
    if (error || open_pm(&settings, &pm, &made))
        goto out;
    error = fabric_register(fabric, pm);
    if (error) /* the fabric says what is wrong with the memory, where it can */
        refuse_pm(&settings, *fabric_why(fabric) ? fabric_why(fabric) : error_sentence(error));
    else
        status = serve(&settings, fabric, pm, key, &removed);
out:
    close_pm(&settings, pm, made);
    fabric_close(fabric);
    signal(SIGTERM, removed ? SIG_DFL : SIG_IGN); /* it ends: the handler's reactors go */
    signal(SIGINT, removed ? SIG_DFL : SIG_IGN);
    reload_ignore();
    for (uint32_t i = 0; i < reactor_count; i++)
        reactor_destroy(reactors[i]);
    config_live_fini(&live);
    config_free(&rest);
    if (key)
        login_secret_fini(key);
    if (removed && !told_to_stop)
        start_again(argv);
    return status;
}
