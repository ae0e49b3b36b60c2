/* rowan-fabric-bench: measures one fabric backend by itself: a receiver and its senders, without a store. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "release.h"
#include "tools/fabric-bench/bench.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

#define TEXT(key, field, preset, words)                                                            \
    {                                                                                              \
        .name = key, .type = CONFIG_STRING, .offset = offsetof(struct bench_settings, field),      \
        .fallback = preset, .help = words                                                          \
    }
#define NUMBER(key, field, least, most, preset, words)                                             \
    {                                                                                              \
        .name = key, .type = CONFIG_U64, .offset = offsetof(struct bench_settings, field),         \
        .fallback = preset, .min = least, .max = most, .help = words                               \
    }
#define CHOICE(key, field, words, preset, text)                                                    \
    {                                                                                              \
        .name = key, .type = CONFIG_CHOICE, .offset = offsetof(struct bench_settings, field),      \
        .fallback = preset, .choices = words, .help = text                                         \
    }
#define SWITCH(key, field, words)                                                                  \
    {                                                                                              \
        .name = key, .type = CONFIG_BOOL, .offset = offsetof(struct bench_settings, field),        \
        .fallback = "no", .help = words                                                            \
    }

static const struct config_key keys[] = {
    TEXT("fabric", fabric, "", "shm, tcp or verbs; default: that of the address, else shm"),
    CHOICE("mode", mode, "rowan|write|message|all", "all",
           "Rowan sends, bulk writes, messages with an echo, or each in turn"),
    TEXT("bytes", bytes, "64,128", "bytes of an operation: numbers with commas between them"),
    TEXT("senders", senders, "1,6",
         "connections at a time: numbers with commas between them, each a run"),
    NUMBER("depth", depth, 1, LANE_MAX_DEPTH, "16",
           "outstanding for each sender: operations; of Rowan sends batches"),
    NUMBER("batch", batch, 1, LANE_MAX_BATCH, "1",
           "blocks of a Rowan send, which complete together"),
    TEXT("seconds", seconds, "2", "how long each run is measured"),
    NUMBER("warm-up-ms", warm_up_ms, 0, 600000, "1000",
           "how long each runs before it is measured, in milliseconds"),
    NUMBER("threads", threads, 0, CREW_MAX_THREADS, "0",
           "threads that send; 0: one for each core but the receiver's"),
    TEXT(
        "spin-us", spin_us, "",
        "how long an idle sending thread polls before it sleeps, in microseconds; default: 50, and "
        "0 where threads outnumber cores"),
    NUMBER("receiver-spin-us", receiver_spin_us, 0, 1000000, "0",
           "the same for the receiver; above 0 its CPU time is that of polling"),
    TEXT("pm", pm, "", "the receiver's memory: a file or device; default: memory in tmpfs"),
    SWITCH("overwrite", overwrite, "use --pm even if it does not begin with zeros"),
    CHOICE("durability", durability, "fence|async|none", "fence",
           "durability of --pm; in tmpfs there is none"),
    NUMBER("segments", segments, 2, 1024, "32", "segments of the landing zone, 4 MB each"),
    SWITCH("serve", serve, "be only the receiver, at --address, until a signal"),
    TEXT("address", address, "",
         "address of the receiver: shm:/DIRECTORY/NAME, tcp:HOST:PORT or verbs:HOST:PORT; default: "
         "a free one of this host"),
    TEXT("connect", connect, "", "be only the senders; address of the receiver"),
    VERBS_DEVICE_KEYS(offsetof(struct bench_settings, verbs)),
    VERBS_ZONE_KEYS(offsetof(struct bench_settings, verbs)),
    SWITCH("json", json, "print one JSON object and nothing else"),
};

static const struct config_spec spec = {
    .program = "rowan-fabric-bench",
    .release = ROWAN_RELEASE,
    .summary =
        "Measures one fabric by itself: throughput and latency in a closed loop, and the CPU\n"
        "time that the receiver spends on each operation, which for one-sided ones is about\n"
        "none. Without --serve and --connect both sides are threads of this program.\n"
        "Exit code: 0 done, 1 failed, 2 usage.",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

static atomic_bool stop;

static void on_signal(int number)
{
    (void)number;
    atomic_store_explicit(&stop, true, memory_order_release);
}

static void catch_signals(void)
{
    const struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int usage(const char *sentence)
{
    fprintf(stderr, "rowan-fabric-bench: %s; see rowan-fabric-bench --help\n", sentence);
    return EXIT_USAGE;
}

static bool parse_number(const char *text, double least, double most, double *out)
{
    char *end;
    const double value = strtod(text, &end);

    if (!*text || *end || !(value >= least && value <= most))
        return false;
    *out = value;
    return true;
}

static bool has_scheme(const char *address, const char *scheme)
{
    const size_t bytes = strlen(scheme);

    return strncmp(address, scheme, bytes) == 0 && address[bytes] == ':';
}

/* Which side runs where. */
static int check_places(const struct bench_settings *settings, struct bench *bench)
{
    static const char *const schemes[] = {"shm", "tcp", "verbs"};
    const char *address = *settings->connect ? settings->connect : settings->address;

    if (settings->serve && *settings->connect)
        return usage("--serve and --connect exclude each other");
    if (*settings->connect && *settings->address)
        return usage("--address is for the receiver: give it there, or --connect alone");
    if (settings->serve && !*settings->address)
        return usage("--serve needs --address, to which the senders then --connect");
    if (*settings->connect && *settings->pm)
        return usage("--pm is the receiver's: give it with --serve");
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (*address ? has_scheme(address, schemes[i])
                     : strcmp(*settings->fabric ? settings->fabric : "shm", schemes[i]) == 0)
            bench->scheme = schemes[i];
    }
    if (!bench->scheme)
        return usage(*address
                         ? "an address is shm:/DIRECTORY/NAME, tcp:HOST:PORT or verbs:HOST:PORT"
                         : "--fabric is shm, tcp or verbs");
    if (*settings->fabric && strcmp(settings->fabric, bench->scheme) != 0)
        return usage("--fabric and the address differ");
    if (!*address && strcmp(bench->scheme, "verbs") == 0)
        return usage("--fabric verbs needs --address verbs:HOST:PORT, of the device's network");
    return EXIT_DONE;
}

static int check_numbers(const struct bench_settings *settings, struct bench *bench)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t receivers = *settings->connect ? 0 : 1;
    double seconds, spin_us = 50;

    if (plan_list(settings->bytes, UINT32_MAX, &bench->bytes))
        return usage("--bytes is a list of up to 16 numbers, as 64,128,4K");
    if (plan_list(settings->senders, CREW_MAX_SENDERS, &bench->senders))
        return usage("--senders is a list of up to 16 numbers from 1 to 1000, as 1,6,144");
    if (!parse_number(settings->seconds, 0.01, 100000, &seconds))
        return usage("--seconds is a number from 0.01 to 100000");
    bench->run_ns = (uint64_t)(seconds * 1e9);
    bench->threads = (uint32_t)settings->threads;
    if (bench->threads == 0)
        bench->threads = cores > 2 ? (uint32_t)cores - receivers : 1;
    if (bench->threads > CREW_MAX_THREADS)
        bench->threads = CREW_MAX_THREADS;
    const bool crowded = (long)(bench->threads + receivers) > cores;

    if (*settings->spin_us && !parse_number(settings->spin_us, 0, 1e6, &spin_us))
        return usage("--spin-us is a number from 0 to 1000000");
    if (crowded && ((*settings->spin_us && spin_us > 0) || settings->receiver_spin_us > 0))
        return usage(
            "threads that spin must not outnumber the cores: fewer --threads, or no spinning");
    bench->spin_ns = crowded ? 0 : (uint64_t)(spin_us * 1000);
    return EXIT_DONE;
}

static int run(struct bench *bench)
{
    const struct bench_settings *settings = bench->settings;
    int code = place_make(&bench->place) ? EXIT_FAILED : EXIT_DONE;

    if (code != EXIT_DONE) {
        fprintf(stderr, "rowan-fabric-bench: no directory can be made in /dev/shm\n");
        return code;
    }
    if (settings->serve)
        code = bench_serve(bench);
    else if (*settings->connect)
        code = bench_connect(bench, settings->connect);
    else
        code = bench_local(bench);
    place_remove(&bench->place);
    return code;
}

int main(int argc, char **argv)
{
    struct bench_settings settings;
    struct config_rest rest;
    struct bench bench = {.settings = &settings, .stop = &stop};
    enum config_outcome outcome = config_parse(&spec, argc, argv, &settings, &rest);

    if (outcome != CONFIG_OK)
        return outcome == CONFIG_HELP ? EXIT_DONE : EXIT_USAGE;
    int code = check_places(&settings, &bench);

    if (code == EXIT_DONE)
        code = check_numbers(&settings, &bench);
    const char *wrong = verbs_settings_apply(&settings.verbs, &bench.verbs);

    if (code == EXIT_DONE && wrong) {
        fprintf(stderr, "rowan-fabric-bench: %s\n", wrong);
        code = EXIT_USAGE;
    }
    if (code == EXIT_DONE) {
        if (strcmp(bench.scheme, "verbs") != 0) /* verbs says there which device it chose */
            log_set_level(LOG_WARN);
        catch_signals();
        code = run(&bench);
    }
    config_free(&rest);
    return code;
}
