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

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, ADDRESS_BYTES = 128 };
enum { SOURCE_BYTES = 1 << 20 /* of a thread: what it sends is in its core's cache */ };

static int failed(const char *what, int error)
{
    fprintf(stderr, "rowan-fabric-bench: %s: %s\n", what, error_sentence(error));
    return EXIT_FAILED;
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

static int refused(const struct fabric *fabric, int error)
{
    if (!*fabric_why(fabric))
        return failed(fabric_caps(fabric)->backend, error);
    fprintf(stderr, "rowan-fabric-bench: %s\n", fabric_why(fabric));
    return EXIT_FAILED;
}

static int open_memory(struct bench *bench, struct side *side)
{
    const struct bench_settings *settings = bench->settings;
    const uint64_t bytes = settings->segments * FABRIC_SEGMENT_BYTES + RECEIVER_WRITE_BYTES;
    int error;

    if (!*settings->pm) {
        error = place_memory(&bench->place, "zone", bytes, &side->pm);
        return error ? failed("/dev/shm", error) : EXIT_DONE;
    }
    error = place_open(settings->pm, bytes, (enum pm_durability)settings->durability,
                       settings->overwrite, &side->pm, &side->made);
    if (error == ROWAN_EEXISTS)
        fprintf(stderr, "rowan-fabric-bench: %s holds data; --overwrite destroys it\n",
                settings->pm);
    else if (error == ROWAN_EFORMAT)
        fprintf(stderr,
                "rowan-fabric-bench: %s is too small: %" PRIu64 " --segments and 64 MiB for bulk "
                "writes take %" PRIu64 " bytes\n",
                settings->pm, settings->segments, bytes);
    else if (error)
        return failed(settings->pm, error);
    return error ? EXIT_FAILED : EXIT_DONE;
}

static int open_side(struct bench *bench, const char *address, struct side *side)
{
    const struct bench_settings *settings = bench->settings;
    int code = open_memory(bench, side);

    if (code != EXIT_DONE)
        return code;
    int error = fabric_open_with(bench->scheme, address, &bench->verbs, &side->fabric);

    if (!error) {
        error = fabric_register(side->fabric, side->pm);
        if (error)
            return refused(side->fabric, error);
    }
    if (!error)
        error = receiver_open(
            &(struct receiver_options){.fabric = side->fabric,
                                       .pm = side->pm,
                                       .segments = (uint32_t)settings->segments,
                                       .spin_ns = settings->receiver_spin_us * NS_PER_US},
            &side->receiver);
    return error ? failed(address, error) : EXIT_DONE;
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
        fprintf(stderr, "rowan-fabric-bench: receives at %s until a signal\n",
                bench->settings->address);
        int error = receiver_run(side.receiver, bench->stop);

        if (error)
            code = failed(bench->settings->address, error);
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
    struct report *report;
    struct report_setup setup;
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
        return failed("memory", ROWAN_ENOMEM);
    int error = place_memory(&bench->place, "source", bench->threads * senders->source_bytes,
                             &senders->source);

    if (error)
        return failed("/dev/shm", error);
    fill_source(senders->source);
    error = fabric_open_with(bench->scheme, NULL, &bench->verbs, &senders->fabric);
    if (!error) {
        error = fabric_register(senders->fabric, senders->source);
        if (error)
            return refused(senders->fabric, error);
    }
    return error ? failed(bench->scheme, error) : EXIT_DONE;
}

static void close_senders(struct senders *senders)
{
    control_close(senders->control);
    fabric_close(senders->fabric);
    pm_close(senders->source);
    report_drop(senders->report);
    free(senders->result);
}

static int run_failed(const struct crew_options *run, int error)
{
    fprintf(stderr, "rowan-fabric-bench: %s, %u bytes, senders %u: ", report_mode(run->mode),
            run->bytes, run->senders);
    if (error == ROWAN_EUNKNOWN)
        fprintf(stderr, "stopped by a signal\n");
    else if (error == ROWAN_ETIMEDOUT)
        fprintf(stderr, "nothing completed for 10 s\n");
    else
        fprintf(stderr, "%s\n", error_sentence(error));
    return EXIT_FAILED;
}

static int run_one(struct bench *bench, struct senders *senders, const char *address,
                   struct crew_options *run)
{
    const char *refusal =
        plan_refusal(run->mode, run->bytes, run->senders, run->depth, run->batch, senders->fabric);

    run->fabric = senders->fabric;
    run->address = address;
    run->control = senders->control;
    run->source = senders->source->base;
    run->source_bytes = senders->source_bytes;
    run->stop = bench->stop;
    if (refusal) {
        report_skipped(senders->report, run, refusal);
        return EXIT_DONE;
    }
    if (bench->settings->json)
        fprintf(stderr, "rowan-fabric-bench: %s, %u bytes, senders %u\n", report_mode(run->mode),
                run->bytes, run->senders);
    int error = crew_run(run, senders->result);

    if (error)
        return run_failed(run, error);
    report_run(senders->report, run, senders->result);
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
        const char *refusal =
            plan_refusal(run.mode, run.bytes, run.senders, run.depth, run.batch, fabric);

        if (refusal) {
            fprintf(stderr, "rowan-fabric-bench: %s, %u bytes, senders %u: %s\n",
                    report_mode(run.mode), run.bytes, run.senders, refusal);
            return EXIT_USAGE;
        }
    }
    return EXIT_DONE;
}

static int run_all(struct bench *bench, struct senders *senders, const char *address)
{
    struct crew_options run;
    struct wire_facts facts;
    int code = EXIT_DONE;
    int error = control_open(senders->fabric, address, &senders->control);

    if (!error)
        error = control_ask(senders->control, &facts);
    if (error)
        return failed(address, error);
    senders->setup = (struct report_setup){.caps = fabric_caps(senders->fabric),
                                           .address = address,
                                           .depth = (uint32_t)bench->settings->depth,
                                           .batch = (uint32_t)bench->settings->batch,
                                           .threads = bench->threads,
                                           .spin_ns = bench->spin_ns,
                                           .remote = *bench->settings->connect != 0,
                                           .json = bench->settings->json};
    error = report_begin(&senders->setup, &senders->report);
    if (error)
        return failed("report", error);
    report_memory(senders->report, &facts);
    for (uint32_t i = 0; code == EXIT_DONE && plan_run(bench, i, &run); i++)
        code = run_one(bench, senders, address, &run);
    if (code != EXIT_DONE)
        return code;
    error = report_end(senders->report);
    senders->report = NULL;
    return error ? failed("report", error) : EXIT_DONE;
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

/* A port that was free just now. */
static int free_port(uint16_t *out)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = fd < 0 ? ROWAN_EIO : 0;

    if (!error && (bind(fd, (struct sockaddr *)&address, bytes) != 0 ||
                   getsockname(fd, (struct sockaddr *)&address, &bytes) != 0))
        error = ROWAN_EIO;
    if (fd >= 0)
        close(fd);
    if (!error)
        *out = ntohs(address.sin_port);
    return error;
}

static int choose_address(const struct bench *bench, char out[ADDRESS_BYTES])
{
    uint16_t port;

    if (*bench->settings->address) {
        if (strlen(bench->settings->address) >= ADDRESS_BYTES)
            return ROWAN_EINVALID;
        strcpy(out, bench->settings->address);
    } else if (strcmp(bench->scheme, "shm") == 0) {
        snprintf(out, ADDRESS_BYTES, "shm:%s/receiver", bench->place.directory);
    } else {
        int error = free_port(&port);

        if (error)
            return error;
        snprintf(out, ADDRESS_BYTES, "%s:127.0.0.1:%u", bench->scheme, port);
    }
    return 0;
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
        return failed("address", error);
    int code = open_side(bench, address, &side);

    if (code == EXIT_DONE && pthread_create(&thread, NULL, run_receiver, &side) != 0)
        code = failed("thread", ROWAN_ENOMEM);
    else if (code == EXIT_DONE) {
        code = bench_connect(bench, address);
        atomic_store_explicit(&side.stop, true, memory_order_release);
        pthread_join(thread, NULL);
        if (side.error)
            code = failed("receiver", side.error);
    }
    close_side(bench, &side);
    return code;
}
