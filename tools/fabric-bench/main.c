/* rowan-fabric-bench: measures one fabric backend by itself: a receiver and its senders, without a store. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "release.h"
#include "tools/fabric-bench/bench.h"
#include "tools/tool.h"

enum { NUMBER_BYTES = 24 };

#define FIELD(name) offsetof(struct bench_settings, name)

static const struct config_key keys[] = {
    {"fabric", CONFIG_STRING, FIELD(fabric), "", 0, 0, NULL,
     "shm, tcp or verbs; default: that of the address, else shm"},
    {"mode", CONFIG_CHOICE, FIELD(mode), "all", 0, 0, "rowan|write|message|all",
     "Rowan sends, bulk writes, messages with an echo, or each in turn"},
    {"bytes", CONFIG_STRING, FIELD(bytes), "64,128", 0, 0, NULL,
     "bytes of an operation: numbers with commas between them"},
    {"senders", CONFIG_STRING, FIELD(senders), "1,6", 0, 0, NULL,
     "connections at a time: numbers with commas between them, each a run"},
    {"depth", CONFIG_U64, FIELD(depth), "16", 1, LANE_MAX_DEPTH, NULL,
     "outstanding for each sender: operations; of Rowan sends batches"},
    {"batch", CONFIG_U64, FIELD(batch), "1", 1, LANE_MAX_BATCH, NULL,
     "blocks of a Rowan send, which complete together"},
    {"seconds", CONFIG_STRING, FIELD(seconds), "2", 0, 0, NULL, "how long each run is measured"},
    {"warm-up-ms", CONFIG_U64, FIELD(warm_up_ms), "1000", 0, 600000, NULL,
     "how long each runs before it is measured, in milliseconds"},
    {"threads", CONFIG_U64, FIELD(threads), "0", 0, CREW_MAX_THREADS, NULL,
     "threads that send; 0: one for each core but the receiver's"},
    {"spin-us", CONFIG_STRING, FIELD(spin_us), "", 0, 0, NULL,
     "how long an idle sending thread polls before it sleeps, in microseconds; default: 50, and 0 "
     "where threads outnumber cores"},
    {"receiver-spin-us", CONFIG_U64, FIELD(receiver_spin_us), "0", 0, 1000000, NULL,
     "the same for the receiver; above 0 its CPU time is that of polling"},
    {"pm", CONFIG_STRING, FIELD(pm), "", 0, 0, NULL,
     "the receiver's memory: a file or device; default: memory in tmpfs"},
    {"overwrite", CONFIG_BOOL, FIELD(overwrite), "no", 0, 0, NULL,
     "use --pm even if it does not begin with zeros"},
    {"durability", CONFIG_CHOICE, FIELD(durability), "fence", 0, 0, "fence|async|none",
     "durability of --pm; in tmpfs there is none"},
    {"segments", CONFIG_U64, FIELD(segments), "32", 2, 1024, NULL,
     "segments of the landing zone, 4 MB each"},
    {"serve", CONFIG_BOOL, FIELD(serve), "no", 0, 0, NULL,
     "be only the receiver, at --address, until a signal"},
    {"address", CONFIG_STRING, FIELD(address), "", 0, 0, NULL,
     "address of the receiver: shm:/DIRECTORY/NAME, tcp:HOST:PORT or verbs:HOST:PORT; default: a "
     "free one of this host"},
    {"connect", CONFIG_STRING, FIELD(connect), "", 0, 0, NULL,
     "be only the senders; address of the receiver"},
    VERBS_DEVICE_KEYS(FIELD(verbs)),
    VERBS_ZONE_KEYS(FIELD(verbs)),
    {"json", CONFIG_BOOL, FIELD(json), "no", 0, 0, NULL, "print one JSON object and nothing else"},
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
        return tool_usage("--serve and --connect exclude each other");
    if (*settings->connect && *settings->address)
        return tool_usage("--address is for the receiver: give it there, or --connect alone");
    if (settings->serve && !*settings->address)
        return tool_usage("--serve needs --address, to which the senders then --connect");
    if (*settings->connect && *settings->pm)
        return tool_usage("--pm is the receiver's: give it with --serve");
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (*address ? has_scheme(address, schemes[i])
                     : strcmp(*settings->fabric ? settings->fabric : "shm", schemes[i]) == 0)
            bench->scheme = schemes[i];
    }
    if (!bench->scheme)
        return tool_usage(
            *address ? "an address is shm:/DIRECTORY/NAME, tcp:HOST:PORT or verbs:HOST:PORT"
                     : "--fabric is shm, tcp or verbs");
    if (*settings->fabric && strcmp(settings->fabric, bench->scheme) != 0)
        return tool_usage("--fabric and the address differ");
    if (!*address && strcmp(bench->scheme, "verbs") == 0)
        return tool_usage(
            "--fabric verbs needs --address verbs:HOST:PORT, of the device's network");
    return EXIT_DONE;
}

/* "64,128" or "4K". Errors: ROWAN_EINVALID (no numbers from 1 to `most`, or too many). */
static int parse_list(const char *text, uint64_t most, struct number_list *out)
{
    struct number_list list = {0};

    for (;;) {
        const size_t bytes = strcspn(text, ",");
        char number[NUMBER_BYTES];
        uint64_t value;

        if (bytes == 0 || bytes >= sizeof number || list.count == MAX_NUMBERS)
            return ROWAN_EINVALID;
        memcpy(number, text, bytes);
        number[bytes] = 0;
        if (config_parse_u64(number, &value) || value == 0 || value > most)
            return ROWAN_EINVALID;
        list.values[list.count++] = value;
        if (!text[bytes])
            break;
        text += bytes + 1;
    }
    *out = list;
    return 0;
}

static int check_numbers(const struct bench_settings *settings, struct bench *bench)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t receivers = *settings->connect ? 0 : 1;
    double seconds, spin_us = 50;

    if (parse_list(settings->bytes, UINT32_MAX, &bench->bytes))
        return tool_usage("--bytes is a list of up to 16 numbers, as 64,128,4K");
    if (parse_list(settings->senders, CREW_MAX_SENDERS, &bench->senders))
        return tool_usage("--senders is a list of up to 16 numbers from 1 to 1000, as 1,6,144");
    if (!tool_parse_number(settings->seconds, 0.01, 100000, &seconds))
        return tool_usage("--seconds is a number from 0.01 to 100000");
    bench->run_ns = (uint64_t)(seconds * 1e9);
    bench->threads = (uint32_t)settings->threads;
    if (bench->threads == 0)
        bench->threads = cores > 2 ? (uint32_t)cores - receivers : 1;
    if (bench->threads > CREW_MAX_THREADS)
        bench->threads = CREW_MAX_THREADS;
    const bool crowded = (long)(bench->threads + receivers) > cores;

    if (*settings->spin_us && !tool_parse_number(settings->spin_us, 0, 1e6, &spin_us))
        return tool_usage("--spin-us is a number from 0 to 1000000");
    if (crowded && ((*settings->spin_us && spin_us > 0) || settings->receiver_spin_us > 0))
        return tool_usage(
            "threads that spin must not outnumber the cores: fewer --threads, or no spinning");
    bench->spin_ns = crowded ? 0 : (uint64_t)(spin_us * 1000);
    return EXIT_DONE;
}

static int run(void *settings, int argc, char **argv)
{
    struct bench bench = {.settings = settings, .stop = &stop};
    (void)argc;
    (void)argv;
    int code = check_places(settings, &bench);
    if (code == EXIT_DONE)
        code = check_numbers(settings, &bench);
    if (code != EXIT_DONE)
        return code;
    const char *wrong = verbs_settings_apply(&bench.settings->verbs, &bench.verbs);
    if (wrong) {
        tool_say("%s", wrong);
        return EXIT_USAGE;
    }
    if (strcmp(bench.scheme, "verbs") != 0) /* verbs says there which device it chose */
        log_set_level(LOG_WARN);
    catch_signals();
    return bench_run(&bench);
}

int main(int argc, char **argv)
{
    struct bench_settings settings;
    return tool_main(&spec, argc, argv, &settings, run);
}
