/* rowan-fabric-bench: measures one fabric by itself: a receiver and its senders, without a store. Opens what each side
 * needs, and makes the runs one after another. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_settings.h"
#include "release.h"
#include "test/bench/fabric/receiver.h"
#include "test/bench/fabric/report.h"
#include "test/lib/pm_wait.h"
#include "test/unit/fabric/fabric_host.h"
#include "tools/tool.h"

enum { NUMBER_BYTES = 24, MAX_NUMBERS = 16, MAX_BATCH = 4096 };
enum { CHECKED_BYTES = 4096 };   /* memory that begins with so many zeros counts as empty */
enum { SOURCE_BYTES = 1 << 20 }; /* of a thread: what it sends is in its core's cache */

#define SPIN_NS (50 * NS_PER_US)

struct bench_settings {
    const char *bytes, *senders, *seconds, *pm, *address, *connect;
    uint64_t fabric, mode, depth, batch, threads, durability, segments;
    struct verbs_settings verbs;
    bool serve, json;
};

#define FIELD(name) offsetof(struct bench_settings, name)

static const struct config_key keys[] = {
    {"fabric", CONFIG_CHOICE, FIELD(fabric), "shm", 0, 0, "shm|tcp|verbs",
     "where both sides are threads of this program; an address says it itself"},
    {"mode", CONFIG_CHOICE, FIELD(mode), "all", 0, 0, "rowan|message|all",
     "Rowan sends, messages with an echo, or each in turn"},
    {"bytes", CONFIG_STRING, FIELD(bytes), "64,128", 0, 0, NULL,
     "bytes of an operation: numbers with commas between them"},
    {"senders", CONFIG_STRING, FIELD(senders), "1,6", 0, 0, NULL,
     "connections at a time: numbers with commas between them, each a run"},
    {"depth", CONFIG_U64, FIELD(depth), "16", 1, CREW_MAX_DEPTH, NULL,
     "outstanding for each sender: operations; of Rowan sends batches"},
    {"batch", CONFIG_U64, FIELD(batch), "1", 1, MAX_BATCH, NULL,
     "blocks of a Rowan send, which complete together"},
    {"seconds", CONFIG_STRING, FIELD(seconds), "2", 0, 0, NULL,
     "how long each run is measured, after half of that"},
    {"threads", CONFIG_U64, FIELD(threads), "0", 0, CREW_MAX_THREADS, NULL,
     "threads that send; 0: one for each core but the receiver's"},
    {"pm", CONFIG_STRING, FIELD(pm), "", 0, 0, NULL,
     "the receiver's memory: a file or device of zeros; default: a file in TMPDIR, or /dev/shm"},
    {"durability", CONFIG_CHOICE, FIELD(durability), "fence", 0, 0, "fence|async|none",
     "durability of --pm; else there is none"},
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

struct number_list {
    uint32_t count;
    uint64_t values[MAX_NUMBERS];
};

struct bench {
    const struct bench_settings *settings;
    struct number_list bytes, senders;
    uint64_t run_ns, spin_ns;
    uint32_t threads;
    const char *address; /* of the receiver */
    struct fabric_verbs_options verbs;
    struct fabric *fabric; /* of the sending side */
    struct pm *source;
    uint64_t source_bytes; /* of a thread */
};

static struct fabric_host host; /* a directory for sockets and memory, and addresses of this host */
static atomic_bool stop;        /* by a signal */

/* --- what the other parts use --- */

void bench_fail(const char *what, const char *why)
{
    static atomic_flag failing = ATOMIC_FLAG_INIT;

    while (atomic_flag_test_and_set(&failing)) /* another thread ends the program */
        pause();
    tool_say("%s: %s", what, why);
    fflush(stdout);
    host_fini(&host);
    _exit(EXIT_FAILED); /* threads still run */
}

void bench_check(int error, const char *what)
{
    if (error)
        bench_fail(what, error_sentence(error));
}

void bench_pause(uint64_t ns)
{
    const uint64_t until_ns = clock_now_ns(clock_system()) + ns;
    uint64_t now_ns;

    while ((now_ns = clock_now_ns(clock_system())) < until_ns) {
        const uint64_t left_ns = until_ns - now_ns;

        nanosleep(&(struct timespec){.tv_nsec = (long)(left_ns < 50 * NS_PER_MS ? left_ns
                                                                                : 50 * NS_PER_MS)},
                  NULL);
        if (atomic_load_explicit(&stop, memory_order_acquire))
            bench_fail("run", "stopped by a signal");
    }
}

struct reactor *bench_reactor(const char *name, struct fabric_endpoint *endpoint, uint64_t spin_ns,
                              poll_function *poll, void *role)
{
    const struct reactor_options options = {
        .name = name, .clock = clock_system(), .spin_ns = spin_ns, .cpu = -1};
    struct event_source source;
    struct reactor *reactor;

    bench_check(reactor_create(&options, &reactor), name);
    bench_check(reactor_add_poller(reactor, &(struct poller){name, poll, role, NULL}), name);
    fabric_endpoint_source(endpoint, &source);
    bench_check(reactor_add_source(reactor, &source), name);
    fabric_endpoint_reactor(endpoint, reactor);
    return reactor;
}

static void on_signal(int number)
{
    (void)number;
    atomic_store_explicit(&stop, true, memory_order_release);
}

/* --- what was asked for --- */

/* Which side runs where. */
static int check_places(const struct bench_settings *settings)
{
    const bool connects = *settings->connect;

    if (connects && (settings->serve || *settings->address || *settings->pm))
        return tool_usage("--serve, --address and --pm are for the receiver, without --connect");
    if (settings->serve && !*settings->address)
        return tool_usage("--serve needs --address, to which the senders then --connect");
    if (!connects && !*settings->address && settings->fabric == OVER_VERBS)
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

/* Threads that spin never outnumber the cores. */
static int check_numbers(const struct bench_settings *settings, struct bench *bench)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t receivers = *settings->connect ? 0 : 1;
    double seconds;

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
    bench->spin_ns = (long)(bench->threads + receivers) > cores ? 0 : SPIN_NS;
    return EXIT_DONE;
}

static const char *refuse_rowan(const struct crew_options *run, const struct fabric_caps *caps)
{
    if (run->bytes % FABRIC_STRIDE != 0)
        return "blocks have a multiple of 64 bytes";
    if (run->bytes > caps->block_limit)
        return "a block has at most the fabric's block limit of bytes";
    if (run->senders > FABRIC_MAX_ZONE_SENDERS)
        return "a landing zone has at most 256 senders";
    if (run->batch > caps->max_batch_blocks)
        return "--batch is more than a connection of this fabric takes";
    return NULL;
}

static const char *refuse_message(const struct crew_options *run)
{
    if (run->bytes > FABRIC_MAX_MESSAGE_BYTES)
        return "a message has at most 1052672 bytes";
    if ((uint64_t)run->senders * run->depth > RECEIVER_MAX_ECHOES)
        return "at most 65536 messages may be outstanding: fewer senders or a smaller --depth";
    return NULL;
}

/* Why a run cannot be made on the fabric of the sending side, or NULL. */
static const char *refusal_of(const struct crew_options *run)
{
    return run->mode == MODE_ROWAN ? refuse_rowan(run, fabric_caps(run->fabric))
                                   : refuse_message(run);
}

/* Run `number` of all that were asked for; modes first, then bytes, then senders. False: no more. */
static bool plan_run(const struct bench *bench, uint32_t number, struct control *control,
                     struct crew_options *out)
{
    const struct bench_settings *settings = bench->settings;
    const uint32_t each = bench->bytes.count * bench->senders.count;
    const bool all = settings->mode == MODE_COUNT;

    if (number >= each * (all ? MODE_COUNT : 1))
        return false;
    const uint32_t in_mode = number % each;

    *out = (struct crew_options){
        .fabric = bench->fabric,
        .control = control,
        .mode = all ? (enum bench_mode)(number / each) : (enum bench_mode)settings->mode,
        .bytes = (uint32_t)bench->bytes.values[in_mode / bench->senders.count],
        .senders = (uint32_t)bench->senders.values[in_mode % bench->senders.count],
        .depth = (uint32_t)settings->depth,
        .batch = (uint32_t)settings->batch,
        .run_ns = bench->run_ns,
        .spin_ns = bench->spin_ns,
        .source = bench->source->base,
        .source_bytes = bench->source_bytes};
    out->threads = bench->threads < out->senders ? bench->threads : out->senders;
    return true;
}

/* --- the senders --- */

static struct fabric *open_fabric(const struct bench *bench, const char *address, struct pm *pm)
{
    struct fabric *fabric;

    bench_check(fabric_open_with(bench->address, address, &bench->verbs, &fabric), bench->address);
    int error = fabric_register(fabric, pm);

    if (error && *fabric_why(fabric))
        bench_fail(bench->address, fabric_why(fabric));
    bench_check(error, bench->address);
    return fabric;
}

/* Blocks begin with a zero byte and a first word that is not zero, as entries do. */
static void open_source(struct bench *bench)
{
    uint8_t stride[FABRIC_STRIDE];

    bench->source_bytes = SOURCE_BYTES;
    for (uint32_t i = 0; i < bench->bytes.count; i++) {
        if (bench->bytes.values[i] > SOURCE_BYTES)
            bench->source_bytes = FABRIC_MAX_MESSAGE_BYTES;
    }
    bench_check(host_pm(&host, bench->threads * bench->source_bytes, &bench->source), "memory");
    for (size_t i = 0; i < sizeof stride; i++)
        stride[i] = (uint8_t)i;
    for (uint64_t at = 0; at < bench->source->bytes; at += sizeof stride)
        pm_store(bench->source, at, stride, sizeof stride);
    pm_fence_start(bench->source);
}

/* A run that cannot be made is a mistake, and reported before any run. */
static int check_plan(const struct bench *bench)
{
    struct crew_options run;

    for (uint32_t i = 0; plan_run(bench, i, NULL, &run); i++) {
        const char *refusal = refusal_of(&run);

        if (refusal) {
            tool_say("%s, %u bytes, senders %u: %s", report_mode(run.mode), run.bytes, run.senders,
                     refusal);
            return EXIT_USAGE;
        }
    }
    return EXIT_DONE;
}

static void run_all(struct bench *bench, const char *memory)
{
    static struct crew_result result;
    struct control control;
    struct crew_options run;
    json_t *rows = json_array();

    control_open(&control, bench->fabric, bench->address);
    for (uint32_t i = 0; plan_run(bench, i, &control, &run); i++) {
        crew_run(&run, &result);
        json_t *row = report_run(&run, &result);

        if (i == 0 && !bench->settings->json)
            report_print_head(&run, memory);
        if (!bench->settings->json)
            report_print_row(row);
        json_array_append_new(rows, row);
    }
    if (bench->settings->json)
        bench_check(tool_print_json(json_pack("{s:s, s:s, s:i, s:i, s:i, s:O}", "fabric",
                                              fabric_caps(bench->fabric)->backend, "memory", memory,
                                              "depth", (int)bench->settings->depth, "batch",
                                              (int)bench->settings->batch, "threads",
                                              (int)bench->threads, "runs", rows)),
                    "report");
    json_decref(rows);
    control_close(&control);
}

static int open_senders(struct bench *bench)
{
    open_source(bench);
    bench->fabric = open_fabric(bench, NULL, bench->source);
    return check_plan(bench);
}

static void close_senders(struct bench *bench)
{
    fabric_close(bench->fabric);
    pm_close(bench->source);
}

/* --- the receiver --- */

struct receiving {
    struct fabric *fabric;
    struct pm *pm;
    struct receiver *receiver;
    char memory[64]; /* in words */
    atomic_bool stop;
};

static struct pm *open_memory(const struct bench_settings *settings)
{
    const uint64_t bytes = settings->segments * FABRIC_SEGMENT_BYTES;
    const struct pm_open_options options = {.path = settings->pm,
                                            .bytes = bytes,
                                            .durability = (enum pm_durability)settings->durability};
    struct pm *pm;

    if (!*settings->pm) {
        bench_check(host_pm(&host, bytes, &pm), "memory");
        return pm;
    }
    int error = pm_open(&options, &pm);

    if (error == ROWAN_EFORMAT)
        bench_fail(settings->pm, "too small for --segments of 4M");
    bench_check(error, settings->pm);
    for (uint64_t i = 0; i < CHECKED_BYTES; i++) {
        if (pm->base[i])
            bench_fail(settings->pm, "it holds data; what is to be overwritten begins with zeros");
    }
    return pm;
}

static void open_receiver(struct bench *bench, struct receiving *out)
{
    out->pm = open_memory(bench->settings);
    out->fabric = open_fabric(bench, bench->address, out->pm);
    out->receiver = receiver_open(out->fabric, out->pm, (uint32_t)bench->settings->segments);
    snprintf(out->memory, sizeof out->memory, "%s (durability %s)", out->pm->backend,
             pm_durability_name(out->pm->durability));
}

/* The file or device of --pm is left as it was found: full of zeros. */
static void close_receiver(const struct bench *bench, struct receiving *receiving)
{
    receiver_close(receiving->receiver);
    fabric_close(receiving->fabric);
    if (*bench->settings->pm) {
        pm_zero(receiving->pm, 0, receiving->pm->bytes);
        bench_check(pm_fence_wait(receiving->pm), bench->settings->pm);
    }
    pm_close(receiving->pm);
}

static void serve(struct bench *bench)
{
    struct receiving receiving;

    open_receiver(bench, &receiving);
    tool_say("receives at %s into %s until a signal", bench->address, receiving.memory);
    receiver_run(receiving.receiver, &stop);
    close_receiver(bench, &receiving);
}

static void *run_receiver(void *argument)
{
    const struct receiving *receiving = argument;

    receiver_run(receiving->receiver, &receiving->stop);
    return NULL;
}

static void run_both(struct bench *bench)
{
    struct receiving receiving = {0};
    pthread_t thread;

    open_receiver(bench, &receiving);
    bench_check(pthread_create(&thread, NULL, run_receiver, &receiving) ? ROWAN_ENOMEM : 0,
                "receiver");
    run_all(bench, receiving.memory);
    atomic_store_explicit(&receiving.stop, true, memory_order_release);
    pthread_join(thread, NULL);
    close_receiver(bench, &receiving);
}

/* --- all of it --- */

static int run_sides(struct bench *bench)
{
    if (bench->settings->serve) {
        serve(bench);
        return EXIT_DONE;
    }
    int code = open_senders(bench);

    if (code == EXIT_DONE && *bench->settings->connect)
        run_all(bench, "of another program");
    else if (code == EXIT_DONE)
        run_both(bench);
    close_senders(bench);
    return code;
}

static int run(void *all_settings, int argc, char **argv)
{
    const struct bench_settings *settings = all_settings;
    struct bench bench = {.settings = settings};
    const struct sigaction action = {.sa_handler = on_signal};
    (void)argc;
    (void)argv;
    int code = check_places(settings);

    if (code == EXIT_DONE)
        code = check_numbers(settings, &bench);
    if (code != EXIT_DONE)
        return code;
    const char *wrong = verbs_settings_apply(&settings->verbs, &bench.verbs);

    if (wrong) {
        tool_say("%s", wrong);
        return EXIT_USAGE;
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    setenv("TMPDIR", "/dev/shm", 0);
    host_init(&host, (enum host_kind)settings->fabric);
    bench.address = *settings->connect   ? settings->connect
                    : *settings->address ? settings->address
                                         : host_address(&host, 0);
    if (strncmp(bench.address, "verbs:", 6) != 0) /* verbs says there which device it chose */
        log_set_level(LOG_WARN);
    code = run_sides(&bench);
    host_fini(&host);
    return code;
}

int main(int argc, char **argv)
{
    struct bench_settings settings;

    return tool_main(&spec, argc, argv, &settings, run);
}
