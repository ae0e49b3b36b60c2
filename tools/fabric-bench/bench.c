/* bench.c - opens and closes what each side needs, and makes the runs one after another. */
#include "tools/fabric-bench/bench.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
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

/* --- the files of a run --- */

enum { CHECKED_BYTES = 4096 }; /* a file that begins with so many zeros counts as empty */

/* Errors: those of error_from_errno. */
static int make_place(struct place *place)
{
    static const char pattern[] = "/dev/shm/rowan-fabric-bench.XXXXXX";

    snprintf(place->directory, sizeof place->directory, "%s", pattern);
    if (!mkdtemp(place->directory)) {
        place->directory[0] = 0;
        return error_from_errno(errno);
    }
    return 0;
}

/* Sockets and locks that the fabric left lie in it, and no directories. */
static void remove_place(struct place *place)
{
    DIR *directory = *place->directory ? opendir(place->directory) : NULL;
    struct dirent *entry;

    if (!directory)
        return;
    while ((entry = readdir(directory)) != NULL)
        unlinkat(dirfd(directory), entry->d_name, 0); /* "." and "..": refused */
    closedir(directory);
    rmdir(place->directory);
    place->directory[0] = 0;
}

static bool holds_data(const struct pm *pm)
{
    for (uint64_t i = 0; i < CHECKED_BYTES; i++) {
        if (pm->base[i])
            return true;
    }
    return false;
}

/* `bytes` of a file or device that a user named. A file that is not there is made; *made tells the
 * caller to remove it. Errors: those of pm_open, ROWAN_EEXISTS: it holds data, and `overwrite` is not set. */
static int open_named(const char *path, uint64_t bytes, enum pm_durability durability,
                      bool overwrite, struct pm **out, bool *made)
{
    struct pm_open_options options = {.path = path, .bytes = bytes, .durability = durability};
    const bool is_there = access(path, F_OK) == 0;
    struct pm *pm;

    options.create = !is_there;
    int error = pm_open(&options, &pm);

    if (error)
        return error;
    if (is_there && holds_data(pm) && !overwrite) {
        pm_close(pm);
        return ROWAN_EEXISTS;
    }
    *made = !is_there;
    *out = pm;
    return 0;
}

/* Memory of the run, in a file that is unlinked at once. Errors: those of pm_open. */
static int make_memory(const struct place *place, const char *name, uint64_t bytes, struct pm **out)
{
    char path[sizeof place->directory + 32];
    bool made;
    snprintf(path, sizeof path, "%s/%s", place->directory, name);
    int error = open_named(path, bytes, PM_NONE, false, out, &made);
    if (!error)
        unlink(path);
    return error;
}

/* --- the sides --- */

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
        error = make_memory(&bench->place, "zone", bytes, &side->pm);
        return error ? tool_failed("/dev/shm", error) : EXIT_DONE;
    }
    error = open_named(settings->pm, bytes, (enum pm_durability)settings->durability,
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

static int serve(struct bench *bench)
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
    int error = make_memory(&bench->place, "source", bench->threads * senders->source_bytes,
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

/* --- what fabric and receiver allow --- */

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

static const char *refuse_write(const struct crew_options *run, const struct fabric *fabric)
{
    const struct bench_lane lane = {.bytes = run->bytes};

    if (!fabric->ops->write || !fabric->ops->grant)
        return "this fabric cannot do bulk writes";
    if (run->bytes % FABRIC_STRIDE != 0 || run->bytes > FABRIC_MAX_WRITE_BYTES)
        return "bulk writes have a multiple of 64 bytes, at most 4M";
    if (run->senders > FABRIC_MAX_GRANTS)
        return "an endpoint gives at most 64 grants, one for each sender";
    if (lane_grant_bytes(&lane) * run->senders > RECEIVER_WRITE_BYTES)
        return "the receiver grants 64M at most: fewer senders or bytes";
    return NULL;
}

/* Why a run cannot be made on the fabric of the sending side, or NULL. */
static const char *refusal_of(const struct crew_options *run, const struct fabric *fabric)
{
    if (run->mode == MODE_ROWAN)
        return refuse_rowan(run, &fabric->caps);
    if (run->mode == MODE_WRITE)
        return refuse_write(run, fabric);
    if (run->bytes > FABRIC_MAX_MESSAGE_BYTES)
        return "a message has at most 1052672 bytes";
    if ((uint64_t)run->senders * run->depth > RECEIVER_MAX_ECHOES)
        return "at most 65536 messages may be outstanding: fewer senders or a smaller --depth";
    return NULL;
}

static int run_one(struct bench *bench, struct senders *senders, const char *address,
                   struct crew_options *run)
{
    const char *refusal = refusal_of(run, senders->fabric);
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
        const char *refusal = refusal_of(&run, fabric);
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

static int connect_to(struct bench *bench, const char *address)
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

static int run_both(struct bench *bench)
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
        code = connect_to(bench, address);
        atomic_store_explicit(&side.stop, true, memory_order_release);
        pthread_join(thread, NULL);
        if (side.error)
            code = tool_failed("receiver", side.error);
    }
    close_side(bench, &side);
    return code;
}

int bench_run(struct bench *bench)
{
    const struct bench_settings *settings = bench->settings;
    int code;
    if (make_place(&bench->place))
        return tool_say("no directory can be made in /dev/shm");
    if (settings->serve)
        code = serve(bench);
    else if (*settings->connect)
        code = connect_to(bench, settings->connect);
    else
        code = run_both(bench);
    remove_place(&bench->place);
    return code;
}
