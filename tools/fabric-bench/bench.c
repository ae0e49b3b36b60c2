/* bench.c - opens and closes what each side needs, and makes the runs one after another. */
#include "tools/fabric-bench/bench.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "tools/fabric-bench/receiver.h"
#include "tools/fabric-bench/report.h"
#include "tools/tool.h"

enum { ADDRESS_BYTES = 128 };
enum { SOURCE_BYTES = 1 << 20 /* of a thread: what it sends is in its core's cache */ };

/* Opens the fabric of one side, and registers its memory. */
static int open_fabric(const struct bench *bench, const char *address, struct pm *pm,
                       struct fabric **out)
{
    int error = fabric_open_with(bench->scheme, address, &bench->verbs, out);
    if (error)
        return tool_failed(address ? address : bench->scheme, error);
    error = fabric_register(*out, pm);
    if (error && *fabric_why(*out))
        return tool_say("%s", fabric_why(*out));
    return error ? tool_failed(bench->scheme, error) : EXIT_DONE;
}

/* --- the receiver --- */

struct side {
    struct fabric *fabric;
    struct pm *pm;
    struct receiver *receiver;
    bool made; /* the file of --pm */
    int error; /* of the thread */
    atomic_bool stop;
};

static int open_memory(struct bench *bench, struct side *side)
{
    const struct bench_settings *settings = bench->settings;
    const uint64_t bytes = settings->segments * FABRIC_SEGMENT_BYTES + RECEIVER_WRITE_BYTES;
    int error;

    if (!*settings->pm) {
        error = place_memory(&bench->place, "zone", bytes, &side->pm);
        return error ? tool_failed("/dev/shm", error) : EXIT_DONE;
    }
    error = place_open(settings->pm, bytes, (enum pm_durability)settings->durability,
                       settings->overwrite, &side->pm, &side->made);
    if (error == ROWAN_EEXISTS)
        return tool_say("%s holds data; --overwrite destroys it", settings->pm);
    if (error == ROWAN_EFORMAT)
        return tool_say("%s is too small: %" PRIu64 " --segments and 64 MiB for bulk writes take "
                        "%" PRIu64 " bytes",
                        settings->pm, settings->segments, bytes);
    return error ? tool_failed(settings->pm, error) : EXIT_DONE;
}

static int open_side(struct bench *bench, const char *address, struct side *side)
{
    const struct bench_settings *settings = bench->settings;
    int code = open_memory(bench, side);
    if (code == EXIT_DONE)
        code = open_fabric(bench, address, side->pm, &side->fabric);
    if (code != EXIT_DONE)
        return code;
    int error =
        receiver_open(&(struct receiver_options){.fabric = side->fabric,
                                                 .pm = side->pm,
                                                 .segments = (uint32_t)settings->segments,
                                                 .spin_ns = settings->receiver_spin_us * NS_PER_US},
                      &side->receiver);
    return error ? tool_failed(address, error) : EXIT_DONE;
}

/* The file or device of --pm is left as it was found: removed, or zeros at its beginning. */
static void close_side(struct bench *bench, struct side *side)
{
    receiver_close(side->receiver);
    fabric_close(side->fabric);
    if (side->pm && *bench->settings->pm) {
        pm_zero(side->pm, 0, side->pm->bytes);
        pm_fence_wait(side->pm);
    }
    pm_close(side->pm);
    if (side->made)
        unlink(bench->settings->pm);
}

int bench_serve(struct bench *bench)
{
    struct side side = {0};
    int code = open_side(bench, bench->settings->address, &side);

    if (code == EXIT_DONE) {
        tool_say("receives at %s until a signal", bench->settings->address);
        int error = receiver_run(side.receiver, bench->stop);

        if (error)
            code = tool_failed(bench->settings->address, error);
    }
    close_side(bench, &side);
    return code;
}

/* --- the senders --- */

struct senders {
    struct fabric *fabric;
    struct pm *source;
    uint64_t source_bytes; /* of a thread */
    struct bench_control *control;
    struct report report;
    struct crew_result *result;
};

/* Blocks begin with a zero byte and a first word that is not zero, as entries do. */
static void fill_source(struct pm *pm)
{
    uint8_t stride[FABRIC_STRIDE];

    for (size_t i = 0; i < sizeof stride; i++)
        stride[i] = (uint8_t)i;
    for (uint64_t at = 0; at < pm->bytes; at += sizeof stride)
        pm_store(pm, at, stride, sizeof stride);
    pm_fence_start(pm);
}

static int open_senders(struct bench *bench, struct senders *senders)
{
    senders->source_bytes = SOURCE_BYTES;
    for (uint32_t i = 0; i < bench->bytes.count; i++) {
        if (bench->bytes.values[i] > senders->source_bytes)
            senders->source_bytes = (uint64_t)FABRIC_MAX_WRITE_BYTES;
    }
    senders->result = malloc(sizeof *senders->result);
    if (!senders->result)
        return tool_failed("memory", ROWAN_ENOMEM);
    int error = place_memory(&bench->place, "source", bench->threads * senders->source_bytes,
                             &senders->source);

    if (error)
        return tool_failed("/dev/shm", error);
    fill_source(senders->source);
    return open_fabric(bench, NULL, senders->source, &senders->fabric);
}

static void close_senders(struct senders *senders)
{
    control_close(senders->control);
    fabric_close(senders->fabric);
    pm_close(senders->source);
    report_fini(&senders->report);
    free(senders->result);
}

/* Says which run it is, and what there is to say of it. */
static int say_run(const struct crew_options *run, const char *separator, const char *sentence)
{
    return tool_say("%s, %u bytes, senders %u%s%s", report_mode(run->mode), run->bytes,
                    run->senders, separator, sentence);
}

static int run_failed(const struct crew_options *run, int error)
{
    if (error == ROWAN_EUNKNOWN)
        return say_run(run, ": ", "stopped by a signal");
    return say_run(run, ": ",
                   error == ROWAN_ETIMEDOUT ? "nothing completed for 10 s" : error_sentence(error));
}

static int run_one(struct bench *bench, struct senders *senders, const char *address,
                   struct crew_options *run)
{
    const char *refusal = plan_refusal(run, senders->fabric);
    if (refusal) {
        report_skipped(&senders->report, run, refusal);
        return EXIT_DONE;
    }
    run->fabric = senders->fabric;
    run->address = address;
    run->control = senders->control;
    run->source = senders->source->base;
    run->source_bytes = senders->source_bytes;
    run->stop = bench->stop;
    if (bench->settings->json)
        say_run(run, "", "");
    int error = crew_run(run, senders->result);
    if (error)
        return run_failed(run, error);
    report_run(&senders->report, run, senders->result);
    return EXIT_DONE;
}

/* Run `number` of all that were asked for; modes first, then bytes, then senders. False: no more. */
static bool plan_run(const struct bench *bench, uint32_t number, struct crew_options *out)
{
    const struct bench_settings *settings = bench->settings;
    const uint32_t each = bench->bytes.count * bench->senders.count;
    const bool all = settings->mode == MODE_COUNT;

    if (number >= each * (all ? MODE_COUNT : 1))
        return false;
    const uint32_t in_mode = number % each;

    *out = (struct crew_options){
        .mode = all ? (enum bench_mode)(number / each) : (enum bench_mode)settings->mode,
        .bytes = (uint32_t)bench->bytes.values[in_mode / bench->senders.count],
        .senders = (uint32_t)bench->senders.values[in_mode % bench->senders.count],
        .depth = (uint32_t)settings->depth,
        .batch = (uint32_t)settings->batch,
        .warm_up_ns = settings->warm_up_ms * NS_PER_MS,
        .run_ns = bench->run_ns,
        .spin_ns = bench->spin_ns};
    out->threads = bench->threads < out->senders ? bench->threads : out->senders;
    return true;
}

/* One mode was named: a run that cannot be made is a mistake, and reported before any run. */
static int check_plan(const struct bench *bench, const struct fabric *fabric)
{
    struct crew_options run;

    for (uint32_t i = 0; bench->settings->mode != MODE_COUNT && plan_run(bench, i, &run); i++) {
        const char *refusal = plan_refusal(&run, fabric);
        if (refusal) {
            say_run(&run, ": ", refusal);
            return EXIT_USAGE;
        }
    }
    return EXIT_DONE;
}

static int run_all(struct bench *bench, struct senders *senders, const char *address)
{
    struct report *report = &senders->report;
    struct crew_options run;
    int code = EXIT_DONE;
    int error = control_open(senders->fabric, address, &senders->control);
    *report = (struct report){.caps = fabric_caps(senders->fabric),
                              .address = address,
                              .depth = (uint32_t)bench->settings->depth,
                              .batch = (uint32_t)bench->settings->batch,
                              .threads = bench->threads,
                              .spin_ns = bench->spin_ns,
                              .remote = *bench->settings->connect != 0,
                              .json = bench->settings->json,
                              .runs = json_array(),
                              .skipped = json_array()};
    if (!error)
        error = control_ask(senders->control, &report->memory);
    if (error)
        return tool_failed(address, error);
    for (uint32_t i = 0; code == EXIT_DONE && plan_run(bench, i, &run); i++)
        code = run_one(bench, senders, address, &run);
    if (code != EXIT_DONE)
        return code;
    error = report_end(report);
    return error ? tool_failed("report", error) : EXIT_DONE;
}

int bench_connect(struct bench *bench, const char *address)
{
    struct senders senders = {0};
    int code = open_senders(bench, &senders);

    if (code == EXIT_DONE)
        code = check_plan(bench, senders.fabric);
    if (code == EXIT_DONE)
        code = run_all(bench, &senders, address);
    close_senders(&senders);
    return code;
}

/* --- both --- */

/* A port that was free just now; 0: none. */
static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    if (bind(fd, (struct sockaddr *)&address, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0)
        address.sin_port = 0;
    close(fd);
    return ntohs(address.sin_port);
}

static int choose_address(const struct bench *bench, char out[ADDRESS_BYTES])
{
    int length;
    if (*bench->settings->address) {
        length = snprintf(out, ADDRESS_BYTES, "%s", bench->settings->address);
    } else if (strcmp(bench->scheme, "shm") == 0) {
        length = snprintf(out, ADDRESS_BYTES, "shm:%s/receiver", bench->place.directory);
    } else {
        const uint16_t port = free_port();
        if (!port)
            return ROWAN_EIO;
        length = snprintf(out, ADDRESS_BYTES, "%s:127.0.0.1:%u", bench->scheme, port);
    }
    return length < ADDRESS_BYTES ? 0 : ROWAN_EINVALID;
}

static void *run_receiver(void *argument)
{
    struct side *side = argument;

    side->error = receiver_run(side->receiver, &side->stop);
    return NULL;
}

int bench_local(struct bench *bench)
{
    struct side side = {0};
    char address[ADDRESS_BYTES];
    pthread_t thread;
    int error = choose_address(bench, address);

    if (error)
        return tool_failed("address", error);
    int code = open_side(bench, address, &side);

    if (code == EXIT_DONE && pthread_create(&thread, NULL, run_receiver, &side) != 0)
        code = tool_failed("thread", ROWAN_ENOMEM);
    else if (code == EXIT_DONE) {
        code = bench_connect(bench, address);
        atomic_store_explicit(&side.stop, true, memory_order_release);
        pthread_join(thread, NULL);
        if (side.error)
            code = tool_failed("receiver", side.error);
    }
    close_side(bench, &side);
    return code;
}
